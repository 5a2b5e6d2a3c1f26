//! Files that are read without trusting them, and written whole or not at all.
//!
//! `read`: only regular files, and never more of one than its reader allows. `write`: a temporary sibling, brought to
//! the disk, renamed, and the folder brought to the disk. `unfinished`: what goes when a signal ends the program.

mod read;
mod unfinished;
mod write;

pub use read::{open, read, read_named, regular};
pub use unfinished::{Unfinished, discard_unfinished};
pub use write::{NEW, NewFile, link, replace, sync_folder, temporary, write, write_new};

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

/// A folder, as the system knows it: another one under the same name is not it.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    #[cfg_attr(not(unix), expect(dead_code, reason = "folders have no number there"))]
    then: Metadata,
}

impl Place {
    /// The folder that is at `path` now.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), then: path.metadata()? })
    }

    /// Fails unless the folder is still where it was.
    ///
    /// # Errors
    /// When it was moved or removed, or another one took its place.
    pub fn check(&self) -> io::Result<()> {
        let now = self.path.metadata()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            if (now.dev(), now.ino()) != (self.then.dev(), self.then.ino()) {
                return Err(io::Error::other("another folder took its place"));
            }
        }
        let _ = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_folder_that_was_replaced_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        std::fs::create_dir(&path).unwrap();
        let place = Place::of(&path).unwrap();
        place.check().unwrap();
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        assert!(place.check().is_err());
        std::fs::create_dir(&path).unwrap();
        assert!(place.check().unwrap_err().to_string().contains("another folder"));
    }
}
