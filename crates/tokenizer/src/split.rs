//! The GPT-2 splitting rule: a text falls into pieces, and no token crosses from one into the next.
//!
//! The rule lives here alone; learning merges and encoding both use it. A `tokenizer.json` names it as
//! `ByteLevel` with `use_regex`, and a test holds ours, the regex and its shortcut for ASCII, equal to that.

use regex::Regex;

use crate::error::{Error, Result};

/// The rule of GPT-2 without its look-ahead `\s+(?!\S)`, which [`Splitter::pieces`] makes up for; without
/// it a plain, linear-time regex does.
///
/// # Source
/// Radford et al. 2019, `encoder.py`.
const RULE: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";

/// Splits text into pieces.
#[derive(Debug, Clone)]
pub(crate) struct Splitter(Regex);

impl Splitter {
    pub(crate) fn new() -> Result<Self> {
        Regex::new(RULE).map(Self).map_err(|source| Error::SplitRule { source: Box::new(source) })
    }

    /// The pieces of a text, in order; together they are the text.
    pub(crate) fn pieces<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let end = ascii_piece(text.as_bytes(), at).or_else(|| self.any_piece(text, at))?;
            let piece = &text[at..end];
            at = end;
            Some(piece)
        })
    }

    /// The end of the piece that starts at `at`.
    fn any_piece(&self, text: &str, at: usize) -> Option<usize> {
        let found = self.0.find_at(text, at)?;
        // Only `\s+` ends in white space. When a word follows, the last of several spaces is left to it
        // (the look-ahead): "a   b" is "a", "  ", " b".
        let last =
            found.as_str().chars().next_back().filter(|c| c.is_whitespace() && found.end() < text.len());
        let shorter = last.map(|last| found.end() - last.len_utf8()).filter(|&end| end > at);
        Some(shorter.unwrap_or(found.end()))
    }
}

/// The same for a piece that ASCII alone decides, as most do, without the cost of a regex search.
fn ascii_piece(bytes: &[u8], at: usize) -> Option<usize> {
    let class = |at: usize| bytes.get(at).map(|&byte| Class::of_ascii(byte));
    // one past the last byte of this class; `None` where a character follows that is not ASCII
    let run = |mut at: usize, of: Class| {
        while class(at) == Some(of) {
            at += 1;
        }
        (class(at) != Some(Class::Unknown)).then_some(at)
    };
    match (bytes.get(at)?, bytes.get(at + 1), bytes.get(at + 2)) {
        (b'\'', Some(b's' | b't' | b'm' | b'd'), _) => return Some(at + 2),
        (b'\'', Some(b'r' | b'v'), Some(b'e')) | (b'\'', Some(b'l'), Some(b'l')) => return Some(at + 3),
        _ => {}
    }
    match (bytes[at], class(at)?, class(at + 1)) {
        (_, Class::Unknown, _) => None,
        (b' ', _, Some(next @ (Class::Letter | Class::Digit | Class::Other))) => run(at + 1, next),
        (_, Class::Space, _) => {
            let end = run(at, Class::Space)?;
            Some(if end < bytes.len() && end > at + 1 { end - 1 } else { end })
        }
        (_, first, _) => run(at, first),
    }
}

/// Whether a piece ends at `at` whatever comes before and after: both sides may be encoded apart.
///
/// - No piece goes on from anything else into white space, so before white space is always an end;
///   white space itself is never cut after, since its last space may belong to the next word.
/// - Among ASCII, letters, digits and the rest never share a piece; only `'` before a letter may (`'s`).
pub(crate) fn is_break(bytes: &[u8], at: usize) -> bool {
    let (Some(before), Some(after)) = (class_before(bytes, at), class_after(bytes, at)) else {
        return false;
    };
    match (before, after) {
        (Class::Unknown | Class::Letter | Class::Digit | Class::Other, Class::Space) => true,
        (Class::Letter | Class::Digit | Class::Other, Class::Letter | Class::Digit | Class::Other) => {
            before != after && (bytes[at - 1] != b'\'' || after != Class::Letter)
        }
        _ => false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Digit,
    Other,
    /// Not ASCII and not white space: a letter, a number or neither.
    Unknown,
}

impl Class {
    fn of(character: char) -> Self {
        match u8::try_from(character) {
            _ if character.is_whitespace() => Self::Space,
            Ok(byte) => Self::of_ascii(byte),
            Err(_) => Self::Unknown,
        }
    }

    /// Of a byte of UTF-8; [`Class::Unknown`] when it is part of a longer character.
    fn of_ascii(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letter,
            b'0'..=b'9' => Self::Digit,
            b'\t'..=b'\r' | b' ' => Self::Space,
            0x80.. => Self::Unknown,
            _ => Self::Other,
        }
    }
}

/// `None` at the start and inside a character.
fn class_before(bytes: &[u8], at: usize) -> Option<Class> {
    (1..=at.min(4)).find_map(|width| only_character(&bytes[at - width..at])).map(Class::of)
}

/// `None` at the end and inside a character.
fn class_after(bytes: &[u8], at: usize) -> Option<Class> {
    (1..=(bytes.len() - at).min(4)).find_map(|width| only_character(&bytes[at..at + width])).map(Class::of)
}

fn only_character(bytes: &[u8]) -> Option<char> {
    let mut characters = std::str::from_utf8(bytes).ok()?.chars();
    characters.next().filter(|_| characters.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    fn theirs(text: &str) -> Vec<String> {
        let mut split = PreTokenizedString::from(text);
        ByteLevel::new(false, false, true).pre_tokenize(&mut split).unwrap();
        split
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(_, (start, end), _)| text[start..end].to_owned())
            .collect()
    }

    fn ours(text: &str) -> Vec<String> {
        Splitter::new().unwrap().pieces(text).map(str::to_owned).collect()
    }

    /// Strings dense in what the rule looks at.
    fn tricky() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just(" "),
            Just("  "),
            Just("\n"),
            Just("\r\n"),
            Just("\t"),
            Just("\u{A0}"),
            Just("\u{2003}"),
            Just("'"),
            Just("'s"),
            Just("'ll"),
            Just("'S"),
            Just("a"),
            Just("word"),
            Just("7"),
            Just("42"),
            Just("."),
            Just("!?"),
            Just("é"),
            Just("漢"),
            Just("Ⅷ"),
            Just("²"),
            Just("🙂"),
            Just("\u{301}"),
            Just("\0"),
            Just("\u{1C}"),
            Just("ⓐ"),
            Just("٣"),
        ];
        prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn pieces_are_those_of_the_tokenizers_crate(text in prop_oneof![tricky(), any::<String>()]) {
            prop_assert_eq!(ours(&text), theirs(&text));
        }

        #[test]
        fn at_a_break_both_sides_split_as_they_do_together(text in tricky()) {
            let whole = theirs(&text);
            for at in (0..=text.len()).filter(|&at| is_break(text.as_bytes(), at)) {
                let apart = [theirs(&text[..at]), theirs(&text[at..])].concat();
                prop_assert_eq!(&apart, &whole, "cut at {}", at);
            }
        }
    }

    #[test]
    fn breaks_are_found_in_text_with_and_without_spaces() {
        let count = |text: &str| (0..=text.len()).filter(|&at| is_break(text.as_bytes(), at)).count();
        assert_eq!(count("one two\nthree"), 2);
        assert_eq!(count("{\"a\":1}"), 4);
        assert_eq!(count("漢字 漢字"), 1);
        assert_eq!(count("it's"), 1);
        assert_eq!(count("ACGTACGT"), 0);
    }
}
