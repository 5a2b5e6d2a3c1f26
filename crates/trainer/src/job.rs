//! What a run is given, and how it ends.

use crate::evaluate::Evaluation;
use crate::events::{Best, EndReason};
use crate::settings::TrainSettings;
use candle_core::Device;
use softdict_model::{ModelConfig, Parameters};
use softdict_tokenizer::Dataset;
use std::path::Path;

/// What is trained, on what, and where it goes.
pub struct Job<'a> {
    /// The run's folder.
    pub run: &'a Path,
    /// The shape of the model.
    pub config: &'a ModelConfig,
    /// How it is trained.
    pub settings: &'a TrainSettings,
    /// All effective settings, for the first line of `metrics.jsonl`.
    pub record: serde_json::Value,
    /// The text as token ids.
    pub dataset: &'a Dataset,
    /// What messages call the text.
    pub text_name: &'a str,
    /// The `tokenizer.json` that goes into every checkpoint.
    pub tokenizer: &'a [u8],
    /// Where the model is computed.
    pub device: &'a Device,
    /// Scores the heads for `train.heads_every`.
    pub probe: &'a Probe<'a>,
}

/// What is measured of the weights while they are trained.
pub type Probe<'a> = dyn Fn(&Parameters) -> std::result::Result<serde_json::Value, Box<dyn std::error::Error + Send + Sync>>
    + 'a;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Updates made.
    pub step: u64,
    /// Why it ended.
    pub reason: EndReason,
    /// The lowest validation loss.
    pub best: Option<Best>,
    /// The last evaluation.
    pub last: Option<Evaluation>,
}
