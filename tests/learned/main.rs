//! What the default run learns of the tales, for three seeds: the longest tests there are, for they train the models.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use assert_cmd::Command;
use serde_json::Value;
use std::time::Duration;

/// Far above what a run takes, even on a busy machine.
const HANGS: Duration = Duration::from_mins(15);
const SEEDS: [&str; 3] = ["1337", "1", "2"];

fn softdict(args: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softdict"));
    command.args(args).timeout(HANGS).assert().success().get_output().stdout.clone()
}

/// Trains on the tales and returns what `train` ends with, and `tales` as JSON.
fn learned(seed: &str, sets: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run").display().to_string();
    let mut args = vec!["train", "--out", &run, "--seed", seed];
    args.extend(sets.iter().flat_map(|set| ["--set", set]));
    let told = String::from_utf8(softdict(&args)).unwrap();
    let found = softdict(&["tales", &run, "--lines", "100", "--json"]);
    (told, serde_json::from_slice(&found).unwrap())
}

fn share(found: &Value, kind: &str) -> f64 {
    let kind = &found[kind];
    kind["right"].as_f64().unwrap() / kind["questions"].as_f64().unwrap()
}

#[test]
fn tables_never_seen_are_looked_up_by_a_head_and_pronouns_find_their_nouns() {
    for seed in SEEDS {
        let (told, found) = learned(seed, &[]);
        let dictionaries = &found["dictionaries"];
        assert!(share(&found, "dictionaries") >= 0.98, "seed {seed}: {dictionaries}");
        assert!(dictionaries["entry"].as_f64().unwrap() >= 0.85, "seed {seed}: {dictionaries}");
        assert!(share(&found, "pronouns") >= 0.95, "seed {seed}: {}", found["pronouns"]);
        // the documents' table: another word is asked for, another entry is found
        let rows = found["table"]["rows"].as_array().unwrap();
        for (place, row) in rows.iter().enumerate() {
            let weights: Vec<f64> =
                row["attention"].as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap()).collect();
            assert!(row["right"] == true && weights[place] > 0.5, "seed {seed}: {row}");
        }
        assert_eq!(rows.len(), 4);
        assert!(found["carriers"][0]["share"].as_f64().unwrap() > 0.2, "seed {seed}");
        for part in ["DICTIONARIES", "PRONOUNS", "What carries the choice"] {
            assert!(told.contains(part), "seed {seed}: {told}");
        }
    }
}

#[test]
fn a_model_that_sees_both_ways_tells_the_noun_at_the_pronouns_own_place() {
    for seed in SEEDS {
        let (told, found) = learned(seed, &["model.causal=false", "train.objective=masked"]);
        assert_eq!(found["fills_in"], true);
        assert!(share(&found, "pronouns") >= 0.95, "seed {seed}: {}", found["pronouns"]);
        assert!(found["carriers"][0]["share"].as_f64().unwrap() > 0.2, "seed {seed}");
        assert!(told.contains("at the pronoun's own place"), "seed {seed}: {told}");
    }
}
