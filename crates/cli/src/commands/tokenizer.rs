//! `softdict tokenizer`: learn, apply and list a vocabulary.

use crate::args::TokenizerAction;
use crate::checkpoint::open_tokenizer;
use crate::output::{self, grouped, notice};
use crate::usage;
use crate::written::{check_place, write_file};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use softdict_inspect::labels::label;
use softdict_tokenizer::{Kind, Stage, TextFile, Tokenizer};
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

/// How much of a list of ids is looked at in one go.
const READ_BYTES: u64 = 1 << 20;

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
    let place = || format!("--out {}", out.display());
    check_place(out, &[text]).with_context(place)?;
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
    write_file(out, &mut |file| Ok(file.write_all(tokenizer.to_json())?)).with_context(place)?;
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
    let mut out = output::stream();
    let mut begun = false;
    let write = |numbers: Vec<u8>| -> anyhow::Result<()> {
        // spaces are between ids, not before the first
        let numbers = numbers.get(usize::from(!begun)..).unwrap_or_default();
        begun |= !numbers.is_empty();
        Ok(out.write_all(numbers)?)
    };
    match text {
        Some(text) => tokenizer.encode_stream(text.as_bytes(), "the text", numbers, write)?,
        None => tokenizer.encode_stream(std::io::stdin().lock(), "standard input", numbers, write)?,
    }
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Each id after a space, in decimal; formatting in general takes several times as long.
fn numbers(ids: &[u32]) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(4 * ids.len());
    for &id in ids {
        // a space and the ten digits of the largest
        let mut word = [b' '; 11];
        let (mut start, mut rest) = (word.len(), id);
        while rest > 0 || start == word.len() {
            start -= 1;
            word[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        numbers.extend_from_slice(&word[start - 1..]);
    }
    numbers
}

fn decode(tokenizer: &Path, ids: Vec<u32>) -> anyhow::Result<()> {
    let tokenizer = open_tokenizer(tokenizer)?;
    let terminal = std::io::stdout().is_terminal();
    let mut stream = tokenizer.stream();
    let mut write = |ids: Vec<u32>| -> anyhow::Result<()> {
        let (mut text, mut bytes) = (String::new(), Vec::new());
        for id in ids {
            if terminal {
                text.extend(stream.push(id)?);
            } else {
                // into a pipe or file the text that was encoded, byte for byte
                stream.push_bytes(id, &mut bytes)?;
            }
        }
        if terminal { output::text(&text) } else { output::data(&bytes) }
    };
    if ids.is_empty() {
        ids_from(std::io::stdin().lock(), &mut write)?;
    } else {
        write(ids)?;
    }
    let rest = stream.finish();
    if terminal { output::text(&(rest + "\n")) } else { output::data(rest.as_bytes()) }
}

/// Hands the ids on standard input over, some at a time.
fn ids_from(
    mut input: impl Read,
    write: &mut dyn FnMut(Vec<u32>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut text = Vec::new();
    loop {
        let read = input.by_ref().take(READ_BYTES).read_to_end(&mut text).context("standard input")?;
        let whole = (read as u64) < READ_BYTES;
        // a number at the end may go on
        let last = text.iter().rposition(u8::is_ascii_whitespace).unwrap_or(0);
        let end = if whole { text.len() } else { last };
        write(parse_ids(&String::from_utf8_lossy(&text[..end]))?)?;
        if whole {
            return Ok(());
        }
        text.drain(..end);
    }
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
    fn ids_are_written_in_decimal_and_read_back_across_blocks() {
        let ids: Vec<u32> = (0..10).map(|power| 10u32.pow(power)).chain([0, 9, 65_535, u32::MAX]).collect();
        let ids = ids.repeat(30_000);
        let words: Vec<String> = ids.iter().map(|id| format!(" {id}")).collect();
        let text = numbers(&ids);
        assert!(text == words.concat().into_bytes());
        assert!(text.len() as u64 > 2 * READ_BYTES);
        let mut read = Vec::new();
        ids_from(text.as_slice(), &mut |part| {
            read.extend(part);
            Ok(())
        })
        .unwrap();
        assert!(read == ids);
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
