//! `attention`, `heads` and `explain`: the patterns are the model's, and the scores are those of the patterns.

use crate::support::{Lab, distance, story};
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Two layers of two heads that have learned a little.
const DEEP: [&str; 2] = ["model.layers=2", "model.context=32"];

type Rows = Vec<Vec<f64>>;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Every T×T pattern with its layer and head.
fn patterns(json: &Value) -> Vec<(u64, u64, Rows)> {
    let list = |value: &Value| value.as_array().unwrap().clone();
    let mut all = Vec::new();
    for (layer, maps) in list(&json["layers"]).iter().zip(list(&json["attention"])) {
        for (head, map) in list(&json["heads"]).iter().zip(list(&maps)) {
            let rows = list(&map).iter().map(numbers).collect();
            all.push((layer.as_u64().unwrap(), head.as_u64().unwrap(), rows));
        }
    }
    all
}

fn attention(lab: &Lab, flags: &[&str]) -> Value {
    lab.softdict(&[&["attention", "run", "--format", "json"], flags].concat()).ok().json()
}

/// Each row is a distribution over what came before.
#[track_caller]
fn check_causal(rows: &Rows, tokens: usize) {
    assert_eq!(rows.len(), tokens);
    for (query, row) in rows.iter().enumerate() {
        assert_eq!(row.len(), tokens);
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5, "row {query}: {row:?}");
        assert!(row[query + 1..].iter().all(|weight| *weight == 0.0), "row {query} sees the future: {row:?}");
        assert!(row.iter().all(|weight| (0.0..=1.0).contains(weight)));
    }
    assert_eq!(rows[0][0], 1.0);
}

#[test]
fn every_head_of_every_layer_shows_prompt_and_generated_tokens() {
    let lab = Lab::trained(&DEEP);
    let prompt = "the cat did";
    let json = attention(&lab, &["--prompt", prompt, "--generate", "5"]);
    assert_eq!(json["shape"], serde_json::json!([2, 2, 16, 16]));
    let all = patterns(&json);
    assert_eq!(
        all.iter().map(|(layer, head, _)| (*layer, *head)).collect::<Vec<_>>(),
        [(0, 0), (0, 1), (1, 0), (1, 1)]
    );
    for (_, _, rows) in &all {
        check_causal(rows, 16);
    }

    // the generated tokens are the likeliest ones, and the prompt's rows do not know of them
    let greedy = ["--prompt", prompt, "--temperature", "0", "--tokens", "5", "--json"];
    let sampled = lab.softdict(&["sample", "run"]).args(&greedy).ok().json();
    assert_eq!(numbers(&json["token_ids"])[11..], numbers(&sampled["token_ids"]));
    let alone = patterns(&attention(&lab, &["--prompt", prompt]));
    for ((_, _, long), (_, _, short)) in all.iter().zip(&alone) {
        for (long, short) in long.iter().zip(short) {
            assert!(distance(&long[..11], short) < 1e-6);
        }
    }
}

#[test]
fn labels_and_rows_are_the_tokenizers_output_with_no_hidden_token() {
    for kind in ["tokenizer.kind=char", "tokenizer.kind=byte", "tokenizer.kind=bpe"] {
        let lab = Lab::trained(&[kind]);
        for prompt in ["the cat", "t"] {
            let ids = lab.softdict(&["tokenizer", "encode", "run", prompt]).ok();
            let ids: Vec<f64> = ids.text().split_whitespace().map(|id| id.parse().unwrap()).collect();
            let json = attention(&lab, &["--prompt", prompt]);
            assert_eq!(numbers(&json["token_ids"]), ids);
            let tokens: Vec<&str> =
                json["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
            assert_eq!((tokens.len(), tokens.concat().as_str()), (ids.len(), prompt));
            for (_, _, rows) in &patterns(&json) {
                check_causal(rows, ids.len());
            }
        }
    }
}

#[test]
fn a_selection_is_the_same_as_its_part_of_the_whole() {
    let lab = Lab::trained(&DEEP);
    let all = patterns(&attention(&lab, &["--prompt", "the cat"]));
    let one = attention(&lab, &["--prompt", "the cat", "--layer", "1", "--head", "0"]);
    assert_eq!(one["shape"], serde_json::json!([1, 1, 7, 7]));
    assert_eq!(patterns(&one), [all[2].clone()]);
    let some = attention(&lab, &["--prompt", "the cat", "--layer", "1", "--layer", "0", "--head", "1"]);
    // as the model has them
    assert_eq!(some["layers"], serde_json::json!([0, 1]));
    assert_eq!(patterns(&some), [all[1].clone(), all[3].clone()]);
}

#[test]
fn a_prompt_beyond_the_context_is_cropped_with_a_word() {
    let lab = Lab::trained(&[]);
    let long = &story(1)[..20];
    let call = |prompt: &str, more: &str| {
        let flags = ["--format", "json", "--prompt", prompt, "--generate", more];
        lab.softdict(&["attention", "run"]).args(&flags)
    };
    let done = call(long, "0").ok().says(&["the prompt has 20 tokens", "16"]);
    assert_eq!(done.json()["attention"], call(&long[4..], "0").ok().json()["attention"]);
    assert_eq!(call(long, "6").ok().says(&["the prompt has 20 tokens"]).json()["shape"][2], 16);
    call("t", "16").fails(2).says(&["--generate 16", "15"]);
    call("", "0").fails(2).says(&["--prompt"]);
}

#[test]
fn folders_of_transformers_show_the_attention_that_transformers_computed() {
    for family in ["gpt_neox_untied", "gpt_neox_parallel", "llama_gqa_untied", "llama_tied_f16", "gpt2"] {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(family);
        let lab = Lab::new();
        fs::create_dir(lab.path("run")).unwrap();
        for name in ["config.json", "model.safetensors"] {
            fs::copy(golden.join(name), lab.path("run").join(name)).unwrap();
        }
        // the fixtures have ids and no text: a letter stands for each id
        let vocabulary = lab.json("run/config.json")["vocab_size"].as_u64().unwrap() as u8;
        let letter = |id: u64| char::from(b'A' + u8::try_from(id).unwrap());
        lab.write("letters.txt", (0..vocabulary).map(|id| letter(id.into())).collect::<String>());
        let learn = ["tokenizer", "train", "letters.txt", "--kind", "char", "--out", "run/tokenizer.json"];
        lab.softdict(&learn).ok();

        let expected = fs::read(golden.join("expected.safetensors")).unwrap();
        let expected = SafeTensors::deserialize(&expected).unwrap();
        let floats = |name: &str| -> Vec<f64> {
            let data = expected.tensor(name).unwrap().data().chunks_exact(4);
            data.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()).into()).collect()
        };
        let shape = expected.tensor("attention").unwrap().shape().to_vec();
        let [layers, batch, heads, tokens] = [0, 1, 2, 3].map(|axis| shape[axis]);
        let ids = expected.tensor("token_ids").unwrap();
        let ids = ids.data().chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        let ids: Vec<u64> = ids.collect();
        let (weights, logits) = (floats("attention"), floats("logits"));
        for sequence in 0..batch {
            let ids = &ids[sequence * tokens..][..tokens];
            let prompt: String = ids.iter().copied().map(letter).collect();
            let found = patterns(&attention(&lab, &["--prompt", &prompt]));
            assert_eq!(found.len(), layers * heads);
            for (layer, head, rows) in found {
                let map = (layer as usize * batch + sequence) * heads + head as usize;
                let expected = &weights[map * tokens * tokens..][..tokens * tokens];
                // f32 in another order
                assert!(distance(&rows.concat(), expected) < 1e-5, "{family}: layer {layer}, head {head}");
            }
            // the likeliest next token is theirs, too
            let last = &logits[((sequence + 1) * tokens - 1) * vocabulary as usize..][..vocabulary.into()];
            let likeliest = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
            let greedy =
                ["sample", "run", "--temperature", "0", "--tokens", "1", "--json", "--prompt", &prompt];
            assert_eq!(lab.softdict(&greedy).ok().json()["token_ids"], serde_json::json!([likeliest]));
        }
    }
}

const SCORES: [&str; 7] = [
    "previous_token",
    "duplicate_token",
    "induction",
    "first_token",
    "current_token",
    "entropy",
    "mean_distance",
];

#[test]
fn the_scores_of_heads_are_those_of_their_patterns() {
    let lab = Lab::trained(&DEEP);
    let text = &story(1)[..24];
    lab.write("one.txt", text);
    let heads = lab.softdict(&["heads", "run", "one.txt", "--json"]).ok().json();
    let heads = heads.as_array().unwrap();
    let maps = patterns(&attention(&lab, &["--prompt", text]));
    assert_eq!((heads.len(), maps.len()), (4, 4));
    for (scores, (layer, head, rows)) in heads.iter().zip(&maps) {
        assert_eq!((scores["layer"].as_u64(), scores["head"].as_u64()), (Some(*layer), Some(*head)));
        let mean = |first: usize, value: &dyn Fn(usize) -> f64| {
            (first..rows.len()).map(value).sum::<f64>() / (rows.len() - first) as f64
        };
        let entropy = |i: usize| -> f64 { rows[i].iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum() };
        let away = |i: usize| -> f64 { (0..=i).map(|j| (i - j) as f64 * rows[i][j]).sum() };
        let expected = [
            ("previous_token", mean(1, &|i| rows[i][i - 1])),
            ("first_token", mean(1, &|i| rows[i][0])),
            ("current_token", mean(0, &|i| rows[i][i])),
            ("entropy", mean(1, &|i| entropy(i) / ((i + 1) as f64).ln())),
            ("mean_distance", mean(1, &away)),
        ];
        for (name, value) in expected {
            let found = scores[name].as_f64().unwrap();
            assert!((found - value).abs() < 1e-5, "layer {layer}, head {head}, {name}: {found}, {value}");
        }
        for name in &SCORES[..6] {
            assert!((0.0..=1.0).contains(&scores[name].as_f64().unwrap()), "{name}: {scores}");
        }
        assert!(scores["name"].is_string());
        // one window: what taking the head away costs is known, but not how surely
        assert!(scores["mean"]["increase"].is_number() && scores["mean"]["interval"].is_null(), "{scores}");
        assert!(scores["spread"]["previous_token"]["p50"].is_number());
        assert!(scores["untrained"]["induction"].is_number());
    }
}

#[test]
fn the_table_of_heads_states_what_each_number_ranges_over() {
    let lab = Lab::trained(&DEEP);
    let table = lab.softdict(&["heads", "run"]).ok();
    for range in
        ["i = 1..31", "i = 16..31", "n = 16 random tokens repeated", "0 to 1", "A[i, i-1]", "A[i, i-n+1]"]
    {
        assert!(table.text().contains(range), "{range} is not in\n{}", table.text());
    }
    assert!(table.text().contains("validation split"));
    assert_eq!(table.stdout, lab.softdict(&["heads", "run"]).ok().stdout);
    let rows = table.text().lines().filter(|line| line.trim_start().starts_with(['0', '1']));
    assert_eq!(rows.filter(|line| line.contains(" to ")).count(), 4);
    lab.write("a.txt", "t");
    lab.softdict(&["heads", "run", "a.txt"]).fails(1).says(&["a.txt"]);
    lab.write("foreign.txt", "the ß");
    lab.softdict(&["heads", "run", "foreign.txt"]).fails(1).says(&["foreign.txt", "'ß'"]);
}

#[test]
fn the_worked_example_is_reproduced_to_three_decimals() {
    let lab = Lab::new();
    let page = lab.softdict(&["explain", "attention"]).ok();
    let figures = ["0.569", "0.235", "0.134", "0.022", "0.013", "0.005", "25.72", "0.497", "0.182", "0.087"];
    for figure in figures {
        assert!(page.text().contains(figure), "{figure}");
    }
    assert!(page.text().contains("10 of 10 agree"));
    assert!(lab.softdict(&["explain"]).ok().text().contains("attention"));
    lab.softdict(&["explain", "magic"]).fails(2).says(&["magic", "attention"]);
}
