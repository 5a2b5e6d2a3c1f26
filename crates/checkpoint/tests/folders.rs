//! Runs, pointers and manifests: what is found, what is kept, and what a changed file is told apart by.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{config, contents, random_parameters};
use softdict_checkpoint::{
    Error, Manifest, Which, list_steps, load, point, prune, resolve, save, step_folder,
};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn run_with(steps: &[u64]) -> TempDir {
    let (run, config) = (tempfile::tempdir().unwrap(), config(|_| ()));
    for &step in steps {
        let parameters = random_parameters(&config, step);
        save(&run.path().join(step_folder(step)), &contents(&config, &parameters)).unwrap();
    }
    run
}

fn steps(run: &Path) -> Vec<u64> {
    list_steps(run).unwrap().into_iter().map(|(step, _)| step).collect()
}

#[test]
fn last_and_best_lead_to_their_checkpoints_and_move_with_the_run() {
    let run = run_with(&[1, 2]);
    point(run.path(), "last", "step-000002").unwrap();
    point(run.path(), "best", "step-000001").unwrap();
    assert_eq!(resolve(run.path(), Which::Last).unwrap(), run.path().join("step-000002"));
    assert_eq!(resolve(run.path(), Which::Best).unwrap(), run.path().join("step-000001"));
    point(run.path(), "best", "step-000002").unwrap();
    assert_eq!(resolve(run.path(), Which::Best).unwrap(), run.path().join("step-000002"));
    // a checkpoint folder means itself
    let folder = run.path().join("step-000001");
    assert_eq!(resolve(&folder, Which::Best).unwrap(), folder);

    let other = tempfile::tempdir().unwrap();
    let moved = other.path().join("my run é");
    fs::rename(run.path(), &moved).unwrap();
    assert_eq!(resolve(&moved, Which::Last).unwrap(), moved.join("step-000002"));
    load(&resolve(&moved, Which::Best).unwrap()).unwrap();
}

#[test]
fn a_pointer_kept_as_a_file_is_followed_but_not_out_of_the_run() {
    let run = run_with(&[1]);
    fs::write(run.path().join("last"), "step-000001\n").unwrap();
    assert_eq!(resolve(run.path(), Which::Last).unwrap(), run.path().join("step-000001"));
    fs::write(run.path().join("last"), "../step-000001").unwrap();
    assert!(matches!(resolve(run.path(), Which::Last), Err(Error::Name { .. })));
    for (name, target) in [("../last", "step-000001"), ("last", "/etc"), ("last", ""), ("last", "..")] {
        assert!(matches!(point(run.path(), name, target), Err(Error::Name { .. })), "{name} {target}");
    }
}

#[test]
fn what_is_no_checkpoint_is_told_with_what_was_looked_for() {
    let run = run_with(&[1]);
    let message = |path: &Path, which| resolve(path, which).unwrap_err().to_string();
    let absent = message(&run.path().join("nowhere"), Which::Last);
    assert!(absent.contains("nowhere"), "{absent}");
    let best = message(run.path(), Which::Best);
    assert!(best.contains("has no `best`"), "{best}");
    let empty = tempfile::tempdir().unwrap();
    for which in [Which::Last, Which::Best] {
        let none = message(empty.path(), which);
        assert!(none.contains("`last`") && none.contains("config.json"), "{none}");
    }
    let none = load(empty.path()).unwrap_err().to_string();
    assert!(none.contains("config.json"), "{none}");
    let file = message(&run.path().join("step-000001/model.safetensors"), Which::Last);
    assert!(file.contains("is a file"), "{file}");
    point(run.path(), "last", "step-000009").unwrap();
    let dangling = message(run.path(), Which::Last);
    assert!(dangling.contains("last points to step-000009"), "{dangling}");
}

#[test]
fn a_run_killed_before_its_first_pointer_still_has_a_last() {
    let run = run_with(&[1, 2]);
    assert_eq!(resolve(run.path(), Which::Last).unwrap(), run.path().join("step-000002"));
}

#[test]
fn pruning_keeps_the_newest_the_last_and_the_best() {
    let run = run_with(&[1, 2, 3, 4, 5, 1_234_567]);
    point(run.path(), "best", "step-000002").unwrap();
    point(run.path(), "last", "step-000004").unwrap();
    fs::create_dir(run.path().join("step-x")).unwrap();
    fs::write(run.path().join("step-000003/notes.txt"), "mine").unwrap();
    assert_eq!(steps(run.path()), [1, 2, 3, 4, 5, 1_234_567]);
    let removed = prune(run.path(), 2).unwrap();
    assert_eq!(removed, ["step-000001", "step-000003"].map(|name| run.path().join(name)));
    assert_eq!(steps(run.path()), [2, 4, 5, 1_234_567]);
    // what the user had put into a checkpoint stays
    assert_eq!(fs::read(run.path().join("step-000003/notes.txt")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(run.path().join("step-000003")).unwrap().count(), 1);
    assert!(!run.path().join("step-000001").exists());
    prune(run.path(), 0).unwrap();
    assert_eq!(steps(run.path()), [2, 4]);
}

#[test]
fn a_changed_file_is_named() {
    for name in ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json"] {
        let run = run_with(&[1]);
        let (folder, path) = (run.path().join("step-000001"), run.path().join("step-000001").join(name));
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 1;
        bytes[end] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let message = load(&folder).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("SHA-256"), "{message}");
        fs::write(&path, &bytes[..end]).unwrap();
        let message = load(&folder).unwrap_err().to_string();
        let reason = if name == "model.safetensors" { "cut short" } else { &format!("{end} bytes") };
        assert!(message.contains(name) && message.contains(reason), "{message}");
        fs::remove_file(&path).unwrap();
        let message = load(&folder).unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn a_manifest_cannot_lead_out_of_its_folder_or_come_from_the_future() {
    let run = run_with(&[1]);
    let (folder, path) = (run.path().join("step-000001"), run.path().join("step-000001/softdict.json"));
    let good = fs::read_to_string(&path).unwrap();
    assert_eq!(Manifest::read(&folder).unwrap().unwrap().progress.step, 3);
    for (from, to, part) in [
        ("\"config.json\"", "\"../config.json\"", "plain name"),
        ("\"format\": 1", "\"format\": 2", "format 2"),
        ("\"format\": 1", "\"format\": -2", "line"),
    ] {
        let changed = good.replace(from, to);
        assert_ne!(changed, good);
        fs::write(&path, changed).unwrap();
        let message = load(&folder).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn saving_where_nothing_can_be_saved_names_the_place_and_changes_nothing() {
    let (run, config) = (run_with(&[1]), config(|_| ()));
    let parameters = random_parameters(&config, 1);
    let file = run.path().join("step-000001/config.json");
    let error = save(&file.join("below"), &contents(&config, &parameters)).unwrap_err().to_string();
    assert!(error.contains("config.json"), "{error}");
    let error = save(&file, &contents(&config, &parameters)).unwrap_err();
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    load(&run.path().join("step-000001")).unwrap();
    assert_eq!(fs::read_dir(run.path()).unwrap().count(), 1);
}
