//! Ids to text as they come, never half a character.

use crate::error::Result;
use crate::tokenizer::{Decoder, Tokenizer};

const REPLACEMENT: char = '\u{FFFD}';

/// Decodes one id at a time; all that it gives out, with [`DecodeStream::finish`], is the decode of all ids.
///
/// A token may end inside a character; its bytes wait for the next tokens. Bytes that can no longer
/// become a character come out as U+FFFD, as in [`Tokenizer::decode`].
#[derive(Debug)]
pub struct DecodeStream<'t> {
    tokenizer: &'t Tokenizer,
    /// Bytes of a character that is not whole yet, at most 3.
    bytes: Vec<u8>,
    window: Window,
}

/// The last few ids, for a decoder that gives a token another text after a neighbour than alone.
#[derive(Debug, Default)]
struct Window {
    /// From the start of the last text given out.
    ids: Vec<u32>,
    /// Ids at the front whose text was given out.
    given: usize,
}

impl<'t> DecodeStream<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, bytes: Vec::new(), window: Window::default() }
    }

    /// Takes the next id; gives the text that is now whole, or `None` when nothing is.
    ///
    /// # Errors
    /// [`crate::Error::UnknownId`].
    pub fn push(&mut self, id: u32) -> Result<Option<String>> {
        let text = match &self.tokenizer.decoder {
            Decoder::Table(table) => {
                self.bytes.extend_from_slice(table.token(id)?);
                take_characters(&mut self.bytes)
            }
            Decoder::Foreign(_) => self.window.push(id, self.tokenizer)?,
        };
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Takes the next id; appends its bytes, which may end inside a character.
    ///
    /// All of them, with what [`DecodeStream::finish`] gives after the last, are those of
    /// [`Tokenizer::decode_bytes`]. Where a token's text depends on its neighbours, that is all of them: the
    /// ids are kept until then. A stream is used with this or with [`DecodeStream::push`], not with both.
    ///
    /// # Errors
    /// [`crate::Error::UnknownId`].
    pub fn push_bytes(&mut self, id: u32, bytes: &mut Vec<u8>) -> Result<()> {
        match &self.tokenizer.decoder {
            Decoder::Table(table) => bytes.extend_from_slice(table.token(id)?),
            Decoder::Foreign(foreign) => {
                foreign.decode(&[id])?;
                self.window.ids.push(id);
            }
        }
        Ok(())
    }

    /// The text of what is left: one U+FFFD when the ids end inside a character, else mostly nothing.
    pub fn finish(mut self) -> String {
        match &self.tokenizer.decoder {
            Decoder::Table(_) => String::from_utf8_lossy(&self.bytes).into_owned(),
            // every id was decoded once already when it was pushed
            Decoder::Foreign(_) => self.window.take(self.tokenizer).unwrap_or_default(),
        }
    }
}

/// Takes the whole characters from the front; leaves the start of one that may yet be completed.
fn take_characters(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut taken = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        taken += chunk.valid().len();
        let invalid = chunk.invalid();
        let at_end = taken + invalid.len() == bytes.len();
        if invalid.is_empty() || (at_end && may_be_completed(invalid)) {
            break;
        }
        text.push(REPLACEMENT);
        taken += invalid.len();
    }
    bytes.drain(..taken);
    text
}

fn may_be_completed(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

impl Window {
    fn push(&mut self, id: u32, tokenizer: &Tokenizer) -> Result<String> {
        tokenizer.decode(&[id])?;
        self.ids.push(id);
        let whole = tokenizer.decode(&self.ids)?;
        if whole.ends_with(REPLACEMENT) {
            // half a character, most likely; a token that does mean U+FFFD waits for the next one
            return Ok(String::new());
        }
        self.take(tokenizer)
    }

    /// The text of all ids that the text given out before does not cover.
    fn take(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let before = tokenizer.decode(&self.ids[..self.given])?;
        let whole = tokenizer.decode(&self.ids)?;
        let same = before.chars().zip(whole.chars()).take_while(|(before, whole)| before == whole);
        let new = whole[same.map(|(character, _)| character.len_utf8()).sum()..].to_owned();
        if !new.is_empty() {
            self.ids.drain(..self.given);
            self.given = self.ids.len();
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn characters_of(parts: &[&[u8]]) -> Vec<String> {
        let mut bytes = Vec::new();
        parts
            .iter()
            .map(|part| {
                bytes.extend_from_slice(part);
                take_characters(&mut bytes)
            })
            .collect()
    }

    #[test]
    fn half_a_character_waits_for_its_other_half() {
        assert_eq!(characters_of(&[b"a\xE6", b"\xBC", b"\xA2b"]), ["a", "", "漢b"]);
    }

    #[test]
    fn bytes_that_cannot_become_a_character_do_not_wait() {
        assert_eq!(
            characters_of(&[b"\x80", b"\xE6a", b"\xF0\x9F", b"\xFFz"]),
            ["\u{FFFD}", "\u{FFFD}a", "", "\u{FFFD}\u{FFFD}z"]
        );
    }
}
