//! `softdict tales`: what a model learned of the tales, as the documents show it, but by trained heads.

mod questions;

use crate::args::Tales as Args;
use crate::checkpoint::{self, Loaded};
use crate::prompt::token_text;
use crate::{machine, output};
use anyhow::{Context, bail};
use questions::{Question, likeliest, pair, passes, place};
use serde::Serialize;
use softdict_corpus::{Part, Tale, line_at};
use softdict_inspect::ablation::HeadId;
use softdict_inspect::patch::{Restored, patch};
use softdict_inspect::{InspectError, capture};
use softdict_model::Transformer;
use std::fmt::Write as _;

/// A seed that neither training nor evaluation draws from.
const SEED: u64 = 99;
/// Pairs of sentences that differ in the adjective alone, for patching.
const PAIRS: u64 = 24;
/// Parts that are named.
const SHOWN: usize = 6;
/// From which share on a part carries nearly all of the choice.
const NEARLY_ALL: f64 = 0.9;

/// What is printed; the names of the JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// What it does with tables; none where its vocabulary lacks their words.
    #[serde(flatten)]
    tables: Option<Tables>,
    /// What it does with pronouns; none where its vocabulary lacks their words.
    #[serde(flatten)]
    sentences: Option<Sentences>,
}

#[derive(Debug, Serialize)]
struct Tables {
    /// Tables that training never showed.
    dictionaries: Kind,
    /// Of these, pairs that training never showed in any table.
    held_out_dictionaries: Kind,
    /// One table, and what the head looks at when each key is asked.
    table: Table,
}

#[derive(Debug, Serialize)]
struct Sentences {
    /// Sentences with a noun and an adjective that training never showed together.
    pronouns: Kind,
    /// Pairs of sentences that the model answers differently, of those tried.
    pairs: u32,
    /// What carries the choice of the referent over these, the most first.
    carriers: Vec<Carrier>,
    /// Whether the model sees both ways and tells the noun at the pronoun's own place.
    fills_in: bool,
}

/// Lines of one kind.
#[derive(Debug, Serialize)]
struct Kind {
    lines: u64,
    questions: usize,
    right: usize,
    /// The head with the most attention from where the answer is predicted to the right entry, and how much that is.
    head: HeadId,
    entry: f64,
    /// The same head's attention to all wrong entries.
    others: f64,
}

impl Kind {
    fn percent(&self) -> f64 {
        100.0 * self.right as f64 / self.questions.max(1) as f64
    }
}

#[derive(Debug, Serialize)]
struct Table {
    text: String,
    values: Vec<String>,
    rows: Vec<Asked>,
}

#[derive(Debug, Serialize)]
struct Asked {
    key: String,
    /// On each value of the table.
    attention: Vec<f32>,
    answer: String,
    right: bool,
}

/// A part of the model, where it acts, and what share of the answer its activation brings back.
#[derive(Debug, Serialize)]
struct Carrier {
    part: String,
    token: &'static str,
    share: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let device = machine::prepare(&args.source.machine)?;
    let loaded = checkpoint::open(&args.checkpoint, args.source.which.into(), &device)?;
    let report = report(&loaded, args.lines.into())?;
    output::text(&if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.lines() })
}

/// What a model learned of the tales, over `count` lines of each kind that its vocabulary has the words of.
///
/// # Errors
/// When it has the words of none, or the model fails.
pub(crate) fn report(loaded: &Loaded, count: u64) -> anyhow::Result<Report> {
    let model = loaded.speaker()?;
    let fills_in = loaded.mask().is_some();
    let tale = if fills_in { Tale::Referents } else { Tale::Pronouns };
    let reads = |tale| passes(loaded, &line_at(tale, Part::HeldOut, SEED, 0)).map(|_| ());
    let (tables, sentences) = (reads(Tale::Dictionaries), reads(tale));
    if let (Err(error), Err(_)) = (&sentences, &tables) {
        bail!("{error:#}");
    }
    Ok(Report {
        tables: tables.ok().map(|()| self::tables(loaded, &model, count)).transpose()?,
        sentences: sentences.ok().map(|()| self::sentences(loaded, &model, tale, count)).transpose()?,
    })
}

fn tables(loaded: &Loaded, model: &Transformer, count: u64) -> anyhow::Result<Tables> {
    let dictionaries = measure(loaded, model, Tale::Dictionaries, Part::Training, count)?;
    Ok(Tables {
        table: table(loaded, model, dictionaries.head)?,
        dictionaries,
        held_out_dictionaries: measure(loaded, model, Tale::Dictionaries, Part::HeldOut, count)?,
    })
}

fn sentences(loaded: &Loaded, model: &Transformer, tale: Tale, count: u64) -> anyhow::Result<Sentences> {
    let (pairs, carriers) = carriers(loaded, model, tale)?;
    Ok(Sentences {
        pronouns: measure(loaded, model, tale, Part::HeldOut, count)?,
        pairs,
        carriers,
        fills_in: loaded.mask().is_some(),
    })
}

fn all_heads(model: &Transformer) -> (Vec<usize>, Vec<usize>) {
    let config = model.config();
    ((0..config.layers()).collect(), (0..config.heads).collect())
}

fn measure(loaded: &Loaded, model: &Transformer, tale: Tale, part: Part, count: u64) -> anyhow::Result<Kind> {
    let (layers, heads) = all_heads(model);
    let mut sums = vec![[0.0f64; 2]; layers.len() * heads.len()];
    let (mut questions, mut right) = (0, 0);
    for index in 0..count {
        for pass in passes(loaded, &line_at(tale, part, SEED, index))? {
            let ids = &pass.ids;
            let guesses = likeliest(model, ids)?;
            let patterns = capture(model, ids, &layers, &heads)?;
            // of held-out lines only the answers that training never showed
            let asked = pass.questions.iter().filter(|own| own.held_out == (part == Part::HeldOut));
            for Question { at, answer, entry, others, .. } in asked {
                questions += 1;
                right += usize::from(guesses[*at] == *answer);
                for (sums, pattern) in sums.iter_mut().zip(patterns.chunks_exact(ids.len() * ids.len())) {
                    let row = &pattern[at * ids.len()..(at + 1) * ids.len()];
                    sums[0] += f64::from(row[*entry]);
                    sums[1] += others.iter().map(|&other| f64::from(row[other])).sum::<f64>();
                }
            }
        }
    }
    let best = (0..sums.len()).max_by(|&a, &b| sums[a][0].total_cmp(&sums[b][0])).unwrap_or(0);
    let [entry, others] = sums[best].map(|sum| sum / questions.max(1) as f64);
    let head = HeadId { layer: best / heads.len(), head: best % heads.len() };
    Ok(Kind { lines: count, questions, right, head, entry, others })
}

/// The documents' table, made by a trained head: one table, asked for each of its keys.
fn table(loaded: &Loaded, model: &Transformer, head: HeadId) -> anyhow::Result<Table> {
    let line = line_at(Tale::Dictionaries, Part::Training, SEED, 0);
    let (table, _) = line.text.split_once(" ;").context("a dictionary line has a table and questions")?;
    let pairs: Vec<(&str, &str)> =
        table.trim_start_matches("table ").split(" , ").filter_map(|pair| pair.split_once(' ')).collect();
    let mut rows = Vec::new();
    for (key, value) in &pairs {
        let text = format!("{table} ; {key}");
        let mut ids = loaded.tokenizer.encode(&text)?;
        ids.extend(loaded.mask());
        let last = ids.len() - 1;
        let pattern = capture(model, &ids, &[head.layer], &[head.head])?;
        let mut attention = Vec::new();
        for (_, value) in &pairs {
            let found = table.find(&format!(" {value}")).unwrap_or(0);
            let at = place(loaded, &text, &(found + 1..found + 1 + value.len()), &ids)?;
            attention.push(pattern[last * ids.len() + at]);
        }
        let answer = token_text(likeliest(model, &ids)?[last], loaded)?;
        let right = answer.trim() == *value;
        rows.push(Asked { key: (*key).to_owned(), attention, answer: answer.trim().to_owned(), right });
    }
    let values = pairs.iter().map(|(_, value)| (*value).to_owned()).collect();
    Ok(Table { text: format!("{table} ;"), values, rows })
}

/// What carries the choice: sentences that differ in the adjective alone, one activation of the one put into the other.
fn carriers(loaded: &Loaded, model: &Transformer, sentences: Tale) -> anyhow::Result<(u32, Vec<Carrier>)> {
    let (layers, heads) = all_heads(model);
    // at the adjective, at the row that answers, and elsewhere
    let mut sums = vec![[0.0f64; 3]; layers.len() * (heads.len() + 1)];
    let mut pairs = 0u32;
    for index in 0..PAIRS {
        let line = line_at(sentences, Part::HeldOut, SEED, index);
        let Some(pair) = pair(loaded, &line)? else { continue };
        let Restored { heads: of_heads, ffn, .. } = match patch(model, pair.prompts(), &mut |_, _| ()) {
            // a model that has not learned it yet gives both sentences the same answer
            Err(InspectError::NothingToPatch { .. }) => continue,
            restored => restored?,
        };
        for (layer, (of_heads, ffn)) in of_heads.iter().zip(&ffn).enumerate() {
            for (nth, shares) in of_heads.iter().chain([ffn]).enumerate() {
                let sums = &mut sums[layer * (heads.len() + 1) + nth];
                let (cue, at) = (shares[pair.cue], shares[pair.at]);
                for (sum, share) in sums.iter_mut().zip([cue, at, shares.iter().sum::<f64>() - cue - at]) {
                    *sum += share;
                }
            }
        }
        pairs += 1;
    }
    let mut carriers = Vec::new();
    for (index, sums) in sums.iter().enumerate() {
        let (layer, nth) = (index / (heads.len() + 1), index % (heads.len() + 1));
        let part = if nth < heads.len() { format!("head {layer}.{nth}") } else { format!("FFN {layer}") };
        let asked =
            if loaded.mask().is_some() { "at the pronoun's place" } else { "where the noun is asked for" };
        for (token, sum) in ["at the adjective", asked, "elsewhere"].into_iter().zip(sums) {
            carriers.push(Carrier { part: part.clone(), token, share: sum / f64::from(pairs.max(1)) });
        }
    }
    carriers.sort_by(|a, b| b.share.abs().total_cmp(&a.share.abs()));
    Ok((pairs, carriers))
}

impl Report {
    /// The report as text.
    pub(crate) fn lines(&self) -> String {
        let mut text = self.tables.as_ref().map_or(String::new(), Tables::lines);
        if let Some(sentences) = &self.sentences {
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(gap);
            text.push_str(&sentences.lines());
        }
        text
    }
}

impl Tables {
    fn lines(&self) -> String {
        let mut text = String::new();
        let Kind { lines, questions, head, entry, others, .. } = &self.dictionaries;
        let held_out = &self.held_out_dictionaries;
        // writing to a String cannot fail
        let _ = writeln!(
            text,
            "DICTIONARIES: {questions} questions of {lines} tables that training never showed: {:.1} % right\n\
             {} {entry:.3} of its attention on the right entry, {others:.3} on all wrong ones\n\
             {} questions about pairs that training never showed in any table: {:.1} % right{}\n\n  {}",
            self.dictionaries.percent(),
            if *entry >= 0.5 {
                format!("head {head} looks them up:")
            } else {
                format!("of all heads, {head} looks there most:")
            },
            held_out.questions,
            held_out.percent(),
            if held_out.percent() < self.dictionaries.percent() - 10.0 {
                ": it has also learned\nwhich pairs never come, and holds that against the table"
            } else {
                ""
            },
            self.table.text
        );
        let _ = write!(text, "  asked     ");
        for value in &self.table.values {
            let _ = write!(text, "{value:>10}");
        }
        text.push_str("  answer\n");
        for Asked { key, attention, answer, right } in &self.table.rows {
            let _ = write!(text, "  {key:<10}");
            for weight in attention {
                let _ = write!(text, "{weight:>10.3}");
            }
            let _ = writeln!(text, "  {answer}{}", if *right { "" } else { " (wrong)" });
        }
        text
    }
}

impl Sentences {
    fn lines(&self) -> String {
        let Kind { lines, questions, head, entry, others, .. } = &self.pronouns;
        let place = if self.fills_in {
            "at the pronoun's own place, which is hidden"
        } else {
            "where it is asked for"
        };
        let mut text = format!(
            "PRONOUNS: {questions} of {lines} sentences, with a noun and an adjective that training never showed together: \
             {:.1} % right\nof all heads, {head} has the most attention on the right noun {place}: {entry:.3}, and \
             {others:.3} on the wrong ones\n\n",
            self.pronouns.percent(),
        );
        if self.pairs == 0 {
            text.push_str("Another adjective changes no answer, so there is no choice to carry: it is not learned yet.\n");
            return text;
        }
        // writing to a String cannot fail
        let _ = writeln!(
            text,
            "What carries the choice: {} pairs of sentences that differ in the adjective alone, one activation of the one put into\n\
             the other; mean share of the answer that this brings back, directly and through what comes after it",
            self.pairs
        );
        for Carrier { part, token, share } in self.carriers.iter().take(SHOWN) {
            let _ = writeln!(text, "  {:>6.1} %  {part} {token}", 100.0 * share);
        }
        // of carriers in a row, each alone brings back what passes through it
        let whole = self.carriers.iter().filter(|carrier| carrier.share >= NEARLY_ALL).count();
        text.push_str(match whole {
            0 => "No single part carries it all.\n",
            1 => "One part carries nearly all of it.\n",
            _ => "Several parts carry nearly all of it, one after the other.\n",
        });
        text
    }
}
