//! Attention in the terminal: a shaded matrix where it fits, the strongest keys of each row where not.

use std::fmt::Write as _;
use std::io::Write;

use crate::error::Result;
use crate::labels::{labels, shorten, width};
use crate::maps::AttentionMaps;

/// How many keys a row names where the matrix does not fit.
const TOP_KEYS: usize = 5;
/// Columns of a token's label in front of a matrix row, and in a list.
const ROW_LABEL: usize = 12;
const LIST_LABEL: usize = 16;
/// Narrower than this nothing can be laid out; the lines are then longer than asked for.
const MIN_WIDTH: usize = 40;
/// Room that the strongest key of a row needs beside the matrix.
const STRONGEST: usize = 26;
/// The smallest weight that two decimals can show.
const MIN_SHOWN: f32 = 0.005;

/// The marks of the matrix: from which weight on, which character, which of the 256 terminal colours. The
/// characters alone tell the classes apart; the colours only repeat them.
const SHADES: [(f32, char, u8); 5] =
    [(0.75, '█', 227), (0.45, '▓', 114), (0.2, '▒', 36), (0.05, '░', 67), (0.0, '.', 240)];

/// How the terminal report may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether colour sequences may be written: only to a terminal, and not under `NO_COLOR`.
    pub color: bool,
    /// How many columns a line may have.
    pub width: usize,
}

impl Default for Style {
    /// No colours, 100 columns.
    fn default() -> Self {
        Self { color: false, width: 100 }
    }
}

/// Writes every head of `maps` as text, without control characters unless `style` allows colours.
///
/// # Errors
/// [`crate::InspectError::Write`] where `out` fails.
pub fn write(maps: &AttentionMaps<'_>, style: &Style, out: &mut dyn Write) -> Result<()> {
    let page = Page::new(maps, style);
    let generated = maps.len() - maps.prompt_tokens();
    let (tokens, without) = (maps.len(), maps.without());
    writeln!(
        out,
        "attention of {tokens} tokens, {generated} of them generated{without}; rows look at columns"
    )?;
    if page.cell.is_some() {
        writeln!(out, "{}", legend())?;
    } else {
        writeln!(
            out,
            "too long for a matrix in {} columns: the {TOP_KEYS} strongest keys of each token",
            page.width
        )?;
    }
    maps.each_layer(&mut |layer| {
        for (head, pattern) in layer.patterns() {
            writeln!(out, "\nlayer {} head {head}", layer.number)?;
            for line in page.column_numbers() {
                writeln!(out, "{line}")?;
            }
            for (query, weights) in pattern.chunks_exact(maps.len()).enumerate() {
                // a causal row ends at its own token
                let seen = if maps.causal() { &weights[..=query] } else { weights };
                let line = match page.cell {
                    Some(cell) => page.matrix_row(query, seen, cell),
                    None => page.list_row(query, seen),
                };
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        Ok(())
    })
}

fn legend() -> String {
    let marks = SHADES.iter().map(|&(from, mark, _)| match from {
        0.0 => format!("{mark} less"),
        _ => format!("{mark} {from} or more"),
    });
    marks.collect::<Vec<_>>().join("  ")
}

/// What all heads share: labels and columns.
struct Page {
    labels: Vec<String>,
    width: usize,
    color: bool,
    digits: usize,
    /// Columns of a matrix cell; none where the matrix does not fit.
    cell: Option<usize>,
    strongest: bool,
}

impl Page {
    fn new(maps: &AttentionMaps<'_>, style: &Style) -> Self {
        let tokens = maps.len();
        let width = style.width.max(MIN_WIDTH);
        let digits = (tokens - 1).to_string().len();
        let prefix = digits + 1 + ROW_LABEL + 1;
        let cell = [2, 1].into_iter().find(|cell| prefix + cell * tokens <= width);
        let strongest = cell.is_some_and(|cell| prefix + cell * tokens + STRONGEST <= width);
        Self { labels: labels(maps.tokens()), width, color: style.color, digits, cell, strongest }
    }

    fn name(&self, token: usize, columns: usize) -> String {
        let label = shorten(&self.labels[token], columns);
        format!("{token:>digits$} {label}", digits = self.digits)
    }

    fn padded_name(&self, token: usize, columns: usize) -> String {
        let name = self.name(token, columns);
        let missing = (self.digits + 1 + columns).saturating_sub(width(&name));
        name + &" ".repeat(missing)
    }

    /// The numbers of the keys, one digit a line, most significant first.
    fn column_numbers(&self) -> Vec<String> {
        let Some(cell) = self.cell else { return Vec::new() };
        let prefix = " ".repeat(self.digits + 1 + ROW_LABEL + 1);
        let digit_line = |place: usize| {
            let digit = |key: usize| {
                let text = key.to_string();
                let position = (text.len() + place).checked_sub(self.digits)?;
                // higher places only where they change, or the head of the matrix is a wall of digits
                let changes =
                    place + 1 == self.digits || text[position + 1..].chars().all(|rest| rest == '0');
                text.chars().nth(position).filter(|_| changes)
            };
            let line = (0..self.labels.len()).fold(prefix.clone(), |mut line, key| {
                line.push(digit(key).unwrap_or(' '));
                line.push_str(&" ".repeat(cell - 1));
                line
            });
            line.trim_end().to_owned()
        };
        (0..self.digits).map(digit_line).collect()
    }

    fn matrix_row(&self, query: usize, weights: &[f32], cell: usize) -> String {
        let mut line = self.padded_name(query, ROW_LABEL) + " ";
        let mut current = None;
        for &weight in weights {
            let (_, mark, colour) = shade(weight);
            if self.color && current != Some(colour) {
                // writing to a String cannot fail
                let _ = write!(line, "\x1b[38;5;{colour}m");
                current = Some(colour);
            }
            line.extend(std::iter::repeat_n(mark, cell));
        }
        if current.is_some() {
            line.push_str("\x1b[0m");
        }
        if let (true, Some((key, weight))) = (self.strongest, strongest(weights, 1).first()) {
            line.push_str(&" ".repeat((self.labels.len() - weights.len()) * cell));
            let _ = write!(line, "  {} {weight:.2}", self.padded_name(*key, ROW_LABEL));
        }
        line
    }

    fn list_row(&self, query: usize, weights: &[f32]) -> String {
        let mut line = self.padded_name(query, LIST_LABEL) + " <-";
        for (index, (key, weight)) in strongest(weights, TOP_KEYS).into_iter().enumerate() {
            let entry = format!("  {weight:.2} {}", self.name(key, LIST_LABEL));
            if index > 0 && width(&line) + width(&entry) > self.width {
                break;
            }
            line.push_str(&entry);
        }
        line
    }
}

fn shade(weight: f32) -> (f32, char, u8) {
    SHADES.into_iter().find(|&(from, _, _)| weight >= from).unwrap_or(SHADES[SHADES.len() - 1])
}

/// The `count` largest weights, largest first, earlier keys first among equals; what would show as 0.00 is left out.
fn strongest(weights: &[f32], count: usize) -> Vec<(usize, f32)> {
    let mut ranked: Vec<(usize, f32)> =
        weights.iter().copied().enumerate().filter(|pair| pair.1 >= MIN_SHOWN).collect();
    ranked.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    ranked.truncate(count);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tests::uniform;

    fn text(maps: &AttentionMaps<'_>, style: Style) -> String {
        let mut out = Vec::new();
        write(maps, &style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_short_text_becomes_a_matrix() {
        let shown = text(&uniform(&["The", " cat", "\n"], 1, 1), Style { color: false, width: 60 });
        let expected = "\
attention of 3 tokens, 1 of them generated; rows look at columns
█ 0.75 or more  ▓ 0.45 or more  ▒ 0.2 or more  ░ 0.05 or more  . less

layer 0 head 0
               0 1 2
0 The          ██      0 The          1.00
1 ·cat         ▓▓▓▓    0 The          0.50
2 ⏎            ▒▒▒▒▒▒  0 The          0.33
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_long_text_becomes_a_list() {
        let tokens: Vec<String> = (0..120).map(|index| format!(" w{index}")).collect();
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let shown = text(&uniform(&tokens, 1, 1), Style { color: false, width: 80 });
        assert!(shown.contains("\n  1 ·w1              <-  0.50   0 ·w0  0.50   1 ·w1\n"), "{shown}");
        assert_eq!(shown.lines().count(), 2 + 2 + 120);
        assert!(shown.lines().all(|line| width(line) <= 80), "{shown}");
    }

    #[test]
    fn lines_stay_within_the_width() {
        for (tokens, columns) in [(5, 40), (20, 60), (20, 80), (40, 100), (90, 110), (1, 0)] {
            let maps = uniform(&vec!["漢字漢字漢字漢字漢字漢字"; tokens], 1, 2);
            let shown = text(&maps, Style { color: false, width: columns });
            let body = shown.lines().skip(2);
            assert!(body.into_iter().all(|line| width(line) <= columns.max(MIN_WIDTH)), "{shown}");
        }
    }

    #[test]
    fn tens_stand_over_their_column() {
        let shown = text(&uniform(&["t"; 12], 1, 1), Style { color: false, width: 60 });
        let numbers: Vec<&str> = shown.lines().skip(4).take(2).map(|line| &line[16..]).collect();
        assert_eq!(numbers, ["                    1", "0 1 2 3 4 5 6 7 8 9 0 1"]);
    }

    #[test]
    fn colours_come_only_when_asked() {
        let maps = uniform(&["\u{1b}[31m", "\u{9b}2J"], 1, 1);
        let plain = text(&maps, Style { color: false, width: 80 });
        assert!(plain.chars().all(|character| character == '\n' || !character.is_control()));
        let colored = text(&maps, Style { color: true, width: 80 });
        assert!(colored.contains("\x1b[38;5;227m██\x1b[0m"), "{colored:?}");
        assert_eq!(colored.matches('\x1b').count(), 4);
        assert!(!colored.contains("\x1b[31m") && !colored.contains('\u{9b}'));
    }

    #[test]
    fn the_strongest_keys_are_ranked() {
        assert_eq!(strongest(&[0.1, 0.4, 0.004, 0.4, 0.096], 3), [(1, 0.4), (3, 0.4), (0, 0.1)]);
    }
}
