//! Byte-level BPE encoding: pieces of text to merged tokens.
//!
//! Ids equal those of the `tokenizers` crate, at several times its speed and a small part of its memory:
//! it keeps offsets and a string for every token, which a corpus of gigabytes has no room for.

use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::merge::{Merges, Pair, Work};
use crate::piece::{Piece, PieceMap};
use crate::split::Splitter;

/// Pieces up to this many bytes are remembered; longer ones hardly ever come twice.
const CACHED_PIECE_BYTES: usize = 64;
/// Pieces that one thread remembers: some 10 MB for words, 40 MB for the longest that fit.
const CACHED_PIECES: usize = 100_000;

/// Encodes text with a fixed list of merges.
#[derive(Debug)]
pub(crate) struct BpeEncoder {
    splitter: Splitter,
    byte_ids: Box<[u32; 256]>,
    merges: Merges,
    /// Caches at rest; a thread takes one for a chunk and puts it back.
    caches: Mutex<Vec<Cache>>,
}

/// The ids of pieces seen.
#[derive(Debug, Default)]
struct Cache {
    pieces: PieceMap<Ids>,
    /// Ids of the pieces that have many, end to end.
    ids: Vec<u32>,
    work: Work,
}

/// The ids of a piece: themselves where they are few, else their place in [`Cache::ids`].
#[derive(Debug, Clone, Copy, Default)]
struct Ids {
    len: u32,
    few: [u32; 3],
}

impl BpeEncoder {
    /// `byte_ids` is the id of each byte; `merges` are pairs with the id they become, best first.
    pub(crate) fn new(
        byte_ids: Box<[u32; 256]>,
        merges: impl IntoIterator<Item = (Pair, u32)>,
    ) -> Result<Self> {
        let (splitter, merges) = (Splitter::new()?, Merges::new(merges));
        Ok(Self { splitter, byte_ids, merges, caches: Mutex::new(Vec::new()) })
    }

    /// Appends the ids of a text.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let mut cache = self.lock().pop().unwrap_or_default();
        for range in self.splitter.pieces(text) {
            let bytes = &text.as_bytes()[range.clone()];
            if let [byte] = bytes {
                ids.push(self.byte_ids[usize::from(*byte)]);
                continue;
            }
            let piece = Piece::of(text.as_bytes(), range);
            if let Some(known) = cache.pieces.get(piece) {
                match known.few.get(..known.len as usize) {
                    Some(few) => ids.extend(few),
                    None => ids.extend_from_slice(cache.many(*known)),
                }
                continue;
            }
            let first = ids.len();
            ids.extend(bytes.iter().map(|&byte| self.byte_ids[usize::from(byte)]));
            self.merges.apply(ids, first, &mut cache.work);
            cache.remember(piece, &ids[first..]);
        }
        self.lock().push(cache);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Cache>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn many(&self, known: Ids) -> &[u32] {
        let start = known.few[0] as usize;
        &self.ids[start..start + known.len as usize]
    }

    fn remember(&mut self, piece: Piece<'_>, ids: &[u32]) {
        if piece.len() > CACHED_PIECE_BYTES || self.pieces.len() >= CACHED_PIECES {
            return;
        }
        let mut few = [0; 3];
        if let Some(few) = few.get_mut(..ids.len()) {
            few.copy_from_slice(ids);
        } else {
            few[0] = self.ids.len() as u32;
            self.ids.extend_from_slice(ids);
        }
        self.pieces.insert(piece, Ids { len: ids.len() as u32, few });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// a=97 …; "ab"=256, "bc"=257, "abc"=258 from (ab, c) only.
    fn encoder() -> BpeEncoder {
        let byte_ids = Box::new(std::array::from_fn(|byte| byte as u32));
        let merges = [((97, 98), 256), ((98, 99), 257), ((256, 99), 258)];
        BpeEncoder::new(byte_ids, merges).unwrap()
    }

    fn ids(text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        encoder().encode(text, &mut ids);
        ids
    }

    #[test]
    fn the_best_merge_is_made_first_and_its_result_merges_on() {
        assert_eq!(ids("abc"), [258]);
        assert_eq!(ids("bc"), [257]);
        assert_eq!(ids("abab"), [256, 256]);
        assert_eq!(ids("bbcab"), [98, 257, 256]);
    }

    #[test]
    fn no_merge_crosses_from_one_piece_into_the_next() {
        assert_eq!(ids("a b"), [97, 32, 98]);
        assert_eq!(ids(""), [0; 0]);
    }

    #[test]
    fn a_remembered_piece_gives_the_same_ids_again() {
        assert_eq!(ids("xabc xabc xabc"), [120, 258, 32, 120, 258, 32, 120, 258]);
    }

    /// More different pieces than are remembered, of all lengths, twice each.
    #[test]
    fn what_is_remembered_changes_no_id() {
        let encoder = encoder();
        let words =
            (0..CACHED_PIECES + 5000).map(|n| format!("{n:b} ").replace('0', "bca").replace('1', "ab"));
        let text: String = words.flat_map(|word| [word.clone(), word]).collect();
        let mut expected = Vec::new();
        let mut work = Work::default();
        for piece in encoder.splitter.pieces(&text) {
            let first = expected.len();
            expected.extend(text[piece].bytes().map(u32::from));
            encoder.merges.apply(&mut expected, first, &mut work);
        }
        for _ in 0..2 {
            let mut ids = Vec::new();
            encoder.encode(&text, &mut ids);
            assert!(ids == expected);
        }
        assert_eq!(encoder.lock()[0].pieces.len(), CACHED_PIECES);
    }
}
