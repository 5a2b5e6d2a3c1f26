//! Single files: read without trusting them, written wholly or not at all.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the names of files and folders begin with that are being written, or about to be deleted.
pub(crate) const NEW: &str = ".softdict-new-";

/// Splits a path into the folder that holds it and its name.
pub(crate) fn split(path: &Path) -> Result<(PathBuf, String)> {
    let unnamed = || Error::Unnamed { path: path.to_path_buf() };
    let name = path.file_name().ok_or_else(unnamed)?.to_string_lossy().into_owned();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_path_buf(), name))
}

/// A name beside the final one that no other writer uses.
pub(crate) fn temporary(parent: &Path, name: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    parent.join(format!("{NEW}{}-{count}-{name}", std::process::id()))
}

/// Brings the entries of a folder to the disk; Windows does so by itself.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    if cfg!(unix) {
        let sync = || File::open(folder)?.sync_all();
        sync().map_err(Error::io(folder, "bring the folder to the disk"))?;
    }
    Ok(())
}

pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a file so that readers, and a machine that loses power, see the old content or the new, never a part.
///
/// # Errors
/// When the file cannot be written; the old content is then still there.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let (parent, name) = split(path)?;
    let temporary = temporary(&parent, &name);
    let written = write_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = written {
        // the first error is the one to report; clean_up removes what cannot be removed now
        let _ = fs::remove_file(&temporary);
        return Err(Error::Io { path: path.to_path_buf(), action: "write the file", source });
    }
    sync_folder(&parent)
}

/// Reads a file of at most `most` bytes; never a pipe or a device, which may have no end.
pub(crate) fn read_limited(path: &Path, most: u64) -> Result<Vec<u8>> {
    let bytes = regular(path)?;
    if bytes > most {
        return Err(Error::TooLarge { path: path.to_path_buf(), bytes, most });
    }
    fs::read(path).map_err(Error::io(path, "read the file"))
}

/// The size of a regular file.
pub(crate) fn regular(path: &Path) -> Result<u64> {
    let metadata = fs::metadata(path).map_err(Error::io(path, "open the file"))?;
    if metadata.is_file() { Ok(metadata.len()) } else { Err(Error::NotAFile { path: path.to_path_buf() }) }
}

/// A link being made under a temporary name, so that renaming it over the old one changes it in one step.
#[cfg(unix)]
pub(crate) fn link_atomic(link: &Path, target: &str) -> Result<()> {
    let (parent, name) = split(link)?;
    let temporary = temporary(&parent, &name);
    let made = std::os::unix::fs::symlink(target, &temporary).and_then(|()| fs::rename(&temporary, link));
    if let Err(source) = made {
        let _ = fs::remove_file(&temporary);
        return Err(Error::Io { path: link.to_path_buf(), action: "point to the checkpoint", source });
    }
    sync_folder(&parent)
}

/// A file that holds the name, where links need special rights.
#[cfg(not(unix))]
pub(crate) fn link_atomic(link: &Path, target: &str) -> Result<()> {
    write_atomic(link, target.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_keeps_the_old_content() {
        let run = tempfile::tempdir().unwrap();
        let file = run.path().join("settings.toml");
        write_atomic(&file, b"old").unwrap();
        write_atomic(&file, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        let error = write_atomic(&file.join("below"), b"").unwrap_err().to_string();
        assert!(error.contains("settings.toml"), "{error}");
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 1);
    }
}
