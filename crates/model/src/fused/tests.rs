//! The fused pass against candle's autograd over the composed model, for every knob; and every weight is reached.

use super::FusedEngine;
use crate::composed::ComposedEngine;
use crate::config::ModelConfig;
use crate::engine::{Batch, Engine};
use crate::parameters::Parameters;
use crate::settings::{Ffn, ModelSettings, NormChoice, Positions, Scale};
use crate::{DropoutPass, NoTap, Transformer};
use candle_core::Device;
use softdict_kernels::Ops;
use softdict_kernels::cross_entropy::IGNORE;
use softdict_random::{Purpose, Stream};

pub(super) const VOCABULARY: usize = 17;

pub(super) fn base() -> ModelSettings {
    ModelSettings { layers: 2, heads: 4, width: 24, context: 11, ..Default::default() }
}

/// Every knob at least once, and the families of the checkpoints.
pub(super) fn variants() -> Vec<(&'static str, ModelSettings)> {
    let llama = ModelSettings {
        norm: NormChoice::RmsNorm,
        ffn: Ffn::SwiGlu,
        ffn_dim: Some(20),
        bias: false,
        kv_heads: Some(2),
        ..base()
    };
    let gpt2 = ModelSettings { positions: Positions::Learned, ffn: Ffn::GeluTanh, ..base() };
    vec![
        ("default", base()),
        ("untied", ModelSettings { tied: false, ..base() }),
        ("one head", ModelSettings { heads: 1, ..base() }),
        ("partial rope", ModelSettings { rope_fraction: 0.67, rope_base: 300.0, ..base() }),
        ("parallel", ModelSettings { parallel_residual: true, ..base() }),
        ("bidirectional", ModelSettings { causal: false, ..base() }),
        (
            "no positions, no scale",
            ModelSettings { positions: Positions::None, scale: Scale::None, ..base() },
        ),
        ("relu2 without biases", ModelSettings { ffn: Ffn::Relu2, bias: false, ..base() }),
        ("qk norm", ModelSettings { qk_norm: true, kv_heads: Some(2), ..base() }),
        ("dropout", ModelSettings { dropout: 0.3, ..base() }),
        ("parallel dropout", ModelSettings { dropout: 0.2, parallel_residual: true, ..base() }),
        ("llama", llama),
        ("gpt2", gpt2),
    ]
}

/// Parameters whose norms and biases are not at their neutral start.
pub(super) fn parameters(config: &ModelConfig) -> Parameters {
    let mut parameters = Parameters::initial(config, 3);
    let mut stream = Stream::new(8, Purpose::Init, 999);
    for value in parameters.values_mut() {
        *value += (stream.normal() * 0.1) as f32;
    }
    parameters
}

pub(super) fn ids(len: usize, seed: u64) -> Vec<u32> {
    let mut stream = Stream::new(seed, Purpose::Data, 0);
    (0..len).map(|_| stream.below(VOCABULARY) as u32).collect()
}

fn run(engine: &mut dyn Engine, parameters: &Parameters, batch: Batch<'_>) -> (f64, Vec<f32>) {
    let mut gradient = vec![0.0; parameters.table().len()];
    let dropout = Some(DropoutPass { seed: 4, pass: 6 });
    let loss = engine.accumulate(parameters, batch, 0.25, dropout, &mut gradient).unwrap();
    (loss, gradient)
}

#[test]
fn the_fused_pass_equals_autograd_for_every_knob() {
    for (name, settings) in variants() {
        let config = ModelConfig::new(&settings, VOCABULARY).unwrap();
        let parameters = parameters(&config);
        let (inputs, mut targets) = (ids(3 * 9, 1), ids(3 * 9, 2));
        targets[4] = IGNORE;
        let batch = Batch { inputs: &inputs, targets: &targets, time: 9 };
        let (loss, gradient) = run(&mut FusedEngine::new(&config).unwrap(), &parameters, batch);
        let mut composed = ComposedEngine::new(&config, &Device::Cpu);
        let (expected_loss, expected) = run(&mut composed, &parameters, batch);
        assert!((loss - expected_loss).abs() < 1e-4 * expected_loss, "{name}: {loss} {expected_loss}");
        for parameter in parameters.table().iter() {
            let range = parameter.range();
            let size = expected[range.clone()].iter().fold(1e-3f32, |size, g| size.max(g.abs()));
            for (found, expected) in gradient[range.clone()].iter().zip(&expected[range]) {
                // f32 through two layers, relative to the parameter's largest gradient
                let error = (found - expected).abs() / size;
                assert!(error < 2e-3, "{name}: {} is {found}, expected {expected}", parameter.name);
            }
        }
    }
}

#[test]
fn after_one_backward_every_weight_has_a_finite_gradient_that_is_not_zero() {
    for (name, settings) in variants() {
        let config = ModelConfig::new(&settings, VOCABULARY).unwrap();
        let parameters = parameters(&config);
        // every token occurs, so that every row of the embedding is reached
        let inputs: Vec<u32> = (0..33).map(|i| (i * 5 % VOCABULARY) as u32).collect();
        let batch = Batch { inputs: &inputs, targets: &ids(33, 2), time: 11 };
        let engines: [Box<dyn Engine>; 3] = [
            Box::new(FusedEngine::new(&config).unwrap()),
            Box::new(ComposedEngine::new(&config, &Device::Cpu)),
            Box::new(ComposedEngine::with_ops(&config, &Device::Cpu, Ops::Fused)),
        ];
        for mut engine in engines {
            let (_, gradient) = run(engine.as_mut(), &parameters, batch);
            assert!(gradient.iter().all(|g| g.is_finite()), "{name}");
            for parameter in parameters.table().iter() {
                let own = &gradient[parameter.range()];
                // without RoPE the softmax cancels a key bias; its columns are part of the packed bias
                assert!(own.iter().any(|&g| g != 0.0), "{name}: {} has no gradient", parameter.name);
            }
        }
    }
}

#[test]
fn micro_batches_add_up_and_smaller_batches_reuse_the_buffers() {
    let config = ModelConfig::new(&base(), VOCABULARY).unwrap();
    let parameters = parameters(&config);
    let (inputs, targets) = (ids(4 * 8, 1), ids(4 * 8, 2));
    let mut engine = FusedEngine::new(&config).unwrap();
    let (loss, whole) = run(&mut engine, &parameters, Batch { inputs: &inputs, targets: &targets, time: 8 });
    let mut gradient = vec![0.0; whole.len()];
    let mut total = 0.0;
    for rows in [0..8, 8..32] {
        let batch = Batch { inputs: &inputs[rows.clone()], targets: &targets[rows], time: 8 };
        total += engine.accumulate(&parameters, batch, 0.25, None, &mut gradient).unwrap();
    }
    assert!((loss - total).abs() < 1e-4);
    assert!(whole.iter().zip(&gradient).all(|(a, b)| (a - b).abs() < 1e-5 + 1e-4 * a.abs()));
    let evaluated = engine.loss(&parameters, Batch { inputs: &inputs, targets: &targets, time: 8 }).unwrap();
    assert!((evaluated - loss).abs() < 1e-4);
}

#[test]
fn the_fused_loss_equals_the_transformers_logits() {
    for (name, settings) in variants() {
        let config = ModelConfig::new(&settings, VOCABULARY).unwrap();
        let parameters = parameters(&config);
        let (inputs, targets) = (ids(22, 5), ids(22, 6));
        for ops in [Ops::Fused, Ops::Reference] {
            let model = Transformer::with_ops(&config, &parameters, &Device::Cpu, ops).unwrap();
            let logits = model.forward(&inputs, 11, &mut NoTap).unwrap().reshape((22, VOCABULARY)).unwrap();
            let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
            let expected = softdict_kernels::cross_entropy::forward(&logits, VOCABULARY, &targets).unwrap();
            let batch = Batch { inputs: &inputs, targets: &targets, time: 11 };
            let loss = FusedEngine::new(&config).unwrap().loss(&parameters, batch).unwrap();
            assert!((loss - expected).abs() < 1e-4 * expected, "{name} {ops:?}: {loss} {expected}");
        }
    }
}

#[test]
fn one_and_two_threads_agree_and_each_repeats_itself() {
    let config = ModelConfig::new(&base(), VOCABULARY).unwrap();
    let parameters = parameters(&config);
    let (inputs, targets) = (ids(66, 1), ids(66, 2));
    let batch = Batch { inputs: &inputs, targets: &targets, time: 11 };
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&mut FusedEngine::new(&config).unwrap(), &parameters, batch))
    };
    let (one, two) = (with(1), with(2));
    assert!((one.0 - two.0).abs() < 1e-5 * one.0);
    assert!(one.1.iter().zip(&two.1).all(|(a, b)| (a - b).abs() < 1e-4 + 1e-4 * a.abs()));
    assert_eq!(with(2).1, two.1);
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let config = ModelConfig::new(&base(), VOCABULARY).unwrap();
    let parameters = parameters(&config);
    let mut engine = FusedEngine::new(&config).unwrap();
    let ids = ids(12, 1);
    let long = Batch { inputs: &ids, targets: &ids, time: 12 };
    assert!(engine.loss(&parameters, long).unwrap_err().to_string().contains("12 tokens"));
    let uneven = Batch { inputs: &ids, targets: &ids, time: 5 };
    assert!(engine.loss(&parameters, uneven).is_err());
    let outside = Batch { inputs: &[17], targets: &[0], time: 1 };
    assert!(engine.loss(&parameters, outside).unwrap_err().to_string().contains("17"));
}
