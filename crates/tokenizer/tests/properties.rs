//! What holds for every text.

mod common;

use common::{PROSE, all_kinds, long_text, streamed, streamed_bytes, text, train};
use proptest::prelude::*;
use softdict_tokenizer::{Kind, Tokenizer};

fn bpe() -> Tokenizer {
    train(&Kind::Bpe, PROSE.repeat(3), Some(400))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn decoding_gives_back_what_was_encoded(content in any::<String>()) {
        let mut tokenizers = vec![train(&Kind::Byte, "x", None), bpe()];
        if !content.is_empty() && !content.starts_with('\u{FEFF}') {
            tokenizers.push(train(&Kind::Char, content.as_str(), None));
        }
        for tokenizer in tokenizers {
            let ids = tokenizer.encode(&content).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), &content);
            prop_assert_eq!(tokenizer.decode_bytes(&ids).unwrap(), content.as_bytes());
            prop_assert_eq!(streamed(&tokenizer, &ids), content.as_str());
            prop_assert_eq!(streamed_bytes(&tokenizer, &ids), content.as_bytes());
            let tokens: Vec<Vec<u8>> = ids.iter().map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
            prop_assert_eq!(tokens.concat(), content.as_bytes());
        }
    }

    #[test]
    fn a_byte_tokenizer_gives_back_any_bytes(content in prop::collection::vec(any::<u8>(), 0..200)) {
        let tokenizer = train(&Kind::Byte, "x", None);
        let ids = tokenizer.encode_bytes(&content).unwrap();
        prop_assert!(ids.iter().zip(&content).all(|(&id, &byte)| id == u32::from(byte)));
        prop_assert_eq!(tokenizer.decode_bytes(&ids).unwrap(), content.as_slice());
        prop_assert_eq!(tokenizer.decode(&ids).unwrap(), String::from_utf8_lossy(&content));
    }

    /// Case 12: whatever the ids and wherever they stop, the stream is the decode of all of them, every
    /// part of it is text, and what came out never has to be taken back.
    #[test]
    fn the_stream_equals_the_decode_at_every_stop(ids in prop::collection::vec(0u32..400, 0..60)) {
        let tokenizer = bpe();
        let ids: Vec<u32> = ids.into_iter().filter(|&id| (id as usize) < tokenizer.vocab_size()).collect();
        for stop in 0..=ids.len() {
            prop_assert_eq!(streamed(&tokenizer, &ids[..stop]), tokenizer.decode(&ids[..stop]).unwrap());
        }
    }
}

/// Case 12 with its own text: every stop inside a character shows at most one U+FFFD, at the very end.
#[test]
fn a_stream_that_stops_inside_a_character_ends_in_one_replacement() {
    let content = "🙂🙃é漢 🙂🙃é漢";
    for tokenizer in [train(&Kind::Byte, "x", None), train(&Kind::Bpe, content, Some(260)), bpe()] {
        let ids = tokenizer.encode(content).unwrap();
        let mut seen_partial = false;
        for stop in 0..=ids.len() {
            let shown = streamed(&tokenizer, &ids[..stop]);
            assert_eq!(shown, tokenizer.decode(&ids[..stop]).unwrap());
            let whole = shown.trim_end_matches('\u{FFFD}');
            assert!(content.starts_with(whole));
            assert!(shown.len() - whole.len() <= '\u{FFFD}'.len_utf8(), "{shown}");
            seen_partial |= shown != whole;
        }
        assert!(seen_partial, "no stop was inside a character: the test shows nothing");
    }
}

#[test]
fn training_gives_the_same_bytes_each_time_and_on_any_number_of_threads() {
    let content = long_text(600_000) + PROSE;
    for kind in [Kind::Char, Kind::Byte, Kind::Bpe, Kind::Auto] {
        let on_threads = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let tokenizer = train(&kind, content.as_str(), None);
                let ids = tokenizer.encode(&content).unwrap();
                (tokenizer.to_json().to_vec(), ids, tokenizer.notes().to_vec())
            })
        };
        let first = on_threads(1);
        for threads in [1, 2, 3] {
            assert!(on_threads(threads) == first, "{kind} on {threads} threads");
        }
    }
}

/// Case 7: ids do not wrap at 65,536.
#[test]
fn seventy_thousand_distinct_characters_keep_their_ids() {
    let content: String = ('\u{1000}'..).take(70_000).collect();
    let tokenizer = train(&Kind::Char, content.as_str(), None);
    assert_eq!(tokenizer.vocab_size(), 70_000);
    let ids = tokenizer.encode(&content).unwrap();
    assert!(ids.iter().enumerate().all(|(place, &id)| place == id as usize));
    assert!(tokenizer.decode(&ids).unwrap() == content);
    let reloaded = Tokenizer::from_bytes(tokenizer.to_json(), "reloaded").unwrap();
    assert!(reloaded.encode(&content).unwrap() == ids);
}

/// Case 3 (c): the byte order mark goes, everything else stays.
#[test]
fn carriage_returns_and_nul_have_entries_of_their_own() {
    let source = text("\u{FEFF}héllo\r\nwo\0rld");
    let tokenizer = Tokenizer::train(&Kind::Char, &source, None, &mut |_, _, _| ()).unwrap();
    let vocabulary: Vec<String> =
        (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.token_text(id).unwrap()).collect();
    assert_eq!(vocabulary, ["\0", "\n", "\r", "d", "h", "l", "o", "r", "w", "é"]);
    for tokenizer in all_kinds("héllo\r\nwo\0rld") {
        let ids = tokenizer.encode_bytes(source.bytes()).unwrap();
        assert_eq!(tokenizer.decode_bytes(&ids).unwrap(), source.bytes());
    }
}

/// Case 8: an unknown character is named in full.
#[test]
fn an_unknown_character_is_named_with_code_point_and_position() {
    let tokenizer = train(&Kind::Char, "ababab\n", None);
    let message = tokenizer.encode("abZ").unwrap_err().to_string();
    for part in ["'Z'", "U+005A", "position 3", "softdict tokenizer show CKPT"] {
        assert!(message.contains(part), "{message}");
    }
    // far into a text of many chunks, positions count characters and not bytes
    let known = "éa".repeat(400_000);
    let tokenizer = train(&Kind::Char, known.as_str(), None);
    let message = tokenizer.encode(&(known + "\u{1F642}")).unwrap_err().to_string();
    assert!(message.contains("position 800001") && message.contains("U+1F642"), "{message}");
}

#[test]
fn ids_that_no_token_has_are_errors_with_both_numbers() {
    for tokenizer in all_kinds(PROSE) {
        let id = tokenizer.vocab_size() as u32;
        let message = tokenizer.decode(&[0, id]).unwrap_err().to_string();
        assert!(message.contains(&format!("token id {id}")), "{message}");
        assert!(tokenizer.stream().push(id).is_err());
        assert!(tokenizer.stream().push_bytes(id, &mut Vec::new()).is_err());
        assert!(tokenizer.token_text(id).is_err());
    }
}

/// Case 3 (a), (b): what is not UTF-8 is refused before anything is made, except as bytes.
#[test]
fn only_bytes_are_learned_from_text_that_is_not_utf8() {
    let utf16: Vec<u8> = "a little text".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (content, part) in [(b"hello w\x92orld".to_vec(), "byte offset 7"), (utf16, "looks like UTF-16")] {
        for kind in [Kind::Auto, Kind::Char, Kind::Bpe] {
            let error = Tokenizer::train(&kind, &text(content.clone()), None, &mut |_, _, _| ()).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let bytes = train(&Kind::Byte, content.clone(), None);
        assert_eq!(bytes.encode_bytes(&content).unwrap().len(), content.len());
    }
    assert!(
        train(&Kind::Bpe, "abc", None).encode_bytes(b"ab\xFF").unwrap_err().to_string().contains("offset 2")
    );
}
