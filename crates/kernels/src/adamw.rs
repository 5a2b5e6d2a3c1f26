//! AdamW over flat buffers in one pass, and the global norm that gradients are clipped to.
//!
//! # Source
//! Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2; the arithmetic follows PyTorch's `AdamW`.

use crate::parallel::{each, ordered_sum, share};
use crate::simd::vectorized;

/// What one update needs besides the buffers.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// β₁, the decay of the mean.
    pub beta1: f64,
    /// β₂, the decay of the mean square.
    pub beta2: f64,
    /// ε, added to the root of the mean square.
    pub eps: f64,
    /// Weight decay λ; pass 0 for parameters that do not decay.
    pub weight_decay: f64,
    /// Number of this update, from 1.
    pub step: u64,
    /// Factor on the gradient: 1, or what clipping says.
    pub gradient_scale: f64,
}

/// The factors of [`Update`] as the inner loop uses them.
#[derive(Clone, Copy)]
struct Factors {
    keep: f32,
    beta1: f32,
    beta2: f32,
    step_size: f32,
    root_correction: f32,
    eps: f32,
    gradient_scale: f32,
}

vectorized! {
    fn update_piece(f: Factors, parameters: &mut [f32], gradient: &mut [f32], mean: &mut [f32], square: &mut [f32]) {
        let len = parameters.len();
        let (gradient, mean, square) = (&mut gradient[..len], &mut mean[..len], &mut square[..len]);
        for i in 0..len {
            let g = gradient[i] * f.gradient_scale;
            mean[i] = f.beta1 * mean[i] + (1.0 - f.beta1) * g;
            square[i] = f.beta2 * square[i] + (1.0 - f.beta2) * g * g;
            let root = square[i].sqrt() * f.root_correction + f.eps;
            parameters[i] = parameters[i] * f.keep - f.step_size * mean[i] / root;
            gradient[i] = 0.0;
        }
    }

    fn square_sum(values: &[f32]) -> f32 {
        crate::simd::sum(values.len(), |i| values[i] * values[i])
    }
}

/// One update of a parameter and its moments, which leaves the gradient at zero.
///
/// # Shapes
/// All four slices have the same length.
pub fn update(
    update: Update,
    parameters: &mut [f32],
    gradient: &mut [f32],
    mean: &mut [f32],
    square: &mut [f32],
) {
    let steps = update.step as f64;
    let factors = Factors {
        keep: (1.0 - update.learning_rate * update.weight_decay) as f32,
        beta1: update.beta1 as f32,
        beta2: update.beta2 as f32,
        step_size: (update.learning_rate / (1.0 - update.beta1.powf(steps))) as f32,
        root_correction: (1.0 / (1.0 - update.beta2.powf(steps)).sqrt()) as f32,
        eps: update.eps as f32,
        gradient_scale: update.gradient_scale as f32,
    };
    let piece = share(parameters.len()).max(4096);
    let moments = mean.chunks_mut(piece).zip(square.chunks_mut(piece));
    let pieces = parameters.chunks_mut(piece).zip(gradient.chunks_mut(piece)).zip(moments);
    each(pieces, |((parameters, gradient), (mean, square))| {
        update_piece(factors, parameters, gradient, mean, square);
    });
}

/// √Σg² over all gradients; the same whatever the number of threads. NaN and ∞ come through.
pub fn global_norm(gradient: &[f32]) -> f64 {
    // blocks of 4096 keep the f32 partial sums short
    ordered_sum(gradient.len(), 4096, |range| f64::from(square_sum(&gradient[range]))).sqrt()
}

/// The factor that brings a gradient of norm `norm` down to `limit`; 1 when it is below.
///
/// # Source
/// Pascanu et al. 2013, algorithm 1, with the 1e-6 of PyTorch's `clip_grad_norm_`.
pub fn clip_scale(norm: f64, limit: Option<f64>) -> f64 {
    limit.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(step: u64) -> Update {
        Update {
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.1,
            step,
            gradient_scale: 1.0,
        }
    }

    #[test]
    fn the_first_step_moves_by_the_learning_rate_against_the_sign() {
        let (mut p, mut m, mut v) = ([1.0f32, -2.0], [0.0; 2], [0.0; 2]);
        let mut g = [0.5, -3.0];
        update(options(1), &mut p, &mut g, &mut m, &mut v);
        assert_eq!(g, [0.0; 2]);
        // m̂/√v̂ = ±1 after one step; decay first: p·(1 − 0.1·0.1)
        assert!((p[0] - (0.99 - 0.1)).abs() < 1e-6 && (p[1] - (-1.98 + 0.1)).abs() < 1e-6, "{p:?}");
    }

    #[test]
    fn updates_equal_the_algorithm_in_f64() {
        let (mut p, mut m, mut v) = (vec![0.3f32; 5000], vec![0.0; 5000], vec![0.0; 5000]);
        let (mut ep, mut em, mut ev) = (0.3f64, 0.0f64, 0.0f64);
        for step in 1..=20u64 {
            let g = (step as f64 * 0.7).sin();
            update(options(step), &mut p, &mut vec![g as f32; 5000], &mut m, &mut v);
            em = 0.9 * em + 0.1 * g;
            ev = 0.99 * ev + 0.01 * g * g;
            ep *= 1.0 - 0.1 * 0.1;
            let (mh, vh) = (em / (1.0 - 0.9f64.powi(step as i32)), ev / (1.0 - 0.99f64.powi(step as i32)));
            ep -= 0.1 * mh / (vh.sqrt() + 1e-8);
        }
        // twenty f32 updates of size 0.1
        assert!(p.iter().all(|&p| (f64::from(p) - ep).abs() < 2e-6), "{} {ep}", p[0]);
    }

    #[test]
    fn the_norm_is_clipped_only_above_the_limit() {
        let gradient = vec![0.5f32; 10_000];
        let norm = global_norm(&gradient);
        assert!((norm - 50.0).abs() < 1e-6);
        assert!((clip_scale(norm, Some(1.0)) - 0.02).abs() < 1e-8);
        assert!((clip_scale(0.5, Some(1.0)) - 1.0).abs() < 1e-12);
        assert!((clip_scale(norm, None) - 1.0).abs() < 1e-12);
        assert!(global_norm(&[1.0, f32::NAN]).is_nan());
    }
}
