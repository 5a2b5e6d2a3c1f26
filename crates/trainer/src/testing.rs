//! Small models and texts for the tests of this crate.

use softdict_model::{ModelConfig, ModelSettings};
use softdict_tokenizer::{Dataset, Kind, TextFile, TokenFile, Tokenizer};
use tempfile::TempDir;

/// A model of some thousand weights that knows the letters of [`dataset`] and the ids of [`token_file`].
pub(crate) fn small_config() -> ModelConfig {
    let settings = ModelSettings { layers: 2, heads: 2, width: 16, context: 8, ..Default::default() };
    ModelConfig::new(&settings, 64).unwrap()
}

/// A text of `characters` characters as token ids, the last `val_fraction` set aside.
pub(crate) fn dataset(characters: usize, val_fraction: f64) -> (TempDir, Dataset, Tokenizer) {
    let text: String = "a soft dictionary is looked up. ".chars().cycle().take(characters).collect();
    let text = TextFile::from_bytes("a test", text).unwrap();
    let tokenizer = Tokenizer::train(&Kind::Char, &text, None, &mut |_, _, _| ()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (dataset, _) =
        Dataset::open_or_encode(&tokenizer, &text, folder.path(), val_fraction, &mut |_, _| ()).unwrap();
    (folder, dataset, tokenizer)
}

/// A file of the ids 0, 1, 2, … (at most 64 of them).
pub(crate) fn token_file(len: usize) -> (TempDir, TokenFile) {
    assert!(len <= 64);
    let text: String = (0..len as u32).filter_map(|id| char::from_u32(0x4E00 + id)).collect();
    let text = TextFile::from_bytes("a test", text).unwrap();
    let tokenizer = Tokenizer::train(&Kind::Char, &text, None, &mut |_, _, _| ()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (dataset, _) =
        Dataset::open_or_encode(&tokenizer, &text, folder.path(), 0.0, &mut |_, _| ()).unwrap();
    (folder, dataset.train)
}
