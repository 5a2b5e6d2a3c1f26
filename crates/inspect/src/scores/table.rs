//! Head scores as a text table that says what each number is.

use std::fmt::Write as _;

use super::HeadScores;
use crate::error::{InspectError, Result};

/// The sequence lengths behind the scores; the table states the rows each mean runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges {
    /// T of the text that the positional scores were measured on.
    pub text_tokens: usize,
    /// n of the random block, repeated once.
    pub block_tokens: usize,
}

/// One more number for each head, such as what its ablation costs.
#[derive(Debug, Clone, Copy)]
pub struct Column<'values> {
    /// The column's heading, one word.
    pub name: &'values str,
    /// What the number is and which range it has, one line.
    pub meaning: &'values str,
    /// One value for each head, in the order of the scores.
    pub values: &'values [f64],
}

/// The scores as aligned text: what each column means, then a line for each head, each ended by a line feed.
///
/// # Errors
/// [`InspectError::Column`] where an extra column has another number of values than there are heads.
pub fn format_table(scores: &[HeadScores], ranges: Ranges, extra: &[Column<'_>]) -> Result<String> {
    if let Some(wrong) = extra.iter().find(|column| column.values.len() != scores.len()) {
        let (expected, found) = (scores.len(), wrong.values.len());
        return Err(InspectError::Column { column: wrong.name.to_owned(), expected, found });
    }
    let mut headings = vec!["layer", "head"];
    headings.extend(SCORES.map(|score| score.0));
    headings.extend(extra.iter().map(|column| column.name));
    headings.push("kind");
    let row = |(index, head): (usize, &HeadScores)| {
        let mut cells = vec![head.layer.to_string(), head.head.to_string()];
        cells.extend(SCORES.map(|(_, decimals, value)| format!("{:.decimals$}", value(head))));
        cells.extend(extra.iter().map(|column| format!("{:.4}", column.values[index])));
        cells.push(head.kind().to_owned());
        cells
    };
    let rows: Vec<Vec<String>> = scores.iter().enumerate().map(row).collect();

    let mut table = meanings(ranges, extra);
    table.push('\n');
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            let cells = rows.iter().map(|cells| cells[column].len());
            cells.chain([headings[column].len()]).max().unwrap_or(0)
        })
        .collect();
    push_line(&mut table, &headings, &widths);
    for cells in &rows {
        push_line(&mut table, cells, &widths);
    }
    Ok(table)
}

/// A score's heading, its decimals, and where it is kept.
type Score = (&'static str, usize, fn(&HeadScores) -> f64);

const SCORES: [Score; 7] = [
    ("previous", 3, |head| head.previous_token),
    ("duplicate", 3, |head| head.duplicate_token),
    ("induction", 3, |head| head.induction),
    ("first", 3, |head| head.first_token),
    ("current", 3, |head| head.current_token),
    ("entropy", 3, |head| head.entropy),
    ("distance", 2, |head| head.mean_distance),
];

fn meanings(ranges: Ranges, extra: &[Column<'_>]) -> String {
    let text = ranges.text_tokens;
    let last = text.saturating_sub(1);
    let block = ranges.block_tokens;
    let repeat = format!("i = {block}..{}, 0 to 1", (2 * block).saturating_sub(1));
    let mut lines = vec![
        ("previous", format!("mean A[i, i-1], i = 1..{last}, 0 to 1")),
        ("duplicate", format!("mean A[i, i-n], n = {block} random tokens repeated, {repeat}")),
        ("induction", format!("mean A[i, i-n+1], the same tokens, {repeat}")),
        ("first", format!("mean A[i, 0], i = 1..{last}, 0 to 1")),
        ("current", format!("mean A[i, i], i = 0..{last}, 0 to 1")),
        ("entropy", format!("mean entropy / its maximum, i = 1..{last}, 0 (one key) to 1 (uniform)")),
        ("distance", format!("mean |i - j| weighted by A[i, j], i = 1..{last}, in tokens, from 0")),
    ];
    lines.extend(extra.iter().map(|column| (column.name, column.meaning.to_owned())));
    lines.push(("kind", format!("the highest of the first five from {} on, else mixed", super::NAMED_FROM)));
    let name_width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::from("A[i, j]: how much token i looks at token j\n");
    for (name, meaning) in lines {
        // writing to a String cannot fail
        let _ = writeln!(text, "{name:<name_width$}  {meaning}");
    }
    text
}

fn push_line(table: &mut String, cells: &[impl AsRef<str>], widths: &[usize]) {
    let last = cells.len() - 1;
    for (index, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        // numbers to the right; the kind is text and ends the line
        let _ = match index {
            0 => write!(table, "{:>width$}", cell.as_ref()),
            _ if index == last => write!(table, "  {}", cell.as_ref()),
            _ => write!(table, "  {:>width$}", cell.as_ref()),
        };
    }
    table.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: Ranges = Ranges { text_tokens: 64, block_tokens: 20 };

    fn head(layer: usize, head: usize, previous_token: f64) -> HeadScores {
        HeadScores {
            layer,
            head,
            previous_token,
            duplicate_token: 0.0123,
            induction: 0.25,
            first_token: 0.125,
            current_token: 0.0625,
            entropy: 0.5,
            mean_distance: 12.345,
        }
    }

    #[test]
    fn the_table_states_ranges_and_aligns_its_columns() {
        let expected = "\
A[i, j]: how much token i looks at token j
previous   mean A[i, i-1], i = 1..63, 0 to 1
duplicate  mean A[i, i-n], n = 20 random tokens repeated, i = 20..39, 0 to 1
induction  mean A[i, i-n+1], the same tokens, i = 20..39, 0 to 1
first      mean A[i, 0], i = 1..63, 0 to 1
current    mean A[i, i], i = 0..63, 0 to 1
entropy    mean entropy / its maximum, i = 1..63, 0 (one key) to 1 (uniform)
distance   mean |i - j| weighted by A[i, j], i = 1..63, in tokens, from 0
kind       the highest of the first five from 0.5 on, else mixed

layer  head  previous  duplicate  induction  first  current  entropy  distance  kind
    0     3     0.987      0.012      0.250  0.125    0.062    0.500     12.35  previous-token
   11     0     0.100      0.012      0.250  0.125    0.062    0.500     12.35  mixed
";
        assert_eq!(format_table(&[head(0, 3, 0.987), head(11, 0, 0.1)], RANGES, &[]).unwrap(), expected);
    }

    #[test]
    fn extra_columns_stand_before_the_kind() {
        let column = Column { name: "ablation", meaning: "loss increase in nats", values: &[1.5] };
        let table = format_table(&[head(0, 0, 0.9)], RANGES, &[column]).unwrap();
        assert!(table.contains("\nablation   loss increase in nats\n"));
        assert!(table.contains("  ablation  kind\n"));
        assert!(table.ends_with("  1.5000  previous-token\n"), "{table}");
    }

    #[test]
    fn a_column_needs_a_value_for_each_head() {
        let column = Column { name: "ablation", meaning: "", values: &[1.0, 2.0] };
        let error = format_table(&[head(0, 0, 0.0)], RANGES, &[column]).unwrap_err().to_string();
        assert_eq!(error, "column `ablation` has 2 values for 1 heads");
    }

    #[test]
    fn no_heads_make_a_table_without_lines() {
        assert!(format_table(&[], RANGES, &[]).unwrap().ends_with("  kind\n"));
    }
}
