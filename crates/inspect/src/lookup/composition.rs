//! Which heads read what earlier heads wrote, from the weights alone.
//!
//! # Source
//! Elhage et al. 2021, "A mathematical framework for transformer circuits", "Composition scores": the size of the product of
//! the two heads' matrices over the product of their sizes (Frobenius norms). RoPE and norms' scales are left out; norms'
//! weights are folded in.

use crate::ablation::HeadId;
use crate::error::{InspectError, Result};
use serde::Serialize;
use softdict_kernels::matmul::{Edge, View, matmul};
use softdict_kernels::norm::NormKind;
use softdict_model::{ModelConfig, Parameters};

/// How much of one head's output another reads: 0 nothing, 1 all of it in the direction it reads most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Composition {
    /// The head that wrote.
    pub from: HeadId,
    /// The head, in a later layer, that reads.
    pub to: HeadId,
    /// Through its queries.
    pub query: f64,
    /// Through its keys.
    pub key: f64,
    /// Through its values.
    pub value: f64,
}

/// One head's four matrices, each (D, C), and their Gram matrices, each (D, D).
struct Matrices {
    id: HeadId,
    query: Side,
    key: Side,
    value: Side,
    out: Side, // transposed
}

struct Side {
    rows: Vec<f32>,
    gram: Vec<f32>,
}

impl Side {
    fn new(rows: Vec<f32>, size: usize) -> Self {
        let mut side = Self { gram: Vec::new(), rows };
        side.gram = side.times(&side, size);
        side
    }

    /// A·Bᵀ, (D, D).
    fn times(&self, other: &Self, size: usize) -> Vec<f32> {
        let width = self.rows.len() / size;
        let mut product = vec![0.0; size * size];
        let (a, b) = (View::new(&self.rows, size, width), View::new(&other.rows, size, width).t());
        matmul(&mut product, Edge::default(), a, b);
        product
    }
}

/// The scores of every pair of heads in two layers, earlier to later.
///
/// # Errors
/// When a weight is missing.
pub fn composition(config: &ModelConfig, parameters: &Parameters) -> Result<Vec<Composition>> {
    let mut heads = Vec::new();
    for layer in 0..config.layers() {
        for head in 0..config.heads {
            heads.push(matrices(config, parameters, HeadId { layer, head })?);
        }
    }
    let size = config.head_size();
    let mut found = Vec::new();
    for from in &heads {
        let written = norm_of(&from.out.gram, &from.value.gram); // ‖W_O·W_V‖
        for to in heads.iter().filter(|to| to.id.layer > from.id.layer) {
            let scores = norm_of(&to.query.gram, &to.key.gram); // ‖W_Qᵀ·W_K‖
            let values = norm_of(&to.out.gram, &to.value.gram);
            // ‖Aᵀ·X·B‖² = Σ (X·BBᵀ) ∘ (AAᵀ·X), where X = (what reads)·W_O and B = W_V of the head that wrote
            let through = |reads: &Side, other: &Side, whole: f64| {
                let x = reads.times(&from.out, size);
                let product = |a: &[f32], b: &[f32]| {
                    let mut product = vec![0.0; size * size];
                    matmul(&mut product, Edge::default(), View::new(a, size, size), View::new(b, size, size));
                    product
                };
                let (right, left) = (product(&x, &from.value.gram), product(&other.gram, &x));
                norm_of(&right, &left) / (whole * written).max(f64::MIN_POSITIVE)
            };
            found.push(Composition {
                from: from.id,
                to: to.id,
                query: through(&to.query, &to.key, scores),
                key: through(&to.key, &to.query, scores),
                value: through(&to.value, &to.out, values),
            });
        }
    }
    if found.iter().any(|pair| !(pair.query + pair.key + pair.value).is_finite()) {
        return Err(InspectError::NotFinite { what: "composition scores" });
    }
    Ok(found)
}

/// √Σ a∘b: of two Gram matrices, the size of the product of what they are of.
fn norm_of(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>().max(0.0).sqrt()
}

fn matrices(config: &ModelConfig, parameters: &Parameters, id: HeadId) -> Result<Matrices> {
    let (size, width) = (config.head_size(), config.width());
    let name = |part: &str| format!("blocks.{}.{part}.weight", id.layer);
    let (qkv, folded) = (parameters.get(&name("attention.qkv"))?, parameters.get(&name("norm1"))?);
    let side = |head: usize| {
        let mut rows = qkv[head * size * width..(head + 1) * size * width].to_vec();
        for row in rows.chunks_exact_mut(width) {
            row.iter_mut().zip(folded).for_each(|(value, weight)| *value *= weight);
            if config.norm().kind == NormKind::LayerNorm {
                // what the norm takes away, the head cannot read
                let mean = row.iter().sum::<f32>() / width as f32;
                for value in row {
                    *value -= mean;
                }
            }
        }
        Side::new(rows, size)
    };
    let kv_head = id.head / (config.heads / config.kv_heads);
    let out = parameters.get(&name("attention.out"))?; // (C, H·D)
    let columns = config.heads * size;
    let mut turned = vec![0.0; size * width];
    for (row, weights) in out.chunks_exact(columns).enumerate() {
        for (at, weight) in weights[id.head * size..(id.head + 1) * size].iter().enumerate() {
            turned[at * width + row] = *weight;
        }
    }
    Ok(Matrices {
        id,
        query: side(id.head),
        key: side(config.heads + kv_head),
        value: side(config.heads + config.kv_heads + kv_head),
        out: Side::new(turned, size),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_model::ModelSettings;
    use softdict_model::settings::NormChoice;

    /// Whole matrices and their Frobenius norms, in f64.
    fn naive(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
        let mut out = vec![0.0; m * n];
        for i in 0..m {
            for l in 0..k {
                for j in 0..n {
                    out[i * n + j] += a[i * k + l] * b[l * n + j];
                }
            }
        }
        out
    }

    fn turned(a: &[f64], rows: usize, columns: usize) -> Vec<f64> {
        (0..rows * columns).map(|i| a[(i % rows) * columns + i / rows]).collect()
    }

    #[test]
    fn the_scores_are_those_of_the_whole_matrices() {
        let settings = ModelSettings {
            layers: 2,
            heads: 2,
            kv_heads: Some(1),
            width: 12,
            norm: NormChoice::RmsNorm,
            bias: false,
            ..Default::default()
        };
        let config = ModelConfig::new(&settings, 5).unwrap();
        let parameters = Parameters::initial(&config, 1);
        let (size, width) = (6, 12);
        let found = composition(&config, &parameters).unwrap();
        assert_eq!(found.len(), 4);
        for score in found {
            let matrix = |id: HeadId, first: usize| -> Vec<f64> {
                let qkv = parameters.get(&format!("blocks.{}.attention.qkv.weight", id.layer)).unwrap();
                qkv[first * size * width..(first + 1) * size * width].iter().map(|&v| f64::from(v)).collect()
            };
            let out = |id: HeadId| -> Vec<f64> {
                let weight = parameters.get(&format!("blocks.{}.attention.out.weight", id.layer)).unwrap();
                let rows = weight.chunks(2 * size).flat_map(|row| &row[id.head * size..(id.head + 1) * size]);
                rows.map(|&v| f64::from(v)).collect()
            };
            let ov = |id: HeadId| naive(&out(id), &matrix(id, 3), width, size, width);
            let qk = naive(
                &turned(&matrix(score.to, score.to.head), size, width),
                &matrix(score.to, 2),
                width,
                size,
                width,
            );
            let norm = |a: &[f64]| a.iter().map(|v| v * v).sum::<f64>().sqrt();
            let score_of = |reads: &[f64]| {
                let product = naive(reads, &ov(score.from), width, width, width);
                norm(&product) / (norm(reads) * norm(&ov(score.from)))
            };
            let expected = [score_of(&turned(&qk, width, width)), score_of(&qk), score_of(&ov(score.to))];
            for (found, expected) in [score.query, score.key, score.value].into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            }
        }
    }
}
