//! Every operation against PyTorch's values and gradients, computed there in f64 (`scripts/golden.py`).
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use candle_core::{Device, Result, Tensor, Var};
use softdict_kernels::Ops;
use softdict_kernels::activation::Activation;
use softdict_kernels::adamw::{self, Update};
use softdict_kernels::attention::Options;
use softdict_kernels::cross_entropy::IGNORE;
use softdict_kernels::norm::{Norm, NormKind};
use softdict_kernels::rope::RopeTable;
use softdict_testkit::{Golden, assert_close};
use std::sync::Arc;

/// f32 sums of up to 67 terms of size one, in backward twice over.
const TOLERANCE: f64 = 5e-5;

fn golden() -> Golden {
    Golden::open("ops.safetensors")
}

fn tensor(name: &str) -> Tensor {
    let (shape, values) = golden().floats(name);
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn scalar(name: &str) -> f64 {
    f64::from(golden().floats(name).1[0])
}

fn ids(name: &str) -> Vec<i64> {
    golden().integers(name).1
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let values: Vec<f32> = tensor.flatten_all().unwrap().to_vec1().unwrap();
    values.into_iter().map(f64::from).collect()
}

/// Runs `op` both ways and compares its output and the gradient of every input with the fixture.
fn check(name: &str, inputs: &[&str], op: impl Fn(Ops, &[Tensor]) -> Result<Tensor>) {
    for ops in [Ops::Fused, Ops::Reference] {
        let vars: Vec<Var> = inputs
            .iter()
            .map(|input| Var::from_tensor(&tensor(&format!("{name}.{input}"))).unwrap())
            .collect();
        let tensors: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
        let output = op(ops, &tensors).unwrap();
        let expected = tensor(&format!("{name}.output"));
        assert_close(&format!("{name} {ops:?}"), &numbers(&output), &numbers(&expected), TOLERANCE);
        let upstream = tensor(&format!("{name}.upstream")).reshape(output.shape()).unwrap();
        let store = (output * upstream).unwrap().sum_all().unwrap().backward().unwrap();
        for (input, var) in inputs.iter().zip(&vars) {
            let found = store.get(var).unwrap_or_else(|| panic!("{name}: {input} has no gradient"));
            let what = format!("{name} {ops:?}: gradient of {input}");
            let expected = tensor(&format!("{name}.gradient.{input}"));
            assert_close(&what, &numbers(found), &numbers(&expected), TOLERANCE);
        }
    }
}

#[test]
fn linear_equals_pytorch() {
    check("linear", &["input", "weight", "bias"], |ops, t| ops.linear(&t[0], &t[1], Some(&t[2])));
}

#[test]
fn norms_equal_pytorch() {
    let norm = |kind, name: &str| Norm { kind, eps: scalar(name) as f32 };
    let layer = norm(NormKind::LayerNorm, "layer_norm.eps");
    check("layer_norm", &["input", "weight", "bias"], |ops, t| ops.norm(layer, &t[0], &t[1], Some(&t[2])));
    let rms = norm(NormKind::RmsNorm, "rms_norm.eps");
    check("rms_norm", &["input", "weight"], |ops, t| ops.norm(rms, &t[0], &t[1], None));
}

#[test]
fn activations_equal_pytorch() {
    for (name, kind) in
        [("gelu", Activation::Gelu), ("gelu_tanh", Activation::GeluTanh), ("relu2", Activation::Relu2)]
    {
        check(name, &["input"], |ops, t| ops.activation(kind, &t[0]));
    }
    check("swiglu", &["gate", "up"], |ops, t| {
        ops.activation(Activation::SwiGlu, &Tensor::cat(&[&t[0], &t[1]], 1)?)
    });
}

#[test]
fn rope_equals_pytorch() {
    for name in ["rope", "rope_offset"] {
        let positions = ids_or_floats(&format!("{name}.positions"));
        let (width, base) =
            (ids_or_floats(&format!("{name}.width"))[0], ids_or_floats(&format!("{name}.base"))[0]);
        let end = positions[positions.len() - 1] as usize + 1;
        let table = Arc::new(RopeTable::new(0..end, width as usize, base).unwrap());
        check(name, &["input"], |ops, t| ops.rope(&table, &t[0], positions[0] as usize));
    }
}

/// A tensor of either kind of number.
fn ids_or_floats(name: &str) -> Vec<f64> {
    let golden = golden();
    if golden.is_float(name) {
        golden.floats(name).1.into_iter().map(f64::from).collect()
    } else {
        golden.integers(name).1.into_iter().map(|value| value as f64).collect()
    }
}

#[test]
fn attention_equals_pytorch() {
    for (name, causal) in
        [("attention_causal", true), ("attention_bidirectional", false), ("attention_long", true)]
    {
        let head_size = tensor(&format!("{name}.query")).dim(3).unwrap();
        let options = Options::plain(causal, 1.0 / (head_size as f32).sqrt());
        check(name, &["query", "key", "value"], |ops, t| ops.attention(options, &t[0], &t[1], &t[2]));
    }
    let options = Options::plain(true, 1.0 / 5f32.sqrt());
    let (q, k) = (tensor("attention_causal.query"), tensor("attention_causal.key"));
    let pattern = softdict_kernels::attention::pattern(options, &q, &k).unwrap();
    let expected = numbers(&tensor("attention_causal.pattern"));
    assert_close("pattern", &numbers(&pattern), &expected, TOLERANCE);
}

#[test]
fn embedding_and_cross_entropy_equal_pytorch() {
    let rows: Arc<[u32]> = ids("embedding.ids").into_iter().map(|id| id as u32).collect();
    check("embedding", &["weight"], |ops, t| ops.embedding(&t[0], &rows, &[2, 7]));
    let targets = ids("cross_entropy.targets");
    let targets: Arc<[u32]> = targets.into_iter().map(|id| u32::try_from(id).unwrap_or(IGNORE)).collect();
    check("cross_entropy", &["logits"], |ops, t| ops.cross_entropy(&t[0], &targets));
}

#[test]
fn adamw_equals_pytorch() {
    let values = |name: &str| golden().floats(&format!("adamw.{name}")).1;
    let (mut parameter, mut mean, mut square) = (values("parameter_0"), vec![0.0; 15], vec![0.0; 15]);
    for step in 1..=2u64 {
        let update = Update {
            learning_rate: scalar("adamw.learning_rate"),
            beta1: scalar("adamw.beta1"),
            beta2: scalar("adamw.beta2"),
            eps: scalar("adamw.eps"),
            weight_decay: scalar("adamw.weight_decay"),
            step,
            gradient_scale: 1.0,
        };
        adamw::update(
            update,
            &mut parameter,
            &mut values(&format!("gradient_{step}")),
            &mut mean,
            &mut square,
        );
        for (name, found) in [("parameter", &parameter), ("first_moment", &mean), ("second_moment", &square)]
        {
            let wide = |values: &[f32]| values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
            let expected = wide(&values(&format!("{name}_{step}")));
            assert_close(name, &wide(found), &expected, 1e-6);
        }
    }
}
