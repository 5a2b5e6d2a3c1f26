//! Everything that can go wrong between a pattern and its report.

use std::io;
use std::path::PathBuf;

/// The result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, InspectError>;

/// Why attention could not be read, scored or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// A map needs at least one of each.
    #[error("attention maps without {what}: there is nothing to show")]
    Empty {
        /// The list that is empty: tokens, layers or heads.
        what: &'static str,
    },

    /// A layer or head that the model does not have.
    #[error("{what} {number} does not exist: the model has {count}, counted from 0")]
    NoSuch {
        /// `layer` or `head`.
        what: &'static str,
        /// The number asked for.
        number: usize,
        /// How many there are.
        count: usize,
    },

    /// The model failed.
    #[error(transparent)]
    Model(#[from] softdict_model::ModelError),

    /// Two lists that describe the same thing differ in length.
    #[error("{what} has {found} entries, {expected} expected")]
    Length {
        /// The list that does not fit.
        what: &'static str,
        /// How many entries the other lists ask for.
        expected: usize,
        /// How many there are.
        found: usize,
    },

    /// More prompt tokens than tokens.
    #[error("attention maps: {prompt_tokens} prompt tokens, but only {tokens} tokens in all")]
    Prompt {
        /// How many tokens are said to come from the prompt.
        prompt_tokens: usize,
        /// How many tokens there are.
        tokens: usize,
    },

    /// A number that no softmax yields.
    #[error("layer {layer}, head {head}, row {row}, key {key}: {weight} is no attention weight (0 to 1)")]
    Weight {
        /// The layer's number in the model.
        layer: usize,
        /// The head's number in its layer.
        head: usize,
        /// The query's position.
        row: usize,
        /// The key's position.
        key: usize,
        /// What was found.
        weight: f32,
    },

    /// A causal row that looks at what comes after it.
    #[error(
        "layer {layer}, head {head}, row {row}: weight {weight} on the later token {key}; causal attention needs exactly 0 there"
    )]
    Future {
        /// The layer's number in the model.
        layer: usize,
        /// The head's number in its layer.
        head: usize,
        /// The query's position.
        row: usize,
        /// The key's position, after the query's.
        key: usize,
        /// What was found.
        weight: f32,
    },

    /// A row that is no distribution over keys.
    #[error("layer {layer}, head {head}, row {row}: the weights sum to {sum}, not to 1")]
    RowSum {
        /// The layer's number in the model.
        layer: usize,
        /// The head's number in its layer.
        head: usize,
        /// The query's position.
        row: usize,
        /// What they sum to.
        sum: f64,
    },

    /// A slice that is not T×T.
    #[error("a pattern of {tokens} tokens has {expected} weights, but {found} were given")]
    Pattern {
        /// How many tokens the pattern is said to cover.
        tokens: usize,
        /// The square of it.
        expected: usize,
        /// How many weights were given.
        found: usize,
    },

    /// A score that is a mean over no rows.
    #[error("the {score} score of {tokens} tokens is undefined; it needs {needed} or more")]
    TooShort {
        /// The score's name.
        score: &'static str,
        /// How many tokens the pattern covers.
        tokens: usize,
        /// How many it would need.
        needed: usize,
    },

    /// A pattern that is not a block of n tokens, repeated.
    #[error("the {score} score needs a block of n tokens repeated; {tokens} tokens are not 2 × {block}")]
    Block {
        /// The score's name.
        score: &'static str,
        /// How many tokens the pattern covers.
        tokens: usize,
        /// The block's length n.
        block: usize,
    },

    /// Not enough different tokens for a block.
    #[error(
        "a block of {block} distinct tokens cannot be drawn from a vocabulary of {vocab}; ask for 1 to {vocab}"
    )]
    Vocabulary {
        /// How many distinct tokens were asked for.
        block: usize,
        /// How many there are.
        vocab: usize,
    },

    /// Two prompts with the same answer.
    #[error(
        "the two answers do not tell the prompts apart (their logit difference changes by {difference:.1e}): there is nothing to patch; choose others with --token and --against"
    )]
    NothingToPatch {
        /// The logit difference on the clean prompt less that on the corrupt one.
        difference: f64,
    },

    /// A head that is to be taken away two ways.
    #[error("head {head} is named twice")]
    Twice {
        /// The head.
        head: crate::ablation::HeadId,
    },

    /// A result that is no number.
    #[error("{what} are no finite numbers: the weights are too large to compute with")]
    NotFinite {
        /// What came out so.
        what: &'static str,
    },

    /// An ablation that names no head.
    #[error(
        "--ablate: `{found}` names no head; write LAYER.HEAD, LAYER.HEAD=zero or LAYER.HEAD=mean, as 1.3=mean"
    )]
    Ablation {
        /// What was given.
        found: String,
    },

    /// A format that does not exist.
    #[error(
        "--format: `{found}` is not a format; use one of term, json, npy, safetensors, csv, png, svg, html"
    )]
    Format {
        /// What was asked for.
        found: String,
    },

    /// A file name that does not say which format is meant.
    #[error("--out {}: the file name names no format; give --format, or end it in .json, .npy, .safetensors, .csv, .png, .svg, .html or .txt", path.display())]
    Extension {
        /// The file name.
        path: PathBuf,
    },

    /// A picture with more pixels than the format can name.
    #[error(
        "the picture would be {width} × {height} pixels, too large for PNG; choose fewer with --layer and --head"
    )]
    Picture {
        /// Its width in pixels.
        width: usize,
        /// Its height in pixels.
        height: usize,
    },

    /// The PNG encoder failed.
    #[error("the PNG picture could not be written")]
    Png {
        /// What the encoder says.
        #[from]
        source: png::EncodingError,
    },

    /// The destination failed.
    #[error("the report could not be written")]
    Write {
        /// What the operating system says.
        #[from]
        source: io::Error,
    },
}

impl From<serde_json::Error> for InspectError {
    fn from(error: serde_json::Error) -> Self {
        Self::Write { source: error.into() }
    }
}
