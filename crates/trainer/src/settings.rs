//! The `[train]` section of the settings.

use crate::error::{Result, TrainError};
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};
use softdict_kernels::matmul::Precision;

/// Which windows of the text a step sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampling {
    /// Windows that start anywhere, drawn with replacement.
    Random,
    /// Windows that do not overlap, each once in a random order, then again in another.
    Epoch,
}

/// What the model is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The token after each token.
    Next,
    /// Tokens that are hidden, from both sides.
    Masked,
}

/// Precision of the products with weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Operands as they are.
    F32,
    /// Operands rounded to bf16, sums in f32; weights, statistics and the optimizer stay f32.
    Bf16,
}

impl Dtype {
    /// What the kernels call it.
    pub fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::F32,
            Self::Bf16 => Precision::Bf16,
        }
    }
}

/// The `[train]` section of the settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSettings {
    /// Updates of the weights.
    pub steps: u64,
    /// Sequences in one forward and backward pass.
    pub batch: usize,
    /// Passes whose gradients are averaged into one update.
    pub accumulate: usize,
    /// Peak of the learning rate.
    pub learning_rate: f64,
    /// Where the learning rate ends; absent means a tenth of the peak.
    pub min_learning_rate: Option<f64>,
    /// Updates over which the learning rate rises from 0 to its peak.
    pub warmup_steps: u64,
    /// `cosine` and `linear`: the update at which the minimum is reached, absent means `steps`. `wsd`: how many
    /// updates the final decay takes, absent means a fifth of `steps`.
    pub decay_steps: Option<u64>,
    /// Course of the learning rate after warm-up.
    pub schedule: Schedule,
    /// Decoupled weight decay of matrices; biases and norms have none.
    pub weight_decay: f64,
    /// Decay of AdamW's mean.
    pub beta1: f64,
    /// Decay of AdamW's mean square.
    pub beta2: f64,
    /// Largest norm of the gradient; 0 means no clipping.
    pub grad_clip: f64,
    /// Updates between evaluations.
    pub eval_every: u64,
    /// Validation tokens of an evaluation; absent means all.
    pub eval_tokens: Option<usize>,
    /// Updates between scores of all heads in `metrics.jsonl`; absent means none.
    pub heads_every: Option<u64>,
    /// Updates between checkpoints; absent means `eval_every`.
    pub checkpoint_every: Option<u64>,
    /// Checkpoints kept besides the best one, newest first; 0 means all.
    pub keep_checkpoints: usize,
    /// Updates between lines of progress.
    pub log_every: u64,
    /// Evaluations without a new best after which training ends; absent means never.
    pub patience: Option<u64>,
    /// What the model is to tell.
    pub objective: Objective,
    /// Share of the tokens that the masked objective hides.
    pub mask_rate: f64,
    /// Which windows of the text a step sees.
    pub sampling: Sampling,
    /// Precision of the products with weights.
    pub dtype: Dtype,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for TrainSettings {
    fn default() -> Self {
        Self {
            steps: 2000,
            batch: 12,
            accumulate: 1,
            learning_rate: 1e-3,
            min_learning_rate: None,
            warmup_steps: 100,
            decay_steps: None,
            schedule: Schedule::Cosine,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            grad_clip: 1.0,
            eval_every: 250,
            eval_tokens: None,
            heads_every: None,
            checkpoint_every: None,
            keep_checkpoints: 2,
            log_every: 10,
            patience: None,
            objective: Objective::Next,
            mask_rate: 0.15,
            sampling: Sampling::Random,
            dtype: Dtype::F32,
            seed: 1337,
        }
    }
}

/// Sequences of a pass, or passes of an update: far above what any machine holds.
const MOST_SEQUENCES: usize = 1 << 30;

fn positive(key: &'static str, value: u64) -> Result<()> {
    if value > 0 { Ok(()) } else { Err(TrainError::Range { key, value: "0".into(), range: "at least 1" }) }
}

fn real(key: &'static str, value: f64, right: bool, range: &'static str) -> Result<()> {
    if right && value.is_finite() {
        return Ok(());
    }
    Err(TrainError::Range { key, value: value.to_string(), range })
}

impl TrainSettings {
    /// Checks everything that can be checked before a text is read.
    ///
    /// # Errors
    /// Names the keys, their values and what would be right.
    pub fn check(&self) -> Result<()> {
        for (key, value) in [
            ("train.steps", self.steps),
            ("train.batch", self.batch as u64),
            ("train.accumulate", self.accumulate as u64),
            ("train.eval_every", self.eval_every),
            ("train.checkpoint_every", self.checkpoint_every()),
            ("train.log_every", self.log_every),
            ("train.heads_every", self.heads_every.unwrap_or(1)),
            ("train.patience", self.patience.unwrap_or(1)),
            ("train.eval_tokens", self.eval_tokens.unwrap_or(1) as u64),
        ] {
            positive(key, value)?;
        }
        for (key, value) in [("train.batch", self.batch), ("train.accumulate", self.accumulate)] {
            if value > MOST_SEQUENCES {
                let range = "at most 1073741824";
                return Err(TrainError::Range { key, value: value.to_string(), range });
            }
        }
        if i64::try_from(self.seed).is_err() {
            let range = "at most 9223372036854775807, the largest number of a settings file";
            return Err(TrainError::Range { key: "train.seed", value: self.seed.to_string(), range });
        }
        real("train.learning_rate", self.learning_rate, self.learning_rate > 0.0, "above 0")?;
        let minimum = self.min_learning_rate();
        real("train.min_learning_rate", minimum, minimum >= 0.0, "at least 0")?;
        if minimum > self.learning_rate {
            return Err(self.conflict(
                format!("train.min_learning_rate = {minimum}"),
                format!("train.learning_rate = {}", self.learning_rate),
                "the minimum must not be above the peak",
            ));
        }
        let decay = self.weight_decay;
        real("train.weight_decay", decay, decay >= 0.0, "at least 0")?;
        for (key, beta) in [("train.beta1", self.beta1), ("train.beta2", self.beta2)] {
            real(key, beta, (0.0..1.0).contains(&beta), "at least 0 and below 1")?;
        }
        let rate = self.mask_rate;
        real("train.mask_rate", rate, rate > 0.0 && rate <= 1.0, "above 0 and at most 1")?;
        real("train.grad_clip", self.grad_clip, self.grad_clip >= 0.0, "above 0, or 0 for no clipping")?;
        if self.schedule != Schedule::Wsd
            && self.decay_steps.is_some_and(|decay_steps| decay_steps < self.warmup_steps)
        {
            return Err(self.conflict(
                format!("train.decay_steps = {}", self.decay_steps.unwrap_or(0)),
                format!("train.warmup_steps = {}", self.warmup_steps),
                "the decay must end after warm-up",
            ));
        }
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "reads as part of the checks above")]
    fn conflict(&self, first: String, second: String, reason: &'static str) -> TrainError {
        TrainError::Conflict { first, second, reason }
    }

    /// Where the learning rate ends.
    pub fn min_learning_rate(&self) -> f64 {
        self.min_learning_rate.unwrap_or(self.learning_rate / 10.0)
    }

    /// Updates between checkpoints.
    pub fn checkpoint_every(&self) -> u64 {
        self.checkpoint_every.unwrap_or(self.eval_every)
    }

    /// Largest norm of the gradient, if it is clipped.
    pub fn clip(&self) -> Option<f64> {
        (self.grad_clip > 0.0).then_some(self.grad_clip)
    }

    /// Tokens that one update sees.
    pub fn tokens_per_step(&self, context: usize) -> usize {
        self.batch * self.accumulate * context
    }

    /// The settings that may differ when a run is resumed: how long, and what is written when.
    pub fn free_to_change(key: &str) -> bool {
        [
            "steps",
            "eval_every",
            "checkpoint_every",
            "keep_checkpoints",
            "log_every",
            "heads_every",
            "patience",
        ]
        .contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(change: impl Fn(&mut TrainSettings)) -> String {
        let mut settings = TrainSettings::default();
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn wrong_values_name_their_keys() {
        assert!(message(|s| s.steps = 0).contains("train.steps = 0"));
        assert!(message(|s| s.batch = 0).contains("train.batch = 0"));
        assert!(message(|s| s.batch = usize::MAX).contains("at most 1073741824"));
        assert!(message(|s| s.seed = u64::MAX).contains("train.seed = 18446744073709551615"));
        assert!(message(|s| s.eval_every = 0).contains("train.eval_every = 0"));
        assert!(message(|s| s.learning_rate = f64::NAN).contains("train.learning_rate = NaN"));
        assert!(message(|s| s.mask_rate = 0.0).contains("train.mask_rate = 0"));
        assert!(message(|s| s.beta2 = 1.0).contains("train.beta2 = 1"));
        let warmup = message(|s| (s.warmup_steps, s.decay_steps) = (20, Some(10)));
        assert!(
            warmup.contains("train.warmup_steps = 20") && warmup.contains("train.decay_steps = 10"),
            "{warmup}"
        );
        assert!(message(|s| s.min_learning_rate = Some(1.0)).contains("train.min_learning_rate = 1"));
    }

    #[test]
    fn an_integer_is_a_learning_rate_and_a_typo_is_not_a_key() {
        let settings: TrainSettings = serde_json::from_str(r#"{"learning_rate": 1}"#).unwrap();
        assert!((settings.learning_rate - 1.0).abs() < 1e-12);
        assert!(serde_json::from_str::<TrainSettings>(r#"{"learning_rte": 1}"#).is_err());
    }
}
