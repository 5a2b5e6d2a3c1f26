//! Token ids on disk: a header, then each id in two bytes or four, little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `softdict` |
//! | 8..12 | 1, the version of this layout |
//! | 12..16 | bytes per id: 2 when the vocabulary has at most 65,536 entries, else 4 |
//! | 16..24 | size of the vocabulary |
//! | 24..32 | number of ids |

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use softdict_files::NewFile;

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"softdict";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
/// Ids that are read at once to look at all of them.
const BLOCK: usize = 1 << 20;

/// Token ids in a file, read where they are asked for, so that a corpus larger than memory can be sampled.
///
/// Not mapped: a run reads its file for hours, and a mapping of a file that another program cuts short ends the process.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    file: File,
    width: Width,
    vocab_size: usize,
    len: usize,
}

/// Bytes per id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Two = 2,
    Four = 4,
}

impl Width {
    /// Inverts how [`Layout::lay_out`] writes an id.
    fn read(self, bytes: &[u8]) -> u32 {
        match (self, bytes) {
            (Self::Two, &[a, b]) => u32::from(u16::from_le_bytes([a, b])),
            (Self::Four, &[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            // `chunks_exact(width)` gives nothing else
            _ => 0,
        }
    }
}

impl TokenFile {
    /// Opens a file and checks its header against its size.
    ///
    /// # Errors
    /// [`Error::TokenFile`] when it is no such file, of another version, cut short or too long.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let invalid = |reason: String| Error::TokenFile { path: path.to_path_buf(), reason };
        let file = softdict_files::open(path).map_err(Error::io(path, "open the token file"))?;
        let size = file.metadata().map_err(Error::io(path, "look at the token file"))?.len();
        if size < HEADER_BYTES as u64 {
            return Err(invalid(format!("it has {size} bytes, fewer than its header of {HEADER_BYTES}")));
        }
        let mut header = [0; HEADER_BYTES];
        read_at(&file, 0, &mut header).map_err(Error::io(path, "read the token file"))?;
        let u32_at = |at: usize| Width::Four.read(&header[at..at + 4]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if header[..8] != *MAGIC {
            return Err(invalid("it does not start with the mark \"softdict\"".to_owned()));
        }
        if u32_at(8) != VERSION {
            return Err(invalid(format!(
                "its layout is version {}, this program reads {VERSION}",
                u32_at(8)
            )));
        }
        let width = match u32_at(12) {
            2 => Width::Two,
            4 => Width::Four,
            width => return Err(invalid(format!("it has {width} bytes per id; 2 or 4 are possible"))),
        };
        let (vocab_size, len) = (u64_at(16), u64_at(24));
        let expected = u128::from(len) * width as u128 + HEADER_BYTES as u128;
        if u128::from(size) != expected {
            return Err(invalid(format!("{len} ids make {expected} bytes, but it has {size}")));
        }
        Ok(Self { path: path.to_path_buf(), file, width, vocab_size: vocab_size as usize, len: len as usize })
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no id, as in the validation file when nothing is set aside.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the vocabulary that the ids are from.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a range of ids, each of which the vocabulary has.
    ///
    /// # Errors
    /// [`Error::TokenRange`] when the range goes past the end or has another length than `out`;
    /// [`Error::TokenFile`] with the first id that is too large and its place, or when the file became shorter since it
    /// was opened.
    pub fn copy_to(&self, range: Range<usize>, out: &mut [u32]) -> Result<()> {
        if range.start > range.end || range.end > self.len || range.len() != out.len() {
            return Err(Error::TokenRange {
                path: self.path.clone(),
                start: range.start,
                end: range.end,
                buffer: out.len(),
                len: self.len,
            });
        }
        let width = self.width as usize;
        let mut bytes = vec![0; out.len() * width];
        let place = HEADER_BYTES as u64 + range.start as u64 * width as u64;
        read_at(&self.file, place, &mut bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                let reason = format!("it ends before token {}: it was cut short while in use", range.end);
                Error::TokenFile { path: self.path.clone(), reason }
            }
            _ => Error::io(&self.path, "read the token file")(error),
        })?;
        for (index, (out, bytes)) in out.iter_mut().zip(bytes.chunks_exact(width)).enumerate() {
            *out = self.width.read(bytes);
            if *out as usize >= self.vocab_size {
                let (place, count) = (range.start + index, self.vocab_size);
                let reason = format!("token {place} is id {out}, but the vocabulary has {count}");
                return Err(Error::TokenFile { path: self.path.clone(), reason });
            }
        }
        Ok(())
    }

    /// Reads every id once.
    ///
    /// # Errors
    /// As [`Self::copy_to`].
    pub fn verify(&self) -> Result<()> {
        let mut block = vec![0; self.len.min(BLOCK)];
        for start in (0..self.len).step_by(BLOCK) {
            let count = BLOCK.min(self.len - start);
            self.copy_to(start..start + count, &mut block[..count])?;
        }
        Ok(())
    }
}

/// Fills `out` with the bytes from `place` on, wherever other readers of the same file are.
fn read_at(file: &File, place: u64, out: &mut [u8]) -> std::io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, out, place);
    #[cfg(windows)]
    {
        let (mut place, mut out) = (place, out);
        while !out.is_empty() {
            let read = std::os::windows::fs::FileExt::seek_read(file, out, place)?;
            if read == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            (place, out) = (place + read as u64, &mut out[read..]);
        }
        Ok(())
    }
}

/// How the ids of a vocabulary are laid out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    width: Width,
    vocab_size: usize,
}

/// An id that the vocabulary lacks: an error, never a wrapped number.
#[derive(Debug)]
pub(crate) struct TooLarge(u32);

impl Layout {
    pub(crate) fn new(vocab_size: usize) -> Self {
        let width = if vocab_size <= 1 << 16 { Width::Two } else { Width::Four };
        Self { width, vocab_size }
    }

    /// The bytes of some ids.
    pub(crate) fn lay_out(self, ids: &[u32]) -> Result<Vec<u8>, TooLarge> {
        // the largest of all, for a search that may stop early takes several times as long
        match ids.iter().max() {
            Some(&id) if id as usize >= self.vocab_size => Err(TooLarge(id)),
            _ => Ok(match self.width {
                Width::Two => ids.iter().flat_map(|&id| (id as u16).to_le_bytes()).collect(),
                Width::Four => ids.iter().flat_map(|&id| id.to_le_bytes()).collect(),
            }),
        }
    }
}

/// Writes a token file, part by part; it appears when finished.
#[derive(Debug)]
pub(crate) struct TokenWriter {
    file: NewFile,
    path: PathBuf,
    layout: Layout,
    len: usize,
}

impl TokenWriter {
    pub(crate) fn create(path: &Path, layout: Layout) -> Result<Self> {
        let begin = || {
            let mut file = NewFile::create(path)?;
            // the number of ids is known at the end
            file.write_all(&[0; HEADER_BYTES])?;
            Ok(file)
        };
        let file = begin().map_err(Error::io(path, "write the token file"))?;
        Ok(Self { file, path: path.to_path_buf(), layout, len: 0 })
    }

    /// Appends what [`Layout::lay_out`] made.
    pub(crate) fn push(&mut self, part: Result<Vec<u8>, TooLarge>) -> Result<()> {
        let bytes = part.map_err(|TooLarge(id)| Error::TokenFile {
            path: self.path.clone(),
            reason: format!("id {id} does not fit a vocabulary of {}", self.layout.vocab_size),
        })?;
        self.len += bytes.len() / self.layout.width as usize;
        self.file.write_all(&bytes).map_err(Error::io(&self.path, "write the token file"))
    }

    /// Writes the header, puts the file in place and gives the number of ids.
    pub(crate) fn finish(mut self) -> Result<usize> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(self.layout.width as u32).to_le_bytes());
        header.extend_from_slice(&(self.layout.vocab_size as u64).to_le_bytes());
        header.extend_from_slice(&(self.len as u64).to_le_bytes());
        let end = || {
            self.file.rewind()?;
            self.file.write_all(&header)?;
            self.file.commit()
        };
        end().map_err(Error::io(&self.path, "write the token file"))?;
        Ok(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, vocab_size: usize, ids: &[u32]) -> PathBuf {
        let path = folder.join("x.bin");
        let layout = Layout::new(vocab_size);
        let mut writer = TokenWriter::create(&path, layout).unwrap();
        for part in ids.chunks(3) {
            writer.push(layout.lay_out(part)).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), ids.len());
        path
    }

    #[test]
    fn ids_come_back_in_two_bytes_or_four() {
        let folder = tempfile::tempdir().unwrap();
        for (vocab_size, width) in [(65_536, 2), (65_537, 4)] {
            let ids: Vec<u32> = [0, 1, 255, 256, 65_535, vocab_size as u32 - 1].to_vec();
            let path = written(folder.path(), vocab_size, &ids);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 32 + width * ids.len() as u64);
            let file = TokenFile::open(&path).unwrap();
            file.verify().unwrap();
            assert_eq!((file.len(), file.vocab_size()), (ids.len(), vocab_size));
            let mut out = vec![0; 4];
            file.copy_to(2..6, &mut out).unwrap();
            assert_eq!(out, ids[2..]);
        }
    }

    #[test]
    fn an_id_past_the_vocabulary_is_refused_on_writing_and_found_on_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("y.bin");
        let layout = Layout::new(10);
        assert!(TokenWriter::create(&path, layout).unwrap().push(layout.lay_out(&[9, 10])).is_err());
        assert!(!path.exists());

        let path = written(folder.path(), 10, &[1, 2, 3]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[34] = 77;
        std::fs::write(&path, bytes).unwrap();
        let message = TokenFile::open(&path).unwrap().verify().unwrap_err().to_string();
        assert!(message.contains("token 1 is id 77"), "{message}");
    }

    #[test]
    fn ranges_past_the_end_are_errors_with_all_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::open(written(folder.path(), 10, &[1, 2, 3])).unwrap();
        let message = file.copy_to(1..5, &mut [0; 4]).unwrap_err().to_string();
        assert!(message.contains("1..5") && message.contains("has 3"), "{message}");
        assert!(file.copy_to(0..2, &mut [0; 3]).is_err());
        file.copy_to(3..3, &mut []).unwrap();
    }

    #[test]
    fn a_file_that_becomes_shorter_while_it_is_open_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), 10, &[1, 2, 3]);
        let file = TokenFile::open(&path).unwrap();
        file.copy_to(0..3, &mut [0; 3]).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(34).unwrap();
        file.copy_to(0..1, &mut [0; 1]).unwrap();
        let message = file.copy_to(0..3, &mut [0; 3]).unwrap_err().to_string();
        assert!(message.contains("x.bin") && message.contains("cut short"), "{message}");
    }

    #[test]
    fn damaged_files_are_named_with_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let whole = std::fs::read(written(folder.path(), 300, &[1, 2, 3])).unwrap();
        let path = folder.path().join("damaged.bin");
        let message = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.clone();
            change(&mut bytes);
            std::fs::write(&path, bytes).unwrap();
            TokenFile::open(&path).unwrap_err().to_string()
        };
        for (message, part) in [
            (message(&|bytes| bytes.truncate(37)), "make 38 bytes, but it has 37"),
            (message(&|bytes| bytes.push(0)), "but it has 39"),
            (message(&|bytes| bytes.truncate(31)), "fewer than its header"),
            (message(&|bytes| bytes.clear()), "it has 0 bytes"),
            (message(&|bytes| bytes[0] = b'S'), "does not start with the mark"),
            (message(&|bytes| bytes[8] = 9), "version 9"),
            (message(&|bytes| bytes[12] = 3), "3 bytes per id"),
            (message(&|bytes| bytes[24..32].fill(0xFF)), "18446744073709551615 ids"),
        ] {
            assert!(message.contains(part) && message.contains("damaged.bin"), "{message}");
        }
    }
}
