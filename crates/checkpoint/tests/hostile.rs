//! Files that are cut short, wrong or made to harm: a clear error that names the file, at once and in little memory.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{config, contents, random_parameters};
use softdict_checkpoint::{Which, load, load_trainer, resolve, save};
use softdict_testkit::peak_memory;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A good checkpoint without its manifest, so that the loader itself has to see what is wrong.
fn good() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = config(|s| s.tied = false);
    save(&folder.path().join("x"), &contents(&config, &random_parameters(&config, 1))).unwrap();
    fs::remove_file(folder.path().join("x/softdict.json")).unwrap();
    folder
}

/// The error of a checkpoint with this file in place of its own.
fn refusal(name: &str, bytes: &[u8]) -> String {
    let folder = good();
    let checkpoint = folder.path().join("x");
    fs::write(checkpoint.join(name), bytes).unwrap();
    let message = load(&checkpoint).unwrap_err().to_string();
    if let Some(peak) = peak_memory() {
        assert!(peak < 200 << 20, "{name}: {peak} bytes of memory");
    }
    assert!(message.contains("/x"), "{message}");
    assert!(message.contains(name), "{message}");
    message
}

fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

fn model_bytes() -> Vec<u8> {
    fs::read(good().path().join("x/model.safetensors")).unwrap()
}

const MODEL: &str = "model.safetensors";

#[test]
fn a_header_longer_than_the_file_is_refused_by_its_length() {
    let mut bytes = 0x7FFF_FFFF_FFFF_FFFFu64.to_le_bytes().to_vec();
    bytes.extend([0; 10]);
    assert!(refusal(MODEL, &bytes).contains("9223372036854775807"));
    bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refusal(MODEL, &bytes).contains("18446744073709551615"));
}

#[test]
fn a_file_cut_short_is_refused() {
    let bytes = model_bytes();
    assert!(refusal(MODEL, &bytes[..bytes.len() / 2]).contains("cut short"));
    assert!(refusal(MODEL, &bytes[..100]).contains("cut short"));
    assert!(refusal(MODEL, &bytes[..bytes.len() - 1]).contains("cut short"));
    assert!(refusal(MODEL, &[bytes, vec![0]].concat()).contains("no valid safetensors"));
}

#[test]
fn offsets_that_overlap_or_leave_the_file_are_refused() {
    let tensor = |name: &str, from: u64, to: u64| {
        format!(r#""{name}":{{"dtype":"F32","shape":[2],"data_offsets":[{from},{to}]}}"#)
    };
    for header in [
        format!("{{{},{}}}", tensor("a", 0, 8), tensor("b", 4, 12)),
        format!("{{{}}}", tensor("a", 0, 1 << 60)),
        format!("{{{}}}", tensor("a", 8, 0)),
        format!("{{{},{}}}", tensor("a", 0, 8), tensor("b", 1000, 1008)),
    ] {
        assert!(refusal(MODEL, &with_header(&header, &[0; 16])).contains("no valid safetensors"), "{header}");
    }
}

#[test]
fn a_shape_whose_product_overflows_is_refused() {
    for shape in
        ["[9223372036854775807,9223372036854775807]", "[4294967296,4294967296]", "[18446744073709551616]"]
    {
        let header = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,16]}}}}"#);
        assert!(refusal(MODEL, &with_header(&header, &[0; 16])).contains("no valid safetensors"), "{shape}");
    }
}

#[test]
fn pickles_are_never_opened_whatever_they_are_called() {
    // what torch.save writes: a zip archive, formerly a bare pickle
    for start in [
        &b"PK\x03\x04\x00\x00\x08\x08data"[..],
        b"\x80\x02}q\x00X\x04\x00\x00\x00",
        b"\x80\x04\x95\x0a\0\0\0\0\0\0\0",
    ] {
        assert!(refusal(MODEL, start).contains("pickle"));
        let folder = good();
        let checkpoint = folder.path().join("x");
        fs::remove_file(checkpoint.join(MODEL)).unwrap();
        fs::write(checkpoint.join("pytorch_model.bin"), start).unwrap();
        let message = load(&checkpoint).unwrap_err().to_string();
        assert!(
            message.contains("pytorch_model.bin is a pickle") && message.contains("save_pretrained"),
            "{message}"
        );

        let alone = folder.path().join("model.pt");
        fs::write(&alone, start).unwrap();
        for message in [load(&alone).unwrap_err(), resolve(&alone, Which::Last).unwrap_err()] {
            assert!(message.to_string().contains("model.pt is a pickle"), "{message}");
        }
    }
}

#[test]
fn an_empty_file_is_refused() {
    assert!(refusal(MODEL, b"").contains("0 bytes"));
    assert!(refusal(MODEL, b"1234567").contains("7 bytes"));
    assert!(refusal("config.json", b"").contains("line 1"));
}

#[test]
fn absurd_configurations_are_refused_before_anything_is_allocated() {
    let json = fs::read_to_string(good().path().join("x/config.json")).unwrap();
    let layers = json.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000000000");
    assert_ne!(layers, json);
    assert!(refusal("config.json", layers.as_bytes()).contains("1000000000"));
    // 2^39 parameters are allowed by the settings, but the file does not hold them
    let folder = good();
    let wide = json.replace("\"vocab_size\": 11", "\"vocab_size\": 17179869184");
    fs::write(folder.path().join("x/config.json"), wide).unwrap();
    let message = load(&folder.path().join("x")).unwrap_err().to_string();
    assert!(message.contains("gpt_neox.embed_in.weight") && message.contains("17179869184"), "{message}");
    assert!(peak_memory().is_none_or(|peak| peak < 200 << 20));
    assert!(refusal("config.json", "[".repeat(100_000).as_bytes()).contains("config.json"));
}

#[test]
fn the_largest_header_that_is_read_stays_within_memory_and_a_larger_one_is_refused() {
    let zeros = |count: usize| {
        format!(r#"{{"a":{{"dtype":"F32","shape":[0{}],"data_offsets":[0,0]}}}}"#, ",0".repeat(count))
    };
    assert!(refusal(MODEL, &with_header(&zeros(2_090_000), b"")).contains("gpt_neox."));
    assert!(refusal(MODEL, &with_header(&zeros(2_200_000), b"")).contains("at most 4194304"));
    let names: Vec<String> =
        (0..70_000).map(|n| format!(r#""{n}":{{"dtype":"F32","shape":[],"data_offsets":[0,0]}}"#)).collect();
    assert!(
        refusal(MODEL, &with_header(&format!("{{{}}}", names.join(",")), b""))
            .contains("no valid safetensors")
    );
}

/// The model file with one tensor changed: `change` gets name, type, shape and bytes of each.
type Tensor = (String, safetensors::Dtype, Vec<usize>, Vec<u8>);

fn changed(change: impl Fn(&mut Vec<Tensor>)) -> Vec<u8> {
    let bytes = model_bytes();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut all: Vec<Tensor> = tensors
        .tensors()
        .into_iter()
        .map(|(name, view)| (name, view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    change(&mut all);
    let views = all.iter().map(|(name, dtype, shape, bytes)| {
        (name.as_str(), safetensors::tensor::TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn missing_extra_and_misshapen_tensors_are_named() {
    use safetensors::Dtype::{F32, F64, I8};
    let find = |all: &[Tensor], name: &str| all.iter().position(|tensor| tensor.0.ends_with(name)).unwrap();
    let message =
        refusal(MODEL, &changed(|all| drop(all.remove(find(all, "layers.1.mlp.dense_h_to_4h.bias")))));
    assert!(message.contains("gpt_neox.layers.1.mlp.dense_h_to_4h.bias is missing"), "{message}");
    let message = refusal(MODEL, &changed(|all| all.push(("left.over".into(), F32, vec![1], vec![0; 4]))));
    assert!(message.contains("left.over has no place"), "{message}");
    let message =
        refusal(MODEL, &changed(|all| all.push(("lm_head.weight".into(), F32, vec![1], vec![0; 4]))));
    assert!(message.contains("lm_head.weight is there twice"), "{message}");
    let message = refusal(MODEL, &changed(|all| all[0].2.reverse()));
    assert!(message.contains("embed_out.weight has shape [16, 11], config.json says [11, 16]"), "{message}");
    for (dtype, size) in [(F64, 8), (I8, 1)] {
        let message = refusal(MODEL, &changed(|all| (all[0].1, all[0].3) = (dtype, vec![0; 11 * 16 * size])));
        assert!(message.contains(&format!("embed_out.weight has type {dtype}")), "{message}");
    }
}

#[test]
fn masks_and_frequencies_of_older_versions_are_passed_over() {
    let folder = good();
    let bytes = changed(|all| {
        all.push(("gpt_neox.layers.0.attention.bias".into(), safetensors::Dtype::BOOL, vec![4], vec![1; 4]));
        all.push((
            "gpt_neox.layers.0.attention.rotary_emb.inv_freq".into(),
            safetensors::Dtype::F32,
            vec![1],
            vec![0; 4],
        ));
    });
    fs::write(folder.path().join("x").join(MODEL), bytes).unwrap();
    load(&folder.path().join("x")).unwrap();
}

#[test]
fn a_mix_of_types_is_widened() {
    let folder = good();
    let narrow = |bytes: &[u8]| -> Vec<u8> {
        let widen = |b: &[u8]| half::f16::from_f32(f32::from_le_bytes(b.try_into().unwrap())).to_le_bytes();
        bytes.chunks_exact(4).flat_map(widen).collect()
    };
    let bytes = changed(|all| (all[0].1, all[0].3) = (safetensors::Dtype::F16, narrow(&all[0].3)));
    let before = load(&folder.path().join("x")).unwrap().parameters;
    fs::write(folder.path().join("x").join(MODEL), bytes).unwrap();
    let after = load(&folder.path().join("x")).unwrap().parameters;
    let rounded: Vec<f32> =
        before.get("head.weight").unwrap().iter().map(|&value| half::f16::from_f32(value).to_f32()).collect();
    assert_eq!(after.get("head.weight").unwrap(), rounded);
    assert_eq!(after.get("embedding.weight").unwrap(), before.get("embedding.weight").unwrap());
}

#[test]
fn a_tied_head_may_be_stored_if_it_is_the_embedding() {
    let (folder, config) = (tempfile::tempdir().unwrap(), config(common::llama));
    let checkpoint = folder.path().join("x");
    save(&checkpoint, &contents(&config, &random_parameters(&config, 1))).unwrap();
    fs::remove_file(checkpoint.join("softdict.json")).unwrap();
    let before = load(&checkpoint).unwrap().parameters;
    let bytes = fs::read(checkpoint.join(MODEL)).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let embedding = tensors.tensor("model.embed_tokens.weight").unwrap();
    let mut other = embedding.data().to_vec();
    other[0] ^= 1;
    let write = |head: &[u8]| {
        let mut views = tensors.tensors();
        let head = safetensors::tensor::TensorView::new(embedding.dtype(), embedding.shape().to_vec(), head)
            .unwrap();
        views.push(("lm_head.weight".into(), head));
        fs::write(checkpoint.join(MODEL), safetensors::serialize(views, None).unwrap()).unwrap();
    };
    write(embedding.data());
    assert_eq!(load(&checkpoint).unwrap().parameters.values(), before.values());
    write(&other);
    let message = load(&checkpoint).unwrap_err().to_string();
    assert!(message.contains("lm_head.weight") && message.contains("differ"), "{message}");
}

/// Spreads the tensors of the checkpoint over two files with an index.
fn shard(checkpoint: &Path, second: &str) {
    let bytes = fs::read(checkpoint.join(MODEL)).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let (norms, others): (Vec<_>, Vec<_>) =
        tensors.tensors().into_iter().partition(|(name, _)| name.contains("norm"));
    let mut map = serde_json::Map::new();
    for (file, part) in [("model-00001-of-00002.safetensors", norms), (second, others)] {
        map.extend(part.iter().map(|(name, _)| (name.clone(), file.into())));
        fs::write(checkpoint.join(file), safetensors::serialize(part, None).unwrap()).unwrap();
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": map }).to_string();
    fs::write(checkpoint.join("model.safetensors.index.json"), index).unwrap();
    fs::remove_file(checkpoint.join(MODEL)).unwrap();
}

#[test]
fn weights_in_several_files_are_read_and_stay_inside_the_folder() {
    let folder = good();
    let checkpoint = folder.path().join("x");
    let before = load(&checkpoint).unwrap().parameters;
    shard(&checkpoint, "model-00002-of-00002.safetensors");
    assert_eq!(load(&checkpoint).unwrap().parameters.values(), before.values());
    fs::remove_file(checkpoint.join("model-00002-of-00002.safetensors")).unwrap();
    let message = load(&checkpoint).unwrap_err().to_string();
    assert!(message.contains("model-00002-of-00002.safetensors"), "{message}");

    let folder = good();
    shard(&folder.path().join("x"), "../outside.safetensors");
    let message = load(&folder.path().join("x")).unwrap_err().to_string();
    assert!(message.contains("../outside.safetensors") && message.contains("plain name"), "{message}");
}

#[test]
fn a_damaged_trainer_file_is_refused() {
    let folder = good();
    let checkpoint = folder.path().join("x");
    for bytes in [&b""[..], b"\x80\x02}q\x00X\x04\x00\x00\x00", &[0xFF; 40], &model_bytes()[..]] {
        fs::write(checkpoint.join("trainer.safetensors"), bytes).unwrap();
        let message = load_trainer(&checkpoint).unwrap_err().to_string();
        assert!(message.contains("trainer.safetensors"), "{message}");
    }
}

#[test]
#[cfg(unix)]
fn a_pipe_is_not_waited_for() {
    let folder = good();
    let path = folder.path().join("x").join(MODEL);
    fs::remove_file(&path).unwrap();
    std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(load(&folder.path().join("x")).unwrap_err().to_string().contains("not a regular file"));
}
