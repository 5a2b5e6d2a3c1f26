//! The transformer: configuration, parameters, forward pass, taps, its fused training pass, and decoding.
//!
//! Reading order: [`settings`] (what can be set), [`config`] (the same, validated), [`parameters`] (every weight in one table),
//! [`transformer`] and `block` (the forward pass over tensors, on any device), [`taps`] and [`kv_cache`].
//! Then training: [`engine`] (what the loop needs of a model), `composed` (candle's autograd, any device) and
//! `fused` (forward and backward by hand over the CPU kernels; the tests hold both equal). Then sampling: [`reader`]
//! (what it needs of a model) and `fused::decode` (the same by hand over the CPU kernels). [`cost`] counts.
//!
//! Letters in shapes: B batch, T time, S keys so far, C channels (width), H heads, G key/value heads, D head
//! size, F FFN width, V vocabulary, L layers.

mod block;
mod composed;
pub mod config;
pub mod cost;
pub mod engine;
mod error;
mod fused;
pub mod kv_cache;
pub mod parameters;
pub mod reader;
pub mod settings;
pub mod taps;
#[cfg(test)]
mod tests;
pub mod transformer;

pub use block::DropoutPass;
pub use composed::ComposedEngine;
pub use config::ModelConfig;
pub use engine::{Batch, Engine};
pub use error::{ModelError, Result};
pub use fused::{Decoder, FusedEngine};
pub use kv_cache::KvCache;
pub use parameters::{Parameter, ParameterTable, Parameters, Part};
pub use reader::{CachedTransformer, Reader};
pub use settings::ModelSettings;
pub use softdict_random as random;
pub use taps::{Chain, NoTap, Site, Tap};
pub use transformer::Transformer;
