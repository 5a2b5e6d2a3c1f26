//! The tokenizer: text to ids and ids to text, whatever its kind.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::bpe::BpeEncoder;
use crate::encode::Origin;
use crate::error::{Error, Result};
use crate::foreign::Foreign;
use crate::kind::{DetectedKind, tokenizer_path};
use crate::read;
use crate::stream::DecodeStream;
use crate::table::{CharTable, TokenTable};
use crate::text::hex;

/// A vocabulary and the rules to encode with it; in and out of a `tokenizer.json`.
///
/// No start token is ever added, and plain text never becomes a control token: the text
/// `<|endoftext|>` is thirteen ordinary characters.
pub struct Tokenizer {
    pub(crate) kind: DetectedKind,
    pub(crate) encoder: Encoder,
    pub(crate) decoder: Decoder,
    vocab_size: usize,
    json: Vec<u8>,
    notes: Vec<String>,
}

/// How text becomes ids.
pub(crate) enum Encoder {
    Char(CharTable),
    Byte,
    Bpe(BpeEncoder),
    Foreign(Arc<Foreign>),
}

/// The largest published vocabularies have about 30 MB.
const MOST_BYTES: u64 = 100 << 20;

/// How ids become text.
pub(crate) enum Decoder {
    /// The bytes of each token, joined.
    Table(TokenTable),
    /// By the rules of the file, where a token's text depends on its neighbours.
    Foreign(Arc<Foreign>),
}

impl Tokenizer {
    /// Loads a `tokenizer.json`, or the one in a folder.
    ///
    /// # Errors
    /// When it is missing or not usable; the message names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = tokenizer_path(path.as_ref());
        let json = softdict_files::read(&path, MOST_BYTES).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::TokenizerMissing { path: path.clone() },
            _ => Error::io(&path, "read the tokenizer file")(source),
        })?;
        Self::from_bytes(json, &path.display().to_string())
    }

    /// Takes the bytes of a `tokenizer.json`; `name` stands for them in messages.
    ///
    /// # Errors
    /// When they are not usable.
    pub fn from_bytes(json: impl Into<Vec<u8>>, name: &str) -> Result<Self> {
        let json = json.into();
        let read::Parts { kind, encoder, decoder, vocab_size } = read::read(&json, name)?;
        Ok(Self { kind, encoder, decoder, vocab_size, json, notes: Vec::new() })
    }

    pub(crate) fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// The `tokenizer.json`: the bytes that were loaded, or those that training made.
    pub fn to_json(&self) -> &[u8] {
        &self.json
    }

    /// SHA-256 of [`Tokenizer::to_json`], in hexadecimal.
    pub fn sha256(&self) -> String {
        hex(&Sha256::digest(&self.json))
    }

    /// What the tokenizer is, told from its file.
    pub fn kind(&self) -> &DetectedKind {
        &self.kind
    }

    /// Largest id plus one: the rows that an embedding needs.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// What training chose and found, one sentence each; empty for a loaded tokenizer.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// [`Error::UnknownCharacter`] for a char tokenizer, with the first one and its position.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_bytes(text.as_bytes())
    }

    /// The ids of bytes, of any bytes for a byte tokenizer and of UTF-8 for others.
    ///
    /// # Errors
    /// [`Error::InputNotUtf8`], and as [`Tokenizer::encode`].
    pub fn encode_bytes(&self, bytes: &[u8]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.encode_range(bytes, 0..bytes.len(), Origin::default(), &<[u32]>::to_vec, &mut |part, _| {
            ids.extend(part);
            Ok::<_, Error>(())
        })?;
        Ok(ids)
    }

    /// The text of a sequence of ids; bytes that are no character become U+FFFD.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        match &self.decoder {
            Decoder::Table(table) => Ok(lossy(table.decode(ids)?)),
            Decoder::Foreign(foreign) => foreign.decode(ids),
        }
    }

    /// The bytes of a sequence of ids: what was encoded, byte for byte.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn decode_bytes(&self, ids: &[u32]) -> Result<Vec<u8>> {
        match &self.decoder {
            Decoder::Table(table) => table.decode(ids),
            Decoder::Foreign(foreign) => foreign.decode(ids).map(String::into_bytes),
        }
    }

    /// The text of one token, as a label; U+FFFD for a part of a character.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn token_text(&self, id: u32) -> Result<String> {
        match &self.decoder {
            Decoder::Table(table) => Ok(String::from_utf8_lossy(table.token(id)?).into_owned()),
            Decoder::Foreign(foreign) => foreign.token_text(id),
        }
    }

    /// The bytes of one token.
    ///
    /// # Errors
    /// [`Error::UnknownId`].
    pub fn token_bytes(&self, id: u32) -> Result<Vec<u8>> {
        match &self.decoder {
            Decoder::Table(table) => table.token(id).map(<[u8]>::to_vec),
            Decoder::Foreign(foreign) => foreign.token_text(id).map(String::into_bytes),
        }
    }

    /// Decodes ids as they come, in whole characters.
    pub fn stream(&self) -> DecodeStream<'_> {
        DecodeStream::new(self)
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("kind", &self.kind)
            .field("vocab_size", &self.vocab_size)
            .finish_non_exhaustive()
    }
}

/// Bytes as text; copies only when something is not a character.
fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
