//! Reading a checkpoint, of ours or of transformers.

use crate::error::{Error, Result};
use crate::file::read_limited;
use crate::hf::{self, Family};
use crate::manifest::{Manifest, TRAINER};
use crate::run::{CONFIG, require_folder};
use crate::tensors::{Found, MODEL, TensorFile, all_tensors, open_weights};
use softdict_model::{ModelConfig, Parameters};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A configuration has some dozens of lines.
const MOST_CONFIG: u64 = 10 << 20;
/// The largest published vocabularies have about 30 MB.
const MOST_TOKENIZER: u64 = 100 << 20;

/// A checkpoint in memory.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The shape of the model.
    pub config: ModelConfig,
    /// Its weights, in f32.
    pub parameters: Parameters,
    /// The bytes of its `tokenizer.json`.
    pub tokenizer: Option<Vec<u8>>,
    /// Its manifest; folders that transformers wrote have none.
    pub manifest: Option<Manifest>,
    /// Whose format it is in.
    pub family: Family,
    /// Where it is.
    pub folder: PathBuf,
}

/// Reads the checkpoint folder `folder`.
///
/// Weights in f16 and bf16 are widened to f32. Every file that the manifest lists must be the one that was saved, but
/// for the trainer's state, which [`crate::load_trainer`] reads.
///
/// # Errors
/// When a file is missing, damaged or differs, when `config.json` describes a model that softdict does not know, and
/// when a tensor is missing, superfluous, of another shape or type, or not finite.
pub fn load(folder: &Path) -> Result<Checkpoint> {
    require_folder(folder)?;
    let path = folder.join(CONFIG);
    if !path.exists() {
        return Err(Error::NotACheckpoint { path: folder.to_path_buf() });
    }
    let manifest = Manifest::read(folder)?;
    let verify = |wanted: fn(&str) -> bool| {
        manifest.as_ref().map_or(Ok(()), |manifest| manifest.verify(folder, wanted))
    };
    verify(|name| name != MODEL && name != TRAINER)?;
    let (family, config) = hf::read_config(&path, &read_limited(&path, MOST_CONFIG)?)?;
    let files = open_weights(folder)?;
    // reading and hashing take about as long, so they go side by side
    let (parameters, verified) = std::thread::scope(|scope| {
        let verified = scope.spawn(|| verify(|name| name == MODEL));
        (read_parameters(family, &config, &files, folder), verified.join())
    });
    // first what was read, so that what is wrong with a single tensor is said by its name
    let parameters = parameters?;
    verified.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let tokenizer = folder.join("tokenizer.json");
    let tokenizer = tokenizer.exists().then(|| read_limited(&tokenizer, MOST_TOKENIZER)).transpose()?;
    Ok(Checkpoint { config, parameters, tokenizer, manifest, family, folder: folder.to_path_buf() })
}

/// The tensors that the model takes part in, under the names of its table.
fn known_tensors(
    family: Family,
    tensors: BTreeMap<String, Found<'_>>,
) -> Result<BTreeMap<String, Found<'_>>> {
    let mut known = BTreeMap::new();
    for (tensor, found) in tensors {
        let Some(name) = hf::canonical(family, &tensor) else { continue };
        if known.contains_key(&name) {
            return Err(Error::DoubleTensor { path: found.path.to_path_buf(), tensor });
        }
        known.insert(name, found);
    }
    Ok(known)
}

fn read_parameters(
    family: Family,
    config: &ModelConfig,
    files: &[TensorFile],
    folder: &Path,
) -> Result<Parameters> {
    let mut tensors = known_tensors(family, all_tensors(files)?)?;
    let entries = hf::entries(family, config);
    let mut found = Vec::with_capacity(entries.len());
    if let Some([head, embedding]) = hf::tied_head(family)
        && config.settings.tied
        && let Some(head_tensor) = tensors.remove(head)
    {
        check_tied((head, &head_tensor), (embedding, tensors.get(embedding)))?;
    }
    // everything is compared with the real files before anything of the stated size is allocated
    for entry in &entries {
        let Some(tensor) = tensors.remove(&entry.name) else {
            let path = if let [only] = files { only.path() } else { folder }.to_path_buf();
            return Err(Error::MissingTensor { path, tensor: entry.name.clone() });
        };
        tensor.check(&entry.name, &entry.shape())?;
        found.push(tensor);
    }
    if let Some((tensor, extra)) = tensors.pop_first() {
        return Err(Error::ExtraTensor { path: extra.path.to_path_buf(), tensor });
    }
    let mut parameters = Parameters::zeros(config);
    let values = parameters.values_mut();
    for (entry, tensor) in entries.iter().zip(&found) {
        tensor.scatter(entry, values)?;
    }
    Ok(parameters)
}

/// Some writers store a tied head a second time; it must then be the embedding indeed.
fn check_tied(head: (&str, &Found<'_>), embedding: (&str, Option<&Found<'_>>)) -> Result<()> {
    let Some(tensor) = embedding.1 else { return Ok(()) };
    head.1.check(head.0, tensor.shape())?;
    if head.1.finite(head.0)? == tensor.finite(embedding.0)? {
        return Ok(());
    }
    let (path, tensor) = (head.1.path.to_path_buf(), head.0.to_owned());
    Err(Error::Untied { path, tensor, embedding: embedding.0.to_owned() })
}
