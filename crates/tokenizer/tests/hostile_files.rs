//! Files made to fell what reads them: each is refused in words, or used within reason.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::PROSE;
use common::foreign::{charsmap, file, kinds};
use serde_json::{Value, json};
use softdict_tokenizer::{Error, Result, Tokenizer};

fn load(file: &Value) -> Result<Tokenizer> {
    Tokenizer::from_bytes(serde_json::to_vec(file).unwrap(), "hostile.json")
}

/// What a file with these parts is refused with.
fn refusal(parts: &Value) -> String {
    let error = load(&file(parts, &[])).unwrap_err().to_string();
    assert!(error.starts_with("hostile.json: not a usable tokenizer.json: "), "{error}");
    error
}

/// A panic of the crate's; when this fails, see whether the guard is needed any more.
fn assert_panics<T>(outcome: Result<T>) {
    let error = outcome.err().unwrap();
    assert!(matches!(error, Error::TokenizerPanics { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("hostile.json: the tokenizer cannot be applied: "), "{text}");
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
}

#[test]
fn files_as_their_models_have_them_load_and_work() {
    for (file, kind) in kinds().iter().zip(["Unigram", "WordPiece", "BPE", "BPE", "WordLevel"]) {
        let tokenizer = load(file).unwrap();
        assert_eq!(tokenizer.kind().to_string(), kind);
        let ids = tokenizer.encode(PROSE).unwrap();
        assert!(ids.len() > 5);
        tokenizer.decode(&ids).unwrap();
    }
    let [t5, bert, llama2, ..] = kinds();
    // "c" becomes "it"
    let ids = |file: &Value, text: &str| load(file).unwrap().encode(text).unwrap();
    assert_eq!(ids(&t5, "c the"), [9, 6]);
    assert_eq!(ids(&bert, "IT's 12"), [3, 4, 5, 7, 6]);
    assert_eq!(ids(&llama2, "it é"), [9, 5, 3, 4]);
}

#[test]
fn the_largest_growth_of_known_files_is_allowed() {
    // ALBERT's steps, with a replacement of 33 bytes as sentencepiece's own charsmap has
    let steps = json!({
        "normalizer": {"type": "Sequence", "normalizers": [
            replace("``", "\""), replace("''", "\""), {"type": "NFKD"}, {"type": "StripAccents"},
            {"type": "Lowercase"}, {"type": "Precompiled", "precompiled_charsmap": charsmap(&"x".repeat(33))},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}]}});
    let [mut albert, ..] = kinds();
    for part in ["normalizer", "pre_tokenizer"] {
        albert[part] = steps[part].clone();
    }
    // windows are small here, and still give the ids of the whole
    let tokenizer = load(&albert).unwrap();
    let text = "the it b the a ".repeat(2000);
    let ids = tokenizer.encode(&text).unwrap();
    assert_eq!(ids, tokenizer.encode("the it b the a ").unwrap().repeat(2000));
}

#[test]
fn a_panic_while_loading_is_an_error() {
    let mut decoder = file(&json!({}), &[]);
    decoder["decoder"] =
        json!({"type": "Sequence", "decoders": [{"type": "Strip", "content": "a", "start": -1, "stop": 0}]});
    assert!(load(&decoder).is_err());
    assert!(
        refusal(&json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "//////////8="}}))
            .contains("its precompiled_charsmap ends inside its tree")
    );
    // not UTF-8 after the tree
    assert_panics(load(&file(
        &json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAD/"}}),
        &[],
    )));
}

#[test]
fn a_panic_while_encoding_is_an_error() {
    let precompiled = json!({"type": "Precompiled", "precompiled_charsmap": "CAAAAP////8AAAAAAAAAAA=="});
    let tokenizer = load(&file(&json!({"normalizer": precompiled}), &[])).unwrap();
    assert_panics(tokenizer.encode("a"));
    // in windows on many threads, too
    assert_panics(tokenizer.encode(&"a b ".repeat(100_000)));
    assert!(refusal(&json!({"pre_tokenizer": {"type": "FixedLength", "length": 0}})).contains("length 0"));
}

#[test]
fn a_panic_while_decoding_is_an_error() {
    let strip = json!({"type": "Strip", "content": "a", "start": 3, "stop": 3});
    let tokenizer = load(&file(&json!({"decoder": strip}), &[])).unwrap();
    assert_panics(tokenizer.decode(&[1]));
    assert_panics(tokenizer.token_text(1));
    assert_panics(tokenizer.stream().push(1));
    assert_eq!(tokenizer.decode(&[2]).unwrap(), "b");
}

#[test]
fn steps_that_multiply_a_text_are_refused() {
    let many = |step: &Value, count: usize| vec![step.clone(); count];
    let normalizers = |steps: Vec<Value>| json!({"normalizer": {"type": "Sequence", "normalizers": steps}});
    let splitters =
        |steps: Vec<Value>| json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}});
    let decoders = |steps: Vec<Value>| json!({"decoder": {"type": "Sequence", "decoders": steps}});
    let forty = replace("a", &"a".repeat(40));
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let long = json!({"type": "Precompiled", "precompiled_charsmap": charsmap(&"c".repeat(5000))});
    let nested = json!({"type": "Sequence", "normalizers": many(&forty, 2)});
    let model = json!({"model": {"type": "BPE", "byte_fallback": true, "merges": [], "unk_token": null,
        "continuing_subword_prefix": "x".repeat(400), "vocab": {"<0x78>": 0}},
        "normalizer": {"type": "Prepend", "prepend": "0123456789"}});
    for (part, parts) in [
        ("normalizer", normalizers(many(&forty, 8))),
        ("normalizer", normalizers(many(&nested, 4))),
        ("normalizer", normalizers(many(&json!({"type": "Prepend", "prepend": "aaaaaaaaa"}), 4))),
        ("normalizer", normalizers(many(&json!({"prepend": "aaaaaaaaa"}), 4))),
        ("normalizer", normalizers(many(&json!({"pattern": {"Regex": ""}, "content": "a"}), 8))),
        ("normalizer", normalizers(vec![long])),
        ("pre_tokenizer", splitters(many(&byte_level, 20))),
        ("model", model),
        ("decoder", decoders(many(&forty, 8))),
        ("decoder", decoders(many(&json!({"type": "BPEDecoder", "suffix": ""}), 20))),
    ] {
        let reason = refusal(&parts);
        assert!(reason.contains("bytes of each byte of text") && reason.contains(part), "{part}: {reason}");
    }
    assert!(refusal(&normalizers(vec![json!([{"String": "a"}, "aaaa"])])).contains("not an object"));
    assert!(refusal(&normalizers(many(&json!({"type": "StripAccents"}), 300))).contains("256 steps"));
    // a key that comes twice: the last counts, for the check and for the crate
    let once = serde_json::to_string(&file(&normalizers(many(&forty, 1)), &[])).unwrap();
    let bomb = normalizers(many(&forty, 8))["normalizer"].to_string();
    let twice = format!("{{\"normalizer\": {bomb}, {}", &once[1..]);
    let tokenizer = Tokenizer::from_bytes(twice, "twice.json").unwrap();
    assert_eq!(tokenizer.encode("a").unwrap().len(), 1);
}

#[test]
fn a_text_that_becomes_far_too_many_tokens_is_refused() {
    let grown = |times: usize| {
        let model = json!({"type": "BPE", "unk_token": null, "vocab": {"a": 0}, "merges": []});
        load(&file(&json!({"normalizer": replace("a", &"a".repeat(times)), "model": model}), &[])).unwrap()
    };
    assert_eq!(grown(60).encode(&"a".repeat(20_000)).unwrap(), vec![0; 1_200_000]);
    assert_eq!(grown(2000).encode("a").unwrap(), vec![0; 2000]);
    let error = grown(2000).encode(&"a".repeat(1000)).unwrap_err().to_string();
    assert!(error.starts_with("hostile.json: ") && error.contains("at most 64 of each"), "{error}");
}

#[test]
fn long_added_tokens_are_not_multiplied() {
    let prepend = json!({"type": "Prepend", "prepend": "a".repeat(2000)});
    let mut long = file(&json!({"normalizer": prepend}), &[(4, "x")]);
    long["added_tokens"][0]["content"] = "x".repeat(100_000).into();
    long["added_tokens"][0]["normalized"] = true.into();
    assert!(load(&long).unwrap_err().to_string().contains("its added tokens can have"));
}

#[test]
fn long_pieces_and_words_are_refused() {
    let vocab = json!([["<unk>", 0.0], ["a".repeat(1_000_000), -1.0]]);
    let reason = refusal(&json!({"model": {"type": "Unigram", "unk_id": 0, "vocab": vocab}}));
    assert!(reason.contains("its longest piece has 1000000 bytes"), "{reason}");
    let unknown = "u".repeat(100_000);
    let vocab: serde_json::Map<_, _> = [(unknown.clone(), 0.into())].into_iter().collect();
    let reason = refusal(&json!({"model": {"type": "WordLevel", "unk_token": unknown, "vocab": vocab}}));
    assert!(reason.contains("its unk_token has 100000 bytes"), "{reason}");
    let reason = refusal(&json!({"model": {"type": "WordPiece", "unk_token": "u", "vocab": {"u": 0},
        "continuing_subword_prefix": "#", "max_input_chars_per_word": 1_000_000}}));
    assert!(reason.contains("max_input_chars_per_word is 1000000"), "{reason}");
}

#[test]
fn regular_expressions_are_short_together() {
    let split = json!({"type": "Split", "pattern": {"Regex": r"\pL".repeat(1000)}, "behavior": "Isolated", "invert": false});
    let steps = json!({"type": "Sequence", "pretokenizers": vec![split; 3]});
    assert!(
        refusal(&json!({"pre_tokenizer": steps})).contains("regular expressions have more than 4096 bytes")
    );
}

#[test]
fn a_vocabulary_with_one_enormous_id_is_refused_and_one_with_gaps_is_not() {
    let own = |vocab: &Value| json!({"model": {"type": "WordLevel", "unk_token": "?", "vocab": vocab}});
    let reason = refusal(&own(&json!({"?": 0, "a": 16_777_215})));
    assert!(reason.contains("it has id 16777215 but only 2 tokens"), "{reason}");
    let gaps = load(&file(&own(&json!({"?": 0, "a": 50_000})), &[])).unwrap();
    assert_eq!((gaps.vocab_size(), gaps.encode("a").unwrap()), (50_001, vec![50_000]));

    // our own byte-level tables, and those for a byte-level decoder of the crate's
    let bpe = common::train(&softdict_tokenizer::Kind::Bpe, PROSE.repeat(2), Some(300));
    let mut bytes: Value = serde_json::from_slice(bpe.to_json()).unwrap();
    bytes["model"]["vocab"]["zz"] = 16_777_215.into();
    for normalizer in [Value::Null, json!({"type": "NFC"})] {
        bytes["normalizer"] = normalizer;
        assert!(load(&bytes).unwrap_err().to_string().contains("has id 16777215 but only 301 tokens"));
    }
}

#[test]
fn two_tokens_with_one_id_are_refused() {
    let reason = refusal(
        &json!({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 1}}}),
    );
    assert!(reason.contains("tokens \"a\" and \"b\" have the same id 1"), "{reason}");
}

#[test]
fn ids_are_the_same_every_time_whatever_the_dropout() {
    let text = "it ".repeat(200);
    for dropout in [json!(0.5), json!(1.0), json!(7)] {
        let [_, _, mut llama2, ..] = kinds();
        let expected = load(&llama2).unwrap().encode(&text).unwrap();
        llama2["model"]["dropout"] = dropout.clone();
        let tokenizer = load(&llama2).unwrap();
        assert_eq!(tokenizer.encode(&text).unwrap(), expected, "{dropout}");
        // the file itself stays as it was
        assert_eq!(
            serde_json::from_slice::<Value>(tokenizer.to_json()).unwrap()["model"]["dropout"],
            dropout
        );

        // ours, too
        let bpe = common::train(&softdict_tokenizer::Kind::Bpe, PROSE.repeat(2), Some(400));
        let mut bytes: Value = serde_json::from_slice(bpe.to_json()).unwrap();
        bytes["model"]["dropout"] = dropout;
        assert_eq!(load(&bytes).unwrap().encode(PROSE).unwrap(), bpe.encode(PROSE).unwrap());
    }
}
