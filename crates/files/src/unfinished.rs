//! What is not finished: it goes when it is given up, and when a signal ends the program.

use crate::write::NEW;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

static ALL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn all<T>(act: impl FnOnce(&mut BTreeSet<PathBuf>) -> T) -> T {
    // the set is whole after every change of it
    act(&mut ALL.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A file or folder of ours under a temporary name; removed when this is dropped, unless it is finished.
#[derive(Debug)]
pub struct Unfinished(PathBuf);

impl Unfinished {
    /// Takes charge of what is, or will be, at `path`.
    pub fn new(path: PathBuf) -> Self {
        all(|paths| paths.insert(path.clone()));
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves what is there to itself: it is finished, or somebody else's from now on.
    pub fn release(&self) {
        all(|paths| paths.remove(&self.0));
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if all(|paths| paths.remove(&self.0)) {
            remove(&self.0);
        }
    }
}

/// Removes everything that is not finished: for a program that is about to end.
pub fn discard_unfinished() {
    // what is in a folder before the folder
    for path in all(std::mem::take).into_iter().rev() {
        remove(&path);
    }
}

/// What cannot be removed stays: the error that matters is another one. A folder goes with what is in it only where its
/// name says that all of it is ours.
fn remove(path: &Path) {
    let ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NEW));
    let _ = if path.is_dir() && !path.is_symlink() {
        if ours { std::fs::remove_dir_all(path) } else { std::fs::remove_dir(path) }
    } else {
        std::fs::remove_file(path)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_goes_and_what_is_finished_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [given_up, finished] = ["a", "b"].map(|name| folder.path().join(name));
        for path in [&given_up, &finished] {
            let unfinished = Unfinished::new(path.clone());
            std::fs::write(unfinished.path(), "").unwrap();
            if path == &finished {
                unfinished.release();
            }
        }
        assert!(!given_up.exists() && finished.exists());
    }

    #[test]
    fn a_folder_that_others_may_use_goes_only_when_it_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, empty, used] =
            [format!("{NEW}1-1"), "empty".into(), "used".into()].map(|name| folder.path().join(name));
        for path in [&ours, &empty, &used] {
            let unfinished = Unfinished::new(path.clone());
            std::fs::create_dir(path).unwrap();
            if path != &empty {
                std::fs::write(unfinished.path().join("x"), "").unwrap();
            }
        }
        assert!(!ours.exists() && !empty.exists() && used.join("x").exists());
    }
}
