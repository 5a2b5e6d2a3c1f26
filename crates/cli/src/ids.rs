//! Token ids that a model is measured on: a run's own, or those of another text.

use crate::output::notice;
use crate::progress::Bytes;
use anyhow::{Context, bail};
use softdict_files::{NEW, Unfinished};
use softdict_tokenizer::{Dataset, TextFile, Tokenizer, encode_to_file};
use std::path::Path;

/// Token ids to measure on.
pub(crate) struct Corpus {
    pub(crate) dataset: Dataset,
    /// What messages call it.
    pub(crate) name: String,
    /// Whether it is another text, all of which is in [`Dataset::train`].
    pub(crate) foreign: bool,
    /// Holds the ids of another text, and is removed with them.
    _folder: Option<(tempfile::TempDir, Unfinished)>,
}

impl Corpus {
    /// The ids of a run.
    ///
    /// # Errors
    /// When there are none, or they are those of another tokenizer.
    pub(crate) fn of_run(run: &Path, tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        let data = run.join("data");
        let dataset = Dataset::open(&data).with_context(|| {
            format!(
                "{} has no token ids of its text; commands that take a text can be given one",
                run.display()
            )
        })?;
        if dataset.record.tokenizer_sha256 != tokenizer.sha256() {
            bail!(
                "{} was made with another tokenizer than the checkpoint's; give the text after the checkpoint",
                data.display()
            );
        }
        Ok(Self { dataset, name: run.display().to_string(), foreign: false, _folder: None })
    }

    /// The ids of a text, in a private folder.
    ///
    /// # Errors
    /// When the tokenizer cannot encode it, or there is no place for them.
    pub(crate) fn of_text(text: &TextFile, tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        text.notes().iter().for_each(notice);
        let new = tempfile::Builder::new().prefix(NEW).tempdir();
        let folder = new.context("no temporary folder for the token ids (TMPDIR)")?;
        // goes when a signal ends the program, too
        let unfinished = Unfinished::new(folder.path().to_path_buf());
        let mut bytes = Bytes::new("tokenizing");
        let dataset =
            encode_to_file(tokenizer, text, folder.path(), 0.0, &mut |done, total| bytes.set(done, total))
                .with_context(|| text.name().to_owned())?;
        Ok(Self { dataset, name: text.name().to_owned(), foreign: true, _folder: Some((folder, unfinished)) })
    }
}
