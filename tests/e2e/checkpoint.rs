//! Checkpoints on the disk: damaged and hostile ones, moved ones, and what belongs together.

use crate::support::{BINARY, Lab, TINY, story};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A run whose last checkpoint has lost its manifest, so that the loader itself has to see what is wrong.
fn unguarded() -> Lab {
    let lab = Lab::trained(&[]);
    fs::remove_file(lab.path("run/last/softdict.json")).unwrap();
    lab
}

/// Header and data of the run's weights.
fn parts(lab: &Lab) -> (Value, Vec<u8>) {
    let bytes = lab.read("run/last/model.safetensors");
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..8 + header]).unwrap(), bytes[8 + header..].to_vec())
}

fn file(header: &Value, data: &[u8]) -> Vec<u8> {
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// Every command that opens a checkpoint says one thing that names `part`, in bounded memory, and ends.
#[track_caller]
fn refused(lab: &Lab, parts: &[&str], what: &str) {
    for command in ["sample run --which last", "attention run --prompt the --which last"] {
        // 1 GiB of addresses: more than the program needs, less than these files ask for
        let limited = format!("ulimit -v 1048576; exec \"$0\" {command}");
        let mut shell = assert_cmd::Command::new("sh");
        // some milliseconds are enough; a busy machine may take longer, a loop over 2⁶³ never ends
        shell.args(["-c", &limited, BINARY]).current_dir(lab.path("")).timeout(Duration::from_secs(20));
        let output = shell.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{what}: {command}: {stderr}");
        assert!(!stderr.contains("panicked") && output.stdout.is_empty(), "{what}: {stderr}");
        let error = stderr.lines().find(|line| line.starts_with("error:")).unwrap();
        assert!(parts.iter().all(|part| error.contains(part)), "{what}: {error}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn hostile_and_broken_weights_are_refused_by_name() {
    let lab = unguarded();
    let good = lab.read("run/last/model.safetensors");
    let (header, data) = self::parts(&lab);
    let (name, first) = header.as_object().unwrap().iter().find(|(name, _)| *name != "__metadata__").unwrap();
    let with = |key: &str, value: Value| {
        let mut changed = header.clone();
        changed[name][key] = value;
        file(&changed, &data)
    };
    let [begin, end] = [0, 1].map(|at| first["data_offsets"][at].as_u64().unwrap());
    let mut poisoned = data.clone();
    poisoned[begin as usize..begin as usize + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let mut missing = header.clone();
    missing.as_object_mut().unwrap().remove(name);
    let mut extra = header.clone();
    let size = data.len();
    extra["stranger.weight"] = json!({"dtype": "F32", "shape": [1], "data_offsets": [size, size + 4]});
    let cases: [(&str, Vec<u8>, Vec<&str>); 14] = [
        (
            "a header of 2⁶³ bytes",
            [&0x7fff_ffff_ffff_ffff_u64.to_le_bytes()[..], &[b' '; 10]].concat(),
            vec![],
        ),
        ("cut in half", good[..good.len() / 2].to_vec(), vec![]),
        ("empty", Vec::new(), vec![]),
        ("no header", vec![1, 2, 3], vec![]),
        ("overlapping", with("data_offsets", json!([begin + 4, end + 4])), vec![]),
        ("out of range", with("data_offsets", json!([begin, u64::MAX])), vec![]),
        ("a shape beyond 64 bits", with("shape", json!([1u64 << 40, 1u64 << 40])), vec![]),
        ("another shape", with("shape", json!([end / 4])), vec![name]),
        ("an unknown type", with("dtype", json!("F99")), vec![]),
        ("a tensor too few", file(&missing, &data), vec![]),
        ("a tensor too many", file(&extra, &[&data[..], &[0; 4]].concat()), vec!["stranger.weight"]),
        ("not a number", file(&header, &poisoned), vec![name]),
        ("a pickle", b"\x80\x02}q\x00X\x05\x00\x00\x00helloq\x01.".to_vec(), vec!["pickle"]),
        ("a zip of pickles", b"PK\x03\x04\x00\x00\x08\x08archive/data.pkl".to_vec(), vec!["pickle"]),
    ];
    for (what, bytes, parts) in &cases {
        lab.write("run/last/model.safetensors", bytes);
        refused(&lab, &[&["model.safetensors"], &parts[..]].concat(), what);
    }
    fs::remove_file(lab.path("run/last/model.safetensors")).unwrap();
    refused(&lab, &["model.safetensors"], "no weights");
    lab.write("run/last/pytorch_model.bin", &cases[13].1);
    refused(&lab, &["pytorch_model.bin", "pickle"], "a pickle under its own name");
}

#[test]
#[cfg(target_os = "linux")]
fn a_hostile_or_broken_configuration_is_refused_by_name() {
    let lab = unguarded();
    let good = lab.json("run/last/config.json");
    let with = |key: &str, value: Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed.to_string()
    };
    let cases = [
        (with("num_hidden_layers", json!(1_000_000_000)), "1000000000"),
        (with("hidden_size", json!(1u64 << 40)), ""),
        (with("vocab_size", json!(u64::MAX)), ""),
        (with("num_attention_heads", json!(0)), ""),
        (with("hidden_act", json!("magic")), "hidden_act"),
        (with("model_type", json!("bert")), "bert"),
        ("{\"model_type\": \"gpt_neox\"".to_owned(), ""),
        ("[".repeat(100_000), ""),
        (String::new(), ""),
    ];
    for (config, part) in &cases {
        lab.write("run/last/config.json", config);
        refused(&lab, &["config.json", part], &config.chars().take(200).collect::<String>());
    }
}

#[test]
fn a_file_that_is_not_the_one_saved_is_refused_by_name() {
    for name in ["model.safetensors", "tokenizer.json", "config.json"] {
        let lab = Lab::trained(&[]);
        let file = format!("run/last/{name}");
        let mut bytes = lab.read(&file);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        lab.write(&file, bytes);
        lab.softdict(&["sample", "run", "--which", "last"]).fails(1).says(&[name]);
        fs::remove_file(lab.path(&file)).unwrap();
        lab.softdict(&["sample", "run", "--which", "last"]).fails(1).says(&[name]);
    }
}

#[test]
fn more_tokens_than_the_embedding_has_rows_is_an_error_with_both_numbers() {
    let lab = unguarded();
    let rows = lab.json("run/last/config.json")["vocab_size"].as_u64().unwrap();
    let more = story(60) + "ÄÖÜ";
    lab.write("more.txt", more);
    let learn = ["tokenizer", "train", "more.txt", "--kind", "char", "--out"];
    // a checkpoint's own is not written over
    let own = lab.softdict(&learn).args(&["run/last/tokenizer.json"]);
    own.fails(1).says(&["--out run/last/tokenizer.json", "part of a checkpoint"]);
    lab.softdict(&learn).args(&["more.json"]).ok();
    lab.write("run/last/tokenizer.json", lab.read("more.json"));
    let numbers = [format!("{} tokens", rows + 3), format!("{rows} rows")];
    let says = ["tokenizer.json", &numbers[0], &numbers[1]];
    lab.softdict(&["sample", "run", "--which", "last"]).fails(1).says(&says);
    lab.train("tuned", &[]).args(&["--from", "run/last"]).fails(1).says(&says);
    assert!(!lab.has("tuned"));
}

#[test]
fn a_run_can_be_moved_and_needs_neither_its_text_nor_its_tokenizer_file() {
    let lab = Lab::new();
    lab.softdict(&["tokenizer", "train", "text.txt", "--kind", "char", "--out", "letters.json"]).ok();
    fs::create_dir(lab.path("work")).unwrap();
    let train = ["train", "../text.txt", "--out", "first", "--set", "tokenizer.kind=char"];
    lab.softdict(&train).set(&TINY).at(lab.path("work")).ok();
    let learned = ["train", "text.txt", "--out", "work/second"];
    lab.softdict(&learned).set(&TINY).set(&["tokenizer.kind=letters.json"]).ok();
    let greedy = ["--temperature", "0", "--tokens", "30", "--prompt", "the"];
    let expected = lab.softdict(&["sample", "work/first"]).args(&greedy).ok().stdout;

    let here = lab.path("").canonicalize().unwrap();
    for name in [here.as_path(), lab.path("").as_path()] {
        let name = name.to_str().unwrap().trim_end_matches('/').as_bytes();
        for (path, bytes) in lab.snapshot("work") {
            assert!(
                !bytes.windows(name.len()).any(|part| part == name),
                "{} names its folder",
                path.display()
            );
        }
    }
    fs::create_dir(lab.path("else where")).unwrap();
    for (run, moved) in [("first", "else where/my run é"), ("second", "else where/2 漢")] {
        fs::rename(lab.path("work").join(run), lab.path(moved)).unwrap();
    }
    for gone in ["text.txt", "letters.json"] {
        fs::remove_file(lab.path(gone)).unwrap();
    }
    for moved in ["else where/my run é", "else where/2 漢"] {
        let run = lab.path(moved);
        let from_root = |command: &str| lab.softdict(&[command]).arg(&run).at("/");
        assert_eq!(from_root("sample").args(&greedy).ok().stdout, expected, "{moved}");
        from_root("attention").args(&["--prompt", "the", "--format", "json"]).ok();
        from_root("heads").ok();
        from_root("eval").ok();
        lab.softdict(&["train", "--resume", "--set", "train.steps=25", "--out"]).arg(&run).at("/").ok();
        let mut inside = lab.softdict(&["sample", "."]).at(&run).args(&greedy);
        inside = inside.args(&["--which", "last"]);
        inside.ok();
    }
}

#[test]
fn a_missing_tokenizer_is_named_and_none_takes_its_place() {
    let lab = unguarded();
    fs::remove_file(lab.path("run/last/tokenizer.json")).unwrap();
    for command in
        [&["sample", "run", "--which", "last"][..], &["attention", "run", "--which", "last", "--prompt", "a"]]
    {
        lab.softdict(command).fails(1).says(&["tokenizer.json"]);
    }
    lab.softdict(&["tokenizer", "show", "run"]).fails(1).says(&["tokenizer.json"]);
}

#[test]
fn a_tied_head_is_saved_and_counted_once_and_stays_tied() {
    let lab = Lab::new();
    let count = |run: &str, sets: &[&str]| {
        lab.train(run, sets).ok();
        let tensors = lab.tensors(&format!("{run}/last/model.safetensors"));
        let stored: usize = tensors.values().map(|(_, values)| values.len()).sum();
        assert_eq!(lab.events(run, "start")[0]["parameters"], stored, "{run}");
        stored
    };
    let (tied, untied) = (count("tied", &["model.tied=true"]), count("untied", &["model.tied=false"]));
    let vocabulary = lab.json("tied/last/config.json")["vocab_size"].as_u64().unwrap() as usize;
    assert_eq!(untied - tied, vocabulary * 16);
    for (run, is_tied) in [("tied", true), ("untied", false)] {
        assert_eq!(lab.json(&format!("{run}/last/config.json"))["tie_word_embeddings"], is_tied);
        // loaded and saved again by a rate that moves nothing, then five steps that do
        let again = |rate: &str, steps: &str, out: &str| {
            let sets = ["train.warmup_steps=0", rate, steps];
            lab.softdict(&["train", "text.txt", "--from", run, "--out", out]).set(&TINY).set(&sets).ok();
            lab.read(&format!("{out}/last/model.safetensors"))
        };
        let (kept, moved) = (format!("{run}-kept"), format!("{run}-moved"));
        let saved = lab.read(&format!("{run}/last/model.safetensors"));
        assert_eq!(saved, again("train.learning_rate=1e-30", "train.steps=1", &kept));
        assert_ne!(saved, again("train.learning_rate=1e-3", "train.steps=5", &moved));
        let names = |run: &str| -> Vec<String> {
            lab.tensors(&format!("{run}/last/model.safetensors")).into_keys().collect()
        };
        assert_eq!(names(run), names(&moved));
    }
}

#[test]
fn what_is_no_checkpoint_is_said_to_be_none() {
    let lab = Lab::new();
    fs::create_dir(lab.path("empty")).unwrap();
    lab.softdict(&["sample", "empty"]).fails(1).says(&["empty", "config.json"]);
    lab.softdict(&["sample", "text.txt"]).fails(1).says(&["text.txt", "folder"]);
    lab.softdict(&["sample", "nowhere"]).fails(1).says(&["nowhere"]);
    lab.train("run", &[]).ok();
    fs::remove_dir_all(lab.path("run/step-000010")).unwrap();
    fs::remove_dir_all(lab.path("run/step-000020")).unwrap();
    let done = lab.softdict(&["sample", "run"]).fails(1).says(&["run"]);
    assert!(done.stderr.contains("step-0000"), "{}", done.stderr);
    assert!(Path::new(BINARY).is_absolute());
}
