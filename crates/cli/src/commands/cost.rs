//! `softdict cost`: what a model costs in parameters, operations, memory and time, and what length does to that.

use crate::args::Cost as Args;
use crate::commands::bench::{memory_rate, product_gflops};
use crate::output::{bytes, duration, grouped};
use crate::settings::{Settings, of_named};
use crate::{checkpoint, machine, output, usage};
use anyhow::{Context, bail};
use candle_core::Device;
use serde::Serialize;
use softdict_model::ModelConfig;
use softdict_model::cost::Cost;
use softdict_tokenizer::{TextFile, Tokenizer};
use std::fmt::Write as _;
use std::path::Path;

/// The share of the products' peak that a step's products with weights reach, and attention, which forms its scores twice and
/// an exponential for each.
const SHARE_OF_PEAK: f64 = 0.93;
const ATTENTIONS_SHARE: f64 = 0.6;
/// Bytes that the passes between the products move, for each number of the residual stream in each layer, and for each
/// parameter.
const BYTES_A_NUMBER: f64 = 160.0;
const BYTES_A_PARAMETER: f64 = 28.0;

/// A length to take attention's cost at.
const SQUARE: usize = 1024;

/// What is printed; the names of the JSON object.
#[derive(Debug, Serialize)]
struct Report {
    parameters: usize,
    parts: Vec<PartCount>,
    context: usize,
    batch: usize,
    /// Passes of such a batch that make an update.
    accumulate: usize,
    /// Forward, per token: products with weights, and attention at the context's length.
    linear_flops_per_token: u64,
    attention_flops_per_token: u64,
    training_flops_per_step: u64,
    training_bytes: u64,
    /// None for a model that sees both ways: it continues nothing.
    cache_bytes_per_token: Option<usize>,
    /// Of this machine, and the time of an update that follows from them.
    product_gflops: f64,
    memory_gb_per_second: f64,
    predicted_seconds_per_step: f64,
    lengths: Vec<Length>,
    documents: Option<Documents>,
    #[serde(skip)]
    causal: bool,
}

#[derive(Debug, Serialize)]
struct PartCount {
    part: &'static str,
    parameters: usize,
    share: f64,
}

/// Reading one sequence of a length.
#[derive(Debug, Serialize)]
struct Length {
    tokens: usize,
    comparisons: u64,
    attention_flops: u64,
    total_flops: u64,
    /// Of the total.
    attention_share: f64,
    /// The first length's cost, as if it grew with the length.
    linear_forecast: f64,
    /// Attention in chunks of the first length instead.
    chunked_attention_flops: u64,
}

/// A text's documents, each read on its own.
#[derive(Debug, Serialize)]
struct Documents {
    count: usize,
    tokens: usize,
    longest: usize,
    /// As if all had the mean length.
    forecast_flops: u64,
    flops: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    machine::threads(args.threads)?;
    let (config, train, documents) = if let Some(path) = &args.checkpoint {
        let loaded = checkpoint::open(path, args.which.into(), &Device::Cpu)?;
        let lengths = args.text.as_ref().map(|text| document_lengths(text, &loaded.tokenizer)).transpose()?;
        if loaded.run.is_none() && args.batch.is_none() {
            output::notice(format!(
                "{} is not part of a run: a step is taken to be as by default; --batch says otherwise",
                loaded.folder.display()
            ));
        }
        (loaded.spoken.clone(), Settings::of_run(loaded.run.as_deref())?.train, lengths)
    } else {
        let settings = settings(args)?;
        let config =
            ModelConfig::new(&settings.model, args.vocab.get()).map_err(|error| usage(error.to_string()))?;
        (config, settings.train, None)
    };
    let step = [args.batch.map_or(train.batch, |batch| batch as usize), train.accumulate];
    let lengths: Vec<usize> = args.lengths.iter().map(|&length| length as usize).collect();
    let report = report(&config, step, &lengths, documents.as_deref());
    output::text(&if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.text() })
}

fn settings(args: &Args) -> anyhow::Result<Settings> {
    let file = match &args.config {
        Some(path) => Some(of_named(path).map_err(|error| usage(format!("{error:#}")))?),
        None => None,
    };
    Settings::default().with(file.as_ref().map(|(name, text)| (name.as_str(), text.as_str())), &args.set)
}

/// Tokens of each document: what stands between blank lines.
fn document_lengths(path: &Path, tokenizer: &Tokenizer) -> anyhow::Result<Vec<usize>> {
    let text = TextFile::open(path)?;
    let text = std::str::from_utf8(text.bytes()).with_context(|| path.display().to_string())?;
    let mut lengths = Vec::new();
    let mut document = String::new();
    for line in text.lines().chain([""]) {
        if !line.trim().is_empty() {
            document.push_str(line);
            document.push('\n');
        } else if !document.is_empty() {
            lengths.push(tokenizer.encode(&document).with_context(|| path.display().to_string())?.len());
            document.clear();
        }
    }
    if lengths.is_empty() {
        bail!("{}: only blank lines, so there is no document to count", path.display());
    }
    Ok(lengths)
}

/// A step is an update of `batch` sequences, `accumulate` times.
fn report(
    config: &ModelConfig,
    [batch, accumulate]: [usize; 2],
    lengths: &[usize],
    documents: Option<&[usize]>,
) -> Report {
    let (cost, context) = (Cost::new(config), config.context());
    let total = |tokens: usize| tokens as u64 * cost.linear_flops() + cost.attention_flops(tokens);
    let first = lengths.first().copied().unwrap_or(context).max(1);
    let lengths = lengths.iter().map(|&tokens| {
        let attention = cost.attention_flops(tokens);
        let (chunks, rest) = ((tokens / first) as u64, tokens % first);
        Length {
            tokens,
            comparisons: (tokens as u64).pow(2),
            attention_flops: attention,
            total_flops: total(tokens),
            attention_share: attention as f64 / total(tokens).max(1) as f64,
            linear_forecast: total(first) as f64 * tokens as f64 / first as f64,
            chunked_attention_flops: chunks * cost.attention_flops(first) + cost.attention_flops(rest),
        }
    });
    let (gflops, memory) = (product_gflops(), memory_rate());
    let numbers = (batch * context * config.layers() * config.width()) as f64;
    let sequences = batch.saturating_mul(accumulate);
    let attention = (3 * sequences as u64).saturating_mul(cost.attention_flops(context));
    let moved = BYTES_A_NUMBER * numbers * accumulate as f64 + BYTES_A_PARAMETER * cost.parameters() as f64;
    let step = cost.training_flops(sequences, context);
    Report {
        parameters: cost.parameters(),
        parts: cost
            .parameters_by_part()
            .into_iter()
            .map(|(part, parameters)| PartCount {
                part: part.name(),
                parameters,
                share: parameters as f64 / cost.parameters() as f64,
            })
            .collect(),
        context,
        batch,
        accumulate,
        linear_flops_per_token: cost.linear_flops(),
        attention_flops_per_token: cost.attention_flops(context) / context as u64,
        training_flops_per_step: step,
        training_bytes: cost.training_bytes(batch, context),
        cache_bytes_per_token: config.settings.causal.then(|| cost.cache_bytes(1)),
        causal: config.settings.causal,
        product_gflops: gflops,
        memory_gb_per_second: memory,
        predicted_seconds_per_step: (step - attention) as f64 / (SHARE_OF_PEAK * gflops * 1e9)
            + attention as f64 / (ATTENTIONS_SHARE * gflops * 1e9)
            + moved / (memory * 1e9),
        lengths: lengths.collect(),
        documents: documents.filter(|documents| !documents.is_empty()).map(|documents| {
            let tokens: usize = documents.iter().sum();
            let mean = tokens as f64 / documents.len() as f64;
            Documents {
                count: documents.len(),
                tokens,
                longest: documents.iter().copied().max().unwrap_or(0),
                // attention grows with the square, whose factor any length tells
                forecast_flops: (documents.len() as f64
                    * (mean * cost.linear_flops() as f64
                        + mean * mean * cost.attention_flops(SQUARE) as f64 / (SQUARE * SQUARE) as f64))
                    as u64,
                flops: documents.iter().map(|&tokens| total(tokens)).sum(),
            }
        }),
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        // writing to a String cannot fail
        let _ = writeln!(text, "parameters  {}", grouped(self.parameters as u64));
        for PartCount { part, parameters, share } in &self.parts {
            let _ =
                writeln!(text, "  {part:<11} {:>13}  {:5.1} %", grouped(*parameters as u64), 100.0 * share);
        }
        let (linear, attention) = (self.linear_flops_per_token, self.attention_flops_per_token);
        let share = 100.0 * attention as f64 / (linear + attention).max(1) as f64;
        let _ = writeln!(
            text,
            "operations per token, forward, at {} tokens\n  linear      {:>13}  products with weights: the same at every length\n  \
             quadratic   {:>13}  attention: {share:.1} % here, and it grows with the length",
            grouped(self.context as u64),
            grouped(linear),
            grouped(attention),
        );
        let passes = if self.accumulate > 1 { format!(", {} times", self.accumulate) } else { String::new() };
        let _ = writeln!(
            text,
            "training    {} × {} tokens a step{passes}: {:.2} GFLOP, {} of memory\n            about {} a step here: products at {:.0} GFLOP/s, the rest at {:.0} GB/s of memory, as just measured",
            self.batch,
            grouped(self.context as u64),
            self.training_flops_per_step as f64 / 1e9,
            bytes(self.training_bytes),
            time(self.predicted_seconds_per_step),
            self.product_gflops,
            self.memory_gb_per_second,
        );
        if let Some(each) = self.cache_bytes_per_token {
            let _ = writeln!(
                text,
                "KV cache    {} a token, {} for {} tokens",
                bytes(each as u64),
                bytes((each * self.context) as u64),
                grouped(self.context as u64)
            );
        }
        if let Some(first) = self.lengths.first() {
            let _ = writeln!(
                text,
                "\n    tokens     comparisons  attention GFLOP  all GFLOP  attention     linear forecast   attention in\n\
                 \x20                                                       share  {:>20}   chunks of {1}",
                format!("from {}", grouped(first.tokens as u64)),
                grouped(first.tokens as u64)
            );
            for length in &self.lengths {
                let chunks = length.chunked_attention_flops as f64 / length.attention_flops.max(1) as f64;
                let _ = writeln!(
                    text,
                    "{:>10} {:>15}  {:>15.4} {:>10.4}    {:5.1} %             × {:5.2}        {:>6.2} %",
                    grouped(length.tokens as u64),
                    grouped(length.comparisons),
                    length.attention_flops as f64 / 1e9,
                    length.total_flops as f64 / 1e9,
                    100.0 * length.attention_share,
                    length.total_flops as f64 / length.linear_forecast,
                    100.0 * chunks
                );
            }
            if self.causal {
                text.push_str("comparisons are those of the whole square; the causal mask saves half of them, and of attention's operations\n");
            }
        }
        if let Some(documents) = &self.documents {
            let _ = writeln!(
                text,
                "\n{} document{} of {:.1} tokens on average, {} at most: forecast from the mean {:.3} GFLOP, really {:.3} (× {:.2})",
                grouped(documents.count as u64),
                if documents.count == 1 { "" } else { "s" },
                documents.tokens as f64 / documents.count as f64,
                grouped(documents.longest as u64),
                documents.forecast_flops as f64 / 1e9,
                documents.flops as f64 / 1e9,
                documents.flops as f64 / documents.forecast_flops.max(1) as f64
            );
            if documents.longest > self.context {
                let _ = writeln!(
                    text,
                    "the model sees {} tokens at once; a longer document is counted as if it saw it whole",
                    grouped(self.context as u64)
                );
            }
        }
        text
    }
}

fn time(seconds: f64) -> String {
    if seconds < 10.0 { format!("{:.1} ms", 1e3 * seconds) } else { duration(seconds) }
}
