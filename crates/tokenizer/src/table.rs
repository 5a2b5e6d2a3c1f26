//! Direct tables: character to id, and id to the bytes of its token.

use crate::error::{Error, Result};
use crate::utf8::ascii_stretches;

/// Code points in a page of [`CharTable`].
const PAGE: usize = 256;
/// Marks a code point without id; [`crate::MAX_VOCAB`] keeps real ids far below.
const ABSENT: u32 = u32::MAX;

/// Character to id by two look-ups: the page of its code point, then its place there.
///
/// A page exists only where the text has characters, so one alphabet costs kilobytes and all of Unicode
/// a few megabytes.
#[derive(Debug)]
pub(crate) struct CharTable {
    /// Page number + 1 by code point / 256; 0 where there is none.
    page_of: Vec<u16>,
    ids: Vec<u32>,
}

impl CharTable {
    /// Ids 0, 1, 2 … for the characters in the order given.
    pub(crate) fn new(characters: &[char]) -> Self {
        let mut table = Self {
            page_of: vec![0; (char::MAX as usize + 1) / PAGE],
            // page 0 stays empty: what has no page of its own reads from it
            ids: vec![ABSENT; PAGE],
        };
        for (id, &character) in characters.iter().enumerate() {
            let (page, place) = (character as usize / PAGE, character as usize % PAGE);
            if table.page_of[page] == 0 {
                table.page_of[page] = (table.ids.len() / PAGE) as u16;
                table.ids.resize(table.ids.len() + PAGE, ABSENT);
            }
            table.ids[usize::from(table.page_of[page]) * PAGE + place] = id as u32;
        }
        table
    }

    /// Appends the ids of a text; fails with the first unknown character and its byte offset.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), (char, usize)> {
        ids.reserve(text.len());
        let ascii_ids: [u32; 128] = std::array::from_fn(|code| self.id(char::from(code as u8)));
        let first = ids.len();
        for (ascii, any) in ascii_stretches(text) {
            ids.extend(ascii.bytes().map(|byte| ascii_ids[usize::from(byte)]));
            ids.extend(any.chars().map(|character| self.id(character)));
        }
        // the largest of all, for a search that may stop early takes several times as long
        if ids[first..].iter().max() != Some(&ABSENT) {
            return Ok(());
        }
        let mut unknown = text.char_indices().filter(|&(_, character)| self.id(character) == ABSENT);
        unknown.next().map_or(Ok(()), |(offset, character)| Err((character, offset)))
    }

    fn id(&self, character: char) -> u32 {
        let page = usize::from(self.page_of[character as usize / PAGE]);
        self.ids[page * PAGE + character as usize % PAGE]
    }
}

/// The bytes of every token, end to end.
#[derive(Debug)]
pub(crate) struct TokenTable {
    bytes: Vec<u8>,
    /// Where each token ends in `bytes`.
    ends: Vec<usize>,
    /// An id that no token has; such holes are rare, and a token may be empty.
    holes: Vec<u32>,
}

impl TokenTable {
    /// Takes the bytes of each id in turn; `None` is an id without a token.
    pub(crate) fn new<'a>(tokens: impl IntoIterator<Item = Option<&'a [u8]>>) -> Self {
        let mut table = Self { bytes: Vec::new(), ends: Vec::new(), holes: Vec::new() };
        for (id, token) in tokens.into_iter().enumerate() {
            match token {
                Some(token) => table.bytes.extend_from_slice(token),
                None => table.holes.push(id as u32),
            }
            table.ends.push(table.bytes.len());
        }
        table
    }

    /// Largest id plus one.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a token.
    pub(crate) fn token(&self, id: u32) -> Result<&[u8]> {
        let index = id as usize;
        match self.ends.get(index) {
            Some(&end) if self.holes.binary_search(&id).is_err() => {
                let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
                Ok(&self.bytes[start..end])
            }
            _ => Err(Error::UnknownId { id, vocab_size: self.len() }),
        }
    }

    /// The bytes of a sequence of tokens.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(4 * ids.len());
        for &id in ids {
            bytes.extend_from_slice(self.token(id)?);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_character_has_the_id_of_its_place_and_others_have_none() {
        let characters = ['\0', 'a', 'é', '漢', '🙂', char::MAX];
        let table = CharTable::new(&characters);
        let mut ids = Vec::new();
        table.encode(&characters.iter().collect::<String>(), &mut ids).unwrap();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
        assert_eq!(table.encode("aéb", &mut Vec::new()), Err(('b', 3)));
        assert_eq!(table.encode("字", &mut Vec::new()), Err(('字', 0)));
    }

    proptest! {
        #[test]
        fn a_text_has_the_ids_of_its_characters_or_the_first_that_has_none(
            text in "[a-p]{0,40}[a-pqéß漢字🙂]{0,40}[ a-p]{0,40}",
        ) {
            let characters: Vec<char> = " abcdefghijklmnopé漢🙂".chars().collect();
            let table = CharTable::new(&characters);
            let id = |character| characters.iter().position(|&other| other == character);
            let mut ids = vec![99];
            let result = table.encode(&text, &mut ids);
            match text.char_indices().find(|&(_, character)| id(character).is_none()) {
                Some((at, character)) => prop_assert_eq!(result, Err((character, at))),
                None => prop_assert!(ids[1..].iter().map(|&id| id as usize).eq(text.chars().filter_map(id))),
            }
        }
    }

    #[test]
    fn all_of_unicode_fits_without_two_characters_sharing_an_id() {
        let characters: Vec<char> = ('\0'..=char::MAX).collect();
        let table = CharTable::new(&characters);
        let mut ids = Vec::new();
        table.encode(&characters.iter().collect::<String>(), &mut ids).unwrap();
        assert!(ids.iter().enumerate().all(|(place, &id)| place == id as usize));
    }

    #[test]
    fn holes_and_ids_past_the_end_are_errors_and_empty_tokens_are_not() {
        let table = TokenTable::new([Some(&b"ab"[..]), None, Some(b""), Some(b"c")]);
        assert_eq!(table.decode(&[0, 2, 3, 0]).unwrap(), b"abcab");
        for id in [1, 4, u32::MAX] {
            assert!(matches!(table.token(id), Err(Error::UnknownId { vocab_size: 4, .. })));
        }
    }
}
