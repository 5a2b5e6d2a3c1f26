//! Run folders that a stranger made: nothing outside of them is changed, and nothing in them hangs or fills the memory.
#![cfg(unix)]

use crate::support::{BINARY, Lab, TINY};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A lab with a run, and beside it a checkpoint and ids that are not its own.
fn lab() -> Lab {
    let lab = Lab::trained(&["train.checkpoint_every=5", "train.keep_checkpoints=9"]);
    for out in ["victim", "other"] {
        lab.train(out, &["train.steps=10"]).ok();
    }
    lab
}

/// What is done to a run.
type Step = fn(&Lab);

#[test]
fn links_in_a_run_lead_no_writing_and_no_removing_out_of_it() {
    let text = ["train", "text.txt", "--out", "run"];
    let over = |lab: &Lab| lab.softdict(&text).set(&TINY).args(&["--overwrite"]);
    let link = |lab: &Lab, to: &str, name: &str| symlink(lab.path(to), lab.path(name)).unwrap();
    let cases: [(&str, &str, Step); 6] = [
        ("victim/step-000010", "run/.softdict-old-step-000015", |lab| {
            lab.train("run", &[]).fails(1).says(&["--overwrite"]);
        }),
        ("victim/step-000010", "run/step-000015", |_| ()),
        ("victim/data", "run/data", |_| ()),
        ("victim/step-000010", "run/step-000025", |lab| {
            lab.resume("run", &["train.steps=25"]).fails(1).says(&["step-000025", "nothing was changed"]);
        }),
        // old checkpoints are removed, and this looks like one
        ("victim/step-000010", "run/step-000001", |lab| {
            lab.resume("run", &["train.steps=40", "train.keep_checkpoints=1"]).ok();
            assert!(!lab.has("run/step-000001"));
        }),
        ("victim/metrics.jsonl", "run/metrics.jsonl", |lab| {
            lab.resume("run", &["train.steps=25"]).ok();
        }),
    ];
    for (to, name, attack) in cases {
        let lab = lab();
        let before = lab.snapshot("victim");
        let path = lab.path(name);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else if path.exists() {
            fs::remove_file(path).unwrap();
        }
        link(&lab, to, name);
        attack(&lab);
        assert_eq!(lab.snapshot("victim"), before, "{name}");
        over(&lab).ok();
        assert_eq!(lab.snapshot("victim"), before, "{name}, overwritten");
        lab.softdict(&["sample", "run", "--tokens", "3"]).ok();
    }
}

#[test]
fn ids_of_another_run_are_neither_trained_on_nor_replaced() {
    let lab = lab();
    lab.write("bytes.txt", lab.read("text.txt"));
    lab.train("bytes", &["tokenizer.kind=byte"]).ok();
    let before = lab.snapshot("bytes");
    fs::remove_dir_all(lab.path("run/data")).unwrap();
    symlink("../bytes/data", lab.path("run/data")).unwrap();
    let says = ["run/data", "another tokenizer"];
    lab.resume("run", &["train.steps=30"]).fails(1).says(&says);
    lab.resume("run", &["train.steps=30"]).arg("text.txt").fails(1).says(&says);
    assert_eq!(lab.snapshot("bytes"), before);
}

#[test]
fn what_was_in_a_folder_before_a_run_stays() {
    for (name, link) in [("data/train.bin", false), ("best/mine.txt", false), ("data", true)] {
        let lab = Lab::new();
        fs::create_dir_all(lab.path("used").join(name).parent().unwrap()).unwrap();
        if link {
            fs::create_dir(lab.path("elsewhere")).unwrap();
            symlink("../elsewhere", lab.path("used").join(name)).unwrap();
        } else {
            lab.write(&format!("used/{name}"), "some numbers of mine");
        }
        let before = lab.snapshot("used");
        let first = name.split('/').next().unwrap();
        for how in [&[][..], &["--overwrite"]] {
            lab.train("used", &[]).args(how).fails(1).says(&[&format!("used/{first}"), "is not softdict's"]);
        }
        assert_eq!(lab.snapshot("used"), before);
    }
    // the text itself
    let lab = Lab::trained(&[]);
    fs::copy(lab.path("text.txt"), lab.path("run/metrics.jsonl")).unwrap();
    let train = ["train", "run/metrics.jsonl", "--out", "run", "--overwrite"];
    lab.softdict(&train).set(&TINY).fails(1).says(&["metrics.jsonl", "the run would replace it"]);
}

#[test]
fn a_pointer_leads_to_a_checkpoint_of_its_run_however_it_is_written() {
    let lab = lab();
    let point = |target: &std::path::Path| {
        fs::remove_file(lab.path("run/best")).unwrap();
        symlink(target, lab.path("run/best")).unwrap();
    };
    point(&lab.path("victim/step-000010"));
    lab.softdict(&["sample", "run"]).fails(1).says(&["victim/step-000010"]);
    // by its whole path, and not removed as an old one
    point(&lab.path("run/step-000005"));
    lab.softdict(&["sample", "run", "--tokens", "3"]).ok().says(&["step-000005"]);
    lab.resume("run", &["train.steps=30", "train.eval_every=1000", "train.keep_checkpoints=1"]).ok();
    assert!(lab.has("run/step-000005") && !lab.has("run/step-000010"));
}

#[test]
fn pipes_and_devices_under_a_runs_names_are_refused_at_once() {
    let lab = lab();
    let commands: [(&str, &[&[&str]]); 6] = [
        ("data/data.json", &[&["eval", "run"], &["train", "--out", "run", "--resume"]]),
        ("data/val.bin", &[&["heads", "run"], &["lookup", "run"]]),
        ("metrics.jsonl", &[&["history", "run", "--out", "h.svg"]]),
        ("settings.toml", &[&["sample", "run"], &["train", "--out", "run", "--resume"]]),
        ("last/tokenizer.json", &[&["tokenizer", "show", "run"], &["sample", "run", "--which", "last"]]),
        ("last/softdict.json", &[&["sample", "run", "--which", "last"]]),
    ];
    let pipe = lab.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (name, commands) in commands {
        let path = lab.path(&format!("run/{name}"));
        let bytes = fs::read(&path).unwrap();
        // a regular file that says it has no bytes, and has as many as one reads
        let endless = std::path::Path::new("/proc/self/pagemap");
        for special in [pipe.as_path(), std::path::Path::new("/dev/zero"), endless] {
            fs::remove_file(&path).unwrap();
            symlink(special, &path).unwrap();
            for command in commands {
                let limited = format!("ulimit -v 1048576; exec \"$0\" {}", command.join(" "));
                let mut shell = assert_cmd::Command::new("sh");
                shell
                    .args(["-c", &limited, BINARY])
                    .current_dir(lab.path(""))
                    .timeout(Duration::from_secs(20));
                let output = shell.output().unwrap();
                let stderr = String::from_utf8(output.stderr).unwrap();
                assert_eq!(output.status.code(), Some(1), "{name} as {special:?}: {command:?}: {stderr}");
                let file = name.rsplit('/').next().unwrap();
                assert!(stderr.contains("error:") && stderr.contains(file), "{name}: {stderr}");
            }
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn settings_of_a_run_that_were_changed_by_hand_are_named_with_their_file_or_key() {
    let lab = lab();
    let whole = lab.read_text("run/settings.toml");
    let with = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        lab.write("run/settings.toml", whole.replace(from, to));
    };
    for (from, to, key) in [
        ("learning_rate = 0.001\n", "learning_rate = 0.1\n", "train.learning_rate"),
        ("width = 16", "width = 32", "model.width"),
        ("seed = 1337", "seed = 7", "train.seed"),
    ] {
        with(from, to);
        lab.resume("run", &["train.steps=25"]).fails(1).says(&[key]);
    }
    for (to, part) in [("temperature = 1e308", "temperature"), ("tokens = 9000000000", "sample.tokens")] {
        let (key, _) = to.split_once(" = ").unwrap();
        let from = whole.lines().find(|line| line.split(" = ").next() == Some(key)).unwrap();
        with(from, to);
        lab.softdict(&["sample", "run"]).fails(1).says(&["run/settings.toml", part]);
    }
    lab.write("run/settings.toml", &whole);
    lab.resume("run", &["train.steps=25"]).ok();
}

#[test]
fn reports_do_not_replace_what_is_read_or_what_a_run_needs() {
    let lab = lab();
    let before = (lab.snapshot("run"), lab.read("text.txt"));
    let attention = ["attention", "run", "--prompt", "the", "--format", "json", "--out"];
    for out in ["run/best/model.safetensors", "run/last/config.json", "run/settings.toml", "run/data/val.bin"]
    {
        lab.softdict(&attention).args(&[out]).fails(1).says(&["--out", out, "is part of a"]);
    }
    let learn = ["tokenizer", "train", "text.txt", "--out", "./text.txt"];
    lab.softdict(&learn).fails(1).says(&["--out ./text.txt", "was to be read"]);
    fs::copy(lab.path("text.txt"), lab.path("text.html")).unwrap();
    lab.softdict(&["heads", "run", "text.html", "--html", "text.html"]).fails(1).says(&["was to be read"]);
    let npz = ["export", "run", "--format", "npz", "--out", "run/metrics.jsonl"];
    lab.softdict(&npz).fails(1).says(&["run/metrics.jsonl"]);
    // weights that are links, as in the cache of Hugging Face, and a link to another name of a weight
    fs::create_dir(lab.path("cache")).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        symlink(lab.path("run/best").join(name), lab.path("cache").join(name)).unwrap();
    }
    lab.softdict(&attention).args(&["cache/config.json"]).fails(1).says(&["is part of a checkpoint"]);
    fs::hard_link(lab.path("run/best/model.safetensors"), lab.path("hard")).unwrap();
    symlink("hard", lab.path("out.json")).unwrap();
    lab.softdict(&attention).args(&["out.json"]).ok();
    // what is no file stays what it is
    let pipe = lab.path("pipe.npz");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    lab.softdict(&["export", "run", "--out", "pipe.npz"]).fails(1).says(&["pipe.npz"]);
    assert!(!pipe.metadata().unwrap().is_file());
    assert_eq!((lab.snapshot("run"), lab.read("text.txt")), before);
    // beside them there is room
    lab.softdict(&attention).args(&["run/mine.json"]).ok();
}

/// Starts a training that goes on until it is told to end, and waits until it goes on.
fn endless(lab: &Lab, out: &str) -> std::process::Child {
    let mut command = Command::new(BINARY);
    command.args(["train", "text.txt", "--out", out]).current_dir(lab.path(""));
    let endless = ["train.steps=100000000", "train.eval_every=100000000"];
    command.args(TINY.iter().chain(&endless).flat_map(|set| ["--set", set]));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !lab.path(out).join("metrics.jsonl").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_run_whose_place_another_one_took_ends_and_leaves_it_alone() {
    let lab = Lab::new();
    let mut child = endless(&lab, "run");
    fs::rename(lab.path("run"), lab.path("moved")).unwrap();
    lab.train("run", &[]).ok();
    let before = lab.snapshot("run");
    let kill = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(lab.snapshot("run"), before);
}

#[test]
fn a_run_that_was_finished_while_another_read_its_text_is_not_overwritten() {
    let lab = Lab::new();
    // two are started where nothing is; each would be done with its text at another time
    let start = || {
        let mut command = Command::new(BINARY);
        command.args(["train", "text.txt", "--out", "run"]).current_dir(lab.path(""));
        command.args(TINY.iter().flat_map(|set| ["--set", set]));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..8 {
        let children = [start(), start(), start()];
        let ends: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let done = ends.iter().filter(|end| end.status.success()).count();
        let told: Vec<_> = ends.iter().map(|end| String::from_utf8_lossy(&end.stderr).into_owned()).collect();
        assert_eq!(done, 1, "{told:#?}");
        for refused in told.iter().filter(|told| told.contains("error:")) {
            assert!(
                refused.contains("holds a run already") || refused.contains("another softdict is training"),
                "{refused}"
            );
        }
        fs::remove_dir_all(lab.path("run")).unwrap();
    }
}

#[test]
fn a_signal_leaves_nothing_unfinished_behind() {
    let lab = Lab::trained(&["model.context=400", "train.batch=1"]);
    lab.write("long.txt", crate::support::story(40_000));
    fs::create_dir(lab.path("tmp")).unwrap();
    let prompt = &lab.read_text("text.txt")[..400];
    let commands: [&[&str]; 3] = [
        &["attention", "run", "--prompt", prompt, "--out", "maps.csv", "--layer", "0"],
        &["eval", "run", "long.txt"],
        &["tokenizer", "train", "long.txt", "--out", "t.json"],
    ];
    for command in commands {
        for delay in [5, 20, 60] {
            let mut call = Command::new(BINARY);
            call.args(command).current_dir(lab.path("")).env("TMPDIR", lab.path("tmp"));
            let mut child = call.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(delay));
            let kill = format!("kill -TERM {}", child.id());
            // it may have been faster
            let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status().unwrap();
            child.wait().unwrap();
            let names = |folder: &str| -> Vec<String> {
                let entries = fs::read_dir(lab.path(folder)).unwrap();
                entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
            };
            assert!(
                names("").iter().all(|name| !name.starts_with(".softdict")),
                "{command:?} {:?}",
                names("")
            );
            assert!(names("tmp").is_empty(), "{command:?}: {:?}", names("tmp"));
        }
    }
}
