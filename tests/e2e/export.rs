//! `export` and `import`: other types of weights, arrays for `NumPy`, and folders of transformers.

use crate::support::Lab;
use serde_json::Value;

/// A model that learned something, so that its likeliest tokens are no matter of rounding.
fn learned() -> Lab {
    Lab::trained(&["train.steps=200", "train.learning_rate=1e-2", "model.width=32"])
}

#[test]
fn half_precision_is_read_by_every_command_and_says_nearly_the_same() {
    let lab = learned();
    for dtype in ["f16", "bf16"] {
        lab.softdict(&["export", "run", "--dtype", dtype, "--out", dtype]).ok().says(&[dtype]);
        let halves = lab.read(&format!("{dtype}/model.safetensors")).len() as f64;
        let whole = lab.read("run/best/model.safetensors").len() as f64;
        assert!((0.5..0.7).contains(&(halves / whole)), "{dtype}: {halves} of {whole} bytes");
    }
    // some tensors in one type and some in the other
    lab.softdict(&["export", "run", "--out", "mixed"]).ok();
    lab.write("mixed/model.safetensors", mixed(&lab));
    std::fs::remove_file(lab.path("mixed/softdict.json")).unwrap();

    let whole = likeliest(&lab, "run");
    for folder in ["f16", "bf16", "mixed"] {
        let agreeing = whole.iter().zip(likeliest(&lab, folder)).filter(|(a, b)| **a == *b).count();
        assert!(agreeing >= 244, "{folder}: {agreeing} of 256");
        let shown = ["attention", folder, "--prompt", "the cat did", "--format", "json"];
        for head in lab.softdict(&shown).ok().json()["attention"][0].as_array().unwrap() {
            for row in head.as_array().unwrap() {
                let sum: f64 = row.as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap()).sum();
                assert!((sum - 1.0).abs() < 2e-2, "{folder}: {row}");
            }
        }
        let scored = lab.softdict(&["heads", folder, "text.txt", "--json", "--tokens", "500"]).ok().json();
        assert_eq!(scored.as_array().unwrap().len(), 2, "{folder}");
        lab.softdict(&["sample", folder, "--tokens", "20"]).ok();
    }
}

/// The likeliest next token at 256 places of the validation split.
fn likeliest(lab: &Lab, folder: &str) -> Vec<Value> {
    let text = lab.read_text("text.txt");
    let ends = text.len() - 256..text.len();
    ends.map(|end| {
        let sample = ["sample", folder, "--json", "--temperature", "0", "--tokens", "1"];
        let done = lab.softdict(&sample).args(&["--prompt", &text[end - 16..end]]).ok();
        done.json()["token_ids"][0].clone()
    })
    .collect()
}

/// The weights of `f16` and `bf16` in turn.
fn mixed(lab: &Lab) -> Vec<u8> {
    let files = ["f16", "bf16"].map(|folder| lab.read(&format!("{folder}/model.safetensors")));
    let [halves, brains] = [0, 1].map(|file| safetensors::SafeTensors::deserialize(&files[file]).unwrap());
    let mut names = halves.names();
    names.sort_unstable();
    let views = names.iter().enumerate().map(|(index, name)| {
        let file = if index % 2 == 0 { &halves } else { &brains };
        (*name, file.tensor(name).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn a_weight_beyond_the_range_is_named_and_nothing_is_written() {
    let lab = Lab::trained(&[]);
    lab.softdict(&["export", "run", "--out", "wild"]).ok();
    std::fs::remove_file(lab.path("wild/softdict.json")).unwrap();
    let with = |value: f32| {
        // the last weight of the file; which one it is, the message says
        let mut bytes = lab.read("wild/model.safetensors");
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&value.to_le_bytes());
        lab.write("wild/model.safetensors", bytes);
    };
    let export = |out: &str, flags: &[&str]| lab.softdict(&["export", "wild", "--out", out]).args(flags);
    with(1e6);
    export("half", &["--dtype", "f16"]).fails(1).says(&["half/model.safetensors", "1000000", "float16"]);
    export("half.npz", &["--dtype", "f16", "--format", "npz"]).fails(1).says(&["half.npz", "f16"]);
    export("half.npz", &["--dtype", "bf16", "--format", "npz"]).fails(2).says(&["--dtype bf16"]);
    assert!(!lab.has("half") && !lab.has("half.npz"));
    export("wide", &["--dtype", "bf16"]).ok();
    with(f32::NAN);
    export("nan", &[]).fails(1).says(&["wild/model.safetensors", "not finite"]);
    assert!(!lab.has("nan"));
    let left = std::fs::read_dir(lab.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().starts_with(".softdict")).count(), 0);
}

#[test]
fn arrays_are_the_weights_by_name() {
    let lab = Lab::trained(&[]);
    lab.softdict(&["export", "run", "--format", "npz", "--out", "run.npz"]).ok();
    let arrays = candle_core::Tensor::read_npz(lab.path("run.npz")).unwrap();
    let tensors = lab.tensors("run/best/model.safetensors");
    let count = |shapes: &mut dyn Iterator<Item = usize>| shapes.sum::<usize>();
    assert_eq!(
        count(&mut arrays.iter().map(|(_, array)| array.elem_count())),
        count(&mut tensors.values().map(|(_, values)| values.len()))
    );
    let (_, embedding) = arrays.iter().find(|(name, _)| name == "embedding.weight").unwrap();
    let (shape, values) = &tensors["gpt_neox.embed_in.weight"];
    assert_eq!(embedding.dims(), shape);
    assert_eq!(embedding.flatten_all().unwrap().to_vec1::<f32>().unwrap(), *values);
}

#[test]
fn what_transformers_wrote_is_taken_over_and_nothing_is_overwritten() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/llama_tied_f16");
    let lab = Lab::new();
    std::fs::create_dir(lab.path("theirs")).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(name), lab.path("theirs").join(name)).unwrap();
    }
    let import = |out: &str| lab.softdict(&["import", "theirs", "--out", out]);
    import("ours").fails(1).says(&["theirs/tokenizer.json", "missing"]);
    assert!(!lab.has("ours"));
    let learn = ["tokenizer", "train", "text.txt", "--kind", "char", "--out", "theirs/tokenizer.json"];
    lab.softdict(&learn).ok();
    import("ours").ok().says(&["ours", "parameters"]);
    // a checkpoint of its own: f32, hashes, and the same text
    assert_eq!(lab.json("ours/config.json")["dtype"], "float32");
    assert!(lab.has("ours/softdict.json"));
    let said = |folder: &str| {
        lab.softdict(&["sample", folder, "--temperature", "0", "--tokens", "8", "--prompt", "the"])
            .ok()
            .stdout
    };
    assert_eq!(said("ours"), said("theirs"));
    for taken in ["ours", "text.txt", "theirs"] {
        import(taken).fails(1).says(&["--out", taken]);
        lab.softdict(&["export", "theirs", "--out", taken]).fails(1).says(&["--out", taken]);
    }
}
