//! Runs that were copied, packed or lost a piece: nothing more is lost, and the advice that is given works.
#![cfg(unix)]

use crate::support::Lab;
use std::fs;
use std::os::unix::fs::symlink;

/// A run whose best checkpoint is not among its newest, because the end of its text is written backwards.
fn overfitted() -> Lab {
    let lab = Lab::with("abcd ".repeat(200) + &"dcba ".repeat(22));
    let sets = ["train.steps=100", "train.learning_rate=1e-2", "train.keep_checkpoints=1"];
    lab.train("run", &[&sets[..], &["train.schedule=constant"]].concat()).ok();
    lab
}

/// The name of the folder that a pointer of the run leads to, as a link or as a file.
fn target(lab: &Lab, pointer: &str) -> String {
    let path = lab.path("run").join(pointer);
    fs::read_link(&path)
        .map_or_else(|_| fs::read_to_string(&path).unwrap(), |target| target.to_string_lossy().into_owned())
}

fn replaced(lab: &Lab, pointer: &str) {
    let path = lab.path("run").join(pointer);
    if path.is_symlink() || path.is_file() {
        fs::remove_file(path).unwrap();
    } else {
        fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn pointers_that_a_copy_lost_or_made_folders_of_come_back_and_the_best_stays() {
    let damages: [fn(&Lab); 4] = [
        // a copy without links
        |lab| ["best", "last"].into_iter().for_each(|name| replaced(lab, name)),
        // a copy of what they lead to (cp -rL)
        |lab| {
            for name in ["best", "last"] {
                let folder = target(lab, name);
                replaced(lab, name);
                let mut copy = std::process::Command::new("cp");
                copy.args(["-r", &folder, name]).current_dir(lab.path("run"));
                assert!(copy.status().unwrap().success());
            }
        },
        // empty folders, as some archives have them
        |lab| {
            for name in ["best", "last"] {
                replaced(lab, name);
                fs::create_dir(lab.path("run").join(name)).unwrap();
            }
        },
        // names in files, as where links need special rights
        |lab| {
            for name in ["best", "last"] {
                let folder = target(lab, name);
                replaced(lab, name);
                lab.write(&format!("run/{name}"), folder);
            }
        },
    ];
    let whole = overfitted();
    let best = target(&whole, "best");
    whole.resume("run", &["train.steps=120"]).ok();
    for damage in damages {
        let lab = overfitted();
        assert_ne!(target(&lab, "best"), target(&lab, "last"));
        damage(&lab);
        lab.resume("run", &["train.steps=120"]).ok();
        assert_eq!((target(&lab, "best"), target(&lab, "last")), (best.clone(), "step-000120".into()));
        lab.softdict(&["sample", "run", "--tokens", "3"]).ok().says(&[&best]);
        for folder in [best.as_str(), "step-000120"] {
            let file = format!("run/{folder}/model.safetensors");
            assert!(lab.read(&file) == whole.read(&file), "{folder}");
        }
    }
}

/// Copies a run with its links followed.
fn followed(lab: &Lab, to: &str) {
    let mut copy = std::process::Command::new("cp");
    assert!(copy.args(["-rL", "run", to]).current_dir(lab.path("")).status().unwrap().success());
}

#[test]
fn the_whole_one_of_two_copies_of_a_checkpoint_is_kept() {
    let lab = Lab::trained(&[]);
    let weights = lab.read("run/last/model.safetensors");
    let damages: [fn(&Lab); 3] = [
        |lab| lab.write("copy/step-000020/model.safetensors", ""),
        |lab| fs::remove_file(lab.path("copy/step-000020/config.json")).unwrap(),
        |lab| {
            fs::remove_dir_all(lab.path("copy/step-000020")).unwrap();
            symlink("nowhere", lab.path("copy/step-000020")).unwrap();
        },
    ];
    for damage in damages {
        followed(&lab, "copy");
        damage(&lab);
        lab.resume("copy", &[]).ok().says(&["already at step 20"]);
        assert!(lab.read("copy/step-000020/model.safetensors") == weights);
        lab.softdict(&["sample", "copy", "--tokens", "3"]).ok();
        fs::remove_dir_all(lab.path("copy")).unwrap();
    }
    // neither of them
    followed(&lab, "copy");
    for folder in ["last", "best", "step-000020"] {
        lab.write(&format!("copy/{folder}/model.safetensors"), &weights[..100]);
    }
    lab.resume("copy", &["train.steps=30"]).fails(1).says(&["model.safetensors", "copy/last"]);
}

#[test]
fn a_copy_whose_pointers_are_folders_is_overwritten_whole() {
    let lab = Lab::trained(&["train.steps=30"]);
    followed(&lab, "copy");
    lab.train("copy", &[]).args(&["--overwrite"]).ok();
    assert!(lab.path("copy/last").is_symlink() && !lab.has("copy/step-000030"));
    lab.resume("copy", &["train.steps=25"]).ok();
    lab.train("plain", &[]).ok();
    assert!(
        lab.read("copy/step-000020/model.safetensors") == lab.read("plain/step-000020/model.safetensors")
    );
}

#[test]
fn a_best_checkpoint_that_is_gone_is_told_once_and_the_run_goes_on() {
    let lab = overfitted();
    let best = target(&lab, "best");
    fs::remove_dir_all(lab.path("run").join(&best)).unwrap();
    lab.softdict(&["sample", "run"]).fails(1).says(&["run/best", &best]);
    lab.resume("run", &["train.steps=120"]).ok().says(&["the best checkpoint", "is gone"]);
    // the last checkpoint is evaluated again, and is the first that there is
    assert_eq!(target(&lab, "best"), "step-000100");
    lab.softdict(&["sample", "run", "--tokens", "3"]).ok();
}

#[test]
fn a_damaged_checkpoint_names_another_one_and_what_to_do_with_it() {
    let lab = Lab::trained(&["train.keep_checkpoints=9"]);
    let cut = lab.read("run/step-000020/model.safetensors")[..5000].to_vec();
    lab.write("run/step-000020/model.safetensors", cut);
    for command in [&["sample", "run", "--which", "last"][..], &["eval", "run", "--which", "last"]] {
        lab.softdict(command).fails(1).says(&[
            "step-000020",
            "another checkpoint, run/step-000010",
            "--from",
        ]);
    }
    lab.resume("run", &["train.steps=30"]).fails(1).says(&["another checkpoint"]);
    lab.softdict(&["sample", "run/step-000010", "--tokens", "3"]).ok();
    lab.softdict(&["train", "text.txt", "--from", "run/step-000010", "--out", "new"])
        .set(&["train.steps=2", "train.warmup_steps=0"])
        .ok();
}

#[test]
fn the_ways_out_that_errors_name_are_ways_out() {
    // without its settings a run cannot go on, but its weights can
    let lab = Lab::trained(&[]);
    fs::remove_file(lab.path("run/settings.toml")).unwrap();
    lab.train("run", &[]).fails(1).says(&["holds a run already"]);
    lab.resume("run", &[]).fails(1).says(&["settings.toml is missing", "--from run --out NEW"]);
    let from = ["train", "text.txt", "--from", "run", "--out", "new", "--set", "train.steps=2"];
    lab.softdict(&from).set(&["train.warmup_steps=0"]).ok();
    // a change that is meant, as the message about it says
    let lab = Lab::trained(&[]);
    let mut bytes = lab.read("run/last/model.safetensors");
    let end = bytes.len();
    bytes[end - 4] ^= 1;
    lab.write("run/last/model.safetensors", bytes);
    lab.softdict(&["sample", "run"]).fails(1).says(&["delete softdict.json if the change is meant"]);
    fs::remove_file(lab.path("run/last/softdict.json")).unwrap();
    lab.softdict(&["sample", "run", "--tokens", "3"]).ok();
    lab.resume("run", &["train.steps=30"]).ok();
    // ids that are gone
    fs::remove_dir_all(lab.path("run/data")).unwrap();
    lab.resume("run", &["train.steps=40"])
        .fails(1)
        .says(&["give it its text again, as in train TEXT --resume"]);
    lab.resume("run", &["train.steps=40"]).arg("text.txt").ok();
    // a text that is gone
    fs::remove_file(lab.path("text.txt")).unwrap();
    lab.resume("run", &["train.steps=50"]).arg("text.txt").fails(1).says(&["can be left out"]);
    lab.resume("run", &["train.steps=50"]).ok();
}

#[test]
fn a_run_is_not_replaced_by_what_starts_from_it() {
    let lab = Lab::trained(&[]);
    symlink("run", lab.path("link")).unwrap();
    let before = lab.snapshot("run");
    for from in ["run", "run/last", "link/step-000020"] {
        let train = ["train", "text.txt", "--from", from, "--out", "run", "--overwrite"];
        lab.softdict(&train).fails(2).says(&["--from", "choose another --out"]);
    }
    let kind = ["train", "text.txt", "--from", "run", "--out", "new", "--set", "tokenizer.kind=bpe"];
    lab.softdict(&kind).fails(2).says(&["--set tokenizer.kind", "--from"]);
    assert_eq!(lab.snapshot("run"), before);
    assert!(!lab.has("new"));
}
