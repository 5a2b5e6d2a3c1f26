//! Writes one random model of each kind that transformers can open, with the logits that softdict computes:
//!
//! ```text
//! cargo run --release -p softdict-checkpoint --example export_fixtures OUT
//! scripts/golden.py check OUT/*
//! ```

use candle_core::Device;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};
use softdict_checkpoint::{Contents, Progress, save};
use softdict_model::random::{Purpose, Stream};
use softdict_model::settings::{Ffn, ModelSettings, NormChoice, Positions};
use softdict_model::{ModelConfig, NoTap, Parameters, Part, Transformer};
use std::error::Error;
use std::fs;
use std::path::Path;

const BATCH: usize = 2;
const TIME: usize = 16;
/// The vocabulary: a space, which careless decoders drop, letters, and characters of two and four bytes.
const CHARACTERS: &str = " abcdefghijklmnopqrstuvwxyzé🙂";

/// Nothing at its default: what is not written, or written wrongly, must show in the logits.
fn settings() -> ModelSettings {
    ModelSettings {
        layers: 2,
        heads: 3,
        width: 24,
        context: 32,
        rope_base: 500.0,
        norm_eps: 3e-4,
        ffn_dim: Some(40),
        dropout: 0.1,
        ..ModelSettings::default()
    }
}

fn models() -> [(&'static str, ModelSettings); 7] {
    let plain = settings();
    let llama = ModelSettings {
        heads: 4,
        kv_heads: Some(2),
        norm: NormChoice::RmsNorm,
        ffn: Ffn::SwiGlu,
        bias: false,
        ..plain.clone()
    };
    let gpt2 = ModelSettings { positions: Positions::Learned, ffn: Ffn::GeluTanh, ..plain.clone() };
    [
        ("gpt_neox_untied", ModelSettings { tied: false, rope_fraction: 0.5, ..plain.clone() }),
        ("gpt_neox_parallel", ModelSettings { tied: false, parallel_residual: true, ..plain.clone() }),
        ("gpt_neox_tanh", ModelSettings { ffn: Ffn::GeluTanh, rope_fraction: 0.25, ..plain.clone() }),
        ("gpt_neox_tied", plain),
        ("llama_untied", ModelSettings { tied: false, ..llama.clone() }),
        ("llama_tied", llama),
        ("gpt2", gpt2),
    ]
}

/// Every weight random, biases and gains included: one that is skipped shows.
fn randomize(parameters: &mut Parameters, seed: u64) {
    let mut stream = Stream::new(seed, Purpose::Init, 0);
    let table = parameters.table().clone();
    for parameter in table.iter() {
        let gain = parameter.part == Part::Norm && parameter.name.ends_with("weight");
        let mean = if gain { 1.0 } else { 0.0 };
        parameters.values_mut()[parameter.range()].fill_with(|| (mean + 0.3 * stream.normal()) as f32);
    }
}

/// One token per character: a BPE without merges.
fn tokenizer() -> Value {
    let vocab: Map<String, Value> =
        CHARACTERS.chars().enumerate().map(|(id, character)| (character.to_string(), id.into())).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": { "type": "Fuse" },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": [],
        },
    })
}

fn write(out: &Path, name: &str, settings: &ModelSettings, seed: u64) -> Result<(), Box<dyn Error>> {
    let characters: Vec<char> = CHARACTERS.chars().collect();
    let config = ModelConfig::new(settings, characters.len())?;
    let mut parameters = Parameters::zeros(&config);
    randomize(&mut parameters, seed);
    let mut stream = Stream::new(seed, Purpose::Sampling, 0);
    let ids: Vec<u32> = (0..BATCH * TIME).map(|_| stream.below(characters.len()) as u32).collect();
    let text: String = ids[..TIME].iter().map(|&id| characters[id as usize]).collect();
    let model = Transformer::new(&config, &parameters, &Device::Cpu)?;
    let logits: Vec<f32> = model.forward(&ids, TIME, &mut NoTap)?.flatten_all()?.to_vec1()?;

    let folder = out.join(name);
    let tokenizer = serde_json::to_vec(&tokenizer())?;
    let contents = Contents {
        config: &config,
        parameters: &parameters,
        tokenizer: Some(&tokenizer),
        progress: Progress::default(),
        trainer: None,
    };
    save(&folder, &contents)?;
    let ids: Vec<u8> = ids.iter().flat_map(|&id| i64::from(id).to_le_bytes()).collect();
    let logits: Vec<u8> = logits.iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensors = [
        ("token_ids", TensorView::new(Dtype::I64, vec![BATCH, TIME], &ids)?),
        ("logits", TensorView::new(Dtype::F32, vec![BATCH, TIME, characters.len()], &logits)?),
        ("text", TensorView::new(Dtype::U8, vec![text.len()], text.as_bytes())?),
    ];
    fs::write(folder.join("expected.safetensors"), safetensors::serialize(tensors, None)?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args_os().nth(1).ok_or("give the folder to write to")?;
    for (seed, (name, settings)) in models().iter().enumerate() {
        write(Path::new(&out), name, settings, seed as u64)?;
    }
    Ok(())
}
