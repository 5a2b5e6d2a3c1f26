//! `softdict eval`: the loss of a checkpoint on its run's splits or on another text.

use crate::ablate::replacements;
use crate::args::{Eval, Split};
use crate::checkpoint::{self, Loaded};
use crate::ids::Corpus;
use crate::{machine, output};
use anyhow::bail;
use candle_core::Device;
use serde::Serialize;
use softdict_inspect::ablation::Ablation;
use softdict_model::cost::Cost;
use softdict_model::{Batch, ComposedEngine, Engine, FusedEngine, ModelConfig, Transformer};
use softdict_tokenizer::{SplitRecord, TokenFile};
use softdict_trainer::{Evaluation, evaluate};
use std::path::Path;

/// What is printed; the names of the JSON object.
#[derive(Debug, Serialize)]
struct Report {
    /// Nats per token.
    loss: f64,
    /// None for hidden tokens: what is told from both sides encodes no text.
    bits_per_byte: Option<f64>,
    perplexity: Option<f64>,
    /// Tokens that were predicted.
    tokens: usize,
    split: &'static str,
}

pub(crate) fn run(args: &Eval) -> anyhow::Result<()> {
    let device = machine::prepare(&args.source.machine)?;
    let loaded = checkpoint::open(&args.checkpoint, args.source.which.into(), &device)?;
    let config = &loaded.config;
    let masking = loaded.masking()?;
    if !config.settings.causal && masking.is_none() {
        bail!(
            "{}: model.causal = false and no row for a hidden token, so every token sees what it would have to predict, and a loss means nothing",
            loaded.folder.display()
        );
    }
    let mut loss = loss(&loaded, &args.ablate, args.text.as_deref(), &device)?;
    let corpus = loaded.corpus_or_tales(args.text.as_deref())?;
    let (split, parts) = parts(&corpus, args.split)?;
    let longest = parts.iter().map(|(tokens, _)| tokens.len()).max().unwrap_or_default();
    let batch = batch(args.batch.get(), config, longest, &device);
    let mut found = Vec::new();
    for (tokens, size) in parts {
        let evaluation = evaluate(loss.as_mut(), config.context(), tokens, None, batch, masking)?;
        found.extend(evaluation.map(|evaluation| (evaluation, size)));
    }
    let Some(report) = report(&found, split, masking.is_none()) else {
        bail!(
            "{}: one token and none after it, so there is nothing to predict; give a longer text",
            corpus.name
        );
    };
    if !report.loss.is_finite() {
        bail!(
            "the loss is {}: the weights in {} are too large to compute with (train.learning_rate was too high)",
            report.loss,
            loaded.folder.display()
        );
    }
    output::text(&if args.json { serde_json::to_string(&report)? + "\n" } else { report.lines() })
}

/// The token files to go through, with their sizes, and what they are called.
fn parts(
    corpus: &Corpus,
    split: Option<Split>,
) -> anyhow::Result<(&'static str, Vec<(&TokenFile, SplitRecord)>)> {
    let (data, name) = (&corpus.dataset, &corpus.name);
    let (train, val) = ((&data.train, data.record.train), (&data.val, data.record.val));
    if corpus.foreign {
        return Ok(("text", vec![train]));
    }
    let (called, parts) = match split.unwrap_or(Split::Val) {
        Split::Val => ("val", vec![val]),
        Split::Train => ("train", vec![train]),
        Split::All => ("all", vec![train, val]),
    };
    if called == "val" && val.0.is_empty() {
        bail!("{name} has no validation split (data.val_fraction); use --split train, or give a text");
    }
    Ok((called, parts))
}

/// As many sequences of a text of `tokens` at once as were asked for, or as fit in memory: the result is the same.
fn batch(wanted: usize, config: &ModelConfig, tokens: usize, device: &Device) -> usize {
    let Some(free) = machine::available_memory().filter(|_| device.is_cpu()) else { return wanted };
    let (cost, context) = (Cost::new(config), config.context().min(tokens));
    let each = cost.training_bytes(1, context).saturating_sub(cost.training_bytes(0, context)).max(1);
    // half, because others use the machine too
    let most = (free / 2 / each).max(1) as usize;
    if wanted > most {
        output::notice(format!(
            "--batch {wanted} does not fit in {} of free memory: {most} is used",
            output::bytes(free)
        ));
    }
    wanted.min(most)
}

/// How the sum of a batch's losses is computed.
type Loss<'a> = Box<dyn FnMut(Batch<'_>) -> softdict_model::Result<f64> + 'a>;

/// As in training; without some heads, through the model's taps.
fn loss<'a>(
    loaded: &'a Loaded,
    ablations: &[Ablation],
    text: Option<&Path>,
    device: &Device,
) -> anyhow::Result<Loss<'a>> {
    if !ablations.is_empty() {
        // with the rows of a padded vocabulary, as without ablation
        let model = Transformer::new(&loaded.config, &loaded.parameters, device)?;
        let mut replacements = replacements(loaded, &model, ablations, text)?;
        return Ok(Box::new(move |batch| model.loss(batch, &mut replacements)));
    }
    let mut engine: Box<dyn Engine> = if device.is_cpu() {
        Box::new(FusedEngine::new(&loaded.config)?)
    } else {
        Box::new(ComposedEngine::new(&loaded.config, device))
    };
    Ok(Box::new(move |batch| engine.loss(&loaded.parameters, batch)))
}

/// The mean over all predicted tokens of all parts; `is_code` where each was told from those before it alone.
fn report(parts: &[(Evaluation, SplitRecord)], split: &'static str, is_code: bool) -> Option<Report> {
    let predicted: usize = parts.iter().map(|(found, _)| found.tokens).sum();
    if predicted == 0 {
        return None;
    }
    let nats: f64 = parts.iter().map(|(found, _)| found.loss * found.tokens as f64).sum();
    let whole = Evaluation { loss: nats / predicted as f64, tokens: predicted };
    let total = |count: fn(&SplitRecord) -> usize| parts.iter().map(|(_, size)| count(size)).sum();
    let size = SplitRecord { tokens: total(|size| size.tokens), bytes: total(|size| size.bytes) };
    let bits_per_byte = is_code.then(|| whole.bits_per_byte(size));
    let perplexity = is_code.then(|| whole.perplexity());
    Some(Report { loss: whole.loss, bits_per_byte, perplexity, tokens: predicted, split })
}

impl Report {
    fn lines(&self) -> String {
        let Self { loss, bits_per_byte, perplexity, tokens, split } = self;
        let tokens = output::grouped(*tokens as u64);
        let (what, code) = match (bits_per_byte, perplexity) {
            (Some(bits), Some(perplexity)) => {
                ("token", format!("bits per byte  {bits:.4}\nperplexity     {perplexity:.4}\n"))
            }
            _ => ("hidden token", String::new()),
        };
        format!(
            "split          {split}\nloss           {loss:.4} nats per {what}\n{code}tokens         {tokens}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(loss: f64, tokens: usize, bytes: usize) -> (Evaluation, SplitRecord) {
        (Evaluation { loss, tokens }, SplitRecord { tokens: tokens + 1, bytes })
    }

    #[test]
    fn both_splits_count_by_their_tokens() {
        let both = report(&[part(1.0, 300, 600), part(3.0, 100, 200)], "all", true).unwrap();
        assert_eq!((both.tokens, both.split), (400, "all"));
        assert!((both.loss - 1.5).abs() < 1e-12);
        assert!((both.perplexity.unwrap() - 1.5f64.exp()).abs() < 1e-12);
        let expected = 1.5 / std::f64::consts::LN_2 * 402.0 / 800.0;
        assert!((both.bits_per_byte.unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn a_batch_that_does_not_fit_is_made_smaller() {
        let config = ModelConfig::new(&softdict_model::ModelSettings::default(), 100).unwrap();
        assert_eq!(batch(3, &config, 1 << 20, &Device::Cpu), 3);
        if machine::available_memory().is_some() {
            let most = batch(usize::MAX, &config, 1 << 20, &Device::Cpu);
            assert!((3..1 << 40).contains(&most), "{most}");
            // a context that no text fills takes no memory
            assert!(batch(usize::MAX, &config, 2, &Device::Cpu) > 2 * most);
        }
    }

    #[test]
    fn nothing_to_predict_has_no_loss() {
        assert!(report(&[], "val", true).is_none());
    }

    #[test]
    fn the_json_has_the_documented_names() {
        let value = serde_json::to_value(report(&[part(2.0, 10, 10)], "val", true).unwrap()).unwrap();
        let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["bits_per_byte", "loss", "perplexity", "split", "tokens"]);
    }
}
