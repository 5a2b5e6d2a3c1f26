//! Saving and loading: nothing is lost, nothing is left out, the same contents give the same bytes.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{config, contents, gpt2, llama, mixed, random_parameters};
use softdict_checkpoint::{Error, Family, Progress, TrainerState, load, load_trainer, save};
use softdict_model::settings::ModelSettings;
use softdict_testkit::golden_folder;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

type Change = fn(&mut ModelSettings);

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(folder).unwrap().map(read).collect()
}

#[test]
fn every_family_comes_back_bit_by_bit_and_twice_the_same() {
    let settings: [(Family, Change); 6] = [
        (Family::GptNeox, |_| ()),
        (Family::GptNeox, |s| (s.tied, s.rope_fraction, s.dropout, s.width) = (false, 0.5, 0.1, 24)),
        (Family::Llama, llama),
        (Family::Llama, |s| {
            llama(s);
            (s.heads, s.kv_heads, s.tied, s.dropout) = (4, Some(2), false, 0.1);
        }),
        (Family::Gpt2, gpt2),
        (Family::Softdict, mixed),
    ];
    for (number, (family, change)) in settings.into_iter().enumerate() {
        let (config, run) = (config(change), tempfile::tempdir().unwrap());
        let parameters = random_parameters(&config, number as u64);
        let [first, second] = ["first", "second"].map(|name| run.path().join(name));
        save(&first, &contents(&config, &parameters)).unwrap();
        let loaded = load(&first).unwrap();
        assert_eq!((loaded.family, &loaded.config), (family, &config));
        assert_eq!(loaded.parameters.values(), parameters.values());
        assert_eq!(loaded.tokenizer.as_deref(), Some(common::TOKENIZER));
        save(&second, &contents(&loaded.config, &loaded.parameters)).unwrap();
        assert_eq!(files(&first), files(&second));
        // over itself, in place
        save(&first, &contents(&loaded.config, &loaded.parameters)).unwrap();
        assert_eq!(files(&first), files(&second));
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 2);
    }
}

/// Folders that transformers wrote.
const THEIRS: [&str; 6] =
    ["gpt_neox_untied", "gpt_neox_tied", "gpt_neox_parallel", "gpt_neox_tanh", "llama_gqa_untied", "gpt2"];

/// One of them: as it was read, where it is, and where it is saved as a checkpoint of ours.
fn taken_over(name: &str) -> (softdict_checkpoint::Checkpoint, PathBuf, tempfile::TempDir, PathBuf) {
    let (golden, run) = (golden_folder().join(name), tempfile::tempdir().unwrap());
    let imported = load(&golden).unwrap();
    let folder = run.path().join("exported");
    save(&folder, &contents(&imported.config, &imported.parameters)).unwrap();
    (imported, golden, run, folder)
}

#[test]
fn folders_of_transformers_survive_import_and_export() {
    for name in THEIRS {
        let (imported, golden, _run, folder) = taken_over(name);
        let exported = load(&folder).unwrap();
        assert_eq!((exported.family, &exported.config), (imported.family, &imported.config), "{name}");
        assert_eq!(exported.parameters.values(), imported.parameters.values(), "{name}");

        let tensors = |folder: &Path| {
            let bytes = fs::read(folder.join("model.safetensors")).unwrap();
            let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            let owned = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
                (name, (view.shape().to_vec(), view.data().to_vec()))
            };
            tensors.tensors().into_iter().map(owned).collect::<BTreeMap<_, _>>()
        };
        assert!(
            tensors(&golden) == tensors(&folder),
            "{name}: the file holds other tensors than the original"
        );
    }
}

/// What `config.json` of transformers says that decides what is computed must be said alike, whoever reads it.
#[test]
fn configurations_of_transformers_come_back_in_its_own_words() {
    // training, sampling, caches and tokens that have a meaning: nothing that a forward pass depends on
    const OTHER: [&str; 24] = [
        "attention_dropout",
        "attn_pdrop",
        "bos_token_id",
        "classifier_dropout",
        "embd_pdrop",
        "eos_token_id",
        "hidden_dropout",
        "initializer_range",
        "is_decoder",
        "pad_token_id",
        "pretraining_tp",
        "reorder_and_upcast_attn",
        "resid_pdrop",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
        "transformers_version",
        "use_cache",
        "add_cross_attention",
        "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights",
        "n_inner",
    ];
    for name in THEIRS {
        let (_, golden, _run, folder) = taken_over(name);
        let read = |folder: &Path| -> serde_json::Map<String, serde_json::Value> {
            serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap()
        };
        let (theirs, ours) = (read(&golden), read(&folder));
        for (key, value) in theirs.iter().filter(|(key, _)| !OTHER.contains(&key.as_str())) {
            // two names of one function
            let value = if value == "gelu_pytorch_tanh" { &"gelu_new".into() } else { value };
            assert_eq!(ours.get(key), Some(value), "{name}: {key}");
        }
    }
}

#[test]
fn progress_and_the_trainer_state_come_back_exactly() {
    let (config, run) = (config(|_| ()), tempfile::tempdir().unwrap());
    let parameters = random_parameters(&config, 1);
    let (mean, square) = (vec![0.1f32, -2.5e-20, 7.0], vec![1.0f32; 2]);
    // a decimal number that a hasty parser returns with another last bit
    let state =
        serde_json::json!({ "loss": 0.123_456_789_012_345_68, "position": u64::MAX, "text": "é\n\"" });
    let progress = Progress { step: 12, tokens: 1 << 40, train_loss: Some(1.0 / 3.0), val_loss: None };
    let tensors = vec![("square".to_owned(), square.as_slice()), ("mean".to_owned(), mean.as_slice())];
    let trainer = Some(TrainerState { tensors, state: state.clone() });
    let folder = run.path().join("step-000012");
    let contents = softdict_checkpoint::Contents { progress, trainer, ..contents(&config, &parameters) };
    save(&folder, &contents).unwrap();
    assert_eq!(load(&folder).unwrap().manifest.unwrap().progress, progress);
    let (tensors, found) = load_trainer(&folder).unwrap();
    assert_eq!(tensors, [("mean".to_owned(), mean.clone()), ("square".to_owned(), square.clone())]);
    assert_eq!(found, state);

    fs::remove_file(folder.join("trainer.safetensors")).unwrap();
    load(&folder).unwrap();
    let error = load_trainer(&folder).unwrap_err().to_string();
    assert!(error.contains("step-000012") && error.contains("resume needs trainer.safetensors"), "{error}");
}

#[test]
fn a_weight_that_is_not_finite_is_neither_saved_nor_loaded() {
    let (config, run) = (config(|_| ()), tempfile::tempdir().unwrap());
    let mut parameters = random_parameters(&config, 1);
    let folder = run.path().join("step-000001");
    save(&folder, &contents(&config, &parameters)).unwrap();
    let before = files(&folder);
    let place = parameters.table().range("blocks.1.ffn.up.bias").unwrap().start;
    parameters.values_mut()[place] = f32::INFINITY;
    let error = save(&folder, &contents(&config, &parameters)).unwrap_err();
    assert!(matches!(&error, Error::NotFinite { tensor, .. } if tensor == "blocks.1.ffn.up.bias"), "{error}");
    assert_eq!(files(&folder), before);

    let path = folder.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = load(&folder).unwrap_err();
    assert!(matches!(&error, Error::NotFinite { tensor, .. } if tensor.starts_with("gpt_neox.")), "{error}");
}

#[test]
fn parameters_of_another_configuration_are_not_saved() {
    let run = tempfile::tempdir().unwrap();
    let parameters = random_parameters(&config(|_| ()), 1);
    let other = config(|s| s.bias = false);
    let error = save(&run.path().join("x"), &contents(&other, &parameters)).unwrap_err();
    assert!(matches!(error, Error::OtherConfiguration { .. }), "{error}");
    assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
}
