//! Cross-entropy of next-token logits in nats, and its gradient in the same pass.

use crate::error::{KernelError, check_size};
use crate::op::{host, output, tensor, values};
use crate::simd::{exp, max, sum, vectorized};
use candle_core::{CpuStorage, CustomOp1, D, Device, Layout, Result, Shape, Tensor};
use std::sync::Arc;

/// A target that takes no part in the loss.
pub const IGNORE: u32 = u32::MAX;

vectorized! {
    /// Turns a row of logits into (softmax − one-hot)·scale in place; returns −log p(target) in nats.
    fn loss_row(logits: &mut [f32], target: usize, scale: f32) -> f32 {
        let wanted = logits[target];
        let largest = max(logits);
        for value in logits.iter_mut() {
            *value = exp(*value - largest);
        }
        let total = sum(logits.len(), |i| logits[i]);
        let factor = scale / total;
        for value in logits.iter_mut() {
            *value *= factor;
        }
        logits[target] -= scale;
        largest - wanted + total.ln()
    }

    fn log_sum_exp(logits: &[f32]) -> f32 {
        let largest = max(logits);
        largest + sum(logits.len(), |i| exp(logits[i] - largest)).ln()
    }
}

fn target_in(target: u32, classes: usize) -> std::result::Result<usize, KernelError> {
    if (target as usize) < classes {
        return Ok(target as usize);
    }
    let (found, range) = (f64::from(target), "below the number of logits");
    Err(KernelError::Range { op: "cross_entropy", what: "a target", found, range })
}

/// Sum over rows of −log p(target) under softmax(logits), in nats; rows whose target is [`IGNORE`] count nothing.
///
/// # Shapes
/// `logits` `(M, V)` with `classes` V, `targets` M.
/// # Errors
/// When a target is not below V.
pub fn forward(logits: &[f32], classes: usize, targets: &[u32]) -> std::result::Result<f64, KernelError> {
    let mut total = 0.0;
    for (row, &target) in logits.chunks_exact(classes).zip(targets) {
        if target != IGNORE {
            let wanted = row[target_in(target, classes)?];
            total += f64::from(log_sum_exp(row) - wanted);
        }
    }
    Ok(total)
}

/// As [`forward`], and turns the logits into the gradient of scale·loss in place.
///
/// # Errors
/// When a target is not below V.
pub fn forward_backward(
    logits: &mut [f32],
    classes: usize,
    targets: &[u32],
    scale: f32,
) -> std::result::Result<f64, KernelError> {
    let mut total = 0.0;
    for (row, &target) in logits.chunks_exact_mut(classes).zip(targets) {
        if target == IGNORE {
            row.fill(0.0);
        } else {
            total += f64::from(loss_row(row, target_in(target, classes)?, scale));
        }
    }
    Ok(total)
}

struct CrossEntropy(Arc<[u32]>);

impl CrossEntropy {
    /// (rows, classes, 1 / rows that count)
    fn size(&self, shape: &Shape) -> Result<(usize, f32)> {
        let (rows, classes) = shape.dims2()?;
        check_size("cross_entropy", "number of targets", self.0.len(), rows)?;
        Ok((classes, 1.0 / counted(&self.0) as f32))
    }
}

/// Targets that take part, at least 1 so that a mean of nothing is 0.
fn counted(targets: &[u32]) -> usize {
    targets.iter().filter(|&&target| target != IGNORE).count().max(1)
}

impl CustomOp1 for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (classes, share) = self.size(layout.shape())?;
        let total = forward(values("cross_entropy", logits, layout)?, classes, &self.0)?;
        Ok(output(vec![(total * f64::from(share)) as f32], ()))
    }

    fn bwd(&self, logits: &Tensor, _: &Tensor, dloss: &Tensor) -> Result<Option<Tensor>> {
        let (classes, share) = self.size(logits.shape())?;
        let mut gradient = host(logits)?;
        let scale = share * dloss.to_scalar::<f32>()?;
        forward_backward(&mut gradient, classes, &self.0, scale)?;
        Ok(Some(tensor(gradient, logits.shape())?))
    }
}

/// Mean cross-entropy in nats as a differentiable candle operation.
///
/// # Shapes
/// `logits` `(M, V)`, `targets` M ([`IGNORE`] takes no part); returns a scalar.
pub fn fused(logits: &Tensor, targets: &Arc<[u32]>) -> Result<Tensor> {
    logits.apply_op1(CrossEntropy(Arc::clone(targets)))
}

/// The same from plain candle operations, on any device and in any float type.
pub fn reference(logits: &Tensor, targets: &[u32]) -> Result<Tensor> {
    let largest = logits.max_keepdim(D::Minus1)?.detach();
    let shifted = logits.broadcast_sub(&largest)?;
    let log_total = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?; // (M, 1)
    let known: Vec<u32> = targets.iter().map(|&target| if target == IGNORE { 0 } else { target }).collect();
    let weight: Vec<f32> = targets.iter().map(|&t| if t == IGNORE { 0.0 } else { 1.0 }).collect();
    let place = |t: Tensor| t.to_device(logits.device());
    let known = place(Tensor::from_vec(known, (targets.len(), 1), &Device::Cpu)?)?;
    let weight = place(Tensor::from_vec(weight, (targets.len(), 1), &Device::Cpu)?)?;
    let losses = (log_total - shifted.gather(&known, 1)?)?; // (M, 1)
    (losses * weight.to_dtype(logits.dtype())?)?.sum_all()? / counted(targets) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_testkit::gradcheck;

    #[test]
    fn cross_entropy_and_its_gradient_are_right() {
        let targets: Arc<[u32]> = Arc::new([3, 0, IGNORE, 20]);
        gradcheck(&[&[4, 21]], |t| fused(&t[0], &targets), |t| reference(&t[0], &targets));
    }

    #[test]
    fn uniform_logits_cost_the_logarithm_of_their_number() {
        let loss = forward(&[2.5; 65], 65, &[7]).unwrap();
        assert!((loss - 65f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn one_pass_gives_the_same_loss_and_ignored_rows_no_gradient() {
        let logits: Vec<f32> = (0..12).map(|i| (i as f32 * 1.7).sin() * 30.0).collect();
        let mut gradient = logits.clone();
        let loss = forward_backward(&mut gradient, 6, &[2, IGNORE], 0.5).unwrap();
        assert!((loss - forward(&logits, 6, &[2, IGNORE]).unwrap()).abs() < 1e-5);
        assert_eq!(gradient[6..], [0.0; 6]);
        assert!(gradient[..6].iter().sum::<f32>().abs() < 1e-6);
    }

    #[test]
    fn a_target_outside_the_logits_is_named() {
        assert!(forward(&[0.0; 4], 4, &[4]).unwrap_err().to_string().contains("target is 4"));
    }
}
