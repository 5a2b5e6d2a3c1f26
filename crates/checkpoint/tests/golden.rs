//! Folders that transformers wrote give its logits, attention, losses and gradients.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use candle_core::{Device, Tensor};
use softdict_checkpoint::{Checkpoint, load};
use softdict_model::{Batch, Engine, FusedEngine, NoTap, Site, Tap, Transformer};
use softdict_testkit::{Golden, golden_folder};
use std::fs;

const FIXTURES: [&str; 9] = [
    "gpt_neox_untied",
    "gpt_neox_tied",
    "gpt_neox_parallel",
    "gpt_neox_tanh",
    "llama_gqa_untied",
    "llama_tied",
    "gpt2",
    "llama_tied_f16",
    "gpt_neox_untied_bf16",
];
const WITH_GRADIENTS: [&str; 4] = ["gpt_neox_untied", "gpt_neox_tied", "llama_gqa_untied", "gpt2"];
const WITH_OLD_CONFIG: [&str; 2] = ["gpt_neox_untied", "llama_gqa_untied"];

/// Two f32 libraries sum some hundred products in another order: errors of some 1e-6 of the largest value.
const TOLERANCE: f32 = 1e-5;

struct Patterns(Vec<Tensor>);

impl Tap for Patterns {
    fn wants(&self, site: Site, _: usize) -> bool {
        site == Site::Pattern
    }

    fn at(&mut self, _: Site, layer: usize, tensor: Tensor) -> candle_core::Result<Tensor> {
        assert_eq!(layer, self.0.len());
        self.0.push(tensor.clone());
        Ok(tensor)
    }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_near(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = (found - expected).abs();
        assert!(difference <= TOLERANCE * largest, "{what}: element {index} is {found}, expected {expected}");
    }
}

fn ids(expected: &Golden) -> (usize, Vec<u32>) {
    let (shape, ids) = expected.integers("token_ids");
    (shape[1], ids.iter().map(|&id| u32::try_from(id).unwrap()).collect())
}

fn logits(checkpoint: &Checkpoint, ids: &[u32], time: usize, tap: &mut dyn Tap) -> Vec<f32> {
    let model = Transformer::new(&checkpoint.config, &checkpoint.parameters, &Device::Cpu).unwrap();
    values(&model.forward(ids, time, tap).unwrap())
}

#[test]
fn logits_and_attention_are_those_of_transformers() {
    for name in FIXTURES {
        let expected = Golden::open(&format!("{name}/expected.safetensors"));
        let checkpoint = load(&golden_folder().join(name)).unwrap();
        let (time, ids) = ids(&expected);
        let mut patterns = Patterns(Vec::new());
        let found = logits(&checkpoint, &ids, time, &mut patterns);
        assert_near(name, &found, &expected.floats("logits").1);
        let stacked = Tensor::stack(&patterns.0, 0).unwrap(); // (L, B, H, T, T)
        let (shape, attention) = expected.floats("attention");
        assert_eq!(stacked.dims(), shape, "{name}");
        assert_near(name, &values(&stacked), &attention);
        assert_near(name, &logits(&checkpoint, &ids, time, &mut NoTap), &expected.floats("logits").1);
    }
}

/// The sequences without their last tokens, and what follows each token.
fn shifted(ids: &[u32], time: usize) -> (Vec<u32>, Vec<u32>) {
    let inputs = ids.chunks(time).flat_map(|row| row[..time - 1].to_vec()).collect();
    (inputs, ids.chunks(time).flat_map(|row| row[1..].to_vec()).collect())
}

#[test]
fn losses_are_those_of_transformers() {
    for name in FIXTURES {
        let expected = Golden::open(&format!("{name}/expected.safetensors"));
        let checkpoint = load(&golden_folder().join(name)).unwrap();
        let (time, ids) = ids(&expected);
        let (inputs, targets) = shifted(&ids, time);
        let batch = Batch { inputs: &inputs, targets: &targets, time: time - 1 };
        let mut engine = FusedEngine::new(&checkpoint.config).unwrap();
        let sum = engine.loss(&checkpoint.parameters, batch).unwrap();
        assert_near(name, &[(sum / targets.len() as f64) as f32], &expected.floats("loss").1);
    }
}

/// A checkpoint whose weights are the gradients: the loader brings them into our layout.
fn gradients(name: &str, expected: &Golden) -> Checkpoint {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden_folder().join(name).join("config.json"), folder.path().join("config.json")).unwrap();
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = expected
        .names()
        .into_iter()
        .filter_map(|tensor| {
            let own = tensor.strip_prefix("gradient.")?.to_owned();
            let (shape, values) = expected.floats(&tensor);
            Some((own, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect()))
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (name, view.unwrap())
    });
    fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    load(folder.path()).unwrap()
}

#[test]
fn gradients_are_those_of_pytorch() {
    for name in WITH_GRADIENTS {
        let expected = Golden::open(&format!("{name}/expected.safetensors"));
        let checkpoint = load(&golden_folder().join(name)).unwrap();
        let mut config = checkpoint.config.clone();
        // the fixtures' gradients are without it
        config.settings.dropout = 0.0;
        let (time, ids) = ids(&expected);
        let (inputs, targets) = shifted(&ids, time);
        let batch = Batch { inputs: &inputs, targets: &targets, time: time - 1 };
        let mut gradient = vec![0.0; checkpoint.parameters.values().len()];
        let scale = 1.0 / targets.len() as f32;
        let mut engine = FusedEngine::new(&config).unwrap();
        engine.accumulate(&checkpoint.parameters, batch, scale, None, &mut gradient).unwrap();

        let wanted = gradients(name, &expected).parameters;
        for parameter in wanted.table().iter() {
            let place = parameter.range();
            let what = format!("{name} {}", parameter.name);
            assert!(
                wanted.values()[place.clone()].iter().any(|&value| value != 0.0),
                "{what} is zero: no check"
            );
            assert_near(&what, &gradient[place.clone()], &wanted.values()[place]);
        }
    }
}

#[test]
fn the_keys_of_transformers_4_describe_the_same_model() {
    for name in WITH_OLD_CONFIG {
        let (golden, folder) = (golden_folder().join(name), tempfile::tempdir().unwrap());
        let copy = |from: &str, to: &str| fs::copy(golden.join(from), folder.path().join(to)).unwrap();
        copy("config.old.json", "config.json");
        copy("model.safetensors", "model.safetensors");
        let (old, new) = (load(folder.path()).unwrap(), load(&golden).unwrap());
        assert_eq!(old.config, new.config);
        assert_eq!(old.parameters.values(), new.parameters.values());
    }
}

#[test]
fn half_precision_files_hold_the_rounded_weights_of_the_others() {
    for (half, full, error) in [
        ("llama_tied_f16", "llama_tied", 1.0 / 2048.0),
        ("gpt_neox_untied_bf16", "gpt_neox_untied", 1.0 / 256.0),
    ] {
        let read = |name: &str| load(&golden_folder().join(name)).unwrap().parameters;
        let (half, full) = (read(half), read(full));
        assert_ne!(half.values(), full.values());
        for (half, full) in half.values().iter().zip(full.values()) {
            // below 2⁻¹⁴ f16 has a fixed step of 2⁻²⁴
            assert!((half - full).abs() <= error * full.abs() + 6e-8, "{half} {full}");
        }
    }
}

#[test]
fn the_start_of_the_training_curve_is_readable() {
    let checkpoint = load(&golden_folder().join("curve")).unwrap();
    assert_eq!((checkpoint.config.vocab_size, checkpoint.config.settings.norm_eps), (13, 1e-5));
    assert!(checkpoint.manifest.is_none() && checkpoint.tokenizer.is_none());
}
