//! All heads of a model at once: scores and how they are spread, the same of an untrained model, what taking each head
//! away costs, and a name where all three agree.

use crate::ablation::Batch;
use crate::capture::each_layer;
use crate::effect::{Effect, effects};
use crate::error::{InspectError, Result};
use crate::scores::{HeadRows, HeadScores, Pattern, Quantiles, repeated_block};
use serde::Serialize;
use softdict_model::{NoTap, Transformer};
use softdict_random::{Purpose, Stream};
use std::collections::BTreeMap;

/// From which score on a head may be named after it: more than half of its attention goes there.
pub const NAMED_FROM: f64 = 0.5;
/// By how much the score must exceed that of an untrained head.
pub const ABOVE_UNTRAINED: f64 = 0.25;

/// The random blocks of the scores.
#[derive(Debug, Clone, Copy)]
pub struct Blocks {
    /// Distinct tokens of each block, which is then repeated.
    pub tokens: usize,
    /// How many blocks.
    pub count: usize,
    /// Seed of the blocks.
    pub seed: u64,
}

/// Everything known of one head. As JSON: the scores by name, `spread`, `untrained`, `zero`, `mean` and `name`.
#[derive(Debug, Clone, Serialize)]
pub struct HeadReport {
    /// The means.
    #[serde(flatten)]
    pub scores: HeadScores,
    /// How each score is distributed over rows.
    pub spread: BTreeMap<&'static str, Quantiles>,
    /// The scores of the same head of a model with fresh weights.
    pub untrained: HeadScores,
    /// What replacing the head's output by zero costs; none where nothing is predicted.
    pub zero: Option<Effect>,
    /// What replacing it by its mean costs.
    pub mean: Option<Effect>,
    /// What the head is called, or `unclear`.
    pub name: &'static str,
}

/// All heads of a model.
#[derive(Debug, Clone, Serialize)]
pub struct Survey {
    /// The loss that the costs are measured from, in nats per predicted token; none where nothing is predicted.
    pub loss: Option<f64>,
    /// Every head, counted through the layers.
    pub heads: Vec<HeadReport>,
}

/// The rows of every head's scores, counted through the layers: on the windows of a text and on random blocks.
///
/// # Errors
/// When there is no window of at least two tokens, or a block does not fit the vocabulary or the context.
pub fn head_rows(model: &Transformer, windows: &[Vec<u32>], blocks: Blocks) -> Result<Vec<HeadRows>> {
    let config = model.config();
    let layers: Vec<usize> = (0..config.layers()).collect();
    let heads: Vec<usize> = (0..config.heads).collect();
    if windows.is_empty() || blocks.count == 0 {
        return Err(InspectError::Empty { what: "windows of text" });
    }
    let mut rows = vec![HeadRows::default(); layers.len() * heads.len()];
    let mut add = |ids: &[u32], is_text: bool| -> Result<()> {
        each_layer(model, ids, &layers, &heads, &mut NoTap, &mut |layer, values| {
            let rows = &mut rows[layer * heads.len()..];
            for (values, rows) in values.chunks_exact(ids.len() * ids.len()).zip(rows) {
                let pattern = Pattern::new(values, ids.len(), config.settings.causal)?;
                if is_text { rows.add_text(&pattern, ids)? } else { rows.add_block(&pattern)? }
            }
            Ok(())
        })
    };
    for window in windows {
        add(window, true)?;
    }
    let mut stream = Stream::new(blocks.seed, Purpose::Scores, 0);
    for _ in 0..blocks.count {
        add(&repeated_block(&mut stream, config.vocab_size, blocks.tokens)?, false)?;
    }
    Ok(rows)
}

/// Looks at every head of `model`: `windows` are for the scores, `batches`, if any, for what taking a head away costs.
/// `untrained` has the same shape and fresh weights.
///
/// # Errors
/// As [`head_rows`] and [`effects`].
pub fn survey(
    model: &Transformer,
    untrained: &Transformer,
    windows: &[Vec<u32>],
    batches: &[Batch],
    blocks: Blocks,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Survey> {
    let heads = model.config().heads;
    let (rows, fresh) = (head_rows(model, windows, blocks)?, head_rows(untrained, windows, blocks)?);
    let found = (!batches.is_empty()).then(|| effects(model, batches, progress)).transpose()?;
    let mut reports = Vec::with_capacity(rows.len());
    for (index, (rows, fresh)) in rows.into_iter().zip(fresh).enumerate() {
        let (layer, head) = (index / heads, index % heads);
        let (scores, untrained) = (rows.scores(layer, head)?, fresh.scores(layer, head)?);
        let cost = found.as_ref().and_then(|found| found.heads.get(index));
        let (zero, mean) = (cost.map(|pair| pair[0]), cost.map(|pair| pair[1]));
        let name = name(&scores, &untrained, mean);
        reports.push(HeadReport { scores, spread: rows.spread(), untrained, zero, mean, name });
    }
    Ok(Survey { loss: found.map(|found| found.loss), heads: reports })
}

/// The score that most of the head's attention goes to, if that is more than without training, and the model is worse
/// without the head; else `unclear`.
fn name(scores: &HeadScores, untrained: &HeadScores, mean: Option<Effect>) -> &'static str {
    let candidates = [
        ("induction", Some(scores.induction), Some(untrained.induction)),
        ("induction", scores.induction_in_text, untrained.induction_in_text),
        ("duplicate-token", Some(scores.duplicate_token), Some(untrained.duplicate_token)),
        ("duplicate-token", scores.duplicate_in_text, untrained.duplicate_in_text),
        ("previous-token", Some(scores.previous_token), Some(untrained.previous_token)),
        ("first-token", Some(scores.first_token), Some(untrained.first_token)),
        ("current-token", Some(scores.current_token), Some(untrained.current_token)),
    ];
    let mut best = ("unclear", 0.0);
    if !mean.is_some_and(|mean| mean.is_a_loss()) {
        return best.0;
    }
    for (name, score, before) in candidates {
        let (Some(score), Some(before)) = (score, before) else { continue };
        if score >= NAMED_FROM && score - before >= ABOVE_UNTRAINED && score > best.1 {
            best = (name, score);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::settings::Positions;
    use softdict_model::{ModelConfig, ModelSettings, Parameters};

    #[test]
    fn a_model_without_weights_scores_as_uniform_attention() {
        let settings =
            ModelSettings { layers: 1, heads: 2, width: 8, positions: Positions::None, ..Default::default() };
        let config = ModelConfig::new(&settings, 20).unwrap();
        let model = Transformer::new(&config, &Parameters::zeros(&config), &Device::Cpu).unwrap();
        let blocks = Blocks { tokens: 4, count: 3, seed: 1 };
        let rows = head_rows(&model, &[vec![1, 2, 3, 4, 5, 6, 7, 8]], blocks).unwrap();
        assert_eq!(rows.len(), 2);
        for rows in rows {
            // design of the scores: uniform causal attention, T = 8, n = 4
            let scores = rows.scores(0, 0).unwrap();
            assert!((scores.previous_token - 0.245_408).abs() < 1e-5);
            assert!((scores.induction - 0.158_631).abs() < 1e-5);
            assert!((scores.duplicate_token - 0.158_631).abs() < 1e-5);
        }
    }

    #[test]
    fn a_name_needs_the_score_the_difference_from_chance_and_the_cost() {
        let scores = |previous_token, first_token| HeadScores {
            layer: 0,
            head: 0,
            previous_token,
            duplicate_token: 0.1,
            induction: 0.1,
            duplicate_in_text: None,
            induction_in_text: Some(0.2),
            first_token,
            current_token: 0.1,
            entropy: 0.5,
            mean_distance: 3.0,
        };
        let cost =
            |low, high| Some(Effect { increase: f64::midpoint(low, high), interval: Some([low, high]) });
        let fresh = scores(0.2, 0.2);
        assert_eq!(name(&scores(0.9, 0.1), &fresh, cost(0.1, 0.2)), "previous-token");
        assert_eq!(name(&scores(0.51, 0.49), &fresh, cost(0.1, 0.2)), "previous-token");
        assert_eq!(name(&scores(0.1, 0.9), &fresh, cost(0.1, 0.2)), "first-token");
        assert_eq!(name(&scores(0.4, 0.3), &fresh, cost(0.1, 0.2)), "unclear");
        // the model does not need it, or may not; or nobody looked
        assert_eq!(name(&scores(0.9, 0.1), &fresh, cost(-0.1, 0.2)), "unclear");
        assert_eq!(name(&scores(0.9, 0.1), &fresh, None), "unclear");
        // as high before any training
        assert_eq!(name(&scores(0.9, 0.1), &scores(0.8, 0.1), cost(0.1, 0.2)), "unclear");
    }
}
