//! Windows of a text that heads are looked at on.

use crate::checkpoint::Corpus;
use crate::output;
use softdict_inspect::ablation::Batch;
use softdict_model::ModelConfig;
use softdict_tokenizer::TokenFile;

/// Rows and logits of a pass, at most.
const ROWS: usize = 4096;
const LOGITS: usize = 1 << 24;

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

/// As many windows of `time` tokens to a pass as memory allows.
pub(crate) fn together(windows: &[Vec<u32>], time: usize, config: &ModelConfig) -> Vec<Batch> {
    let together = (ROWS.min(LOGITS / config.vocab_size) / time).max(1);
    windows.chunks(together).map(|windows| Batch { ids: windows.concat(), time }).collect()
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
    fn a_short_text_is_one_window_and_a_single_token_none() {
        assert_eq!(starts(100, 64, 32).collect::<Vec<_>>(), [0]);
        assert_eq!(starts(2, 64, 32).collect::<Vec<_>>(), [0]);
        assert_eq!(starts(1, 64, 32).count() + starts(0, 64, 32).count(), 0);
    }
}
