//! The masked objective: some tokens of a window are hidden, and the model that sees both ways tells what they were.
//!
//! # Source
//! Devlin et al. 2019, "BERT", section 3.1: of the tokens that are predicted, eight of ten are replaced by the mask, one by
//! a random token, and one is left as it is.

use softdict_kernels::cross_entropy::IGNORE;
use softdict_model::random::{Purpose, Stream};

/// Of ten predicted tokens, how many are hidden; of the others one is replaced and one is left.
const HIDDEN: usize = 8;
const NOT_KEPT: usize = HIDDEN + 1;
/// The seed of what evaluations hide: every one asks the same.
const EVALUATION: u64 = 0;

/// What is hidden, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Masking {
    /// The id that stands for a hidden token; the ids below it are the tokens that there are.
    pub mask: u32,
    /// The share of a window's tokens that is predicted, above 0 and at most 1.
    pub rate: f64,
}

impl Masking {
    /// How many tokens of a window of `time` tokens are predicted: as many in every window, and at least one.
    pub fn predicted(&self, time: usize) -> usize {
        ((time as f64 * self.rate).round() as usize).clamp(1, time.max(1))
    }

    /// Hides tokens of windows of `time` tokens each: `targets` become the hidden tokens, and [`IGNORE`] everywhere else.
    pub fn hide(&self, inputs: &mut [u32], targets: &mut [u32], time: usize, stream: &mut Stream) {
        let mut places: Vec<usize> = Vec::with_capacity(time);
        targets.fill(IGNORE);
        for (inputs, targets) in inputs.chunks_mut(time.max(1)).zip(targets.chunks_mut(time.max(1))) {
            places.clear();
            places.extend(0..inputs.len());
            for chosen in 0..self.predicted(inputs.len()) {
                // the first steps of a shuffle, from the front
                places.swap(chosen, chosen + stream.below(inputs.len() - chosen));
                let place = places[chosen];
                targets[place] = inputs[place];
                match stream.below(10) {
                    0..HIDDEN => inputs[place] = self.mask,
                    HIDDEN..NOT_KEPT => inputs[place] = stream.below(self.mask as usize) as u32,
                    _ => {}
                }
            }
        }
    }

    /// As [`Masking::hide`], for evaluation: what is hidden depends on `first` alone, the window's place in the text.
    pub fn hide_for_evaluation(&self, inputs: &mut [u32], targets: &mut [u32], first: usize) {
        // far above the passes of training, which count from 0
        let mut stream = Stream::new(EVALUATION, Purpose::Masking, (1 << 55) + first as u64);
        let time = inputs.len();
        self.hide(inputs, targets, time, &mut stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: u32 = 50;
    const BERT: Masking = Masking { mask: MASK, rate: 0.15 };
    const TIME: usize = 20;

    fn hidden(windows: usize, seed: u64) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let ids: Vec<u32> = (0..(windows * TIME) as u32).map(|id| id % MASK).collect();
        let (mut inputs, mut targets) = (ids.clone(), vec![0; ids.len()]);
        BERT.hide(&mut inputs, &mut targets, TIME, &mut Stream::new(seed, Purpose::Masking, 0));
        (ids, inputs, targets)
    }

    #[test]
    fn every_window_is_asked_for_as_many_tokens_and_the_rest_is_as_it_was() {
        let (ids, inputs, targets) = hidden(400, 1);
        for window in targets.chunks(TIME) {
            assert_eq!(window.iter().filter(|&&target| target != IGNORE).count(), 3);
        }
        for ((&id, &input), &target) in ids.iter().zip(&inputs).zip(&targets) {
            assert!(if target == IGNORE { input == id } else { target == id && input <= MASK });
        }
        assert_eq!([1, 2, 64].map(|time| BERT.predicted(time)), [1, 1, 10]);
        assert_eq!([1, 2, 64].map(|time| Masking { rate: 1.0, ..BERT }.predicted(time)), [1, 2, 64]);
    }

    #[test]
    fn of_ten_predicted_tokens_eight_are_hidden_one_is_replaced_and_every_place_comes() {
        let (ids, inputs, targets) = hidden(2000, 2);
        let asked: Vec<usize> = (0..ids.len()).filter(|&at| targets[at] != IGNORE).collect();
        let share = |found: usize| found as f64 / asked.len() as f64;
        let masked = share(asked.iter().filter(|&&at| inputs[at] == MASK).count());
        let kept = share(asked.iter().filter(|&&at| inputs[at] == ids[at]).count());
        // of 6,000 draws, standard deviations of 0.005 and 0.004; a random token is the same one time in fifty
        assert!((masked - 0.8).abs() < 0.03 && (kept - 0.102).abs() < 0.024, "{masked} {kept}");
        for place in 0..TIME {
            let count = asked.iter().filter(|&&at| at % TIME == place).count();
            assert!(count.abs_diff(300) < 100, "{place}: {count}");
        }
    }

    #[test]
    fn an_evaluation_asks_the_same_each_time_and_another_window_for_other_places() {
        let ask = |first| {
            let (mut inputs, mut targets) = ((0..TIME as u32).collect::<Vec<_>>(), vec![0; TIME]);
            BERT.hide_for_evaluation(&mut inputs, &mut targets, first);
            (inputs, targets)
        };
        assert_eq!(ask(40), ask(40));
        assert_ne!(ask(40), ask(60));
    }
}
