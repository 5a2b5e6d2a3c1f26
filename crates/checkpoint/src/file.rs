//! Single files, with errors that name them.

use crate::error::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};

/// Splits a path into the folder that holds it and its name.
pub(crate) fn split(path: &Path) -> Result<(PathBuf, String)> {
    let unnamed = || Error::Unnamed { path: path.to_path_buf() };
    let name = path.file_name().ok_or_else(unnamed)?.to_string_lossy().into_owned();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")).to_path_buf(), name))
}

/// Brings the entries of a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    softdict_files::sync_folder(folder).map_err(Error::io(folder, "bring the folder to the disk"))
}

/// Writes a file wholly or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    softdict_files::write(path, bytes).map_err(Error::io(path, "write the file"))
}

/// Reads a file of at most `most` bytes; never a pipe or a device, which may have no end.
pub(crate) fn read_limited(path: &Path, most: u64) -> Result<Vec<u8>> {
    let bytes = regular(path)?;
    softdict_files::read(path, most).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => Error::TooLarge { path: path.to_path_buf(), bytes, most },
        _ => Error::io(path, "read the file")(error),
    })
}

/// The size of a regular file.
pub(crate) fn regular(path: &Path) -> Result<u64> {
    softdict_files::regular(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Error::NotAFile { path: path.to_path_buf() },
        _ => Error::io(path, "open the file")(error),
    })
}
