//! Attention: softmax(scale·Q·Kᵀ)·V, causal or bidirectional, with fewer key/value heads than query heads (GQA).
//!
//! The T×T pattern is never stored: a block of query rows meets a block of keys at a time, and backward forms the
//! blocks again from the rows' log-sum-exp. Memory is linear in T, and what the causal mask hides is skipped.
//!
//! # Source
//! Vaswani et al. 2017, arXiv:1706.03762, equation 1; Ainslie et al. 2023, arXiv:2305.13245 (GQA); blocks of keys
//! with a running softmax, and the log-sum-exp kept for backward: Dao 2023, arXiv:2307.08691, section 3.1.

mod backward;
mod block;
mod forward;
mod op;

pub use backward::{Buffers, Gradients, Saved, backward};
pub use block::Inputs;
pub use forward::forward;
pub use op::{fused, gather, pattern, reference};

use crate::dropout::Dropout;
use crate::error::KernelError;
use crate::matmul::Precision;

/// Sizes of one attention call.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Sequences B.
    pub batch: usize,
    /// Query rows T of each sequence.
    pub queries: usize,
    /// Key and value rows of each sequence; the last query sees the last key.
    pub keys: usize,
    /// Query heads H.
    pub heads: usize,
    /// Key/value heads G; each serves H/G consecutive query heads.
    pub kv_heads: usize,
    /// Components D of a head.
    pub head_size: usize,
}

impl Size {
    /// # Errors
    /// When the heads do not divide into groups, or there are fewer keys than queries.
    pub fn check(&self) -> Result<(), KernelError> {
        let found = self.heads as f64;
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            let range = "a multiple of the key/value heads";
            return Err(KernelError::Range { op: "attention", what: "the number of heads", found, range });
        }
        if self.keys < self.queries {
            let (found, range) = (self.keys as f64, "at least the number of queries");
            return Err(KernelError::Range { op: "attention", what: "the number of keys", found, range });
        }
        Ok(())
    }
}

/// What attention does besides the products.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Query t sees keys up to its own position only.
    pub causal: bool,
    /// Factor on the scores, usually 1/√D.
    pub scale: f32,
    /// Drops entries of the normalised pattern.
    pub dropout: Option<Dropout>,
    /// Precision of the products' operands: queries, keys, values, pattern and their gradients.
    pub precision: Precision,
}

impl Options {
    /// Without dropout, in f32.
    pub fn plain(causal: bool, scale: f32) -> Self {
        Self { causal, scale, dropout: None, precision: Precision::F32 }
    }
}

/// Distances in a buffer that holds heads of rows.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// From one sequence to the next.
    pub batch: usize,
    /// From one head to the next.
    pub head: usize,
    /// From one position to the next.
    pub row: usize,
    /// Of the first element.
    pub offset: usize,
}

impl Layout {
    /// `(B, heads, T, D)`, contiguous.
    pub fn by_head(heads: usize, rows: usize, head_size: usize) -> Self {
        Self { batch: heads * rows * head_size, head: rows * head_size, row: head_size, offset: 0 }
    }

    /// Columns `offset..offset + heads·D` of a `(B·T, width)` buffer.
    pub fn by_row(width: usize, rows: usize, head_size: usize, offset: usize) -> Self {
        Self { batch: rows * width, head: head_size, row: width, offset }
    }
}
