//! What the short trainings read: random symbols whose answers stand at known distances, and the tales.

use softdict_corpus::{Part, Tale};
use softdict_kernels::cross_entropy::IGNORE;
use softdict_random::Stream;

/// Different symbols.
pub(super) const SYMBOLS: usize = 6;

/// Random symbols, and at each place the answer is those so many places back, in this order, as one token. Nothing else
/// tells it: a model that knows none of them cannot be below ln 6 nats a symbol.
pub(super) struct Back<'a>(pub(super) &'a [usize]);

impl Back<'_> {
    /// Different answers.
    pub(super) fn answers(&self) -> usize {
        self.0.iter().map(|_| SYMBOLS).product()
    }

    /// The place of the first answer: before it a symbol is missing.
    pub(super) fn first(&self) -> usize {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Draws a sequence and its answers.
    pub(super) fn draw(&self) -> impl Fn(&mut Stream, &mut [u32], &mut [u32]) + Sync + '_ {
        |stream, inputs, targets| {
            inputs.fill_with(|| stream.below(SYMBOLS) as u32);
            for (place, target) in targets.iter_mut().enumerate() {
                let join = |answer, &back: &usize| answer * SYMBOLS as u32 + inputs[place - back];
                *target = if place < self.first() { IGNORE } else { self.0.iter().fold(0, join) };
            }
        }
    }
}

/// A text of the tales, a word or mark a token.
pub(super) struct Tales {
    ids: Vec<u32>,
    /// Words, marks and the end of a line.
    pub(super) vocab_size: usize,
}

impl Tales {
    /// So many lines of the training text; each seed has its own.
    pub(super) fn new(seed: u64, lines: usize) -> Self {
        let mut words = softdict_corpus::vocabulary();
        // sorted, and no word or mark comes before it
        words.insert(0, "\n");
        let mut ids = Vec::new();
        for line in softdict_corpus::lines(Tale::Tales, Part::Training, seed).take(lines) {
            let tokens = line.text.split(' ').chain(["\n"]);
            ids.extend(tokens.filter_map(|word| words.binary_search(&word).ok()).map(|id| id as u32));
        }
        Self { ids, vocab_size: words.len() }
    }

    /// Draws a window that begins anywhere, and the next word at each place.
    pub(super) fn draw(&self) -> impl Fn(&mut Stream, &mut [u32], &mut [u32]) + Sync + '_ {
        |stream, inputs, targets| {
            let time = inputs.len();
            let start = stream.below(self.ids.len().saturating_sub(time));
            for (into, from) in [(inputs, start), (targets, start + 1)] {
                into.copy_from_slice(&self.ids[from..from + time]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_random::Purpose;

    #[test]
    fn an_answer_is_the_symbols_at_its_distances_in_their_order() {
        let back = Back(&[2, 5]);
        let (mut inputs, mut targets) = ([0; 12], [0; 12]);
        back.draw()(&mut Stream::new(1, Purpose::Data, 0), &mut inputs, &mut targets);
        assert_eq!((back.answers(), back.first()), (36, 5));
        assert!(targets[..5].iter().all(|&target| target == IGNORE));
        for place in 5..12 {
            assert_eq!(targets[place], 6 * inputs[place - 2] + inputs[place - 5]);
        }
    }

    #[test]
    fn no_word_of_the_tales_is_left_out_and_targets_are_one_further() {
        let tales = Tales::new(1, 40);
        let words: usize = softdict_corpus::lines(Tale::Tales, Part::Training, 1)
            .take(40)
            .map(|line| line.text.split(' ').count() + 1)
            .sum();
        assert_eq!(tales.ids.len(), words);
        assert_eq!(tales.ids.iter().filter(|&&id| id == 0).count(), 40);
        let (mut inputs, mut targets) = ([0; 9], [0; 9]);
        tales.draw()(&mut Stream::new(1, Purpose::Data, 0), &mut inputs, &mut targets);
        assert_eq!(inputs[1..], targets[..8]);
    }
}
