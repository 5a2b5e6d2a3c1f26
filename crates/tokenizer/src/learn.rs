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
use std::collections::{BinaryHeap, HashMap};

use crate::alphabet::BYTES_IN_ORDER;
use crate::bpe::Pair;

/// A pair must occur this often to be merged; a token for what occurs once only memorises it.
const LEAST_COUNT: u64 = 2;

/// A learned vocabulary: the 256 bytes, then one token for each merge that makes a new one.
#[derive(Debug)]
pub(crate) struct Learned {
    /// The bytes of each token, by id.
    pub(crate) tokens: Vec<Vec<u8>>,
    /// The pairs to merge, best first.
    pub(crate) merges: Vec<Pair>,
}

/// Learns merges from counted pieces until there are `vocab_size` tokens or no pair is left.
pub(crate) fn learn(
    pieces: &[(Box<[u8]>, u64)],
    vocab_size: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Learned {
    let mut learned =
        Learned { tokens: BYTES_IN_ORDER.iter().map(|&byte| vec![byte]).collect(), merges: Vec::new() };
    let mut ids: HashMap<Vec<u8>, u32> = learned.tokens.iter().cloned().zip(0..).collect();
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
    counts: HashMap<Pair, u64>,
    /// Words in which a pair came up; it may since have gone from some.
    places: HashMap<Pair, Vec<u32>>,
    /// Most frequent first, then the smaller ids; a count may be out of date.
    heap: BinaryHeap<(u64, Reverse<Pair>)>,
}

#[derive(Clone, Copy)]
struct Word {
    start: usize,
    len: usize,
    count: u64,
}

impl Corpus {
    fn new(pieces: &[(Box<[u8]>, u64)]) -> Self {
        let mut ids = [0; 256];
        for (id, &byte) in (0..).zip(&BYTES_IN_ORDER) {
            ids[usize::from(byte)] = id;
        }
        let mut all = Self {
            symbols: Vec::with_capacity(pieces.iter().map(|(piece, _)| piece.len()).sum()),
            words: Vec::with_capacity(pieces.len()),
            counts: HashMap::new(),
            places: HashMap::new(),
            heap: BinaryHeap::new(),
        };
        for (piece, count) in pieces {
            let word = Word { start: all.symbols.len(), len: piece.len(), count: *count };
            all.symbols.extend(piece.iter().map(|&byte| ids[usize::from(byte)]));
            for pair in all.symbols[word.start..].windows(2).map(|pair| (pair[0], pair[1])) {
                *all.counts.entry(pair).or_default() += word.count;
                note_place(&mut all.places, pair, all.words.len() as u32);
            }
            all.words.push(word);
        }
        all.heap = all.counts.iter().map(|(&pair, &count)| (count, Reverse(pair))).collect();
        all
    }

    /// Takes the pair with the highest count; among equals the smallest.
    fn most_frequent(&mut self) -> Option<Pair> {
        while let Some((count, Reverse(pair))) = self.heap.pop() {
            let now = self.counts.get(&pair).copied().unwrap_or(0);
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
        let mut changes: HashMap<Pair, i64> = HashMap::new();
        for place in self.places.remove(&pair).unwrap_or_default() {
            let Word { start, len, count } = self.words[place as usize];
            let symbols = &mut self.symbols[start..start + len];
            let mut change = |pair: Pair, by: i64| {
                *changes.entry(pair).or_default() += by * count as i64;
                if by > 0 {
                    note_place(&mut self.places, pair, place);
                }
            };
            let (mut read, mut written) = (0, 0);
            while read < len {
                let symbol = symbols[read];
                if symbol != pair.0 || symbols.get(read + 1) != Some(&pair.1) {
                    symbols[written] = symbol;
                    (read, written) = (read + 1, written + 1);
                    continue;
                }
                // … before [pair.0 pair.1] after …  becomes  … before [id] after …
                change(pair, -1);
                if written > 0 {
                    let before = symbols[written - 1];
                    change((before, pair.0), -1);
                    change((before, id), 1);
                }
                if let Some(&after) = symbols.get(read + 2) {
                    change((pair.1, after), -1);
                    change((id, after), 1);
                }
                symbols[written] = id;
                (read, written) = (read + 2, written + 1);
            }
            self.words[place as usize].len = written;
        }
        for (pair, by) in changes.into_iter().filter(|&(_, by)| by != 0) {
            let count = self.counts.entry(pair).or_default();
            *count = count.saturating_add_signed(by);
            if *count == 0 {
                self.counts.remove(&pair);
            } else if by > 0 {
                self.heap.push((*count, Reverse(pair)));
            }
        }
    }
}

/// Adds a word to the index of a pair, once: words are gone through in order.
fn note_place(places: &mut HashMap<Pair, Vec<u32>>, pair: Pair, word: u32) {
    let words = places.entry(pair).or_default();
    if words.last() != Some(&word) {
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alphabet;
    use proptest::prelude::*;
    use tokenizers::models::bpe::{BPE, BpeTrainer};
    use tokenizers::{Model, Trainer};

    const PROSE: &str = "The miller's dog did not cross the mill stream because it was too wide, and the \
        miller's cat did not cross it because she was too proud. On the other bank the other miller's \
        dog, who was neither wide nor proud, watched the two of them watching the stream. 'Why don't \
        they swim?' thought the other dog. 'The water is cold in the morning, but it's warmer in the \
        evening, and they'll have waited through the morning, the noon and the evening before they \
        think of swimming.' In 1911, or 1912, the two mills burned; the stream stayed where it was.\n";

    fn counted(words: &[(&str, u64)]) -> Vec<(Box<[u8]>, u64)> {
        words.iter().map(|&(word, count)| (word.as_bytes().into(), count)).collect()
    }

    fn spelled(learned: &Learned) -> Vec<String> {
        learned.tokens[256..].iter().map(|token| String::from_utf8_lossy(token).into_owned()).collect()
    }

    #[test]
    fn the_most_frequent_pair_is_merged_first() {
        // Sennrich et al. 2016, section 3.2, without their end-of-word mark
        let words = counted(&[("low", 5), ("lower", 2), ("newest", 6), ("widest", 3)]);
        let learned = learn(&words, 256 + 4, &mut |_, _| ());
        // es and st occur 9 times each: the pair with the smaller ids, (e, s), comes first
        assert_eq!(spelled(&learned), ["es", "est", "lo", "low"]);
    }

    #[test]
    fn learning_stops_when_no_pair_occurs_twice() {
        assert_eq!(spelled(&learn(&counted(&[("abcab", 1)]), 5000, &mut |_, _| ())), ["ab"]);
        assert_eq!(spelled(&learn(&counted(&[("   \n", 1)]), 5000, &mut |_, _| ())), ["  "]);
        assert!(learn(&counted(&[("a", 9)]), 5000, &mut |_, _| ()).merges.is_empty());
    }

    #[test]
    fn a_run_of_one_letter_doubles() {
        let learned = learn(&counted(&[(&"a".repeat(64), 1)]), 5000, &mut |_, _| ());
        assert_eq!(spelled(&learned), ["aa", "aaaa", "aaaaaaaa", &"a".repeat(16), &"a".repeat(32)]);
    }

    /// The counts after a merge equal those counted anew.
    fn assert_counts_hold(words: &Corpus) {
        let mut fresh: HashMap<Pair, u64> = HashMap::new();
        for word in &words.words {
            for pair in words.symbols[word.start..word.start + word.len].windows(2) {
                *fresh.entry((pair[0], pair[1])).or_default() += word.count;
            }
        }
        assert_eq!(words.counts, fresh);
    }

    proptest! {
        #[test]
        fn counts_stay_exact_and_every_merge_is_a_most_frequent_pair(
            pieces in prop::collection::btree_map("[abc]{1,12}", 1u64..9, 1..12),
        ) {
            let counted: Vec<_> =
                pieces.iter().map(|(piece, &count)| (piece.as_bytes().into(), count)).collect();
            let mut words = Corpus::new(&counted);
            let mut id = 256;
            while let Some(pair) = words.most_frequent() {
                prop_assert_eq!(Some(&words.counts[&pair]), words.counts.values().max());
                words.merge(pair, id);
                assert_counts_hold(&words);
                id += 1;
            }
            prop_assert!(words.counts.values().all(|&count| count < LEAST_COUNT));
        }
    }

    #[test]
    fn merges_are_those_of_the_trainer_in_the_tokenizers_crate() {
        let splitter = crate::split::Splitter::new().unwrap();
        let mut counts: std::collections::BTreeMap<&[u8], u64> = std::collections::BTreeMap::new();
        for piece in splitter.pieces(PROSE) {
            *counts.entry(piece.as_bytes()).or_default() += 1;
        }
        let counted: Vec<(Box<[u8]>, u64)> =
            counts.into_iter().map(|(piece, count)| (piece.into(), count)).collect();
        let ours = learn(&counted, 400, &mut |_, _| ());

        let mut trainer = BpeTrainer::builder()
            .show_progress(false)
            .min_frequency(LEAST_COUNT)
            .vocab_size(400)
            .initial_alphabet(alphabet::CHARACTERS.into_iter().collect())
            .build();
        let split =
            |text: &str| Ok(splitter.pieces(text).map(|piece| alphabet::spell(piece.as_bytes())).collect());
        trainer.feed(std::iter::once(PROSE), split).unwrap();
        let mut theirs = BPE::default();
        trainer.train(&mut theirs).unwrap();

        assert_eq!(theirs.get_vocab_size(), ours.tokens.len());
        for (id, token) in (0..).zip(&ours.tokens) {
            assert_eq!(theirs.id_to_token(id), Some(alphabet::spell(token)), "id {id}");
        }
    }
}
