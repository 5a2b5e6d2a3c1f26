//! `softdict lens`: what each layer would predict, and which parts of the model a logit comes from.

use crate::ablate::replacements;
use crate::args::Lens as Args;
use crate::checkpoint::{self, Loaded};
use crate::prompt::{asked, one_token, softmax, token_label, whole_prompt};
use crate::{machine, output, usage};
use serde::Serialize;
use softdict_inspect::lens::{Lens, Part};
use std::fmt::Write as _;

/// What is printed; the names of the JSON object.
#[derive(Debug, Serialize)]
struct Report {
    /// The token after which something is predicted, or that is hidden, and its place in the prompt.
    after: String,
    position: usize,
    /// Whether the model fills in what is hidden there, instead of telling what comes after.
    #[serde(skip)]
    at: bool,
    /// What the stream would predict before each block, and after the last.
    depths: Vec<Depth>,
    /// The token whose logit is taken apart.
    token: String,
    /// The token over which its lead is taken apart, if any.
    against: Option<String>,
    /// The logit, or the lead.
    logit: f64,
    /// Its shares, the largest first; they sum to it.
    shares: Vec<Share>,
}

#[derive(Debug, Serialize)]
struct Depth {
    /// Blocks passed.
    blocks: usize,
    /// The likeliest tokens.
    top: Vec<Guess>,
    /// Place of the token among all, from 1, and its probability.
    rank: usize,
    probability: f64,
}

#[derive(Debug, Serialize)]
struct Guess {
    token: String,
    probability: f64,
}

#[derive(Debug, Serialize)]
struct Share {
    part: Part,
    share: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let device = machine::prepare(&args.source.machine)?;
    let loaded = checkpoint::open(&args.checkpoint, args.source.which.into(), &device)?;
    let model = loaded.speaker()?;
    let ids = whole_prompt("--prompt", &args.prompt, &loaded)?;
    let last = ids.len() - 1;
    let position = args.position.unwrap_or_else(|| asked(&ids, &loaded));
    if position > last {
        return Err(usage(format!("--position {position}: the prompt has tokens 0 to {last}")));
    }
    let mut replacements = replacements(&loaded, &model, &args.ablate, None)?;
    let lens = Lens::new(&model, &loaded.parameters, &ids, position, &mut replacements)?;
    let wanted =
        |flag, text: &Option<String>| text.as_deref().map(|text| one_token(flag, text, &loaded)).transpose();
    let token = match wanted("--token", &args.token)? {
        Some(token) => token,
        None => best(lens.depths.last().map_or(&[], Vec::as_slice)),
    };
    let against = wanted("--against", &args.against)?;
    let mut shares = lens.shares(&loaded.spoken, &loaded.parameters, token, against)?;
    shares.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let depths = lens.depths.iter().enumerate();
    let report = Report {
        after: token_label(ids[position], &loaded)?,
        position,
        at: !loaded.spoken.settings.causal,
        depths: depths
            .map(|(depth, logits)| self::depth(depth, logits, token, args.top.get(), &loaded))
            .collect::<anyhow::Result<_>>()?,
        token: token_label(token, &loaded)?,
        against: against.map(|token| token_label(token, &loaded)).transpose()?,
        logit: shares.iter().map(|(_, share)| share).sum(),
        shares: shares.into_iter().map(|(part, share)| Share { part, share }).collect(),
    };
    output::text(&if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.lines() })
}

/// The likeliest token; the first of several.
fn best(logits: &[f32]) -> u32 {
    ranked(logits).first().map_or(0, |&token| token as u32)
}

/// All tokens, the likeliest first.
fn ranked(logits: &[f32]) -> Vec<usize> {
    let mut tokens: Vec<usize> = (0..logits.len()).collect();
    tokens.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    tokens
}

fn depth(blocks: usize, logits: &[f32], token: u32, top: usize, loaded: &Loaded) -> anyhow::Result<Depth> {
    let probabilities = softmax(logits);
    let order = ranked(logits);
    let guess = |&token: &usize| {
        Ok(Guess { token: token_label(token as u32, loaded)?, probability: probabilities[token] })
    };
    Ok(Depth {
        blocks,
        top: order.iter().take(top).map(guess).collect::<anyhow::Result<_>>()?,
        rank: order.iter().position(|&own| own == token as usize).map_or(0, |at| at + 1),
        probability: probabilities[token as usize],
    })
}

impl Report {
    fn lines(&self) -> String {
        let Self { after, position, token, logit, .. } = self;
        let place = if self.at { "at" } else { "after" };
        let mut text = format!("{place} token {position}, {after}: what the stream would predict there\n");
        for Depth { blocks, top, rank, probability } in &self.depths {
            let guesses: Vec<String> =
                top.iter().map(|guess| format!("{} {:.3}", guess.token, guess.probability)).collect();
            // writing to a String cannot fail
            let _ = writeln!(
                text,
                "after {blocks} {}  {}  ({token}: {probability:.3}, rank {rank})",
                if *blocks == 1 { "block " } else { "blocks" },
                guesses.join("  ")
            );
        }
        let over = self.against.as_ref().map_or(String::new(), |against| format!(" over {against}"));
        let _ = writeln!(
            text,
            "\nthe logit of {token}{over}, {logit:.4}, by what each part adds to it directly, not through later parts (see patch)"
        );
        for Share { part, share } in &self.shares {
            let _ = writeln!(text, "{share:>10.4}  {part}");
        }
        let _ = writeln!(text, "{logit:>10.4}  sum");
        text
    }
}
