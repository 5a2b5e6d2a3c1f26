//! The only file that prints: data to standard output, the rest to standard error.
//!
//! Text from files and models is shown with its control characters made visible when it goes to a terminal, so
//! that no text can move the cursor or change colours; into pipes and files it goes byte for byte.

use softdict_inspect::labels::is_visible;
use std::io::{IsTerminal, Write};

/// Writes data to standard output.
pub(crate) fn data(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

/// Writes text that is not ours to standard output.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    if std::io::stdout().is_terminal() { data(visible(text).as_bytes()) } else { data(text.as_bytes()) }
}

/// Standard output for data too long to be held in memory; flush it at the end.
pub(crate) fn stream() -> std::io::BufWriter<std::io::StdoutLock<'static>> {
    std::io::BufWriter::new(std::io::stdout().lock())
}

/// Asks for a line of input; only a terminal shows it.
pub(crate) fn ask(question: &str) {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr().lock(), "{question}");
    }
}

/// Tells the user something on standard error.
pub(crate) fn notice(message: impl std::fmt::Display) {
    // a closed standard error is no reason to stop working
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(&message.to_string()));
}

/// The one message of a failure: the error and its causes, each once.
pub(crate) fn error(error: &anyhow::Error) {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // transparent wrappers and messages that quote their source repeat it
        if !message.ends_with(&cause) {
            // a cause that names the same file needs it once
            let whole = message.is_empty() || cause.starts_with(&format!("{message}:"));
            message = if whole { cause } else { format!("{message}: {cause}") };
        }
    }
    // candle adds a backtrace where RUST_BACKTRACE asks for one, and what comes from a file may hold lines of its own
    let lines = message.lines().take_while(|line| !is_frame(line));
    notice(format!("error: {}", lines.collect::<Vec<_>>().join("\n  ")));
}

/// Whether a line is the first of a backtrace, or the number of a frame.
fn is_frame(line: &str) -> bool {
    let (number, rest) = line.trim_start().split_once(": ").unwrap_or_default();
    !rest.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a failure is only that nobody reads any more (`softdict … | head`).
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// Whether standard error is a terminal, where lines can be drawn anew.
pub(crate) fn draws_progress() -> bool {
    std::io::stderr().is_terminal()
}

/// How wide the terminal on standard output is, and whether it takes colours.
pub(crate) fn style() -> softdict_inspect::report::Style {
    let terminal = std::io::stdout().is_terminal();
    let color = terminal
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb");
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(100);
    softdict_inspect::report::Style { color, width }
}

/// `text` with what moves a cursor, turns text around or hides as escapes; line feed and tab stay.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let kept = matches!(character, '\n' | '\t') || is_visible(character);
        if kept { shown.push(character) } else { shown.extend(character.escape_unicode()) }
    }
    shown
}

/// A path as a shell takes it for one word.
pub(crate) fn quoted(path: &std::path::Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Bytes in the largest unit that leaves a number of at least 1.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (count.max(1).ilog2() / 10).min(4);
    let value = count as f64 / 1024f64.powi(power as i32);
    let unit = units[power as usize];
    if power == 0 { format!("{count} {unit}") } else { format!("{value:.1} {unit}") }
}

/// Seconds as `48 s`, `3 min 20 s` or `2 h 5 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0 if seconds > 0.0 => "under a second".to_owned(),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_a_terminal() {
        assert_eq!(visible("a\x1b[31m\r\u{9b}b\n\t"), "a\\u{1b}[31m\\u{d}\\u{9b}b\n\t");
        assert_eq!(visible("é 漢\u{301}\u{202e}x\u{2028}"), "é 漢\u{301}\\u{202e}x\\u{2028}");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([12, 2048, 5 << 30].map(bytes), ["12 bytes", "2.0 KiB", "5.0 GiB"]);
        assert_eq!(
            [0.2, 48.0, 200.0, 7500.0].map(duration),
            ["under a second", "48 s", "3 min 20 s", "2 h 5 min"]
        );
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        let quoted = |path: &str| quoted(std::path::Path::new(path));
        assert_eq!(quoted("checkpoints/my-text_2.0"), "checkpoints/my-text_2.0");
        assert_eq!(quoted("my run"), "'my run'");
        assert_eq!(quoted("$(touch x)"), "'$(touch x)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("-x"), "'-x'");
    }

    #[test]
    fn frames_of_a_backtrace_are_known() {
        assert!(is_frame("   0: candle_core::error::Error::bt") && is_frame("12: main"));
        assert!(!is_frame("run: no such folder") && !is_frame("0:") && !is_frame("a.txt: 3: x"));
    }

    #[test]
    fn an_error_says_each_cause_once() {
        let io = std::io::Error::new(std::io::ErrorKind::BrokenPipe, "pipe");
        assert!(is_closed_pipe(&anyhow::Error::new(io).context("writing")));
        assert!(!is_closed_pipe(&anyhow::anyhow!("other")));
    }
}
