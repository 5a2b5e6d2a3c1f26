//! Taps: named places in the forward pass where a tensor can be read or replaced.
//!
//! A tap is asked first ([`Tap::wants`]), so that places nobody asks for cost one comparison; the attention
//! pattern in particular is only formed when somebody wants it.

use candle_core::{Result, Tensor};

/// A place in the forward pass. Shapes are those of the tensor found there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// Token embedding plus learned positions, `(B, T, C)`; the layer is 0.
    Embedding,
    /// The residual stream that enters a block, `(B, T, C)`.
    ResidualBefore,
    /// Queries after RoPE, `(B, H, T, D)`.
    Query,
    /// Keys after RoPE, `(B, G, S, D)`, those of the cache included.
    Key,
    /// Values, `(B, G, S, D)`, those of the cache included.
    Value,
    /// The attention pattern, rows are queries, `(B, H, T, S)`.
    Pattern,
    /// What each head has gathered, before the output projection, `(B, H, T, D)`.
    HeadOutput,
    /// What attention adds to the residual stream, `(B, T, C)`.
    AttentionOutput,
    /// The residual stream between attention and FFN, `(B, T, C)`.
    ResidualMiddle,
    /// The FFN's hidden units after the nonlinearity, `(B, T, F)`.
    FfnHidden,
    /// What the FFN adds to the residual stream, `(B, T, C)`.
    FfnOutput,
    /// The residual stream that leaves a block, `(B, T, C)`.
    ResidualAfter,
    /// The final norm's output, `(B, T, C)`; the layer is L.
    FinalNorm,
}

/// Something that reads or replaces tensors on their way through the model.
pub trait Tap {
    /// Whether [`Tap::at`] is to be called here.
    fn wants(&self, site: Site, layer: usize) -> bool;

    /// Receives the tensor and returns what the model goes on with.
    ///
    /// # Errors
    /// Whatever the tap finds wrong; the forward pass ends with it.
    fn at(&mut self, site: Site, layer: usize, tensor: Tensor) -> Result<Tensor>;
}

/// Wants nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoTap;

impl Tap for NoTap {
    fn wants(&self, _: Site, _: usize) -> bool {
        false
    }

    fn at(&mut self, _: Site, _: usize, tensor: Tensor) -> Result<Tensor> {
        Ok(tensor)
    }
}

/// Two taps, one after the other: the second sees what the first made.
pub struct Chain<'taps> {
    /// Comes first.
    pub first: &'taps mut dyn Tap,
    /// Comes second.
    pub second: &'taps mut dyn Tap,
}

impl Tap for Chain<'_> {
    fn wants(&self, site: Site, layer: usize) -> bool {
        self.first.wants(site, layer) || self.second.wants(site, layer)
    }

    fn at(&mut self, site: Site, layer: usize, tensor: Tensor) -> Result<Tensor> {
        let tensor = tapped(self.first, site, layer, tensor)?;
        tapped(self.second, site, layer, tensor)
    }
}

/// Passes `tensor` through `tap` if it wants this place.
pub(crate) fn tapped(tap: &mut dyn Tap, site: Site, layer: usize, tensor: Tensor) -> Result<Tensor> {
    if tap.wants(site, layer) { tap.at(site, layer, tensor) } else { Ok(tensor) }
}
