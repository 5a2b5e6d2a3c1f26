//! The transformer: token ids to logits, over tensors of any device, with a KV cache and taps.

use crate::block::{Block, DropoutPass, DropoutSite, NormLayer, Pass};
use crate::config::ModelConfig;
use crate::engine::Batch;
use crate::error::{ModelError, Result};
use crate::kv_cache::KvCache;
use crate::parameters::{Parameter, ParameterTable, Parameters};
use crate::taps::{NoTap, Site, Tap, tapped};
use candle_core::{Device, Tensor};
use softdict_kernels::rope::RopeTable;
use softdict_kernels::{Ops, cross_entropy};
use std::sync::{Arc, Mutex, PoisonError};

/// Where a part of the model finds its weights: a prefix of their names.
pub(crate) struct Source<'a> {
    table: &'a ParameterTable,
    tensor: &'a dyn Fn(&Parameter) -> Result<Tensor>,
    prefix: String,
}

impl Source<'_> {
    /// The weights of a part: `at("attention")` of `blocks.0` is `blocks.0.attention`.
    pub(crate) fn at(&self, part: &str) -> Self {
        Self { table: self.table, tensor: self.tensor, prefix: format!("{}{part}.", self.prefix) }
    }

    /// A weight that may not exist, such as a bias.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Tensor>> {
        self.table.get(&format!("{}{name}", self.prefix)).map(self.tensor).transpose()
    }

    /// A weight that must exist.
    pub(crate) fn get(&self, name: &str) -> Result<Tensor> {
        let missing = || ModelError::MissingParameter { name: format!("{}{name}", self.prefix) };
        self.find(name)?.ok_or_else(missing)
    }
}

/// A pre-norm decoder with its weights on a device.
pub struct Transformer {
    config: ModelConfig,
    ops: Ops,
    device: Device,
    embedding: Tensor,
    positions: Option<Tensor>,
    rope: Option<Mutex<Arc<RopeTable>>>, // as far as a pass has been
    blocks: Vec<Block>,
    norm: NormLayer,
    head: Tensor,
}

impl Transformer {
    /// The model of `config` with the values of `parameters`, on `device`, outside every gradient.
    ///
    /// # Errors
    /// When the parameters are those of another configuration.
    pub fn new(config: &ModelConfig, parameters: &Parameters, device: &Device) -> Result<Self> {
        Self::with_ops(config, parameters, device, Ops::for_device(device))
    }

    /// As [`Transformer::new`], computing by `ops`.
    ///
    /// # Errors
    /// As [`Transformer::new`].
    pub fn with_ops(
        config: &ModelConfig,
        parameters: &Parameters,
        device: &Device,
        ops: Ops,
    ) -> Result<Self> {
        Self::from_tensors(config, ops, device, &|parameter| {
            let values = &parameters.get(&parameter.name)?;
            Ok(Tensor::from_slice(values, parameter.shape.as_slice(), device)?)
        })
    }

    /// The model of `config` whose weights are what `tensor` returns; variables make it trainable.
    ///
    /// # Errors
    /// When a tensor is missing or has another shape.
    pub fn from_tensors(
        config: &ModelConfig,
        ops: Ops,
        device: &Device,
        tensor: &dyn Fn(&Parameter) -> Result<Tensor>,
    ) -> Result<Self> {
        let table = ParameterTable::new(config);
        let checked = |parameter: &Parameter| -> Result<Tensor> {
            let found = tensor(parameter)?;
            if found.dims() == parameter.shape {
                return Ok(found);
            }
            let (name, expected) = (parameter.name.clone(), parameter.shape.clone());
            Err(ModelError::ParameterShape { name, found: found.dims().to_vec(), expected })
        };
        let source = Source { table: &table, tensor: &checked, prefix: String::new() };
        let embedding = source.get("embedding.weight")?;
        let blocks = (0..config.layers())
            .map(|layer| Block::load(config, layer, &source.at(&format!("blocks.{layer}"))))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            positions: source.find("positions.weight")?,
            rope: config.rope(0..0)?.map(|table| Mutex::new(Arc::new(table))),
            norm: NormLayer::load(config.norm(), &source.at("norm"))?,
            head: source.find("head.weight")?.unwrap_or_else(|| embedding.clone()),
            config: config.clone(),
            device: device.clone(),
            ops,
            embedding,
            blocks,
        })
    }

    /// The shape of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Where the weights are.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Logits of every position, for sequences that start at position 0.
    ///
    /// # Shapes
    /// `ids` holds sequences of `time` tokens one after the other; returns `(B, T, V)`.
    /// # Errors
    /// When the sequences are longer than the context, or an id is outside the vocabulary.
    pub fn forward(&self, ids: &[u32], time: usize, tap: &mut dyn Tap) -> Result<Tensor> {
        self.run(ids, time, None, None, tap)
    }

    /// Logits of every new position, after the tokens in `cache`, which the new ones join.
    ///
    /// # Shapes
    /// As [`Transformer::forward`]; the cache holds as many sequences.
    /// # Errors
    /// As [`Transformer::forward`]; also when the model is not causal, since its past depends on its future.
    pub fn decode(&self, ids: &[u32], time: usize, cache: &mut KvCache, tap: &mut dyn Tap) -> Result<Tensor> {
        if !self.config.settings.causal {
            return Err(ModelError::uncacheable());
        }
        cache.make_room(time)?;
        let logits = self.run(ids, time, Some(cache), None, tap)?;
        cache.advance(time);
        Ok(logits)
    }

    /// Logits in training: with dropout, and part of candle's graph when the weights are variables.
    ///
    /// # Errors
    /// As [`Transformer::forward`].
    pub fn train(&self, ids: &[u32], time: usize, dropout: Option<DropoutPass>) -> Result<Tensor> {
        self.run(ids, time, None, dropout, &mut NoTap)
    }

    fn run(
        &self,
        ids: &[u32],
        time: usize,
        cache: Option<&KvCache>,
        dropout: Option<DropoutPass>,
        tap: &mut dyn Tap,
    ) -> Result<Tensor> {
        let first = cache.map_or(0, KvCache::len);
        let rope = self.rope(first + time)?;
        if time == 0 || !ids.len().is_multiple_of(time) {
            return Err(ModelError::Batch { inputs: ids.len(), targets: ids.len(), time });
        }
        let shared: Arc<[u32]> = ids.into();
        let mut x = self.ops.embedding(&self.embedding, &shared, &[ids.len() / time, time])?; // (B, T, C)
        if let Some(positions) = &self.positions {
            x = x.broadcast_add(&positions.narrow(0, first, time)?)?;
        }
        let mut pass = Pass { ops: self.ops, cache, rope, tap, dropout };
        x = pass.drop(x, self.config.settings.dropout, DropoutSite::Embedding)?;
        x = tapped(pass.tap, Site::Embedding, 0, x)?;
        self.finish(0, x, &mut pass)
    }

    /// Logits of every position, from the residual stream that enters block `layer` on.
    ///
    /// What a change in a late layer does is found without the layers before it.
    ///
    /// # Shapes
    /// `residual` `(B, T, C)`, as [`Site::ResidualBefore`] of the layer has it; returns `(B, T, V)`.
    /// # Errors
    /// When the tensor has another width, or is longer than the context.
    pub fn resume(&self, layer: usize, residual: &Tensor, tap: &mut dyn Tap) -> Result<Tensor> {
        let rope = self.rope(residual.dim(1)?)?;
        let mut pass = Pass { ops: self.ops, cache: None, rope, tap, dropout: None };
        self.finish(layer, residual.clone(), &mut pass)
    }

    /// The rotary table, which reaches to `length` from here on.
    ///
    /// # Errors
    /// When that is beyond the context.
    fn rope(&self, length: usize) -> Result<Option<Arc<RopeTable>>> {
        let context = self.config.context();
        if length > context {
            return Err(ModelError::TooLong { length, context });
        }
        Ok(self.rope.as_ref().map(|table| {
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            if length > table.positions.end {
                Arc::make_mut(&mut table).cover(length);
            }
            Arc::clone(&table)
        }))
    }

    /// The sum of a batch's losses in nats, every pass through `tap`.
    ///
    /// # Errors
    /// As [`Transformer::forward`]; also when the targets do not fit.
    pub fn loss(&self, batch: Batch<'_>, tap: &mut dyn Tap) -> Result<f64> {
        batch.check(&self.config)?;
        let logits = self.forward(batch.inputs, batch.time, tap)?;
        let rows: Vec<f32> = logits.flatten_all()?.to_vec1()?;
        let sum = cross_entropy::forward(&rows, self.config.vocab_size, batch.targets);
        Ok(sum.map_err(candle_core::Error::from)?)
    }

    /// The blocks from `first` on, the final norm and the head: `(B, T, C)` to `(B, T, V)`.
    fn finish(&self, first: usize, mut x: Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        for block in self.blocks.iter().skip(first) {
            x = block.forward(x, pass)?;
        }
        x = tapped(pass.tap, Site::FinalNorm, self.config.layers(), self.norm.forward(self.ops, &x)?)?;
        Ok(self.ops.linear(&x, &self.head, None)?)
    }
}
