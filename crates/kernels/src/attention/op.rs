//! Attention as a candle operation, and its composed reference, which also gives the pattern itself.

use super::{Buffers, Gradients, Inputs, Layout, Options, Saved, Size, backward, forward};
use crate::error::KernelError;
use crate::op::{host, output, tensor};
use candle_core::{CpuStorage, CustomOp3, D, Device, Layout as Strides, Result, Shape, Tensor};

struct Attention(Options);

fn size(q: &Shape, k: &Shape) -> Result<Size> {
    let (batch, heads, queries, head_size) = q.dims4()?;
    let (_, kv_heads, keys, _) = k.dims4()?;
    let size = Size { batch, queries, keys, heads, kv_heads, head_size };
    size.check()?;
    Ok(size)
}

/// Layouts of contiguous queries and of contiguous keys and values.
fn layouts(size: &Size) -> (Layout, Layout) {
    let keys = Layout::by_head(size.kv_heads, size.keys, size.head_size);
    (Layout::by_head(size.heads, size.queries, size.head_size), keys)
}

/// Buffer and layout of an argument whose rows are contiguous: slices of a cache need no copy.
fn strided<'a>(storage: &'a CpuStorage, strides: &Strides) -> Result<(&'a [f32], Layout)> {
    let op = "attention";
    match (storage, strides.stride()) {
        (CpuStorage::F32(data), &[batch, head, row, 1]) => {
            Ok((data, Layout { batch, head, row, offset: strides.start_offset() }))
        }
        (_, found) => Err(KernelError::Storage { op, found: format!("strides {found:?}") }.into()),
    }
}

impl Attention {
    fn run(&self, size: Size, inputs: Inputs<'_>) -> (Vec<f32>, Vec<f32>) {
        let (by_query, _) = layouts(&size);
        let mut out = vec![0.0; size.batch * size.heads * size.queries * size.head_size];
        let mut log_sum_exp = vec![0.0; size.batch * size.heads * size.queries];
        forward(size, self.0, inputs, &mut out, by_query, &mut log_sum_exp);
        (out, log_sum_exp)
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        lq: &Strides,
        k: &CpuStorage,
        lk: &Strides,
        v: &CpuStorage,
        lv: &Strides,
    ) -> Result<(CpuStorage, Shape)> {
        let size = size(lq.shape(), lk.shape())?;
        let inputs = Inputs { q: strided(q, lq)?, k: strided(k, lk)?, v: strided(v, lv)? };
        let (out, _) = self.run(size, inputs);
        Ok(output(out, lq.shape()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        out: &Tensor,
        dout: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let size = size(q.shape(), k.shape())?;
        let (q_values, k_values, v_values) = (host(q)?, host(k)?, host(v)?);
        let (out, dout) = (host(out)?, host(dout)?);
        let (by_query, by_key) = layouts(&size);
        let inputs = Inputs { q: (&q_values, by_query), k: (&k_values, by_key), v: (&v_values, by_key) };
        let (_, log_sum_exp) = self.run(size, inputs);
        let mut dq = vec![0.0; q_values.len()];
        let (mut dk, mut dv) = (vec![0.0; k_values.len()], vec![0.0; v_values.len()]);
        let buffers = Buffers::Apart([&mut dq, &mut dk, &mut dv]);
        let gradients = Gradients { buffers, q: by_query, k: by_key, v: by_key };
        let saved = Saved { out: &out, dout: &dout, layout: by_query, log_sum_exp: &log_sum_exp };
        backward(size, self.0, inputs, saved, gradients);
        Ok((Some(tensor(dq, q.shape())?), Some(tensor(dk, k.shape())?), Some(tensor(dv, v.shape())?)))
    }
}

/// The fused attention as a differentiable candle operation.
///
/// # Shapes
/// `q` `(B, H, T, D)`, `k` and `v` `(B, G, S, D)` with S ≥ T, rows contiguous; returns `(B, H, T, D)`.
pub fn fused(options: Options, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    q.apply_op3(k, v, Attention(options))
}

/// Each key/value head once for every query head it serves: `(B, G, S, D)` to `(B, H, S, D)`.
fn repeat_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, kv_heads, rows, head_size) = x.dims4()?;
    if kv_heads == heads {
        return Ok(x.clone());
    }
    x.unsqueeze(2)?
        .broadcast_as((batch, kv_heads, heads / kv_heads, rows, head_size))?
        .reshape((batch, heads, rows, head_size))
}

/// The pattern softmax(scale·Q·Kᵀ), zeros exact, from plain candle operations.
///
/// # Shapes
/// `q` `(B, H, T, D)`, `k` `(B, G, S, D)`; returns `(B, H, T, S)`.
pub fn pattern(options: Options, q: &Tensor, k: &Tensor) -> Result<Tensor> {
    let size = size(q.shape(), k.shape())?;
    let k = repeat_heads(k, size.heads)?;
    // each of these is as large as the pattern, so none is kept for longer than it is needed
    let scores = (q.contiguous()?.matmul(&k.transpose(2, 3)?.contiguous()?)? * f64::from(options.scale))?;
    let masked = if options.causal {
        let past = size.keys - size.queries;
        let hidden: Vec<f32> = (0..size.queries)
            .flat_map(|t| (0..size.keys).map(move |s| if s > past + t { f32::NEG_INFINITY } else { 0.0 }))
            .collect();
        let mask = Tensor::from_vec(hidden, (size.queries, size.keys), &Device::Cpu)?;
        scores.broadcast_add(&mask.to_device(q.device())?.to_dtype(q.dtype())?)?
    } else {
        scores.clone()
    };
    drop(scores);
    // softmax's value does not depend on the maximum, so no gradient goes through it
    let largest = masked.max_keepdim(D::Minus1)?.detach();
    let below = masked.broadcast_sub(&largest)?;
    drop(masked);
    let weights = below.exp()?;
    drop(below);
    weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)
}

/// The same as [`fused`] from plain candle operations, on any device and in any float type.
pub fn reference(options: Options, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let mut weights = pattern(options, q, k)?; // (B, H, T, S)
    if let Some(dropout) = options.dropout {
        weights = crate::dropout::reference(dropout, &weights)?;
    }
    gather(&weights, v)
}

/// What a pattern gathers from the values.
///
/// # Shapes
/// `pattern` `(B, H, T, S)`, `v` `(B, G, S, D)`; returns `(B, H, T, D)`.
pub fn gather(pattern: &Tensor, v: &Tensor) -> Result<Tensor> {
    pattern.matmul(&repeat_heads(v, pattern.dim(1)?)?.contiguous()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropout::Dropout;
    use softdict_testkit::{gradcheck, ramp};

    fn options(causal: bool, dropout: Option<Dropout>) -> Options {
        Options { dropout, ..Options::plain(causal, 0.7) }
    }

    #[test]
    fn attention_and_its_gradients_are_right() {
        // (heads, kv heads, queries, keys)
        for (heads, kv_heads, queries, keys) in [(3, 3, 5, 5), (4, 2, 3, 3), (2, 1, 2, 7), (1, 1, 1, 1)] {
            let shapes: [&[usize]; 3] =
                [&[2, heads, queries, 5], &[2, kv_heads, keys, 5], &[2, kv_heads, keys, 5]];
            for causal in [true, false] {
                if keys == 1 {
                    continue; // one key takes all attention whatever q and k are: no gradient to check
                }
                let options = options(causal, None);
                gradcheck(
                    &shapes,
                    |t| fused(options, &t[0], &t[1], &t[2]),
                    |t| reference(options, &t[0], &t[1], &t[2]),
                );
            }
        }
    }

    #[test]
    fn dropped_attention_and_its_gradients_are_right() {
        let options = options(true, Some(Dropout::new(0.4, 3, 1, 2).unwrap()));
        let shapes: [&[usize]; 3] = [&[2, 2, 6, 3], &[2, 2, 6, 3], &[2, 2, 6, 3]];
        gradcheck(
            &shapes,
            |t| fused(options, &t[0], &t[1], &t[2]),
            |t| reference(options, &t[0], &t[1], &t[2]),
        );
    }

    #[test]
    fn several_blocks_of_queries_equal_the_reference() {
        let make = |heads: usize, rows: usize, seed| {
            let values: Vec<f32> = ramp(2 * heads * rows * 4, seed).iter().map(|&v| v as f32).collect();
            Tensor::from_vec(values, (2, heads, rows, 4), &Device::Cpu).unwrap()
        };
        for (queries, keys) in [(450, 450), (70, 333)] {
            let vars = [make(4, queries, 0), make(2, keys, 1), make(2, keys, 2)]
                .map(|t| candle_core::Var::from_tensor(&t).unwrap());
            for causal in [true, false] {
                let gradients = |fast: bool| {
                    let [q, k, v] = &vars;
                    let op = if fast { fused } else { reference };
                    let y = op(options(causal, None), q, k, v).unwrap();
                    let store = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
                    let mut all = vec![y];
                    all.extend(vars.iter().map(|var| store.get(var).unwrap().clone()));
                    all
                };
                for (a, b) in gradients(true).iter().zip(&gradients(false)) {
                    let error = (a - b).unwrap().abs().unwrap().max_all().unwrap();
                    // f32 sums of 450 terms of size one
                    assert!(error.to_scalar::<f32>().unwrap() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn the_future_has_weight_exactly_zero_and_rows_sum_to_one() {
        let q = Tensor::new(&[[[[9.0f32], [-3.0], [80.0]]]], &Device::Cpu).unwrap();
        let rows = pattern(options(true, None), &q, &q).unwrap().reshape((3, 3)).unwrap();
        let rows: Vec<Vec<f32>> = rows.to_vec2().unwrap();
        assert_eq!(rows[0], [1.0, 0.0, 0.0]);
        assert!(rows[1][2] == 0.0);
        assert!(rows.iter().all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6));
    }

    #[test]
    fn heads_that_do_not_divide_into_groups_are_refused() {
        let q = Tensor::zeros((1, 3, 2, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
        let k = Tensor::zeros((1, 2, 2, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
        let message = fused(options(true, None), &q, &k, &k).unwrap_err().to_string();
        assert!(message.contains("number of heads is 3"), "{message}");
    }
}
