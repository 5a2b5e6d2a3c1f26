//! `softdict train`: from a text to a checkpoint.

use crate::args::Train;
use crate::checkpoint::{self, Loaded};
use crate::progress::{Bytes, Watch};
use crate::settings::Settings;
use crate::summary::Plan;
use crate::{defaults, machine, output, usage};
use anyhow::Context;
use candle_core::Device;
use softdict_checkpoint::Which;
use softdict_corpus::Tale;
use softdict_model::{ModelConfig, Parameters};
use softdict_tokenizer::{Dataset, Kind, TextFile, Tokenizer};
use softdict_trainer::{EndReason, Job, Outcome, Trainer};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Lines of the embedded tales that a run without a text is trained on, and their seed.
const TALE_LINES: usize = 20_000;
const TALE_SEED: u64 = 0;
const TALES: &str = "the tales";

/// What is trained, from which weights, on which ids.
struct Prepared {
    settings: Settings,
    config: ModelConfig,
    tokenizer: Tokenizer,
    dataset: Dataset,
    text_name: String,
    start: Start,
}

enum Start {
    Fresh,
    From(Parameters),
    Resume(Parameters, PathBuf),
}

pub(crate) fn run(args: &Train) -> anyhow::Result<ExitCode> {
    let stop = Signals::listen()?;
    let device = machine::prepare(&args.machine)?;
    let run = folder(args)?;
    let prepared = if args.resume { resumed(args, &run)? } else { started(args, &run, &device)? };
    let Prepared { settings, config, tokenizer, dataset, text_name, start } = &prepared;
    let job = Job {
        run: &run,
        config,
        settings: &settings.train,
        record: serde_json::to_value(settings)?,
        dataset,
        text_name,
        tokenizer: tokenizer.to_json(),
        device: &device,
    };
    let mut plan = Plan { settings, config, dataset, device: &device, done: 0 };
    plan.check_memory()?;
    let mut trainer = match start {
        Start::Fresh => Trainer::start(job, None)?,
        Start::From(parameters) => Trainer::start(job, Some(parameters.clone()))?,
        Start::Resume(parameters, folder) => Trainer::resume(job, parameters.clone(), folder)?,
    };
    plan.done = trainer.step();
    if plan.done >= settings.train.steps {
        output::notice(format!(
            "{} is already at step {} of {}: nothing to do. Go on with --resume --set train.steps=N",
            run.display(),
            plan.done,
            settings.train.steps
        ));
        return Ok(ExitCode::SUCCESS);
    }
    softdict_checkpoint::write_atomic(&run.join("settings.toml"), settings.to_toml()?.as_bytes())?;
    output::notice(plan.text(trainer.seconds_per_step()?));
    let mut watch = Watch::new(settings.train.steps);
    let outcome = trainer.run(&mut watch, &|| stop.asked())?;
    drop(watch);
    finish(&run, &outcome, &prepared, &device)?;
    Ok(stop.exit_code())
}

/// The run's folder: `--out`, else `checkpoints/` and the name of the text.
fn folder(args: &Train) -> anyhow::Result<PathBuf> {
    if let Some(out) = &args.out {
        return Ok(out.clone());
    }
    let name = match &args.text {
        Some(text) => {
            text.file_stem().with_context(|| format!("{}: a text must be a file", text.display()))?.to_owned()
        }
        None => "tales".into(),
    };
    Ok(Path::new("checkpoints").join(name))
}

/// The text to train on, opened and checked.
fn text(args: &Train) -> anyhow::Result<TextFile> {
    let text = match &args.text {
        Some(path) => TextFile::open(path)?,
        None => TextFile::from_bytes(TALES, softdict_corpus::generate(Tale::Tales, TALE_LINES, TALE_SEED))?,
    };
    for note in text.notes() {
        output::notice(note);
    }
    Ok(text)
}

/// The settings file, as (name, content).
fn settings_file(path: &Path) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| usage(format!("{name}: {error}")))?;
    Ok((name, text))
}

/// Everything of a new run; the folder is touched only once all of it is known to be right.
fn started(args: &Train, run: &Path, device: &Device) -> anyhow::Result<Prepared> {
    let from = args.from.as_deref().map(|path| checkpoint::open(path, Which::Best, device)).transpose()?;
    let bytes = args.text.as_deref().and_then(|path| std::fs::metadata(path).ok()).map(|data| data.len());
    let (base, reason) = match (&args.text, bytes) {
        (None, _) => (defaults::for_tales()?, None),
        (Some(_), bytes) => {
            let bytes = bytes.unwrap_or(0);
            let (settings, reason) = defaults::for_text(bytes)?;
            (settings, Some(format!("defaults for {} of text: {reason}", output::bytes(bytes))))
        }
    };
    let file = args.config.as_deref().map(settings_file).transpose()?;
    let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut settings = base.with(file, &args.set)?;
    if let Some(seed) = args.seed {
        settings.train.seed = seed;
    }
    if let Some(from) = &from {
        adopt(from, &mut settings, args)?;
    }
    settings.check()?;
    let text = text(args)?;
    refuse_used(run, args.overwrite)?;
    if let (Some(reason), None, None) = (reason, &args.config, &from) {
        output::notice(reason);
    }
    let (tokenizer, vocab_size, start) = match from {
        Some(from) => (from.tokenizer, from.model.config().vocab_size, Start::From(from.parameters)),
        None => {
            let tokenizer = learn_tokenizer(&settings, &text)?;
            let vocab_size = tokenizer.vocab_size();
            (tokenizer, vocab_size, Start::Fresh)
        }
    };
    let config = ModelConfig::new(&settings.model, vocab_size)?;
    check_length(&settings, &config, &text)?;
    if args.overwrite {
        remove_run(run)?;
    }
    std::fs::create_dir_all(run).with_context(|| run.display().to_string())?;
    let mut bytes = Bytes::new("tokenizing");
    let (dataset, _) = Dataset::open_or_encode(
        &tokenizer,
        &text,
        run.join("data"),
        settings.data.val_fraction,
        &mut |done, total| bytes.set(done, total),
    )?;
    Ok(Prepared { settings, config, tokenizer, dataset, text_name: text.name().to_owned(), start })
}

/// Takes a checkpoint's shape over; settings of the command line that contradict it are errors.
fn adopt(from: &Loaded, settings: &mut Settings, args: &Train) -> anyhow::Result<()> {
    let wanted = Settings { model: from.model.config().settings.clone(), ..settings.clone() };
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
    let most = (text.byte_len() as f64 * (1.0 - settings.data.val_fraction)).ceil() as usize;
    let needed = config.context() + 1;
    if most < needed {
        anyhow::bail!(
            "{}: at most {most} tokens to train on, {needed} are needed (model.context = {}, plus one to predict); give a longer text or a smaller --set model.context",
            text.name(),
            config.context()
        );
    }
    Ok(())
}

/// Everything of a run that goes on.
fn resumed(args: &Train, run: &Path) -> anyhow::Result<Prepared> {
    let path = run.join("settings.toml");
    if !path.exists() {
        anyhow::bail!("{}: no run to resume here (settings.toml is missing)", run.display());
    }
    let (name, content) = settings_file(&path)?;
    let then = Settings::default().with(Some((&name, &content)), &[])?;
    let file = args.config.as_deref().map(settings_file).transpose()?;
    let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut settings = then.clone().with(file, &args.set)?;
    if let Some(seed) = args.seed {
        settings.train.seed = seed;
    }
    if let Some([key, now, then]) = settings.first_change(&then)? {
        return Err(softdict_trainer::TrainError::Changed { key, now, then }.into());
    }
    settings.check()?;
    let folder = softdict_checkpoint::resolve(run, Which::Last)?;
    let checkpoint = softdict_checkpoint::load(&folder)?;
    let json =
        checkpoint.tokenizer.with_context(|| format!("{}: tokenizer.json is missing", folder.display()))?;
    let tokenizer = Tokenizer::from_bytes(json, &folder.join("tokenizer.json").display().to_string())?;
    let (dataset, text_name) = match &args.text {
        Some(_) => {
            let text = text(args)?;
            check_same_text(run, &text)?;
            let fraction = settings.data.val_fraction;
            let (dataset, _) =
                Dataset::open_or_encode(&tokenizer, &text, run.join("data"), fraction, &mut |_, _| ())?;
            (dataset, text.name().to_owned())
        }
        None => (Dataset::open(run.join("data"))?, "the run's text".to_owned()),
    };
    let start = Start::Resume(checkpoint.parameters, folder);
    Ok(Prepared { settings, config: checkpoint.config, tokenizer, dataset, text_name, start })
}

/// # Errors
/// When the text's content is not that of the run's ids.
fn check_same_text(run: &Path, text: &TextFile) -> anyhow::Result<()> {
    let dataset = Dataset::open(run.join("data"))?;
    let (now, then) = (text.sha256().to_owned(), dataset.record.text_sha256);
    if now != then {
        let key = format!("the content of {} (SHA-256)", text.name());
        return Err(softdict_trainer::TrainError::Changed { key, now, then }.into());
    }
    Ok(())
}

/// Names in a run's folder that are ours, besides `step-NNNNNN`.
const OURS: [&str; 5] = ["settings.toml", "metrics.jsonl", "data", "last", "best"];

fn is_ours(name: &str) -> bool {
    OURS.contains(&name) || name.strip_prefix("step-").is_some_and(|step| step.parse::<u64>().is_ok())
}

/// # Errors
/// When the folder holds a run and nothing was said about it.
fn refuse_used(run: &Path, overwrite: bool) -> anyhow::Result<()> {
    if overwrite || !run.exists() {
        return Ok(());
    }
    let entries = std::fs::read_dir(run).with_context(|| run.display().to_string())?;
    let used = entries.filter_map(Result::ok).any(|entry| entry.file_name().to_str().is_some_and(is_ours));
    if used {
        anyhow::bail!(
            "{} holds a run already: go on with it by --resume, replace it by --overwrite, or choose another folder by --out",
            run.display()
        );
    }
    Ok(())
}

/// Removes what runs write, and nothing else.
fn remove_run(run: &Path) -> anyhow::Result<()> {
    let Ok(entries) = std::fs::read_dir(run) else { return Ok(()) };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        if !entry.file_name().to_str().is_some_and(is_ours) {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.with_context(|| format!("{}: cannot be replaced", path.display()))?;
    }
    Ok(())
}

/// Says where everything is, shows a sample, and what to try next.
fn finish(run: &Path, outcome: &Outcome, prepared: &Prepared, device: &Device) -> anyhow::Result<()> {
    let Prepared { settings, tokenizer, dataset, .. } = prepared;
    let shown = run.display();
    let why = match outcome.reason {
        EndReason::Finished => "finished",
        EndReason::Patience => "stopped: the validation loss no longer falls",
        EndReason::Stopped => "stopped by a signal; go on with --resume",
    };
    let best = outcome.best.map_or(String::new(), |best| {
        format!("; best validation loss {:.4} at step {}", best.val_loss, best.step)
    });
    output::notice(format!("{why} after step {}{best}", outcome.step));
    output::notice(format!("checkpoint: {shown}"));
    if outcome.reason == EndReason::Stopped {
        return Ok(());
    }
    let loaded = checkpoint::open(run, Which::Best, device)?;
    let sample = super::sample::preview(&loaded, &settings.sample, settings.train.seed)?;
    output::notice("a sample:");
    output::text(&sample)?;
    output::data(b"\n")?;
    let prompt = suggested_prompt(dataset, tokenizer)?;
    output::notice(format!(
        "next:\n  softdict sample {shown} --tokens 300\n  softdict attention {shown} --prompt \"{prompt}\" --out attention.html\n  softdict heads {shown}"
    ));
    Ok(())
}

/// Some words of the text that fit between double quotes in a shell.
fn suggested_prompt(dataset: &Dataset, tokenizer: &Tokenizer) -> anyhow::Result<String> {
    const LONGEST: usize = 40;
    let tokens = if dataset.val.len() > 1 { &dataset.val } else { &dataset.train };
    let mut ids = vec![0; tokens.len().min(200)];
    tokens.copy_to(0..ids.len(), &mut ids)?;
    let text = tokenizer.decode(&ids)?;
    let plain = |c: char| !c.is_control() && !matches!(c, '"' | '\\' | '$' | '`' | '!' | '\u{fffd}');
    // the first line may begin in the middle of a sentence
    let lines = text.lines().skip(1).chain(text.lines().take(1));
    let words = lines.map(|line| {
        let short: String = line.chars().take_while(|&c| plain(c)).take(LONGEST).collect();
        let cut =
            if line.len() > short.len() { short.rfind(' ').unwrap_or(short.len()) } else { short.len() };
        short[..cut].trim().to_owned()
    });
    Ok(words.max_by_key(String::len).filter(|words| !words.is_empty()).unwrap_or_else(|| text.chars().take(1).collect()))
}

/// SIGINT and SIGTERM: the first asks the run to save and end, a second one ends it at once.
struct Signals {
    asked: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let number = Arc::new(AtomicUsize::new(0));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // the order matters: at the first signal the flag is still down when this one looks at it
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&number), signal as usize)?;
        }
        Ok(Self { asked, number })
    }

    fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// 128 and the signal's number, or success.
    fn exit_code(&self) -> ExitCode {
        match self.number.load(Ordering::Relaxed) {
            0 => ExitCode::SUCCESS,
            number => ExitCode::from(128 + number as u8),
        }
    }
}
