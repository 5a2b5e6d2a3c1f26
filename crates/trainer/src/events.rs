//! What a run says while it goes on: one event a line in `metrics.jsonl`, and to whoever watches.

use crate::error::{Result, TrainError};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// A run begins.
    Start {
        /// The effective settings.
        settings: serde_json::Value,
        /// Number of parameters.
        parameters: usize,
        /// Where it runs.
        device: String,
        /// Threads of the CPU.
        threads: usize,
    },
    /// A run goes on after `step` updates.
    Resume {
        /// Updates made before.
        step: u64,
        /// Where it runs.
        device: String,
        /// Threads of the CPU.
        threads: usize,
    },
    /// An update was made.
    Step {
        /// Its number, from 1.
        step: u64,
        /// Mean loss of its batch before it, in nats per token.
        loss: f64,
        /// Learning rate.
        learning_rate: f64,
        /// Global norm of the gradient before clipping.
        grad_norm: f64,
        /// Tokens seen since the run began.
        tokens: u64,
        /// Tokens per second since the last line of progress, without evaluations and checkpoints.
        tokens_per_second: f64,
    },
    /// The loss jumped out of its recent course.
    Spike {
        /// The update.
        step: u64,
        /// Mean loss of its batch, in nats per token.
        loss: f64,
        /// What was expected: the mean of the recent losses.
        expected: f64,
    },
    /// The validation split was evaluated.
    Eval {
        /// Updates made so far.
        step: u64,
        /// Mean training loss since the last evaluation, in nats per token; absent before the first update.
        train_loss: Option<f64>,
        /// Validation loss in nats per token.
        val_loss: f64,
        /// The same in bits per byte of text; absent for hidden tokens, whose loss is no code length.
        #[serde(skip_serializing_if = "Option::is_none")]
        val_bits_per_byte: Option<f64>,
        /// Whether it is the lowest so far.
        best: bool,
    },
    /// The heads were scored.
    Heads {
        /// Updates made so far.
        step: u64,
        /// What the run's probe says of each head: objects with `layer`, `head` and the scores by name.
        heads: serde_json::Value,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// Updates made so far.
        step: u64,
        /// Its folder inside the run.
        path: String,
    },
    /// The run is over.
    End {
        /// Updates made.
        step: u64,
        /// Why.
        reason: EndReason,
        /// Lowest validation loss and its step.
        best: Option<Best>,
        /// Updates whose loss jumped out of its recent course.
        #[serde(default)]
        spikes: u64,
        /// Seconds since this program began training.
        seconds: f64,
    },
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndReason {
    /// All steps were made.
    Finished,
    /// The validation loss stopped falling.
    Patience,
    /// A signal asked for it.
    Stopped,
}

/// The lowest validation loss of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Updates made by then.
    pub step: u64,
    /// Validation loss in nats per token.
    pub val_loss: f64,
}

impl Event {
    /// The number of updates that had been made.
    pub fn step(&self) -> u64 {
        match self {
            Self::Start { .. } => 0,
            Self::Resume { step, .. }
            | Self::Step { step, .. }
            | Self::Spike { step, .. }
            | Self::Eval { step, .. }
            | Self::Heads { step, .. }
            | Self::Checkpoint { step, .. }
            | Self::End { step, .. } => *step,
        }
    }
}

/// Whoever wants to know what happens in a run.
pub trait Observer {
    /// Something happened.
    ///
    /// # Errors
    /// What went wrong in telling; it ends the run.
    fn event(&mut self, event: &Event) -> Result<()>;
}

/// Bytes of the events of a run, at most: some millions of steps.
pub const MOST_METRICS: u64 = 4 << 30;

/// Writes events to `metrics.jsonl`, one flushed line each.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    file: File,
}

impl MetricsFile {
    /// Opens the file of a run that has made `step` updates; later lines, left by a run that was cut off, go.
    ///
    /// `evaluated` is the last update whose evaluation the checkpoint knows: a later one will be made again.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(run: &Path, step: u64, evaluated: Option<u64>) -> Result<Self> {
        let path = run.join("metrics.jsonl");
        let mut kept = String::new();
        if step > 0 && path.exists() {
            let old = softdict_files::read(&path, MOST_METRICS).map_err(TrainError::io(&path, "read"))?;
            // a run that was cut off may leave half a line at the end, and half a character in it
            for line in String::from_utf8_lossy(&old).lines() {
                let Ok(event) = serde_json::from_str::<Event>(line) else { continue };
                let again = match event {
                    Event::Eval { step: at, .. } => evaluated.is_none_or(|evaluated| at > evaluated),
                    Event::End { .. } => true,
                    _ => event.step() > step,
                };
                if !again {
                    kept.push_str(line);
                    kept.push('\n');
                }
            }
        }
        softdict_files::write(&path, kept.as_bytes()).map_err(TrainError::io(&path, "write"))?;
        let file = OpenOptions::new().append(true).open(&path).map_err(TrainError::io(&path, "open"))?;
        Ok(Self { path, file })
    }
}

impl Observer for MetricsFile {
    fn event(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_vec(event)
            .map_err(|error| TrainError::io(&self.path, "write")(std::io::Error::other(error)))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(TrainError::io(&self.path, "write"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(step: u64) -> Event {
        Event::Eval { step, train_loss: None, val_loss: 2.0, val_bits_per_byte: Some(3.0), best: true }
    }

    fn step(step: u64) -> Event {
        Event::Step {
            step,
            loss: 1.5,
            learning_rate: 1e-3,
            grad_norm: 0.5,
            tokens: step * 10,
            tokens_per_second: 7.0,
        }
    }

    #[test]
    fn events_have_the_documented_form() {
        let line = serde_json::to_string(&step(3)).unwrap();
        assert_eq!(
            line,
            r#"{"event":"step","step":3,"loss":1.5,"learning_rate":0.001,"grad_norm":0.5,"tokens":30,"tokens_per_second":7.0}"#
        );
        assert!(serde_json::to_string(&eval(3)).unwrap().starts_with(r#"{"event":"eval","step":3"#));
    }

    #[test]
    fn a_resumed_file_forgets_what_came_after_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = MetricsFile::open(folder.path(), 0, None).unwrap();
        for event in [step(1), eval(1), step(2), eval(2), step(3)] {
            file.event(&event).unwrap();
        }
        drop(file);
        let mut file = MetricsFile::open(folder.path(), 2, Some(1)).unwrap();
        file.event(&eval(2)).unwrap();
        let text = std::fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
        let events: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events, [step(1), eval(1), step(2), eval(2)]);
    }
}
