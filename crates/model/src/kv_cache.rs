//! The KV cache: keys and values of the tokens so far, in buffers that double when they are full.

use crate::config::ModelConfig;
use crate::error::{ModelError, Result};
use candle_core::{DType, Device, Tensor};

/// Tokens that new buffers have room for.
const FIRST: usize = 64;

/// Room for `needed` tokens where there was for `capacity`: twice as much, but never more than the context.
pub(crate) fn room(capacity: usize, needed: usize, context: usize) -> usize {
    needed.max(2 * capacity).max(FIRST).min(context)
}

/// Keys and values of every layer.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<[Tensor; 2]>, // keys and values, (B, G, capacity, D) each
    len: usize,
    capacity: usize,
    context: usize,
}

impl KvCache {
    /// An empty cache for `batch` sequences.
    ///
    /// # Errors
    /// When the device has no room.
    pub fn new(config: &ModelConfig, batch: usize, device: &Device) -> Result<Self> {
        let capacity = room(0, 0, config.context());
        let shape = (batch, config.kv_heads, capacity, config.head_size());
        let buffer = || Tensor::zeros(shape, DType::F32, device);
        let layers = (0..config.layers()).map(|_| Ok([buffer()?, buffer()?])).collect::<Result<Vec<_>>>()?;
        Ok(Self { layers, len: 0, capacity, context: config.context() })
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

    /// Makes the buffers hold `more` tokens than they do.
    ///
    /// # Errors
    /// When they would not fit in the context, or the device has no room.
    pub(crate) fn make_room(&mut self, more: usize) -> Result<()> {
        let length = self.len + more;
        if length > self.context {
            return Err(ModelError::TooLong { length, context: self.context });
        }
        if length <= self.capacity {
            return Ok(());
        }
        let capacity = room(self.capacity, length, self.context);
        for buffer in self.layers.iter_mut().flatten() {
            let (batch, heads, _, size) = buffer.dims4()?;
            let longer = Tensor::zeros((batch, heads, capacity, size), DType::F32, buffer.device())?;
            if self.len > 0 {
                longer.slice_set(&buffer.narrow(2, 0, self.len)?.contiguous()?, 2, 0)?;
            }
            *buffer = longer;
        }
        self.capacity = capacity;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ModelSettings;

    #[test]
    fn buffers_double_up_to_the_context_and_not_before_they_are_full() {
        let settings = ModelSettings { layers: 2, heads: 2, width: 8, context: 150, ..Default::default() };
        let config = ModelConfig::new(&settings, 10).unwrap();
        let mut cache = KvCache::new(&config, 3, &Device::Cpu).unwrap();
        for (more, capacity) in [(64, 64), (1, 128), (63, 128), (22, 150)] {
            cache.make_room(more).unwrap();
            cache.advance(more);
            assert!(cache.layers.iter().flatten().all(|buffer| buffer.dims() == [3, 2, capacity, 4]));
        }
        assert!(cache.make_room(1).unwrap_err().to_string().contains("151 tokens"));
        assert_eq!([room(0, 3, 9), room(0, 700, 1 << 20), room(700, 701, 1 << 20)], [9, 700, 1400]);
    }
}
