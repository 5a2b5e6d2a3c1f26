//! `softdict tokenizer`: learn, apply and list a vocabulary.

use crate::args::TokenizerAction;
use crate::checkpoint::open_tokenizer;
use crate::output::{self, grouped, notice};
use crate::usage;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use softdict_inspect::labels::label;
use softdict_tokenizer::{Kind, Stage, TextFile, Tokenizer};
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

pub(crate) fn run(action: TokenizerAction) -> anyhow::Result<()> {
    match action {
        TokenizerAction::Train { text, kind, vocab_size, out } => train(&text, &kind, vocab_size, &out),
        TokenizerAction::Encode { tokenizer, text } => encode(&tokenizer, text),
        TokenizerAction::Decode { tokenizer, ids } => decode(&tokenizer, ids),
        TokenizerAction::Show { tokenizer } => show(&tokenizer),
    }
}

fn train(text: &Path, kind: &Kind, vocab_size: Option<usize>, out: &Path) -> anyhow::Result<()> {
    if let Kind::File(path) = kind {
        let found = path.display();
        return Err(usage(format!(
            "--kind {found}: it must be char, byte or bpe, or auto for the one that fits"
        )));
    }
    let text = TextFile::open(text)?;
    text.notes().iter().for_each(notice);
    let mut stages = Stages::default();
    let learned =
        Tokenizer::train(kind, &text, vocab_size, &mut |stage, done, all| stages.show(stage, done, all));
    drop(stages);
    let tokenizer = learned.with_context(|| match vocab_size {
        Some(size) => format!("--kind {kind} --vocab-size {size}"),
        None => format!("--kind {kind}"),
    })?;
    tokenizer.notes().iter().for_each(notice);
    tokenizer.save(out).with_context(|| format!("--out {}", out.display()))?;
    notice(format!(
        "{}: {} tokenizer with {} entries",
        out.display(),
        tokenizer.kind(),
        grouped(tokenizer.vocab_size() as u64)
    ));
    Ok(())
}

/// What learning is at: a bar on a terminal, one line a stage elsewhere.
#[derive(Default)]
struct Stages {
    now: Option<(Stage, Option<ProgressBar>)>,
}

impl Stages {
    fn show(&mut self, stage: Stage, done: u64, all: u64) {
        if self.now.as_ref().is_none_or(|(now, _)| *now != stage) {
            self.end();
            if !output::draws_progress() {
                notice(format!("{stage} …"));
            }
            self.now = Some((stage, output::draws_progress().then(|| bar(stage))));
        }
        if let Some((_, Some(bar))) = &self.now {
            bar.set_length(all);
            bar.set_position(done);
        }
    }

    fn end(&mut self) {
        if let Some((_, Some(bar))) = self.now.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        self.end();
    }
}

fn bar(stage: Stage) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:20} {bar:24} {percent}%, {eta} left");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style.progress_chars("━╸ ")).with_message(stage.to_string())
}

fn encode(tokenizer: &Path, text: Option<String>) -> anyhow::Result<()> {
    let tokenizer = open_tokenizer(tokenizer)?;
    let bytes = text.map_or_else(standard_input, |text| Ok(text.into_bytes()))?;
    let ids: Vec<String> = tokenizer.encode_bytes(&bytes)?.iter().map(ToString::to_string).collect();
    output::data(format!("{}\n", ids.join(" ")).as_bytes())
}

fn decode(tokenizer: &Path, ids: Vec<u32>) -> anyhow::Result<()> {
    let tokenizer = open_tokenizer(tokenizer)?;
    let ids = if ids.is_empty() { parse_ids(&String::from_utf8_lossy(&standard_input()?))? } else { ids };
    if std::io::stdout().is_terminal() {
        return output::text(&(tokenizer.decode(&ids)? + "\n"));
    }
    // into a pipe or file the text that was encoded, byte for byte
    output::data(&tokenizer.decode_bytes(&ids)?)
}

fn standard_input() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
    Ok(bytes)
}

fn parse_ids(text: &str) -> anyhow::Result<Vec<u32>> {
    let parse = |word: &str| {
        let wrong = |_| anyhow::anyhow!("standard input: {word:?} is no token id; give numbers and spaces");
        word.parse().map_err(wrong)
    };
    text.split_whitespace().map(parse).collect()
}

fn show(tokenizer: &Path) -> anyhow::Result<()> {
    let tokenizer = open_tokenizer(tokenizer)?;
    let mut out = output::stream();
    for id in 0..tokenizer.vocab_size() as u32 {
        // a file may leave ids out
        if let Ok(bytes) = tokenizer.token_bytes(id) {
            writeln!(out, "{id}\t{}", token_label(&bytes))?;
        }
    }
    out.flush()?;
    Ok(())
}

/// A token as a person should see it; bytes that are no whole characters as `\xE6\xBC`.
fn token_label(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for part in bytes.utf8_chunks() {
        if !part.valid().is_empty() {
            shown.push_str(&label(part.valid()));
        }
        shown.extend(part.invalid().iter().map(|byte| format!("\\x{byte:02X}")));
    }
    if shown.is_empty() { label("") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_visible_even_half_a_character() {
        assert_eq!(token_label(b" the\n"), "·the⏎");
        assert_eq!(token_label("漢".as_bytes()), "漢");
        assert_eq!(token_label(&"a漢".as_bytes()[..3]), "a\\xE6\\xBC");
        assert_eq!(token_label(b"\x1b"), "\\u{1b}");
        assert_eq!(token_label(b""), "∅");
    }

    #[test]
    fn what_is_no_id_is_named() {
        assert_eq!(parse_ids(" 3 14\n15 ").unwrap(), [3, 14, 15]);
        let message = parse_ids("1 two 3").unwrap_err().to_string();
        assert!(message.contains("\"two\""), "{message}");
        assert!(parse_ids("-1").is_err());
    }

    #[test]
    fn a_path_is_no_kind_to_learn() {
        let kind = Kind::File("words".into());
        let message = train(Path::new("x"), &kind, None, Path::new("y")).unwrap_err().to_string();
        assert!(message.contains("--kind words"), "{message}");
    }
}
