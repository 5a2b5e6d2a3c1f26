//! Opening what the commands look at: a checkpoint with its model and tokenizer, and a text as token ids.

use crate::ids::Corpus;
use crate::machine::device_name;
use crate::output::{grouped, notice};
use crate::settings::Settings;
use anyhow::{Context, bail};
use candle_core::{Device, Tensor};
use softdict_checkpoint::{Checkpoint, Error, Progress, Which};
use softdict_corpus::Tale;
use softdict_kernels::Ops;
use softdict_model::{CachedTransformer, Decoder, ModelConfig, Parameter, Parameters, Reader, Transformer};
use softdict_sampler::SampleError;
use softdict_tokenizer::{TextFile, Tokenizer};
use softdict_trainer::Masking;
use std::path::{Path, PathBuf};

/// Lines of the tales to measure on, and a seed that `train` does not use.
const FRESH_LINES: usize = 1000;
const FRESH_SEED: u64 = 1;

/// A checkpoint, ready to compute.
pub(crate) struct Loaded {
    /// The shape of the model as it is in the folder.
    pub(crate) config: ModelConfig,
    /// The same without the rows that no token has, where the vocabulary was padded: what it draws always has a text,
    /// and nothing else differs. The row of the mask stays.
    pub(crate) spoken: ModelConfig,
    /// The weights as they are in the folder.
    pub(crate) parameters: Parameters,
    pub(crate) tokenizer: Tokenizer,
    /// The checkpoint's folder.
    pub(crate) folder: PathBuf,
    /// The folder of the run that the checkpoint is part of.
    pub(crate) run: Option<PathBuf>,
    /// The updates that it was made by, where it says so.
    pub(crate) step: Option<u64>,
    device: Device,
}

impl Loaded {
    /// The model over the tokens that there are, as tensors on the device.
    ///
    /// # Errors
    /// When the device has no room.
    pub(crate) fn speaker(&self) -> anyhow::Result<Transformer> {
        let tensor = |parameter: &Parameter| {
            // a padded row follows the rows of the tokens, in the embedding as in the head
            let values = &self.parameters.get(&parameter.name)?[..parameter.len()];
            Ok(Tensor::from_slice(values, parameter.shape.as_slice(), &self.device)?)
        };
        let ops = Ops::for_device(&self.device);
        Ok(Transformer::from_tensors(&self.spoken, ops, &self.device, &tensor)?)
    }

    /// The same to sample from: on the CPU over the weights as they are, elsewhere as tensors.
    ///
    /// # Errors
    /// As [`Loaded::speaker`]; also when the model is not causal.
    pub(crate) fn reader(&self) -> anyhow::Result<Box<dyn Reader + '_>> {
        if !self.spoken.settings.causal {
            return Err(SampleError::Bidirectional.into());
        }
        if self.device.is_cpu() {
            return Ok(Box::new(Decoder::new(&self.spoken, &self.parameters)?));
        }
        Ok(Box::new(CachedTransformer::new(self.speaker()?)))
    }

    /// The id that stands for a hidden token in a bidirectional model: the first row that no token has.
    pub(crate) fn mask(&self) -> Option<u32> {
        mask(&self.config, self.tokenizer.vocab_size())
    }

    /// How the model is asked for hidden tokens, if it is: as in its run, else as its run would by default.
    ///
    /// # Errors
    /// When the run's settings cannot be read.
    pub(crate) fn masking(&self) -> anyhow::Result<Option<Masking>> {
        let Some(mask) = self.mask() else { return Ok(None) };
        let rate = Settings::of_run(self.run.as_deref())?.train.mask_rate;
        Ok(Some(Masking { mask, rate }))
    }

    /// The ids of `text`, or those that the run was trained and evaluated on.
    ///
    /// # Errors
    /// When there is neither, or the ids in the run are those of another tokenizer.
    pub(crate) fn corpus(&self, text: Option<&Path>) -> anyhow::Result<Corpus> {
        match (text, &self.run) {
            (Some(text), _) => Corpus::of_text(&TextFile::open(text)?, &self.tokenizer),
            (None, Some(run)) => Corpus::of_run(run, &self.tokenizer),
            (None, None) => bail!(
                "{} is not part of a run, so there is no text that belongs to it; give one after the checkpoint",
                self.folder.display()
            ),
        }
    }

    /// As [`Loaded::corpus`], but where there is neither, lines of the tales that no run trains on.
    ///
    /// # Errors
    /// As [`Loaded::corpus`]; also when the tokenizer lacks a character of the tales.
    pub(crate) fn corpus_or_tales(&self, text: Option<&Path>) -> anyhow::Result<Corpus> {
        if text.is_some() || self.run.is_some() {
            return self.corpus(text);
        }
        let name = "lines of the embedded tales";
        notice(format!("{} is not part of a run: {name} stand in for its text", self.folder.display()));
        let tale = if self.mask().is_some() { Tale::Referents } else { Tale::Tales };
        let tales = softdict_corpus::generate(tale, FRESH_LINES, FRESH_SEED);
        Corpus::of_text(&TextFile::from_bytes(name, tales)?, &self.tokenizer).with_context(|| {
            format!("{} has no text of its own, and cannot read the tales", self.folder.display())
        })
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
    let (folder, chosen, checkpoint) = load(path, which)?;
    let Checkpoint { config, parameters, tokenizer, manifest, .. } = checkpoint;
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
    let run = if chosen.is_some() { Some(path.to_path_buf()) } else { run_around(&folder) };
    let chosen = chosen.map_or(String::new(), |which| format!(" ({})", which.name()));
    let step = manifest.as_ref().map(|manifest| manifest.progress.step);
    let at = manifest.map_or(String::new(), |manifest| standing(manifest.progress));
    notice(format!("checkpoint: {}{chosen}{at}, on {}", folder.display(), device_name(device)));
    let spoken = tokens + usize::from(mask(&config, tokens).is_some());
    let spoken = ModelConfig { vocab_size: spoken, ..config.clone() };
    Ok(Loaded { config, spoken, parameters, tokenizer, folder, run, step, device: device.clone() })
}

/// The row after those of `tokens`, where a bidirectional model has one.
pub(crate) fn mask(config: &ModelConfig, tokens: usize) -> Option<u32> {
    (!config.settings.causal && config.vocab_size > tokens).then_some(tokens as u32)
}

/// How far a checkpoint was trained, and how good it was found.
fn standing(progress: Progress) -> String {
    let loss = progress.val_loss.map_or("not recorded".to_owned(), |loss| format!("{loss:.4}"));
    format!(", step {}, validation loss {loss}", grouped(progress.step))
}

/// Loads what `path` means. A training that goes on meanwhile moves its pointers and removes what they no longer lead to:
/// then it is looked up again.
pub(crate) fn load(path: &Path, which: Which) -> anyhow::Result<(PathBuf, Option<Which>, Checkpoint)> {
    let (mut folder, mut chosen) = resolve(path, which)?;
    loop {
        let loaded = softdict_checkpoint::load(&folder);
        if loaded.as_ref().is_ok_and(|checkpoint| checkpoint.tokenizer.is_some()) {
            return Ok((folder, chosen, loaded?));
        }
        let now = resolve(path, which)?;
        if now.0 == folder {
            let loaded = loaded.map_err(|error| match others(&folder) {
                Some(hint) => anyhow::anyhow!("{error}; {hint}"),
                None => error.into(),
            });
            return Ok((folder, chosen, loaded?));
        }
        (folder, chosen) = now;
    }
}

/// What can be opened instead of a checkpoint of a run that is damaged.
fn others(folder: &Path) -> Option<String> {
    let real = folder.canonicalize().ok()?;
    let steps = softdict_checkpoint::list_steps(&run_around(folder)?).ok()?;
    let newest = steps.iter().rfind(|(_, other)| *other != real)?;
    let (run, name) = (folder.parent()?, newest.1.file_name()?);
    Some(format!(
        "the run has another checkpoint, {}, to look into or to go on from with --from",
        run.join(name).display()
    ))
}

/// The folder of the checkpoint, and as which of a run's; the last one where a run has no best.
fn resolve(path: &Path, which: Which) -> anyhow::Result<(PathBuf, Option<Which>)> {
    // a pointer of a run in training, named itself, may move between two files that are read through it
    if let (true, Ok(target)) = (path.is_symlink(), path.read_link()) {
        let parent = path.parent().unwrap_or(Path::new(""));
        return resolve(&parent.join(target), which);
    }
    let (folder, which) = match softdict_checkpoint::resolve(path, which) {
        Err(Error::NoPointer { .. }) if which == Which::Best => {
            notice(format!("{}: it has no best checkpoint, so the last one is taken", path.display()));
            (softdict_checkpoint::resolve(path, Which::Last)?, Which::Last)
        }
        found => (found?, which),
    };
    let chosen = (folder != path).then_some(which);
    Ok((folder, chosen))
}

/// The run that holds a checkpoint; it may be named by a link, such as `last`, or from inside, as `.`.
fn run_around(folder: &Path) -> Option<PathBuf> {
    let parent = folder.canonicalize().ok()?.parent()?.to_path_buf();
    let is_run = parent.join("settings.toml").is_file() || parent.join("data").is_dir();
    is_run.then_some(parent)
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

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_checkpoint::Contents;
    use softdict_model::{ModelSettings, NoTap};
    use softdict_tokenizer::Kind;

    /// A run with one checkpoint whose embedding has `rows` rows, and a tokenizer of five characters.
    fn run(rows: usize, change: impl Fn(&mut Parameters)) -> tempfile::TempDir {
        let run = tempfile::tempdir().unwrap();
        let text = TextFile::from_bytes("test", "abcd\n").unwrap();
        let tokenizer = Tokenizer::train(&Kind::Char, &text, None, &mut |_, _, _| ()).unwrap();
        let settings =
            ModelSettings { layers: 1, heads: 2, width: 8, context: 4, tied: false, ..Default::default() };
        let config = ModelConfig::new(&settings, rows).unwrap();
        let mut parameters = Parameters::initial(&config, 1);
        change(&mut parameters);
        let contents = Contents {
            config: &config,
            parameters: &parameters,
            tokenizer: Some(tokenizer.to_json()),
            progress: Progress { step: 1, tokens: 4, train_loss: None, val_loss: None },
            trainer: None,
        };
        softdict_checkpoint::save(&run.path().join("step-000001"), &contents).unwrap();
        softdict_checkpoint::point(run.path(), "last", "step-000001").unwrap();
        std::fs::write(run.path().join("settings.toml"), "").unwrap();
        run
    }

    fn open_cpu(path: &Path) -> anyhow::Result<Loaded> {
        open(path, Which::Best, &Device::Cpu)
    }

    #[test]
    fn a_padded_vocabulary_speaks_only_in_tokens_and_its_logits_are_those_of_the_whole() {
        let run = run(9, |_| ());
        let loaded = open_cpu(run.path()).unwrap();
        assert_eq!((loaded.config.vocab_size, loaded.spoken.vocab_size), (9, 5));
        let last = |model: &Transformer| -> Vec<f32> {
            model
                .forward(&[0, 3, 2], 3, &mut NoTap)
                .unwrap()
                .get(0)
                .unwrap()
                .get(2)
                .unwrap()
                .to_vec1()
                .unwrap()
        };
        let whole = last(&Transformer::new(&loaded.config, &loaded.parameters, &Device::Cpu).unwrap());
        let mut reader = loaded.reader().unwrap();
        for spoken in [&last(&loaded.speaker().unwrap()), reader.read(&[0, 3, 2], 3).unwrap()] {
            assert_eq!(spoken.len(), 5);
            // the same products, in matrices of another size
            assert!(whole.iter().zip(spoken).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }

    #[test]
    fn more_tokens_than_rows_is_an_error_with_both_numbers() {
        let run = run(4, |_| ());
        let message = open_cpu(run.path()).err().unwrap().to_string();
        assert!(message.contains("5 tokens") && message.contains("4 rows"), "{message}");
    }

    #[test]
    fn a_missing_tokenizer_is_named_and_none_takes_its_place() {
        let run = run(5, |_| ());
        let folder = run.path().join("step-000001");
        std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
        for manifest in [true, false] {
            if !manifest {
                std::fs::remove_file(folder.join("softdict.json")).unwrap();
            }
            let message = open_cpu(run.path()).err().unwrap().to_string();
            assert!(message.contains("tokenizer.json") && message.contains("step-000001"), "{message}");
        }
        assert!(open_tokenizer(run.path()).unwrap_err().to_string().contains("tokenizer.json"));
    }

    #[test]
    fn a_run_is_found_from_itself_from_its_links_and_from_its_checkpoints() {
        let run = run(5, |_| ());
        let whole = run.path().canonicalize().unwrap();
        for inside in ["", "step-000001"] {
            let loaded = open_cpu(&run.path().join(inside)).unwrap();
            assert_eq!(loaded.run.unwrap().canonicalize().unwrap(), whole, "{inside}");
            assert!(loaded.folder.ends_with("step-000001"));
        }
        if cfg!(unix) {
            let loaded = open_cpu(&run.path().join("last")).unwrap();
            assert_eq!(loaded.run.unwrap(), whole);
        }
        for path in ["", "step-000001", "step-000001/tokenizer.json"] {
            assert_eq!(open_tokenizer(&run.path().join(path)).unwrap().vocab_size(), 5);
        }
    }

    #[test]
    fn a_checkpoint_outside_a_run_has_no_text_of_its_own() {
        let run = run(5, |_| ());
        std::fs::remove_file(run.path().join("settings.toml")).unwrap();
        let loaded = open_cpu(&run.path().join("step-000001")).unwrap();
        let message = loaded.corpus(None).err().unwrap().to_string();
        assert!(message.contains("step-000001") && message.contains("not part of a run"), "{message}");
        let text = run.path().join("text.txt");
        std::fs::write(&text, "abcabc\nZ").unwrap();
        let message = format!("{:#}", loaded.corpus(Some(&text)).err().unwrap());
        assert!(message.contains("text.txt") && message.contains("'Z'"), "{message}");
        std::fs::write(&text, "abcabc\n").unwrap();
        let corpus = loaded.corpus(Some(&text)).unwrap();
        let folder = corpus.dataset.train.path().parent().unwrap().to_path_buf();
        assert_eq!((corpus.dataset.train.len(), corpus.foreign, folder.exists()), (7, true, true));
        drop(corpus);
        assert!(!folder.exists());
    }

    #[test]
    fn a_checkpoint_is_introduced_by_its_step_and_its_loss() {
        let progress = Progress { step: 20_000, tokens: 1, train_loss: None, val_loss: Some(1.25) };
        assert_eq!(standing(progress), ", step 20,000, validation loss 1.2500");
        assert!(standing(Progress { val_loss: None, ..progress }).ends_with("not recorded"));
    }
}
