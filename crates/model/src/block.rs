//! The parts of a block over tensors: norms, linear layers, attention, FFN, and the two residual lines.
//!
//! This is the model's specification, on any device. The fused training pass ([`crate::fused`]) computes the
//! same by hand on the CPU, and the tests hold both equal.

use crate::config::ModelConfig;
use crate::kv_cache::KvCache;
use crate::taps::{Site, Tap, tapped};
use crate::transformer::Source;
use candle_core::{Result, Tensor};
use softdict_kernels::Ops;
use softdict_kernels::activation::Activation;
use softdict_kernels::attention::{self, Options};
use softdict_kernels::dropout::Dropout;
use softdict_kernels::norm::Norm;
use softdict_kernels::rope::RopeTable;
use std::sync::Arc;

/// Which forward pass of a training run this is; decides what dropout drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropoutPass {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the pass.
    pub pass: u64,
}

/// Places of dropout inside a block, and one for the embedding.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DropoutSite {
    Embedding,
    Pattern(usize),
    Attention(usize),
    Ffn(usize),
}

impl DropoutPass {
    /// The dropout of one place; nothing when the probability is zero.
    pub(crate) fn at(pass: Option<Self>, probability: f32, site: DropoutSite) -> Result<Option<Dropout>> {
        let number = match site {
            DropoutSite::Embedding => 0,
            DropoutSite::Pattern(layer) => 3 * layer + 1,
            DropoutSite::Attention(layer) => 3 * layer + 2,
            DropoutSite::Ffn(layer) => 3 * layer + 3,
        };
        match pass {
            Some(Self { seed, pass }) if probability > 0.0 => {
                Ok(Some(Dropout::new(probability, seed, pass, number as u16)?))
            }
            _ => Ok(None),
        }
    }
}

/// What a forward pass carries along.
pub(crate) struct Pass<'a> {
    pub(crate) ops: Ops,
    pub(crate) cache: Option<&'a KvCache>,
    pub(crate) rope: Option<Arc<RopeTable>>,
    pub(crate) tap: &'a mut dyn Tap,
    pub(crate) dropout: Option<DropoutPass>,
}

impl Pass<'_> {
    /// Position of the first new token.
    fn first(&self) -> usize {
        self.cache.map_or(0, KvCache::len)
    }

    fn tap(&mut self, site: Site, layer: usize, tensor: Tensor) -> Result<Tensor> {
        tapped(self.tap, site, layer, tensor)
    }

    pub(crate) fn drop(&self, x: Tensor, probability: f32, site: DropoutSite) -> Result<Tensor> {
        match DropoutPass::at(self.dropout, probability, site)? {
            Some(dropout) => self.ops.dropout(dropout, &x),
            None => Ok(x),
        }
    }
}

/// A norm with its weights.
pub(crate) struct NormLayer {
    kind: Norm,
    weight: Tensor,
    bias: Option<Tensor>,
}

impl NormLayer {
    pub(crate) fn load(kind: Norm, source: &Source<'_>) -> crate::error::Result<Self> {
        Ok(Self { kind, weight: source.get("weight")?, bias: source.find("bias")? })
    }

    pub(crate) fn forward(&self, ops: Ops, x: &Tensor) -> Result<Tensor> {
        ops.norm(self.kind, x, &self.weight, self.bias.as_ref())
    }
}

struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    fn load(source: &Source<'_>) -> crate::error::Result<Self> {
        Ok(Self { weight: source.get("weight")?, bias: source.find("bias")? })
    }

    fn forward(&self, ops: Ops, x: &Tensor) -> Result<Tensor> {
        ops.linear(x, &self.weight, self.bias.as_ref())
    }
}

struct Attention {
    qkv: Linear,
    out: Linear,
    query_norm: Option<NormLayer>,
    key_norm: Option<NormLayer>,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    causal: bool,
    scale: f32,
    dropout: f32,
}

impl Attention {
    fn load(config: &ModelConfig, source: &Source<'_>) -> crate::error::Result<Self> {
        let head_norm = |name: &str| -> crate::error::Result<Option<NormLayer>> {
            if !config.settings.qk_norm {
                return Ok(None);
            }
            Ok(Some(NormLayer::load(config.head_norm(), &source.at(name))?))
        };
        Ok(Self {
            qkv: Linear::load(&source.at("qkv"))?,
            out: Linear::load(&source.at("out"))?,
            query_norm: head_norm("query_norm")?,
            key_norm: head_norm("key_norm")?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_size: config.head_size(),
            causal: config.settings.causal,
            scale: config.score_scale(),
            dropout: config.settings.dropout,
        })
    }

    /// `(B, T, C)` to `(B, T, C)`.
    fn forward(&self, x: &Tensor, layer: usize, pass: &mut Pass<'_>) -> Result<Tensor> {
        let (batch, time, _) = x.dims3()?;
        let packed = self.qkv.forward(pass.ops, x)?; // (B, T, (H + 2G)·D)
        let heads = |first: usize, heads: usize| {
            packed
                .narrow(2, first * self.head_size, heads * self.head_size)?
                .reshape((batch, time, heads, self.head_size))?
                .transpose(1, 2)? // (B, heads, T, D)
                .contiguous()
        };
        let mut q = heads(0, self.heads)?;
        let mut k = heads(self.heads, self.kv_heads)?;
        let mut v = heads(self.heads + self.kv_heads, self.kv_heads)?;
        if let Some(norm) = &self.query_norm {
            q = norm.forward(pass.ops, &q)?;
        }
        if let Some(norm) = &self.key_norm {
            k = norm.forward(pass.ops, &k)?;
        }
        if let Some(table) = &pass.rope {
            q = pass.ops.rope(table, &q, pass.first())?;
            k = pass.ops.rope(table, &k, pass.first())?;
        }
        if let Some(cache) = pass.cache {
            (k, v) = cache.extend(layer, &k, &v).map_err(candle_core::Error::wrap)?; // (B, G, S, D)
        }
        q = pass.tap(Site::Query, layer, q)?;
        k = pass.tap(Site::Key, layer, k)?;
        v = pass.tap(Site::Value, layer, v)?;
        let gathered = self.gather(&q, &k, &v, layer, pass)?; // (B, H, T, D)
        let gathered = pass.tap(Site::HeadOutput, layer, gathered)?;
        let joined = gathered.transpose(1, 2)?.reshape((batch, time, self.heads * self.head_size))?;
        self.out.forward(pass.ops, &joined)
    }

    /// Attention itself; the pattern is formed only for a tap that wants it.
    fn gather(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        layer: usize,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor> {
        let dropout = DropoutPass::at(pass.dropout, self.dropout, DropoutSite::Pattern(layer))?;
        let options = Options { dropout, ..Options::plain(self.causal, self.scale) };
        if !pass.tap.wants(Site::Pattern, layer) {
            return pass.ops.attention(options, q, k, v);
        }
        let pattern = attention::pattern(options, q, k)?; // (B, H, T, S)
        let pattern = pass.tap(Site::Pattern, layer, pattern)?;
        attention::gather(&pattern, v)
    }
}

struct FeedForward {
    up: Linear,
    down: Linear,
    activation: Activation,
}

impl FeedForward {
    fn load(config: &ModelConfig, source: &Source<'_>) -> crate::error::Result<Self> {
        let (up, down) = (Linear::load(&source.at("up"))?, Linear::load(&source.at("down"))?);
        Ok(Self { up, down, activation: config.activation() })
    }

    /// `(B, T, C)` to `(B, T, C)`.
    fn forward(&self, x: &Tensor, layer: usize, pass: &mut Pass<'_>) -> Result<Tensor> {
        let hidden = pass.ops.activation(self.activation, &self.up.forward(pass.ops, x)?)?; // (B, T, F)
        let hidden = pass.tap(Site::FfnHidden, layer, hidden)?;
        self.down.forward(pass.ops, &hidden)
    }
}

/// One block: attention and FFN, each behind a norm, each added to the residual stream.
pub(crate) struct Block {
    layer: usize,
    norm1: NormLayer,
    attention: Attention,
    norm2: NormLayer,
    ffn: FeedForward,
    parallel: bool,
    dropout: f32,
}

impl Block {
    pub(crate) fn load(
        config: &ModelConfig,
        layer: usize,
        source: &Source<'_>,
    ) -> crate::error::Result<Self> {
        Ok(Self {
            layer,
            norm1: NormLayer::load(config.norm(), &source.at("norm1"))?,
            attention: Attention::load(config, &source.at("attention"))?,
            norm2: NormLayer::load(config.norm(), &source.at("norm2"))?,
            ffn: FeedForward::load(config, &source.at("ffn"))?,
            parallel: config.settings.parallel_residual,
            dropout: config.settings.dropout,
        })
    }

    /// `(B, T, C)` to `(B, T, C)`.
    pub(crate) fn forward(&self, x: Tensor, pass: &mut Pass<'_>) -> Result<Tensor> {
        let (ops, layer) = (pass.ops, self.layer);
        let x = pass.tap(Site::ResidualBefore, layer, x)?;

        let mixed = self.attention.forward(&self.norm1.forward(ops, &x)?, layer, pass)?;
        let mixed = pass.tap(Site::AttentionOutput, layer, mixed)?;
        let middle = (&x + pass.drop(mixed, self.dropout, DropoutSite::Attention(layer))?)?;
        let middle = pass.tap(Site::ResidualMiddle, layer, middle)?;

        let input = if self.parallel { &x } else { &middle };
        let thought = self.ffn.forward(&self.norm2.forward(ops, input)?, layer, pass)?;
        let thought = pass.tap(Site::FfnOutput, layer, thought)?;
        let after = (&middle + pass.drop(thought, self.dropout, DropoutSite::Ffn(layer))?)?;
        pass.tap(Site::ResidualAfter, layer, after)
    }
}
