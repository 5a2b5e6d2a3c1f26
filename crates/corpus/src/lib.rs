//! The tales: an endless text whose lines can only be continued by looking things up
//!
//! Two kinds of line. A *dictionary* is a table of pairs bound at random anew in every line, then queries that
//! only the table answers:
//!
//! ```text
//! table paris peru , tokyo spain , lima japan , oslo cuba ; lima japan , oslo cuba , paris peru .
//! ```
//!
//! A *pronoun* is a sentence with two or three nouns, an `it`, and an adjective that decides which of the nouns
//! `it` stands for; the noun is then asked for by `so the`:
//!
//! ```text
//! story the animal did not cross the street because it was too hungry , so the animal rested .
//! story the animal did not cross the street because it was too dark , so the street stayed empty .
//! ```
//!
//! For models that see both ways and fill in hidden words, a *referent* is the same sentence with the noun where `it`
//! stood, so that the pronoun's own place asks:
//!
//! ```text
//! story the animal did not cross the street because the street was too dark .
//! ```
//!
//! Every word but a line's first (the marker `table` or `story`) follows one space, every mark is a word of its
//! own, and all is lower-case ASCII: a byte-level BPE with enough merges makes each word one token, the same
//! wherever it stands.
//!
//! # Held out
//! One rule for all kinds: words at the same place of their two lists ([`KEYS`] and [`VALUES`], the nouns and
//! the adjectives of a [`Class`]) never meet in the training text. So `paris france` and an `animal` that is
//! `tired`, the source documents' own examples, test whether a model looks up or remembers. Lines of
//! [`Part::HeldOut`] ask for at least one such pair each.
//!
//! # Reading order
//! `words` (the lists and the rule), `line` (what a line and an answer are), `dictionaries`, `pronouns`, and
//! `tale`, which mixes them.

mod dictionaries;
mod error;
mod line;
mod pronouns;
mod tale;
mod words;

pub use error::CorpusError;
pub use line::{Answer, Line};
pub use tale::{Lines, Part, Tale, generate, line_at, lines};
pub use words::{Class, KEYS, VALUES, vocabulary};
