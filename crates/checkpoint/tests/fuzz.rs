//! The loader is fed damaged files: it loads them or says what is wrong, in little memory.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{config, contents, gpt2, llama, mixed, random_parameters};
use softdict_checkpoint::{Which, load, load_trainer, resolve, save};
use softdict_testkit::fuzz;
use std::fs;

/// Peak of the whole process: the files are some kilobytes.
const MOST_MEMORY: u64 = 300 << 20;

/// Every file of a checkpoint is damaged in turn, of every family, with its manifest and without.
#[test]
fn a_damaged_checkpoint_is_loaded_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let configs = [config(|_| ()), config(llama), config(gpt2), config(mixed)];
    let mut files: Vec<(std::path::PathBuf, Vec<u8>)> = Vec::new();
    for (nth, config) in configs.iter().enumerate() {
        let parameters = random_parameters(config, 1);
        for manifest in [true, false] {
            let checkpoint = folder.path().join(format!("{nth}-{manifest}"));
            save(&checkpoint, &contents(config, &parameters)).unwrap();
            if !manifest {
                fs::remove_file(checkpoint.join("softdict.json")).unwrap();
            }
            for entry in fs::read_dir(&checkpoint).unwrap() {
                let path = entry.unwrap().path();
                files.push((path.clone(), fs::read(path).unwrap()));
            }
        }
    }
    let seeds: Vec<Vec<u8>> = files.iter().map(|(_, bytes)| bytes.clone()).collect();
    let mut turn = 0;
    fuzz("checkpoint", &seeds, MOST_MEMORY, &mut |bytes| {
        turn = (turn + 1) % files.len();
        let (path, whole) = &files[turn];
        fs::write(path, bytes).unwrap();
        let checkpoint = path.parent().unwrap();
        if let Ok(loaded) = load(checkpoint) {
            assert!(loaded.parameters.first_non_finite().is_none());
        }
        let _ = load_trainer(checkpoint);
        fs::write(path, whole).unwrap();
    });
}

/// A run's pointers never lead out of it, whatever they hold.
#[test]
fn a_damaged_pointer_leads_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let (run, outside) = (folder.path().join("run"), folder.path().join("outside"));
    let config = config(|_| ());
    for checkpoint in [run.join("step-000003"), outside.clone()] {
        save(&checkpoint, &contents(&config, &random_parameters(&config, 1))).unwrap();
    }
    let seeds = [&b"step-000003"[..], b"../outside", b"/", b"step-000003/../../outside"].map(<[u8]>::to_vec);
    fuzz("pointer", &seeds, MOST_MEMORY, &mut |bytes| {
        fs::write(run.join("last"), bytes).unwrap();
        if let Ok(found) = resolve(&run, Which::Last) {
            assert_eq!(found.parent(), Some(run.as_path()), "{found:?}");
        }
    });
}
