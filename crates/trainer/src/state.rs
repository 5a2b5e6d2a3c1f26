//! All that exact resume needs besides weights and moments: a few counters, saved with each checkpoint.

use crate::error::{Result, TrainError};
use crate::events::Best;
use crate::spikes::Spikes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Updates made.
    pub step: u64,
    /// Tokens seen.
    pub tokens: u64,
    /// Windows drawn from the text: the data cursor's whole state.
    pub drawn: u64,
    /// Forward passes made: decides what dropout drops.
    pub passes: u64,
    /// The last update after which the validation split was evaluated.
    pub evaluated: Option<u64>,
    /// The lowest validation loss.
    pub best: Option<Best>,
    /// Evaluations since then.
    pub since_best: u64,
    /// Sum of the training losses since the last evaluation.
    pub loss_sum: f64,
    /// How many they are.
    pub loss_count: u64,
    /// The course of the loss, and how often it jumped.
    #[serde(default)]
    pub spikes: Spikes,
    /// SHA-256 of the text the run was started on.
    pub text_sha256: String,
    /// The settings that decide what is computed, by section.
    pub settings: Value,
}

/// The first setting that is not what it was: its name, now, then.
pub fn first_difference(now: &Value, then: &Value) -> Option<[String; 3]> {
    let sections = now.as_object().into_iter().flatten();
    let mut all = sections.flat_map(|(section, keys)| {
        let then = then.get(section);
        let keys = keys.as_object().into_iter().flatten();
        keys.map(move |(key, now)| (format!("{section}.{key}"), now, then.and_then(|then| then.get(key))))
    });
    let (name, now, then) = all.find(|(_, now, then)| *then != Some(now))?;
    Some([name, shown(now), then.map_or("absent".to_owned(), shown)])
}

/// A setting as somebody would write it: those that are f32 have fewer digits than JSON's f64.
fn shown(value: &Value) -> String {
    let narrow = value
        .as_f64()
        .map(|number| number as f32)
        .filter(|narrow| Some(f64::from(*narrow)) == value.as_f64());
    match narrow {
        Some(narrow) if value.is_f64() => narrow.to_string(),
        _ => value.to_string(),
    }
}

impl State {
    /// Before the first update on a text.
    pub fn new(text_sha256: &str, settings: Value) -> Self {
        Self {
            step: 0,
            tokens: 0,
            drawn: 0,
            passes: 0,
            evaluated: None,
            best: None,
            since_best: 0,
            loss_sum: 0.0,
            loss_count: 0,
            spikes: Spikes::default(),
            text_sha256: text_sha256.to_owned(),
            settings,
        }
    }

    /// The state saved in a checkpoint's `trainer.safetensors`.
    ///
    /// # Errors
    /// When it lacks a field or has one that this version does not know.
    pub fn from_json(folder: &Path, json: serde_json::Value) -> Result<Self> {
        serde_json::from_value(json)
            .map_err(|error| TrainError::State { path: folder.to_path_buf(), reason: error.to_string() })
    }

    /// Mean training loss since the last evaluation.
    pub fn train_loss(&self) -> Option<f64> {
        (self.loss_count > 0).then(|| self.loss_sum / self.loss_count as f64)
    }

    /// Takes in the loss of an update; returns whether the evaluation is the best so far.
    pub fn evaluated(&mut self, val_loss: f64) -> bool {
        self.evaluated = Some(self.step);
        (self.loss_sum, self.loss_count) = (0.0, 0);
        let best = self.best.is_none_or(|best| val_loss < best.val_loss);
        if best {
            self.best = Some(Best { step: self.step, val_loss });
            self.since_best = 0;
        } else {
            self.since_best += 1;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_stays_until_a_lower_loss_comes() {
        let mut state = State::new("0", Value::Null);
        let seen: Vec<(bool, u64)> = [2.0, 1.5, 1.7, 1.5, 1.4]
            .into_iter()
            .map(|loss| {
                state.step += 1;
                (state.evaluated(loss), state.since_best)
            })
            .collect();
        assert_eq!(seen, [(true, 0), (true, 0), (false, 1), (false, 2), (true, 0)]);
        assert_eq!(state.best.unwrap().step, 5);
    }

    #[test]
    fn the_first_setting_that_changed_is_named() {
        let then = serde_json::json!({"model": {"width": 8}, "train": {"seed": 1, "batch": 4}});
        assert_eq!(first_difference(&then, &then), None);
        let now = serde_json::json!({"model": {"width": 8}, "train": {"seed": 2, "batch": 4}});
        assert_eq!(first_difference(&now, &then), Some(["train.seed", "2", "1"].map(str::to_owned)));
        assert_eq!(shown(&serde_json::json!(0.1_f32)), "0.1");
        assert_eq!(shown(&serde_json::json!(0.1_f64)), "0.1");
        let more = serde_json::json!({"model": {"width": 8, "depth": 2}});
        assert_eq!(first_difference(&more, &then), Some(["model.depth", "2", "absent"].map(str::to_owned)));
    }

    #[test]
    fn the_state_survives_json_to_the_last_bit_and_a_missing_field_is_named() {
        let mut state = State::new("abc", serde_json::json!({"train": {"batch": 4}}));
        (state.loss_sum, state.loss_count, state.drawn) = (0.1 + 0.2, 3, u64::MAX - 1);
        let json = serde_json::to_value(&state).unwrap();
        assert_eq!(State::from_json(Path::new("run"), json.clone()).unwrap(), state);
        let mut broken = json;
        broken.as_object_mut().unwrap().remove("drawn");
        let message = State::from_json(Path::new("run"), broken).unwrap_err().to_string();
        assert!(message.contains("drawn") && message.contains("run"), "{message}");
    }
}
