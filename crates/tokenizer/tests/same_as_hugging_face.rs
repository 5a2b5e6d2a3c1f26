//! The `tokenizers` crate, reading the same `tokenizer.json`, gives the same ids and the same text.

mod common;

use common::{PROSE, all_kinds, long_text, their_ids, theirs};
use proptest::prelude::*;
use softdict_tokenizer::{DetectedKind, Kind, Tokenizer};

#[test]
fn all_kinds_encode_and_decode_as_the_crate_does() {
    for tokenizer in all_kinds(PROSE) {
        let ids = tokenizer.encode(PROSE).unwrap();
        assert_eq!(ids, their_ids(&tokenizer, PROSE), "{}", tokenizer.kind());
        assert_eq!(theirs(&tokenizer).decode(&ids, false).unwrap(), PROSE);
        assert_eq!(tokenizer.decode(&ids).unwrap(), PROSE);
        assert_eq!(theirs(&tokenizer).get_vocab_size(true), tokenizer.vocab_size());
    }
}

#[test]
fn text_of_many_chunks_gives_the_ids_of_the_whole() {
    // no line end anywhere, and more than two chunks of 256 KiB
    let content = long_text(700_000);
    let chars = common::train(&Kind::Char, content.as_str(), None);
    let bpe = common::train(&Kind::Bpe, content.as_str(), Some(500));
    for tokenizer in [chars, bpe] {
        let ids = tokenizer.encode(&content).unwrap();
        assert!(ids == their_ids(&tokenizer, &content), "{}", tokenizer.kind());
        assert_eq!(tokenizer.decode(&ids).unwrap(), content);
    }
}

/// Case 5: one splitting rule in training, in encoding and in the exported file.
#[test]
fn numbers_and_contractions_split_alike_everywhere() {
    let content = "12345 2024 007 it's\n\n  x";
    let bpe = common::train(&Kind::Bpe, content.repeat(20), Some(300));
    let reloaded = Tokenizer::from_bytes(bpe.to_json(), "reloaded").unwrap();
    let ids = bpe.encode(content).unwrap();
    assert_eq!(ids, their_ids(&bpe, content));
    assert_eq!(ids, reloaded.encode(content).unwrap());
    let texts: Vec<String> = ids.iter().map(|&id| bpe.token_text(id).unwrap()).collect();
    assert!(texts.contains(&" 2024".to_owned()) && texts.contains(&"'s".to_owned()), "{texts:?}");
}

/// Case 4: one line without any place to cut.
#[test]
fn a_line_of_two_megabytes_without_spaces_is_learned_and_encoded_exactly() {
    let mut state = 7u64;
    let content: String = (0..2_000_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ['A', 'C', 'G', 'T'][(state >> 62) as usize]
        })
        .collect();
    let mut merged = 0;
    let text = common::text(content.as_str());
    let bpe = Tokenizer::train(&Kind::Bpe, &text, Some(300), &mut |_, done, _| merged = done).unwrap();
    assert_eq!((bpe.vocab_size(), merged), (300, 44));
    assert!(bpe.notes().iter().any(|note| note.contains("2000000 bytes")), "{:?}", bpe.notes());
    let ids = bpe.encode(&content).unwrap();
    assert!(ids.len() < 1_000_000);
    assert!(ids == their_ids(&bpe, &content));
    assert!(bpe.decode(&ids).unwrap() == content);
}

/// Case 6: the text of a control token is text.
#[test]
fn control_tokens_never_come_from_text() {
    // as GPT-2 has it: the control token is in the vocabulary and among the added tokens
    let bpe = common::train(&Kind::Bpe, PROSE, Some(300));
    let size = bpe.vocab_size();
    let mut file: serde_json::Value = serde_json::from_slice(bpe.to_json()).unwrap();
    file["model"]["vocab"]["<|endoftext|>"] = size.into();
    file["added_tokens"] = serde_json::json!([{
        "id": size, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true
    }]);
    let gpt2 = Tokenizer::from_bytes(serde_json::to_vec(&file).unwrap(), "gpt2").unwrap();
    assert_eq!(gpt2.kind(), &DetectedKind::Bpe);
    assert_eq!(gpt2.vocab_size(), size + 1);
    assert_eq!(gpt2.token_text(size as u32).unwrap(), "<|endoftext|>");

    let content = "one<|endoftext|>two";
    let ids = gpt2.encode(content).unwrap();
    assert_eq!(ids, bpe.encode(content).unwrap());
    assert!(!ids.contains(&(size as u32)));
    assert_eq!(gpt2.decode(&ids).unwrap(), content);
    // the crate left to itself does give it: this is the trap
    assert!(their_ids(&gpt2, content).contains(&(size as u32)));

    let plain = common::all_kinds(content);
    for tokenizer in plain {
        assert_eq!(tokenizer.decode(&tokenizer.encode(content).unwrap()).unwrap(), content);
    }
}

#[test]
fn our_kinds_are_recognised_after_loading() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    for (tokenizer, kind) in
        all_kinds(PROSE).iter().zip([DetectedKind::Char, DetectedKind::Byte, DetectedKind::Bpe])
    {
        std::fs::write(&path, tokenizer.to_json()).unwrap();
        for place in [path.as_path(), folder.path()] {
            let loaded = Tokenizer::from_file(place).unwrap();
            assert_eq!(loaded.kind(), &kind);
            assert_eq!(loaded.to_json(), tokenizer.to_json());
            assert_eq!(loaded.vocab_size(), tokenizer.vocab_size());
            assert_eq!(loaded.encode(PROSE).unwrap(), tokenizer.encode(PROSE).unwrap());
        }
        let by_kind = common::train(&Kind::File(folder.path().to_path_buf()), "any text", None);
        assert_eq!(by_kind.sha256(), tokenizer.sha256());
    }
}

#[test]
fn unusable_files_are_named_with_what_is_wrong() {
    let merge = r#"{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]}}"#;
    for (json, part) in [
        ("", "EOF"),
        ("{\"model\": {\"type\":", "EOF"),
        ("[1, 2]", "no \"model\""),
        ("{\"model\": 3}", "no \"model\""),
        (merge, "needs the token \"ab\""),
        (r#"{"model":{"type":"BPE","vocab":{"a":4000000000},"merges":[]}}"#, "token \"a\" has id 4000000000"),
        (r#"{"model":{"type":"WordLevel","vocab":{},"unk_token":"?"}}"#, "vocabulary is empty"),
        (r#"{"model":{"type":"Riddle"}}"#, "not a usable tokenizer.json"),
    ] {
        let message = Tokenizer::from_bytes(json, "broken/tokenizer.json").unwrap_err().to_string();
        assert!(message.contains("broken/tokenizer.json") && message.contains(part), "{json}: {message}");
    }
    let message = Tokenizer::from_file("no/such/tokenizer.json").unwrap_err().to_string();
    assert!(message.contains("no/such/tokenizer.json: no such tokenizer file"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bpe_ids_equal_those_of_the_crate_for_any_text(content in any::<String>(), more in "[a-d ']{0,60}") {
        let content = content + &more;
        let bpe = common::train(&Kind::Bpe, PROSE.repeat(2) + "abcd abca dbca bcad abcd'd", Some(450));
        prop_assert_eq!(bpe.encode(&content).unwrap(), their_ids(&bpe, &content));
    }
}
