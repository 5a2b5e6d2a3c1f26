//! Differentiable operations: forward and backward on the CPU, composed references elsewhere.
//!
//! Every operation has one file with three layers, in this order:
//! 1. `forward` and `backward` over slices, threaded and vectorised: what the fused training pass calls.
//! 2. `fused`: the same as a candle custom operation with a backward, for the model's forward pass.
//! 3. `reference`: the same from plain candle operations, for other devices and as the oracle of the tests.
//!
//! [`Ops`] chooses between 2 and 3. Gradients of weights are added to what is there, gradients of
//! activations overwrite. Reading order: [`simd`], [`parallel`], [`matmul`], then any operation. [`decode`] has what
//! one token of each sample takes.
//!
//! Letters in shapes: B batch, T time, C channels, H heads, G key/value heads, D head size, F FFN width,
//! V vocabulary, M rows (B·T), K and N widths of a linear layer.

pub mod activation;
pub mod adamw;
pub mod attention;
pub mod cross_entropy;
pub mod decode;
pub mod dropout;
pub mod embedding;
mod error;
mod lanes;
pub mod linear;
pub mod matmul;
pub mod memory;
pub mod norm;
mod op;
mod ops;
pub mod parallel;
pub mod rope;
pub mod simd;
mod team;

pub use error::KernelError;
pub use ops::Ops;
