//! One training to a run's folder: a second one is refused as long as the first lives.

use crate::output::notice;
use anyhow::{Context, bail};
use softdict_files::Place;
use std::fs::{File, TryLockError};
use std::path::Path;

/// Holds a run's folder; the operating system lets go of it when the program ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock {
    _held: File,
    place: Place,
}

impl Lock {
    /// # Errors
    /// When another training holds the folder, or it cannot be opened.
    pub(super) fn take(run: &Path) -> anyhow::Result<Self> {
        let held = open(run).with_context(|| run.display().to_string())?;
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "{}: another softdict is training here; wait for its end, or choose another folder by --out",
                run.display()
            ),
            // some network file systems have no locks
            Err(TryLockError::Error(error)) => {
                notice(format!("{}: not protected from a second training ({error})", run.display()));
            }
        }
        let place = Place::of(run).with_context(|| run.display().to_string())?;
        Ok(Self { _held: held, place })
    }

    /// Fails unless the folder that is held is still the one under its name.
    ///
    /// # Errors
    /// When it was moved or removed.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        Ok(self.place.check()?)
    }
}

/// The folder itself is locked, so that no file is left behind.
#[cfg(unix)]
fn open(run: &Path) -> std::io::Result<File> {
    File::open(run)
}

/// Where a folder cannot be opened, an empty file in it.
#[cfg(not(unix))]
fn open(run: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(run.join(".softdict-lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_once_and_free_again_afterwards() {
        let run = tempfile::tempdir().unwrap();
        let lock = Lock::take(run.path()).unwrap();
        let message = Lock::take(run.path()).unwrap_err().to_string();
        assert!(message.contains("another softdict is training here"), "{message}");
        drop(lock);
        Lock::take(run.path()).unwrap();
        assert!(!cfg!(unix) || std::fs::read_dir(run.path()).unwrap().next().is_none());
    }
}
