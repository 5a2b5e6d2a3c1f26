//! `softdict heads`: what kind of head each head is, by its scores.

use crate::args::Heads;
use crate::checkpoint::{self, Corpus, Loaded};
use crate::{machine, output};
use anyhow::bail;
use serde::Serialize;
use softdict_inspect::scores::{HeadScores, Ranges, format_table};
use softdict_inspect::{ScoreOptions, score_heads};
use softdict_tokenizer::TokenFile;

/// Windows of text that the scores are means over: enough that another choice moves them in the third decimal.
const WINDOWS: usize = 32;
/// The longest block of random tokens, how many of them, and their seed.
const BLOCK: usize = 32;
const BLOCKS: usize = 8;
const SEED: u64 = 0;

/// One head as JSON.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    scores: &'a HeadScores,
    kind: &'static str,
}

pub(crate) fn run(args: &Heads) -> anyhow::Result<()> {
    let device = machine::prepare(&args.machine)?;
    let loaded = checkpoint::open(&args.checkpoint, args.which.into(), &device)?;
    let model = loaded.speaker()?;
    let options = ScoreOptions { block: block(&loaded)?, blocks: BLOCKS, seed: SEED };
    let corpus = loaded.corpus_or_tales(args.text.as_deref())?;
    let (tokens, name) = tokens(&corpus);
    let windows = windows(tokens, model.config().context())?;
    let Some(text_tokens) = windows.first().map(Vec::len) else {
        bail!("{name}: fewer than two tokens, so no token can look back; give a longer text");
    };
    let scores = score_heads(&model, &windows, options)?;
    if args.json {
        let entries: Vec<Entry<'_>> =
            scores.iter().map(|scores| Entry { scores, kind: scores.kind() }).collect();
        return output::text(&(serde_json::to_string_pretty(&entries)? + "\n"));
    }
    let ranges = Ranges { text_tokens, block_tokens: options.block };
    output::text(&format!(
        "means over {} windows of {text_tokens} tokens of {name}, and over {BLOCKS} random blocks\n{}\n\
         A score says where a head looks, not what the model does with it: only taking the head away and\n\
         measuring what that costs shows what it is for.\n",
        windows.len(),
        format_table(&scores, ranges, &[])?
    ))
}

/// Tokens of a block, which is repeated once and must fit in the context.
fn block(loaded: &Loaded) -> anyhow::Result<usize> {
    let config = &loaded.spoken;
    let (context, vocab) = (config.context(), config.vocab_size);
    if context < 2 || vocab < 2 {
        bail!(
            "{}: the model sees {context} tokens of a vocabulary of {vocab}; scores need two of each or more",
            loaded.folder.display()
        );
    }
    Ok((context / 2).min(vocab).min(BLOCK))
}

/// The validation split, or the text that was given.
fn tokens(corpus: &Corpus) -> (&TokenFile, String) {
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

/// Windows of the context's length, spread evenly; a shorter text is one window, a single token none.
fn windows(tokens: &TokenFile, context: usize) -> anyhow::Result<Vec<Vec<u32>>> {
    starts(tokens.len(), context)
        .map(|start| {
            let mut window = vec![0; context.min(tokens.len())];
            tokens.copy_to(start..start + window.len(), &mut window)?;
            Ok(window)
        })
        .collect()
}

/// Where the windows begin: they do not overlap, the first is at the beginning and the last at the end.
fn starts(len: usize, context: usize) -> impl Iterator<Item = usize> {
    let count = match len {
        0 | 1 => 0,
        _ => (len / context).clamp(1, WINDOWS),
    };
    let room = len.saturating_sub(context);
    (0..count).map(move |index| if count > 1 { room * index / (count - 1) } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_reach_from_the_beginning_to_the_end_without_overlap() {
        let all: Vec<usize> = starts(1_000_000, 64).collect();
        assert_eq!((all.len(), all[0], all[31]), (32, 0, 1_000_000 - 64));
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= 64));
        assert_eq!(starts(200, 64).collect::<Vec<_>>(), [0, 68, 136]);
    }

    #[test]
    fn a_short_text_is_one_window_and_a_single_token_none() {
        assert_eq!(starts(100, 64).collect::<Vec<_>>(), [0]);
        assert_eq!(starts(2, 64).collect::<Vec<_>>(), [0]);
        assert_eq!(starts(1, 64).count() + starts(0, 64).count(), 0);
    }
}
