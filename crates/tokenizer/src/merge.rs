//! Merging the symbols of a piece: best pair first, among equals the leftmost, until no pair has a merge.
//!
//! A short piece is searched anew after each merge. A long one, such as a line of DNA, keeps the places of
//! each merge in a list, so that it is gone through in nearly linear time. Tests hold both equal to the crate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::piece::FastMap;

/// Symbols up to which searching them anew is quicker than keeping lists.
const SHORT_SYMBOLS: usize = 64;
/// No merge, no neighbour, or a symbol that was merged into its left neighbour.
const NONE: u32 = u32::MAX;

/// Two neighbouring ids.
pub(crate) type Pair = (u32, u32);

/// The merges of a vocabulary.
#[derive(Debug)]
pub(crate) struct Merges {
    rank_by_pair: FastMap<Pair, u32>,
    id_by_rank: Vec<u32>,
}

/// Buffers of one piece being merged.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The rank of each symbol with the next.
    ranks: Vec<u32>,
    symbols: Vec<Symbol>,
    queue: Queue,
}

/// A symbol in a linked list; it is found by the place where it starts.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    id: u32,
    /// Of the merge with the next; a symbol that was merged into its left neighbour has none.
    rank: u32,
    left: u32,
    right: u32,
}

/// Places where a merge may be made, by rank.
#[derive(Debug, Default)]
struct Queue {
    places: Vec<Vec<u32>>,
    /// The ranks that have places.
    waiting: BinaryHeap<Reverse<u32>>,
    /// Lists begun and not ended, each of a smaller rank than the one before it.
    open: Vec<(u32, std::vec::IntoIter<u32>)>,
}

impl Merges {
    /// Takes pairs with the id that they become, best first.
    pub(crate) fn new(merges: impl IntoIterator<Item = (Pair, u32)>) -> Self {
        let mut all = Self { rank_by_pair: FastMap::default(), id_by_rank: Vec::new() };
        for (pair, id) in merges {
            // a pair listed twice counts by its last place, as in the crate
            all.rank_by_pair.insert(pair, all.id_by_rank.len() as u32);
            all.id_by_rank.push(id);
        }
        all
    }

    /// Merges the symbols from `first` on.
    pub(crate) fn apply(&self, ids: &mut Vec<u32>, first: usize, work: &mut Work) {
        if ids.len() - first <= SHORT_SYMBOLS {
            self.apply_short(ids, first, &mut work.ranks);
        } else {
            self.apply_long(ids, first, work);
        }
    }

    fn apply_short(&self, ids: &mut Vec<u32>, first: usize, ranks: &mut Vec<u32>) {
        ranks.clear();
        ranks.extend(ids[first..].windows(2).map(|pair| self.rank((pair[0], pair[1]))));
        // of several smallest the first is found
        while let Some((at, &best)) = ranks.iter().enumerate().min_by_key(|&(_, rank)| rank)
            && best != NONE
        {
            let place = first + at;
            ids[place] = self.id_by_rank[best as usize];
            ids.remove(place + 1);
            ranks.remove(at);
            if let Some(before) = at.checked_sub(1) {
                ranks[before] = self.rank((ids[place - 1], ids[place]));
            }
            if let Some(rank) = ranks.get_mut(at) {
                *rank = self.rank((ids[place], ids[place + 1]));
            }
        }
    }

    fn apply_long(&self, ids: &mut Vec<u32>, first: usize, work: &mut Work) {
        let Work { symbols, queue, .. } = work;
        symbols.clear();
        symbols.extend((0..).zip(ids.drain(first..)).map(|(at, id): (u32, u32)| Symbol {
            id,
            rank: NONE,
            left: at.wrapping_sub(1),
            right: at + 1,
        }));
        queue.places.resize_with(self.id_by_rank.len(), Vec::new);
        for at in 0..symbols.len() as u32 {
            self.rank_with_next(symbols, at, queue);
        }
        while let Some((rank, at)) = queue.next() {
            let Symbol { rank: now, left, right, .. } = symbols[at as usize];
            // the neighbours may have changed since
            if now != rank {
                continue;
            }
            let after = symbols[right as usize].right;
            symbols[right as usize].rank = NONE;
            symbols[at as usize] =
                Symbol { id: self.id_by_rank[rank as usize], rank: NONE, left, right: after };
            if let Some(after) = symbols.get_mut(after as usize) {
                after.left = at;
            }
            self.rank_with_next(symbols, at, queue);
            self.rank_with_next(symbols, left, queue);
        }
        let mut at = 0;
        while let Some(symbol) = symbols.get(at as usize) {
            ids.push(symbol.id);
            at = symbol.right;
        }
    }

    /// Brings the rank of the symbol at a place up to date, where there is one.
    fn rank_with_next(&self, symbols: &mut [Symbol], at: u32, queue: &mut Queue) {
        let Some(&Symbol { id, right, .. }) = symbols.get(at as usize) else { return };
        let rank = symbols.get(right as usize).map_or(NONE, |next| self.rank((id, next.id)));
        symbols[at as usize].rank = rank;
        if rank != NONE {
            queue.push(rank, at);
        }
    }

    fn rank(&self, pair: Pair) -> u32 {
        self.rank_by_pair.get(&pair).copied().unwrap_or(NONE)
    }
}

impl Queue {
    fn push(&mut self, rank: u32, at: u32) {
        let places = &mut self.places[rank as usize];
        if places.is_empty() {
            self.waiting.push(Reverse(rank));
        }
        places.push(at);
    }

    /// The leftmost place of the smallest rank, which leaves the queue.
    ///
    /// Nothing is pushed for a rank whose list is open: what is made meanwhile has the result of that merge
    /// in it, so it is longer than what that merge takes.
    #[expect(
        clippy::stable_sort_primitive,
        reason = "most is in order already, which the stable sort makes use of"
    )]
    fn next(&mut self) -> Option<(u32, u32)> {
        loop {
            let current = self.open.last().map(|&(rank, _)| rank);
            if let Some(&Reverse(rank)) = self.waiting.peek()
                && current.is_none_or(|current| rank < current)
            {
                self.waiting.pop();
                let mut places = std::mem::take(&mut self.places[rank as usize]);
                places.sort();
                self.open.push((rank, places.into_iter()));
            } else {
                let (rank, places) = self.open.last_mut()?;
                match places.next() {
                    Some(at) => return Some((*rank, at)),
                    None => self.open.pop(),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use tokenizers::Model;
    use tokenizers::models::bpe::BPE;

    type Vocabulary = (Vec<String>, Vec<(usize, usize)>);

    /// a, b, c and what is made by merging two tokens, again and again; where two ways make the same token both
    /// are merges. The merges are in any order.
    fn vocabulary() -> impl Strategy<Value = Vocabulary> {
        let picks =
            prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40);
        let made = picks.prop_map(|picks| {
            let mut tokens = ["a", "b", "c"].map(str::to_owned).to_vec();
            let mut merges = Vec::new();
            for (left, right) in picks {
                let pair = (left.index(tokens.len()), right.index(tokens.len()));
                let token = tokens[pair.0].clone() + &tokens[pair.1];
                if token.len() <= 12 && !merges.contains(&pair) {
                    merges.push(pair);
                    if !tokens.contains(&token) {
                        tokens.push(token);
                    }
                }
            }
            (tokens, merges)
        });
        made.prop_flat_map(|(tokens, merges)| (Just(tokens), Just(merges).prop_shuffle()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn short_and_long_pieces_merge_as_in_the_crate(
            (tokens, merges) in vocabulary(),
            text in "[abc]{1,150}",
        ) {
            let id = |token: &str| tokens.iter().position(|other| other == token).unwrap() as u32;
            let vocab: serde_json::Map<_, _> =
                tokens.iter().map(|token| (token.clone(), id(token).into())).collect();
            let named: Vec<_> = merges.iter().map(|&(left, right)| [&tokens[left], &tokens[right]]).collect();
            let file = json!({ "type": "BPE", "vocab": vocab, "merges": named }).to_string();
            let theirs: BPE = serde_json::from_str(&file).unwrap();
            let expected: Vec<u32> = theirs.tokenize(&text).unwrap().iter().map(|token| token.id).collect();

            let ours = Merges::new(merges.iter().map(|&(left, right)| {
                ((left as u32, right as u32), id(&(tokens[left].clone() + &tokens[right])))
            }));
            let symbols: Vec<u32> = text.chars().map(|character| id(&character.to_string())).collect();
            // what is before the piece stays, and the buffers may have been used
            let before = [7, 8];
            let (whole, expected) = ([&before, &symbols[..]].concat(), [&before, &expected[..]].concat());
            let mut work = Work::default();
            for _ in 0..2 {
                let [mut short, mut long, mut either] = [whole.clone(), whole.clone(), whole.clone()];
                ours.apply_short(&mut short, 2, &mut work.ranks);
                ours.apply_long(&mut long, 2, &mut work);
                ours.apply(&mut either, 2, &mut work);
                prop_assert_eq!(&short, &expected);
                prop_assert_eq!(&long, &expected);
                prop_assert_eq!(&either, &expected);
            }
        }
    }
}
