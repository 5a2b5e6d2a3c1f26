//! Checkpoint folders that are either wholly there or not at all.
//!
//! A folder is built under a temporary name beside its final one, every file is brought to the disk, and one rename
//! makes it visible. Whatever a killed process leaves behind begins with `.softdict-`; [`clean_up`] removes it.

use crate::error::{Error, Result};
use crate::file::{split, sync_folder};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use softdict_files::{NEW, Unfinished, temporary};

/// Every file that a checkpoint of ours can hold; all else in such a folder belongs to its user.
pub const OWN_FILES: [&str; 7] = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "trainer.safetensors",
    "softdict.json",
];

/// Put aside while its successor moves in, where the two cannot be exchanged in one step.
const OLD: &str = ".softdict-old-";

/// Whether something lies at `path`, even a link that leads nowhere.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// A folder being built beside the place that it will take; dropped without [`Staging::publish`] it is gone.
pub(crate) struct Staging {
    temporary: PathBuf,
    unfinished: Unfinished,
    target: PathBuf,
    parent: PathBuf,
}

impl Staging {
    /// Begins a folder that will be `target`.
    ///
    /// # Errors
    /// When `target` holds something that is no checkpoint of ours, or its parent cannot be made.
    pub(crate) fn new(target: &Path) -> Result<Self> {
        let target = target.to_path_buf();
        let (parent, _) = split(&target)?;
        // a link would lead the writing elsewhere
        let ours = || Ok(target.join("softdict.json").is_file() || is_empty(&target)?);
        if exists(&target) && (target.is_symlink() || !ours()?) {
            return Err(Error::Taken { path: target });
        }
        fs::create_dir_all(&parent).map_err(Error::io(&parent, "make the folder"))?;
        let temporary = temporary(&parent);
        let unfinished = Unfinished::new(temporary.clone());
        fs::create_dir(&temporary).map_err(Error::io(&target, "make the folder"))?;
        Ok(Self { temporary, unfinished, target, parent })
    }

    /// Writes one file of the folder and brings it to the disk.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        // the name that it will have is the one that means something
        softdict_files::write_new(&self.temporary.join(name), bytes)
            .map_err(Error::io(&self.target.join(name), "write the file"))
    }

    /// Gives the folder its name, in place of an older one if there is one.
    pub(crate) fn publish(self) -> Result<()> {
        let Self { temporary, unfinished, target, parent } = &self;
        sync_folder(temporary)?;
        // from here on it may hold files of the user
        unfinished.release();
        let failed = Error::io(target, "put the new checkpoint in its place");
        if !exists(target) {
            fs::rename(temporary, target).map_err(failed)?;
        } else if is_empty(target)? {
            fs::remove_dir(target).and_then(|()| fs::rename(temporary, target)).map_err(failed)?;
        } else {
            exchange(temporary, target).map_err(failed)?;
            keep_foreign(temporary, target)?;
        }
        sync_folder(parent)
        // what is left under the temporary name is the old folder, which goes now
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // after publish this is the replaced folder or nothing; an error here leaves work for clean_up, no harm
        let _ = remove_own(&self.temporary);
    }
}

fn is_empty(folder: &Path) -> Result<bool> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(Error::io(folder, "read the folder")(error)),
    }
}

/// Exchanges two folders, in one step where the system can.
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        if renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
        // some file systems cannot; a real obstacle shows again below
    }
    let (parent, name) = split(old).map_err(io::Error::other)?;
    let aside = parent.join(format!("{OLD}{name}"));
    if exists(&aside) {
        remove_own(&aside)?;
    }
    fs::rename(old, &aside)?;
    if let Err(error) = fs::rename(new, old) {
        fs::rename(&aside, old)?;
        return Err(error);
    }
    fs::rename(&aside, new)
}

/// Moves what the user had put into a replaced checkpoint over to its successor.
fn keep_foreign(old: &Path, new: &Path) -> Result<()> {
    let failed = |error| Error::io(old, "keep the other files of the folder")(error);
    for entry in fs::read_dir(old).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !OWN_FILES.iter().any(|own| name == *own) && !exists(&new.join(&name)) {
            fs::rename(old.join(&name), new.join(&name)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Removes files that a killed process was writing in `folder`.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(NEW) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Removes a checkpoint folder: our files, and the folder when nothing else is in it.
///
/// Returns whether the folder is gone.
pub(crate) fn remove_own(folder: &Path) -> io::Result<bool> {
    if folder.is_symlink() {
        // what it leads to is not ours
        return fs::remove_file(folder).map(|()| true);
    }
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match remove_unfinished(folder) {
        Err(error) if !absent(&error) => return Err(error),
        _ => {}
    }
    for name in OWN_FILES {
        let file = folder.join(name);
        // a folder of that name is not ours
        match fs::remove_file(&file) {
            Err(error) if !absent(&error) && !file.is_dir() => return Err(error),
            _ => {}
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) if !absent(&error) => Err(error),
        _ => Ok(true),
    }
}

/// Removes a checkpoint from a run: it loses its name in one step, so that no kill leaves half of it under it.
///
/// A folder that holds files of the user gets its name back, without ours.
///
/// # Errors
/// When something of ours cannot be removed.
pub fn remove_checkpoint(folder: &Path) -> Result<()> {
    let (parent, _) = split(folder)?;
    let temporary = temporary(&parent);
    let remove = || {
        fs::rename(folder, &temporary)?;
        if remove_own(&temporary)? { Ok(()) } else { fs::rename(&temporary, folder) }
    };
    remove().map_err(Error::io(folder, "remove the checkpoint"))
}

/// Removes what a killed process left in a run folder, and gives a checkpoint back its name if the kill came while
/// it was being replaced. A run folder that does not exist is clean.
///
/// To be called while nobody else writes to the run. Files that softdict does not know stay where they are.
///
/// # Errors
/// When something of ours cannot be removed.
pub fn clean_up(run: &Path) -> Result<()> {
    let entries = match fs::read_dir(run) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(run, "read the folder")(error)),
    };
    let data = run.join("data");
    if data.is_dir() && !data.is_symlink() {
        remove_unfinished(&data).map_err(Error::io(&data, "remove what was left over"))?;
    }
    for entry in entries {
        let entry = entry.map_err(Error::io(run, "read the folder"))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let done = if let Some(replaced) = name.strip_prefix(OLD) {
            let home = run.join(replaced);
            if exists(&home) { remove_own(&path).map(|_| ()) } else { fs::rename(&path, home) }
        } else if !name.starts_with(NEW) {
            // an evaluation notes its loss in a checkpoint that stands already
            let is_checkpoint = name.starts_with("step-") && path.is_dir() && !path.is_symlink();
            if is_checkpoint { remove_unfinished(&path) } else { Ok(()) }
        } else if path.is_dir() && !path.is_symlink() {
            remove_own(&path).map(|_| ())
        } else {
            fs::remove_file(&path)
        };
        done.map_err(Error::io(&path, "remove what was left over"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_folder_that_is_not_finished_leaves_nothing() {
        let run = tempfile::tempdir().unwrap();
        let staging = Staging::new(&run.path().join("step-000001")).unwrap();
        staging.write("config.json", b"{}").unwrap();
        let error = staging.write("no/such/folder", b"").unwrap_err().to_string();
        assert!(error.contains("step-000001") && error.contains("no/such/folder"), "{error}");
        assert_eq!(names(run.path()).len(), 1);
        drop(staging);
        assert!(names(run.path()).is_empty());
    }

    #[test]
    fn a_replaced_folder_keeps_what_its_user_put_there() {
        let run = tempfile::tempdir().unwrap();
        let target = run.path().join("step-000001");
        for (round, name) in [("first", "trainer.safetensors"), ("second", "config.json")] {
            let staging = Staging::new(&target).unwrap();
            staging.write("softdict.json", round.as_bytes()).unwrap();
            staging.write(name, b"").unwrap();
            staging.publish().unwrap();
            fs::write(target.join("notes.txt"), "mine").unwrap();
        }
        assert_eq!(fs::read(target.join("softdict.json")).unwrap(), b"second");
        assert_eq!(names(&target), ["config.json", "notes.txt", "softdict.json"]);
        assert_eq!(names(run.path()), ["step-000001"]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_checkpoint_being_replaced_never_loses_its_name() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let run = tempfile::tempdir().unwrap();
        let target = run.path().join("step-000001");
        let replace = || {
            let staging = Staging::new(&target).unwrap();
            staging.write("softdict.json", b"").unwrap();
            staging.publish().unwrap();
        };
        replace();
        let done = AtomicBool::new(false);
        let gaps = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut gaps = 0;
                while !done.load(Ordering::Relaxed) {
                    gaps += usize::from(!target.exists());
                }
                gaps
            });
            (0..200).for_each(|_| replace());
            done.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        assert_eq!(gaps, 0);
    }

    #[test]
    fn folders_of_others_are_not_replaced() {
        let run = tempfile::tempdir().unwrap();
        let target = run.path().join("pictures");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("cat.png"), "").unwrap();
        let error = Staging::new(&target).err().unwrap().to_string();
        assert!(error.contains("pictures") && error.contains("nothing was changed"), "{error}");
        assert!(matches!(Staging::new(&target.join("cat.png")), Err(Error::Taken { .. })));
        assert!(matches!(Staging::new(Path::new("..")), Err(Error::Unnamed { .. })));
        assert_eq!(names(&target), ["cat.png"]);
    }

    /// A stranger's run may hold links; what they lead to is read at most.
    #[test]
    #[cfg(unix)]
    fn nothing_is_removed_or_written_through_a_link() {
        use std::os::unix::fs::symlink;
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| run.path().join(name);
        for name in OWN_FILES {
            fs::write(other.path().join(name), "mine").unwrap();
        }
        for link in [".softdict-old-step-000001", ".softdict-new-1-1", "step-000002", "step-000003", "data"] {
            symlink(other.path(), at(link)).unwrap();
        }
        fs::create_dir(at("step-000001")).unwrap();
        clean_up(run.path()).unwrap();
        assert_eq!(names(run.path()), ["data", "step-000001", "step-000002", "step-000003"]);
        remove_checkpoint(&at("step-000002")).unwrap();
        assert!(matches!(Staging::new(&at("step-000003")), Err(Error::Taken { .. })));
        assert_eq!(names(run.path()), ["data", "step-000001", "step-000003"]);
        assert_eq!(names(other.path()).len(), OWN_FILES.len());
    }

    #[test]
    fn cleaning_removes_leftovers_and_restores_what_was_being_replaced() {
        let run = tempfile::tempdir().unwrap();
        let at = |name: &str| run.path().join(name);
        for folder in [".softdict-new-1-0-step-000002", ".softdict-old-step-000001", "step-000003"] {
            fs::create_dir(at(folder)).unwrap();
            fs::write(at(folder).join("config.json"), "").unwrap();
        }
        fs::write(at(".softdict-new-1-1-settings.toml"), "").unwrap();
        for folder in ["step-000003", ".softdict-new-1-0-step-000002"] {
            fs::write(at(folder).join(".softdict-new-1-2-softdict.json"), "").unwrap();
        }
        fs::write(at("notes.txt"), "").unwrap();
        fs::create_dir(at("data")).unwrap();
        fs::write(at("data/.softdict-new-1-3"), "").unwrap();
        clean_up(run.path()).unwrap();
        assert_eq!(names(run.path()), ["data", "notes.txt", "step-000001", "step-000003"]);
        assert!(names(&at("data")).is_empty());
        assert_eq!(names(&at("step-000003")), ["config.json"]);
        clean_up(&at("never made")).unwrap();
    }
}
