//! Prompts, tokens and heads as they are given on a command line.

use crate::checkpoint::Loaded;
use crate::output::grouped;
use crate::usage;
use anyhow::Context;
use softdict_inspect::labels::label;
use softdict_tokenizer::DetectedKind;

/// How a hidden token is written, in prompts and in what is shown. In the prompts of models that hide none it is text.
pub(crate) const MASK: &str = "[MASK]";

/// The ids of a text given with `flag`.
///
/// # Errors
/// When it has no token, or one that the tokenizer does not know.
pub(crate) fn prompt_ids(flag: &'static str, text: &str, loaded: &Loaded) -> anyhow::Result<Vec<u32>> {
    let ids = encode(text, loaded).context(flag)?;
    if ids.is_empty() {
        return Err(usage(format!("{flag}: the text has no token to look at")));
    }
    Ok(ids)
}

fn encode(text: &str, loaded: &Loaded) -> anyhow::Result<Vec<u32>> {
    let Some(mask) = loaded.mask() else { return Ok(loaded.tokenizer.encode(text)?) };
    let spaced = !matches!(loaded.tokenizer.kind(), DetectedKind::Char | DetectedKind::Byte);
    let mut ids = Vec::new();
    let mut before = 0;
    let mut pieces = text.split(MASK).peekable();
    while let Some(piece) = pieces.next() {
        let hides = pieces.peek().is_some();
        // where words begin with their space, the hidden word has it too
        let piece = if hides && spaced { piece.strip_suffix(' ').unwrap_or(piece) } else { piece };
        ids.extend(loaded.tokenizer.encode(piece).map_err(|error| further(error, before))?);
        before += piece.chars().count() + MASK.len();
        ids.extend(hides.then_some(mask));
    }
    Ok(ids)
}

/// The same error in a text that begins `before` characters earlier.
fn further(error: softdict_tokenizer::Error, before: usize) -> softdict_tokenizer::Error {
    use softdict_tokenizer::Error::UnknownCharacter;
    match error {
        UnknownCharacter { character, position, vocab_size } => {
            UnknownCharacter { character, position: position + before, vocab_size }
        }
        other => other,
    }
}

/// Where a prompt asks: at its last hidden token, else after its last token.
pub(crate) fn asked(ids: &[u32], loaded: &Loaded) -> usize {
    let hidden = loaded.mask().and_then(|mask| ids.iter().rposition(|&id| id == mask));
    hidden.unwrap_or(ids.len().saturating_sub(1))
}

/// As [`prompt_ids`], where all of them must fit in the context.
///
/// # Errors
/// As [`prompt_ids`]; also when there are more than the model sees at once.
pub(crate) fn whole_prompt(flag: &'static str, text: &str, loaded: &Loaded) -> anyhow::Result<Vec<u32>> {
    let ids = prompt_ids(flag, text, loaded)?;
    let context = loaded.spoken.context();
    if ids.len() > context {
        let (found, context) = (grouped(ids.len() as u64), grouped(context as u64));
        return Err(usage(format!("{flag}: {found} tokens, and the model sees {context} at once")));
    }
    Ok(ids)
}

/// The one token that a text given with `flag` is.
///
/// # Errors
/// When it is none, or several.
pub(crate) fn one_token(flag: &'static str, text: &str, loaded: &Loaded) -> anyhow::Result<u32> {
    match prompt_ids(flag, text, loaded)?.as_slice() {
        &[id] => Ok(id),
        ids => {
            // as it is shown, with its marks for spaces and line ends; or without its space
            let meant = [text.replace('·', " ").replace('⏎', "\n"), format!(" {text}")];
            let one = |text: &&String| loaded.tokenizer.encode(text).is_ok_and(|found| found.len() == 1);
            let hint = match meant.iter().find(one) {
                Some(meant) => format!("; \"{}\" is one", meant.replace('\n', "\\n")),
                None => "; give one".to_owned(),
            };
            let parts: Vec<String> =
                ids.iter().map(|&id| token_label(id, loaded)).collect::<Result<_, _>>()?;
            Err(usage(format!("{flag}: `{text}` is {} tokens ({}){hint}", ids.len(), parts.join(" "))))
        }
    }
}

/// A token's text; that of a hidden one is [`MASK`].
///
/// # Errors
/// When the tokenizer does not have it.
pub(crate) fn token_text(id: u32, loaded: &Loaded) -> anyhow::Result<String> {
    if loaded.mask() == Some(id) {
        return Ok(MASK.to_owned());
    }
    Ok(loaded.tokenizer.token_text(id)?)
}

/// A token as a person should see it.
///
/// # Errors
/// When the tokenizer does not have it.
pub(crate) fn token_label(id: u32, loaded: &Loaded) -> anyhow::Result<String> {
    Ok(label(&token_text(id, loaded)?))
}

/// The numbers given with a flag, each once; all when none is given.
///
/// # Errors
/// When there is no such number.
pub(crate) fn chosen(flag: &str, given: &[usize], count: usize) -> anyhow::Result<Vec<usize>> {
    if given.is_empty() {
        return Ok((0..count).collect());
    }
    if let Some(number) = given.iter().find(|&&number| number >= count) {
        let last = count.saturating_sub(1);
        return Err(usage(format!("{flag} {number}: the model has {count}, counted from 0 to {last}")));
    }
    Ok((0..count).filter(|number| given.contains(number)).collect())
}

/// Probabilities of the next token.
pub(crate) fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|logit| f64::from(logit - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_chosen_once_each_and_must_exist() {
        assert_eq!(chosen("--head", &[], 3).unwrap(), [0, 1, 2]);
        assert_eq!(chosen("--head", &[2, 0, 2], 3).unwrap(), [0, 2]);
        let message = chosen("--head", &[3], 3).unwrap_err().to_string();
        assert!(message.contains("--head 3") && message.contains("0 to 2"), "{message}");
    }
}
