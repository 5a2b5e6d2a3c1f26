//! `train --resume`: a run that was interrupted, by its end, a signal or a kill, and goes on as if it had not been.

use crate::support::{BINARY, Lab, TINY, story};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};

#[test]
fn ten_steps_and_ten_more_are_twenty() {
    let lab = Lab::new();
    // the course of the rate must not depend on where the first part ends
    let same = ["model.dropout=0.1", "train.warmup_steps=5", "train.decay_steps=20", "train.sampling=epoch"];
    let sets = |steps| [&same[..], &[steps]].concat();
    lab.train("straight", &sets("train.steps=20")).ok();
    lab.train("parts", &sets("train.steps=10")).ok();
    let same_course = lab.resume("parts", &["train.steps=20"]).ok().says(&["step 11/20"]);
    assert!(!same_course.stderr.contains("another course"), "{}", same_course.stderr);
    for file in ["model.safetensors", "trainer.safetensors"] {
        let file = format!("step-000020/{file}");
        assert_eq!(lab.read(&format!("straight/{file}")), lab.read(&format!("parts/{file}")), "{file}");
    }
    let told = |run: &str| -> Vec<Value> {
        let kinds = ["step", "eval", "checkpoint"].map(Value::from);
        lab.timeless(run).into_iter().filter(|event| kinds.contains(&event["event"])).collect()
    };
    assert_eq!(told("straight"), told("parts"));
    assert_eq!(lab.events("parts", "resume")[0]["step"], 10);
    assert_eq!(lab.events("parts", "start").len(), 1);
}

#[test]
fn a_finished_run_has_nothing_to_do_and_its_files_stay() {
    let lab = Lab::trained(&[]);
    let before = lab.snapshot("run");
    lab.resume("run", &[]).ok().says(&["already at step 20"]);
    assert_eq!(lab.snapshot("run"), before);
    // the text may be given again, when it is the same
    let further = lab.resume("run", &["train.steps=40"]).arg("text.txt").ok();
    further.says(&["train.steps = 40 instead of 20", "another course"]);
    let steps: Vec<f64> = lab.series("run", "step");
    assert_eq!(steps, (1..=40).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn what_would_make_another_run_of_it_is_refused() {
    let lab = Lab::trained(&[]);
    let before = lab.snapshot("run");
    lab.resume("run", &["model.layers=8"]).fails(1).says(&["model.layers", "8", "1"]);
    lab.resume("run", &["train.learning_rate=2e-3"]).fails(1).says(&["learning_rate", "0.002", "0.001"]);
    lab.resume("run", &["train.batch=5"]).fails(1).says(&["train.batch", "5", "4"]);
    lab.resume("run", &[]).args(&["--seed", "3"]).fails(1).says(&["train.seed", "3", "1337"]);
    lab.write("other.txt", story(61));
    lab.resume("run", &["train.steps=40"]).arg("other.txt").fails(1).says(&["other.txt", "SHA-256"]);
    lab.resume("nowhere", &[]).fails(1).says(&["nowhere", "settings.toml"]);
    assert_eq!(lab.snapshot("run"), before);
    assert!(!lab.has("nowhere"));
}

#[test]
fn without_the_optimizers_state_there_is_no_resuming() {
    let lab = Lab::trained(&[]);
    fs::remove_file(lab.path("run/last/trainer.safetensors")).unwrap();
    lab.resume("run", &["train.steps=30"]).fails(1).says(&["trainer.safetensors"]);
    // nothing else needs it
    lab.softdict(&["sample", "run", "--tokens", "3"]).ok();
}

/// A run's bytes: weights, moments and everything told, without what a clock says.
fn result(lab: &Lab, run: &str) -> (Vec<u8>, Vec<u8>, Vec<serde_json::Value>) {
    let file = |name: &str| lab.read(&format!("{run}/step-000030/{name}"));
    (file("model.safetensors"), file("trainer.safetensors"), lab.timeless(run))
}

#[test]
fn three_processes_give_the_same_bytes() {
    let lab = Lab::new();
    let settings = ["train.steps=30", "model.dropout=0.1"];
    for run in ["a", "b", "c"] {
        lab.train(run, &settings).ok();
    }
    let first = result(&lab, "a");
    assert!(first == result(&lab, "b") && first == result(&lab, "c"));
}

#[test]
fn stopping_at_any_steps_and_going_on_gives_the_same_bytes() {
    let lab = Lab::new();
    let settings = ["model.dropout=0.1", "train.decay_steps=30", "train.accumulate=2", "train.heads_every=7"];
    lab.train("whole", &[&settings[..], &["train.steps=30"]].concat()).ok();
    let whole = result(&lab, "whole");
    // steps that a fixed disorder chooses, one stop to four of them
    let mut disorder = 7u64;
    for round in 0..12 {
        let run = format!("stopped-{round}");
        let mut stops: Vec<u64> = (0..=round % 4)
            .map(|_| {
                disorder =
                    disorder.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                1 + (disorder >> 33) % 29
            })
            .collect();
        stops.sort_unstable();
        stops.dedup();
        let first = format!("train.steps={}", stops[0]);
        lab.train(&run, &[&settings[..], &[&first]].concat()).ok();
        for stop in stops[1..].iter().chain(&[30]) {
            lab.resume(&run, &[&format!("train.steps={stop}")]).ok();
        }
        let found = result(&lab, &run);
        assert!(found.0 == whole.0 && found.1 == whole.1, "stopped at {stops:?}");
    }
}

/// Starts a run that would not end, and waits for the line of its seventh step.
#[cfg(unix)]
fn endless(lab: &Lab, out: &str, sets: &[&str]) -> (Child, std::io::Lines<impl std::io::BufRead + use<>>) {
    endless_after(":", lab, out, sets)
}

/// The same, from a shell that does `first` before it becomes the run.
#[cfg(unix)]
fn endless_after(
    first: &str,
    lab: &Lab,
    out: &str,
    sets: &[&str],
) -> (Child, std::io::Lines<impl std::io::BufRead + use<>>) {
    use std::io::BufRead;
    let endless = ["train.steps=100000000", "train.eval_every=100000000", "train.schedule=constant"];
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{first}; exec \"$@\""), "sh", BINARY]);
    command.args(["train", "text.txt", "--out", out]).current_dir(lab.path(""));
    command.args(TINY.iter().chain(&endless).chain(sets).flat_map(|set| ["--set", set]));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let seventh = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("step 7/"));
    assert!(seventh.is_some(), "{:?}", child.wait());
    (child, lines)
}

#[cfg(unix)]
fn send(signal: &str, child: &Child) {
    let kill = format!("kill -{signal} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
#[cfg(unix)]
fn a_signal_saves_and_the_run_goes_on_as_if_there_had_been_none() {
    // one that is ignored where the tests run, as under nohup, is ignored by what they start
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t"));
    // where the system does not tell, SIGHUP is not listened to
    let ignored = ignored.map_or(1, |mask| u64::from_str_radix(mask, 16).unwrap());
    let signals = [("HUP", 129), ("INT", 130), ("TERM", 143)];
    let signals = signals.into_iter().filter(|(_, code)| ignored >> (code - 128 - 1) & 1 == 0);
    for (signal, code) in signals {
        let lab = Lab::new();
        let (mut child, lines) = endless(&lab, "run", &["model.dropout=0.1"]);
        send(signal, &child);
        let told: Vec<String> = lines.map_while(Result::ok).collect();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert!(told.iter().any(|line| line.contains("--resume")), "{told:?}");
        assert_eq!(lab.events("run", "end")[0]["reason"], "stopped");
        let saved = lab.events("run", "checkpoint")[0]["step"].as_u64().unwrap();
        assert!(saved >= 7);
        assert_eq!(lab.series("run", "step").last(), Some(&(saved as f64)));

        let steps = format!("train.steps={}", saved + 5);
        let more = ["train.eval_every=100000000", "train.schedule=constant", "model.dropout=0.1", &steps];
        lab.train("straight", &more).ok();
        lab.resume("run", &[&steps]).ok();
        let model = format!("step-{:06}/model.safetensors", saved + 5);
        assert_eq!(lab.read(&format!("run/{model}")), lab.read(&format!("straight/{model}")));
        assert_eq!(lab.series("run", "loss"), lab.series("straight", "loss"));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_that_was_told_to_outlive_its_terminal_does() {
    let lab = Lab::new();
    let (mut child, mut lines) = endless_after("trap '' HUP", &lab, "run", &[]);
    send("HUP", &child);
    let later = |line: &String| line.starts_with("step 5000/");
    assert!(lines.by_ref().map_while(Result::ok).any(|line| later(&line)));
    send("TERM", &child);
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
#[cfg(unix)]
fn a_second_signal_ends_at_once_and_what_was_saved_stays() {
    let lab = Lab::new();
    // a step of some seconds: the first signal waits for its end, the second does not
    lab.train("run", &["train.steps=1", "train.accumulate=20000"]).ok();
    let saved = lab.snapshot("run/step-000001");
    let mut command = Command::new(BINARY);
    command.args(["train", "--out", "run", "--resume", "--set", "train.steps=2"]).current_dir(lab.path(""));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // from then on signals are listened to
    while lab.events("run", "resume").is_empty() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    while child.try_wait().unwrap().is_none() {
        send("TERM", &child);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(child.wait().unwrap().code(), Some(143));
    // it did not come to the end of the step, where a first signal alone would have saved
    assert!(lab.events("run", "end").is_empty());
    assert!(!lab.has("run/step-000002"));
    assert_eq!(lab.snapshot("run/step-000001"), saved);
    lab.softdict(&["sample", "run", "--which", "last", "--tokens", "3"]).ok().says(&["step 1"]);
}

#[test]
fn weights_are_on_the_disk_before_they_are_evaluated() {
    let lab = Lab::trained(&["train.eval_every=1000"]);
    // the validation split is only read at the end, and by then it holds an id that there is not
    let mut ids = lab.read("run/data/val.bin");
    let end = ids.len();
    ids[end - 2..].fill(0xff);
    lab.write("run/data/val.bin", ids);
    let done = lab.resume("run", &["train.steps=30"]).fails(1);
    done.says(&["val.bin", "id 65535"]);
    assert_eq!(lab.events("run", "checkpoint").last().unwrap()["step"], 30);
    lab.softdict(&["sample", "run", "--which", "last", "--tokens", "3"]).ok().says(&["step 30"]);
}

#[test]
#[cfg(unix)]
fn two_signals_at_once_are_one_and_the_run_is_saved() {
    let lab = Lab::new();
    let rarely = ["train.checkpoint_every=100000000", "train.eval_every=100000000"];
    let (mut child, lines) = endless(&lab, "run", &rarely);
    send("TERM", &child);
    send("TERM", &child);
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    lab.softdict(&["sample", "run", "--which", "last", "--tokens", "3"]).ok();
}

#[test]
#[cfg(unix)]
fn a_kill_at_any_moment_leaves_a_run_that_samples_and_goes_on() {
    let lab = Lab::new();
    let every = ["train.checkpoint_every=1", "train.eval_every=1"];
    let (mut child, mut lines) = endless(&lab, "run", &every);
    for kill in 0..10 {
        // some lines more each time, and some of a step's time: a kill comes at any moment of training and saving
        lines.by_ref().map_while(Result::ok).take(kill * 7 % 30).for_each(drop);
        std::thread::sleep(std::time::Duration::from_micros(1_370 * kill as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        lab.softdict(&["sample", "run", "--which", "last", "--tokens", "3"]).ok();
        let saved = saved_step(&lab);
        let steps = format!("train.steps={}", saved + 2);
        lab.resume("run", &[&steps, "train.checkpoint_every=1"]).ok();
        // weights, optimizer and place in the text belong together: the bytes are those of a run without a kill
        let unbroken = [&every[..], &["train.schedule=constant", &steps]].concat();
        lab.train("unbroken", &unbroken).args(&["--overwrite"]).ok();
        for file in ["model.safetensors", "trainer.safetensors"] {
            let read = |run: &str| lab.read(&format!("{run}/step-{:06}/{file}", saved + 2));
            assert!(read("run") == read("unbroken"), "{file} after a kill at step {saved}");
        }
        // every step is there once, whatever had been written after the checkpoint
        let expected: Vec<f64> = (1..=saved + 2).map(|step| step as f64).collect();
        assert_eq!(lab.series("run", "step"), expected);
        fs::remove_dir_all(lab.path("run")).unwrap();
        (child, lines) = endless(&lab, "run", &every);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[cfg(unix)]
fn a_folder_takes_one_training_at_a_time_and_is_free_when_it_dies() {
    let lab = Lab::new();
    let (mut child, lines) = endless(&lab, "run", &["train.checkpoint_every=5"]);
    let before = fs::read(lab.path("run/settings.toml")).unwrap();
    for how in ["--resume", "--overwrite"] {
        let second = lab.softdict(&["train", "text.txt", "--out", "run", how]).set(&TINY);
        second.fails(1).says(&["run", "another softdict is training here", "--out"]);
    }
    // looking is no training
    lab.softdict(&["sample", "run", "--which", "last", "--tokens", "3"]).ok();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(lines);
    assert_eq!(fs::read(lab.path("run/settings.toml")).unwrap(), before);
    let saved = saved_step(&lab);
    lab.resume("run", &[&format!("train.steps={}", saved + 1)]).ok();
}

/// The step that `last` leads to.
#[cfg(unix)]
fn saved_step(lab: &Lab) -> u64 {
    let saved = fs::read_link(lab.path("run/last")).unwrap().display().to_string();
    saved.strip_prefix("step-").unwrap().parse().unwrap()
}

#[test]
#[cfg(unix)]
fn who_looks_while_training_writes_sees_a_whole_checkpoint() {
    let lab = Lab::new();
    let often = ["train.checkpoint_every=1", "train.keep_checkpoints=1", "train.eval_every=3"];
    let (mut child, lines) = endless(&lab, "run", &often);
    let told = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&told);
    let reader = std::thread::spawn(move || {
        for _ in lines.map_while(Result::ok) {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    // some readings, and as many as it takes for some savings to come between
    let mut round = 0;
    while round < 40 || told.load(std::sync::atomic::Ordering::Relaxed) < 40 {
        let which = ["last", "best"][round % 2];
        lab.softdict(&["sample", "run", "--which", which, "--tokens", "2", "--prompt", "the"]).ok();
        lab.softdict(&["attention", "run", "--which", which, "--prompt", "the", "--format", "json"]).ok();
        // the pointer itself, which moves between two files that are read
        lab.softdict(&["sample", &format!("run/{which}"), "--tokens", "2", "--prompt", "the"]).ok();
        round += 1;
        assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
}

/// A run whose validation loss falls and then rises, because its end is written backwards.
fn overfitted() -> Lab {
    let lab = Lab::with("abcd ".repeat(200) + &"dcba ".repeat(22));
    lab.train("run", &["train.steps=100", "train.learning_rate=1e-2", "train.decay_steps=200"]).ok();
    lab
}

#[test]
fn best_and_last_are_told_apart_and_a_resumed_run_keeps_its_best() {
    let lab = overfitted();
    let losses = |lab: &Lab| -> Vec<(u64, f64)> {
        let evals = lab.events("run", "eval");
        evals.iter().map(|e| (e["step"].as_u64().unwrap(), e["val_loss"].as_f64().unwrap())).collect()
    };
    let evals = losses(&lab);
    let best = evals.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    let last = *evals.last().unwrap();
    assert!(best.1 < last.1 - 0.1, "the text overfits: {evals:?}");
    let link = |name: &str| fs::read_link(lab.path("run").join(name)).unwrap().display().to_string();
    assert_eq!((link("best"), link("last")), (format!("step-{:06}", best.0), "step-000100".to_owned()));

    let says = |args: &[&str], parts: &[&str]| {
        lab.softdict(&[&["sample", "run", "--tokens", "3"], args].concat()).ok().says(parts);
    };
    let loss = |loss: f64| format!("validation loss {loss:.4}");
    says(&[], &["(best)", &format!("step {}", best.0), &loss(best.1)]);
    says(&["--which", "best"], &["(best)"]);
    says(&["--which", "last"], &["(last)", "step 100", &loss(last.1)]);

    lab.resume("run", &["train.steps=120"]).ok();
    assert_eq!(lab.events("run", "resume")[0]["step"], 100);
    assert!(losses(&lab).iter().skip(evals.len()).all(|(_, loss)| *loss > best.1));
    assert_eq!((link("best"), link("last")), (format!("step-{:06}", best.0), "step-000120".to_owned()));
    assert_eq!(lab.events("run", "end")[0]["best"]["step"], best.0);
}

#[test]
fn patience_ends_a_run_that_only_gets_worse() {
    let lab = Lab::with("abcd ".repeat(200) + &"dcba ".repeat(22));
    let sets = ["train.steps=1000", "train.learning_rate=1e-2", "train.patience=3"];
    lab.train("run", &sets).ok().says(&["no longer falls"]);
    let evals = lab.events("run", "eval");
    let best = lab.events("run", "end")[0]["best"]["step"].as_u64().unwrap();
    assert_eq!(evals.last().unwrap()["step"].as_u64().unwrap(), best + 30);
}
