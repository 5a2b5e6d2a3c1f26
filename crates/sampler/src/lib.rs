//! Text from a model: filters on the logits, a seeded draw, prefill and decode
//!
//! # Reading order
//! `config` (the options and their ranges), `logits` (the filters), `draw` (the choice), `generate` (prefill,
//! decode), `stop` (stop texts in a stream of text).

mod config;
mod draw;
mod error;
mod generate;
mod logits;
mod stop;

pub use config::SampleOptions;
pub use draw::draw;
pub use error::{Result, SampleError};
pub use generate::{Flow, generate};
pub use logits::{filter, keep_min_p, keep_top_k, keep_top_p, penalize_repetition, scale_by_temperature};
pub use stop::StopWatch;
