//! Reading files that strangers may have made.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The size of a regular file, of what a link leads to.
///
/// # Errors
/// When there is none, or something else: reading a pipe may never begin, and reading a device may never end.
pub fn regular(path: &Path) -> io::Result<u64> {
    let metadata = path.metadata()?;
    if metadata.is_file() {
        return Ok(metadata.len());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

/// Opens a regular file.
///
/// # Errors
/// As [`regular`], and those of opening.
pub fn open(path: &Path) -> io::Result<File> {
    regular(path)?;
    File::open(path)
}

/// Reads a regular file of at most `most` bytes, whatever size it claims to have.
///
/// # Errors
/// As [`open`], and when it is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    limited(open(path)?, most)
}

/// Reads at most `most` bytes of whatever somebody named on purpose, a pipe as well.
///
/// # Errors
/// Those of opening, and when there is more.
pub fn read_named(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    limited(File::open(path)?, most)
}

fn limited(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let reason = format!("it has more than the {most} bytes that such a file may have");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert!(read(&path, 4).unwrap_err().to_string().contains("more than the 4 bytes"));
        assert!(read(folder.path(), 4).is_err() && read(&folder.path().join("none"), 4).is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn devices_and_files_that_hide_their_size_do_not_fill_the_memory() {
        assert!(read(Path::new("/dev/zero"), 4).unwrap_err().to_string().contains("not a regular file"));
        // a regular file of no bytes that gives as many as one asks for
        let endless = Path::new("/proc/self/pagemap");
        assert!(!endless.exists() || read(endless, 1000).is_err());
        assert!(read_named(Path::new("/dev/zero"), 1000).unwrap_err().to_string().contains("more than"));
    }
}
