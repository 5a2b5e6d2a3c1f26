//! The families of models: which one can express a configuration, and what it calls settings and tensors.
//!
//! Each family is one [`Format`]: a table of tensor names used for reading and writing alike, and its `config.json`
//! both ways. Settings that a family has no key for are kept under `softdict`, which others ignore.

mod gpt2;
mod gpt_neox;
mod keys;
mod llama;
mod obstacles;
mod softdict;
mod table;

use crate::error::{Error, Result};
use keys::Keys;
use serde_json::{Map, Value, json};
use softdict_model::settings::ModelSettings;
use softdict_model::{ModelConfig, ModelError};
use std::path::Path;
pub(crate) use table::Entry;

/// Whose format a checkpoint is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Rotary positions, `LayerNorm`, GELU, biases: GPT-NeoX and Pythia.
    GptNeox,
    /// Rotary positions, RMSNorm, SwiGLU, no biases, grouped queries.
    Llama,
    /// Learned positions, `LayerNorm`, tanh-GELU, biases, tied.
    Gpt2,
    /// Everything else; nothing but softdict opens it.
    Softdict,
}

/// What a family calls things.
struct Format {
    /// `model_type` in `config.json`.
    model_type: &'static str,
    /// The class that opens it.
    class: &'static str,
    /// Which tensor holds which part of the parameters.
    entries: fn(&ModelConfig) -> Vec<Entry>,
    /// A tensor's name in the table for one in a file; nothing for those that hold no weights.
    canonical: fn(&str) -> Option<String>,
    /// The names of head and embedding, where a file may hold both though they are tied.
    tied_head: Option<[&'static str; 2]>,
    /// The settings that its keys can express.
    write: fn(&ModelConfig) -> Value,
    /// Settings and vocabulary size of its keys.
    read: fn(&Keys<'_>) -> Result<(ModelSettings, usize)>,
}

impl Family {
    /// All families, in the order in which they are tried.
    pub const ALL: [Self; 4] = [Self::GptNeox, Self::Llama, Self::Gpt2, Self::Softdict];

    /// The first family that can express `config`.
    pub fn of(config: &ModelConfig) -> Self {
        let expresses = |family: &Self| obstacles::obstacles(*family, config).is_empty();
        Self::ALL.into_iter().find(expresses).unwrap_or(Self::Softdict)
    }

    /// Its `model_type`, as `config.json` has it.
    pub fn model_type(self) -> &'static str {
        self.format().model_type
    }

    /// The class of transformers that opens its folders; for [`Family::Softdict`] there is none by that name.
    pub fn class_name(self) -> &'static str {
        self.format().class
    }

    /// One sentence for people: what opens a checkpoint of `config`, and which settings stand in the way.
    pub fn note(config: &ModelConfig) -> String {
        match Self::of(config) {
            Self::Softdict => {
                let (family, obstacles) = obstacles::nearest(config);
                let wanted = obstacles.join(", ");
                format!(
                    "only softdict opens its checkpoints; as {} it would need {wanted}",
                    family.model_type()
                )
            }
            family => format!("transformers opens its checkpoints as {}", family.class_name()),
        }
    }

    fn format(self) -> &'static Format {
        match self {
            Self::GptNeox => &gpt_neox::FORMAT,
            Self::Llama => &llama::FORMAT,
            Self::Gpt2 => &gpt2::FORMAT,
            Self::Softdict => &softdict::FORMAT,
        }
    }
}

/// Which tensor of a file holds which part of the parameters.
pub(crate) fn entries(family: Family, config: &ModelConfig) -> Vec<Entry> {
    (family.format().entries)(config)
}

/// A tensor's name in the table of its family; nothing for those that hold no weights.
pub(crate) fn canonical(family: Family, name: &str) -> Option<String> {
    (family.format().canonical)(name)
}

/// Names of head and embedding, where a file may hold both though they are tied.
pub(crate) fn tied_head(family: Family) -> Option<[&'static str; 2]> {
    family.format().tied_head
}

/// The key under which softdict keeps what the others' keys cannot say.
const OWN_KEY: &str = "softdict";

/// The number whose decimals are those of `value`: 0.1, where the bits of the f32 say 0.10000000149.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}

/// The content of `config.json`.
pub(crate) fn config_json(family: Family, config: &ModelConfig, dtype: &str) -> Value {
    let mut all = json!({
        "architectures": [family.class_name()],
        "dtype": dtype, "torch_dtype": dtype,
        "model_type": family.model_type(),
        "vocab_size": config.vocab_size,
    });
    if family != Family::Softdict {
        let common = json!({
            // never ids of another vocabulary, which transformers would fill in
            "bos_token_id": null, "eos_token_id": null, "pad_token_id": null,
            "initializer_range": 0.02, "use_cache": true,
            "tie_word_embeddings": config.settings.tied,
            OWN_KEY: { "init": config.init, "dropout": decimal(config.settings.dropout) },
        });
        extend(&mut all, common);
    }
    extend(&mut all, (family.format().write)(config));
    sorted(all)
}

fn extend(all: &mut Value, more: Value) {
    if let (Value::Object(all), Value::Object(more)) = (all, more) {
        all.extend(more);
    }
}

/// Keys in alphabetical order, however `serde_json` was built.
fn sorted(value: Value) -> Value {
    let Value::Object(map) = value else { return value };
    let mut pairs: Vec<(String, Value)> = map.into_iter().collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    Value::Object(pairs.into_iter().map(|(key, value)| (key, sorted(value))).collect())
}

/// Keys of other variants of these families, and of files that hold something else than plain weights.
const UNKNOWN_VARIANTS: [&str; 3] = ["sliding_window", "quantization_config", "layer_types"];

/// Family and configuration of the `config.json` at `path`.
pub(crate) fn read_config(path: &Path, bytes: &[u8]) -> Result<(Family, ModelConfig)> {
    let map: Map<String, Value> = serde_json::from_slice(bytes).map_err(Error::json(path))?;
    let keys = Keys::new(path, &map);
    let model_type = keys.word("model_type")?.unwrap_or_default();
    let family = Family::ALL.into_iter().find(|family| family.model_type() == model_type);
    let Some(family) = family else {
        let known = Family::ALL.map(Family::model_type).join(", ");
        return Err(keys.wrong("model_type", format!("softdict reads {known}")));
    };
    for key in UNKNOWN_VARIANTS {
        if keys.has(key) {
            return Err(keys.wrong(key, "softdict's model has nothing like it; it must be absent or null"));
        }
    }
    for key in ["add_cross_attention", "is_encoder_decoder", "use_sliding_window"] {
        keys.must_be(key, false, false)?;
    }
    let (mut settings, vocab_size) = (family.format().read)(&keys)?;
    if family != Family::Softdict
        && let Some(own) = keys.inside(OWN_KEY)?
    {
        settings.init = own.parsed("init")?;
        settings.dropout = own.parsed("dropout")?.unwrap_or(settings.dropout);
    }
    let invalid = |source: ModelError| Error::Model { path: path.to_path_buf(), source };
    let config = ModelConfig::new(&settings, vocab_size).map_err(invalid)?;
    Ok((family, config))
}

#[cfg(test)]
mod tests;
