//! `softdict diff`: what changed between two checkpoints on a prompt.

use crate::args::Diff as Args;
use crate::checkpoint;
use crate::machine::available_memory;
use crate::output::bytes;
use crate::prompt::{MASK, asked, softmax, token_label, whole_prompt};
use crate::{machine, output};
use anyhow::bail;
use serde::Serialize;
use softdict_inspect::Shape;
use softdict_inspect::difference::{Difference, HeadChange, difference};
use std::fmt::Write as _;

/// What is printed; the names of the JSON object.
#[derive(Debug, Serialize)]
struct Report {
    tokens: Vec<String>,
    /// Every head, the most changed first.
    heads: Vec<HeadChange>,
    /// The tokens whose probability changed most.
    predictions: Vec<Prediction>,
}

#[derive(Debug, Serialize)]
struct Prediction {
    token: String,
    before: f64,
    after: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let device = machine::prepare(&args.source.machine)?;
    let before = checkpoint::open(&args.before, args.source.which.into(), &device)?;
    let after = checkpoint::open(&args.after, args.source.which.into(), &device)?;
    if before.tokenizer.sha256() != after.tokenizer.sha256() {
        bail!(
            "{} and {} have different tokenizers, so their tokens cannot be compared",
            before.folder.display(),
            after.folder.display()
        );
    }
    let ids = whole_prompt("--prompt", &args.prompt, &before)?;
    let context = after.spoken.context();
    if ids.len() > context {
        bail!("--prompt: {} tokens, and {} sees {context} at once", ids.len(), after.folder.display());
    }
    let shape = Shape { layers: before.spoken.layers(), heads: before.spoken.heads, tokens: ids.len() };
    // of both models, as they come out of one and in one piece
    let memory = shape.weights().saturating_mul(3 * size_of::<f32>() as u64);
    if let Some(free) = available_memory().filter(|&free| memory > free) {
        bail!(
            "--prompt: the patterns of {} tokens take {}, and {} of memory are free; shorten it",
            ids.len(),
            bytes(memory),
            bytes(free)
        );
    }
    let Difference { heads, logits } =
        difference(&before.speaker()?, &after.speaker()?, &ids, asked(&ids, &before))?;
    let [old, new] = logits.map(|logits| softmax(&logits));
    let mut order: Vec<usize> = (0..old.len()).collect();
    order.sort_by(|&a, &b| (old[b] - new[b]).abs().total_cmp(&(old[a] - new[a]).abs()).then(a.cmp(&b)));
    let prediction = |&token: &usize| {
        let label = token_label(token as u32, &before)?;
        Ok(Prediction { token: label, before: old[token], after: new[token] })
    };
    let report = Report {
        tokens: ids.iter().map(|&id| token_label(id, &before)).collect::<anyhow::Result<_>>()?,
        heads,
        predictions: order.iter().take(args.top.get()).map(prediction).collect::<anyhow::Result<_>>()?,
    };
    output::text(&if args.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.lines(args.top.get())
    })
}

impl Report {
    fn lines(&self, top: usize) -> String {
        let what = if self.tokens.iter().any(|token| token == MASK) { "hidden token" } else { "next token" };
        let mut text = format!("{what}, probability before and after\n");
        for Prediction { token, before, after } in &self.predictions {
            // writing to a String cannot fail
            let _ = writeln!(text, "  {before:6.3}  {after:6.3}  {token}");
        }
        if self.heads.iter().all(|change| change.moved == 0.0) {
            return "nothing changed: the same patterns and predictions\n".to_owned();
        }
        text.push_str("\nattention that moved to other tokens, mean over rows, and where most\n");
        for change in self.heads.iter().take(top) {
            let HeadChange { head, moved, row, key, before, after } = *change;
            let _ = writeln!(
                text,
                "  {:5.1} %  head {head}, {} (token {row}) at {} (token {key}): {before:.3} before, {after:.3} after",
                100.0 * moved,
                self.tokens[row],
                self.tokens[key]
            );
        }
        text
    }
}
