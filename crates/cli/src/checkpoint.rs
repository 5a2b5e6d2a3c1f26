//! Opening what the commands look at: a checkpoint with its model and tokenizer, and a text as token ids.

use crate::machine::device_name;
use crate::output::{grouped, notice};
use crate::progress::Bytes;
use anyhow::{Context, bail};
use candle_core::{Device, Tensor};
use softdict_checkpoint::{Checkpoint, Error, Progress, Which};
use softdict_kernels::Ops;
use softdict_model::{ModelConfig, ModelError, Parameter, Parameters, Transformer};
use softdict_tokenizer::{Dataset, TextFile, Tokenizer, encode_to_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A checkpoint, ready to compute.
pub(crate) struct Loaded {
    /// The weights as they are in the folder.
    pub(crate) parameters: Parameters,
    /// The model as it is in the folder.
    pub(crate) model: Transformer,
    /// The same without the rows that no token has, where the vocabulary was padded.
    unpadded: Option<Transformer>,
    pub(crate) tokenizer: Tokenizer,
    /// The checkpoint's folder.
    pub(crate) folder: PathBuf,
    /// The folder of the run that the checkpoint is part of.
    pub(crate) run: Option<PathBuf>,
}

impl Loaded {
    /// The model over the tokens that there are: what it draws always has a text, and nothing else differs.
    pub(crate) fn speaker(&self) -> &Transformer {
        self.unpadded.as_ref().unwrap_or(&self.model)
    }

    /// The ids of `text`, or those that the run was trained and evaluated on.
    ///
    /// # Errors
    /// When there is neither, or the ids in the run are those of another tokenizer.
    pub(crate) fn corpus(&self, text: Option<&Path>) -> anyhow::Result<Corpus> {
        match (text, &self.run) {
            (Some(text), _) => Corpus::of_text(text, &self.tokenizer),
            (None, Some(run)) => Corpus::of_run(run, &self.tokenizer),
            (None, None) => bail!(
                "{} is not part of a run, so there is no text that belongs to it; give one after the checkpoint",
                self.folder.display()
            ),
        }
    }
}

impl From<crate::args::Which> for Which {
    fn from(which: crate::args::Which) -> Self {
        match which {
            crate::args::Which::Last => Self::Last,
            crate::args::Which::Best => Self::Best,
        }
    }
}

/// Opens the checkpoint that `path` means and says on standard error which one it is.
///
/// # Errors
/// When there is none, when it is damaged, or when its tokenizer is missing or does not fit.
pub(crate) fn open(path: &Path, which: Which, device: &Device) -> anyhow::Result<Loaded> {
    let folder = resolve(path, which)?;
    let Checkpoint { config, parameters, tokenizer, manifest, .. } = softdict_checkpoint::load(&folder)?;
    let file = folder.join("tokenizer.json").display().to_string();
    let json = tokenizer.with_context(|| {
        format!("{file} is missing: without the checkpoint's own tokenizer its ids mean nothing; put the file back")
    })?;
    let tokenizer = Tokenizer::from_bytes(json, &file)?;
    let (tokens, rows) = (tokenizer.vocab_size(), config.vocab_size);
    if tokens > rows {
        bail!(
            "{file} has {tokens} tokens, but the embedding in {} has {rows} rows: they belong to different models",
            folder.display()
        );
    }
    let run = run_of(path, &folder);
    let at = manifest.map_or(String::new(), |manifest| standing(manifest.progress, run.as_deref()));
    notice(format!("checkpoint: {}{at}, on {}", folder.display(), device_name(device)));
    let (model, unpadded) = models(&config, &parameters, tokens, device)?;
    Ok(Loaded { parameters, model, unpadded, tokenizer, folder, run })
}

/// How far a checkpoint was trained, and how good it was found.
fn standing(progress: Progress, run: Option<&Path>) -> String {
    let loss = progress.val_loss.or_else(|| evaluated(run?, progress.step));
    let loss = loss.map_or("not evaluated".to_owned(), |loss| format!("validation loss {loss:.4}"));
    format!(", step {}, {loss}", grouped(progress.step))
}

/// The validation loss after `step` updates by the run's own record: checkpoints are saved before they are evaluated.
fn evaluated(run: &Path, step: u64) -> Option<f64> {
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).ok()?;
    let events = metrics.lines().rev().filter(|line| line.contains("\"eval\""));
    let mut events = events.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    events.find(|event| event["event"] == "eval" && event["step"] == step)?["val_loss"].as_f64()
}

/// The folder of the checkpoint; the last one where a run has no best.
fn resolve(path: &Path, which: Which) -> anyhow::Result<PathBuf> {
    match softdict_checkpoint::resolve(path, which) {
        Err(Error::NoPointer { .. }) if which == Which::Best => {
            notice(format!("{}: nothing was evaluated yet, so the last checkpoint is taken", path.display()));
            Ok(softdict_checkpoint::resolve(path, Which::Last)?)
        }
        found => Ok(found?),
    }
}

/// The run around a checkpoint: the folder that was named, or the one that holds it.
fn run_of(path: &Path, folder: &Path) -> Option<PathBuf> {
    if path != folder {
        return Some(path.to_path_buf());
    }
    // the checkpoint may be named by a link, such as `last`, or from inside, as `.`
    let parent = folder.canonicalize().ok()?.parent()?.to_path_buf();
    let is_run = parent.join("settings.toml").is_file() || parent.join("data").is_dir();
    is_run.then_some(parent)
}

/// The whole model, and the model of the first `tokens` rows where there are more; they share their weights.
fn models(
    config: &ModelConfig,
    parameters: &Parameters,
    tokens: usize,
    device: &Device,
) -> anyhow::Result<(Transformer, Option<Transformer>)> {
    let mut tensors = BTreeMap::new();
    for parameter in parameters.table().iter() {
        let values = &parameters.values()[parameter.range()];
        let tensor = Tensor::from_slice(values, parameter.shape.as_slice(), device)?;
        tensors.insert(parameter.name.clone(), tensor);
    }
    // a padded row follows the rows of the tokens, in the embedding as in the head
    let find = |parameter: &Parameter| -> softdict_model::Result<Tensor> {
        let missing = || ModelError::MissingParameter { name: parameter.name.clone() };
        let whole = tensors.get(&parameter.name).ok_or_else(missing)?;
        Ok(whole.narrow(0, 0, parameter.shape[0])?)
    };
    let ops = Ops::for_device(device);
    let model = Transformer::from_tensors(config, ops, device, &find)?;
    if tokens == config.vocab_size {
        return Ok((model, None));
    }
    let config = ModelConfig { vocab_size: tokens, ..config.clone() };
    let unpadded = Transformer::from_tensors(&config, ops, device, &find)?;
    Ok((model, Some(unpadded)))
}

/// The tokenizer of a run, of a checkpoint folder, or in a file.
///
/// # Errors
/// When there is none; names the file that was looked for.
pub(crate) fn open_tokenizer(path: &Path) -> anyhow::Result<Tokenizer> {
    let own = !path.is_dir() || path.join("tokenizer.json").exists();
    let folder = if own { path.to_path_buf() } else { softdict_checkpoint::resolve(path, Which::Last)? };
    Ok(Tokenizer::from_file(folder)?)
}

/// Token ids to measure on.
pub(crate) struct Corpus {
    pub(crate) dataset: Dataset,
    /// What messages call it.
    pub(crate) name: String,
    /// Whether it is another text, all of which is in [`Dataset::train`].
    pub(crate) foreign: bool,
    /// Holds the ids of another text, and is removed with them.
    _folder: Option<tempfile::TempDir>,
}

impl Corpus {
    fn of_run(run: &Path, tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        let data = run.join("data");
        let dataset = Dataset::open(&data).with_context(|| {
            format!("{} has no token ids of its text; give a text after the checkpoint", run.display())
        })?;
        if dataset.record.tokenizer_sha256 != tokenizer.sha256() {
            bail!(
                "{} was made with another tokenizer than the checkpoint's; give the text after the checkpoint",
                data.display()
            );
        }
        Ok(Self { dataset, name: run.display().to_string(), foreign: false, _folder: None })
    }

    fn of_text(path: &Path, tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        let text = TextFile::open(path)?;
        text.notes().iter().for_each(notice);
        let folder = tempfile::tempdir().context("no temporary folder for the token ids (TMPDIR)")?;
        let mut bytes = Bytes::new("tokenizing");
        let dataset =
            encode_to_file(tokenizer, &text, folder.path(), 0.0, &mut |done, total| bytes.set(done, total))
                .with_context(|| text.name().to_owned())?;
        Ok(Self { dataset, name: text.name().to_owned(), foreign: true, _folder: Some(folder) })
    }
}
