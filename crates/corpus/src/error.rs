//! What can go wrong with the tales: only their name.

use crate::Tale;

/// Why no tale can be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CorpusError {
    /// The name is none of [`Tale::ALL`].
    #[error("corpus: there is no tale {name:?}; choose one of {}", Tale::ALL.map(Tale::name).join(", "))]
    UnknownTale {
        /// What was asked for.
        name: String,
    },
}
