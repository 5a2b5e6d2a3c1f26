//! Dropout whose mask is a pure function of (seed, forward pass, site, element): never stored, the same everywhere.
//!
//! # Source
//! Srivastava et al. 2014; kept elements are scaled by 1/(1 − p), so nothing changes outside training.

use crate::error::KernelError;
use crate::op::{host, output, tensor, values};
use crate::parallel::{each, share};
use crate::simd::vectorized;
use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use softdict_random::{Purpose, Space};

/// One use of dropout in one forward pass.
#[derive(Debug, Clone, Copy)]
pub struct Dropout {
    space: Space,
    /// Words below this are dropped: p·2³².
    threshold: u32,
    scale: f32,
}

impl Dropout {
    /// Drops with probability `probability`; `pass` counts forward passes of the run, `site` places in the model.
    ///
    /// # Errors
    /// When the probability is outside [0, 1).
    pub fn new(probability: f32, seed: u64, pass: u64, site: u16) -> std::result::Result<Self, KernelError> {
        if !(0.0..1.0).contains(&probability) {
            let (found, range) = (f64::from(probability), "at least 0 and below 1");
            return Err(KernelError::Range { op: "dropout", what: "the probability", found, range });
        }
        let space = Space::new(seed, Purpose::Dropout, (pass << 16) | u64::from(site));
        let threshold = (f64::from(probability) * 4_294_967_296.0) as u32;
        Ok(Self { space, threshold, scale: 1.0 / (1.0 - probability) })
    }

    /// Multiplies `values`, which are elements `first..` of the tensor, by the mask.
    pub fn apply(&self, first: u64, values: &mut [f32]) {
        let ahead = ((4 - first % 4) % 4) as usize;
        let (head, body) = values.split_at_mut(ahead.min(values.len()));
        for (at, value) in head.iter_mut().enumerate() {
            let keep = self.space.word(first + at as u64) >= self.threshold;
            *value *= if keep { self.scale } else { 0.0 };
        }
        apply_blocks(self.space, self.threshold, self.scale, (first + ahead as u64) / 4, body);
    }

    /// As [`Dropout::apply`] on a whole tensor, in parallel.
    pub fn apply_all(&self, values: &mut [f32]) {
        let piece = share(values.len());
        each(values.chunks_mut(piece).enumerate(), |(index, values)| {
            self.apply((index * piece) as u64, values);
        });
    }
}

vectorized! {
    fn apply_blocks(space: Space, threshold: u32, scale: f32, first_block: u64, values: &mut [f32]) {
        // sixteen counters at a time, so that the rounds run in vector registers
        const TOGETHER: usize = 16;
        let mut words = [[0u32; 4]; TOGETHER];
        for (group, values) in values.chunks_mut(4 * TOGETHER).enumerate() {
            let first = first_block + (group * TOGETHER) as u64;
            for (at, words) in words.iter_mut().enumerate() {
                *words = space.block(first + at as u64);
            }
            for (value, &word) in values.iter_mut().zip(words.as_flattened()) {
                *value *= if word >= threshold { scale } else { 0.0 };
            }
        }
    }
}

impl CustomOp1 for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut y = values("dropout", x, layout)?.to_vec();
        self.apply_all(&mut y);
        Ok(output(y, layout.shape()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let mut dx = host(dy)?;
        self.apply_all(&mut dx);
        Ok(Some(tensor(dx, x.shape())?))
    }
}

/// Dropout as a differentiable candle operation, any shape.
pub fn fused(dropout: Dropout, x: &Tensor) -> Result<Tensor> {
    x.apply_op1(dropout)
}

/// The same mask as a tensor, multiplied by plain candle operations on any device.
pub fn reference(dropout: Dropout, x: &Tensor) -> Result<Tensor> {
    let mut mask = vec![1.0; x.elem_count()];
    dropout.apply_all(&mut mask);
    x.mul(&Tensor::from_vec(mask, x.shape(), &Device::Cpu)?.to_device(x.device())?.to_dtype(x.dtype())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_testkit::gradcheck;

    #[test]
    fn dropout_and_its_gradient_are_right() {
        let dropout = Dropout::new(0.3, 5, 7, 1).unwrap();
        gradcheck(&[&[5, 31]], |t| fused(dropout, &t[0]), |t| reference(dropout, &t[0]));
    }

    #[test]
    fn a_mask_does_not_depend_on_where_it_is_cut() {
        let dropout = Dropout::new(0.5, 1, 2, 3).unwrap();
        let mut whole = vec![1.0; 203];
        dropout.apply(0, &mut whole);
        for cut in [1, 2, 3, 4, 97] {
            let mut parts = vec![1.0; 203];
            let (head, tail) = parts.split_at_mut(cut);
            dropout.apply(0, head);
            dropout.apply(cut as u64, tail);
            assert_eq!(parts, whole);
        }
    }

    #[test]
    fn the_share_dropped_is_the_probability_and_the_mean_stays() {
        let mut values = vec![1.0; 40_000];
        Dropout::new(0.2, 1, 0, 0).unwrap().apply_all(&mut values);
        let dropped = values.iter().filter(|&&v| v == 0.0).count() as f64 / 40_000.0;
        // six standard errors of a share of 0.2 over 40,000
        assert!((dropped - 0.2).abs() < 0.012, "{dropped}");
        assert!(values.iter().all(|&v| v == 0.0 || (v - 1.25).abs() < 1e-6));
    }

    #[test]
    fn passes_and_sites_differ_and_a_bad_probability_is_refused() {
        let mask = |pass, site| {
            let mut values = vec![1.0; 64];
            Dropout::new(0.5, 1, pass, site).unwrap().apply_all(&mut values);
            values
        };
        assert_ne!(mask(0, 0), mask(1, 0));
        assert_ne!(mask(0, 0), mask(0, 1));
        assert!(Dropout::new(1.0, 0, 0, 0).unwrap_err().to_string().contains("probability is 1"));
    }
}
