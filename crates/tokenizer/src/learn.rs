//! Learning BPE merges: again and again, join the pair of neighbours that occurs most often.
//!
//! The `tokenizers` crate has a trainer too, and a test holds this one equal to it. Ours is used because
//! the crate's takes time quadratic in the length of a piece (a line of 2 MB without spaces never ends),
//! shows no progress that a caller could print, and where two pairs make the same token may list a merge
//! twice in an order that depends on the hash seed of the process.
//!
//! # Source
//! Sennrich, Haddow, Birch 2016, arXiv:1508.07909, algorithm 1.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;

use crate::alphabet::BYTES_IN_ORDER;
use crate::merge::Pair;
use crate::piece::{FastMap, PieceMap};

/// A pair must occur this often to be merged; a token for what occurs once only memorises it.
const LEAST_COUNT: u64 = 2;
/// Words that are fetched from memory together.
const NEAR: usize = 32;

/// A learned vocabulary: the 256 bytes, then one token for each merge that makes a new one.
#[derive(Debug)]
pub(crate) struct Learned {
    /// The bytes of each token, by id.
    pub(crate) tokens: Vec<Vec<u8>>,
    /// The pairs to merge, best first.
    pub(crate) merges: Vec<Pair>,
}

/// Learns merges from counted pieces until there are `vocab_size` tokens or no pair is left.
pub(crate) fn learn(pieces: PieceMap<u64>, vocab_size: usize, progress: &mut dyn FnMut(u64, u64)) -> Learned {
    let mut learned =
        Learned { tokens: BYTES_IN_ORDER.iter().map(|&byte| vec![byte]).collect(), merges: Vec::new() };
    let mut ids: FastMap<Vec<u8>, u32> = learned.tokens.iter().cloned().zip(0..).collect();
    let mut words = Corpus::new(pieces);
    let total = vocab_size.saturating_sub(learned.tokens.len()) as u64;
    progress(0, total);
    while learned.tokens.len() < vocab_size {
        let Some(pair) = words.most_frequent() else { break };
        let token = [pair.0, pair.1].map(|id| learned.tokens[id as usize].as_slice()).concat();
        // two ways to the same token, "t he" and "th e", are two merges and one id
        let id = *ids.entry(token).or_insert_with_key(|token| {
            learned.tokens.push(token.clone());
            learned.tokens.len() as u32 - 1
        });
        learned.merges.push(pair);
        words.merge(pair, id);
        if learned.merges.len().is_multiple_of(64) {
            progress(learned.tokens.len() as u64 - 256, total);
        }
    }
    progress(total, total);
    learned
}

/// All pieces as symbols, with an index from each pair to the words that have it.
struct Corpus {
    /// The symbols of all words, end to end; a merge shortens a word in its place.
    symbols: Vec<u32>,
    words: Vec<Word>,
    pairs: FastMap<Pair, Occurrences>,
    /// Most frequent first, then the smaller ids; a count may be out of date.
    heap: BinaryHeap<(u64, Reverse<Pair>)>,
    /// What a merge does to the pairs at its left and its right.
    left: Neighbours,
    right: Neighbours,
}

#[derive(Clone, Copy)]
struct Word {
    start: u32,
    len: u32,
    count: u64,
}

/// Where a pair is.
#[derive(Debug, Clone, Default)]
struct Occurrences {
    count: u64,
    /// Words in which the pair came up; it may since have gone from some.
    words: Vec<u32>,
}

impl Occurrences {
    /// Adds one in a word; words are gone through in order, and each is listed once.
    fn add(&mut self, word: u32, count: u64) {
        self.count += count;
        if self.words.last() != Some(&word) {
            self.words.push(word);
        }
    }
}

/// Occurrences by the symbol beside a merge.
///
/// A merge touches few symbols many times each, so they are added up here and reach the table of pairs once.
#[derive(Default)]
struct Neighbours {
    by_symbol: Vec<Occurrences>,
    seen: Vec<u32>,
}

impl Neighbours {
    fn add(&mut self, symbol: u32, word: u32, count: u64) {
        let index = symbol as usize;
        if index >= self.by_symbol.len() {
            self.by_symbol.resize(index + 1, Occurrences::default());
        }
        let found = &mut self.by_symbol[index];
        if found.count == 0 {
            self.seen.push(symbol);
        }
        found.add(word, count);
    }

    /// Empties it.
    fn take(&mut self) -> Vec<(u32, Occurrences)> {
        let Self { by_symbol, seen } = self;
        seen.drain(..).map(|symbol| (symbol, std::mem::take(&mut by_symbol[symbol as usize]))).collect()
    }
}

impl Corpus {
    fn new(pieces: PieceMap<u64>) -> Self {
        let mut ids = [0; 256];
        for (id, &byte) in (0..).zip(&BYTES_IN_ORDER) {
            ids[usize::from(byte)] = id;
        }
        let mut symbols = Vec::with_capacity(pieces.iter().map(|(piece, _)| piece.len()).sum());
        let mut words = Vec::with_capacity(pieces.len());
        let mut pairs = vec![Occurrences::default(); 1 << 16];
        for (piece, &count) in pieces.iter() {
            let word = Word { start: symbols.len() as u32, len: piece.len() as u32, count };
            symbols.extend(piece.bytes().iter().map(|&byte| ids[usize::from(byte)]));
            for pair in symbols[word.start as usize..].windows(2) {
                pairs[(pair[0] << 8 | pair[1]) as usize].add(words.len() as u32, count);
            }
            words.push(word);
        }
        drop(pieces);
        let pairs: FastMap<Pair, Occurrences> = (0..)
            .zip(pairs)
            .filter(|(_, found)| found.count > 0)
            .map(|(index, found)| ((index >> 8, index & 0xFF), found))
            .collect();
        let heap = pairs.iter().map(|(&pair, found)| (found.count, Reverse(pair))).collect();
        Self { symbols, words, pairs, heap, left: Neighbours::default(), right: Neighbours::default() }
    }

    /// Takes the pair with the highest count; among equals the smallest.
    fn most_frequent(&mut self) -> Option<Pair> {
        while let Some((count, Reverse(pair))) = self.heap.pop() {
            let now = self.pairs.get(&pair).map_or(0, |found| found.count);
            if now == count {
                return (count >= LEAST_COUNT).then_some(pair);
            }
            // a count that grew has an entry of its own since then
            if now < count && now >= LEAST_COUNT {
                self.heap.push((now, Reverse(pair)));
            }
        }
        None
    }

    /// Replaces `pair` by `id` in every word and brings counts and index up to date.
    fn merge(&mut self, pair: Pair, id: u32) {
        let Some(found) = self.pairs.get_mut(&pair) else { return };
        let places = std::mem::take(&mut found.words);
        let merged = places.chunks(NEAR).map(|places| self.merge_in(places, pair, id)).sum();
        let (left, right) = (self.left.take(), self.right.take());
        let lost = left.iter().map(|(before, found)| ((*before, pair.0), found.count));
        let lost = lost.chain(right.iter().map(|(after, found)| ((pair.1, *after), found.count)));
        let lost: Vec<(Pair, u64)> = lost.chain([(pair, merged)]).collect();
        let gained = left.into_iter().map(|(before, found)| ((before, id), found));
        // gains first: what a pair gains on one side it may lose on the other, and no count goes below zero
        for (pair, found) in gained.chain(right.into_iter().map(|(after, found)| ((id, after), found))) {
            self.gain(pair, found);
        }
        for (pair, count) in lost {
            self.lose(pair, count);
        }
    }

    /// Replaces `pair` by `id` in some words; gives the number of times.
    fn merge_in(&mut self, places: &[u32], pair: Pair, id: u32) -> u64 {
        let Self { symbols, words, left, right, .. } = self;
        // words lie anywhere: asked for at once, they come from memory in the time of one
        let first = |&place: &u32| symbols[words[place as usize].start as usize];
        std::hint::black_box(places.iter().map(first).max());
        let mut merged = 0;
        for &place in places {
            let Word { start, len, count } = words[place as usize];
            let symbols = &mut symbols[start as usize..][..len as usize];
            let (mut read, mut written) = (0, 0);
            while let Some(&symbol) = symbols.get(read) {
                let mut width = 1;
                symbols[written] = symbol;
                if symbol == pair.0 && symbols.get(read + 1) == Some(&pair.1) {
                    // … before [pair.0 pair.1] after …  becomes  … before [id] after …
                    width = 2;
                    symbols[written] = id;
                    merged += count;
                    if let Some(before) = written.checked_sub(1) {
                        left.add(symbols[before], place, count);
                    }
                    if let Some(&after) = symbols.get(read + 2) {
                        right.add(after, place, count);
                    }
                }
                (read, written) = (read + width, written + 1);
            }
            words[place as usize].len = written as u32;
        }
        merged
    }

    fn gain(&mut self, pair: Pair, found: Occurrences) {
        let all = self.pairs.entry(pair).or_default();
        all.count += found.count;
        if all.words.is_empty() {
            all.words = found.words;
        } else {
            all.words.extend(found.words);
        }
        self.heap.push((all.count, Reverse(pair)));
    }

    fn lose(&mut self, pair: Pair, count: u64) {
        if let Entry::Occupied(mut all) = self.pairs.entry(pair) {
            all.get_mut().count -= count;
            if all.get().count == 0 {
                all.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alphabet;
    use crate::piece::Piece;
    use proptest::prelude::*;
    use tokenizers::models::bpe::{BPE, BpeTrainer};
    use tokenizers::{Model, Trainer};

    const PROSE: &str = "The miller's dog did not cross the mill stream because it was too wide, and the \
        miller's cat did not cross it because she was too proud. On the other bank the other miller's \
        dog, who was neither wide nor proud, watched the two of them watching the stream. 'Why don't \
        they swim?' thought the other dog. 'The water is cold in the morning, but it's warmer in the \
        evening, and they'll have waited through the morning, the noon and the evening before they \
        think of swimming.' In 1911, or 1912, the two mills burned; the stream stayed where it was.\n";

    fn counted<'w>(words: impl IntoIterator<Item = (&'w str, u64)>) -> PieceMap<u64> {
        let mut pieces = PieceMap::default();
        for (word, count) in words {
            pieces.add(Piece::of(word.as_bytes(), 0..word.len()), count);
        }
        pieces
    }

    fn spelled(learned: &Learned) -> Vec<String> {
        learned.tokens[256..].iter().map(|token| String::from_utf8_lossy(token).into_owned()).collect()
    }

    #[test]
    fn the_most_frequent_pair_is_merged_first() {
        // Sennrich et al. 2016, section 3.2, without their end-of-word mark
        let words = counted([("low", 5), ("lower", 2), ("newest", 6), ("widest", 3)]);
        let learned = learn(words, 256 + 4, &mut |_, _| ());
        // es and st occur 9 times each: the pair with the smaller ids, (e, s), comes first
        assert_eq!(spelled(&learned), ["es", "est", "lo", "low"]);
    }

    #[test]
    fn learning_stops_when_no_pair_occurs_twice() {
        assert_eq!(spelled(&learn(counted([("abcab", 1)]), 5000, &mut |_, _| ())), ["ab"]);
        assert_eq!(spelled(&learn(counted([("   \n", 1)]), 5000, &mut |_, _| ())), ["  "]);
        assert!(learn(counted([("a", 9)]), 5000, &mut |_, _| ()).merges.is_empty());
    }

    #[test]
    fn a_run_of_one_letter_doubles() {
        let learned = learn(counted([("a".repeat(64).as_str(), 1)]), 5000, &mut |_, _| ());
        assert_eq!(spelled(&learned), ["aa", "aaaa", "aaaaaaaa", &"a".repeat(16), &"a".repeat(32)]);
    }

    /// The counts after a merge equal those counted anew.
    fn assert_counts_hold(words: &Corpus) {
        let mut fresh: FastMap<Pair, u64> = FastMap::default();
        for word in &words.words {
            for pair in words.symbols[word.start as usize..][..word.len as usize].windows(2) {
                *fresh.entry((pair[0], pair[1])).or_default() += word.count;
            }
        }
        let counts = words.pairs.iter().map(|(&pair, found)| (pair, found.count)).collect();
        assert_eq!(fresh, counts);
    }

    proptest! {
        #[test]
        fn counts_stay_exact_and_every_merge_is_a_most_frequent_pair(
            pieces in prop::collection::btree_map("[abc]{1,12}", 1u64..9, 1..12),
        ) {
            let counted = counted(pieces.iter().map(|(piece, &count)| (piece.as_str(), count)));
            let mut words = Corpus::new(counted);
            let mut id = 256;
            while let Some(pair) = words.most_frequent() {
                let best = words.pairs.iter().max_by_key(|(pair, found)| (found.count, Reverse(**pair)));
                prop_assert_eq!(Some(&pair), best.map(|(pair, _)| pair));
                words.merge(pair, id);
                assert_counts_hold(&words);
                id += 1;
            }
            prop_assert!(words.pairs.values().all(|found| found.count < LEAST_COUNT));
        }
    }

    #[test]
    fn merges_are_those_of_the_trainer_in_the_tokenizers_crate() {
        let splitter = crate::split::Splitter::new().unwrap();
        let ours =
            learn(counted(splitter.pieces(PROSE).map(|piece| (&PROSE[piece], 1))), 400, &mut |_, _| ());

        let mut trainer = BpeTrainer::builder()
            .show_progress(false)
            .min_frequency(LEAST_COUNT)
            .vocab_size(400)
            .initial_alphabet(alphabet::CHARACTERS.into_iter().collect())
            .build();
        let split = |text: &str| {
            Ok(splitter.pieces(text).map(|piece| alphabet::spell(&text.as_bytes()[piece])).collect())
        };
        trainer.feed(std::iter::once(PROSE), split).unwrap();
        let mut theirs = BPE::default();
        trainer.train(&mut theirs).unwrap();

        assert_eq!(theirs.get_vocab_size(), ours.tokens.len());
        for (id, token) in (0..).zip(&ours.tokens) {
            assert_eq!(theirs.id_to_token(id), Some(alphabet::spell(token)), "id {id}");
        }
    }
}
