//! Characters in bytes, at the speed of bytes.

/// Characters in valid UTF-8: the bytes that begin one.
pub(crate) fn count_characters(bytes: &[u8]) -> usize {
    // as many at a time as a byte can count: wider sums take several times as long
    let few = |bytes: &[u8]| bytes.iter().map(|&byte| u8::from(!continues_character(byte))).sum::<u8>();
    bytes.chunks(usize::from(u8::MAX)).map(|bytes| usize::from(few(bytes))).sum()
}

/// A text as stretches in turn of nothing but ASCII and of a few characters of any kind; either may be empty.
///
/// ASCII needs no decoding, and whole blocks of it are recognised in a few instructions.
pub(crate) fn ascii_stretches(text: &str) -> impl Iterator<Item = (&str, &str)> {
    const BLOCK: usize = 16;
    let mut rest = text;
    std::iter::from_fn(move || {
        let ascii = BLOCK * rest.as_bytes().chunks_exact(BLOCK).take_while(|block| block.is_ascii()).count();
        let (ascii, after) = rest.split_at(ascii);
        let any = (BLOCK..after.len()).find(|&at| after.is_char_boundary(at)).unwrap_or(after.len());
        let (any, after) = after.split_at(any);
        let found = !rest.is_empty();
        rest = after;
        found.then_some((ascii, any))
    })
}

/// Whether a byte of UTF-8 is not the first of its character.
pub(crate) fn continues_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The start of the character that `at` lies in; in bytes that are not UTF-8, at most 3 before it.
pub(crate) fn character_start(bytes: &[u8], at: usize) -> usize {
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|&at| bytes.get(at).is_none_or(|&byte| !continues_character(byte)))
        .unwrap_or(at)
}

/// The character that ends at a place; `None` at the start and inside a character.
pub(crate) fn character_before(bytes: &[u8], at: usize) -> Option<char> {
    (1..=at.min(4)).find_map(|width| only_character(&bytes[at - width..at]))
}

/// The character that starts at a place; `None` at the end and inside a character.
pub(crate) fn character_at(bytes: &[u8], at: usize) -> Option<char> {
    (1..=(bytes.len() - at).min(4)).find_map(|width| only_character(&bytes[at..at + width]))
}

fn only_character(bytes: &[u8]) -> Option<char> {
    if let [byte] = bytes {
        return byte.is_ascii().then_some(char::from(*byte));
    }
    let mut characters = std::str::from_utf8(bytes).ok()?.chars();
    characters.next().filter(|_| characters.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn characters_are_counted_and_found_as_the_standard_library_does(text in "[a-cé漢🙂]{0,600}") {
            prop_assert_eq!(count_characters(text.as_bytes()), text.chars().count());
            for at in 0..=text.len() {
                let sides = text.is_char_boundary(at).then(|| text.split_at(at));
                let (before, after) = sides.map_or((None, None), |(before, after)| {
                    (before.chars().next_back(), after.chars().next())
                });
                prop_assert_eq!(character_before(text.as_bytes(), at), before);
                prop_assert_eq!(character_at(text.as_bytes(), at), after);
            }
        }

        #[test]
        fn stretches_are_the_text_and_what_is_called_ascii_is(text in "[a-c]{0,60}[a-cé漢🙂]{0,60}[ -~]{0,60}é?") {
            let stretches: Vec<_> = ascii_stretches(&text).collect();
            prop_assert!(stretches.iter().all(|(ascii, any)| ascii.is_ascii() && any.len() < 20));
            prop_assert!(stretches.iter().all(|(ascii, any)| !ascii.is_empty() || !any.is_empty()));
            prop_assert_eq!(stretches.iter().flat_map(|&(ascii, any)| [ascii, any]).collect::<String>(), text);
        }
    }
}
