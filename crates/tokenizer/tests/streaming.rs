//! A text that comes part by part gives the ids, and the errors, of the whole.

mod common;

use std::io::Read;

use common::{PROSE, all_kinds, long_text, train};
use softdict_tokenizer::{Error, Kind, Result, Tokenizer};

/// Gives a text in parts of all sizes, as a pipe does.
struct Dribble<'t> {
    text: &'t [u8],
    state: usize,
}

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.state = (self.state * 31 + 7) % 70_001;
        let (part, rest) = self.text.split_at(self.text.len().min(self.state + 1).min(buffer.len()));
        buffer[..part.len()].copy_from_slice(part);
        self.text = rest;
        Ok(part.len())
    }
}

fn streamed(tokenizer: &Tokenizer, text: &[u8]) -> (Vec<u32>, Result<()>) {
    let mut ids = Vec::new();
    let result = tokenizer.encode_stream(Dribble { text, state: 1 }, "the pipe", <[u32]>::to_vec, |part| {
        ids.extend(part);
        Ok::<_, Error>(())
    });
    (ids, result)
}

/// Longer than what is read at a time, with runs longer than a chunk, and one longer than stays whole.
fn text_of_many_blocks() -> String {
    let words = long_text(1_500_000);
    let run = |bytes: usize| "ACGTTGCAAC".repeat(bytes / 10);
    [&words, PROSE, &run(600_000), &words, &run(5_000_000), "\n", &words, "漢字🙂", &words].concat()
}

/// Tokenizers that know all characters of it.
fn tokenizers() -> [Tokenizer; 3] {
    all_kinds(&(long_text(3000) + PROSE + "ACGTTGCAAC"))
}

#[test]
fn ids_are_those_of_the_whole_on_any_number_of_threads() {
    let text = text_of_many_blocks();
    for tokenizer in tokenizers() {
        let whole = tokenizer.encode(&text).unwrap();
        assert!(tokenizer.decode(&whole).unwrap() == text);
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (ids, result) = pool.install(|| streamed(&tokenizer, text.as_bytes()));
            result.unwrap();
            assert!(ids == whole, "{} on {threads} threads", tokenizer.kind());
        }
    }
}

#[test]
fn nothing_gives_nothing_and_little_gives_little() {
    for tokenizer in all_kinds(PROSE) {
        for text in ["", "x", PROSE] {
            assert_eq!(streamed(&tokenizer, text.as_bytes()).0, tokenizer.encode(text).unwrap());
        }
    }
}

#[test]
fn errors_name_the_place_in_the_whole_text_and_what_was_before_is_handed_over() {
    let text = text_of_many_blocks();
    let [chars, _, bpe] = tokenizers();
    let unknown = text.clone() + "ж" + PROSE;
    let (ids, result) = streamed(&chars, unknown.as_bytes());
    let message = result.unwrap_err().to_string();
    assert!(message.contains(&format!("position {}", text.chars().count() + 1)), "{message}");
    assert_eq!(message, chars.encode(&unknown).unwrap_err().to_string());
    assert!(!ids.is_empty() && chars.encode(&text).unwrap().starts_with(&ids));

    let invalid = [text.as_bytes(), b"\xE6\xBC", PROSE.as_bytes()].concat();
    for tokenizer in [chars, bpe] {
        let message = streamed(&tokenizer, &invalid).1.unwrap_err().to_string();
        assert!(message.contains(&format!("offset {}", text.len())), "{message}");
        assert_eq!(message, tokenizer.encode_bytes(&invalid).unwrap_err().to_string());
    }
}

#[test]
fn a_sink_that_fails_ends_it_and_a_reader_that_fails_is_named() {
    let bytes = train(&Kind::Byte, "x", None);
    let mut parts = 0;
    let result = bytes.encode_stream(&vec![b'x'; 20 << 20][..], "x", <[u32]>::len, |_| {
        parts += 1;
        if parts == 3 { Err(Error::ValFraction { value: 3.0 }) } else { Ok(()) }
    });
    assert!(matches!(result, Err(Error::ValFraction { .. })));
    assert_eq!(parts, 3);

    let broken = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let result = bytes.encode_stream(broken, "the pipe", <[u32]>::len, |_| Ok::<_, Error>(()));
    assert!(result.unwrap_err().to_string().contains("the pipe"));
}

/// Other kinds have no place to cut: they get the text at once.
#[test]
fn a_tokenizer_of_another_kind_streams_too() {
    let bpe = train(&Kind::Bpe, PROSE, Some(300));
    let mut file: serde_json::Value = serde_json::from_slice(bpe.to_json()).unwrap();
    file["normalizer"] = serde_json::json!({ "type": "Lowercase" });
    let other = Tokenizer::from_bytes(serde_json::to_vec(&file).unwrap(), "lower case").unwrap();
    let (ids, result) = streamed(&other, PROSE.as_bytes());
    result.unwrap();
    assert_eq!(ids, other.encode(PROSE).unwrap());
    assert_ne!(ids, bpe.encode(PROSE).unwrap());
}
