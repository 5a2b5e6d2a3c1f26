//! `trainer.safetensors`: what exact resume needs besides the weights, as tensors and free JSON.

use crate::error::{Error, Result};
use crate::manifest::{MANIFEST, Manifest, TRAINER};
use crate::run::require_folder;
use crate::tensors::{Floats, TensorFile, WeightType, serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;

/// The entry of the safetensors header that holds the JSON.
const STATE: &str = "state";

/// State of the trainer, as it is saved.
#[derive(Debug, Clone)]
pub struct TrainerState<'a> {
    /// Large values by name, such as the optimizer's moments.
    pub tensors: Vec<(String, &'a [f32])>,
    /// All else: counters, positions of random streams.
    pub state: Value,
}

/// Values by name, as [`load_trainer`] returns them.
pub type TrainerTensors = Vec<(String, Vec<f32>)>;

/// The file that holds `trainer`.
pub(crate) fn trainer_file(path: &Path, trainer: &TrainerState<'_>) -> Result<Vec<u8>> {
    let tensors = trainer.tensors.iter().map(|(name, values)| {
        let values: &[f32] = values;
        (name.clone(), Floats::new(vec![values.len()], WeightType::F32, move || Cow::Borrowed(values)))
    });
    serialize(path, tensors.collect(), (STATE, trainer.state.to_string()))
}

/// The trainer's state in the checkpoint `folder`: tensors in the order of their names, and the JSON.
///
/// # Errors
/// When the checkpoint has none, or it is not the one that was saved.
pub fn load_trainer(folder: &Path) -> Result<(TrainerTensors, Value)> {
    require_folder(folder)?;
    let path = folder.join(TRAINER);
    if !path.exists() {
        let need = "resume needs trainer.safetensors, which holds the optimizer's state; without it, start a new run \
                    from the weights with --from";
        return Err(Error::Missing { path, need });
    }
    if let Some(manifest) = Manifest::read(folder)? {
        manifest.verify_file(folder, TRAINER)?;
        if !manifest.files.contains_key(TRAINER) {
            let key = format!("files.{TRAINER}");
            let expected = format!("{TRAINER} lies beside it, from another checkpoint");
            return Err(Error::Key { path: folder.join(MANIFEST), key, value: "absent".into(), expected });
        }
    }
    let file = TensorFile::open(&path)?;
    let state = file.metadata(STATE)?.unwrap_or_default();
    let state = serde_json::from_str(&state).map_err(Error::json(&path))?;
    let tensors = file.tensors()?;
    let values = tensors.iter().map(|(name, found)| Ok((name.clone(), found.floats(name)?)));
    Ok((values.collect::<Result<_>>()?, state))
}
