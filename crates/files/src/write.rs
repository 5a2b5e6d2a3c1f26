//! Writing: readers, and a machine that loses power, see the old content or the new, never a part.

use crate::unfinished::Unfinished;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the names of files and folders begin with that are being written, or about to be deleted.
pub const NEW: &str = ".softdict-new-";

/// A name in `folder` that no other writer uses, and that is short wherever the final one is long.
pub fn temporary(folder: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{NEW}{}-{count}", std::process::id()))
}

/// The folder that holds a file.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Brings the entries of a folder to the disk; Windows does so by itself.
///
/// # Errors
/// When the system refuses.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Puts a finished file in its place.
fn put(unfinished: &Unfinished, path: &Path) -> io::Result<()> {
    fs::rename(unfinished.path(), path)?;
    unfinished.release();
    sync_folder(parent(path))
}

/// A file being written; dropped before [`NewFile::commit`], it leaves nothing behind.
#[derive(Debug)]
pub struct NewFile {
    // before the name, so that Windows finds it closed when it is removed
    file: BufWriter<File>,
    unfinished: Unfinished,
    path: PathBuf,
}

impl NewFile {
    /// Begins the file that will be `path`.
    ///
    /// # Errors
    /// When its folder does not take it, or an older file is there that may not be written: it then keeps its permissions.
    pub fn create(path: &Path) -> io::Result<Self> {
        // a link is replaced itself, whatever it leads to
        if path.symlink_metadata().is_ok_and(|there| !there.is_file() && !there.is_symlink()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is there already and is no regular file",
            ));
        }
        let old = path.metadata().ok();
        if old.as_ref().is_some_and(|old| old.permissions().readonly()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is there already and may not be written",
            ));
        }
        let unfinished = Unfinished::new(temporary(parent(path)));
        // a link that somebody laid under this name is not followed
        let file = File::create_new(unfinished.path())?;
        if let Some(old) = old.filter(fs::Metadata::is_file) {
            file.set_permissions(old.permissions())?;
        }
        Ok(Self { file: BufWriter::with_capacity(1 << 18, file), unfinished, path: path.to_path_buf() })
    }

    /// Goes back to the start, to write over it.
    ///
    /// # Errors
    /// When what was written so far does not fit on the disk.
    pub fn rewind(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0)).map(|_| ())
    }

    /// Makes the file appear under its name.
    ///
    /// # Errors
    /// When it does not fit on the disk, or cannot be put in its place; the old one is then still there.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let Self { file, unfinished, path } = self;
        // Windows does not rename an open file
        drop(file);
        put(&unfinished, &path)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a whole file.
///
/// # Errors
/// As [`NewFile`]; the old content is then still there.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = NewFile::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}

/// Writes a file that is not there yet and brings it to the disk: for a folder that has only a temporary name so far.
///
/// # Errors
/// When it is there, or does not fit on the disk.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// As [`write()`], of a file that `make` writes under the name it is given.
///
/// # Errors
/// Those of `make`, and as [`NewFile`].
pub fn replace<E: From<io::Error>>(
    path: &Path,
    make: &mut dyn FnMut(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let file = NewFile::create(path)?;
    make(file.unfinished.path())?;
    Ok(file.commit()?)
}

/// Makes `path` a link to `target`, in one step where something is there already.
///
/// # Errors
/// When the system refuses.
#[cfg(unix)]
pub fn link(path: &Path, target: &str) -> io::Result<()> {
    let unfinished = Unfinished::new(temporary(parent(path)));
    std::os::unix::fs::symlink(target, unfinished.path())?;
    put(&unfinished, path)
}

/// A file that holds the name, where links need special rights.
///
/// # Errors
/// As [`write()`].
#[cfg(not(unix))]
pub fn link(path: &Path, target: &str) -> io::Result<()> {
    write(path, target.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_given_up_leaves_the_old_one_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        write(&path, b"old").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"new, but never finished").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(file);
        assert_eq!(names(folder.path()), ["x.json"]);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"____ and the rest").unwrap();
        file.rewind().unwrap();
        file.write_all(b"head").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"head and the rest");
        assert_eq!(names(folder.path()), ["x.json"]);
    }

    #[test]
    fn what_fails_in_the_making_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        write(&path, b"old").unwrap();
        let failed = replace(&path, &mut |new| {
            fs::write(new, "half")?;
            Err(io::Error::other("no more"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        replace::<io::Error>(&path, &mut |new| fs::write(new, "whole")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_long_name_fits_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("n".repeat(250)), b"").unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn permissions_stay_and_forbid() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own");
        write(&path, b"old").unwrap();
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        write(&path, b"new").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        mode(0o444);
        assert!(write(&path, b"newer").unwrap_err().to_string().contains("may not be written"));
        assert_eq!(fs::read(&path).unwrap(), b"new");
        mode(0o600);
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_file_is_not_replaced_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), folder.path()] {
            assert!(write(path, b"x").unwrap_err().to_string().contains("no regular file"));
        }
        assert!(!pipe.metadata().unwrap().is_file());
    }

    #[test]
    #[cfg(unix)]
    fn a_link_laid_under_a_temporary_name_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("x"), folder.path().join("victim"));
        fs::write(&victim, "mine").unwrap();
        // all names that the next writers could take
        for count in 0..2000 {
            let name = format!("{NEW}{}-{count}", std::process::id());
            std::os::unix::fs::symlink(&victim, folder.path().join(name)).unwrap();
        }
        assert!(write(&path, b"ours").is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        assert!(!path.exists());
    }
}
