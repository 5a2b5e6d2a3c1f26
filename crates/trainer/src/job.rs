//! What a run is given, and how it ends.

use crate::error::{Result, TrainError};
use crate::evaluate::Evaluation;
use crate::events::{Best, EndReason};
use crate::masking::Masking;
use crate::settings::{Objective, TrainSettings};
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
    /// Those of them that decide what is computed, by section: a run that goes on must have the same.
    pub fixed: serde_json::Value,
    /// The text as token ids.
    pub dataset: &'a Dataset,
    /// What messages call the text.
    pub text_name: &'a str,
    /// The `tokenizer.json` that goes into every checkpoint.
    pub tokenizer: &'a [u8],
    /// The id that stands for a hidden token, for [`crate::Objective::Masked`]: the last of the vocabulary.
    pub mask: Option<u32>,
    /// Where the model is computed.
    pub device: &'a Device,
    /// Scores the heads for `train.heads_every`.
    pub probe: &'a Probe<'a>,
}

impl Job<'_> {
    /// How tokens are hidden, where they are.
    pub(crate) fn masking(&self) -> Option<Masking> {
        let mask = self.mask.filter(|_| self.settings.objective == Objective::Masked)?;
        Some(Masking { mask, rate: self.settings.mask_rate })
    }

    /// # Errors
    /// When the model would see what it is to predict, or only one side of what is hidden.
    pub(crate) fn check(&self) -> Result<()> {
        let causal = self.config.settings.causal;
        let (second, reason) = match (self.settings.objective, causal, self.mask) {
            (Objective::Next, false, _) => {
                ("train.objective = \"next\"", "every token would see the one it is to predict")
            }
            (Objective::Masked, true, _) => {
                ("train.objective = \"masked\"", "a hidden token is told from both of its sides")
            }
            (Objective::Masked, false, None) => {
                ("train.objective = \"masked\"", "the vocabulary has no id that stands for a hidden token")
            }
            _ => return Ok(()),
        };
        Err(TrainError::Conflict { first: format!("model.causal = {causal}"), second: second.into(), reason })
    }
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
    /// Updates whose loss jumped out of its recent course.
    pub spikes: u64,
}
