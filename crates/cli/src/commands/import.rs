//! `softdict import`: a folder that transformers wrote, as a checkpoint: checked once, in f32, with a hash of every file.

use super::export::refuse_taken;
use crate::args::Import;
use crate::checkpoint;
use crate::output::{grouped, notice};
use anyhow::bail;
use softdict_checkpoint::{Contents, Which, save};
use softdict_tokenizer::Tokenizer;

pub(crate) fn run(args: &Import) -> anyhow::Result<()> {
    refuse_taken(&args.out)?;
    let (folder, _, found) = checkpoint::load(&args.folder, Which::Best)?;
    let file = folder.join("tokenizer.json").display().to_string();
    let Some(json) = &found.tokenizer else {
        bail!(
            "{file} is missing: softdict reads no other form of a tokenizer (transformers writes it with tokenizer.save_pretrained)"
        );
    };
    let tokens = Tokenizer::from_bytes(json.clone(), &file)?.vocab_size();
    let rows = found.config.vocab_size;
    if tokens > rows {
        bail!(
            "{file} has {tokens} tokens, but the embedding has {rows} rows: they belong to different models"
        );
    }
    let contents = Contents {
        config: &found.config,
        parameters: &found.parameters,
        tokenizer: Some(json),
        progress: found.manifest.map(|manifest| manifest.progress).unwrap_or_default(),
        trainer: None,
    };
    save(&args.out, &contents)?;
    notice(format!(
        "{}: {} parameters, {} tokens, from {}",
        args.out.display(),
        grouped(found.parameters.values().len() as u64),
        grouped(tokens as u64),
        folder.display()
    ));
    Ok(())
}
