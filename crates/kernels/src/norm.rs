//! LayerNorm and RMSNorm over the last axis, two passes in the forward direction, statistics kept for backward.
//!
//! # Source
//! Ba et al. 2016, arXiv:1607.06450, equation 3; Zhang and Sennrich 2019, arXiv:1910.07467, equation 4.

use crate::parallel::{each, map, share};
use crate::simd::{add_assign, sum, vectorized};

/// Which statistics a norm removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Mean and variance: y = (x − μ)/√(σ² + ε)·γ + β.
    LayerNorm,
    /// Only the size: y = x/√(mean(x²) + ε)·γ.
    RmsNorm,
}

/// A norm without its weights.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    /// Which statistics are removed.
    pub kind: NormKind,
    /// ε.
    pub eps: f32,
}

/// y = (x − μ)·s·γ + β of one row.
#[inline(always)]
fn normalize(x: &[f32], weight: &[f32], bias: Option<&[f32]>, [mean, scale]: [f32; 2], y: &mut [f32]) {
    // lengths that the compiler sees to be equal leave no checks in the loops
    let (x, y) = (&x[..weight.len()], &mut y[..weight.len()]);
    match bias {
        Some(bias) => {
            let bias = &bias[..weight.len()];
            for c in 0..weight.len() {
                y[c] = (x[c] - mean) * scale * weight[c] + bias[c];
            }
        }
        None => {
            for c in 0..weight.len() {
                y[c] = (x[c] - mean) * scale * weight[c];
            }
        }
    }
}

vectorized! {
    fn forward_rows(norm: Norm, x: &[f32], weight: &[f32], bias: Option<&[f32]>, y: &mut [f32], stats: &mut [[f32; 2]]) {
        let width = weight.len();
        for ((x, y), stats) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(stats) {
            let mean = match norm.kind {
                NormKind::LayerNorm => sum(width, |c| x[c]) / width as f32,
                NormKind::RmsNorm => 0.0,
            };
            let variance = sum(width, |c| (x[c] - mean) * (x[c] - mean)) / width as f32;
            let scale = 1.0 / (variance + norm.eps).sqrt();
            *stats = [mean, scale];
            normalize(x, weight, bias, [mean, scale], y);
        }
    }

    fn normalized_rows(x: &[f32], weight: &[f32], bias: Option<&[f32]>, stats: &[[f32; 2]], y: &mut [f32]) {
        let width = weight.len();
        for ((x, y), &[mean, scale]) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(stats) {
            normalize(x, weight, bias, [mean, scale], y);
        }
    }

    fn backward_rows(saved: Saved<'_>, dy: &[f32], dx: &mut [f32], add: bool, dweight: &mut [f32]) {
        let Saved { kind, x, weight, stats } = saved;
        let width = weight.len();
        let dweight = &mut dweight[..width];
        for (((x, dy), dx), &[mean, scale]) in x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width)).zip(stats) {
            // x̂ = (x − μ)·s; dx̂ = dy·γ; dx = s·(dx̂ − mean(dx̂) − x̂·mean(dx̂·x̂))
            let shift = match kind {
                NormKind::LayerNorm => sum(width, |c| dy[c] * weight[c]) / width as f32,
                NormKind::RmsNorm => 0.0,
            };
            let along = sum(width, |c| dy[c] * weight[c] * (x[c] - mean)) * scale / width as f32;
            for c in 0..width {
                let normalized = (x[c] - mean) * scale;
                let own = scale * (dy[c] * weight[c] - shift - normalized * along);
                dx[c] = if add { dx[c] + own } else { own };
                dweight[c] += dy[c] * normalized;
            }
        }
    }
}

/// y = norm(x), keeping `[μ, 1/√(σ² + ε)]` of each row.
///
/// # Shapes
/// `x`, `y` `(M, C)`; `weight`, `bias` `(C)`; `stats` M.
pub fn forward(
    norm: Norm,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    stats: &mut [[f32; 2]],
) {
    let piece = share(stats.len());
    let rows = piece * weight.len();
    let pieces = x.chunks(rows).zip(y.chunks_mut(rows)).zip(stats.chunks_mut(piece));
    each(pieces, |((x, y), stats)| forward_rows(norm, x, weight, bias, y, stats));
}

/// y = norm(x) once more from the statistics kept by [`forward`].
pub fn recompute(x: &[f32], weight: &[f32], bias: Option<&[f32]>, stats: &[[f32; 2]], y: &mut [f32]) {
    let piece = share(stats.len());
    let rows = piece * weight.len();
    let pieces = x.chunks(rows).zip(y.chunks_mut(rows)).zip(stats.chunks(piece));
    each(pieces, |((x, y), stats)| normalized_rows(x, weight, bias, stats, y));
}

/// What [`forward`] was given and kept, for [`backward`].
#[derive(Clone, Copy)]
pub struct Saved<'a> {
    /// Which statistics were removed.
    pub kind: NormKind,
    /// The input `(M, C)`.
    pub x: &'a [f32],
    /// γ `(C)`.
    pub weight: &'a [f32],
    /// M statistics, as [`forward`] left them.
    pub stats: &'a [[f32; 2]],
}

/// Inverts [`forward`]: dx (overwritten, or added to when `add`), and dγ += Σ dy·x̂. The gradient of β is that
/// of any bias: [`crate::linear::backward_bias`].
///
/// # Shapes
/// `dy`, `dx` `(M, C)`; `dweight` `(C)`.
pub fn backward(saved: Saved<'_>, dy: &[f32], dx: &mut [f32], add: bool, dweight: &mut [f32]) {
    let Saved { kind, x, weight, stats } = saved;
    let piece = share(stats.len());
    let rows = piece * weight.len();
    let pieces = x.chunks(rows).zip(dy.chunks(rows)).zip(dx.chunks_mut(rows)).zip(stats.chunks(piece));
    let partial = map(pieces, |(((x, dy), dx), stats)| {
        let mut dweight = vec![0.0; weight.len()];
        backward_rows(Saved { kind, x, weight, stats }, dy, dx, add, &mut dweight);
        dweight
    });
    for part in &partial {
        add_assign(dweight, part);
    }
}

mod op {
    use super::{Norm, NormKind, Saved, backward, forward};
    use crate::error::check_size;
    use crate::linear::backward_bias;
    use crate::op::{host, output, rows_and_width, tensor, values};
    use candle_core::{CpuStorage, CustomOp2, CustomOp3, D, Layout, Result, Shape, Tensor};

    impl Norm {
        fn run(
            self,
            x: (&CpuStorage, &Layout),
            weight: &[f32],
            bias: Option<&[f32]>,
        ) -> Result<(CpuStorage, Shape)> {
            let (rows, width) = rows_and_width(x.1.shape());
            check_size("norm", "weight length", weight.len(), width)?;
            let (mut y, mut stats) = (vec![0.0; rows * width], vec![[0.0; 2]; rows]);
            forward(self, values("norm", x.0, x.1)?, weight, bias, &mut y, &mut stats);
            Ok(output(y, x.1.shape()))
        }

        fn gradients(
            self,
            x: &Tensor,
            weight: &Tensor,
            dy: &Tensor,
            dbias: Option<&mut [f32]>,
        ) -> Result<(Tensor, Tensor)> {
            let (rows, width) = rows_and_width(x.shape());
            let (x_values, weight_values) = (host(x)?, host(weight)?);
            let (mut scratch, mut stats) = (vec![0.0; rows * width], vec![[0.0; 2]; rows]);
            forward(self, &x_values, &weight_values, None, &mut scratch, &mut stats);
            let (dy, mut dx, mut dweight) = (host(dy)?, vec![0.0; rows * width], vec![0.0; width]);
            if let Some(dbias) = dbias {
                backward_bias(&dy, dbias);
            }
            let saved = Saved { kind: self.kind, x: &x_values, weight: &weight_values, stats: &stats };
            backward(saved, &dy, &mut dx, false, &mut dweight);
            Ok((tensor(dx, x.shape())?, tensor(dweight, weight.shape())?))
        }
    }

    impl CustomOp2 for Norm {
        fn name(&self) -> &'static str {
            "norm"
        }

        fn cpu_fwd(
            &self,
            x: &CpuStorage,
            lx: &Layout,
            w: &CpuStorage,
            lw: &Layout,
        ) -> Result<(CpuStorage, Shape)> {
            self.run((x, lx), values("norm", w, lw)?, None)
        }

        fn bwd(
            &self,
            x: &Tensor,
            w: &Tensor,
            _: &Tensor,
            dy: &Tensor,
        ) -> Result<(Option<Tensor>, Option<Tensor>)> {
            let (dx, dw) = self.gradients(x, w, dy, None)?;
            Ok((Some(dx), Some(dw)))
        }
    }

    impl CustomOp3 for Norm {
        fn name(&self) -> &'static str {
            "norm"
        }

        fn cpu_fwd(
            &self,
            x: &CpuStorage,
            lx: &Layout,
            w: &CpuStorage,
            lw: &Layout,
            b: &CpuStorage,
            lb: &Layout,
        ) -> Result<(CpuStorage, Shape)> {
            self.run((x, lx), values("norm", w, lw)?, Some(values("norm", b, lb)?))
        }

        fn bwd(
            &self,
            x: &Tensor,
            w: &Tensor,
            b: &Tensor,
            _: &Tensor,
            dy: &Tensor,
        ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
            let mut dbias = vec![0.0; b.elem_count()];
            let (dx, dw) = self.gradients(x, w, dy, Some(&mut dbias))?;
            Ok((Some(dx), Some(dw), Some(tensor(dbias, b.shape())?)))
        }
    }

    /// The fused norm as a differentiable candle operation.
    ///
    /// # Shapes
    /// `x` `(…, C)`, `weight` and `bias` `(C)`; returns the shape of `x`.
    pub fn fused(norm: Norm, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match bias {
            Some(bias) => x.apply_op3(weight, bias, norm),
            None => x.apply_op2(weight, norm),
        }
    }

    /// The same from plain candle operations, on any device and in any float type.
    pub fn reference(norm: Norm, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let centred = match norm.kind {
            NormKind::LayerNorm => x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?,
            NormKind::RmsNorm => x.clone(),
        };
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?; // (…, 1)
        let scale = variance.affine(1.0, f64::from(norm.eps))?.sqrt()?.recip()?;
        let y = centred.broadcast_mul(&scale)?.broadcast_mul(weight)?;
        match bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }
}
pub use op::{fused, reference};

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_testkit::gradcheck;

    #[test]
    fn norms_and_their_gradients_are_right() {
        for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
            let norm = Norm { kind, eps: 1e-3 };
            let shapes: [&[usize]; 3] = [&[2, 3, 19], &[19], &[19]];
            gradcheck(
                &shapes,
                |t| fused(norm, &t[0], &t[1], Some(&t[2])),
                |t| reference(norm, &t[0], &t[1], Some(&t[2])),
            );
            gradcheck(
                &shapes[..2],
                |t| fused(norm, &t[0], &t[1], None),
                |t| reference(norm, &t[0], &t[1], None),
            );
        }
    }

    #[test]
    fn a_constant_row_is_finite_and_a_large_mean_loses_nothing() {
        let norm = Norm { kind: NormKind::LayerNorm, eps: 1e-5 };
        let (mut y, mut stats) = ([9.0; 8], [[0.0; 2]; 2]);
        let x = [3.0, 3.0, 3.0, 3.0, 10_001.0, 10_002.0, 10_003.0, 10_004.0];
        forward(norm, &x, &[1.0; 4], None, &mut y, &mut stats);
        assert_eq!(y[..4], [0.0; 4]);
        // (−1.5, −0.5, 0.5, 1.5)/√1.25; E[x²] − E[x]² in f32 would give noise here
        assert!((y[4] + 1.341_635).abs() < 1e-4 && (y[7] - 1.341_635).abs() < 1e-4, "{y:?}");
        let mut again = [0.0; 8];
        recompute(&x, &[1.0; 4], None, &stats, &mut again);
        assert_eq!(again, y);
    }
}
