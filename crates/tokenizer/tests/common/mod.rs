//! What the tests of this crate share.
#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses some of it")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub(crate) mod foreign;

use softdict_tokenizer::{Kind, TextFile, Tokenizer};

/// Prose with contractions, numbers, several scripts, runs of spaces and a few lines.
pub(crate) const PROSE: &str = "It's 12345 on 2024-01-07, isn't it?\r\n\r\nThey'll say \u{201C}we've seen it\u{201D};  \
    don't   believe them.\n\tL'été, déjà vu, naïve façade, Straße, œuvre.\n   \n漢字とかな、カタカナ。 한국어 텍스트\n\
    🙂🙃 é漢 👩‍👩‍👧 e\u{301}\u{A0}½ Ⅷ ² ٣٤\0\u{1C}end <|endoftext|> [PAD] <s> </s>\n\n  x";

pub(crate) fn text(content: impl Into<Vec<u8>>) -> TextFile {
    TextFile::from_bytes("a test text", content).unwrap()
}

pub(crate) fn train(kind: &Kind, content: impl Into<Vec<u8>>, vocab_size: Option<usize>) -> Tokenizer {
    Tokenizer::train(kind, &text(content), vocab_size, &mut |_, _, _| ()).unwrap()
}

/// The three kinds, made from a text that has every character of `content`.
pub(crate) fn all_kinds(content: &str) -> [Tokenizer; 3] {
    [
        train(&Kind::Char, content, None),
        train(&Kind::Byte, content, None),
        train(&Kind::Bpe, content.repeat(3), Some(400)),
    ]
}

/// The `tokenizers` crate with the same file.
pub(crate) fn theirs(tokenizer: &Tokenizer) -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_bytes(tokenizer.to_json()).unwrap()
}

/// The ids that the `tokenizers` crate gives.
pub(crate) fn their_ids(tokenizer: &Tokenizer, content: &str) -> Vec<u32> {
    theirs(tokenizer).encode_fast(content, false).unwrap().get_ids().to_vec()
}

/// Text of about `bytes` bytes, words of several scripts in a fixed disorder, without any line end.
pub(crate) fn long_text(bytes: usize) -> String {
    const WORDS: [&str; 12] =
        ["the", "mill", "stream's", "wide", "1912", "été", "漢字", "🙂", "it'll", "no-one", "(so)", "x=y;"];
    let mut state = 1u64;
    let mut content = String::new();
    while content.len() < bytes {
        // Knuth's MMIX constants
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        content.push_str(WORDS[(state >> 33) as usize % WORDS.len()]);
        content.push_str([" ", " ", " ", "  ", ", "][(state >> 40) as usize % 5]);
    }
    content
}

/// Decodes ids one by one through a stream.
pub(crate) fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut stream = tokenizer.stream();
    let mut all = String::new();
    for &id in ids {
        all.extend(stream.push(id).unwrap());
    }
    all + &stream.finish()
}

/// The same as bytes.
pub(crate) fn streamed_bytes(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    let (mut stream, mut bytes) = (tokenizer.stream(), Vec::new());
    for &id in ids {
        stream.push_bytes(id, &mut bytes).unwrap();
    }
    [bytes, stream.finish().into_bytes()].concat()
}
