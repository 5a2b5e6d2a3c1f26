//! Which tokenizer is wanted, and which one a file turned out to be.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The tokenizer that a user asks for: setting `tokenizer.kind`.
///
/// Written as a string: one of four words, or a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kind {
    /// `auto`: [`Kind::Char`] for a small alphabet, else [`Kind::Bpe`]; see [`crate::AUTO_CHARACTERS`].
    #[default]
    Auto,
    /// `char`: one id per distinct character of the text.
    Char,
    /// `byte`: 256 ids, reads any file.
    Byte,
    /// `bpe`: byte-level byte-pair encoding learned from the text.
    Bpe,
    /// A path: an existing `tokenizer.json`, or a folder that holds one.
    File(PathBuf),
}

impl Kind {
    /// Checks that a path leads to a file, so that a mistyped word fails before any text is read.
    ///
    /// # Errors
    /// [`Error::KindUnknown`] with the value as given.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::File(path) if !tokenizer_path(path).is_file() => {
                Err(Error::KindUnknown { value: path.display().to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// The file that a path to a tokenizer means: itself, or the `tokenizer.json` in the folder.
pub(crate) fn tokenizer_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() }
}

impl FromStr for Kind {
    type Err = Error;

    /// Reads a kind without touching the disk; [`Kind::validate`] looks whether a path exists.
    fn from_str(value: &str) -> Result<Self> {
        Ok(match value {
            "auto" => Self::Auto,
            "char" => Self::Char,
            "byte" => Self::Byte,
            "bpe" => Self::Bpe,
            "" => return Err(Error::KindUnknown { value: String::new() }),
            path => Self::File(PathBuf::from(path)),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Char => f.write_str("char"),
            Self::Byte => f.write_str("byte"),
            Self::Bpe => f.write_str("bpe"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl TryFrom<String> for Kind {
    type Error = Error;

    fn try_from(value: String) -> Result<Self> {
        value.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.to_string()
    }
}

/// What a tokenizer is, told from its `tokenizer.json` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetectedKind {
    /// One id per character, in order of code point.
    Char,
    /// 256 ids, id = byte.
    Byte,
    /// Byte-level BPE with the GPT-2 splitting rule, ours or another's.
    Bpe,
    /// Anything else that the `tokenizers` crate reads, such as `Unigram`; in its words.
    Other(String),
}

impl fmt::Display for DetectedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Char => "char",
            Self::Byte => "byte",
            Self::Bpe => "bpe",
            Self::Other(model) => model,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_words_and_a_path_survive_the_string_form() {
        for text in ["auto", "char", "byte", "bpe", "models/gpt2/tokenizer.json"] {
            let kind: Kind = text.parse().unwrap();
            assert_eq!(kind.to_string(), text);
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Kind>(&json).unwrap(), kind);
        }
        assert!(matches!("x.json".parse::<Kind>().unwrap(), Kind::File(_)));
        assert!("".parse::<Kind>().is_err());
    }

    #[test]
    fn a_mistyped_word_is_named_with_the_words_there_are() {
        let message = "chr".parse::<Kind>().unwrap().validate().unwrap_err().to_string();
        assert!(message.contains("tokenizer.kind = \"chr\""), "{message}");
        assert!(message.contains("auto, char, byte, bpe"), "{message}");
    }

    #[test]
    fn a_folder_stands_for_the_tokenizer_json_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let kind = Kind::File(folder.path().to_path_buf());
        assert!(kind.validate().is_err());
        std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        kind.validate().unwrap();
    }
}
