//! Each operation, forward and backward: the kernels of this crate against the same from plain candle operations.
//!
//! `cargo bench -p softdict-kernels` runs all, `-- attention` only what has this in its name. Shapes are those of
//! nanoGPT's example for a CPU: 12 sequences of 64 tokens, 4 heads, width 128.

#![expect(clippy::unwrap_used, reason = "a bench has nobody to report an error to")]

use candle_core::{Device, Result, Tensor, Var};
use criterion::{Criterion, criterion_group, criterion_main};
use softdict_kernels::activation::Activation;
use softdict_kernels::attention::Options;
use softdict_kernels::dropout::Dropout;
use softdict_kernels::matmul::{Edge, Precision, View, matmul};
use softdict_kernels::norm::{Norm, NormKind};
use softdict_kernels::rope::RopeTable;
use softdict_kernels::{Ops, adamw};
use std::hint::black_box;
use std::sync::Arc;

const BATCH: usize = 12;
const TIME: usize = 64;
const HEADS: usize = 4;
const WIDTH: usize = 128;
const CLASSES: usize = 65;

/// Values without a pattern that matters.
fn variable(dims: &[usize]) -> Var {
    let count: usize = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i as f32 * 0.618).sin()).collect();
    let tensor = Tensor::from_vec(values, dims, &Device::Cpu).unwrap();
    Var::from_tensor(&tensor).unwrap()
}

/// Measures `op` on inputs of these shapes, forward alone and forward with backward, both ways.
fn compare(
    criterion: &mut Criterion,
    name: &str,
    shapes: &[&[usize]],
    op: impl Fn(Ops, &[Var]) -> Result<Tensor>,
) {
    let inputs: Vec<Var> = shapes.iter().map(|dims| variable(dims)).collect();
    let mut group = criterion.benchmark_group(name);
    for (way, ops) in [("fused", Ops::Fused), ("composed", Ops::Reference)] {
        let forward = || op(ops, &inputs).unwrap();
        group.bench_function(format!("{way}/forward"), |bencher| bencher.iter(|| black_box(forward())));
        let both = || forward().sum_all().and_then(|sum| sum.backward());
        group.bench_function(format!("{way}/forward and backward"), |bencher| {
            bencher.iter(|| black_box(both()));
        });
    }
    group.finish();
}

fn operations(criterion: &mut Criterion) {
    let rows: &[usize] = &[BATCH, TIME, WIDTH];
    let heads: &[usize] = &[BATCH, HEADS, TIME, WIDTH / HEADS];
    compare(criterion, "linear", &[rows, &[4 * WIDTH, WIDTH], &[4 * WIDTH]], |ops, x| {
        ops.linear(&x[0], &x[1], Some(&x[2]))
    });
    for (name, kind) in [("layernorm", NormKind::LayerNorm), ("rmsnorm", NormKind::RmsNorm)] {
        compare(criterion, name, &[rows, &[WIDTH], &[WIDTH]], |ops, x| {
            ops.norm(Norm { kind, eps: 1e-5 }, &x[0], &x[1], Some(&x[2]))
        });
    }
    let table = RopeTable::new(0..TIME, WIDTH / HEADS, 10_000.0).unwrap();
    let table = Arc::new(table);
    compare(criterion, "rope", &[heads], |ops, x| ops.rope(&table, &x[0], 0));
    let options = Options::plain(true, (HEADS as f32 / WIDTH as f32).sqrt());
    compare(criterion, "attention", &[heads; 3], |ops, x| ops.attention(options, &x[0], &x[1], &x[2]));
    let hidden: &[usize] = &[BATCH, TIME, 4 * WIDTH];
    for kind in [Activation::Gelu, Activation::GeluTanh, Activation::Relu2, Activation::SwiGlu] {
        let name = format!("activation {kind:?}").to_lowercase();
        compare(criterion, &name, &[hidden], |ops, x| ops.activation(kind, &x[0]));
    }
    let ids: Arc<[u32]> = (0..BATCH * TIME).map(|i| (i * 31 % CLASSES) as u32).collect();
    compare(criterion, "embedding", &[&[CLASSES, WIDTH]], |ops, x| {
        ops.embedding(&x[0], &ids, &[BATCH, TIME])
    });
    compare(criterion, "cross-entropy", &[&[BATCH * TIME, CLASSES]], |ops, x| ops.cross_entropy(&x[0], &ids));
    let dropout = Dropout::new(0.1, 1, 0, 0).unwrap();
    compare(criterion, "dropout", &[rows], |ops, x| ops.dropout(dropout, &x[0]));
}

/// What has no composed counterpart: the products themselves, and the optimizer.
fn kernels(criterion: &mut Criterion) {
    let (m, k, n) = (BATCH * TIME, WIDTH, 4 * WIDTH);
    let (a, b, mut out) = (vec![0.5; m * k], vec![0.25; n * k], vec![0.0; m * n]);
    for (name, precision) in [("f32", Precision::F32), ("bf16", Precision::Bf16)] {
        let edge = Edge { precision, ..Edge::default() };
        criterion.bench_function(&format!("matmul/{name}"), |bencher| {
            bencher.iter(|| matmul(&mut out, edge, View::new(&a, m, k), View::new(&b, n, k).t()));
        });
    }
    let len = 1 << 20;
    let (mut weights, mut gradient) = (vec![0.1; len], vec![0.01; len]);
    let (mut mean, mut square) = (vec![0.0; len], vec![0.0; len]);
    let update = adamw::Update {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.99,
        eps: 1e-8,
        weight_decay: 0.1,
        step: 1,
        gradient_scale: 1.0,
    };
    criterion.bench_function("adamw/a million weights", |bencher| {
        bencher.iter(|| adamw::update(update, &mut weights, &mut gradient, &mut mean, &mut square));
    });
    criterion.bench_function("global norm/a million weights", |bencher| {
        bencher.iter(|| black_box(adamw::global_norm(&weights)));
    });
}

criterion_group!(benches, operations, kernels);
criterion_main!(benches);
