//! Writing a checkpoint.

use crate::error::{Error, Result};
use crate::file::write;
use crate::folder::Staging;
use crate::hf::{self, Family};
use crate::manifest::{FileRecord, MANIFEST, Manifest, Progress, TRAINER};
use crate::run::CONFIG;
use crate::tensors::{Floats, MODEL, WeightType, serialize};
use crate::trainer::{TrainerState, trainer_file};
use serde::Serialize;
use serde_json::json;
use softdict_model::{ModelConfig, ParameterTable, Parameters};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// Everything that goes into a checkpoint.
#[derive(Debug, Clone)]
pub struct Contents<'a> {
    /// The shape of the model.
    pub config: &'a ModelConfig,
    /// Its weights.
    pub parameters: &'a Parameters,
    /// The bytes of its `tokenizer.json`.
    pub tokenizer: Option<&'a [u8]>,
    /// How far training is.
    pub progress: Progress,
    /// What resuming needs.
    pub trainer: Option<TrainerState<'a>>,
}

/// JSON for people: indented, with a newline at the end.
fn pretty(path: &Path, value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(Error::json(path))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn model_file(
    path: &Path,
    config: &ModelConfig,
    parameters: &Parameters,
    dtype: WeightType,
) -> Result<Vec<u8>> {
    let entries = hf::entries(Family::of(config), config);
    let values = parameters.values();
    let tensors = entries.iter().map(|entry| {
        (entry.name.clone(), Floats::new(entry.shape(), dtype, || Cow::Owned(entry.gather(values))))
    });
    serialize(path, tensors.collect(), ("format", "pt".into()))
}

/// The first weight that would be infinite as `dtype`, and whose it is.
fn beyond(parameters: &Parameters, dtype: WeightType) -> Option<(String, f32)> {
    let values = parameters.values();
    parameters.table().iter().find_map(|parameter| {
        let mut own = values[parameter.range()].iter();
        let value = own.find(|&&value| !dtype.rounded(value).is_finite())?;
        Some((parameter.name.clone(), *value))
    })
}

/// Replaces what a checkpoint says of its progress, once it has been evaluated.
///
/// # Errors
/// When its manifest cannot be written. Without one there is nothing that could be wrong.
pub fn annotate(folder: &Path, progress: Progress) -> Result<()> {
    let path = folder.join(MANIFEST);
    if folder.is_symlink() {
        // what it leads to is read only
        return Ok(());
    }
    let Some(manifest) = Manifest::read(folder)? else { return Ok(()) };
    write(&path, &pretty(&path, &Manifest { progress, ..manifest })?)
}

/// Writes the checkpoint `folder`, in place of an older one if there is one; the same contents give the same bytes.
///
/// Until the last moment everything lies under a temporary name beside `folder`, so no reader and no kill ever finds
/// half of it. Files of the user in a replaced checkpoint stay.
///
/// # Errors
/// When a weight is not finite, when `folder` holds something else than a checkpoint of ours, or when the system
/// refuses; `folder` is then as it was, and nothing is left beside it.
pub fn save(folder: &Path, contents: &Contents<'_>) -> Result<()> {
    save_as(folder, contents, WeightType::F32)
}

/// As [`save`], with weights of another type, which loses what its rounding takes away.
///
/// # Errors
/// As [`save`]; also when a weight is beyond the type's range.
pub fn save_as(folder: &Path, contents: &Contents<'_>, dtype: WeightType) -> Result<()> {
    let Contents { config, parameters, tokenizer, progress, trainer } = contents;
    if **parameters.table() != ParameterTable::new(config) {
        return Err(Error::OtherConfiguration { path: folder.to_path_buf() });
    }
    let (family, model_path) = (Family::of(config), folder.join(MODEL));
    if let Some(parameter) = parameters.first_non_finite() {
        return Err(Error::NotFinite { path: model_path, tensor: parameter.name.clone() });
    }
    if let Some((tensor, value)) = beyond(parameters, dtype) {
        return Err(Error::Range { path: model_path, tensor, value, dtype: dtype.name() });
    }
    let staging = Staging::new(folder)?;
    let mut files = BTreeMap::new();
    let mut add = |name: &str, bytes: &[u8]| {
        files.insert(name.to_owned(), FileRecord::of(bytes));
        staging.write(name, bytes)
    };
    add(CONFIG, &pretty(&folder.join(CONFIG), &hf::config_json(family, config, dtype.name()))?)?;
    add(MODEL, &model_file(&model_path, config, parameters, dtype)?)?;
    // nulls, since transformers would otherwise take ids of its own vocabulary; top_k 0 instead of its 50
    let generation = json!({
        "bos_token_id": null, "do_sample": true, "eos_token_id": null, "pad_token_id": null, "temperature": 0.8,
        "top_k": 0,
    });
    add("generation_config.json", &pretty(folder, &generation)?)?;
    if let Some(bytes) = tokenizer {
        add("tokenizer.json", bytes)?;
        let about = json!({
            "clean_up_tokenization_spaces": false, "model_max_length": config.context(),
            "tokenizer_class": "PreTrainedTokenizerFast",
        });
        add("tokenizer_config.json", &pretty(folder, &about)?)?;
    }
    if let Some(trainer) = trainer {
        add(TRAINER, &trainer_file(&folder.join(TRAINER), trainer)?)?;
    }
    staging.write(MANIFEST, &pretty(folder, &Manifest::new(*progress, files))?)?;
    staging.publish()
}
