//! Byte-level BPE encoding: pieces of text to merged tokens.
//!
//! Ids equal those of the `tokenizers` crate, at several times its speed and a small part of its memory:
//! it keeps offsets and a string for every token, which a corpus of gigabytes has no room for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::split::Splitter;

/// Pieces up to this many bytes are remembered; longer ones hardly ever come twice.
const CACHED_PIECE_BYTES: usize = 64;
/// Pieces that one thread remembers, about 10 MB at most.
const CACHED_PIECES: usize = 100_000;
/// A symbol that was merged into its left neighbour, or no neighbour.
const NONE: u32 = u32::MAX;

/// Two neighbouring ids.
pub(crate) type Pair = (u32, u32);

#[derive(Debug, Clone, Copy)]
struct Merge {
    rank: u32,
    id: u32,
}

/// Encodes text with a fixed list of merges.
#[derive(Debug)]
pub(crate) struct BpeEncoder {
    splitter: Splitter,
    byte_ids: Box<[u32; 256]>,
    merges: HashMap<Pair, Merge>,
    id_by_rank: Vec<u32>,
    /// Caches at rest; a thread takes one for a chunk and puts it back.
    caches: Mutex<Vec<Cache>>,
}

/// Pieces seen and where their ids stand.
#[derive(Debug, Default)]
struct Cache {
    places: HashMap<Box<[u8]>, (usize, usize)>,
    ids: Vec<u32>,
    work: Work,
}

/// Buffers of one piece being merged: a linked list of symbols and the merges that apply.
#[derive(Debug, Default)]
struct Work {
    ids: Vec<u32>,
    left: Vec<u32>,
    right: Vec<u32>,
    /// By rank, then from the left: the order in which merges are made.
    heap: BinaryHeap<Reverse<(u32, u32)>>,
}

impl BpeEncoder {
    /// `byte_ids` is the id of each byte; `merges` are pairs with the id they become, best first.
    pub(crate) fn new(
        byte_ids: Box<[u32; 256]>,
        merges: impl IntoIterator<Item = (Pair, u32)>,
    ) -> Result<Self> {
        let mut encoder = Self {
            splitter: Splitter::new()?,
            byte_ids,
            merges: HashMap::new(),
            id_by_rank: Vec::new(),
            caches: Mutex::new(Vec::new()),
        };
        for (pair, id) in merges {
            let rank = encoder.id_by_rank.len() as u32;
            // a pair listed twice counts by its last place, as in the crate
            encoder.merges.insert(pair, Merge { rank, id });
            encoder.id_by_rank.push(id);
        }
        Ok(encoder)
    }

    /// Appends the ids of a text.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let mut cache = self.lock().pop().unwrap_or_default();
        // a clone has its own scratch space, which threads would otherwise wait for
        let splitter = self.splitter.clone();
        for piece in splitter.pieces(text) {
            self.encode_piece(piece.as_bytes(), &mut cache, ids);
        }
        self.lock().push(cache);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Cache>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn encode_piece(&self, piece: &[u8], cache: &mut Cache, ids: &mut Vec<u32>) {
        if let [byte] = piece {
            return ids.push(self.byte_ids[usize::from(*byte)]);
        }
        if let Some(&(start, end)) = cache.places.get(piece) {
            return ids.extend_from_slice(&cache.ids[start..end]);
        }
        let first = ids.len();
        self.merge(piece, &mut cache.work, ids);
        if piece.len() <= CACHED_PIECE_BYTES && cache.places.len() < CACHED_PIECES {
            let start = cache.ids.len();
            cache.ids.extend_from_slice(&ids[first..]);
            cache.places.insert(piece.into(), (start, cache.ids.len()));
        }
    }

    /// Merges the bytes of a piece, best pair first, until no pair has a merge.
    fn merge(&self, piece: &[u8], work: &mut Work, ids: &mut Vec<u32>) {
        let len = piece.len() as u32;
        work.ids.clear();
        work.ids.extend(piece.iter().map(|&byte| self.byte_ids[usize::from(byte)]));
        work.left.clear();
        work.left.extend((0..len).map(|at| at.wrapping_sub(1)));
        work.right.clear();
        work.right.extend(1..len);
        work.right.push(NONE);
        for at in 0..len - 1 {
            self.offer(work, at, at + 1);
        }
        while let Some(Reverse((rank, at))) = work.heap.pop() {
            let right = work.right[at as usize];
            if work.ids[at as usize] == NONE || right == NONE {
                continue;
            }
            let id = self.id_by_rank[rank as usize];
            let pair = (work.ids[at as usize], work.ids[right as usize]);
            // The neighbours may have changed since. What counts is the token they become, not the rank,
            // when two pairs become the same token: so the crate has it, and ids must be equal.
            if self.merges.get(&pair).is_none_or(|merge| merge.id != id) {
                continue;
            }
            let after = work.right[right as usize];
            work.ids[at as usize] = id;
            work.ids[right as usize] = NONE;
            work.right[at as usize] = after;
            if after != NONE {
                work.left[after as usize] = at;
                self.offer(work, at, after);
            }
            let before = work.left[at as usize];
            if before != NONE {
                self.offer(work, before, at);
            }
        }
        ids.extend(work.ids.iter().filter(|&&id| id != NONE));
    }

    fn offer(&self, work: &mut Work, left: u32, right: u32) {
        let pair = (work.ids[left as usize], work.ids[right as usize]);
        if let Some(merge) = self.merges.get(&pair) {
            work.heap.push(Reverse((merge.rank, left)));
        }
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
}
