//! The KV cache: keys and values of the tokens so far, in buffers of the context's length, made once.

use crate::config::ModelConfig;
use crate::error::{ModelError, Result};
use candle_core::{DType, Device, Tensor};

/// Keys and values of every layer.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<[Tensor; 2]>, // keys and values, (B, G, context, D) each
    len: usize,
    context: usize,
}

impl KvCache {
    /// An empty cache for `batch` sequences.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn new(config: &ModelConfig, batch: usize, device: &Device) -> Result<Self> {
        let shape = (batch, config.kv_heads, config.context(), config.head_size());
        let buffer = || Tensor::zeros(shape, DType::F32, device);
        let layers = (0..config.layers()).map(|_| Ok([buffer()?, buffer()?])).collect::<Result<Vec<_>>>()?;
        Ok(Self { layers, len: 0, context: config.context() })
    }

    /// Tokens in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token has been seen.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets everything; the buffers stay.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// # Errors
    /// When `more` tokens would not fit.
    pub(crate) fn check_room(&self, more: usize) -> Result<()> {
        let length = self.len + more;
        if length <= self.context {
            Ok(())
        } else {
            Err(ModelError::TooLong { length, context: self.context })
        }
    }

    /// Writes the new rows of one layer and returns all rows so far: `(B, G, T, D)` in, `(B, G, S, D)` out.
    pub(crate) fn extend(&self, layer: usize, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let rows = self.len + keys.dim(2)?;
        let [all_keys, all_values] = &self.layers[layer];
        all_keys.slice_set(&keys.contiguous()?, 2, self.len)?;
        all_values.slice_set(&values.contiguous()?, 2, self.len)?;
        Ok((all_keys.narrow(2, 0, rows)?, all_values.narrow(2, 0, rows)?))
    }

    /// Counts `rows` more tokens, once every layer has written them.
    pub(crate) fn advance(&mut self, rows: usize) {
        self.len += rows;
    }
}
