//! The files in `configs/`: each trains, and its checkpoint is of the promised kind.

use crate::support::{Lab, story};
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").canonicalize().unwrap()
}

/// What makes a large one small, without changing what kind of model it is.
const SHRUNK: [&str; 8] = [
    "model.layers=2",
    "model.width=48",
    "model.context=32",
    "train.batch=4",
    "train.accumulate=2",
    "train.eval_every=5",
    "train.log_every=1",
    "train.learning_rate=1e-3",
];

/// File, what is changed besides the number of steps, `model_type`, class.
const CONFIGS: [(&str, &[&str], &str, &str); 6] = [
    ("gpt2-124m", &SHRUNK, "gpt2", "GPT2LMHeadModel"),
    ("llama-tiny", &[], "llama", "LlamaForCausalLM"),
    ("referents", &[], "softdict", "SoftdictModel"),
    ("shakespeare-baby-gpt", &SHRUNK, "gpt_neox", "GPTNeoXForCausalLM"),
    ("shakespeare-char", &[], "gpt_neox", "GPTNeoXForCausalLM"),
    ("tales", &[], "gpt_neox", "GPTNeoXForCausalLM"),
];

#[test]
fn every_file_is_tested_here_and_says_how_it_is_used() {
    let names = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    let tested: Vec<String> = CONFIGS.iter().map(|config| format!("{}.toml", config.0)).collect();
    assert_eq!(names, tested);
    for name in names.iter().filter(|name| !["referents.toml", "tales.toml"].contains(&name.as_str())) {
        let text = fs::read_to_string(folder().join(name)).unwrap();
        assert!(text.contains(&format!("--config configs/{name}")), "{name}");
    }
}

#[test]
fn every_file_trains_a_model_of_the_promised_kind() {
    for (name, shrunk, model_type, class) in CONFIGS {
        let lab = Lab::with(story(120));
        let config = folder().join(format!("{name}.toml"));
        let steps = ["train.steps=4", "train.warmup_steps=1"];
        let train = lab.softdict(&["train", "text.txt", "--out", "run", "--config"]).arg(&config);
        train
            .set(shrunk)
            .set(&steps)
            .ok()
            .says(&["format", if model_type == "softdict" { "only softdict" } else { class }]);
        let saved = lab.json("run/last/config.json");
        assert_eq!(
            (&saved["model_type"], &saved["architectures"][0]),
            (&model_type.into(), &class.into()),
            "{name}"
        );
        let text = fs::read_to_string(&config).unwrap();
        if let Some(promised) = text.split_once("transformers as") {
            assert!(promised.1.contains(class), "{name} promises another class than {class}");
        }
        for (_, (_, values)) in lab.tensors("run/last/model.safetensors") {
            assert!(values.iter().all(|value| value.is_finite()));
        }
        if saved["softdict"]["causal"] != false {
            lab.softdict(&["sample", "run", "--tokens", "3"]).ok();
        }
        lab.softdict(&["attention", "run", "--prompt", "the cat", "--format", "json"]).ok();
    }
}

#[test]
fn the_large_ones_have_the_shapes_that_were_published() {
    let text = fs::read_to_string(folder().join("gpt2-124m.toml")).unwrap();
    for line in
        ["layers = 12", "heads = 12", "width = 768", "context = 1024", "vocab_size = 50257", "tied = true"]
    {
        assert!(text.contains(line), "{line}");
    }
    let baby = fs::read_to_string(folder().join("shakespeare-baby-gpt.toml")).unwrap();
    for line in ["layers = 6", "heads = 6", "width = 384", "context = 256", "batch = 64", "dropout = 0.2"] {
        assert!(baby.contains(line), "{line}");
    }
}

#[test]
fn a_mix_that_nothing_else_opens_is_said_to_be_one_and_works_all_the_same() {
    let mixes: [&[&str]; 4] = [
        &["model.positions=none"],
        &["model.norm=rmsnorm"],
        &["model.ffn=relu2", "model.qk_norm=true"],
        &["model.scale=none", "model.kv_heads=1"],
    ];
    for mix in mixes {
        let lab = Lab::new();
        lab.train("run", mix).ok().says(&["only softdict opens its checkpoints"]);
        assert_eq!(lab.json("run/last/config.json")["model_type"], "softdict");
        lab.softdict(&["sample", "run", "--tokens", "20"]).ok();
        lab.softdict(&["heads", "run"]).ok();
        lab.resume("run", &["train.steps=25"]).ok();
    }
}

#[test]
fn every_knob_of_the_model_trains() {
    let knobs: [&[&str]; 10] = [
        &["model.rope_fraction=0.5", "model.rope_base=500"],
        &["model.positions=learned"],
        &["model.norm=rmsnorm", "model.ffn=swiglu", "model.bias=false"],
        &["model.ffn=gelu_tanh", "model.ffn_dim=24"],
        &["model.ffn=swiglu"],
        &["model.heads=4", "model.kv_heads=2", "model.norm=rmsnorm", "model.ffn=swiglu", "model.bias=false"],
        &["model.tied=false", "model.init=0.02"],
        &["model.parallel_residual=true"],
        &["model.bias=false"],
        &["train.schedule=linear", "train.sampling=epoch", "train.grad_clip=0", "train.accumulate=3"],
    ];
    for knob in knobs {
        let lab = Lab::new();
        lab.train("run", &[&["train.learning_rate=1e-2"], knob].concat()).ok();
        let losses = lab.series("run", "loss");
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        assert!(mean(&losses[15..]) < mean(&losses[..5]) - 0.1, "{knob:?}: {losses:?}");
    }
}
