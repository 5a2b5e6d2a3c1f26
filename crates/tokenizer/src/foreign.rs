//! Any other `tokenizer.json`, through the `tokenizers` crate.
//!
//! Nothing is known about where such a tokenizer may be cut, so a long text is encoded in overlapping
//! windows, and each seam is put where both windows agree on several tokens in a row. A tokenizer that
//! depends on its surroundings for a few words at most, as all do in practice, gives the ids of the whole.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{Decoder as _, Tokenizer};

use crate::alphabet;
use crate::chunk::CHUNKS_PER_THREAD;
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::kind::DetectedKind;
use crate::limits;
use crate::read::{MAX_VOCAB, Parts, added_tokens};
use crate::table::TokenTable;
use crate::tokenizer::{Decoder, Encoder};
use crate::utf8::character_start;

/// Text that a window owns; the crate takes some 400 bytes of memory for each byte of it.
const WINDOW_BYTES: usize = 128 << 10;
/// Windows are smaller where a byte of text may become more bytes than this.
const FULL_WINDOW_GROWTH: f64 = 16.0;
/// Text that a window looks at beyond what it owns, at each end; no more than it owns.
const MARGIN_BYTES: usize = 2 << 10;
/// Tokens that must agree in a row at a seam.
const AGREEING_TOKENS: usize = 8;

/// A tokenizer of the crate that adds nothing to a text and takes nothing from it.
#[derive(Debug)]
pub(crate) struct Foreign {
    inner: Tokenizer,
    /// Whether tokens such as `<0xE6>` are bytes.
    byte_fallback: bool,
    /// Texts of control tokens that must stay text.
    specials: Vec<(u32, String)>,
    vocab_size: usize,
    /// Text that a window owns.
    window: usize,
    /// The file, for messages.
    name: String,
}

/// A token and where it starts in the text.
type Placed = (usize, u32);

impl Foreign {
    /// Loads the crate's tokenizer.
    pub(crate) fn parts(file: &Value, name: &str) -> Result<Parts> {
        let growth = limits::check(file)
            .map_err(|reason| Error::TokenizerInvalid { name: name.to_owned(), reason })?;
        guarded(name, || Self::load(file, growth, name))?
    }

    fn load(file: &Value, growth: f64, name: &str) -> Result<Parts> {
        let invalid = |reason: String| Error::TokenizerInvalid { name: name.to_owned(), reason };
        // what was checked is what is loaded: a key that comes twice in the text is here once
        let mut inner = Tokenizer::deserialize(file).map_err(|error| invalid(error.to_string()))?;
        // no padding, no cut, no start token, and offsets that include the space before a word
        inner.with_truncation(None).map_err(|error| invalid(error.to_string()))?;
        inner.with_padding(None);
        inner.with_post_processor(None::<PostProcessorWrapper>);
        inner.set_encode_special_tokens(true);

        let vocab = inner.get_vocab(true);
        let vocab_size = match vocab.values().max().map(|&id| id as usize + 1) {
            None => return Err(invalid("its vocabulary is empty".to_owned())),
            Some(size) if size > MAX_VOCAB => {
                return Err(invalid(format!("it has id {}; the largest allowed is {MAX_VOCAB}", size - 1)));
            }
            Some(size) => size,
        };
        limits::check_largest_id(vocab_size - 1, vocab.len()).map_err(invalid)?;
        let byte_fallback = decoder_steps(&file["decoder"]).iter().any(|step| step["type"] == "ByteFallback");
        let window = WINDOW_BYTES.min((WINDOW_BYTES as f64 * FULL_WINDOW_GROWTH / growth) as usize);
        let specials = specials(&inner, file);
        let foreign = Self { specials, inner, byte_fallback, vocab_size, window, name: name.to_owned() };
        let kind = file["model"]["type"].as_str().unwrap_or("a model without type");
        let encoder = Arc::new(foreign);
        let decoder = match encoder.byte_level_table(file) {
            Some(table) => Decoder::Table(table),
            None => Decoder::Foreign(Arc::clone(&encoder)),
        };
        Ok(Parts {
            kind: DetectedKind::Other(kind.to_owned()),
            encoder: Encoder::Foreign(encoder),
            decoder,
            vocab_size,
        })
    }

    /// A byte-level decoder joins bytes: a table does that without loss.
    fn byte_level_table(&self, file: &Value) -> Option<TokenTable> {
        if file["decoder"]["type"] != "ByteLevel" {
            return None;
        }
        let added = self.inner.get_added_tokens_decoder();
        let tokens: Vec<Option<Vec<u8>>> = (0..self.vocab_size as u32)
            .map(|id| match added.get(&id) {
                Some(token) => Some(token.content.clone().into_bytes()),
                None => self
                    .inner
                    .id_to_token(id)
                    .map(|token| alphabet::read(&token).unwrap_or_else(|| token.into_bytes())),
            })
            .collect();
        Some(TokenTable::new(tokens.iter().map(Option::as_deref)))
    }

    /// The text of a sequence of tokens, as the file's decoder has it.
    ///
    /// The crate turns a whole run of byte tokens to U+FFFD when the run ends inside a character, so that
    /// text would be taken back as a stream goes on. Runs are made text here, each character by itself.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut tokens: Vec<String> = Vec::with_capacity(ids.len());
        let mut run: Vec<u8> = Vec::new();
        for &id in ids {
            let unknown = || Error::UnknownId { id, vocab_size: self.vocab_size };
            let token = guarded(&self.name, || self.inner.id_to_token(id))?.ok_or_else(unknown)?;
            if let Some(byte) = byte_of(&token).filter(|_| self.byte_fallback) {
                run.push(byte);
                continue;
            }
            tokens.extend(take_text(&mut run));
            tokens.push(token);
        }
        tokens.extend(take_text(&mut run));
        match self.inner.get_decoder() {
            None => Ok(tokens.join(" ")),
            Some(decoder) => {
                let text = guarded(&self.name, || decoder.decode(tokens))?;
                text.map_err(|source| Error::Foreign { action: "decode these ids", source })
            }
        }
    }

    /// The text that a token adds after itself: a decoder may drop the space of the first word alone.
    pub(crate) fn token_text(&self, id: u32) -> Result<String> {
        let (once, twice) = (self.decode(&[id])?, self.decode(&[id, id])?);
        Ok(twice.strip_prefix(&once).map_or(once.clone(), str::to_owned))
    }

    /// Encodes a range of a text and hands the ids over in order, with the place up to which they go.
    pub(crate) fn encode<E: From<Error>>(
        &self,
        bytes: &[u8],
        range: Range<usize>,
        mut sink: impl FnMut(&[u32], usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let margin = MARGIN_BYTES.min(self.window);
        let from = |start: usize, owned: &Range<usize>| -> Result<Vec<Placed>> {
            let end = character_start(bytes, (owned.end + margin).min(range.end));
            let text = std::str::from_utf8(&bytes[start..end])
                .map_err(|error| Error::InputNotUtf8 { offset: start + error.valid_up_to() })?;
            self.place(text, start)
        };
        let window = |owned: &Range<usize>| {
            let start = owned.start.saturating_sub(margin).max(range.start);
            from(character_start(bytes, start), owned)
        };
        let mut next = range.start;
        let mut pending: Vec<Placed> = Vec::new();
        while next < range.end {
            let batch: Vec<Range<usize>> = std::iter::from_fn(|| {
                let start = next;
                next = character_start(bytes, range.end.min(start + self.window));
                (start < range.end).then_some(start..next)
            })
            .take(CHUNKS_PER_THREAD * rayon::current_num_threads())
            .collect();
            let placed: Vec<Result<Vec<Placed>>> = batch.par_iter().map(&window).collect();
            for (owned, tokens) in batch.iter().zip(placed) {
                let tokens = tokens?;
                if owned.start == range.start {
                    pending = tokens;
                    continue;
                }
                let tokens = if let Some((kept, taken)) = seam(&pending, &tokens, owned.start) {
                    pending.truncate(kept);
                    tokens[taken..].to_vec()
                } else {
                    // no agreement, as in one word of many kilobytes: go on from a token's end
                    let kept = pending.partition_point(|&(start, _)| start < owned.start);
                    let start = pending.get(kept).map_or(owned.start, |&(start, _)| start);
                    pending.truncate(kept);
                    from(start, owned)?
                };
                sink(&only_ids(&pending), owned.start)?;
                pending = tokens;
            }
        }
        sink(&only_ids(&pending), range.end)
    }

    /// Tokens of a text that starts at `start` of the whole; never a control token.
    fn place(&self, text: &str, start: usize) -> Result<Vec<Placed>> {
        let tokens = self.place_raw(text, start)?;
        let is_special = |id: u32| self.specials.iter().any(|&(special, _)| special == id);
        if !tokens.iter().any(|&(_, id)| is_special(id)) {
            return Ok(tokens);
        }
        // The model itself knows the text of a control token. Cut it after its first character.
        let mut cuts: Vec<usize> = self
            .specials
            .iter()
            .flat_map(|(_, special)| {
                let first = special.chars().next().map_or(0, char::len_utf8);
                text.match_indices(special.as_str()).map(move |(at, _)| at + first)
            })
            .chain([0, text.len()])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let parts = cuts.windows(2).map(|cut| self.place_raw(&text[cut[0]..cut[1]], start + cut[0]));
        Ok(parts.collect::<Result<Vec<_>>>()?.concat())
    }

    fn invalid(&self, reason: String) -> Error {
        Error::TokenizerInvalid { name: self.name.clone(), reason }
    }

    fn place_raw(&self, text: &str, start: usize) -> Result<Vec<Placed>> {
        let encoding = guarded(&self.name, || self.inner.encode(text, false))?
            .map_err(|source| Error::Foreign { action: "encode this text", source })?;
        limits::check_tokens(encoding.len(), text.len()).map_err(|reason| self.invalid(reason))?;
        // a normalizer out of order may give offsets that are none
        let place = |offset: usize| start + character_start(text.as_bytes(), offset.min(text.len()));
        let starts = encoding.get_offsets().iter().map(|&(offset, _)| place(offset));
        Ok(starts.zip(encoding.get_ids().iter().copied()).collect())
    }
}

/// Control tokens with their texts, save the one for unknown characters, which text may well give.
fn specials(inner: &Tokenizer, file: &Value) -> Vec<(u32, String)> {
    let unknown = file["model"]["unk_token"].as_str().or_else(|| {
        let id = usize::try_from(file["model"]["unk_id"].as_u64()?).ok()?;
        file["model"]["vocab"][id][0].as_str()
    });
    added_tokens(file)
        .iter()
        .filter(|token| token["special"] == true)
        .filter_map(|token| token["content"].as_str())
        .filter(|&content| Some(content) != unknown)
        .filter_map(|content| Some((inner.token_to_id(content)?, content.to_owned())))
        .collect()
}

/// Where to go over from `before` to `after`: indices in both of the first token at or past `boundary`
/// from which [`AGREEING_TOKENS`] tokens are the same, or all that are left of `after` are.
fn seam(before: &[Placed], after: &[Placed], boundary: usize) -> Option<(usize, usize)> {
    let mut taken = after.partition_point(|&(start, _)| start < boundary);
    for kept in before.partition_point(|&(start, _)| start < boundary)..before.len() {
        let (start, _) = before[kept];
        taken += after[taken..].partition_point(|&(other, _)| other < start);
        let count = AGREEING_TOKENS.min(before.len() - kept);
        let enough = count == AGREEING_TOKENS || before.len() - kept == after.len() - taken;
        if enough && after.get(taken..taken + count) == Some(&before[kept..kept + count]) {
            return Some((kept, taken));
        }
    }
    None
}

/// The steps of a decoder: those of a sequence, else itself.
fn decoder_steps(decoder: &Value) -> &[Value] {
    decoder["decoders"].as_array().map_or(std::slice::from_ref(decoder), Vec::as_slice)
}

/// The byte that a token such as `<0xE6>` stands for.
fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// Takes a run of bytes, if there is one, as text.
fn take_text(run: &mut Vec<u8>) -> Option<String> {
    let bytes = std::mem::take(run);
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn only_ids(tokens: &[Placed]) -> Vec<u32> {
    tokens.iter().map(|&(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seam_needs_agreement_in_place_and_id() {
        let before: Vec<Placed> = (0..40).map(|token| (3 * token, token as u32)).collect();
        let mut after = before[10..].to_vec();
        after.insert(0, (29, 999));
        assert_eq!(seam(&before, &after, 60), Some((20, 11)));
        // the same ids one place further on are another text
        let shifted: Vec<Placed> = after.iter().map(|&(start, id)| (start + 1, id)).collect();
        assert_eq!(seam(&before, &shifted, 60), None);
    }

    #[test]
    fn near_the_end_all_that_is_left_must_agree() {
        let before: Vec<Placed> = (0..10).map(|token| (token, 7)).collect();
        assert_eq!(seam(&before, &before[5..], 6), Some((6, 1)));
        assert_eq!(seam(&before, &[(6, 7), (7, 7), (8, 7), (9, 8)], 6), None);
    }
}
