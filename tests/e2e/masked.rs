//! Models that see both ways: trained to tell hidden tokens, looked into as any other.

use crate::support::Lab;

const BOTH_WAYS: [&str; 2] = ["model.causal=false", "train.objective=masked"];

fn masked(more: &[&str]) -> Lab {
    Lab::trained(&[&BOTH_WAYS, more].concat())
}

#[test]
fn what_both_sides_tell_is_filled_in() {
    let lab =
        masked(&["train.steps=600", "train.learning_rate=1e-2", "train.batch=16", "train.eval_every=300"]);
    // of the text's letters only one fits: "the cat did not cross"
    let lens = ["lens", "run", "--prompt", "d[MASK]d not cross", "--json"];
    let found = lab.softdict(&lens).ok().json();
    assert_eq!(found["depths"][1]["top"][0]["token"], "i", "{found}");
    assert_eq!((&found["position"], &found["after"]), (&1.into(), &"[MASK]".into()));
    let text = lab.softdict(&["lens", "run", "--prompt", "d[MASK]d not cross"]).ok();
    assert!(text.text().contains("at token 1, [MASK]"), "{}", text.text());
    // the last hidden token is the one that is asked for, unless another is
    let at = |position: &[&str]| {
        let two = ["lens", "run", "--prompt", "d[MASK]d n[MASK]t cross", "--json"];
        lab.softdict(&[&two, position].concat()).ok().json()["depths"][1]["top"][0]["token"].clone()
    };
    assert_eq!([at(&[]), at(&["--position", "1"])], ["o", "i"]);
}

#[test]
fn every_command_reads_a_model_that_sees_both_ways() {
    let lab = masked(&["train.heads_every=10"]);
    let first = lab.softdict(&["eval", "run", "--json"]).ok().json();
    assert_eq!(first, lab.softdict(&["eval", "run", "--json", "--batch", "1"]).ok().json());
    assert!(first["bits_per_byte"].is_null() && first["loss"].as_f64().unwrap() > 0.0);
    lab.softdict(&["eval", "run", "--ablate", "0.1=mean"]).ok().says(&["without heads 0.1=mean"]);
    let maps =
        lab.softdict(&["attention", "run", "--prompt", "th[MASK] cat", "--format", "json"]).ok().json();
    assert_eq!((&maps["tokens"][2], maps["tokens"].as_array().unwrap().len()), (&"[MASK]".into(), 7));
    let heads = lab.softdict(&["heads", "run", "--json"]).ok().json();
    let costs = heads.as_array().unwrap().iter().filter(|head| head["mean"]["increase"].is_f64());
    assert_eq!(costs.count(), 2);
    lab.softdict(&["lookup", "run"]).ok();
    lab.softdict(&["history", "run", "--out", "history.svg"]).ok();
    lab.softdict(&["heads", "run", "--html", "heads.html"]).ok();
    let clean = ["patch", "run", "--clean", "th[MASK] cat", "--corrupt", "th[MASK] dat", "--token", "e"];
    lab.softdict(&[&clean[..], &["--against", "a"]].concat()).ok();
    let moved = ["patch", "run", "--clean", "th[MASK] cat", "--corrupt", "t[MASK]e dat"];
    lab.softdict(&moved).fails(2).says(&["[MASK]", "the same place"]);
    let both = ["diff", "run/step-000010", "run/step-000020", "--prompt", "th[MASK] cat"];
    assert!(lab.softdict(&both).ok().text().starts_with("hidden token"));
    lab.softdict(&["sample", "run", "--prompt", "the"]).fails(1).says(&["causal"]);
    lab.softdict(&["tales", "run"]).fails(1).says(&["tales"]);
}

#[test]
fn the_mask_is_a_row_of_its_own_and_text_of_a_causal_model() {
    let (lab, causal) = (masked(&[]), Lab::trained(&[]));
    let rows = |lab: &Lab| lab.json("run/last/config.json")["vocab_size"].as_u64().unwrap();
    assert_eq!(rows(&lab), rows(&causal) + 1);
    causal.softdict(&["lens", "run", "--prompt", "th[MASK]"]).fails(1).says(&["--prompt", "'['"]);
    let refused = |sets: &[&str], words: &[&str]| {
        Lab::new().train("run", sets).fails(2).says(words);
    };
    refused(&["model.causal=false"], &["model.causal = false", "train.objective = masked"]);
    refused(&["train.objective=masked"], &["model.causal = false", "train.objective = masked"]);
}

#[test]
fn a_masked_run_goes_on_as_if_it_had_not_ended() {
    let (whole, halves) = (masked(&[]), masked(&["train.steps=10", "train.decay_steps=20"]));
    halves.softdict(&["train", "text.txt", "--out", "run", "--resume", "--set", "train.steps=20"]).ok();
    let straight = masked(&["train.decay_steps=20"]);
    let weights = |lab: &Lab| std::fs::read(lab.path("run/last/model.safetensors")).unwrap();
    assert_eq!(weights(&halves), weights(&straight));
    assert_eq!(weights(&whole), weights(&straight));
}
