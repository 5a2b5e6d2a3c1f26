//! A process killed while it saves: what it had saved before, or what it was saving, is there as a whole.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{config, contents, random_parameters};
use softdict_checkpoint::{
    Contents, Manifest, Progress, Which, clean_up, load, point, resolve, save, step_folder,
};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tell the program that it is the one to be killed, where to save, and from which step on.
const RUN: &str = "SOFTDICT_TEST_RUN";
const FIRST: &str = "SOFTDICT_TEST_FIRST";
const KILLS: u64 = 25;
/// Checkpoints replace each other under this many names, since replacing is the delicate moment.
const NAMES: u64 = 2;

/// Saves without end; every weight is the number of the step.
fn save_for_ever(run: &Path) {
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let config = config(|_| ());
    let mut parameters = random_parameters(&config, 0);
    for step in first.. {
        parameters.values_mut().fill(step as f32);
        let progress = Progress { step, ..Progress::default() };
        let name = step_folder(step % NAMES);
        save(&run.join(&name), &Contents { progress, ..contents(&config, &parameters) }).unwrap();
        point(run, "last", &name).unwrap();
    }
}

#[test]
fn a_kill_while_saving_leaves_whole_checkpoints() {
    if let Some(run) = std::env::var_os(RUN) {
        save_for_ever(Path::new(&run));
        return;
    }
    let run = tempfile::tempdir().unwrap();
    let mut newest = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_kill_while_saving_leaves_whole_checkpoints"])
            .env(RUN, run.path())
            .env(FIRST, (newest + 1).to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while step_of(run.path()).is_none_or(|step| step <= newest) {
            assert!(start.elapsed() < Duration::from_mins(1), "nothing is saved");
            std::thread::sleep(Duration::from_millis(1));
        }
        // the moments of the kills are spread over some savings, whatever their length
        std::thread::sleep(Duration::from_micros(1_370 * kill));
        child.kill().unwrap();
        child.wait().unwrap();
        if cfg!(not(target_os = "linux")) {
            // folders cannot be exchanged in one step there; cleaning restores the old one
            clean_up(run.path()).unwrap();
        }

        let checkpoint = load(&resolve(run.path(), Which::Last).unwrap()).unwrap();
        let step = checkpoint.manifest.unwrap().progress.step;
        assert!(step > newest, "step {step} after {newest}");
        assert!(checkpoint.parameters.values().iter().all(|&value| value == step as f32));
        newest = step;
        clean_up(run.path()).unwrap();
        for entry in std::fs::read_dir(run.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name == "last" || name.starts_with("step-"), "{name} is left over");
        }
    }
    // each start alone replaces one
    assert!(newest >= KILLS, "only {newest} checkpoints were saved");
}

/// The step of the last checkpoint, when there is one already.
fn step_of(run: &Path) -> Option<u64> {
    let folder = resolve(run, Which::Last).ok()?;
    Some(Manifest::read(&folder).ok()??.progress.step)
}
