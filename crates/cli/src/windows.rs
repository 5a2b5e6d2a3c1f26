//! Windows of a text that heads are looked at on.

use crate::ids::Corpus;
use crate::output;
use softdict_inspect::FORMING;
use softdict_inspect::ablation::Batch;
use softdict_model::ModelConfig;
use softdict_tokenizer::TokenFile;
use softdict_trainer::Masking;
use std::collections::BTreeMap;

/// Rows and logits of a pass, at most.
const ROWS: usize = 1024;
const LOGITS: usize = 1 << 24;

/// Bytes of the patterns of a layer's heads over one window, at most.
const PATTERNS: usize = 1 << 30;

/// The longest window that heads are scored on: the context, or as much of it as leaves room for a layer's patterns.
pub(crate) fn longest(config: &ModelConfig) -> usize {
    let each = FORMING as usize * config.heads;
    config.context().min((PATTERNS / each).isqrt()).max(2)
}

/// The validation split, or the text that was given.
pub(crate) fn scored_tokens(corpus: &Corpus) -> (&TokenFile, String) {
    let (data, name) = (&corpus.dataset, &corpus.name);
    if corpus.foreign {
        return (&data.train, name.clone());
    }
    if data.val.len() < 2 {
        output::notice(format!("{name} has no validation split: the heads are scored on the training split"));
        return (&data.train, format!("the training split of {name}"));
    }
    (&data.val, format!("the validation split of {name}"))
}

/// As many windows to a pass as memory allows; each is one token longer than what the model reads. A model that fills in
/// hidden tokens is asked as in [`softdict_trainer::evaluate`].
pub(crate) fn together(windows: &[Vec<u32>], config: &ModelConfig, masking: Option<Masking>) -> Vec<Batch> {
    let time = windows.first().map_or(1, Vec::len).max(2) - 1;
    let together = (ROWS.min(LOGITS / config.vocab_size) / time).max(1);
    let mut batches: Vec<Batch> = windows.chunks(together).map(Batch::new).collect();
    if let Some(masking) = masking {
        let windows = batches
            .iter_mut()
            .flat_map(|Batch { ids, targets, time }| ids.chunks_mut(*time).zip(targets.chunks_mut(*time)));
        windows.enumerate().for_each(|(nth, (ids, targets))| {
            masking.hide_for_evaluation(ids, targets, nth * time);
        });
    }
    batches
}

/// Windows of the context's length and the token after, where `eval` has them: at most `most`, spread evenly. What does not
/// fill a window is left out, unless it is all there is.
pub(crate) fn predicted_windows(
    tokens: &TokenFile,
    context: usize,
    most: usize,
) -> anyhow::Result<Vec<Vec<u32>>> {
    let predicted = tokens.len().saturating_sub(1);
    let (time, whole) = (context.min(predicted), predicted / context.min(predicted).max(1));
    let count = if time == 0 { 0 } else { whole.min(most.max(1)) };
    (0..count)
        .map(|index| {
            let start = if count > 1 { (whole - 1) * index / (count - 1) * time } else { 0 };
            let mut window = vec![0; time + 1];
            tokens.copy_to(start..start + time + 1, &mut window)?;
            Ok(window)
        })
        .collect()
}

/// Windows of the context's length, at most `most` of them, spread evenly; a shorter text is one window, a single token
/// none.
pub(crate) fn windows(tokens: &TokenFile, context: usize, most: usize) -> anyhow::Result<Vec<Vec<u32>>> {
    starts(tokens.len(), context, most)
        .map(|start| {
            let mut window = vec![0; context.min(tokens.len())];
            tokens.copy_to(start..start + window.len(), &mut window)?;
            Ok(window)
        })
        .collect()
}

/// Where the windows begin: they do not overlap, the first is at the beginning and the last at the end.
fn starts(len: usize, context: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = match len {
        0 | 1 => 0,
        _ => (len / context).clamp(1, most.max(1)),
    };
    let room = len.saturating_sub(context);
    (0..count).map(move |index| if count > 1 { room * index / (count - 1) } else { 0 })
}

/// Every token of the windows once.
pub(crate) fn present(windows: &[Vec<u32>]) -> Vec<u32> {
    let mut tokens: Vec<u32> = windows.iter().flatten().copied().collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// The most frequent tokens of the windows.
pub(crate) fn frequent(windows: &[Vec<u32>], top: usize) -> Vec<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    windows.iter().flatten().for_each(|&id| *counts.entry(id).or_default() += 1);
    let mut tokens: Vec<(u32, usize)> = counts.into_iter().collect();
    tokens.sort_by_key(|&(id, count)| (std::cmp::Reverse(count), id));
    tokens.into_iter().take(top).map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_reach_from_the_beginning_to_the_end_without_overlap() {
        let all: Vec<usize> = starts(1_000_000, 64, 32).collect();
        assert_eq!((all.len(), all[0], all[31]), (32, 0, 1_000_000 - 64));
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= 64));
        assert_eq!(starts(200, 64, 32).collect::<Vec<_>>(), [0, 68, 136]);
    }

    #[test]
    fn patterns_of_a_long_context_are_looked_at_in_part() {
        let of = |layers, heads, context| {
            let width = 8 * heads;
            let settings =
                softdict_model::ModelSettings { layers, heads, width, context, ..Default::default() };
            longest(&ModelConfig::new(&settings, 10).unwrap())
        };
        assert_eq!([of(4, 4, 64), of(12, 12, 512)], [64, 512]);
        // a layer's at a time: what the other layers have does not count
        let long = of(6, 6, 1 << 20);
        assert!((3000..3500).contains(&long) && long * long * 6 * FORMING as usize <= PATTERNS, "{long}");
        assert_eq!(of(1, 6, 1 << 20), long);
    }

    #[test]
    fn a_short_text_is_one_window_and_a_single_token_none() {
        assert_eq!(starts(100, 64, 32).collect::<Vec<_>>(), [0]);
        assert_eq!(starts(2, 64, 32).collect::<Vec<_>>(), [0]);
        assert_eq!(starts(1, 64, 32).count() + starts(0, 64, 32).count(), 0);
    }

    #[test]
    fn frequent_tokens_come_first_and_ties_by_their_ids() {
        assert_eq!(frequent(&[vec![5, 2, 2], vec![3, 5, 1]], 3), [2, 5, 1]);
    }
}
