//! What can go wrong between a prompt and its continuation.

/// Why no token could be chosen, or why the options make no sense.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// An option lies outside its range.
    #[error("{flag} {value} is out of range; give {range}")]
    OutOfRange {
        /// The option as written on the command line.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What may be given.
        range: &'static str,
    },
    /// A stop text without a character would stop every sample before its first token.
    #[error("--stop \"\" is empty; give the text to stop at, or leave the flag away")]
    EmptyStop,
    /// There is no token to choose from.
    #[error("sampler: no logits given, so there is no token to choose; is the vocabulary empty?")]
    EmptyVocabulary,
    /// A logit is NaN or infinite: any choice made from it would be arbitrary.
    #[error(
        "sampler: the logit of token {id} is {value}; check the weights of the checkpoint, for one is damaged"
    )]
    NonFinite {
        /// The token.
        id: u32,
        /// Its logit.
        value: f32,
    },
    /// A token in the text so far is not in the vocabulary.
    #[error("sampler: token {id} of the text is not below {vocabulary}, the number of logits")]
    UnknownToken {
        /// The token.
        id: u32,
        /// How many logits there are.
        vocabulary: usize,
    },
    /// Every token was filtered out before the draw; the filters of this crate never do that.
    #[error("sampler: all {vocabulary} tokens are filtered out, so there is none to draw")]
    NothingLeft {
        /// How many logits there are.
        vocabulary: usize,
    },
    /// There is no token to continue.
    #[error("the prompt has no tokens; give at least one character with --prompt")]
    EmptyPrompt,
    /// Text can be continued only by a model that looks backwards.
    #[error(
        "the model was trained with causal = false: it fills gaps and cannot continue a text; \
         use a checkpoint with causal = true"
    )]
    Bidirectional,
    /// The model could not be run.
    #[error(transparent)]
    Model(#[from] softdict_model::ModelError),
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, SampleError>;
