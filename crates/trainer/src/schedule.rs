//! The learning rate as a pure function of the update's number, so that nothing about it needs saving.

use crate::settings::TrainSettings;
use serde::{Deserialize, Serialize};

/// Course of the learning rate after warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Half a cosine down to the minimum (Loshchilov and Hutter 2017, arXiv:1608.03983).
    Cosine,
    /// A straight line down to the minimum.
    Linear,
    /// The peak throughout.
    Constant,
    /// Warm-up, stable, decay: the peak, then a straight line down at the end (Hu et al. 2024, arXiv:2404.06395).
    Wsd,
}

/// The learning rate of update `step`, counted from 1; above 0 from the first, the peak at the end of warm-up,
/// the minimum where the decay ends and after.
pub fn learning_rate(settings: &TrainSettings, step: u64) -> f64 {
    let (peak, minimum) = (settings.learning_rate, settings.min_learning_rate());
    if step < settings.warmup_steps {
        return peak * step as f64 / settings.warmup_steps as f64;
    }
    let (begin, end) = match settings.schedule {
        Schedule::Constant => return peak,
        Schedule::Cosine | Schedule::Linear => {
            (settings.warmup_steps, settings.decay_steps.unwrap_or(settings.steps))
        }
        Schedule::Wsd => {
            let length = settings.decay_steps.unwrap_or(settings.steps / 5);
            (settings.steps.saturating_sub(length).max(settings.warmup_steps), settings.steps)
        }
    };
    if step <= begin {
        return peak;
    }
    let progress = ((step - begin) as f64 / end.saturating_sub(begin).max(1) as f64).min(1.0);
    match settings.schedule {
        Schedule::Cosine => {
            minimum + (peak - minimum) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
        }
        _ => peak + (minimum - peak) * progress,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(schedule: Schedule, warmup_steps: u64, steps: u64) -> TrainSettings {
        TrainSettings { schedule, warmup_steps, steps, learning_rate: 1e-3, ..Default::default() }
    }

    #[test]
    fn every_rate_is_positive_at_most_the_peak_and_ends_at_the_minimum() {
        for schedule in [Schedule::Cosine, Schedule::Linear, Schedule::Constant, Schedule::Wsd] {
            for (warmup, steps) in [(0, 10), (10, 10), (10, 11), (1, 1), (10, 100)] {
                let settings = settings(schedule, warmup, steps);
                settings.check().unwrap();
                let rates: Vec<f64> = (1..=steps).map(|step| learning_rate(&settings, step)).collect();
                assert!(rates.iter().all(|&rate| rate > 0.0 && rate <= 1e-3), "{schedule:?} {rates:?}");
                if warmup > 0 {
                    assert!((rates[warmup as usize - 1] - 1e-3).abs() < 1e-12);
                }
                if schedule != Schedule::Constant && steps > warmup {
                    assert!((rates[steps as usize - 1] - 1e-4).abs() < 1e-12, "{schedule:?} {rates:?}");
                }
            }
        }
    }

    #[test]
    fn the_middle_of_each_course_is_known() {
        let at = |schedule, step| learning_rate(&settings(schedule, 0, 100), step);
        assert!((at(Schedule::Cosine, 50) - 5.5e-4).abs() < 1e-9);
        assert!((at(Schedule::Linear, 50) - 5.5e-4).abs() < 1e-9);
        assert!((at(Schedule::Wsd, 80) - 1e-3).abs() < 1e-12);
        assert!((at(Schedule::Wsd, 90) - 5.5e-4).abs() < 1e-9);
        // warm-up: a tenth of the way is a tenth of the peak
        assert!((learning_rate(&settings(Schedule::Cosine, 10, 100), 1) - 1e-4).abs() < 1e-12);
    }

    #[test]
    fn a_warm_up_longer_than_the_run_never_reaches_the_peak() {
        let settings = settings(Schedule::Cosine, 20, 10);
        settings.check().unwrap();
        let rates: Vec<f64> = (1..=10).map(|step| learning_rate(&settings, step)).collect();
        assert!(rates.iter().all(|&rate| rate > 0.0 && rate <= 5e-4 + 1e-12), "{rates:?}");
    }

    #[test]
    fn the_decay_may_end_before_or_after_the_run() {
        let mut short = settings(Schedule::Cosine, 0, 100);
        short.decay_steps = Some(50);
        assert!((learning_rate(&short, 50) - 1e-4).abs() < 1e-12);
        assert!((learning_rate(&short, 90) - 1e-4).abs() < 1e-12);
        short.decay_steps = Some(200);
        assert!((learning_rate(&short, 100) - 5.5e-4).abs() < 1e-9);
    }
}
