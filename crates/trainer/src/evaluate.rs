//! The loss over a whole split: every token once, weighted alike, whatever the batch size; nothing changes from one
//! evaluation to the next.

use crate::error::Result;
use crate::masking::Masking;
use softdict_model::Batch;
use softdict_tokenizer::{SplitRecord, TokenFile};

/// The loss over a split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Mean loss in nats per token.
    pub loss: f64,
    /// Tokens that were predicted.
    pub tokens: usize,
}

impl Evaluation {
    /// Bits per byte of text, by the split's own ratio of tokens to bytes.
    pub fn bits_per_byte(&self, split: SplitRecord) -> f64 {
        self.loss / std::f64::consts::LN_2 * split.tokens as f64 / split.bytes.max(1) as f64
    }

    /// e to the loss.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }
}

/// Whether a run evaluates a validation split: only where it fills a window. The loss over fewer tokens, all of them with
/// little context, says too little to choose a checkpoint by.
pub fn is_evaluated(split: &TokenFile, context: usize) -> bool {
    split.len() > context
}

/// Evaluates the first `most` tokens (all when absent) in windows of the context that do not overlap.
///
/// `loss` returns the sum of a batch's losses in nats. The last window may be shorter. With `masking`, some
/// tokens of each window are hidden and predicted instead of the next ones. Returns `None` when there
/// is nothing to predict.
///
/// # Errors
/// When the model or the file fails.
pub fn evaluate(
    loss: &mut dyn FnMut(Batch<'_>) -> softdict_model::Result<f64>,
    context: usize,
    tokens: &TokenFile,
    most: Option<usize>,
    batch: usize,
    masking: Option<Masking>,
) -> Result<Option<Evaluation>> {
    let predicted = tokens.len().saturating_sub(1).min(most.unwrap_or(usize::MAX));
    if predicted == 0 {
        return Ok(None);
    }
    let whole = predicted / context;
    let (mut total, mut counted) = (0.0, 0);
    let mut run = |start: usize, time: usize, count: usize| -> Result<()> {
        let mut inputs = vec![0; count * time];
        let mut targets = vec![0; count * time];
        tokens.copy_to(start..start + count * time, &mut inputs)?;
        if let Some(masking) = masking {
            let windows = inputs.chunks_mut(time).zip(targets.chunks_mut(time)).enumerate();
            windows.for_each(|(nth, (inputs, targets))| {
                masking.hide_for_evaluation(inputs, targets, start + nth * time);
            });
            counted += count * masking.predicted(time);
        } else {
            tokens.copy_to(start + 1..start + 1 + count * time, &mut targets)?;
            counted += count * time;
        }
        total += loss(Batch { inputs: &inputs, targets: &targets, time })?;
        Ok(())
    };
    let batch = batch.max(1);
    for first in (0..whole).step_by(batch) {
        run(first * context, context, batch.min(whole - first))?;
    }
    let rest = predicted % context;
    if rest > 0 {
        run(whole * context, rest, 1)?;
    }
    Ok(Some(Evaluation { loss: total / counted as f64, tokens: counted }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{small_config, token_file};
    use softdict_model::{Engine, FusedEngine, Parameters};

    #[test]
    fn the_loss_does_not_depend_on_the_batch_and_counts_every_token() {
        let config = small_config();
        let parameters = Parameters::initial(&config, 1);
        let (_folder, tokens) = token_file(60);
        let mut engine = FusedEngine::new(&config).unwrap();
        let mut loss = |batch, most| {
            let mut of = |batch: Batch<'_>| engine.loss(&parameters, batch);
            evaluate(&mut of, config.context(), &tokens, most, batch, None).unwrap().unwrap()
        };
        let (one, many) = (loss(1, None), loss(100, None));
        assert_eq!(one.tokens, 59);
        assert!((one.loss - many.loss).abs() < 1e-5 * one.loss);
        assert_eq!(loss(3, Some(20)).tokens, 20);
    }

    #[test]
    fn hidden_tokens_are_counted_alone_and_do_not_depend_on_the_batch() {
        let settings = softdict_model::ModelSettings { causal: false, ..small_config().settings };
        let config = softdict_model::ModelConfig::new(&settings, 64).unwrap();
        let (_folder, tokens) = token_file(60);
        let mut engine = FusedEngine::new(&config).unwrap();
        let mut found = |parameters: &Parameters, batch| {
            let mut of = |batch: Batch<'_>| engine.loss(parameters, batch);
            evaluate(&mut of, config.context(), &tokens, None, batch, Some(Masking { mask: 63, rate: 0.15 }))
                .unwrap()
                .unwrap()
        };
        let uniform = found(&Parameters::zeros(&config), 2);
        // one of eight in each of seven windows, and one of the three that are left
        assert_eq!(uniform.tokens, 8);
        assert!((uniform.loss - 64f64.ln()).abs() < 1e-6);
        let parameters = Parameters::initial(&config, 1);
        let (one, many) = (found(&parameters, 1), found(&parameters, 100));
        assert!((one.loss - many.loss).abs() < 1e-5 * one.loss);
    }

    #[test]
    fn uniform_logits_cost_ln_v_and_an_empty_split_costs_nothing() {
        let config = small_config();
        let parameters = Parameters::zeros(&config);
        let mut engine = FusedEngine::new(&config).unwrap();
        let (_folder, tokens) = token_file(30);
        let mut loss = |batch: Batch<'_>| engine.loss(&parameters, batch);
        let found = evaluate(&mut loss, config.context(), &tokens, None, 2, None).unwrap().unwrap();
        assert!((found.loss - (config.vocab_size as f64).ln()).abs() < 1e-6);
        let split = SplitRecord { tokens: 30, bytes: 60 };
        let expected = (config.vocab_size as f64).log2() / 2.0;
        assert!((found.bits_per_byte(split) - expected).abs() < 1e-6);
        let (_folder, single) = token_file(1);
        assert!(evaluate(&mut loss, config.context(), &single, None, 2, None).unwrap().is_none());
    }
}
