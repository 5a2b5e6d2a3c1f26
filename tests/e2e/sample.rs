//! `sample`: prompts, filters, seeds, and text that comes out whole.

use crate::support::{Done, Lab};
use serde_json::Value;

/// A run on a text of ten different characters.
fn ten_characters() -> Lab {
    let lab = Lab::with("abcdefghi\n".repeat(60));
    lab.train("run", &["train.steps=5"]).ok();
    lab
}

fn sample(lab: &Lab, flags: &[&str]) -> Done {
    lab.softdict(&[&["sample", "run"], flags].concat()).ok()
}

fn ids(line: &Value) -> Vec<u64> {
    line["token_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn an_unknown_character_is_named_with_its_place_and_no_prompt_works() {
    let lab = Lab::with("ababab\n".repeat(20));
    lab.train("run", &["train.steps=2"]).ok();
    let unknown = lab.softdict(&["sample", "run", "--prompt", "abZ"]).fails(1);
    unknown.says(&["'Z'", "U+005A", "position 3", "softdict tokenizer show"]);

    // neither a space nor a line end to start from
    let lab = Lab::with("Helloworld!".repeat(20));
    lab.train("run", &["train.steps=2"]).ok();
    let done = sample(&lab, &["--tokens", "20"]);
    assert_eq!(done.text().chars().filter(|c| *c != '\n').count(), 21, "{}", done.text());
}

#[test]
fn a_top_k_of_none_all_or_more_filters_nothing_and_of_one_is_greedy() {
    let lab = ten_characters();
    let at = |temperature: &str, flags: &[&str]| {
        let always = ["--json", "--seed", "4", "--tokens", "60", "--temperature", temperature];
        ids(&sample(&lab, &[&always[..], flags].concat()).json())
    };
    let drawn = |flags: &[&str]| at("1", flags);
    let free = drawn(&["--top-k", "0"]);
    assert_eq!(free, drawn(&["--top-k", "10"]));
    assert_eq!(free, drawn(&["--top-k", "999"]));
    let greedy = drawn(&["--top-k", "1"]);
    assert_eq!(greedy, at("0", &[]));
    assert_ne!(free, greedy);
    // filters that keep everything keep the draw
    assert_eq!(free, drawn(&["--top-k", "0", "--top-p", "1", "--min-p", "0", "--repetition-penalty", "1"]));
    assert_ne!(greedy, drawn(&["--top-k", "1", "--repetition-penalty", "5"]));
}

#[test]
fn a_seed_repeats_the_text_and_an_absent_one_is_told() {
    let lab = ten_characters();
    let text = |seed: &str| sample(&lab, &["--temperature", "1", "--tokens", "50", "--seed", seed]).stdout;
    assert_eq!(text("1"), text("1"));
    assert!(text("1") != text("2") || text("2") != text("3"));

    let free = sample(&lab, &["--temperature", "1", "--tokens", "50"]);
    let line = free.stderr.lines().find(|line| line.starts_with("seed: ")).unwrap();
    let seed = line.split_whitespace().nth(1).unwrap();
    assert_eq!(text(seed), free.stdout);
    let line = sample(&lab, &["--json", "--tokens", "50", "--seed", "9", "--num-samples", "3"]);
    let lines: Vec<Value> = line.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["seed"] == 9));
    assert!(ids(&lines[0]) != ids(&lines[1]) || ids(&lines[1]) != ids(&lines[2]));
}

#[test]
fn what_is_longer_than_the_context_is_cropped_with_a_word_and_goes_on() {
    let lab = Lab::trained(&["model.context=32"]);
    let long: String = lab.read_text("text.txt").chars().take(100).collect();
    let continued = |prompt: &str| {
        let done = sample(&lab, &["--json", "--seed", "1", "--tokens", "200", "--prompt", prompt]);
        let line = done.json();
        assert_eq!((ids(&line).len(), &line["prompt"]), (200, &prompt.into()));
        let cropped = done.stderr.lines().filter(|line| line.contains("the prompt has")).count();
        (ids(&line), cropped)
    };
    for (tokens, notices) in [(31, 0), (32, 0), (33, 1), (100, 1)] {
        assert_eq!(continued(&long[..tokens]).1, notices, "{tokens}");
    }
    // only the last 32 count
    assert_eq!(continued(&long).0, continued(&long[68..]).0);
    assert_ne!(continued(&long).0, continued(&long[..32]).0);
}

#[test]
fn the_cache_changes_nothing_before_and_after_the_context_is_full() {
    let lab = Lab::trained(&["train.steps=60", "train.learning_rate=1e-2"]);
    let drawn = |flags: &[&str]| {
        ids(&sample(
            &lab,
            &[&["--json", "--tokens", "60", "--prompt", "the cat", "--seed", "2"], flags].concat(),
        )
        .json())
    };
    assert_eq!(drawn(&[]), drawn(&["--no-cache"]));
    assert_eq!(drawn(&["--temperature", "0"]), drawn(&["--temperature", "0", "--no-cache"]));
}

#[test]
fn characters_of_several_tokens_come_out_whole() {
    let lab = Lab::with("🙂🙃é漢".repeat(80));
    for kind in [&["tokenizer.kind=byte"][..], &["tokenizer.kind=bpe", "tokenizer.vocab_size=260"]] {
        let learned = ["model.width=32", "train.learning_rate=1e-2", "train.steps=150"];
        lab.train("run", &[&learned[..], kind].concat()).args(&["--overwrite"]).ok();
        let mut cut = 0;
        for tokens in 0..=12 {
            let flags = ["--prompt", "🙂", "--temperature", "0", "--tokens", &tokens.to_string()];
            let shown = sample(&lab, &flags);
            let line = sample(&lab, &[&flags[..], &["--json"]].concat()).json();
            assert_eq!(ids(&line).len(), tokens);
            let all = ids(&line).iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            let bytes = lab.softdict(&["tokenizer", "decode", "run"]).input(all).ok().stdout;
            // it learned to go on as the text does, so that only the end can be half a character
            assert!("🙃é漢🙂🙃é漢🙂🙃é漢🙂".as_bytes().starts_with(&bytes), "{kind:?}: {bytes:?}");
            let whole = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            cut += usize::from(whole.len() < bytes.len());
            let text = line["text"].as_str().unwrap();
            let rest = text.strip_prefix(whole).unwrap_or_else(|| panic!("{text:?} is not {whole:?}"));
            assert!(rest.is_empty() || rest == "\u{fffd}" && whole.len() < bytes.len(), "{text:?}");
            assert_eq!(shown.text(), format!("🙂{text}\n"));
        }
        assert!(cut > 0, "{kind:?}: no sample ended within a character");
    }
}

#[test]
fn samples_are_json_with_the_documented_names_or_plain_text_alone() {
    let lab = ten_characters();
    let flags = ["--prompt", "abc", "--tokens", "8", "--seed", "5", "--num-samples", "2"];
    let json = sample(&lab, &[&flags[..], &["--json"]].concat());
    let lines: Vec<Value> = json.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    let mut plain = Vec::new();
    for line in &lines {
        let names: Vec<&String> = line.as_object().unwrap().keys().collect();
        for name in ["prompt", "text", "token_ids", "seed", "stopped_by"] {
            assert!(names.contains(&&name.to_owned()), "{names:?}");
        }
        assert_eq!((names.len(), &line["stopped_by"]), (5, &"tokens".into()));
        let decoded = lab.softdict(&["tokenizer", "decode", "run"]).args(
            &ids(line)
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        );
        assert_eq!(line["text"], decoded.ok().text());
        plain.push(format!("abc{}", line["text"].as_str().unwrap()));
    }
    let end = |text: &String| if text.ends_with('\n') { text.clone() } else { format!("{text}\n") };
    assert_eq!(sample(&lab, &flags).text(), format!("{}---\n{}", end(&plain[0]), end(&plain[1])));
}

#[test]
fn a_stop_text_ends_the_sample_before_it() {
    let lab = Lab::with("abcdefghi\n".repeat(60));
    lab.train("run", &["train.steps=150", "train.learning_rate=1e-2", "model.width=32"]).ok();
    let flags = ["--json", "--prompt", "abc", "--temperature", "0", "--tokens", "30"];
    let whole = sample(&lab, &flags).json();
    assert!(whole["text"].as_str().unwrap().starts_with("defghi\nabc"), "{whole}");
    let stopped = sample(&lab, &[&flags[..], &["--stop", "xyz", "--stop", "gh"]].concat()).json();
    assert_eq!((&stopped["text"], &stopped["stopped_by"]), (&"def".into(), &"gh".into()));
}

#[test]
fn a_prompt_comes_from_a_file_or_standard_input_or_line_by_line() {
    let lab = ten_characters();
    lab.write("prompt.txt", "\u{feff}abcab");
    let flags = ["--temperature", "0", "--tokens", "5"];
    let given = sample(&lab, &[&flags[..], &["--prompt", "abcab"]].concat()).stdout;
    assert_eq!(given, sample(&lab, &[&flags[..], &["--prompt-file", "prompt.txt"]].concat()).stdout);
    let piped = lab.softdict(&["sample", "run", "--prompt-file", "-"]).args(&flags).input("abcab").ok();
    assert_eq!(given, piped.stdout);
    let missing = lab.softdict(&["sample", "run", "--prompt-file", "none.txt"]).fails(1);
    missing.says(&["--prompt-file none.txt"]);

    // what cannot be read is said, and the conversation goes on
    let talk =
        lab.softdict(&["sample", "run", "--interactive"]).args(&flags).input("abcab\r\nZ\nabcab\n").ok();
    assert_eq!(talk.text(), String::from_utf8(given).unwrap().repeat(2));
    assert!(talk.stderr.contains("'Z'"));
}
