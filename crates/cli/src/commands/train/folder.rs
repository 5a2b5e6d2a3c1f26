//! The run's folder: where it is, whether it is free, and what in it is ours.

use super::lock::Lock;
use crate::args::Train;
use crate::written::{DATA_FILES, POINTERS, RUN_FILES};
use anyhow::Context;
use softdict_files::{NEW, Unfinished};
use softdict_tokenizer::DataRecord;
use std::io::Read as _;
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

/// # Errors
/// When the folder holds a run and nothing was said about it. What a run left that was cut off before its first
/// checkpoint is no run: there is nothing in it to lose.
pub(super) fn refuse_used(run: &Path, overwrite: bool) -> anyhow::Result<()> {
    refuse_foreign(run, overwrite)?;
    if overwrite || !run.exists() {
        return Ok(());
    }
    let has_checkpoints = !softdict_checkpoint::list_steps(run)?.is_empty();
    let foreign =
        RUN_FILES.iter().any(|name| run.join(name).exists()) && !run.join("data/data.json").exists();
    if has_checkpoints || foreign {
        anyhow::bail!(
            "{} holds a run already: go on with it by --resume, replace it by --overwrite, or choose another folder by --out",
            run.display()
        );
    }
    Ok(())
}

/// # Errors
/// When something that is not softdict's lies where a run would put its own, whatever may be overwritten.
fn refuse_foreign(run: &Path, overwrite: bool) -> anyhow::Result<()> {
    let foreign = |path: &Path| {
        anyhow::bail!(
            "{} is not softdict's, and a run would take its place: move it away, or choose another folder by --out",
            path.display()
        )
    };
    for pointer in POINTERS.map(|name| run.join(name)) {
        let is_folder = pointer.is_dir() && !pointer.is_symlink();
        let is_empty = || std::fs::read_dir(&pointer).is_ok_and(|mut entries| entries.next().is_none());
        if is_folder && !pointer.join("softdict.json").exists() && !is_empty() {
            return foreign(&pointer);
        }
    }
    let data = run.join("data");
    let is_run = || RUN_FILES.iter().any(|name| run.join(name).exists());
    if data.is_symlink() && !(overwrite && is_run()) {
        return foreign(&data);
    }
    if DataRecord::open(&data).is_err() {
        let ids = ["train.bin", "val.bin"].map(|name| data.join(name));
        if let Some(path) = ids.iter().find(|path| path.exists() && !begins_as_ids(path)) {
            return foreign(path);
        }
    }
    Ok(())
}

/// Whether a file is one of ids, or one that was cut off before it said so.
fn begins_as_ids(path: &Path) -> bool {
    let mark = softdict_files::open(path).and_then(|mut file| {
        let mut mark = Vec::new();
        std::io::Read::take(&mut file, 8).read_to_end(&mut mark)?;
        Ok(mark)
    });
    mark.is_ok_and(|mark| b"softdict".starts_with(&mark))
}

/// # Errors
/// When the text to train on is one of the files that the run would replace.
pub(super) fn refuse_own_text(run: &Path, text: Option<&Path>) -> anyhow::Result<()> {
    let Some(real) = text.and_then(|text| text.canonicalize().ok()) else { return Ok(()) };
    if own_files(run).any(|path| path.canonicalize().is_ok_and(|path| path == real)) {
        anyhow::bail!("{}: the run would replace it; choose another folder by --out", real.display());
    }
    Ok(())
}

/// The files of a run beside its checkpoints.
fn own_files(run: &Path) -> impl Iterator<Item = PathBuf> {
    let data = run.join("data");
    let own = RUN_FILES.map(|name| run.join(name));
    own.into_iter().chain(DATA_FILES.map(|name| data.join(name)))
}

/// A place in the run's folder for its token ids until they are known to be right: what fails before
/// [`Staged::publish`] leaves the folder as it was.
pub(super) struct Staged<'a> {
    run: &'a Path,
    /// The folder itself, where there was none: it goes again if nothing comes of it.
    new: Option<Unfinished>,
    place: Unfinished,
    lock: Option<Lock>,
}

impl<'a> Staged<'a> {
    /// Takes the folder for this training alone, unless that is done.
    ///
    /// # Errors
    /// When it cannot be made, another training holds it, or one has been here since it was found free.
    pub(super) fn new(run: &'a Path, lock: Option<Lock>, overwrite: bool) -> anyhow::Result<Self> {
        let is_new = !run.exists();
        std::fs::create_dir_all(run).with_context(|| run.display().to_string())?;
        let lock = lock.map_or_else(|| Lock::take(run), Ok)?;
        refuse_used(run, overwrite)?;
        let new = is_new.then(|| Unfinished::new(run.to_path_buf()));
        // one name, so that what a killed run left here goes; a link goes itself, not what it leads to
        let place = run.join(format!("{NEW}data"));
        let _ = std::fs::remove_dir_all(&place);
        Ok(Self { run, new, place: Unfinished::new(place), lock: Some(lock) })
    }

    /// The folder to write to.
    pub(super) fn data(&self) -> &Path {
        self.place.path()
    }

    /// Gives the ids their place, after removing the run that was there; returns it, and what holds the folder.
    pub(super) fn publish(mut self) -> anyhow::Result<(PathBuf, Option<Lock>)> {
        self.lock.as_ref().map_or(Ok(()), Lock::check)?;
        remove_run(self.run)?;
        let data = self.run.join("data");
        std::fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
        for name in DATA_FILES {
            let to = data.join(name);
            std::fs::rename(self.place.path().join(name), &to).with_context(|| to.display().to_string())?;
        }
        if let Some(new) = self.new.take() {
            new.release();
        }
        Ok((data, self.lock.take()))
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // before the run's folder, which goes only when nothing is in it
        let _ = std::fs::remove_dir_all(self.place.path());
    }
}

/// Removes what runs write, file by file by its name, and nothing else: whatever lies beside it stays.
fn remove_run(run: &Path) -> anyhow::Result<()> {
    let data = run.join("data");
    if data.is_symlink() {
        // what it leads to is not ours
        std::fs::remove_file(&data).with_context(|| format!("{}: cannot be replaced", data.display()))?;
    }
    for pointer in POINTERS.map(|name| run.join(name)) {
        if pointer.is_dir() && !pointer.is_symlink() {
            // a copy of what it led to, or what a copy left of it
            softdict_checkpoint::remove_checkpoint(&pointer)?;
        }
    }
    let pointers = POINTERS.map(|name| run.join(name)).into_iter();
    for path in own_files(run).chain(pointers.filter(|path| path.is_symlink() || path.is_file())) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{}: cannot be replaced", path.display()));
            }
            _ => {}
        }
    }
    // stays when something else is in it
    let _ = std::fs::remove_dir(&data);
    if run.exists() {
        for (_, checkpoint) in softdict_checkpoint::list_steps(run)? {
            softdict_checkpoint::remove_checkpoint(&checkpoint)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_a_run_writes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        for name in ["data/my.txt", "step-000007/thesis.txt", "last/x.txt", "notes.txt"] {
            std::fs::create_dir_all(run.join(name).parent().unwrap()).unwrap();
            std::fs::write(run.join(name), "mine").unwrap();
        }
        for name in ["data/train.bin", "settings.toml", "metrics.jsonl"] {
            std::fs::write(run.join(name), "ours").unwrap();
        }
        remove_run(run).unwrap();
        for name in ["data/my.txt", "step-000007/thesis.txt", "last/x.txt", "notes.txt"] {
            assert!(run.join(name).exists(), "{name}");
        }
        assert!(!run.join("data/train.bin").exists() && !run.join("settings.toml").exists());
    }

    #[test]
    fn ids_that_a_killed_run_was_making_go_with_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".softdict-new-data");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("train.bin"), "half of them").unwrap();
        let staged = Staged::new(folder.path(), None, false).unwrap();
        assert!(!left.exists() && staged.data() == left);
        drop(staged);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_run_without_a_checkpoint_is_no_run_and_a_strangers_settings_are_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        std::fs::write(run.join("settings.toml"), "").unwrap();
        assert!(refuse_used(run, false).is_err());
        std::fs::create_dir(run.join("data")).unwrap();
        std::fs::write(run.join("data/data.json"), "").unwrap();
        refuse_used(run, false).unwrap();
    }
}
