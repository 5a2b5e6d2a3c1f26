//! Token labels: every token visible, none able to do anything.
//!
//! A label shows what a token is, so spaces, line ends and empty tokens get a sign of their own. It also
//! ends up in terminals, spreadsheets and pages, so whatever could move a cursor, turn text around or hide
//! becomes an escape in plain characters. Markup is the writers' affair: a label may contain `<`.

use unicode_width::UnicodeWidthStr;

/// The label of a token without text.
pub const EMPTY: &str = "∅";

/// Letters that Unicode counts as printable although they show nothing: Hangul fillers and blank Braille.
const BLANK_LETTERS: [char; 5] = ['\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// A token as a person should see it: `·` for space, `⏎` for line feed, `␍` for carriage return, `⇥` for
/// tab, `∅` for nothing, `\u{1b}` and the like for what must not be shown as it is.
///
/// Labels are for eyes: two tokens may share one (`·` is also a character). Reports for programs carry the
/// token itself or its id.
///
/// ```
/// use softdict_inspect::labels::label;
/// assert_eq!(label(" the\n"), "·the⏎");
/// assert_eq!(label("\u{1b}[31m"), "\\u{1b}[31m");
/// assert_eq!(label(""), "∅");
/// ```
pub fn label(token: &str) -> String {
    if token.is_empty() {
        return EMPTY.to_owned();
    }
    let mut shown = String::with_capacity(token.len());
    let mut has_base = false;
    for character in token.chars() {
        match character {
            ' ' => shown.push('·'),
            '\n' => shown.push('⏎'),
            '\r' => shown.push('␍'),
            '\t' => shown.push('⇥'),
            _ if !is_visible(character) => shown.extend(character.escape_unicode()),
            _ if !has_base && is_combining(character) => {
                // a lone accent needs something to stand on, or it lands on whatever is printed before
                shown.push('◌');
                shown.push(character);
            }
            _ => shown.push(character),
        }
        has_base = true;
    }
    shown
}

/// The labels of all tokens.
pub fn labels(tokens: &[String]) -> Vec<String> {
    tokens.iter().map(|token| label(token)).collect()
}

/// How many columns a label takes.
pub fn width(label: &str) -> usize {
    label.width()
}

/// A label cut to at most `columns` columns, with `…` where something is missing.
pub fn shorten(label: &str, columns: usize) -> String {
    if width(label) <= columns {
        return label.to_owned();
    }
    // widths of whole prefixes, because a variation selector widens the character before it
    let ends = label.char_indices().map(|(start, character)| start + character.len_utf8());
    let end = ends.take_while(|&end| width(&label[..end]) < columns).last().unwrap_or(0);
    let mut cut = label[..end].to_owned();
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// Whether a character shows something and does nothing else: no control, no direction mark, no
/// line separator, nothing invisible, private or unassigned. The plain space counts.
pub fn is_visible(character: char) -> bool {
    if BLANK_LETTERS.contains(&character) {
        return false;
    }
    // after a base letter only the unprintable is escaped; quotes and backslash are by syntax alone
    matches!(character, '"' | '\'' | '\\') || escaped_after_base(character) == 1
}

fn is_combining(character: char) -> bool {
    character.escape_debug().len() > 1 && escaped_after_base(character) == 1
}

fn escaped_after_base(character: char) -> usize {
    let mut buffer = [b'a'; 5];
    let length = character.encode_utf8(&mut buffer[1..]).len();
    let text = std::str::from_utf8(&buffer[..=length]).unwrap_or_default();
    text.escape_debug().count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whitespace_gets_a_sign() {
        assert_eq!(label(" a  b\r\n\t"), "·a··b␍⏎⇥");
        assert_eq!(label(""), "∅");
    }

    #[test]
    fn what_a_terminal_obeys_becomes_an_escape() {
        assert_eq!(label("\u{1b}[31mred\u{7}"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(label("\u{9b}2J\u{7f}"), "\\u{9b}2J\\u{7f}");
        assert_eq!(label("a\0b"), "a\\u{0}b");
    }

    #[test]
    fn what_hides_or_turns_text_becomes_an_escape() {
        for hidden in [
            '\u{200b}',
            '\u{200c}',
            '\u{200d}',
            '\u{200e}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{2028}',
            '\u{2029}',
            '\u{feff}',
            '\u{ad}',
            '\u{a0}',
            '\u{3000}',
            '\u{e0041}',
            '\u{3164}',
            '\u{e000}',
            '\u{061c}',
        ] {
            assert_eq!(label(&format!("a{hidden}")), format!("a\\u{{{:x}}}", hidden as u32));
        }
    }

    #[test]
    fn letters_of_every_script_stay() {
        for text in [
            "Straße",
            "漢字",
            "привет",
            "שלום",
            "e\u{301}",
            "नमस्ते",
            "🙂",
            "\"quoted\"",
            "back\\slash",
            "�",
            "<b>",
        ] {
            assert_eq!(label(text), text);
        }
    }

    #[test]
    fn a_lone_accent_stands_on_a_circle() {
        assert_eq!(label("\u{301}a"), "◌\u{301}a");
    }

    #[test]
    fn long_labels_are_cut_to_their_columns() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("abcdefg", 6), "abcde…");
        assert_eq!(shorten("漢字漢字", 6), "漢字…");
        assert_eq!(shorten("abc", 0), "");
        assert_eq!(width("漢a"), 3);
    }

    proptest! {
        #[test]
        fn no_label_carries_anything_active(token in any::<String>(), columns in 0usize..20) {
            let shown = label(&token);
            prop_assert!(!shown.is_empty());
            prop_assert!(shown.chars().all(|character| is_visible(character) && character != ' '));
            prop_assert!(width(&shorten(&shown, columns)) <= columns);
        }
    }
}
