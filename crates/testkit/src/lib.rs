//! Gradient checks in f64, golden fixtures, tolerances.
//!
//! A development dependency only: its functions panic with what differs, as assertions do.
#![expect(clippy::missing_panics_doc, clippy::unwrap_used, clippy::panic, reason = "assertions for tests")]

mod golden;
mod gradcheck;

pub use golden::{Golden, golden_folder};
pub use gradcheck::{assert_close, gradcheck, gradcheck_with, ramp};
