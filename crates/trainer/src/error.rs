//! What can end a training run.

use std::path::PathBuf;

/// A run could not be started, continued or finished.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// One setting is outside its range.
    #[error("{key} = {value}: it must be {range}")]
    Range {
        /// The setting, as users write it.
        key: &'static str,
        /// Its value.
        value: String,
        /// The allowed range in words.
        range: &'static str,
    },
    /// Two settings do not go together.
    #[error("{first} and {second} do not go together: {reason}")]
    Conflict {
        /// One setting with its value.
        first: String,
        /// The other with its value.
        second: String,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// The heads could not be scored.
    #[error(
        "the heads could not be scored (train.heads_every); where weights are no numbers any more, lower train.learning_rate"
    )]
    Probe {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There are too few tokens for one window.
    #[error(
        "{text}: {found} tokens to train on, {needed} are needed (model.context = {context}, plus one to predict); give a longer text or a smaller --set model.context"
    )]
    TooShort {
        /// The text.
        text: String,
        /// Tokens there are.
        found: usize,
        /// Tokens needed.
        needed: usize,
        /// The context.
        context: usize,
    },
    /// The loss or the gradient is no longer a number.
    #[error(
        "step {step}: the {what} is {value}{tensor}; nothing was saved after step {kept}. Lower train.learning_rate (now {learning_rate:e}) or train.grad_clip and start again with --overwrite, or with --from that checkpoint and another --out"
    )]
    NotFinite {
        /// The update that was not made.
        step: u64,
        /// `loss`, `gradient norm` or `validation loss`.
        what: &'static str,
        /// Its value.
        value: f64,
        /// ", first in the gradient of …", when known.
        tensor: String,
        /// The last update before it.
        kept: u64,
        /// The learning rate at this step.
        learning_rate: f64,
    },
    /// A resumed run's settings, text or tokenizer are not those it was started with.
    #[error(
        "{key} is {now}, the run was started with {then}; a resumed run must go on as it began (use the old value, or start another run in another --out)"
    )]
    Changed {
        /// What differs.
        key: String,
        /// The value asked for.
        now: String,
        /// The value in the run.
        then: String,
    },
    /// The trainer's state is not what this version writes.
    #[error("{path}: the trainer's state {reason}; start again from its weights with --from")]
    State {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of the run could not be read or written.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The model failed.
    #[error(transparent)]
    Model(#[from] softdict_model::ModelError),
    /// A checkpoint could not be read or written.
    #[error(transparent)]
    Checkpoint(#[from] softdict_checkpoint::Error),
    /// The token ids could not be read.
    #[error(transparent)]
    Tokens(#[from] softdict_tokenizer::Error),
}

impl TrainError {
    pub(crate) fn io(path: &std::path::Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, action, source }
    }
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, TrainError>;
