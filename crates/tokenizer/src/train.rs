//! Making a tokenizer from a text.

use std::fmt;

use crate::count;
use crate::error::{Error, Result};
use crate::json;
use crate::kind::Kind;
use crate::learn;
use crate::read::MAX_VOCAB;
use crate::text::TextFile;
use crate::tokenizer::Tokenizer;

/// `auto` takes a char vocabulary for a text with at most this many distinct characters.
///
/// Latin, Greek and Cyrillic texts with their punctuation stay far below, Chinese and Japanese far above;
/// beyond it most characters are too rare to be learned one by one.
pub const AUTO_CHARACTERS: usize = 512;

/// The bounds of [`default_vocab_size`].
const DEFAULT_VOCAB: (usize, usize) = (512, 8192);
/// A run longer than this is named: it slows learning down and is mostly not language.
const LONG_RUN_BYTES: usize = 4096;

/// The parts of training a tokenizer, for progress display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Going through the text; counts bytes.
    Reading,
    /// Learning BPE merges; counts tokens.
    Merging,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "reading the text",
            Self::Merging => "learning merges",
        })
    }
}

impl Tokenizer {
    /// Makes the tokenizer of a kind from a text, or loads it when the kind is a file.
    ///
    /// `vocab_size` is for BPE, 256 or more, [`default_vocab_size`] when absent; `auto` with a size means
    /// BPE. The other kinds have the size that they have. `progress` gets the stage, what is done of it
    /// and how much there is. What was chosen and found is in [`Tokenizer::notes`].
    ///
    /// The same text gives the same `tokenizer.json`, on any machine and number of threads.
    ///
    /// # Errors
    /// When the text is not UTF-8 (save for bytes), when `vocab_size` is below 256 or is not a choice for
    /// this kind, and as [`Tokenizer::from_file`].
    pub fn train(
        kind: &Kind,
        text: &TextFile,
        vocab_size: Option<usize>,
        progress: &mut dyn FnMut(Stage, u64, u64),
    ) -> Result<Self> {
        match kind {
            Kind::Auto => auto(text, vocab_size, progress),
            Kind::Char => {
                let characters =
                    count::characters(text, &mut |done, all| progress(Stage::Reading, done, all))?;
                fixed(kind, char_tokenizer(text, &characters)?, vocab_size)
            }
            Kind::Byte => {
                fixed(kind, Self::from_bytes(json::byte_file()?, "the byte vocabulary")?, vocab_size)
            }
            Kind::Bpe => bpe(text, vocab_size, progress),
            Kind::File(path) => {
                kind.validate()?;
                fixed(kind, Self::from_file(path)?, vocab_size)
            }
        }
    }
}

/// The size of a BPE vocabulary when none is given: twice the square root of the bytes of text, to the
/// nearest power of two, at least 512 and at most 8,192 (1 MB gives 2,048; 16 MB or more 8,192).
///
/// The number of distinct words grows about so (Heaps' law), and a token must occur often to be learned.
pub fn default_vocab_size(text_bytes: usize) -> usize {
    let exponent = (1.0 + (text_bytes.max(1) as f64).log2() / 2.0).round();
    (exponent.exp2() as usize).clamp(DEFAULT_VOCAB.0, DEFAULT_VOCAB.1)
}

fn auto(
    text: &TextFile,
    vocab_size: Option<usize>,
    progress: &mut dyn FnMut(Stage, u64, u64),
) -> Result<Tokenizer> {
    if let Some(size) = vocab_size {
        let reason = format!("tokenizer: bpe, because tokenizer.vocab_size = {size} is given");
        return bpe(text, vocab_size, progress).map(|tokenizer| noted(tokenizer, reason));
    }
    let characters = count::characters(text, &mut |done, all| progress(Stage::Reading, done, all))?;
    let found = characters.len();
    if found <= AUTO_CHARACTERS {
        let reason = format!(
            "tokenizer: char, because the text has {found} distinct characters, at most {AUTO_CHARACTERS}"
        );
        return char_tokenizer(text, &characters).map(|tokenizer| noted(tokenizer, reason));
    }
    let reason = format!(
        "tokenizer: bpe, because the text has {found} distinct characters, more than {AUTO_CHARACTERS}"
    );
    bpe(text, None, progress).map(|tokenizer| noted(tokenizer, reason))
}

fn char_tokenizer(text: &TextFile, characters: &[char]) -> Result<Tokenizer> {
    Tokenizer::from_bytes(json::char_file(characters)?, text.name())
}

fn bpe(
    text: &TextFile,
    vocab_size: Option<usize>,
    progress: &mut dyn FnMut(Stage, u64, u64),
) -> Result<Tokenizer> {
    let size = vocab_size.unwrap_or_else(|| default_vocab_size(text.byte_len()));
    if !(256..=MAX_VOCAB).contains(&size) {
        return Err(Error::VocabSize { value: size, max: MAX_VOCAB });
    }
    let pieces = count::pieces(text, &mut |done, all| progress(Stage::Reading, done, all))?;
    let mut notes = Vec::new();
    if vocab_size.is_none() {
        notes
            .push(format!("tokenizer.vocab_size = {size}, by default for {} bytes of text", text.byte_len()));
    }
    if pieces.longest_bytes > LONG_RUN_BYTES {
        notes.push(format!(
            "{}: the longest run without a space or other break has {} bytes; merges are learned from it in \
             parts of {} bytes",
            text.name(),
            pieces.longest_bytes,
            count::LEARNED_PIECE_BYTES
        ));
    }
    if pieces.full {
        notes.push(format!(
            "{}: has more distinct words than the table holds; merges are learned from the first {}",
            text.name(),
            pieces.counts.len()
        ));
    }
    let learned = learn::learn(pieces.counts, size, &mut |done, all| progress(Stage::Merging, done, all));
    if learned.tokens.len() < size {
        notes.push(format!(
            "the vocabulary has {} entries, not {size}: no pair of tokens is left that occurs twice",
            learned.tokens.len()
        ));
    }
    let json = json::bpe_file(&learned.tokens, &learned.merges)?;
    Ok(Tokenizer::from_bytes(json, text.name())?.with_notes(notes))
}

/// A tokenizer whose size is not a choice; a size given must be the one it has.
fn fixed(kind: &Kind, tokenizer: Tokenizer, vocab_size: Option<usize>) -> Result<Tokenizer> {
    match vocab_size {
        Some(value) if value != tokenizer.vocab_size() => {
            Err(Error::VocabSizeFixed { value, kind: kind.to_string(), actual: tokenizer.vocab_size() })
        }
        _ => Ok(tokenizer),
    }
}

/// Puts the reason for a choice before the other notes.
fn noted(tokenizer: Tokenizer, reason: String) -> Tokenizer {
    let notes = std::iter::once(reason).chain(tokenizer.notes().iter().cloned()).collect();
    tokenizer.with_notes(notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::DetectedKind;

    fn train(kind: &Kind, content: &str, vocab_size: Option<usize>) -> Result<Tokenizer> {
        let text = TextFile::from_bytes("test", content)?;
        Tokenizer::train(kind, &text, vocab_size, &mut |_, _, _| ())
    }

    #[test]
    fn auto_goes_by_the_number_of_distinct_characters_and_says_so() {
        let alphabet = |len: u32| (0x4E00..0x4E00 + len).filter_map(char::from_u32).collect::<String>();
        let small = train(&Kind::Auto, &alphabet(512), None).unwrap();
        assert_eq!(small.kind(), &DetectedKind::Char);
        assert!(small.notes()[0].contains("512 distinct characters"), "{:?}", small.notes());
        let large = train(&Kind::Auto, &alphabet(513), None).unwrap();
        assert_eq!(large.kind(), &DetectedKind::Bpe);
        assert!(large.notes()[0].contains("513 distinct characters"), "{:?}", large.notes());
        let sized = train(&Kind::Auto, "abab", Some(300)).unwrap();
        assert_eq!(sized.kind(), &DetectedKind::Bpe);
    }

    #[test]
    fn the_default_size_grows_with_the_text_within_bounds() {
        let sizes =
            [1, 1 << 10, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 30].map(default_vocab_size);
        assert_eq!(sizes, [512, 512, 512, 1024, 2048, 4096, 8192, 8192]);
    }

    #[test]
    fn sizes_that_cannot_be_had_are_named_with_their_key() {
        let message = train(&Kind::Bpe, "abc", Some(100)).unwrap_err().to_string();
        assert!(message.contains("tokenizer.vocab_size = 100") && message.contains("256"), "{message}");
        let message = train(&Kind::Char, "abc", Some(100)).unwrap_err().to_string();
        assert!(message.contains("tokenizer.vocab_size = 100") && message.contains("3 entries"), "{message}");
        assert!(train(&Kind::Byte, "abc", Some(255)).is_err());
        // the size that a run wrote down for itself is not an error when read again
        assert_eq!(train(&Kind::Char, "abc", Some(3)).unwrap().vocab_size(), 3);
        assert_eq!(train(&Kind::Byte, "abc", Some(256)).unwrap().vocab_size(), 256);
    }

    #[test]
    fn a_vocabulary_that_stops_early_says_its_size() {
        for content in ["   \n", &"a".repeat(5000), &"ab".repeat(1000)] {
            let tokenizer = train(&Kind::Bpe, content, Some(5000)).unwrap();
            let size = tokenizer.vocab_size();
            assert!((256..300).contains(&size), "{size}");
            let said = format!("the vocabulary has {size} entries, not 5000");
            assert!(tokenizer.notes().iter().any(|note| note.contains(&said)), "{:?}", tokenizer.notes());
        }
    }

    #[test]
    fn a_long_run_is_named_with_its_length() {
        let tokenizer = train(&Kind::Bpe, &format!("dna: {}", "ACGTTGCA".repeat(1000)), None).unwrap();
        assert!(tokenizer.notes().iter().any(|note| note.contains("8001 bytes")), "{:?}", tokenizer.notes());
    }
}
