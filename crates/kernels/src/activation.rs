//! What an FFN does between its two products: GELU (exact or tanh), squared ReLU, or the gated SwiGLU.
//!
//! # Source
//! Hendrycks and Gimpel 2016, arXiv:1606.08415; So et al. 2021, arXiv:2109.08668 (squared ReLU); Shazeer 2020,
//! arXiv:2002.05202, equation 6 (SwiGLU).

use crate::error::KernelError;
use crate::op::{host, output, rows_and_width, tensor, values};
use crate::parallel::{each, share};
use crate::simd::{erf, exp, sigmoid, tanh, vectorized};
use candle_core::{CpuStorage, CustomOp1, D, Layout, Result, Shape, Tensor};
use std::f32::consts::FRAC_1_SQRT_2;

/// The nonlinearity of an FFN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x·Φ(x).
    Gelu,
    /// GPT-2's approximation: x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
    GeluTanh,
    /// max(x, 0)².
    Relu2,
    /// silu(gate)·up, where the input holds gate then up.
    SwiGlu,
}

impl Activation {
    /// Input width for each output: 2 for the gated one.
    pub fn inputs_per_output(self) -> usize {
        if self == Self::SwiGlu { 2 } else { 1 }
    }
}

/// 1/√(2π), the peak of the normal density.
const DENSITY: f32 = 0.398_942_3;
/// √(2/π).
const TANH_SCALE: f32 = 0.797_884_6;
/// Hendrycks and Gimpel 2016, section 2.
const TANH_CUBIC: f32 = 0.044_715;

/// Φ(x), exactly 0 where the approximation's last bit would be multiplied by a large −x.
#[inline(always)]
fn normal_cdf(x: f32) -> f32 {
    let phi = 0.5 * (1.0 + erf(x * FRAC_1_SQRT_2));
    if x < -5.6 { 0.0 } else { phi }
}

/// GELU and its slope; what is not used of the two is not computed.
#[inline(always)]
fn gelu(x: f32) -> (f32, f32) {
    let phi = normal_cdf(x);
    (x * phi, phi + x * DENSITY * exp(-0.5 * x * x))
}

#[inline(always)]
fn gelu_tanh(x: f32) -> (f32, f32) {
    let t = tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x));
    let inner = TANH_SCALE * (1.0 + 3.0 * TANH_CUBIC * x * x);
    (0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner)
}

#[inline(always)]
fn relu2(x: f32) -> (f32, f32) {
    let positive = x.max(0.0);
    (positive * positive, 2.0 * positive)
}

#[inline(always)]
fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> (f32, f32)) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = f(x).0;
    }
}

#[inline(always)]
fn unmap(x: &mut [f32], dy: &mut [f32], f: impl Fn(f32) -> (f32, f32)) {
    for (x, dy) in x.iter_mut().zip(dy) {
        let (y, slope) = f(*x);
        (*x, *dy) = (*dy * slope, y);
    }
}

vectorized! {
    fn forward_plain(kind: Activation, x: &[f32], y: &mut [f32]) {
        match kind {
            Activation::Gelu => map(x, y, gelu),
            Activation::GeluTanh => map(x, y, gelu_tanh),
            Activation::Relu2 | Activation::SwiGlu => map(x, y, relu2),
        }
    }

    fn forward_gated(width: usize, x: &[f32], y: &mut [f32]) {
        for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
            let (gate, up) = x.split_at(width);
            for c in 0..width {
                y[c] = gate[c] * sigmoid(gate[c]) * up[c];
            }
        }
    }

    fn backward_plain(kind: Activation, x: &mut [f32], dy: &mut [f32]) {
        match kind {
            Activation::Gelu => unmap(x, dy, gelu),
            Activation::GeluTanh => unmap(x, dy, gelu_tanh),
            Activation::Relu2 | Activation::SwiGlu => unmap(x, dy, relu2),
        }
    }

    fn backward_gated(width: usize, x: &mut [f32], dy: &mut [f32]) {
        for (x, dy) in x.chunks_exact_mut(2 * width).zip(dy.chunks_exact_mut(width)) {
            let (gate, up) = x.split_at_mut(width);
            for c in 0..width {
                let (g, u, d) = (gate[c], up[c], dy[c]);
                let s = sigmoid(g);
                gate[c] = d * u * s * (1.0 + g * (1.0 - s));
                up[c] = d * g * s;
                dy[c] = g * s * u;
            }
        }
    }
}

/// y = activation(x).
///
/// # Shapes
/// `x` `(M, F)`, for `SwiGlu` `(M, 2F)`; `y` `(M, F)` with `width` F.
pub fn forward(kind: Activation, width: usize, x: &[f32], y: &mut [f32]) {
    let piece = share(y.len() / width) * width;
    each(x.chunks(piece * kind.inputs_per_output()).zip(y.chunks_mut(piece)), |(x, y)| match kind {
        Activation::SwiGlu => forward_gated(width, x, y),
        plain => forward_plain(plain, x, y),
    });
}

/// Inverts [`forward`] in place, and computes it once more: `x` becomes dx, and `dy` becomes y.
///
/// # Shapes
/// `x` `(M, F)`, for `SwiGlu` `(M, 2F)`; `dy` `(M, F)` with `width` F.
pub fn backward(kind: Activation, width: usize, x: &mut [f32], dy: &mut [f32]) {
    let piece = share(dy.len() / width) * width;
    each(x.chunks_mut(piece * kind.inputs_per_output()).zip(dy.chunks_mut(piece)), |(x, dy)| match kind {
        Activation::SwiGlu => backward_gated(width, x, dy),
        plain => backward_plain(plain, x, dy),
    });
}

impl Activation {
    /// (shape of the result, its width) for an input of `shape`.
    fn result(self, shape: &Shape) -> std::result::Result<(Vec<usize>, usize), KernelError> {
        let (_, width) = rows_and_width(shape);
        if width % self.inputs_per_output() != 0 {
            let (found, range) = (width as f64, "even: gate and up");
            return Err(KernelError::Range { op: "swiglu", what: "the input width", found, range });
        }
        let mut dims = shape.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = width / self.inputs_per_output();
        }
        Ok((dims, width / self.inputs_per_output()))
    }
}

impl CustomOp1 for Activation {
    fn name(&self) -> &'static str {
        "activation"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (dims, width) = self.result(layout.shape())?;
        let x = values("activation", x, layout)?;
        let mut y = vec![0.0; x.len() / self.inputs_per_output()];
        forward(*self, width, x, &mut y);
        Ok(output(y, dims))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let (_, width) = self.result(x.shape())?;
        let (mut values, mut dy) = (host(x)?, host(dy)?);
        backward(*self, width, &mut values, &mut dy);
        Ok(Some(tensor(values, x.shape())?))
    }
}

/// The fused activation as a differentiable candle operation.
///
/// # Shapes
/// `x` `(…, F)`, for `SwiGlu` `(…, 2F)`; returns `(…, F)`.
pub fn fused(kind: Activation, x: &Tensor) -> Result<Tensor> {
    x.apply_op1(kind)
}

/// The same from plain candle operations, on any device and in any float type.
pub fn reference(kind: Activation, x: &Tensor) -> Result<Tensor> {
    match kind {
        Activation::Gelu => {
            let phi = ((x * f64::from(FRAC_1_SQRT_2))?.erf()? + 1.0)?;
            (x * 0.5)?.mul(&phi)
        }
        // composed here because candle's own backward of GELU truncates its constants
        Activation::GeluTanh => {
            let cubic = (x.mul(&x.sqr()?)? * 0.044_715)?;
            let inner = ((x + cubic)? * (2.0 / std::f64::consts::PI).sqrt())?;
            (x * 0.5)?.mul(&(inner.tanh()? + 1.0)?)
        }
        Activation::Relu2 => x.relu()?.sqr(),
        Activation::SwiGlu => {
            let halves = x.chunk(2, D::Minus1)?;
            // silu from its parts: x / (1 + e⁻ˣ)
            let gate = halves[0].div(&(halves[0].neg()?.exp()? + 1.0)?)?;
            gate.mul(&halves[1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_testkit::gradcheck;

    #[test]
    fn activations_and_their_gradients_are_right() {
        for kind in [Activation::Gelu, Activation::GeluTanh, Activation::Relu2, Activation::SwiGlu] {
            gradcheck(&[&[3, 5, 14]], |t| fused(kind, &t[0]), |t| reference(kind, &t[0]));
        }
    }

    #[test]
    fn large_inputs_stay_finite() {
        let x = [-1e4f32, -90.0, -10.0, 10.0, 90.0, 1e4];
        for kind in [Activation::Gelu, Activation::GeluTanh] {
            let mut y = [0.0; 6];
            forward(kind, 6, &x, &mut y);
            assert!(y[0].abs() < 1e-3 && y[1].abs() < 1e-3 && (y[4] - 90.0).abs() < 1e-3, "{y:?}");
            let (mut slope, mut again) = (x, [1.0; 6]);
            backward(kind, 6, &mut slope, &mut again);
            assert_eq!(again, y);
            assert!(slope[0].abs() < 1e-3 && (slope[5] - 1.0).abs() < 1e-3, "{slope:?}");
        }
    }

    #[test]
    fn an_odd_gated_input_is_refused() {
        let x = Tensor::zeros((2, 3), candle_core::DType::F32, &candle_core::Device::Cpu).unwrap();
        assert!(fused(Activation::SwiGlu, &x).unwrap_err().to_string().contains("width is 3"));
    }
}
