//! `tokenizer` and `corpus`: text to ids and back without loss, and texts that are the same every time.

use crate::support::{BINARY, Lab, story};
use std::collections::BTreeSet;

const ODD: &str = "héllo\r\nwo\0rld\n\n  12345 2024 007 it's \u{1f642}\u{200d}漢 <|endoftext|> x";

/// Learns a tokenizer of `text.txt` into `t.json`.
fn learned(lab: &Lab, kind: &str) {
    lab.softdict(&["tokenizer", "train", "text.txt", "--kind", kind, "--out", "t.json"]).ok();
}

/// The ids of a text that comes on standard input.
fn ids(lab: &Lab, tokenizer: &str, text: &[u8]) -> Vec<u32> {
    let done = lab.softdict(&["tokenizer", "encode", tokenizer]).input(text).ok();
    done.text().split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn decoded(lab: &Lab, tokenizer: &str, ids: &[u32]) -> Vec<u8> {
    let ids = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    lab.softdict(&["tokenizer", "decode", tokenizer]).input(ids).ok().stdout
}

#[test]
fn decoding_what_was_encoded_gives_the_same_bytes() {
    for kind in ["char", "byte", "bpe"] {
        let lab = Lab::with(story(30) + ODD);
        learned(&lab, kind);
        for text in [ODD, &story(2), "\n", "\0\r\n", " "] {
            let found = ids(&lab, "t.json", text.as_bytes());
            assert_eq!(decoded(&lab, "t.json", &found), text.as_bytes(), "{kind}: {text:?}");
        }
        // as an argument, too
        let argument = lab.softdict(&["tokenizer", "encode", "t.json", "it's x"]).ok();
        let words: Vec<u32> = argument.text().split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(words, ids(&lab, "t.json", b"it's x"), "{kind}");
    }
}

#[test]
fn a_byte_order_mark_is_dropped_with_a_word_and_the_rest_stays() {
    let rest = "h\u{e9}llo\r\nwo\0rld\r\n".repeat(20);
    let lab = Lab::with(format!("\u{feff}{rest}"));
    let done = lab.train("run", &["train.steps=1", "train.warmup_steps=0"]).ok();
    done.says(&["text.txt", "byte order mark"]);
    let shown = lab.softdict(&["tokenizer", "show", "run"]).ok();
    // h é l o w r d, carriage return, line feed, NUL: ten entries, no U+FEFF
    assert_eq!(shown.text().lines().count(), 10, "{}", shown.text());
    lab.softdict(&["tokenizer", "encode", "run", "\u{feff}"]).fails(1).says(&["U+FEFF"]);
    assert_eq!(decoded(&lab, "run", &ids(&lab, "run", rest.as_bytes())), rest.as_bytes());
    let record = lab.json("run/data/data.json");
    let tokens = ["train", "val"].map(|part| record[part]["tokens"].as_u64().unwrap()).iter().sum::<u64>();
    assert_eq!(tokens as usize, rest.chars().count());
}

#[test]
fn control_tokens_in_a_text_are_ordinary_characters() {
    let text = "one <|endoftext|> two <|endoftext|>\n".repeat(30);
    for kind in ["char", "byte", "bpe"] {
        let lab = Lab::with(&text);
        lab.train("run", &[&format!("tokenizer.kind={kind}")]).ok();
        let found = ids(&lab, "run", b"<|endoftext|>");
        if kind != "bpe" {
            assert_eq!(found.len(), "<|endoftext|>".len(), "{kind}");
        }
        assert_eq!(decoded(&lab, "run", &found), b"<|endoftext|>");
        let json = lab.json("run/last/tokenizer.json");
        assert!(json["added_tokens"].as_array().is_none_or(Vec::is_empty), "{kind}");
        let sample = ["sample", "run", "--prompt", "<|endoftext|>", "--tokens", "5", "--json"];
        assert_eq!(lab.softdict(&sample).ok().json()["prompt"], "<|endoftext|>");
    }
}

#[test]
fn prompts_are_split_as_the_training_text_was() {
    for kind in ["char", "bpe"] {
        let lab = Lab::with((story(20) + ODD).repeat(3));
        lab.train("run", &[&format!("tokenizer.kind={kind}"), "data.val_fraction=0"]).ok();
        // the text as the training saw it, from the file of ids
        let data = lab.read("run/data/train.bin");
        let whole = ids(&lab, "run", &lab.read("text.txt"));
        let bytes: Vec<u8> = whole.iter().flat_map(|id| u16::try_from(*id).unwrap().to_le_bytes()).collect();
        assert!(data.ends_with(&bytes), "{kind}: {} bytes of ids in a file of {}", bytes.len(), data.len());
        // and as attention and the saved file see it
        let ids_of = |tokenizer: &str| ids(&lab, tokenizer, b"2024 it's\n\n  x");
        let json = ["attention", "run", "--format", "json", "--prompt", "2024 it's\n\n  x"];
        let shown = lab.softdict(&json).ok().json()["token_ids"].to_string();
        assert_eq!(shown, serde_json::to_string(&ids_of("run")).unwrap());
        // sample tells how many there are when they are more than it sees
        let long = "12345 2024 007 it's\n\n  x".repeat(4);
        let count = ids(&lab, "run", long.as_bytes()).len();
        let sample = lab.softdict(&["sample", "run", "--tokens", "1", "--prompt", &long]).ok();
        sample.says(&[&format!("the prompt has {count} tokens")]);
        assert_eq!(ids_of("run/last/tokenizer.json"), ids_of("run"));
        // a trained tokenizer is the one of a run on the same text
        lab.softdict(&["tokenizer", "train", "text.txt", "--kind", kind, "--out", "t.json"]).ok();
        assert_eq!(lab.read("t.json"), lab.read("run/last/tokenizer.json"));
    }
}

#[test]
fn seventy_thousand_characters_do_not_wrap() {
    let all: String = (0x20..).filter_map(char::from_u32).take(70_000).collect();
    let lab = Lab::with(&all);
    learned(&lab, "char");
    assert_eq!(lab.softdict(&["tokenizer", "show", "t.json"]).ok().text().lines().count(), 70_000);
    let found = ids(&lab, "t.json", all.as_bytes());
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 70_000);
    assert_eq!(found.iter().max(), Some(&69_999));
    assert!(decoded(&lab, "t.json", &found) == all.as_bytes());

    // on the disk as well: four bytes for each
    let sets =
        ["tokenizer.kind=t.json", "train.steps=1", "train.warmup_steps=0", "train.batch=1", "model.width=4"];
    lab.train("run", &[&sets[..], &["data.val_fraction=0", "model.heads=1"]].concat()).ok();
    assert!(lab.read("run/data/train.bin").len() >= 4 * 70_000);
    let last = all.chars().last().unwrap().to_string();
    lab.softdict(&["sample", "run", "--tokens", "2", "--prompt", &last]).ok();
}

#[test]
fn a_run_can_take_the_tokenizer_of_a_file_or_of_another_run() {
    let lab = Lab::trained(&["tokenizer.kind=bpe", "tokenizer.vocab_size=300"]);
    lab.write("other.txt", story(30).replace("river", "valley"));
    for (run, kind) in [("a", "run/last"), ("b", "run/last/tokenizer.json")] {
        let kind = format!("tokenizer.kind={kind}");
        let train = lab.softdict(&["train", "other.txt", "--out", run]).set(&crate::support::TINY);
        train.set(&[&kind]).ok();
        assert_eq!(lab.read(&format!("{run}/last/tokenizer.json")), lab.read("run/last/tokenizer.json"));
    }
    lab.write("broken.json", "{}");
    lab.train("c", &["tokenizer.kind=broken.json"]).fails(1).says(&["broken.json"]);
    lab.train("c", &["tokenizer.kind=run/last", "tokenizer.vocab_size=400"])
        .fails(1)
        .says(&["vocab_size = 400"]);
    assert!(!lab.has("c"));
}

#[test]
fn every_entry_is_shown_on_one_line_without_control_characters() {
    let lab = Lab::with(story(20) + "\u{1b}[31m\r\u{9b}\t");
    for kind in ["char", "byte", "bpe"] {
        learned(&lab, kind);
        let shown = lab.softdict(&["tokenizer", "show", "t.json"]).ok();
        for (id, line) in shown.text().lines().enumerate() {
            let (number, token) = line.split_once('\t').unwrap();
            assert_eq!(number, id.to_string());
            assert!(!token.is_empty() && !token.contains(char::is_control), "{kind}: {line:?}");
        }
    }
}

#[test]
fn ids_and_texts_that_are_none_are_named() {
    let lab = Lab::new();
    learned(&lab, "char");
    lab.softdict(&["tokenizer", "decode", "t.json", "99999"]).fails(1).says(&["99999"]);
    lab.softdict(&["tokenizer", "decode", "t.json"]).input("1 two").fails(1).says(&["\"two\""]);
    lab.softdict(&["tokenizer", "encode", "t.json", "the Z"]).fails(1).says(&["'Z'", "position 5"]);
    lab.softdict(&["tokenizer", "encode", "t.json"]).input(*b"a\xff").fails(1).says(&["offset 1"]);
    lab.softdict(&["tokenizer", "show", "none.json"]).fails(1).says(&["none.json"]);
    lab.write("t.json", "{\"model\": 5}");
    lab.softdict(&["tokenizer", "show", "t.json"]).fails(1).says(&["t.json"]);
    let words = ["tokenizer", "train", "text.txt", "--kind", "words", "--out", "w.json"];
    lab.softdict(&words).fails(2).says(&["--kind words", "char"]);
}

#[test]
fn one_giant_line_is_learned_and_named() {
    // what a shuffled deck of four letters gives, from a fixed rule
    let mut state = 1u32;
    let letters = (0..300_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"ACGT"[(state >> 30) as usize]
    });
    let lab = Lab::with(letters.collect::<Vec<u8>>());
    // half a gigabyte of addresses, most of which the threads' stacks take
    let train = "tokenizer train text.txt --kind bpe --vocab-size 300 --out t.json";
    let mut shell = assert_cmd::Command::new("sh");
    let limited = format!("ulimit -v 524288; exec \"$0\" {train}");
    let output = shell.args(["-c", &limited, BINARY]).current_dir(lab.path("")).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("text.txt") && stderr.contains("300000 bytes"), "{stderr}");
    assert!(stderr.contains("learning merges"), "how far it is: {stderr}");
    assert_eq!(lab.softdict(&["tokenizer", "show", "t.json"]).ok().text().lines().count(), 300);
}

#[test]
fn the_corpus_is_the_same_every_time_and_longer_is_more_of_the_same() {
    let lab = Lab::new();
    let corpus = |args: &[&str]| lab.softdict(&[&["corpus"], args].concat()).ok().text().to_owned();
    for kind in ["pronouns", "referents", "dictionaries", "tales"] {
        let text = corpus(&[kind, "--lines", "40"]);
        assert_eq!(text, corpus(&[kind, "--lines", "40", "--seed", "0"]));
        assert_eq!((text.lines().count(), text.is_ascii()), (40, true));
        assert!(corpus(&[kind, "--lines", "90"]).starts_with(&text));
        assert_ne!(text, corpus(&[kind, "--lines", "40", "--seed", "1"]));
        let all_begin = |mark: &str| text.lines().all(|line| line.starts_with(mark));
        assert_eq!(
            [all_begin("story "), all_begin("table ")],
            [["pronouns", "referents"].contains(&kind), kind == "dictionaries"]
        );
    }
    assert_eq!(corpus(&["--lines", "40"]), corpus(&["tales", "--lines", "40"]));
    assert_eq!(corpus(&[]).lines().count(), 1000);
    assert_eq!(corpus(&["--lines", "0"]), "");
    lab.softdict(&["corpus", "fables"]).fails(2).says(&["fables"]);
}
