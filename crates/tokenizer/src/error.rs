//! What can go wrong between a text, a tokenizer and the ids on disk.

use std::path::{Path, PathBuf};

/// Every failure of this crate; each message names the file, key or id and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as in "cannot …".
        action: &'static str,
        /// The operating system's reason.
        #[source]
        source: std::io::Error,
    },

    /// There is no such text file.
    #[error("{}: no such file; give the path of a text file", path.display())]
    TextMissing {
        /// The path as given.
        path: PathBuf,
    },

    /// A folder was given where a text file is needed.
    #[error("{}: is a folder; give the path of one text file", path.display())]
    TextIsFolder {
        /// The path as given.
        path: PathBuf,
    },

    /// The text has no content.
    #[error("{name}: the text is empty (0 bytes); there is nothing to learn from")]
    TextEmpty {
        /// The file or the name of the text.
        name: String,
    },

    /// The text is in a 16-bit encoding.
    #[error(
        "{name}: looks like UTF-16 ({evidence}); convert it to UTF-8, for example with \
         `iconv -f UTF-16 -t UTF-8`"
    )]
    TextUtf16 {
        /// The file or the name of the text.
        name: String,
        /// What gave it away.
        evidence: &'static str,
    },

    /// The text is not UTF-8.
    #[error(
        "{name}: not valid UTF-8 at byte offset {offset} (byte 0x{byte:02X}); convert it to UTF-8, or \
         train on its bytes (train --set tokenizer.kind=byte)"
    )]
    TextNotUtf8 {
        /// The file or the name of the text.
        name: String,
        /// Offset in the file, from 0, of the first byte that does not fit.
        offset: usize,
        /// That byte.
        byte: u8,
    },

    /// Bytes given to a tokenizer that reads characters are not UTF-8.
    #[error("the input is not valid UTF-8 at byte offset {offset}; only a byte tokenizer reads any bytes")]
    InputNotUtf8 {
        /// Offset in the input, from 0.
        offset: usize,
    },

    /// A char tokenizer meets a character that was not in its training text.
    #[error(
        "character '{}' (U+{:04X}) at position {position} is not in the vocabulary of {vocab_size} \
         characters; `softdict tokenizer show CKPT` lists them",
        character.escape_debug(), u32::from(*character)
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Its place in the text, in characters, from 1.
        position: usize,
        /// Characters known.
        vocab_size: usize,
    },

    /// An id that no token has.
    #[error("token id {id} is not in the vocabulary (ids 0 to {}, some may be unused)", vocab_size.saturating_sub(1))]
    UnknownId {
        /// The id.
        id: u32,
        /// Largest id plus one.
        vocab_size: usize,
    },

    /// `tokenizer.kind` is neither a known word nor a path to something.
    #[error(
        "tokenizer.kind = \"{value}\" is none of auto, char, byte, bpe, and there is no tokenizer.json \
         at that path"
    )]
    KindUnknown {
        /// The value as given.
        value: String,
    },

    /// A BPE vocabulary must hold every byte.
    #[error(
        "tokenizer.vocab_size = {value} is out of range for tokenizer.kind = bpe; every byte has an \
         entry, so give 256 to {max}"
    )]
    VocabSize {
        /// The value as given.
        value: usize,
        /// The largest size allowed.
        max: usize,
    },

    /// A size was asked of a vocabulary whose size is not a choice.
    #[error(
        "tokenizer.vocab_size = {value}, but tokenizer.kind = {kind} has {actual} entries here and no \
         choice of size; leave vocab_size out, or use tokenizer.kind = bpe"
    )]
    VocabSizeFixed {
        /// The value as given.
        value: usize,
        /// The kind of tokenizer.
        kind: String,
        /// The size it has.
        actual: usize,
    },

    /// `data.val_fraction` is not a fraction.
    #[error("data.val_fraction = {value} is out of range; give at least 0 and less than 1")]
    ValFraction {
        /// The value as given.
        value: f64,
    },

    /// There is no tokenizer file where one is expected.
    #[error("{}: no such tokenizer file", path.display())]
    TokenizerMissing {
        /// The file looked for.
        path: PathBuf,
    },

    /// A tokenizer file that cannot be used.
    #[error("{name}: not a usable tokenizer.json: {reason}")]
    TokenizerInvalid {
        /// The file or the name of the bytes.
        name: String,
        /// What is wrong.
        reason: String,
    },

    /// The `tokenizers` crate panicked: the file has something that the crate takes for impossible.
    #[error("{name}: the tokenizer cannot be applied: {reason}")]
    TokenizerPanics {
        /// The file or the name of the bytes.
        name: String,
        /// What the panic said.
        reason: String,
    },

    /// The `tokenizers` crate failed on a text or on ids.
    #[error("the tokenizer cannot {action}: {source}")]
    Foreign {
        /// What was tried, as in "cannot …".
        action: &'static str,
        /// The crate's reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A class of characters in the rule that splits text into pieces is unknown.
    #[error("the splitting rule of byte-level BPE needs the characters {pattern}: {source}")]
    SplitRule {
        /// The class.
        pattern: &'static str,
        /// The regex parser's reason.
        #[source]
        source: Box<regex_syntax::Error>,
    },

    /// JSON that cannot be read or written.
    #[error("{name}: {source}")]
    Json {
        /// The file or the name of the bytes.
        name: String,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },

    /// A file of token ids that cannot be used.
    #[error("{}: not a usable token file: {reason}; give the run its text again (train TEXT --out RUN --resume), and it is made anew", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, with both numbers.
        reason: String,
    },

    /// Ids were asked for beyond the end of a token file.
    #[error("{}: tokens {start}..{end} asked into a buffer of {buffer}, but the file has {len}", path.display())]
    TokenRange {
        /// The file.
        path: PathBuf,
        /// First token asked for.
        start: usize,
        /// One past the last token asked for.
        end: usize,
        /// Room in the caller's buffer.
        buffer: usize,
        /// Tokens in the file.
        len: usize,
    },
}

/// Short for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// For `map_err`: names the file and what was tried.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, action, source }
    }

    /// For `map_err`: names the file or the bytes.
    pub(crate) fn json(name: impl Into<String>) -> impl FnOnce(serde_json::Error) -> Self {
        let name = name.into();
        move |source| Self::Json { name, source }
    }
}
