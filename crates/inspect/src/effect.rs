//! What taking a head away costs: the rise of the loss on a text, with an interval.
//!
//! A score says where a head looks; only this says whether the model uses what it finds there.

use crate::ablation::{Ablation, Batch, HeadId, HeadMeans, Replacement, Replacements};
use crate::error::{InspectError, Result};
use candle_core::Tensor;
use serde::Serialize;
use softdict_kernels::{cross_entropy, parallel};
use softdict_model::{ModelError, Site, Tap, Transformer};
use softdict_random::{Purpose, Stream};

/// Resamples of the interval: its ends then move by less than a tenth of its width from seed to seed.
const RESAMPLES: usize = 1000;

/// A rise of the loss, in nats per token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effect {
    /// Mean over the windows; below zero where the model does better without.
    pub increase: f64,
    /// Between these it lies in 95 of 100 resamples of the windows (bootstrap); none with a single window.
    pub interval: Option<[f64; 2]>,
}

impl Effect {
    /// The mean of the windows' differences, and its interval.
    ///
    /// # Source
    /// Efron 1979, the percentile bootstrap.
    fn of(differences: &[f64]) -> Self {
        let count = differences.len();
        let mean = |sum: f64| sum / count as f64;
        let increase = mean(differences.iter().sum());
        if count < 2 {
            return Self { increase, interval: None };
        }
        // every head is resampled alike, so that intervals differ by the heads alone
        let mut stream = Stream::new(0, Purpose::Scores, 1);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| mean((0..count).map(|_| differences[stream.below(count)]).sum()))
            .collect();
        means.sort_by(f64::total_cmp);
        Self { increase, interval: Some([means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40]]) }
    }

    /// Whether the interval lies above zero.
    pub fn is_a_loss(&self) -> bool {
        self.interval.is_some_and(|[low, _]| low > 0.0)
    }
}

/// What taking each head away costs.
#[derive(Debug, Clone)]
pub struct Effects {
    /// The loss of the whole model on the same windows, in nats per token.
    pub loss: f64,
    /// For every head, counted through the layers: replaced by zero, and by its mean.
    pub heads: Vec<[Effect; 2]>,
}

/// The residual streams that enter each block.
struct Streams(Vec<Tensor>);

impl Tap for Streams {
    fn wants(&self, site: Site, _: usize) -> bool {
        site == Site::ResidualBefore
    }

    fn at(&mut self, _: Site, _: usize, stream: Tensor) -> candle_core::Result<Tensor> {
        self.0.push(stream.clone());
        Ok(stream)
    }
}

/// Takes every head away in turn, by zero and by its mean over `batches`, and measures the loss on them.
///
/// `progress` hears how many passes are done, and of how many.
///
/// # Errors
/// When there is no window of two tokens, or the model fails.
pub fn effects(
    model: &Transformer,
    batches: &[Batch],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Effects> {
    let config = model.config();
    let means = HeadMeans::over(model, batches)?;
    let mut cases = Vec::new();
    for layer in 0..config.layers() {
        for head in 0..config.heads {
            for by in [Replacement::Zero, Replacement::Mean] {
                let ablation = Ablation { id: HeadId { layer, head }, by };
                let replacements = Replacements::new(config, &[ablation], Some(&means), model.device())?;
                cases.push((layer, replacements, Vec::new()));
            }
        }
    }
    let (total, mut done) = (cases.len() * batches.len(), 0);
    let mut whole = Vec::new();
    for batch in batches {
        let mut streams = Streams(Vec::new());
        let before = window_losses(&model.forward(&batch.ids, batch.time, &mut streams)?, batch)?;
        for (layer, replacements, differences) in &mut cases {
            let logits = model.resume(*layer, &streams.0[*layer], replacements)?;
            let after = window_losses(&logits, batch)?;
            differences.extend(after.iter().zip(&before).map(|(after, before)| after - before));
            done += 1;
            progress(done, total);
        }
        whole.extend(before);
    }
    let effects: Vec<Effect> = cases.iter().map(|(_, _, differences)| Effect::of(differences)).collect();
    Ok(Effects {
        loss: whole.iter().sum::<f64>() / whole.len() as f64,
        heads: effects.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect(),
    })
}

/// The mean loss of each window over what is predicted in it, in nats.
///
/// # Shapes
/// `logits` `(B, T, V)`.
/// # Errors
/// When an id is outside the vocabulary, or a loss is not finite.
pub fn window_losses(logits: &Tensor, batch: &Batch) -> Result<Vec<f64>> {
    let values: Vec<f32> =
        logits.flatten_all().and_then(|logits| logits.to_vec1()).map_err(ModelError::from)?;
    let classes = values.len() / batch.ids.len();
    let windows = values.chunks_exact(batch.time * classes).zip(batch.targets.chunks_exact(batch.time));
    let losses = parallel::map(windows, |(logits, targets)| cross_entropy::forward(logits, classes, targets));
    let predicted = batch.targets.chunks_exact(batch.time).map(|targets| {
        // of a window in which nothing is predicted the loss is 0
        targets.iter().filter(|&&target| target != cross_entropy::IGNORE).count().max(1)
    });
    let each = losses.into_iter().zip(predicted).map(|(total, predicted)| {
        let total = total.map_err(|error| ModelError::from(candle_core::Error::from(error)))?;
        if total.is_finite() {
            Ok(total / predicted as f64)
        } else {
            Err(InspectError::NotFinite { what: "losses" })
        }
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_the_mean_and_narrows_with_more_windows() {
        let values = |count: usize| (0..count).map(|i| f64::from((i * 7 % 5) as u8)).collect::<Vec<_>>();
        let width = |count| {
            let effect = Effect::of(&values(count));
            let [low, high] = effect.interval.unwrap();
            assert!(low <= effect.increase && effect.increase <= high);
            high - low
        };
        assert!((Effect::of(&values(500)).increase - 2.0).abs() < 1e-12);
        // σ = √2: the interval of a mean of n is ±1.96·σ/√n
        for count in [50, 500] {
            let expected = 2.0 * 1.96 * (2.0 / count as f64).sqrt();
            assert!((width(count) / expected - 1.0).abs() < 0.15, "{}", width(count));
        }
        assert!(Effect::of(&[1.0, 1.5, 2.0]).is_a_loss());
        assert!(!Effect::of(&[1.0, -1.5, 0.5]).is_a_loss());
        assert_eq!(Effect::of(&[3.0]), Effect { increase: 3.0, interval: None });
    }
}
