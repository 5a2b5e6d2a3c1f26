//! Reading a text: a file or a string, checked once, with what a run must remember about it.
//!
//! A file is mapped, so that a text larger than memory can be trained on; each pass over it gives its
//! pages back as it goes ([`TextFile::release`]). A pipe cannot be mapped and is read to its end.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::mapped::{BLOCK_BYTES, Mapped};
use crate::utf8::count_characters;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A text to learn from, opened and checked.
///
/// The content is the file's bytes without a UTF-8 byte order mark at the start; nothing else is
/// changed, so CRLF and NUL stay. It may be any bytes: [`TextFile::text`] is where UTF-8 is required.
#[derive(Debug)]
pub struct TextFile {
    name: String,
    storage: Storage,
    /// Bytes of byte order mark before the content.
    skipped: usize,
    sha256: String,
    fault: Option<Fault>,
    characters: usize,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Storage {
    Mapped(Mapped),
    Owned(Vec<u8>),
}

impl Storage {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }

    fn release(&self, range: Range<usize>) {
        if let Self::Mapped(map) = self {
            map.release(range);
        }
    }
}

/// Why the content is not UTF-8 text.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Utf16(&'static str),
    /// Offset in the content.
    Invalid(usize),
}

impl TextFile {
    /// Opens a text file, hashes it and checks its encoding.
    ///
    /// # Errors
    /// When it is missing, a folder, unreadable or empty. Another encoding than UTF-8 is reported by
    /// [`TextFile::text`], since a byte tokenizer does not mind.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let metadata = std::fs::metadata(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::TextMissing { path: path.to_path_buf() },
            _ => Error::io(path, "look at the text file")(source),
        })?;
        if metadata.is_dir() {
            return Err(Error::TextIsFolder { path: path.to_path_buf() });
        }
        let mut file = File::open(path).map_err(Error::io(path, "open the text file"))?;
        let storage = if metadata.is_file() && metadata.len() > 0 {
            Storage::Mapped(Mapped::new(&file).map_err(Error::io(path, "map the text file"))?)
        } else {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(Error::io(path, "read the text file"))?;
            Storage::Owned(bytes)
        };
        Self::new(path.display().to_string(), storage)
    }

    /// Takes a text from memory, such as the embedded tales; `name` stands for it in messages.
    ///
    /// # Errors
    /// When it is empty.
    pub fn from_bytes(name: impl Into<String>, content: impl Into<Vec<u8>>) -> Result<Self> {
        Self::new(name.into(), Storage::Owned(content.into()))
    }

    fn new(name: String, storage: Storage) -> Result<Self> {
        let skipped = if storage.bytes().starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        if storage.bytes().len() == skipped {
            return Err(Error::TextEmpty { name });
        }
        let mut notes = Vec::new();
        if skipped > 0 {
            notes.push(format!("{name}: dropped the UTF-8 byte order mark (3 bytes) at its start"));
        }
        let utf16 = looks_like_utf16(storage.bytes()).map(Fault::Utf16);
        let scan = scan(&storage, skipped);
        let fault = utf16.or(scan.invalid.map(Fault::Invalid));
        Ok(Self { name, storage, skipped, sha256: scan.sha256, fault, characters: scan.characters, notes })
    }

    /// The path as given, or the name of a text from memory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The content, without a byte order mark.
    pub fn bytes(&self) -> &[u8] {
        &self.storage.bytes()[self.skipped..]
    }

    /// Bytes of content.
    pub fn byte_len(&self) -> usize {
        self.bytes().len()
    }

    /// SHA-256 of the whole file, byte order mark and all, in hexadecimal: what `sha256sum` prints.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// What was noticed and done on opening, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The content as characters.
    ///
    /// # Errors
    /// [`Error::TextUtf16`] and [`Error::TextNotUtf8`], which name the file and the place.
    pub fn text(&self) -> Result<&str> {
        self.require_utf8()?;
        self.checked(0..self.byte_len())
    }

    /// Characters in the content.
    ///
    /// # Errors
    /// As [`TextFile::text`].
    pub fn character_count(&self) -> Result<usize> {
        self.require_utf8()?;
        Ok(self.characters)
    }

    /// Fails as [`TextFile::text`] does, by what was found on opening.
    pub(crate) fn require_utf8(&self) -> Result<()> {
        match self.fault {
            None => Ok(()),
            Some(Fault::Utf16(evidence)) => Err(Error::TextUtf16 { name: self.name.clone(), evidence }),
            Some(Fault::Invalid(offset)) => Err(self.not_utf8(offset)),
        }
    }

    /// A range of the content as characters; checked again, for the file may have changed under us.
    pub(crate) fn checked(&self, range: Range<usize>) -> Result<&str> {
        let start = range.start;
        std::str::from_utf8(&self.bytes()[range]).map_err(|error| self.not_utf8(start + error.valid_up_to()))
    }

    /// Tells the system that this range of the content is not needed for now.
    ///
    /// Pages of a mapping that were read count as memory of this process until then.
    pub(crate) fn release(&self, range: Range<usize>) {
        self.storage.release(range.start + self.skipped..range.end + self.skipped);
    }

    fn not_utf8(&self, offset: usize) -> Error {
        let byte = self.bytes().get(offset).copied().unwrap_or_default();
        Error::TextNotUtf8 { name: self.name.clone(), offset: offset + self.skipped, byte }
    }
}

struct Scan {
    sha256: String,
    characters: usize,
    invalid: Option<usize>,
}

/// One pass: hash of everything, characters and first invalid byte of the content after `skipped`.
fn scan(storage: &Storage, skipped: usize) -> Scan {
    let bytes = storage.bytes();
    let mut hasher = Sha256::new();
    let mut check = Utf8Check { checked: skipped, characters: 0, invalid: None };
    for start in (0..bytes.len()).step_by(BLOCK_BYTES) {
        let end = bytes.len().min(start + BLOCK_BYTES);
        let block = &bytes[start..end];
        if block.len() < bytes.len() {
            rayon::join(|| hasher.update(block), || check.go_on(bytes, end));
        } else {
            // not worth waking a thread
            hasher.update(block);
            check.go_on(bytes, end);
        }
        storage.release(start..end);
    }
    let invalid = check.invalid.map(|at| at - skipped);
    Scan { sha256: hex(&hasher.finalize()), characters: check.characters, invalid }
}

/// How far bytes are known to be UTF-8.
struct Utf8Check {
    checked: usize,
    characters: usize,
    invalid: Option<usize>,
}

impl Utf8Check {
    fn go_on(&mut self, bytes: &[u8], end: usize) {
        if self.invalid.is_some() {
            return;
        }
        let window = &bytes[self.checked..end];
        let mut valid = window.len();
        if let Err(error) = std::str::from_utf8(window) {
            valid = error.valid_up_to();
            // a character cut by the end of the window is looked at with the next one
            if error.error_len().is_some() || end == bytes.len() {
                self.invalid = Some(self.checked + valid);
            }
        }
        self.characters += count_characters(&window[..valid]);
        self.checked += valid;
    }
}

/// A byte order mark, or the NUL in every other place that Western text has in UTF-16.
fn looks_like_utf16(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"\xFF\xFE") {
        return Some("it starts with the byte order mark FF FE");
    }
    if bytes.starts_with(b"\xFE\xFF") {
        return Some("it starts with the byte order mark FE FF");
    }
    let sample = &bytes[..bytes.len().min(4096)];
    let zeros = |parity| sample.iter().skip(parity).step_by(2).filter(|&&byte| byte == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    // a text with some NUL has them anywhere: ask for most of one half and hardly any of the other
    let (most, hardly) = (sample.len() * 2 / 5, sample.len() / 40);
    (sample.len() >= 8 && even.max(odd) >= most && even.min(odd) <= hardly)
        .then_some("every other byte is NUL")
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(content: &[u8]) -> String {
        TextFile::from_bytes("story.txt", content).unwrap().text().unwrap_err().to_string()
    }

    #[test]
    fn a_stray_byte_is_named_with_file_offset_and_the_way_out() {
        let message = error_of(b"hello w\x92orld");
        for part in ["story.txt", "offset 7", "0x92", "--set tokenizer.kind=byte"] {
            assert!(message.contains(part), "{message}");
        }
        let after_mark = error_of(b"\xEF\xBB\xBFab\xFF");
        assert!(after_mark.contains("offset 5"), "{after_mark}");
    }

    #[test]
    fn utf16_is_recognised_with_and_without_its_mark_and_a_few_nuls_are_not_utf16() {
        let little: Vec<u8> = "a little text".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = "a little text".encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [&little, &big, &[b"\xFF\xFE", &little[..]].concat(), &[b"\xFE\xFF", &big[..]].concat()]
        {
            assert!(error_of(bytes).contains("looks like UTF-16"));
        }
        for text in ["wo\0rld and more", "\0\0\0\0\0\0\0\0\0\0", "a\0b"] {
            assert_eq!(TextFile::from_bytes("t", text).unwrap().text().unwrap(), text);
        }
    }

    #[test]
    fn a_byte_order_mark_is_dropped_with_a_note_and_nothing_else_changes() {
        let text = TextFile::from_bytes("t", "\u{FEFF}héllo\r\nwo\0rld").unwrap();
        assert_eq!(text.text().unwrap(), "héllo\r\nwo\0rld");
        assert_eq!(text.character_count().unwrap(), 13);
        assert_eq!(text.byte_len(), 14);
        assert!(text.notes()[0].contains("byte order mark"));
        assert!(TextFile::from_bytes("t", "\u{FEFF}").is_err());
    }

    #[test]
    fn missing_folder_and_empty_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt");
        let message = |path: &Path| TextFile::open(path).unwrap_err().to_string();
        assert!(message(&path).contains("no such file"));
        assert!(message(folder.path()).contains("is a folder"));
        std::fs::write(&path, "").unwrap();
        assert!(message(&path).contains("empty (0 bytes)"));
        assert!(message(&path).contains("text.txt"));
    }

    #[test]
    fn hash_and_length_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc.txt");
        std::fs::write(&path, "abc").unwrap();
        let text = TextFile::open(&path).unwrap();
        // FIPS 180-4, example of SHA-256("abc")
        assert_eq!(text.sha256(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(text.byte_len(), 3);
    }

    #[test]
    fn a_character_across_two_windows_is_neither_lost_nor_invalid() {
        let mut content = vec![b'a'; BLOCK_BYTES - 1];
        content.extend_from_slice("漢字".as_bytes());
        let text = TextFile::from_bytes("t", content.clone()).unwrap();
        assert_eq!(text.character_count().unwrap(), BLOCK_BYTES + 1);
        content.push(0xE6);
        let message = error_of(&content);
        assert!(message.contains(&format!("offset {}", content.len() - 1)), "{message}");
    }
}
