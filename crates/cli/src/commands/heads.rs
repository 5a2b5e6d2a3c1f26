//! `softdict heads`: where each head looks, what the model loses without it, and what it is therefore called.

mod page;

use crate::args::Heads;
use crate::checkpoint::{self, Loaded};
use crate::progress::Passes;
use crate::windows::{longest, predicted_windows, scored_tokens, together, windows};
use crate::written::check_place;
use crate::{machine, output};
use anyhow::{Context, bail};
use candle_core::Device;
use softdict_inspect::ablation::Batch;
use softdict_inspect::scores::{Ranges, format_table};
use softdict_inspect::survey::{Blocks, head_rows, survey};
use softdict_model::{ModelConfig, ParameterTable, Parameters, Transformer};
use softdict_tokenizer::{Dataset, TokenFile};
use std::num::NonZeroUsize;
use std::path::Path;

/// Windows of text that the scores are means over: enough that another choice moves them in the third decimal.
const WINDOWS: usize = 32;
/// The longest block of random tokens, how many of them, and their seed.
const BLOCK: usize = 32;
const BLOCKS: usize = 8;
const SEED: u64 = 0;

/// Tokens that the costs are measured on, at most, and the work that they may take, in multiplications: a minute or two on
/// two cores. A larger model sees less text.
const TOKENS: usize = 100_000;
const WORK: f64 = 4e12;
/// Windows that the costs are measured on at least: fewer make no interval.
const FEWEST: usize = 16;

/// Windows of text, and random blocks, that scores during training are means over: a moment's work.
const PROBED: usize = 8;

/// The scores of all heads of a model in training, as a list of objects.
///
/// # Errors
/// When the model fails, or the text has fewer than two tokens.
pub(crate) fn probe(
    config: &ModelConfig,
    dataset: &Dataset,
    device: &Device,
    parameters: &Parameters,
) -> anyhow::Result<serde_json::Value> {
    let tokens = if dataset.val.len() > 1 { &dataset.val } else { &dataset.train };
    let (context, vocab) = (config.context(), config.vocab_size);
    let model = Transformer::new(config, parameters, device)?;
    let blocks = Blocks { tokens: (context / 2).min(vocab).clamp(1, BLOCK), count: PROBED, seed: SEED };
    let rows = head_rows(&model, &windows(tokens, longest(config), PROBED)?, blocks)?;
    let scores = rows.iter().enumerate();
    let scores = scores.map(|(index, rows)| rows.scores(index / config.heads, index % config.heads));
    Ok(serde_json::to_value(scores.collect::<Result<Vec<_>, _>>()?)?)
}

pub(crate) fn run(args: &Heads) -> anyhow::Result<()> {
    if let Some(path) = &args.html {
        let inputs: Vec<&Path> = args.text.as_deref().into_iter().collect();
        check_place(path, &inputs).with_context(|| format!("--html {}", path.display()))?;
    }
    let device = machine::prepare(&args.source.machine)?;
    let loaded = checkpoint::open(&args.checkpoint, args.source.which.into(), &device)?;
    let model = loaded.speaker()?;
    let blocks = Blocks { tokens: block(&loaded)?, count: BLOCKS, seed: SEED };
    let corpus = loaded.corpus_or_tales(args.text.as_deref())?;
    let (tokens, name) = scored_tokens(&corpus);
    let config = model.config();
    let windows = windows(tokens, longest(config), WINDOWS)?;
    let Some(text_tokens) = windows.first().map(Vec::len) else {
        bail!("{name}: fewer than two tokens, so no token can look back; give a longer text");
    };
    let measured = batches(tokens, &loaded, args.tokens)?;
    let measured_tokens: usize = measured.iter().map(|batch| batch.ids.len()).sum();
    let untrained = untrained(config, &device)?;
    let mut passes = Passes::new("taking heads away");
    let found =
        survey(&model, &untrained, &windows, &measured, blocks, &mut |done, total| passes.set(done, total))?;
    drop(passes);
    if args.json {
        return output::text(&(serde_json::to_string_pretty(&found.heads)? + "\n"));
    }
    let ranges = Ranges { text_tokens, block_tokens: blocks.tokens };
    let costs = found.loss.map_or_else(
        || "a bidirectional model without a mask predicts nothing, so no head was taken away".to_owned(),
        |loss| {
            let tokens = output::grouped(measured_tokens as u64);
            format!("costs over {tokens} tokens of it, loss {loss:.4} with all heads")
        },
    );
    let measured = format!(
        "scores over {} windows of {text_tokens} tokens of {name} and over {BLOCKS} random blocks; {costs}",
        windows.len()
    );
    if let Some(path) = &args.html {
        return page::write(path, measured, found.heads, &model, &loaded, &windows);
    }
    output::text(&format!("{measured}\n{}", format_table(&found.heads, ranges)))
}

/// Tokens of a block, which is repeated once and must fit in the context.
fn block(loaded: &Loaded) -> anyhow::Result<usize> {
    let config = &loaded.spoken;
    let (context, vocab) = (config.context(), config.vocab_size);
    if context < 2 || vocab < 2 {
        bail!(
            "{}: the model sees {context} tokens of a vocabulary of {vocab}; scores need two of each or more",
            loaded.folder.display()
        );
    }
    Ok((context / 2).min(vocab).min(BLOCK))
}

/// A model of the same shape with fresh weights.
fn untrained(config: &ModelConfig, device: &Device) -> anyhow::Result<Transformer> {
    Ok(Transformer::new(config, &Parameters::initial(config, SEED), device)?)
}

/// The windows that costs are measured on, as many to a pass as memory allows: `wanted` tokens, or what the time allows.
fn batches(tokens: &TokenFile, loaded: &Loaded, wanted: Option<NonZeroUsize>) -> anyhow::Result<Vec<Batch>> {
    let (config, masking) = (&loaded.spoken, loaded.masking()?);
    if !config.settings.causal && masking.is_none() {
        return Ok(Vec::new());
    }
    let context = config.context();
    let allowed = || {
        // two replacements of every head, each from its layer on: half of the passes on average
        let passes = (config.layers() * config.heads + 2) as f64;
        let weights = ParameterTable::new(config).len() as f64;
        ((WORK / (passes * weights)) as usize).clamp(FEWEST * context, TOKENS.max(FEWEST * context))
    };
    let count = wanted.map_or_else(allowed, NonZeroUsize::get).div_ceil(context);
    Ok(together(&predicted_windows(tokens, context, count)?, config, masking))
}
