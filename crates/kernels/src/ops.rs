//! One call for each operation, whichever way it is computed.

use crate::activation::Activation;
use crate::attention::Options;
use crate::dropout::Dropout;
use crate::norm::Norm;
use crate::rope::RopeTable;
use crate::{activation, attention, cross_entropy, dropout, embedding, linear, norm, rope};
use candle_core::{Device, Result, Tensor};
use std::sync::Arc;

/// How operations on tensors are computed; both ways are differentiable and give the same values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ops {
    /// The kernels of this crate: contiguous f32 on the CPU.
    Fused,
    /// Plain candle operations: any device, any float type, slower.
    Reference,
}

impl Ops {
    /// The faster way that works on `device`.
    pub fn for_device(device: &Device) -> Self {
        if device.is_cpu() { Self::Fused } else { Self::Reference }
    }

    /// y = x·Wᵀ + b: `(…, K)` to `(…, N)`.
    pub fn linear(self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match self {
            Self::Fused => linear::fused(x, weight, bias),
            Self::Reference => linear::reference(x, weight, bias),
        }
    }

    /// `LayerNorm` or `RMSNorm` over the last axis.
    pub fn norm(self, norm: Norm, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match self {
            Self::Fused => norm::fused(norm, x, weight, bias),
            Self::Reference => norm::reference(norm, x, weight, bias),
        }
    }

    /// Rotary positions on `(B, H, T, D)`; row t has position `first` + t.
    pub fn rope(self, table: &Arc<RopeTable>, x: &Tensor, first: usize) -> Result<Tensor> {
        match self {
            Self::Fused => rope::fused(table, x, first),
            Self::Reference => rope::reference(table, x, first),
        }
    }

    /// softmax(scale·Q·Kᵀ)·V: `(B, H, T, D)` and two `(B, G, S, D)` to `(B, H, T, D)`.
    pub fn attention(self, options: Options, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        match self {
            Self::Fused => attention::fused(options, q, k, v),
            Self::Reference => attention::reference(options, q, k, v),
        }
    }

    /// The FFN's nonlinearity: `(…, F)`, for the gated one `(…, 2F)`, to `(…, F)`.
    pub fn activation(self, kind: Activation, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Fused => activation::fused(kind, x),
            Self::Reference => activation::reference(kind, x),
        }
    }

    /// Rows of a table `(V, C)` for `ids` of any `shape`.
    pub fn embedding(self, table: &Tensor, ids: &Arc<[u32]>, shape: &[usize]) -> Result<Tensor> {
        match self {
            Self::Fused => embedding::fused(table, ids, shape),
            Self::Reference => embedding::reference(table, ids, shape),
        }
    }

    /// Mean cross-entropy in nats of `(M, V)` logits.
    pub fn cross_entropy(self, logits: &Tensor, targets: &Arc<[u32]>) -> Result<Tensor> {
        match self {
            Self::Fused => cross_entropy::fused(logits, targets),
            Self::Reference => cross_entropy::reference(logits, targets),
        }
    }

    /// Dropout with a mask that is the same both ways.
    pub fn dropout(self, dropout: Dropout, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Fused => dropout::fused(dropout, x),
            Self::Reference => dropout::reference(dropout, x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_fused() {
        assert_eq!(Ops::for_device(&Device::Cpu), Ops::Fused);
    }
}
