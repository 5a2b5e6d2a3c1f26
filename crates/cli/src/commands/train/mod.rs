//! `softdict train`: from a text to a checkpoint.

mod folder;
mod lock;
mod prepare;

use crate::args::Train;
use crate::progress::Watch;
use crate::prompt::{MASK, whole_prompt};
use crate::summary::Plan;
use crate::{checkpoint, machine, output, signals};
use anyhow::Context;
use candle_core::Device;
use lock::Lock;
use prepare::{Prepared, Start};
use softdict_checkpoint::Which;
use softdict_model::Parameters;
use softdict_sampler::SampleOptions;
use softdict_tokenizer::{Dataset, Tokenizer};
use softdict_trainer::{EndReason, Job, Outcome, Trainer};
use std::path::Path;
use std::process::ExitCode;

/// Tokens of the closing sample at most.
const PREVIEW: usize = 200;
/// Lines of each kind of tale that a run on the tales ends with: a second's work.
const TALES: u64 = 50;

pub(crate) fn run(args: &Train) -> anyhow::Result<ExitCode> {
    let device = machine::prepare(&args.machine)?;
    let run = folder::folder(args)?;
    let lock = run.exists().then(|| Lock::take(&run)).transpose()?;
    if lock.is_some() {
        // what a killed run left behind; in a folder that nobody holds it may be another one's work
        softdict_checkpoint::clean_up(&run)?;
        if args.resume {
            softdict_checkpoint::mend_pointers(&run)?;
        }
    }
    let prepared = if args.resume {
        prepare::resumed(args, &run, &device, lock)?
    } else {
        prepare::started(args, &run, &device, lock)?
    };
    let Prepared { settings, config, tokenizer, dataset, text_name, start, .. } = &prepared;
    let probe = |parameters: &Parameters| {
        super::heads::probe(config, dataset, &device, parameters).map_err(anyhow::Error::into_boxed_dyn_error)
    };
    let job = Job {
        run: &run,
        config,
        settings: &settings.train,
        record: serde_json::to_value(settings)?,
        fixed: settings.fixed()?,
        dataset,
        text_name,
        tokenizer: tokenizer.to_json(),
        mask: checkpoint::mask(config, tokenizer.vocab_size()),
        device: &device,
        probe: &probe,
    };
    let mut plan = Plan { settings, config, dataset, device: &device, done: 0 };
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
    if let Some(step) = trainer.restore_best()? {
        output::notice(format!(
            "the best checkpoint, of step {step}, is gone: the best from here on takes its place"
        ));
    }
    let path = run.join("settings.toml");
    softdict_files::write(&path, settings.to_toml()?.as_bytes())
        .with_context(|| path.display().to_string())?;
    output::notice(plan.text(trainer.seconds_per_step()?));
    let mut watch = Watch::new(settings.train.steps);
    // until here there is nothing to save, and a signal ends the program as it ends any other
    signals::training();
    let outcome = trainer.run(&mut watch, &signals::asked)?;
    signals::trained();
    drop(watch);
    finish(&run, &outcome, &prepared, &device)?;
    Ok(signals::exit_code())
}

/// Says where everything is, shows a sample, and what to try next.
fn finish(run: &Path, outcome: &Outcome, prepared: &Prepared, device: &Device) -> anyhow::Result<()> {
    let Prepared { settings, tokenizer, dataset, .. } = prepared;
    let (shown, named) = (run.display(), output::quoted(run));
    let why = match outcome.reason {
        EndReason::Finished => "finished",
        EndReason::Patience => "stopped: the validation loss no longer falls",
        EndReason::Stopped => "stopped by a signal",
    };
    let best = outcome.best.map_or(String::new(), |best| {
        format!("; best validation loss {:.4} at step {}", best.val_loss, best.step)
    });
    let spikes = match outcome.spikes {
        0 => String::new(),
        1 => "; 1 loss spike".to_owned(),
        many => format!("; {many} loss spikes"),
    };
    output::notice(format!("{why} after step {}{best}{spikes}", outcome.step));
    if outcome.reason == EndReason::Stopped {
        output::notice(format!("checkpoint: {shown}\nto go on: softdict train --resume --out {named}"));
        return Ok(());
    }
    let loaded = checkpoint::open(run, Which::Best, device)?;
    let prompt = suggested_prompt(dataset, tokenizer)?;
    let next = if loaded.mask().is_some() {
        let asked = format!("{prompt} {MASK}");
        let asked = whole_prompt("--prompt", &asked, &loaded).map_or_else(|_| MASK.to_owned(), |_| asked);
        format!("softdict lens {named} --prompt \"{asked}\"")
    } else {
        let options =
            SampleOptions { tokens: settings.sample.tokens.min(PREVIEW), ..settings.sample.clone() };
        let sample = super::sample::preview(&loaded, &options, settings.train.seed)?;
        output::notice("a sample:");
        output::text(&sample)?;
        output::data(b"\n")?;
        format!("softdict sample {named} --tokens 300")
    };
    if prepare::is_of_tales(prepared)? {
        match super::tales::report(&loaded, TALES) {
            Ok(report) => {
                output::notice("what it learned of the tales:");
                output::text(&report.lines())?;
            }
            // settings that were changed can make their words unreadable, which ends no run
            Err(error) => output::notice(format!("what it learned of the tales cannot be told: {error:#}")),
        }
    }
    output::notice(format!(
        "next:\n  {next}\n  softdict attention {named} --prompt \"{prompt}\" --out attention.html\n  softdict heads {named}"
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
    Ok(words
        .max_by_key(String::len)
        .filter(|words| !words.is_empty())
        .unwrap_or_else(|| text.chars().take(1).collect()))
}
