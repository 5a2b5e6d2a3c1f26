//! Files of other kinds, through the `tokenizers` crate.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{PROSE, long_text, streamed, streamed_bytes, text, their_ids, theirs};
use proptest::prelude::*;
use serde_json::json;
use softdict_tokenizer::{DetectedKind, Tokenizer, encode_to_file};

fn load(file: &serde_json::Value) -> Tokenizer {
    Tokenizer::from_bytes(serde_json::to_vec(file).unwrap(), "a foreign file").unwrap()
}

fn special(id: u32, content: &str) -> serde_json::Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": true})
}

/// As Llama 2 has it: words behind `▁`, a byte token for each byte, the first space dropped.
fn sentencepiece() -> Tokenizer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend("▁abcdefghijklmnopqrstuvwxyz,.é".chars().map(String::from));
    let mut merges = Vec::new();
    for pair in ["▁ t", "h e", "▁t he", "i n", "r e", "▁ a", "a n", "▁m i", "▁ m", "l l", "e a", "▁ w", "i d"]
    {
        let (left, right) = pair.split_once(' ').unwrap();
        for token in [left, right] {
            if !tokens.iter().any(|known| known == token) {
                tokens.push(token.to_owned());
            }
        }
        tokens.push([left, right].concat());
        merges.push(json!([left, right]));
    }
    let vocab: serde_json::Map<_, _> =
        tokens.iter().zip(0u32..).map(|(token, id)| (token.clone(), id.into())).collect();
    load(&json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": merges}
    }))
}

#[test]
fn nothing_is_added_cut_off_or_taken_for_a_control_token() {
    let tokenizer = sentencepiece();
    assert_eq!(tokenizer.kind(), &DetectedKind::Other("BPE".to_owned()));
    for content in ["the mill in the wide area, 🙂 <s>ready</s>", PROSE] {
        let ids = tokenizer.encode(content).unwrap();
        assert!(!ids.iter().any(|id| (0..3).contains(id)), "{ids:?}");
        assert!(ids.len() > 4);
        assert_eq!(tokenizer.decode(&ids).unwrap(), content);
        assert_eq!(streamed(&tokenizer, &ids), content);
    }
}

#[test]
fn labels_keep_the_space_that_a_word_brings_along() {
    let tokenizer = sentencepiece();
    let ids = tokenizer.encode("the the").unwrap();
    let labels: Vec<String> = ids.iter().map(|&id| tokenizer.token_text(id).unwrap()).collect();
    assert_eq!(labels, [" the", " the"]);
    assert_eq!(tokenizer.decode(&ids).unwrap(), "the the");
}

#[test]
fn long_text_gives_the_ids_of_the_whole() {
    // three windows of 128 KiB and a bit
    let content = long_text(420_000);
    let tokenizer = sentencepiece();
    let mut whole = theirs(&tokenizer);
    whole.with_truncation(None).unwrap();
    let whole = whole.encode_fast(content.as_str(), false).unwrap().get_ids().to_vec();
    assert!(tokenizer.encode(&content).unwrap() == whole);
    assert_eq!(tokenizer.decode(&whole).unwrap(), content);

    let folder = tempfile::tempdir().unwrap();
    let dataset =
        encode_to_file(&tokenizer, &text(content.as_str()), folder.path(), 0.1, &mut |_, _| ()).unwrap();
    assert_eq!(dataset.record.train.bytes + dataset.record.val.bytes, content.len());
    let mut one = [0];
    dataset.train.copy_to(100_000..100_001, &mut one).unwrap();
    assert_eq!(one, whole[100_000..=100_000]);
}

#[test]
fn a_run_on_which_windows_never_agree_is_still_encoded_whole() {
    let content = "a".repeat(300_000);
    let tokenizer = sentencepiece();
    let ids = tokenizer.encode(&content).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap().replace(' ', ""), content);
}

#[test]
fn a_model_that_knows_the_text_of_a_control_token_does_not_give_it() {
    // sentencepiece's Unigram lists its control tokens as pieces, with the best score of all
    let pieces: Vec<_> = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
        .into_iter()
        .map(|(piece, score)| json!([piece, score]))
        .chain("▁<>/sabc".chars().map(|piece| json!([piece.to_string(), -5.0])))
        .collect();
    let tokenizer = load(&json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true},
        "post_processor": null,
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": false}
    }));
    assert_eq!(tokenizer.kind().to_string(), "Unigram");
    let content = "a<s>b </s>c";
    assert!(their_ids(&tokenizer, content).contains(&1), "the crate gives it: this is the trap");
    let ids = tokenizer.encode(content).unwrap();
    assert!(!ids.contains(&1) && !ids.contains(&2), "{ids:?}");
    assert_eq!(tokenizer.decode(&ids).unwrap(), content);
}

#[test]
fn a_byte_level_file_with_another_splitting_rule_is_decoded_without_loss() {
    // as Llama 3 has it: a rule of its own, then byte-level without its regex
    let bpe = common::train(&softdict_tokenizer::Kind::Bpe, PROSE.repeat(2), Some(400));
    let mut file: serde_json::Value = serde_json::from_slice(bpe.to_json()).unwrap();
    file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|\s*[\r\n]+|\s?\p{L}+|."}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]});
    let tokenizer = load(&file);
    assert_eq!(tokenizer.kind(), &DetectedKind::Other("BPE".to_owned()));
    let ids = tokenizer.encode(PROSE).unwrap();
    assert_eq!(ids, their_ids(&tokenizer, PROSE));
    assert_eq!(tokenizer.decode(&ids).unwrap(), PROSE);
    for stop in 0..=ids.len() {
        assert_eq!(streamed(&tokenizer, &ids[..stop]), tokenizer.decode(&ids[..stop]).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_stream_equals_the_decode_for_any_text(content in "[a-z ,.éü🙂漢]{0,40}") {
        let tokenizer = sentencepiece();
        let ids = tokenizer.encode(&content).unwrap();
        prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), &content);
        for stop in 0..=ids.len() {
            prop_assert_eq!(streamed(&tokenizer, &ids[..stop]), tokenizer.decode(&ids[..stop]).unwrap());
            let bytes = streamed_bytes(&tokenizer, &ids[..stop]);
            prop_assert_eq!(bytes, tokenizer.decode_bytes(&ids[..stop]).unwrap());
        }
    }
}
