//! Lines of the tales as a model reads them: which row of which pass gives each answer, and where its words are.

use crate::checkpoint::Loaded;
use anyhow::{Context, bail};
use candle_core::IndexOp;
use softdict_corpus::{Answer, Class, Line};
use softdict_inspect::patch::Prompts;
use softdict_model::{NoTap, Transformer};
use std::ops::Range;

/// One pass over a line, and what it answers.
pub(super) struct Pass {
    pub(super) ids: Vec<u32>,
    pub(super) questions: Vec<Question>,
}

/// An answer to be given: places are rows of the pass.
pub(super) struct Question {
    /// The row whose logits give it: the one before the word, or the hidden word itself.
    pub(super) at: usize,
    /// The word's id.
    pub(super) answer: u32,
    /// Where it must be looked up.
    pub(super) entry: usize,
    /// What ties it to the question.
    pub(super) cue: usize,
    /// Where the wrong ones are.
    pub(super) others: Vec<usize>,
    pub(super) held_out: bool,
}

/// Two sentences that differ in the adjective alone.
pub(super) struct Pair {
    clean: Vec<u32>,
    corrupt: Vec<u32>,
    answer: u32,
    against: u32,
    /// Where the adjective is, and the row that answers.
    pub(super) cue: usize,
    pub(super) at: usize,
}

impl Pair {
    pub(super) fn prompts(&self) -> Prompts<'_> {
        let Self { clean, corrupt, answer, against, at, .. } = self;
        Prompts { clean, corrupt, answer: *answer, against: *against, at: *at }
    }
}

/// Where the word at `range` is among the tokens of `text`.
///
/// # Errors
/// When it is not one token: then its parts tell each other, and nothing is looked up.
pub(super) fn place(loaded: &Loaded, text: &str, range: &Range<usize>, ids: &[u32]) -> anyhow::Result<usize> {
    let until = |end: usize| loaded.tokenizer.encode(text.get(..end).unwrap_or_default());
    // a word follows a space, which belongs to it
    let (before, without) = (until(range.end)?, until(range.start.saturating_sub(1))?);
    if before.len() != without.len() + 1 || !ids.starts_with(&before) || !ids.starts_with(&without) {
        bail!(
            "{}: its tokens are not words of the tales, so their places cannot be told",
            loaded.folder.display()
        );
    }
    Ok(before.len() - 1)
}

/// The passes that answer a line: one for a model that reads on, one for each answer where the answer is hidden.
pub(super) fn passes(loaded: &Loaded, line: &Line) -> anyhow::Result<Vec<Pass>> {
    let reads = || format!("{} cannot read the tales", loaded.folder.display());
    let ids = loaded.tokenizer.encode(&line.text).with_context(reads)?;
    let context = loaded.spoken.context();
    if ids.len() > context {
        bail!("a line of the tales is {} tokens here, and the model sees {context} at once", ids.len());
    }
    let at = |range: &Range<usize>| place(loaded, &line.text, range, &ids);
    let question = |answer: &Answer| -> anyhow::Result<Question> {
        let word = at(&answer.word)?;
        Ok(Question {
            at: if loaded.mask().is_some() { word } else { word.saturating_sub(1) },
            answer: ids[word],
            entry: at(&answer.entry)?,
            cue: at(&answer.cue)?,
            others: answer.others.iter().map(at).collect::<anyhow::Result<_>>()?,
            held_out: answer.held_out,
        })
    };
    let questions: Vec<Question> = line.answers.iter().map(question).collect::<anyhow::Result<_>>()?;
    let Some(mask) = loaded.mask() else { return Ok(vec![Pass { ids, questions }]) };
    let hidden = questions.into_iter().map(|question| {
        let mut ids = ids.clone();
        ids[question.at] = mask;
        Pass { ids, questions: vec![question] }
    });
    Ok(hidden.collect())
}

/// The likeliest token at each row.
pub(super) fn likeliest(model: &Transformer, ids: &[u32]) -> anyhow::Result<Vec<u32>> {
    let logits = model.forward(ids, ids.len(), &mut NoTap)?;
    Ok(logits.i(0)?.argmax(1)?.to_vec1()?)
}

/// A sentence, and the same with an adjective of another noun's class; none where that changes the number of tokens.
pub(super) fn pair(loaded: &Loaded, line: &Line) -> anyhow::Result<Option<Pair>> {
    let Some(answer) = line.answers.first() else { return Ok(None) };
    let Some(other) = answer.others.first() else { return Ok(None) };
    let Some(class) = Class::of_noun(line.word(other)) else { return Ok(None) };
    let Some(adjective) = class.adjectives().first() else { return Ok(None) };
    let Some(Pass { ids, questions }) = passes(loaded, line)?.into_iter().next() else { return Ok(None) };
    let Some(question) = questions.into_iter().next() else { return Ok(None) };
    let text = &line.text;
    let changed = format!("{}{adjective}{}", &text[..answer.cue.start], &text[answer.cue.end..]);
    let mut corrupt = loaded.tokenizer.encode(&changed)?;
    if corrupt.len() != ids.len() {
        return Ok(None);
    }
    let Question { at, answer, cue, .. } = question;
    let against = ids[question.others[0]];
    // what comes after the row says nothing to a causal model, and the hidden word must be hidden in both
    let end = if loaded.mask().is_some() { ids.len() } else { at + 1 };
    corrupt[at] = ids[at];
    Ok(Some(Pair { clean: ids[..end].to_vec(), corrupt: corrupt[..end].to_vec(), answer, against, cue, at }))
}
