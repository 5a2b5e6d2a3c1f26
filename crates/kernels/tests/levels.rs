//! Every set of instructions gives the same: a process of its own, because the choice is the whole process's.

use softdict_kernels::attention::{self, Options};
use softdict_kernels::matmul::{Edge, Precision, View, matmul};
use softdict_kernels::simd::{Level, force};
use softdict_testkit::gradcheck;

const LEVELS: [Level; 4] = [Level::Portable, Level::Avx2, Level::Avx512, Level::Avx512Bf16];

fn naive(a: &[f32], b: &[f32], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            out[i * n + j] = (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j])).sum();
        }
    }
    out
}

/// Values that bf16 holds exactly, so that both precisions give the same.
fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 37 % 17) as f32 - 8.0) / 8.0).collect()
}

fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|i| values[(i % rows) * columns + i / rows]).collect()
}

fn products_match_the_definition_at_every_level_and_precision() {
    let sizes = [(1, 1, 1), (3, 5, 7), (17, 33, 9), (64, 32, 65), (13, 801, 40), (30, 20, 400), (5, 0, 3)];
    for level in LEVELS {
        force(level);
        for (m, k, n) in sizes {
            let (a, b) = (ramp(m * k), ramp(k * n));
            let expected = naive(&a, &b, m, k, n);
            let (at, bt) = (transposed(&a, m, k), transposed(&b, k, n));
            let lefts = [View::new(&a, m, k), View::new(&at, k, m).t()];
            let rights = [View::new(&b, k, n), View::new(&bt, n, k).t()];
            let (bias, residual) = (ramp(n), ramp(m * n));
            for (left, right) in lefts.into_iter().flat_map(|left| rights.map(|right| (left, right))) {
                for precision in [Precision::F32, Precision::Bf16] {
                    let mut out = vec![0.5; m * n];
                    matmul(&mut out, Edge { precision, ..Edge::default() }, left, right);
                    let close = |found: f32, expected: f64| (f64::from(found) - expected).abs() < 2e-4;
                    assert!(
                        out.iter().zip(&expected).all(|(x, y)| close(*x, *y)),
                        "{m}·{k}·{n} {precision:?} at {level:?}"
                    );
                    let edge = Edge {
                        scale: 2.0,
                        accumulate: true,
                        bias: Some(&bias),
                        residual: Some(View::new(&residual, m, n)),
                        precision,
                    };
                    matmul(&mut out, edge, left, right);
                    for (at, found) in out.iter().enumerate() {
                        let expected = 3.0 * expected[at] + f64::from(bias[at % n] + residual[at]);
                        assert!(close(*found, expected), "{m}·{k}·{n} {precision:?} at {level:?}");
                    }
                }
            }
        }
    }
}

fn bf16_rounds_the_operands_and_nothing_else_at_every_level() {
    let (m, k, n) = (7, 129, 33);
    let values = |len: usize, step: f32| (0..len).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
    let (a, b) = (values(m * k, 0.7), values(k * n, 0.3));
    let round =
        |values: &[f32]| values.iter().map(|&v| half::bf16::from_f32(v).to_f32()).collect::<Vec<f32>>();
    let expected = naive(&round(&a), &round(&b), m, k, n);
    for level in LEVELS {
        force(level);
        let mut out = vec![0.0; m * n];
        let edge = Edge { precision: Precision::Bf16, ..Edge::default() };
        matmul(&mut out, edge, View::new(&a, m, k), View::new(&b, k, n));
        assert!(out.iter().zip(&expected).all(|(x, y)| (f64::from(*x) - y).abs() < 1e-4), "{level:?}");
    }
}

fn attention_and_its_gradients_are_right_at_every_level() {
    let shapes: [&[usize]; 3] = [&[1, 2, 21, 7], &[1, 1, 26, 7], &[1, 1, 26, 7]];
    for level in LEVELS {
        force(level);
        for causal in [true, false] {
            let options = Options { causal, scale: 0.7, dropout: None };
            gradcheck(
                &shapes,
                |t| attention::fused(options, &t[0], &t[1], &t[2]),
                |t| attention::reference(options, &t[0], &t[1], &t[2]),
            );
        }
    }
}

// one test, so that no two levels are forced at once
#[test]
fn every_level_gives_the_same() {
    products_match_the_definition_at_every_level_and_precision();
    bf16_rounds_the_operands_and_nothing_else_at_every_level();
    attention_and_its_gradients_are_right_at_every_level();
}
