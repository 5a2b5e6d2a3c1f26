//! Text to token ids and back: char, byte and BPE as `tokenizer.json`, ids on disk.
//!
//! # Why it is so
//! - **Every tokenizer is its `tokenizer.json`.** Training makes the bytes of one and then reads them, as
//!   loading does; nothing is remembered that the file does not say. So a checkpoint needs no other file,
//!   and whatever reads such files gives the same ids.
//! - **Own encoders for the common kinds, the `tokenizers` crate for the rest.** The crate keeps a string
//!   and offsets for every token; for a corpus that is a hundred times the text. Char and byte need a table,
//!   byte-level BPE needs merges and nothing else, and tests hold all three equal to the crate.
//! - **Own decoding for byte-level vocabularies.** A token may end inside a character. We join bytes and make
//!   text of them last, so decode∘encode is the identity and a stream never shows half a character.
//! - **A text is cut only where no token could cross.** Chunks are then encoded apart, on all threads, in
//!   memory that does not grow with the text, and the ids are those of the whole. Pages of a mapped file are
//!   given back as soon as they were read, and the table that merges are learned from is bounded.
//! - **Nothing depends on the number of threads, hash seeds or time**: the same text gives the same bytes.
//!
//! # Reading order
//! `kind`, `text`, `train`; `tokenizer`, `encode`, `stream`; `dataset`, `token_file`. Below them: `read` and
//! `json` (the file format in and out), `limits`, `charsmap` (what a file may ask for), `table`, `bpe`, `merge`,
//! `foreign`, `guard` (ways to encode), `split`, `chunk` (where to cut), `count`, `learn` (BPE training), `piece`,
//! `utf8`, `alphabet`, `mapped`.
//!
//! # Example
//! ```
//! use softdict_tokenizer::{Kind, TextFile, Tokenizer};
//!
//! let text = TextFile::from_bytes("a line", "the animal did not cross the street")?;
//! let tokenizer = Tokenizer::train(&Kind::Auto, &text, None, &mut |_, _, _| ())?;
//! let ids = tokenizer.encode("tame street")?;
//! assert_eq!(tokenizer.decode(&ids)?, "tame street");
//! # Ok::<(), softdict_tokenizer::Error>(())
//! ```

mod alphabet;
mod bpe;
mod charsmap;
mod chunk;
mod count;
mod dataset;
mod encode;
mod error;
mod foreign;
mod guard;
mod json;
mod kind;
mod learn;
mod limits;
mod mapped;
mod merge;
mod piece;
mod read;
mod split;
mod stream;
mod table;
mod text;
mod token_file;
mod tokenizer;
mod train;
mod utf8;

pub use dataset::{DataRecord, Dataset, SplitRecord, encode_to_file};
pub use error::{Error, Result};
pub use kind::{DetectedKind, Kind};
pub use read::MAX_VOCAB;
pub use stream::DecodeStream;
pub use text::TextFile;
pub use token_file::TokenFile;
pub use tokenizer::Tokenizer;
pub use train::{AUTO_CHARACTERS, Stage, default_vocab_size};
