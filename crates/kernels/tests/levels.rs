//! Every set of instructions gives the same: a process of its own, because the choice is the whole process's.

use candle_core::{Device, Result, Tensor, Var};
use softdict_kernels::attention::{self, Options};
use softdict_kernels::decode;
use softdict_kernels::linear::Size;
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
            let options = Options::plain(causal, 0.7);
            gradcheck(
                &shapes,
                |t| attention::fused(options, &t[0], &t[1], &t[2]),
                |t| attention::reference(options, &t[0], &t[1], &t[2]),
            );
        }
    }
}

/// The result of attention and the gradients of its square.
fn result_and_gradients(
    vars: &[Var; 3],
    op: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    let [q, k, v] = vars;
    let y = op(q, k, v)?;
    let store = y.sqr()?.sum_all()?.backward()?;
    let gradients = [q, k, v].map(|var| store.get(var).cloned());
    Ok([Some(y)].into_iter().chain(gradients).flatten().collect())
}

/// Largest difference, and largest value of `b`.
fn difference(a: &Tensor, b: &Tensor) -> Result<(f32, f32)> {
    let largest = |t: &Tensor| t.abs()?.max_all()?.to_scalar::<f32>();
    Ok((largest(&(a - b)?)?, largest(b)?))
}

fn several_blocks_of_attention_equal_the_reference_at_every_level_and_precision() -> Result<()> {
    // more queries and keys than any block has, odd numbers of both, and a head of an odd size
    for (queries, keys, head_size) in [(451, 451, 7), (97, 401, 20)] {
        let make = |heads: usize, rows: usize, step: f32| {
            let values: Vec<f32> = (0..heads * rows * head_size).map(|i| (i as f32 * step).sin()).collect();
            Var::from_vec(values, (1, heads, rows, head_size), &Device::Cpu)
        };
        let vars = [make(2, queries, 0.7)?, make(1, keys, 0.41)?, make(1, keys, 0.013)?];
        for causal in [true, false] {
            let options = Options::plain(causal, 0.7);
            let expected = result_and_gradients(&vars, |q, k, v| attention::reference(options, q, k, v))?;
            for level in LEVELS {
                force(level);
                for precision in [Precision::F32, Precision::Bf16] {
                    let options = Options { precision, ..options };
                    let found = result_and_gradients(&vars, |q, k, v| attention::fused(options, q, k, v))?;
                    assert_eq!(found.len(), 4);
                    for (found, expected) in found.iter().zip(&expected) {
                        let (error, size) = difference(found, expected)?;
                        // sums of f32 terms; of a gradient of bf16, three rounded operands of 8 bits
                        let most = size.max(0.1) * if precision == Precision::F32 { 1e-5 } else { 4e-2 };
                        let rounds = precision == Precision::F32 || error > 1e-5 * size;
                        assert!(
                            error < most && rounds,
                            "{error} of {size}: {queries} {keys} {causal} {precision:?} at {level:?}"
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

fn decoding_equals_the_definition_at_every_level() {
    let (rows, inputs, outputs) = (6, 45, 11);
    let (x, weight) = (ramp(rows * inputs), ramp(outputs * inputs));
    let expected = naive(&x, &transposed(&weight, outputs, inputs), rows, inputs, outputs);
    for level in LEVELS {
        force(level);
        let mut y = vec![9.0; rows * outputs];
        decode::linear(Size { inputs, outputs }, &x, &weight, None, None, &mut y);
        assert!(y.iter().zip(&expected).all(|(x, y)| (f64::from(*x) - y).abs() < 1e-4), "{level:?}");
    }
}

// one test, so that no two levels are forced at once
#[test]
fn every_level_gives_the_same() -> Result<()> {
    products_match_the_definition_at_every_level_and_precision();
    bf16_rounds_the_operands_and_nothing_else_at_every_level();
    attention_and_its_gradients_are_right_at_every_level();
    several_blocks_of_attention_equal_the_reference_at_every_level_and_precision()?;
    decoding_equals_the_definition_at_every_level();
    Ok(())
}
