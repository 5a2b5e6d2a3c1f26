//! `softdict patch`: which activations carry the difference between two prompts.

use crate::args::Patch as Args;
use crate::checkpoint;
use crate::progress::Passes;
use crate::prompt::{MASK, asked, one_token, token_label, whole_prompt};
use crate::{machine, output, usage};
use serde::Serialize;
use softdict_inspect::patch::{Prompts, Restored, likeliest, patch};
use std::fmt::Write as _;

/// Shares below this are not listed.
const LEAST: f64 = 0.005;
/// A change of the logit difference that is hardly one: less than a tenth more odds.
const HARDLY: f64 = 0.1;

/// What is printed; the names of the JSON object.
#[derive(Debug, Serialize)]
struct Report {
    /// The tokens of both prompts.
    clean_tokens: Vec<String>,
    corrupt_tokens: Vec<String>,
    /// The answers that are compared.
    token: String,
    against: String,
    #[serde(flatten)]
    restored: Restored,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let device = machine::prepare(&args.source.machine)?;
    let loaded = checkpoint::open(&args.checkpoint, args.source.which.into(), &device)?;
    let model = loaded.speaker()?;
    let clean = whole_prompt("--clean", &args.clean, &loaded)?;
    let corrupt = whole_prompt("--corrupt", &args.corrupt, &loaded)?;
    if clean.len() != corrupt.len() {
        return Err(usage(format!(
            "--clean has {} tokens and --corrupt {}: places can only be compared where both have as many",
            clean.len(),
            corrupt.len()
        )));
    }
    let at = asked(&clean, &loaded);
    if at != asked(&corrupt, &loaded) {
        return Err(usage(format!("--clean and --corrupt must hide their last {MASK} at the same place")));
    }
    let answer = |flag, text: &Option<String>, ids: &[u32]| match text {
        Some(text) => one_token(flag, text, &loaded),
        None => Ok(likeliest(&model, ids, at)?),
    };
    let (token, against) =
        (answer("--token", &args.token, &clean)?, answer("--against", &args.against, &corrupt)?);
    if token == against {
        let label = token_label(token, &loaded)?;
        return Err(usage(format!(
            "both prompts are answered by {label}; choose with --token and --against"
        )));
    }
    let prompts = Prompts { clean: &clean, corrupt: &corrupt, answer: token, against, at };
    let mut passes = Passes::new("patching");
    let restored = patch(&model, prompts, &mut |done, total| passes.set(done, total))?;
    drop(passes);
    let labels =
        |ids: &[u32]| ids.iter().map(|&id| token_label(id, &loaded)).collect::<anyhow::Result<Vec<_>>>();
    let report = Report {
        clean_tokens: labels(&clean)?,
        corrupt_tokens: labels(&corrupt)?,
        token: token_label(token, &loaded)?,
        against: token_label(against, &loaded)?,
        restored,
    };
    output::text(&if args.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        report.lines(args.top.get())
    })
}

impl Report {
    fn lines(&self, top: usize) -> String {
        let Self { token, against, restored, .. } = self;
        let difference = restored.clean - restored.corrupt;
        let hardly = if difference.abs() < HARDLY {
            "the model hardly tells the two prompts apart: shares of so little may be large and mean nothing\n"
        } else {
            ""
        };
        let mut text = format!(
            "logit of {token} over {against}: {:.3} on the clean prompt, {:.3} on the corrupt one\n\
             what one activation of the clean prompt brings back of that, put into the corrupt one, directly and through what comes\n\
             after it: so shares overlap, and may exceed 100 %\n{hardly}",
            restored.clean, restored.corrupt
        );
        self.push(&mut text, top, "residual stream before block", by_layer(&restored.residual));
        let heads = restored.heads.iter().enumerate().flat_map(|(layer, heads)| {
            heads.iter().enumerate().map(move |(head, shares)| (format!("{layer}.{head}"), shares.as_slice()))
        });
        self.push(&mut text, top, "head", heads);
        self.push(&mut text, top, "FFN", by_layer(&restored.ffn));
        text
    }

    /// The places that bring back most, either way.
    fn push<'a>(
        &self,
        text: &mut String,
        top: usize,
        kind: &str,
        places: impl Iterator<Item = (String, &'a [f64])>,
    ) {
        let mut all: Vec<(String, usize, f64)> = places
            .flat_map(|(name, shares)| {
                shares.iter().enumerate().map(move |(position, &share)| (name.clone(), position, share))
            })
            .collect();
        all.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
        text.push('\n');
        for (name, position, share) in all.into_iter().take(top).filter(|(_, _, share)| share.abs() >= LEAST)
        {
            let (clean, corrupt) = (&self.clean_tokens[position], &self.corrupt_tokens[position]);
            let token = if clean == corrupt { clean.clone() } else { format!("{clean} for {corrupt}") };
            // writing to a String cannot fail
            let _ = writeln!(text, "{:>8.1} %  {kind} {name}, token {position} ({token})", 100.0 * share);
        }
    }
}

fn by_layer(layers: &[Vec<f64>]) -> impl Iterator<Item = (String, &[f64])> {
    layers.iter().enumerate().map(|(layer, shares)| (layer.to_string(), shares.as_slice()))
}
