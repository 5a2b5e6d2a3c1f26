//! A text as token ids on disk, in two splits, and the record by which a later run knows them again.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::chunk::nearest_break;
use crate::encode::Origin;
use crate::error::{Error, Result};
use crate::mapped::BLOCK_BYTES;
use crate::text::TextFile;
use crate::token_file::{Layout, TokenFile, TokenWriter};
use crate::tokenizer::{Encoder, Tokenizer};
use crate::utf8::{character_start, continues_character, count_characters};

const RECORD_FILE: &str = "data.json";
const TRAIN_FILE: &str = "train.bin";
const VAL_FILE: &str = "val.bin";
/// A record has some 500 bytes.
const MOST_RECORD: u64 = 1 << 16;
const FORMAT: u32 = 1;

/// What `data.json` says about the ids beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataRecord {
    /// Version of this record.
    pub format: u32,
    /// SHA-256 of the text file.
    pub text_sha256: String,
    /// SHA-256 of the `tokenizer.json`.
    pub tokenizer_sha256: String,
    /// Largest id plus one.
    pub vocab_size: usize,
    /// The fraction of the text set aside for validation.
    pub val_fraction: f64,
    /// The first part of the text.
    pub train: SplitRecord,
    /// The rest.
    pub val: SplitRecord,
}

/// The size of one split; tokens over bytes turns nats per token into bits per byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitRecord {
    /// Number of ids.
    pub tokens: usize,
    /// Bytes of text that they stand for.
    pub bytes: usize,
}

/// The token ids of a text, ready to sample.
#[derive(Debug)]
pub struct Dataset {
    /// What they were made from.
    pub record: DataRecord,
    /// Ids to learn from.
    pub train: TokenFile,
    /// Ids set aside; empty when `val_fraction` is 0 or the text too short.
    pub val: TokenFile,
}

impl Dataset {
    /// Opens what [`encode_to_file`] left in a folder.
    ///
    /// # Errors
    /// When a file is missing, damaged, or does not have the number of ids in the record.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let record = DataRecord::open(folder)?;
        let open = |name: &str, split: SplitRecord| {
            let file = TokenFile::open(folder.join(name))?;
            if (file.len(), file.vocab_size()) == (split.tokens, record.vocab_size) {
                return Ok(file);
            }
            let reason = format!(
                "it has {} ids of a vocabulary of {}, but {RECORD_FILE} says {} of {}",
                file.len(),
                file.vocab_size(),
                split.tokens,
                record.vocab_size
            );
            Err(Error::TokenFile { path: file.path().to_path_buf(), reason })
        };
        let (train, val) = (open(TRAIN_FILE, record.train)?, open(VAL_FILE, record.val)?);
        Ok(Self { record, train, val })
    }

    /// Opens the ids in a folder when they are those of this text, tokenizer and split, and nothing in
    /// them is damaged; else makes them. Says whether they were there.
    pub fn open_or_encode(
        tokenizer: &Tokenizer,
        text: &TextFile,
        folder: impl AsRef<Path>,
        val_fraction: f64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Self, bool)> {
        let folder = folder.as_ref();
        if let Ok(dataset) = Self::open(folder)
            && dataset.record.is_of(tokenizer, text, val_fraction)
            && dataset.train.verify().is_ok()
            && dataset.val.verify().is_ok()
        {
            return Ok((dataset, true));
        }
        encode_to_file(tokenizer, text, folder, val_fraction, progress).map(|dataset| (dataset, false))
    }
}

impl DataRecord {
    /// What the ids in a folder were made from.
    ///
    /// # Errors
    /// When the record is missing or damaged.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().join(RECORD_FILE);
        let json = softdict_files::read(&path, MOST_RECORD)
            .map_err(Error::io(&path, "read the record of the token files"))?;
        serde_json::from_slice(&json).map_err(Error::json(path.display().to_string()))
    }

    /// Whether ids with this record are what encoding would give now.
    #[expect(clippy::float_cmp, reason = "the same setting, not a computed number")]
    pub fn is_of(&self, tokenizer: &Tokenizer, text: &TextFile, val_fraction: f64) -> bool {
        self.format == FORMAT
            && self.text_sha256 == text.sha256()
            && self.tokenizer_sha256 == tokenizer.sha256()
            && self.val_fraction == val_fraction
    }
}

/// Encodes a text into `train.bin` and `val.bin` in a folder, and writes `data.json` last.
///
/// The last `val_fraction` of the characters (of the bytes, for a byte tokenizer) becomes `val.bin`; where
/// tokens are longer than a character the cut moves on to the next place where no token could straddle
/// it. Each split is encoded as a text of its own, chunk by chunk, in memory that does not grow with the
/// text. `progress` gets the bytes done and in all.
///
/// # Errors
/// For a fraction outside 0 to 1, a text that the tokenizer cannot encode, or a file that cannot be
/// written; no half-written file is left.
pub fn encode_to_file(
    tokenizer: &Tokenizer,
    text: &TextFile,
    folder: impl AsRef<Path>,
    val_fraction: f64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Dataset> {
    let folder = folder.as_ref();
    if !(0.0..1.0).contains(&val_fraction) {
        return Err(Error::ValFraction { value: val_fraction });
    }
    let cut = split_at(tokenizer, text, val_fraction)?;
    std::fs::create_dir_all(folder).map_err(Error::io(folder, "create the folder"))?;
    let record_path = folder.join(RECORD_FILE);
    // an old record must never describe a new file, whenever this run is stopped
    match std::fs::remove_file(&record_path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io(&record_path, "remove the old record")(error));
        }
        _ => {}
    }
    let mut encode = |name: &str, range: Range<usize>| {
        let layout = Layout::new(tokenizer.vocab_size());
        let mut writer = TokenWriter::create(&folder.join(name), layout)?;
        let (bytes, mut done) = (range.len(), range.start);
        let lay_out = |ids: &[u32]| layout.lay_out(ids);
        tokenizer.encode_range(text.bytes(), range, Origin::default(), &lay_out, &mut |part, end| {
            writer.push(part)?;
            text.release(done..end);
            done = end;
            progress(end as u64, text.byte_len() as u64);
            Ok(())
        })?;
        Ok(SplitRecord { tokens: writer.finish()?, bytes })
    };
    let record = DataRecord {
        format: FORMAT,
        text_sha256: text.sha256().to_owned(),
        tokenizer_sha256: tokenizer.sha256(),
        vocab_size: tokenizer.vocab_size(),
        val_fraction,
        train: encode(TRAIN_FILE, 0..cut)?,
        val: encode(VAL_FILE, cut..text.byte_len())?,
    };
    let mut json = serde_json::to_vec_pretty(&record).map_err(Error::json(RECORD_FILE))?;
    json.push(b'\n');
    softdict_files::write(&record_path, &json).map_err(Error::io(&record_path, "write the record"))?;
    Dataset::open(folder)
}

/// The byte at which validation starts.
fn split_at(tokenizer: &Tokenizer, text: &TextFile, val_fraction: f64) -> Result<usize> {
    let bytes = text.bytes();
    if let Encoder::Byte = tokenizer.encoder {
        let val = (val_fraction * bytes.len() as f64).round() as usize;
        return Ok(character_start(bytes, bytes.len() - val));
    }
    let val = (val_fraction * text.character_count()? as f64).round() as usize;
    let cut = last_characters(text, val);
    Ok(if let Encoder::Char(_) = tokenizer.encoder { cut } else { nearest_break(bytes, cut) })
}

/// The byte at which the last `count` characters of a text start.
fn last_characters(text: &TextFile, mut count: usize) -> usize {
    let bytes = text.bytes();
    let mut end = bytes.len();
    while count > 0 && end > 0 {
        let start = end.saturating_sub(BLOCK_BYTES);
        let block = &bytes[start..end];
        let found = count_characters(block);
        if found >= count {
            let starts = block.iter().enumerate().filter(|&(_, &byte)| !continues_character(byte));
            return starts.map(|(at, _)| start + at).nth(found - count).unwrap_or(start);
        }
        text.release(start..end);
        (count, end) = (count - found, start);
    }
    end
}
