//! Files that appear whole or not at all: a temporary sibling, fsync, rename, fsync of the folder.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A file being written; dropped before [`AtomicFile::commit`], it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    /// `None` once committed.
    file: Option<BufWriter<File>>,
}

impl AtomicFile {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // one name per file, so that what a killed run left is overwritten by the next
        let temporary = path.with_file_name(format!(".{name}.tmp"));
        let file = File::create(&temporary).map_err(Error::io(&temporary, "create the file"))?;
        let file = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(Self { path: path.to_path_buf(), temporary, file })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.with_file("write", |file| file.write_all(bytes))
    }

    /// Writes over the start of the file.
    pub(crate) fn write_at_start(&mut self, bytes: &[u8]) -> Result<()> {
        self.with_file("write", |file| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(bytes)
        })
    }

    /// Makes the file appear under its name.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.with_file("write", |file| {
            file.flush()?;
            file.get_ref().sync_all()
        })?;
        // Windows does not rename an open file
        self.file = None;
        let renamed = fs::rename(&self.temporary, &self.path);
        if renamed.is_err() {
            let _ = fs::remove_file(&self.temporary);
        }
        renamed.map_err(Error::io(&self.path, "put the finished file in place"))?;
        sync_folder(&self.path)
    }

    fn with_file(
        &mut self,
        action: &'static str,
        operate: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<()> {
        self.file.as_mut().map_or(Ok(()), operate).map_err(Error::io(&self.path, action))
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            drop(file.into_parts());
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a whole file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write(bytes)?;
    file.commit()
}

/// Makes the rename itself durable; only Unix has a way to.
fn sync_folder(path: &Path) -> Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(Error::io(folder, "sync the folder"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn a_file_given_up_leaves_the_old_one_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        write(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write(b"new, but never finished").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(file);
        assert_eq!(names(folder.path()), ["x.json"]);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["x.json"]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let message = write(Path::new("no/such/folder/x"), b"").unwrap_err().to_string();
        assert!(message.contains("no/such/folder"), "{message}");
    }
}
