//! `softdict lookup`: the dictionary of every head, as its weights have it and as a text uses it.

use crate::args::Lookup as Args;
use crate::checkpoint::{self, Loaded};
use crate::prompt::{chosen, one_token, token_label};
use crate::windows::{frequent, longest, present, scored_tokens, windows};
use crate::{machine, output, usage};
use anyhow::bail;
use serde::Serialize;
use softdict_inspect::ablation::HeadId;
use softdict_inspect::lookup::{Circuit, Composition, Found, Used, composition, used};
use std::fmt::Write as _;

/// Windows of the text that are read.
const WINDOWS: usize = 32;

/// The tables of one head; the names of the JSON object.
#[derive(Debug, Serialize)]
struct Tables {
    head: HeadId,
    /// As the text uses it.
    used: Vec<Line>,
    /// As the weights have it.
    written: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Line {
    query: String,
    key: String,
    rows: usize,
    finds: usize,
    attention: f64,
    raises: Token,
}

/// What one token finds as a query, and what it says as a key.
#[derive(Debug, Serialize)]
struct Entry {
    token: String,
    finds: Vec<Token>,
    promotes: Vec<Token>,
}

#[derive(Debug, Serialize)]
struct Token {
    token: String,
    score: f32,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let device = machine::prepare(&args.source.machine)?;
    let loaded = checkpoint::open(&args.checkpoint, args.source.which.into(), &device)?;
    if args.composition {
        return compositions(args, &loaded);
    }
    let (config, model) = (&loaded.spoken, loaded.speaker()?);
    let (layers, heads) =
        (chosen("--layer", &args.layer, config.layers())?, chosen("--head", &args.head, config.heads)?);
    if args.distance >= config.context() {
        let last = config.context() - 1;
        return Err(usage(format!("--distance {}: the model sees {last} tokens back", args.distance)));
    }
    let corpus = loaded.corpus_or_tales(args.text.as_deref())?;
    let (tokens, name) = scored_tokens(&corpus);
    let windows = windows(tokens, longest(config), WINDOWS)?;
    if windows.is_empty() {
        bail!("{name}: fewer than two tokens, so no token can look back; give a longer text");
    }
    let top = args.top.get();
    let asked: Vec<u32> =
        args.token.iter().map(|text| one_token("--token", text, &loaded)).collect::<anyhow::Result<_>>()?;
    let shown = if asked.is_empty() { frequent(&windows, top) } else { asked.clone() };
    let present = present(&windows);
    let mut tables = Vec::new();
    for id in layers.iter().flat_map(|&layer| heads.iter().map(move |&head| HeadId { layer, head })) {
        let circuit = Circuit::new(config, &loaded.parameters, id)?.among(&present);
        let (finds, promotes) = (circuit.keys(&shown, args.distance, top)?, circuit.promoted(&shown, top)?);
        let lines = used(&model, &loaded.parameters, &windows, id, &asked, top)?;
        tables.push(Tables {
            head: id,
            used: lines.iter().map(|used| line(used, &loaded)).collect::<anyhow::Result<_>>()?,
            written: shown
                .iter()
                .zip(finds.iter().zip(&promotes))
                .map(|(&token, (finds, promotes))| {
                    let token = token_label(token, &loaded)?;
                    Ok(Entry { token, finds: named(finds, &loaded)?, promotes: named(promotes, &loaded)? })
                })
                .collect::<anyhow::Result<_>>()?,
        });
    }
    if args.json {
        return output::text(&(serde_json::to_string_pretty(&tables)? + "\n"));
    }
    output::text(&lines(&tables, &name, windows.len(), args.distance))
}

fn line(used: &Used, loaded: &Loaded) -> anyhow::Result<Line> {
    let Used { query, key, rows, finds, attention, raises } = *used;
    let raises = Token { token: token_label(raises.token, loaded)?, score: raises.score };
    Ok(Line {
        query: token_label(query, loaded)?,
        key: token_label(key, loaded)?,
        rows,
        finds,
        attention,
        raises,
    })
}

fn named(found: &[Found], loaded: &Loaded) -> anyhow::Result<Vec<Token>> {
    found
        .iter()
        .map(|found| Ok(Token { token: token_label(found.token, loaded)?, score: found.score }))
        .collect()
}

fn lines(tables: &[Tables], name: &str, windows: usize, distance: usize) -> String {
    let mut text = format!(
        "as used, over {windows} windows of {name}: which token looks at which, the share of its attention that this is, in\n\
         how many of its rows, and the token that the head's output then raises most; what a token gives to itself is left out\n\
         as written, from the weights and single tokens alone (what earlier layers add, which later heads read, is not in it):\n\
         which keys a token finds when it stands {distance} after them\n\
         (score before the softmax), and which tokens it promotes when it is found (rise of the logit, final norm's scale left\n\
         out); answers are tokens of this text\n"
    );
    for Tables { head, used, written } in tables {
        // writing to a String cannot fail
        let _ = writeln!(text, "\nhead {head}, as used");
        for Line { query, key, rows, finds, attention, raises } in used {
            let _ = writeln!(
                text,
                "  {query} → {key}  {:.1} %, {finds} of {rows} rows, raises {} ({:.3})",
                100.0 * attention,
                raises.token,
                raises.score
            );
        }
        let _ = writeln!(text, "head {head}, as written");
        for Entry { token, finds, promotes } in written {
            let list = |tokens: &[Token]| {
                let parts: Vec<String> =
                    tokens.iter().map(|token| format!("{} {:.2}", token.token, token.score)).collect();
                parts.join("  ")
            };
            let _ = writeln!(text, "  {token} finds     {}", list(finds));
            let _ = writeln!(text, "  {token} promotes  {}", list(promotes));
        }
    }
    text
}

fn compositions(args: &Args, loaded: &Loaded) -> anyhow::Result<()> {
    let mut found = composition(&loaded.spoken, &loaded.parameters)?;
    if args.json {
        return output::text(&(serde_json::to_string_pretty(&found)? + "\n"));
    }
    if found.is_empty() {
        return output::text("a model of one layer: no head can read what another wrote\n");
    }
    let most = |pair: &Composition| pair.query.max(pair.key).max(pair.value);
    found.sort_by(|a, b| most(b).total_cmp(&most(a)));
    let mut text = String::from(
        "how much of what a head writes a later head reads through its queries, keys and values (0 to 1, weights alone)\n\
         \x20from     to  queries   keys  values\n",
    );
    for Composition { from, to, query, key, value } in found.iter().take(args.top.get().saturating_mul(4)) {
        // writing to a String cannot fail
        let _ = writeln!(
            text,
            "{:>5}  {:>5}  {query:>7.3}  {key:>5.3}  {value:>6.3}",
            from.to_string(),
            to.to_string()
        );
    }
    output::text(&text)
}
