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

/// A place in the run's folder for its token ids until they are known to be right: what fails before
/// [`Staged::publish`] leaves the folder as it was.
pub(super) struct Staged<'a> {
    run: &'a Path,
    is_new: bool,
    place: PathBuf,
}

impl<'a> Staged<'a> {
    pub(super) fn new(run: &'a Path) -> anyhow::Result<Self> {
        let is_new = !run.exists();
        std::fs::create_dir_all(run).with_context(|| run.display().to_string())?;
        let place = run.join(".softdict-new-data");
        // left by a run that was killed here
        let _ = std::fs::remove_dir_all(&place);
        Ok(Self { run, is_new, place })
    }

    /// The folder to write to.
    pub(super) fn data(&self) -> &Path {
        &self.place
    }

    /// Gives the ids their place, after removing the run that was there if that was asked for.
    pub(super) fn publish(mut self, overwrite: bool) -> anyhow::Result<PathBuf> {
        if overwrite {
            remove_run(self.run)?;
        }
        let data = self.run.join("data");
        std::fs::rename(&self.place, &data).with_context(|| data.display().to_string())?;
        self.is_new = false;
        Ok(data)
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // after publish there is nothing here, and a folder that holds something stays
        let _ = std::fs::remove_dir_all(&self.place);
        if self.is_new {
            let _ = std::fs::remove_dir(self.run);
        }
    }
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
