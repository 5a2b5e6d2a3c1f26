//! Losses that jump out of their recent course: too high a learning rate, or a piece of text unlike the rest.

use serde::{Deserialize, Serialize};

/// Updates that the expected loss remembers.
const MEMORY: f64 = 50.0;
/// A spike is this many standard deviations above the expected loss: of a normal distribution, one in a thousand million.
const DEVIATIONS: f64 = 6.0;

/// The course of a loss, and how often it was left.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spikes {
    /// Losses seen.
    seen: u64,
    /// Exponential mean and variance of the recent ones.
    mean: f64,
    variance: f64,
    /// How many were spikes.
    pub count: u64,
}

impl Spikes {
    /// Takes in a loss; returns what was expected where it is a spike.
    pub fn take(&mut self, loss: f64) -> Option<f64> {
        let (expected, limit) = (self.mean, self.mean + DEVIATIONS * self.variance.sqrt());
        // at first the loss falls, and its deviation is not known
        let is_spike = self.seen as f64 >= MEMORY && loss > limit;
        // a spike moves the course as little as a loss can: were it not counted at all, a higher level would stay one for ever
        let counted = if is_spike { limit } else { loss };
        let share = (1.0 / (self.seen + 1) as f64).max(1.0 / MEMORY);
        let difference = counted - self.mean;
        self.mean += share * difference;
        self.variance = (1.0 - share) * (self.variance + share * difference * difference);
        self.seen += 1;
        self.count += u64::from(is_spike);
        is_spike.then_some(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loss that falls and shakes.
    fn course(step: u32) -> f64 {
        let shake = f64::from(step * 7919 % 101) / 101.0 - 0.5;
        1.5 + 2.5 * (-f64::from(step) / 80.0).exp() + 0.2 * shake
    }

    #[test]
    fn a_falling_loss_has_no_spike_and_a_jump_is_one() {
        let mut spikes = Spikes::default();
        for step in 0..600 {
            assert_eq!(spikes.take(course(step)), None, "{step}");
        }
        let expected = spikes.take(4.0).unwrap();
        assert!((expected - 1.5).abs() < 0.1, "{expected}");
        for step in 600..700 {
            assert_eq!(spikes.take(course(step)), None, "{step}");
        }
        assert_eq!(spikes.count, 1);
    }

    #[test]
    fn a_loss_that_stays_high_is_soon_expected() {
        let mut spikes = Spikes::default();
        (0..600).for_each(|step| assert_eq!(spikes.take(course(step)), None));
        let found: Vec<bool> = (600..900).map(|step| spikes.take(course(step) + 1.0).is_some()).collect();
        assert!(found[0] && !found[100..].contains(&true), "{found:?}");
    }
}
