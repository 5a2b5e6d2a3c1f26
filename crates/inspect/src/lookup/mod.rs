//! The lookup table of a head, two ways: as its weights have it, and as a text uses it.
//!
//! [`Circuit`] reads the weights: which keys a query token finds, and what a key token says when it is found. [`used`] goes
//! through a text. [`composition`] says which heads read what earlier heads wrote.

mod circuit;
mod composition;
mod used;

pub use circuit::{Circuit, Found};
pub use composition::{Composition, composition};
pub use used::{Used, used};
