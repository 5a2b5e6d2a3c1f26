//! Gradient checks in f64, golden fixtures, tolerances, damaged inputs.
//!
//! A development dependency only: its functions panic with what differs, as assertions do.
#![expect(clippy::missing_panics_doc, clippy::unwrap_used, clippy::panic, reason = "assertions for tests")]

mod fuzz;
mod golden;
mod gradcheck;

pub use fuzz::{fuzz, peak_memory};
pub use golden::{Golden, golden_folder};
pub use gradcheck::{assert_close, gradcheck, gradcheck_with, ramp};
