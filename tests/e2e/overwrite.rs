//! What a run may and may not do to a folder that is used already, and that a refusal changes nothing.

use crate::support::{Lab, TINY, story};
use std::fs;

#[test]
fn a_used_folder_is_refused_with_the_flags_that_would_allow_it() {
    let lab = Lab::trained(&[]);
    let before = lab.snapshot("run");
    lab.train("run", &[]).fails(1).says(&["error: run", "--resume", "--overwrite"]);
    let inside = lab.softdict(&["train", "../text.txt", "--out", "."]).set(&TINY).at(lab.path("run"));
    inside.fails(1).says(&["--resume", "--overwrite"]);
    assert_eq!(lab.snapshot("run"), before);
    // a folder that only holds other things is not used
    fs::create_dir(lab.path("mine")).unwrap();
    lab.write("mine/notes.txt", "mine");
    lab.train("mine", &[]).ok();
    assert_eq!(lab.read("mine/notes.txt"), b"mine");
}

#[test]
fn overwriting_replaces_what_is_ours_and_nothing_else() {
    let lab = Lab::trained(&["train.steps=30"]);
    let others = ["notes.txt", "step-notes.txt", "figures/one.png"];
    fs::create_dir(lab.path("run/figures")).unwrap();
    for name in others {
        lab.write(&format!("run/{name}"), name);
    }
    let kept = || others.iter().all(|name| lab.read(&format!("run/{name}")) == name.as_bytes());
    lab.train("run", &[]).args(&["--overwrite"]).ok();
    assert!(kept() && lab.has("run/step-000020") && !lab.has("run/step-000030"));
    assert_eq!(lab.series("run", "step").len(), 20);
    // the same from inside, with the text elsewhere
    let inside = lab.softdict(&["train", "../text.txt", "--out", ".", "--overwrite"]).at(lab.path("run"));
    inside.set(&TINY).set(&["train.steps=10"]).ok();
    assert!(kept() && lab.has("run/step-000010") && !lab.has("run/step-000020"));
    lab.softdict(&["sample", ".", "--tokens", "3"]).at(lab.path("run")).ok();
}

/// Settings that are found to be impossible at different points, and what the message names.
const IMPOSSIBLE: [(&[&str], &[&str]); 4] = [
    (&["model.causal=false"], &["model.causal"]),
    (&["train.batch=100000000", "model.context=512"], &["train.batch", "model.context", "model.width"]),
    (&["model.context=100000"], &["model.context"]),
    // as bytes the text is long enough, as tokens it is not
    (&["model.context=1500", "tokenizer.kind=bpe", "tokenizer.vocab_size=400"], &["model.context"]),
];

#[test]
fn a_run_that_cannot_be_writes_nothing() {
    let lab = Lab::new();
    for (sets, parts) in IMPOSSIBLE {
        lab.train("run", sets).fails_somehow().says(parts);
        assert!(!lab.has("run"), "{sets:?} left {:?}", lab.snapshot("run").keys());
    }
    // and leaves a folder as it was
    fs::create_dir(lab.path("mine")).unwrap();
    lab.write("mine/notes.txt", "mine");
    for (sets, _) in IMPOSSIBLE {
        lab.train("mine", sets).fails_somehow();
        assert_eq!(lab.snapshot("mine").len(), 1, "{sets:?}");
    }
}

#[test]
fn a_run_that_cannot_be_does_not_cost_the_one_that_it_would_replace() {
    let lab = Lab::trained(&[]);
    let before = lab.snapshot("run");
    for (sets, _) in IMPOSSIBLE {
        lab.train("run", sets).args(&["--overwrite"]).fails_somehow();
        assert!(lab.snapshot("run") == before, "{sets:?}");
    }
    lab.write("strange.txt", b"hello w\x92orld and some more of it");
    lab.softdict(&["train", "strange.txt", "--out", "run", "--overwrite"]).set(&TINY).fails(1);
    assert!(lab.snapshot("run") == before);
}

#[test]
fn a_bad_setting_is_found_before_the_text_is_read() {
    let lab = Lab::new();
    for sets in [["model.width=65", "model.heads=4"], ["train.batch=0", "model.dropout=1.5"]] {
        let call = lab.softdict(&["train", "there-is-no-such.txt", "--out", "run"]).set(&sets);
        let done = call.fails(2);
        assert!(!done.stderr.contains("there-is-no-such.txt"), "{}", done.stderr);
        assert!(!lab.has("run"));
    }
}

#[test]
fn a_text_inside_the_run_is_not_touched() {
    let lab = Lab::new();
    fs::create_dir(lab.path("run")).unwrap();
    lab.write("run/text.txt", story(60));
    for flags in [&[][..], &["--overwrite"]] {
        lab.softdict(&["train", "run/text.txt", "--out", "run"]).set(&TINY).args(flags).ok();
    }
    assert_eq!(lab.read_text("run/text.txt"), story(60));
}
