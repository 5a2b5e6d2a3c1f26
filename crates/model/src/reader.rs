//! What sampling needs of a model: to read tokens and say what comes next, without reading the past again.

use crate::config::ModelConfig;
use crate::error::Result;
use crate::fused::Decoder;
use crate::kv_cache::KvCache;
use crate::taps::{NoTap, Tap};
use crate::transformer::Transformer;
use candle_core::IndexOp;

/// A model that reads several samples at once, token by token, and remembers them.
pub trait Reader {
    /// The shape of the model.
    fn config(&self) -> &ModelConfig;

    /// Forgets everything.
    fn clear(&mut self);

    /// Reads `time` more tokens of each sample; returns the logits of the next one.
    ///
    /// The first call after [`Reader::clear`] says how many samples there are.
    ///
    /// # Shapes
    /// `ids` holds the new tokens of one sample after those of the other; returns `(B, V)`.
    /// # Errors
    /// When the samples would be longer than the context, there are more or fewer of them than before, an id is
    /// outside the vocabulary, or the model is not causal, since its past depends on its future.
    fn read(&mut self, ids: &[u32], time: usize) -> Result<&[f32]>;
}

impl Reader for Decoder<'_> {
    fn config(&self) -> &ModelConfig {
        self.config()
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn read(&mut self, ids: &[u32], time: usize) -> Result<&[f32]> {
        self.read(ids, time)
    }
}

/// A transformer with its KV cache, on any device.
pub struct CachedTransformer {
    model: Transformer,
    tap: Box<dyn Tap>,
    cache: Option<(usize, KvCache)>, // of so many samples
    logits: Vec<f32>,                // (B, V)
}

impl CachedTransformer {
    /// `model`, which has read nothing yet.
    pub fn new(model: Transformer) -> Self {
        Self::with_tap(model, Box::new(NoTap))
    }

    /// As [`CachedTransformer::new`], every pass through `tap`.
    pub fn with_tap(model: Transformer, tap: Box<dyn Tap>) -> Self {
        Self { model, tap, cache: None, logits: Vec::new() }
    }
}

impl Reader for CachedTransformer {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn clear(&mut self) {
        if let Some((_, cache)) = &mut self.cache {
            cache.clear();
        }
    }

    fn read(&mut self, ids: &[u32], time: usize) -> Result<&[f32]> {
        let samples = ids.len() / time.max(1);
        let cache = match &mut self.cache {
            Some((count, cache)) if *count == samples || !cache.is_empty() => cache,
            other => {
                let cache = KvCache::new(self.model.config(), samples, self.model.device())?;
                &mut other.insert((samples, cache)).1
            }
        };
        let logits = self.model.decode(ids, time, cache, self.tap.as_mut())?; // (B, T, V)
        self.logits = logits.i((.., time - 1))?.flatten_all()?.to_vec1()?;
        Ok(&self.logits)
    }
}
