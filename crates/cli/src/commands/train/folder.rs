//! The run's folder: where it is, whether it is free, and what in it is ours.

use crate::args::Train;
use anyhow::Context;
use std::path::{Path, PathBuf};

/// The run's folder: `--out`, else `checkpoints/` and the name of the text.
pub(super) fn folder(args: &Train) -> anyhow::Result<PathBuf> {
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

/// Names in a run's folder that are ours, besides `step-NNNNNN`.
const OURS: [&str; 5] = ["settings.toml", "metrics.jsonl", "data", "last", "best"];

fn is_ours(name: &str) -> bool {
    OURS.contains(&name) || name.strip_prefix("step-").is_some_and(|step| step.parse::<u64>().is_ok())
}

/// # Errors
/// When the folder holds a run and nothing was said about it.
pub(super) fn refuse_used(run: &Path, overwrite: bool) -> anyhow::Result<()> {
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
pub(super) fn remove_run(run: &Path) -> anyhow::Result<()> {
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
