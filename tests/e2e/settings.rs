//! Settings and flags: what is mistyped, out of range or impossible is named, and nothing is written.

use crate::support::{Lab, TINY};

#[test]
fn a_wrong_value_names_its_key() {
    let lab = Lab::new();
    let wrong: [(&str, &[&str]); 16] = [
        ("train.learning_rte=1e-3", &["learning_rte", "did you mean train.learning_rate?"]),
        ("modle.layers=2", &["modle", "did you mean model?"]),
        ("model.layers=abc", &["model.layers", "abc"]),
        ("model.layers=2.5", &["model.layers", "2.5"]),
        ("model.layers=1000000000", &["model.layers = 1000000000"]),
        ("model.dropout=1.5", &["model.dropout = 1.5"]),
        ("model.heads=0", &["model.heads = 0"]),
        ("model.context=0", &["model.context = 0"]),
        ("model.positions=sideways", &["model.positions", "sideways"]),
        ("train.eval_every=0", &["train.eval_every = 0"]),
        ("train.batch=0", &["train.batch = 0"]),
        ("train.batch=-4", &["train.batch", "-4"]),
        ("train.learning_rate=nan", &["train.learning_rate"]),
        ("data.val_fraction=1", &["data.val_fraction = 1"]),
        ("tokenizer.kind=chars", &["tokenizer.kind", "chars", "char"]),
        ("layers=4", &["layers=4", "model.layers=4"]),
    ];
    for (set, parts) in wrong {
        lab.train("run", &[set]).fails(2).says(parts);
        assert!(!lab.has("run"), "{set}");
    }
}

#[test]
fn a_settings_file_is_read_as_strictly() {
    let lab = Lab::new();
    let train = || lab.softdict(&["train", "text.txt", "--out", "run", "--config", "my.toml"]);
    let wrong: [(&str, &[&str]); 5] = [
        ("[model]\nlayerz = 2\n", &["my.toml", "layerz", "did you mean model.layers?"]),
        ("[train]\nbatch = \"many\"\n", &["my.toml", "train.batch", "many"]),
        ("layers = 2\n", &["my.toml", "layers", "[model]"]),
        ("[model\nlayers = 2\n", &["my.toml"]),
        ("[modem]\nlayers = 2\n", &["my.toml", "modem", "did you mean model?"]),
    ];
    for (text, parts) in wrong {
        lab.write("my.toml", text);
        train().fails(2).says(parts);
        assert!(!lab.has("run"), "{text}");
    }
    let missing = lab.softdict(&["train", "text.txt", "--out", "run", "--config", "none.toml"]);
    missing.fails(2).says(&["none.toml"]);

    // a whole number where a fraction is expected, and the command line over the file
    lab.write("my.toml", "[train]\nlearning_rate = 1\nsteps = 7\n[model]\ndropout = 0\n");
    let later = ["train.steps=3", "train.warmup_steps=1", "model.layers=1", "model.width=16"];
    train().set(&later).ok();
    let settings = lab.read_text("run/settings.toml");
    assert!(settings.contains("learning_rate = 1.0\n") && settings.contains("steps = 3\n"), "{settings}");
}

#[test]
fn a_shape_that_cannot_be_names_both_of_what_does_not_fit() {
    let lab = Lab::new();
    let shapes: [(&[&str], &[&str]); 5] = [
        (&["model.width=65", "model.heads=4"], &["model.width = 65", "model.heads = 4"]),
        (&["model.width=30", "model.heads=6"], &["head size 5", "even"]),
        (&["model.width=32", "model.heads=4", "model.rope_fraction=0.4"], &["model.rope_fraction = 0.4"]),
        (&["model.heads=4", "model.kv_heads=3"], &["model.kv_heads = 3", "model.heads = 4"]),
        (&["train.warmup_steps=9", "train.decay_steps=5"], &["train.decay_steps = 5", "warmup_steps = 9"]),
    ];
    for (sets, parts) in shapes {
        // before any text is looked for
        let train = lab.softdict(&["train", "none.txt", "--out", "run"]).set(&TINY).set(sets);
        train.fails(2).says(parts);
        assert!(!lab.has("run"), "{sets:?}");
    }
    lab.train("ten", &["model.width=30", "model.heads=3", "train.steps=2"]).ok();
    lab.train("odd", &["model.width=30", "model.heads=6", "model.positions=learned", "train.steps=2"]).ok();
}

#[test]
fn flags_are_checked_and_text_may_begin_with_a_dash() {
    let lab = Lab::with("- item\n--x\n".repeat(40));
    lab.train("run", &[]).ok();
    for prompt in ["- item", "--x", "-"] {
        let done = lab.softdict(&["sample", "run", "--tokens", "2", "--prompt", prompt]).ok();
        assert!(done.text().starts_with(prompt), "{}", done.text());
        lab.softdict(&["attention", "run", "--format", "csv", "--prompt", prompt]).ok();
    }
    let encoded = lab.softdict(&["tokenizer", "encode", "run", "--x"]).ok();
    assert_eq!(encoded.text().split_whitespace().count(), 3);
    let wrong: [(&[&str], &[&str]); 8] = [
        (&["--temperature", "-1"], &["--temperature -1", "range"]),
        (&["--temperature", "hot"], &["--temperature", "hot"]),
        (&["--top-k", "-5"], &["--top-k -5"]),
        (&["--top-p", "1.5"], &["--top-p 1.5"]),
        (&["--min-p", "-0.1"], &["--min-p -0.1"]),
        (&["--repetition-penalty", "0"], &["--repetition-penalty 0"]),
        (&["--num-samples", "0"], &["--num-samples 0"]),
        (&["--stop", ""], &["--stop"]),
    ];
    for (flags, parts) in wrong {
        let done = lab.softdict(&[&["sample", "run"], flags].concat()).fails(2).says(parts);
        assert!(!done.stderr.contains("unexpected argument"), "{}", done.stderr);
        assert!(done.stdout.is_empty());
    }
    for flags in [["--layer", "1"], ["--head", "2"]] {
        let call = lab.softdict(&["attention", "run", "--prompt", "x"]).args(&flags);
        call.fails(2).says(&[&flags.join(" "), "counted from 0"]);
    }
}

#[test]
fn the_settings_of_the_run_are_what_sample_goes_by() {
    let lab = Lab::trained(&["sample.temperature=0", "sample.tokens=7"]);
    let first = lab.softdict(&["sample", "run", "--json"]).ok().json();
    assert_eq!(first["token_ids"].as_array().unwrap().len(), 7);
    assert_eq!(first["text"], lab.softdict(&["sample", "run", "--json"]).ok().json()["text"]);
    let more = lab.softdict(&["sample", "run", "--json", "--tokens", "9"]).ok().json();
    assert_eq!(more["token_ids"].as_array().unwrap().len(), 9);
    let wrong = lab.train("wrong", &["sample.temperature=-1"]).fails(2);
    wrong.says(&["temperature"]);
}

#[test]
fn what_is_computed_where_is_checked_before_anything_is_written() {
    let lab = Lab::new();
    if cfg!(not(feature = "cuda")) {
        lab.train("run", &[]).args(&["--device", "cuda"]).fails(1).says(&["--device cuda", "cpu"]);
        lab.train("run", &[]).args(&["--device", "cuda:1"]).fails(1).says(&["--device cuda:1"]);
        // the choice is said, once
        let said = lab.train("auto", &[]).args(&["--device", "auto"]).ok().stderr;
        assert_eq!(said.lines().filter(|line| line.starts_with("device ")).count(), 1, "{said}");
        assert!(said.contains("CPU"), "{said}");
    }
    lab.train("run", &[]).args(&["--device", "gpu"]).fails(2).says(&["--device gpu", "cuda:N"]);
    lab.train("run", &[]).args(&["--threads", "0"]).fails(2).says(&["--threads"]);
    assert!(!lab.has("run"));
    lab.softdict(&["train", "text.txt", "--out", "cpu", "--device", "cpu"]).set(&TINY).ok();
    assert_eq!(lab.events("cpu", "start")[0]["device"], "cpu");
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let lab = Lab::trained(&[]);
    let before = lab.snapshot("run");
    let pairs: [&[&str]; 4] = [
        &["train", "text.txt", "--out", "run", "--resume", "--overwrite"],
        &["train", "text.txt", "--out", "run", "--resume", "--from", "run"],
        &["sample", "run", "--prompt", "a", "--prompt-file", "text.txt"],
        &["eval", "run", "text.txt", "--split", "val"],
    ];
    for args in pairs {
        lab.softdict(args).fails(2).says(&["cannot be used with"]);
    }
    assert_eq!(lab.snapshot("run"), before);
}

#[test]
#[cfg(target_os = "linux")]
fn what_needs_more_memory_than_is_free_is_refused_before_the_first_step_or_forced() {
    let lab = Lab::new();
    let huge = ["train.batch=4000000", "train.steps=1"];
    let said = ["training needs about", "train.batch", "model.width", "--force"];
    lab.train("run", &huge).fails(1).says(&said);
    assert!(!lab.has("run"));
    // a limit on addresses is not the memory that is free: what does fit needs no force, and force changes nothing
    let small = lab.softdict(&["train", "text.txt", "--out", "run", "--force"]).set(&TINY);
    assert!(!small.ok().stderr.contains("--force"));
}
