//! `--ablate`: heads that are taken away before anything is computed.

use crate::checkpoint::Loaded;
use crate::output::notice;
use crate::usage;
use crate::windows::{predicted_windows, scored_tokens, together};
use anyhow::bail;
use softdict_inspect::ablation::{self, Ablation, HeadMeans, Replacement, Replacements};
use softdict_model::{CachedTransformer, Reader, Transformer};
use std::path::Path;

/// Windows that a head's mean is taken over: of some thousand tokens another choice moves it little.
const WINDOWS: usize = 64;

/// The replacements that a command line asks for; the means are those over `text`, else over the run's own.
///
/// # Errors
/// When a head does not exist, or a mean is asked for and there is no text to take it over.
pub(crate) fn replacements(
    loaded: &Loaded,
    model: &Transformer,
    ablations: &[Ablation],
    text: Option<&Path>,
) -> anyhow::Result<Replacements> {
    ablation::check(model.config(), ablations).map_err(|error| usage(format!("--ablate: {error}")))?;
    let needed = ablations.iter().any(|ablation| ablation.by == Replacement::Mean);
    let means = needed.then(|| means(loaded, model, text)).transpose()?;
    let replacements = Replacements::new(model.config(), ablations, means.as_ref(), model.device())?;
    if !ablations.is_empty() {
        let names: Vec<String> = ablations.iter().map(ToString::to_string).collect();
        notice(format!("without heads {}", names.join(", ")));
    }
    Ok(replacements)
}

/// The model to sample from, without these heads.
///
/// # Errors
/// As [`replacements`] and [`Loaded::reader`].
pub(crate) fn reader<'a>(loaded: &'a Loaded, ablations: &[Ablation]) -> anyhow::Result<Box<dyn Reader + 'a>> {
    if ablations.is_empty() {
        return loaded.reader();
    }
    let model = loaded.speaker()?;
    let replacements = replacements(loaded, &model, ablations, None)?;
    Ok(Box::new(CachedTransformer::with_tap(model, Box::new(replacements))))
}

fn means(loaded: &Loaded, model: &Transformer, text: Option<&Path>) -> anyhow::Result<HeadMeans> {
    let corpus = loaded.corpus_or_tales(text)?;
    let (tokens, name) = scored_tokens(&corpus);
    let windows = predicted_windows(tokens, model.config().context(), WINDOWS)?;
    if windows.is_empty() {
        bail!("{name}: fewer than two tokens, so no head has a mean over it");
    }
    if text.is_none() {
        notice(format!("means of heads: over {} windows of {name}", windows.len()));
    }
    Ok(HeadMeans::over(model, &together(&windows, model.config(), loaded.masking()?))?)
}
