//! `softdict.json`: how far training was, and the SHA-256 of every other file of the checkpoint.

use crate::error::{Error, Result};
use crate::file::{read_limited, regular};
use crate::run::is_plain;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

/// The manifest's file name.
pub(crate) const MANIFEST: &str = "softdict.json";
/// The state of the trainer, which may be deleted to save space.
pub(crate) const TRAINER: &str = "trainer.safetensors";
/// The newest format that this version knows.
const FORMAT: u32 = 1;
/// A manifest has one line per file.
const MOST_BYTES: u64 = 1 << 20;
/// Bytes hashed at a time, which stay in a core's second cache.
const BUFFER: usize = 1 << 18;

/// How far training was when the checkpoint was written.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Finished updates.
    pub step: u64,
    /// Tokens that training has seen.
    pub tokens: u64,
    /// Mean loss of recent training batches, in nats per token.
    pub train_loss: Option<f64>,
    /// Loss on the validation split, in nats per token, when it was evaluated at this step.
    pub val_loss: Option<f64>,
}

/// Size and hash of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

impl FileRecord {
    /// The record of a file with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: format!("{:x}", Sha256::digest(bytes)) }
    }
}

/// The SHA-256 of a file in hexadecimal.
fn sha256(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut BufReader::with_capacity(BUFFER, File::open(path)?), &mut hash)?;
    Ok(format!("{:x}", hash.finalize()))
}

/// The manifest of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format of this file.
    pub format: u32,
    /// Version of softdict that wrote the checkpoint.
    pub version: String,
    /// How far training was.
    pub progress: Progress,
    /// Every other file, by name.
    pub files: BTreeMap<String, FileRecord>,
}

impl Manifest {
    /// The manifest of a checkpoint that this version writes.
    pub(crate) fn new(progress: Progress, files: BTreeMap<String, FileRecord>) -> Self {
        Self { format: FORMAT, version: env!("CARGO_PKG_VERSION").to_owned(), progress, files }
    }

    /// The manifest of the checkpoint in `folder`; folders that transformers wrote have none.
    ///
    /// # Errors
    /// When it cannot be read, is no manifest, or is of a newer format.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MANIFEST);
        if !path.exists() {
            return Ok(None);
        }
        let manifest: Self =
            serde_json::from_slice(&read_limited(&path, MOST_BYTES)?).map_err(Error::json(&path))?;
        if manifest.format > FORMAT {
            return Err(Error::Newer { path, found: manifest.format, known: FORMAT });
        }
        if let Some(name) = manifest.files.keys().find(|name| !is_plain(name)) {
            return Err(Error::Name { folder: folder.to_path_buf(), name: name.clone() });
        }
        Ok(Some(manifest))
    }

    /// Compares those files with what was saved whose names are `wanted`.
    ///
    /// # Errors
    /// Names the first file that is missing or differs.
    pub(crate) fn verify(&self, folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
        self.files.keys().filter(|name| wanted(name)).try_for_each(|name| self.verify_file(folder, name))
    }

    /// Compares one file with what was saved; a file that the manifest does not list is let through.
    pub(crate) fn verify_file(&self, folder: &Path, name: &str) -> Result<()> {
        let Some(record) = self.files.get(name) else { return Ok(()) };
        let path = folder.join(name);
        if !path.exists() {
            return Err(Error::Missing { path, need: "softdict.json lists it as part of the checkpoint" });
        }
        let bytes = regular(&path)?;
        if bytes != record.bytes {
            let (found, recorded) = (format!("{bytes} bytes"), format!("{} bytes", record.bytes));
            return Err(Error::Differs { path, what: "size", found, recorded });
        }
        let found = sha256(&path).map_err(Error::io(&path, "read the file"))?;
        if found == record.sha256 {
            return Ok(());
        }
        Err(Error::Differs { path, what: "SHA-256", found, recorded: record.sha256.clone() })
    }
}
