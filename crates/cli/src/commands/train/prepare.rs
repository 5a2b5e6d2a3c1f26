//! Everything that a run needs, checked before its folder is touched.

use super::folder::{Staged, refuse_own_text, refuse_used};
use super::lock::Lock;
use crate::args::Train;
use crate::checkpoint::{self, Loaded};
use crate::output::quoted;
use crate::progress::Bytes;
use crate::settings::{Settings, TokenizerSettings, mentions, of_file, of_named};
use crate::summary::check_memory;
use crate::{defaults, output, usage};
use anyhow::Context;
use candle_core::Device;
use softdict_checkpoint::Which;
use softdict_corpus::Tale;
use softdict_model::{ModelConfig, Parameters};
use softdict_tokenizer::{Dataset, Kind, TextFile, Tokenizer, encode_to_file};
use softdict_trainer::{Objective, Schedule, State, TrainError};
use std::path::{Path, PathBuf};

/// Lines of the embedded tales that a run without a text is trained on, and their seed.
const TALE_LINES: usize = 20_000;
const TALE_SEED: u64 = 0;
const TALES: &str = "the tales";

/// What is trained, from which weights, on which ids.
pub(super) struct Prepared {
    pub(super) settings: Settings,
    pub(super) config: ModelConfig,
    pub(super) tokenizer: Tokenizer,
    pub(super) dataset: Dataset,
    pub(super) text_name: String,
    pub(super) start: Start,
    /// None where there was nothing to lock.
    pub(super) _lock: Option<Lock>,
}

pub(super) enum Start {
    Fresh,
    From(Parameters),
    Resume(Parameters, PathBuf),
}

/// The tales that suit an objective.
fn tales(objective: Objective) -> anyhow::Result<TextFile> {
    let tale = match objective {
        Objective::Next => Tale::Tales,
        Objective::Masked => Tale::Referents,
    };
    Ok(TextFile::from_bytes(TALES, softdict_corpus::generate(tale, TALE_LINES, TALE_SEED))?)
}

/// Whether a run is trained on the tales.
///
/// # Errors
/// When they cannot be told.
pub(super) fn is_of_tales(prepared: &Prepared) -> anyhow::Result<bool> {
    let tales = tales(prepared.settings.train.objective)?;
    Ok(prepared.dataset.record.text_sha256 == tales.sha256())
}

/// The text to train on, opened and checked.
fn text(args: &Train, objective: Objective) -> anyhow::Result<TextFile> {
    let text = match &args.text {
        Some(path) => TextFile::open(path)?,
        None => tales(objective)?,
    };
    for note in text.notes() {
        output::notice(note);
    }
    Ok(text)
}

/// The settings file of the command line, as (name, content).
fn settings_file(path: &Path) -> anyhow::Result<(String, String)> {
    of_named(path).map_err(|error| usage(format!("{error:#}")))
}

/// Everything of a new run; the folder is touched only once all of it is known to be right.
pub(super) fn started(
    args: &Train,
    run: &Path,
    device: &Device,
    lock: Option<Lock>,
) -> anyhow::Result<Prepared> {
    let from = args.from.as_deref().map(|path| checkpoint::open(path, Which::Best, device)).transpose()?;
    let bytes = args.text.as_deref().and_then(|path| std::fs::metadata(path).ok()).map(|data| data.len());
    let file = args.config.as_deref().map(settings_file).transpose()?;
    let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let (base, reason) = match (&args.text, bytes) {
        (None, _) => {
            let asked = Settings::default().with(file, &args.set)?;
            (defaults::for_tales(asked.train.objective)?, None)
        }
        (Some(_), bytes) => {
            let bytes = bytes.unwrap_or(0);
            let (settings, reason) = defaults::for_text(bytes)?;
            (settings, Some(format!("defaults for {} of text: {reason}", output::bytes(bytes))))
        }
    };
    let mut settings = base.with(file, &args.set)?;
    if let Some(from) = &from {
        refuse_own_tokenizer(args, &settings, &from.tokenizer)?;
        let inside = from.folder.canonicalize().ok().zip(run.canonicalize().ok());
        if inside.is_some_and(|(from, run)| from.starts_with(run)) {
            return Err(usage(format!(
                "--from {}: it is in the run that is to be replaced; choose another --out",
                from.folder.display()
            )));
        }
    }
    if !mentions(file.map(|(_, text)| text), &args.set, "train", "warmup_steps") {
        // a short run by the defaults still reaches its learning rate
        settings.train.warmup_steps = settings.train.warmup_steps.min(settings.train.steps / 10);
    }
    if let Some(seed) = args.seed {
        settings.train.seed = seed;
    }
    if let Some(from) = &from {
        adopt(from, &mut settings, args)?;
    }
    settings.check()?;
    let text = text(args, settings.train.objective)?;
    refuse_used(run, args.overwrite)?;
    refuse_own_text(run, args.text.as_deref())?;
    if let (Some(reason), None, None) = (reason, &args.config, &from) {
        output::notice(reason);
    }
    let (tokenizer, vocab_size, start) = if let Some(from) = from {
        (from.tokenizer, from.config.vocab_size, Start::From(from.parameters))
    } else {
        let tokenizer = learn_tokenizer(&settings, &text)?;
        // one row more stands for what is hidden
        let masks = settings.train.objective == Objective::Masked;
        let vocab_size = tokenizer.vocab_size() + usize::from(masks);
        (tokenizer, vocab_size, Start::Fresh)
    };
    let config = ModelConfig::new(&settings.model, vocab_size)?;
    check_length(&settings, &config, &text)?;
    check_memory(&settings, &config, device, args.force)?;
    let staged = Staged::new(run, lock, args.overwrite)?;
    encode(&tokenizer, &text, &settings, &config, &staged)?;
    let (data, lock) = staged.publish()?;
    let (dataset, text_name) = (Dataset::open(data)?, text.name().to_owned());
    Ok(Prepared { settings, config, tokenizer, dataset, text_name, start, _lock: lock })
}

/// The ids of the text, which must fill a window.
fn encode(
    tokenizer: &Tokenizer,
    text: &TextFile,
    settings: &Settings,
    config: &ModelConfig,
    staged: &Staged<'_>,
) -> anyhow::Result<()> {
    let mut bytes = Bytes::new("tokenizing");
    let mut progress = |done, total| bytes.set(done, total);
    let fraction = settings.data.val_fraction;
    let dataset = encode_to_file(tokenizer, text, staged.data(), fraction, &mut progress)
        .with_context(|| text.name().to_owned())?;
    let (found, context) = (dataset.train.len(), config.context());
    if found <= context {
        let text = text.name().to_owned();
        return Err(TrainError::TooShort { text, found, needed: context + 1, context }.into());
    }
    Ok(())
}

/// # Errors
/// When the command line asks for a vocabulary that a checkpoint cannot have.
fn refuse_own_tokenizer(args: &Train, asked: &Settings, own: &Tokenizer) -> anyhow::Result<()> {
    let TokenizerSettings { kind, vocab_size } = &asked.tokenizer;
    let other_kind = *kind != Kind::Auto && kind.to_string() != own.kind().to_string();
    let other_size = vocab_size.is_some_and(|size| size != own.vocab_size());
    for (key, other) in [("kind", other_kind), ("vocab_size", other_size)] {
        if other && mentions(None, &args.set, "tokenizer", key) {
            let (kind, size) = (own.kind(), own.vocab_size());
            return Err(usage(format!(
                "--set tokenizer.{key}: with --from the vocabulary is the checkpoint's, {kind} with {size} entries"
            )));
        }
    }
    Ok(())
}

/// Takes a checkpoint's shape over; settings of the command line that contradict it are errors.
fn adopt(from: &Loaded, settings: &mut Settings, args: &Train) -> anyhow::Result<()> {
    let wanted = Settings { model: from.config.settings.clone(), ..settings.clone() };
    let asked = wanted.clone().with(None, &args.set)?;
    let dropout = asked.model.dropout;
    let same = Settings {
        model: softdict_model::ModelSettings { dropout, ..wanted.model.clone() },
        ..asked.clone()
    };
    if let Some([key, now, then]) = asked.first_change(&same)?.filter(|[key, ..]| key.starts_with("model.")) {
        return Err(usage(format!(
            "{key} = {now}, but the checkpoint {} has {then}: with --from only model.dropout can change",
            from.folder.display()
        )));
    }
    settings.model = asked.model;
    Ok(())
}

fn learn_tokenizer(settings: &Settings, text: &TextFile) -> anyhow::Result<Tokenizer> {
    let kind: &Kind = &settings.tokenizer.kind;
    let mut bytes = Bytes::new("learning vocabulary");
    let tokenizer = Tokenizer::train(kind, text, settings.tokenizer.vocab_size, &mut |_, done, total| {
        bytes.set(done, total);
    })?;
    drop(bytes);
    for note in tokenizer.notes() {
        output::notice(note);
    }
    Ok(tokenizer)
}

/// A text that cannot hold one window is refused before anything is written.
fn check_length(settings: &Settings, config: &ModelConfig, text: &TextFile) -> anyhow::Result<()> {
    // at least one byte stands behind every token
    let (all, kept) = (text.byte_len(), settings.data.val_fraction);
    let most = (all as f64 * (1.0 - kept)).ceil() as usize;
    let needed = config.context() + 1;
    if most < needed {
        let split = if kept > 0.0 {
            format!(", of which data.val_fraction = {kept} leaves {most} to train on")
        } else {
            String::new()
        };
        anyhow::bail!(
            "{}: at most {all} tokens{split}; {needed} are needed (model.context = {}, plus one to predict); give a longer text or a smaller --set model.context",
            text.name(),
            config.context()
        );
    }
    Ok(())
}

/// Everything of a run that goes on.
pub(super) fn resumed(
    args: &Train,
    run: &Path,
    device: &Device,
    lock: Option<Lock>,
) -> anyhow::Result<Prepared> {
    let path = run.join("settings.toml");
    if !path.exists() {
        let has_steps = run.is_dir() && !softdict_checkpoint::list_steps(run)?.is_empty();
        let way_out = if has_steps {
            format!("begin a new run with its weights: --from {} --out NEW", quoted(run))
        } else {
            "a run that was cut off before its first step is begun again without --resume; --out names another folder".into()
        };
        anyhow::bail!("{}: no run to resume here (settings.toml is missing); {way_out}", run.display());
    }
    let (name, content) = of_file(&path)?;
    let then = Settings::default().with(Some((&name, &content)), &[])?;
    let file = args.config.as_deref().map(settings_file).transpose()?;
    let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut settings = then.clone().with(file, &args.set)?;
    if let Some(seed) = args.seed {
        settings.train.seed = seed;
    }
    if let Some([key, now, then]) = settings.first_change(&then)? {
        return Err(TrainError::Changed { key, now, then }.into());
    }
    let (now, before) = (&settings.train, &then.train);
    let follows_steps = now.schedule == Schedule::Wsd || now.decay_steps.is_none();
    if now.steps > before.steps && now.schedule != Schedule::Constant && follows_steps {
        output::notice(format!(
            "train.steps = {} instead of {}: the learning rate falls until there, so what follows is another course than the one \
             begun",
            now.steps, before.steps
        ));
    }
    // the run has its tokenizer: the file that it came from may be gone
    Settings { tokenizer: TokenizerSettings::default(), ..settings.clone() }.check()?;
    let folder = softdict_checkpoint::resolve(run, Which::Last)?;
    let (_, _, checkpoint) = checkpoint::load(&folder, Which::Last)?;
    check_memory(&settings, &checkpoint.config, device, args.force)?;
    let json =
        checkpoint.tokenizer.with_context(|| format!("{}: tokenizer.json is missing", folder.display()))?;
    let tokenizer = Tokenizer::from_bytes(json, &folder.join("tokenizer.json").display().to_string())?;
    let (dataset, text_name) = if args.text.is_some() {
        let text = text(args, settings.train.objective)
            .context("a run that goes on has the ids of its text, which can be left out")?;
        check_same_text(&folder, &text)?;
        let (data, fraction) = (run.join("data"), settings.data.val_fraction);
        // nothing is written through a link
        let dataset = if data.is_symlink() {
            Dataset::open(&data)?
        } else {
            Dataset::open_or_encode(&tokenizer, &text, &data, fraction, &mut |_, _| ())?.0
        };
        (dataset, text.name().to_owned())
    } else {
        let data = Dataset::open(run.join("data"))
            .context("the run lacks its ids; give it its text again, as in train TEXT --resume")?;
        (data, "the run's text".to_owned())
    };
    if dataset.record.tokenizer_sha256 != tokenizer.sha256() {
        anyhow::bail!(
            "{}: the ids were made with another tokenizer than the checkpoint's; give the run its text again, as in train TEXT --resume",
            run.join("data").display()
        );
    }
    let start = Start::Resume(checkpoint.parameters, folder);
    Ok(Prepared { settings, config: checkpoint.config, tokenizer, dataset, text_name, start, _lock: lock })
}

/// # Errors
/// When the text's content is not what the checkpoint was trained on.
fn check_same_text(folder: &Path, text: &TextFile) -> anyhow::Result<()> {
    let (_, state) = softdict_checkpoint::load_trainer(folder)?;
    let then = State::from_json(folder, state)?.text_sha256;
    let now = text.sha256().to_owned();
    if now != then {
        let key = format!("the content of {} (SHA-256)", text.name());
        return Err(TrainError::Changed { key, now, then }.into());
    }
    Ok(())
}
