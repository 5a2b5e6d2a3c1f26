//! What can go wrong with a model: a setting that cannot be, or a tensor operation that failed.

/// A model could not be configured or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// One setting is outside its range.
    #[error("{key} = {value}: it must be {range}")]
    Range {
        /// The setting, as users write it.
        key: &'static str,
        /// Its value.
        value: String,
        /// The allowed range in words.
        range: String,
    },
    /// Two settings do not go together.
    #[error("{first} and {second} do not go together: {reason}")]
    Conflict {
        /// One setting with its value.
        first: String,
        /// The other with its value.
        second: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// A sequence does not fit.
    #[error("{length} tokens do not fit in the context of {context} tokens (model.context)")]
    TooLong {
        /// Tokens asked for.
        length: usize,
        /// Tokens that the model can see.
        context: usize,
    },
    /// A parameter that the model needs is not there.
    #[error("the parameter {name} is missing")]
    MissingParameter {
        /// Its name.
        name: String,
    },
    /// A parameter has another shape than the configuration says.
    #[error("the parameter {name} has shape {found:?}, the configuration says {expected:?}")]
    ParameterShape {
        /// Its name.
        name: String,
        /// The shape found.
        found: Vec<usize>,
        /// The shape of the configuration.
        expected: Vec<usize>,
    },
    /// Backward did not reach a parameter.
    #[error("the parameter {name} got no gradient")]
    NoGradient {
        /// Its name.
        name: String,
    },
    /// A batch whose parts do not agree.
    #[error("a batch of {inputs} inputs and {targets} targets does not consist of sequences of {time}")]
    Batch {
        /// Number of input ids.
        inputs: usize,
        /// Number of target ids.
        targets: usize,
        /// Length of a sequence.
        time: usize,
    },
    /// A kernel refused its arguments.
    #[error(transparent)]
    Kernel(#[from] softdict_kernels::KernelError),
    /// A tensor operation failed.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

impl ModelError {
    /// A model that is not causal was asked to continue from a cache.
    pub(crate) fn uncacheable() -> Self {
        Self::Conflict {
            first: "model.causal = false".into(),
            second: "a KV cache".into(),
            reason: "earlier tokens see later ones, so nothing can be kept; go without the cache".into(),
        }
    }
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, ModelError>;
