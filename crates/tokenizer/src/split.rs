//! The GPT-2 splitting rule: a text falls into pieces, and no token crosses from one into the next.
//!
//! The rule lives here alone; learning merges and encoding both use it. A `tokenizer.json` names it as
//! `ByteLevel` with `use_regex`, and a test holds ours equal to that. It is
//!
//! `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
//!
//! so but for `'s` and its kin a piece is a run of characters of one class, and a table of classes goes
//! through it many times faster than a regex engine.
//!
//! # Source
//! Radford et al. 2019, `encoder.py`.

use std::ops::Range;

use regex_syntax::hir::{Class as RegexClass, HirKind};

use crate::error::{Error, Result};
use crate::utf8::{character_at, character_before};

/// What a character is to the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// `\s`
    Space,
    /// `\p{L}`
    Letter,
    /// `\p{N}`
    Number,
    Other,
}

/// Splits text into pieces.
#[derive(Debug)]
pub(crate) struct Splitter {
    /// By code point; past the end all are [`Class::Other`].
    classes: Vec<Class>,
}

impl Splitter {
    /// Takes the classes from the regex engine's own tables, so that they are the same, version and all.
    pub(crate) fn new() -> Result<Self> {
        let mut classes = Vec::new();
        for (pattern, class) in [(r"\s", Class::Space), (r"\p{L}", Class::Letter), (r"\p{N}", Class::Number)]
        {
            let parsed = regex_syntax::parse(pattern)
                .map_err(|source| Error::SplitRule { pattern, source: Box::new(source) })?;
            if let HirKind::Class(RegexClass::Unicode(unicode)) = parsed.kind() {
                for range in unicode.ranges() {
                    let (start, end) = (range.start() as usize, range.end() as usize + 1);
                    classes.resize(classes.len().max(end), Class::Other);
                    classes[start..end].fill(class);
                }
            }
        }
        Ok(Self { classes })
    }

    /// The pieces of a text, in order; together they are the text.
    pub(crate) fn pieces<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        let mut start = 0;
        std::iter::from_fn(move || {
            let end = self.piece_end(text, start)?;
            let piece = start..end;
            start = end;
            Some(piece)
        })
    }

    /// The end of the piece that starts at `start`; `None` at the end of the text.
    fn piece_end(&self, text: &str, start: usize) -> Option<usize> {
        let (class, width) = self.class_at(text, start)?;
        let second = start + width;
        match text.as_bytes()[start..] {
            [b' ', ..] => match self.class_at(text, second) {
                None | Some((Class::Space, _)) => {}
                Some((next, width)) => return Some(self.run_end(text, second + width, next)),
            },
            [b'\'', b's' | b't' | b'm' | b'd', ..] => return Some(start + 2),
            [b'\'', b'r' | b'v', b'e', ..] | [b'\'', b'l', b'l', ..] => return Some(start + 3),
            _ => {}
        }
        let end = self.run_end(text, second, class);
        if class != Class::Space || end == text.len() {
            return Some(end);
        }
        // the look-ahead: a word leaves of several spaces but the last, "a   b" is "a", "  ", " b"
        let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
        Some(if end - last > start { end - last } else { end })
    }

    /// One past the last character from `at` on that is of this class.
    fn run_end(&self, text: &str, mut at: usize, class: Class) -> usize {
        while let Some((next, width)) = self.class_at(text, at)
            && next == class
        {
            at += width;
        }
        at
    }

    /// The class of the character at `at` and its bytes.
    #[inline]
    fn class_at(&self, text: &str, at: usize) -> Option<(Class, usize)> {
        let byte = *text.as_bytes().get(at)?;
        if byte.is_ascii() {
            return Some((self.classes[usize::from(byte)], 1));
        }
        let character = text[at..].chars().next()?;
        let class = self.classes.get(character as usize).copied().unwrap_or(Class::Other);
        Some((class, character.len_utf8()))
    }
}

/// Whether a piece ends at `at` whatever comes before and after: both sides may be encoded apart.
///
/// - No piece goes on from anything else into white space, so before white space is always an end;
///   white space itself is never cut after, since its last space may belong to the next word.
/// - Among ASCII, letters, digits and the rest never share a piece; only `'` before a letter may (`'s`).
pub(crate) fn is_break(bytes: &[u8], at: usize) -> bool {
    let (Some(before), Some(after)) = (character_before(bytes, at), character_at(bytes, at)) else {
        return false;
    };
    match (certain_class(before), certain_class(after)) {
        (before, Some(Class::Space)) => before != Some(Class::Space),
        (None | Some(Class::Space), _) | (_, None) => false,
        (Some(first), Some(second)) => first != second && (before != '\'' || second != Class::Letter),
    }
}

/// The class of white space and of ASCII; what else there is needs a table.
fn certain_class(character: char) -> Option<Class> {
    match character {
        _ if character.is_whitespace() => Some(Class::Space),
        _ if !character.is_ascii() => None,
        _ if character.is_ascii_alphabetic() => Some(Class::Letter),
        _ if character.is_ascii_digit() => Some(Class::Number),
        _ => Some(Class::Other),
    }
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
        Splitter::new().unwrap().pieces(text).map(|piece| text[piece].to_owned()).collect()
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

    /// Characters at both sides of every change of class, and every 97th.
    #[test]
    fn characters_of_all_scripts_split_as_they_do_in_the_crate() {
        let splitter = Splitter::new().unwrap();
        let class = |code: u32| splitter.classes.get(code as usize);
        let codes =
            (1..=u32::from(char::MAX)).filter(|&code| code % 97 == 0 || class(code - 1) != class(code));
        let around = codes.flat_map(|code| [code - 1, code]).filter_map(char::from_u32);
        let text: String = around.flat_map(|c| ['a', c, '7', c, c, ' ', c, '.', ' ', c]).collect();
        assert!(text.len() > 100_000);
        assert!(ours(&text) == theirs(&text));
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
