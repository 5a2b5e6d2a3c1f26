//! Texts that cannot be trained on: a clear error that names the file, and nothing written.

use crate::support::{Done, Lab, TINY, story};
use std::fs;

/// Trains on a text that is no good; nothing may be left.
#[track_caller]
fn refused(lab: &Lab, sets: &[&str], parts: &[&str]) -> Done {
    let done = lab.train("run", sets).fails(1).says(parts);
    assert!(!lab.has("run"), "left behind: {:?}", lab.snapshot("run").keys());
    done
}

#[test]
fn a_text_shorter_than_a_window_says_how_many_tokens_are_needed() {
    let lab = Lab::with("a".repeat(39) + "b");
    let all = ["model.context=64", "data.val_fraction=0"];
    refused(&lab, &all, &["text.txt", "40", "65", "model.context"]);
    let done = refused(&lab, &["model.context=64"], &["text.txt", "65", "model.context"]);
    // a tenth is kept for validation
    done.says(&["at most 40 tokens", "data.val_fraction = 0.1 leaves 36"]);
    // one token more than the context is a window
    lab.train("run", &["model.context=35"]).ok();
}

#[test]
fn an_empty_missing_or_foreign_file_is_named() {
    let lab = Lab::with("");
    for kind in ["auto", "char", "byte", "bpe"] {
        refused(&lab, &[&format!("tokenizer.kind={kind}")], &["text.txt", "empty"]);
        let learn = ["tokenizer", "train", "text.txt", "--kind", kind, "--out", "t.json"];
        lab.softdict(&learn).fails(1).says(&["text.txt", "empty"]);
        assert!(!lab.has("t.json"));
    }
    lab.write("text.txt", "\u{feff}");
    refused(&lab, &[], &["text.txt", "empty"]);
    let train = |text: &str| lab.softdict(&["train", text, "--out", "run"]).set(&TINY);
    train("none.txt").fails(1).says(&["none.txt", "no such file"]);
    fs::create_dir(lab.path("folder")).unwrap();
    train("folder").fails(1).says(&["folder", "is a folder"]);
    assert!(!lab.has("run"));
}

#[test]
fn another_encoding_is_recognised_and_stray_bytes_have_a_place() {
    let lab = Lab::with([b"hello w\x92orld\n".as_slice(), story(20).as_bytes()].concat());
    refused(&lab, &[], &["text.txt", "offset 7", "0x92", "tokenizer.kind=byte"]);
    refused(&lab, &["tokenizer.kind=bpe"], &["text.txt", "offset 7"]);
    for (mark, utf16) in [
        (&b"\xff\xfe"[..], u16::to_le_bytes as fn(u16) -> [u8; 2]),
        (b"", u16::to_le_bytes),
        (b"\xfe\xff", u16::to_be_bytes),
    ] {
        let units: Vec<u8> = story(20).encode_utf16().flat_map(utf16).collect();
        lab.write("text.txt", [mark, &units].concat());
        refused(&lab, &[], &["text.txt", "UTF-16"]);
    }
}

#[test]
fn any_bytes_can_be_learned_as_bytes_and_none_is_dropped() {
    let bytes: Vec<u8> = (0..4000u32).map(|i| (i * i % 251) as u8).chain([0x92, 0xff, 0]).collect();
    let lab = Lab::with(&bytes);
    // all but a tenth is trained on, and the plan's counts are those of the file
    let done = lab.train("run", &["tokenizer.kind=byte"]).ok();
    done.says(&["text        3,602 training tokens", " 401 for validation"]);
    let record = lab.json("run/data/data.json");
    let tokens = ["train", "val"].map(|part| record[part]["tokens"].as_u64().unwrap());
    assert_eq!(tokens.iter().sum::<u64>(), bytes.len() as u64);
    let ids = lab.softdict(&["tokenizer", "encode", "run"]).input(bytes.clone()).ok().stdout;
    assert_eq!(lab.softdict(&["tokenizer", "decode", "run"]).input(ids).ok().stdout, bytes);
}

#[test]
fn a_text_with_nothing_to_merge_is_learned_as_far_as_it_goes() {
    for text in ["   \n".repeat(60), "a".repeat(2000), "ab".repeat(1000)] {
        let lab = Lab::with(&text);
        let done = lab.train("run", &["tokenizer.kind=bpe", "tokenizer.vocab_size=5000", "model.context=4"]);
        let done = done.ok().says(&["entries, not 5000"]);
        let rows = lab.tensors("run/last/model.safetensors")["gpt_neox.embed_in.weight"].0[0];
        assert!(done.stderr.contains(&format!("the vocabulary has {rows} entries")), "{}", done.stderr);
        assert!((257..5000).contains(&rows), "{rows}");
        let shown = lab.softdict(&["tokenizer", "show", "run"]).ok();
        assert_eq!(shown.text().lines().count(), rows);
    }
    let lab = Lab::new();
    let small = ["tokenizer.kind=bpe", "tokenizer.vocab_size=100"];
    refused(&lab, &small, &["vocab_size = 100", "256"]);
    let learn = ["tokenizer", "train", "text.txt", "--kind", "bpe", "--out", "t.json", "--vocab-size", "100"];
    lab.softdict(&learn).fails(1).says(&["vocab-size", "100", "256"]);
    refused(&lab, &["tokenizer.vocab_size=100", "tokenizer.kind=char"], &["vocab_size = 100", "char"]);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let lab = Lab::new();
    lab.write("taken", "a file where the run would be");
    lab.train("taken", &[]).fails(1).says(&["taken"]);
    assert_eq!(lab.read("taken"), b"a file where the run would be");
    lab.train("run", &[]).ok();
    let attention = ["attention", "run", "--prompt", "the", "--out"];
    lab.softdict(&attention).args(&["no/such/folder/a.json"]).fails(1).says(&["no/such/folder/a.json"]);
    lab.softdict(&attention).args(&["picture.doc"]).fails(2).says(&["picture.doc"]);
    lab.softdict(&attention).args(&["run"]).args(&["--format", "json"]).fails(1).says(&["run"]);
    let tokenizer = ["tokenizer", "train", "text.txt", "--out", "no/such/folder/t.json"];
    lab.softdict(&tokenizer).fails(1).says(&["no/such/folder/t.json"]);
}

#[test]
fn damaged_ids_are_made_anew_from_the_text_and_half_a_metric_is_dropped() {
    let lab = Lab::trained(&[]);
    let whole = lab.snapshot("run/data");
    let mut metrics = lab.read("run/metrics.jsonl");
    metrics.extend("{\"event\":\"step\",\"note\":\"é".as_bytes());
    metrics.pop();
    lab.write("run/metrics.jsonl", metrics);
    for (name, bytes) in [("train.bin", &b"softdict"[..]), ("val.bin", b""), ("data.json", b"{")] {
        lab.write(&format!("run/data/{name}"), bytes);
        let hint = if name == "data.json" { "data.json" } else { "train TEXT --out RUN --resume" };
        lab.resume("run", &["train.steps=30"]).fails(1).says(&[name, hint]);
        lab.resume("run", &[]).arg("text.txt").ok();
        assert_eq!(lab.snapshot("run/data"), whole, "{name}");
    }
    // a checkpoint knows its text, too
    lab.write("run/data/data.json", "{");
    lab.write("other.txt", story(61));
    lab.resume("run", &["train.steps=30"]).arg("other.txt").fails(1).says(&["other.txt", "SHA-256"]);
    lab.resume("run", &["train.steps=30"]).arg("text.txt").ok();
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_named_and_the_run_before_it_still_opens() {
    // weights far larger than the other files of the run
    let lab = Lab::trained(&["train.steps=10", "model.width=64"]);
    let saved = lab.read("run/last/model.safetensors").len();
    // no file may grow beyond half the weights; the shell counts in blocks of 512 or 1024 bytes
    let blocks = saved / 2048;
    let limited = format!("ulimit -f {blocks}; exec \"$0\" train --out run --resume --set train.steps=20");
    let output = std::process::Command::new("sh")
        .args(["-c", &limited, crate::support::BINARY])
        .current_dir(lab.path(""))
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("step-000020") && stderr.contains("error:"), "{stderr}");
    lab.softdict(&["sample", "run", "--which", "last", "--tokens", "3"]).ok().says(&["step 10"]);
    let left = |name: &str| name.starts_with(".softdict");
    let names = fs::read_dir(lab.path("run")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| left(&name.to_string_lossy())).count(), 0);
    lab.resume("run", &["train.steps=20"]).ok();
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_goes_away_while_training_is_named() {
    use std::io::BufRead;
    let lab = Lab::new();
    let endless = ["train.steps=100000000", "train.eval_every=5", "train.schedule=constant"];
    let mut command = std::process::Command::new(crate::support::BINARY);
    command.args(["train", "text.txt", "--out", "run"]).current_dir(lab.path(""));
    command.args(crate::support::TINY.iter().chain(&endless).flat_map(|set| ["--set", set]));
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let seventh = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("step 7/"));
    assert!(seventh.is_some());
    fs::rename(lab.path("run"), lab.path("gone")).unwrap();
    // far more lines than until the next checkpoint
    let told: Vec<String> = lines.map_while(Result::ok).take(500).collect();
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let last = told.last().unwrap();
    assert!(last.starts_with("error: run") && last.contains("No such file"), "{last}");
    // what was saved went with the folder, and is whole
    lab.softdict(&["sample", "gone", "--which", "last", "--tokens", "3"]).ok();
    assert!(!lab.has("run"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_that_may_not_be_written_is_named_and_keeps_its_run() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::trained(&["train.steps=10"]);
    let before = lab.snapshot("run");
    let mode = |mode| fs::set_permissions(lab.path("run"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    // the superuser may write anyway
    if fs::write(lab.path("run/probe"), "").is_ok() {
        fs::remove_file(lab.path("run/probe")).unwrap();
        mode(0o755);
        return;
    }
    let resumed = lab.softdict(&["train", "--out", "run", "--resume", "--set", "train.steps=20"]);
    resumed.fails(1).says(&["run", "Permission denied"]);
    lab.softdict(&["sample", "run", "--tokens", "3"]).ok();
    mode(0o755);
    assert_eq!(lab.snapshot("run"), before);
}
