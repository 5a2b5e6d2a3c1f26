//! Head reports as a text table that says what each number is.

use std::fmt::Write as _;

use super::HeadScores;
use crate::effect::Effect;
use crate::survey::{ABOVE_UNTRAINED, HeadReport, NAMED_FROM};

/// The sequence lengths behind the scores; the table states the rows each mean runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges {
    /// T of the text that the positional scores were measured on.
    pub text_tokens: usize,
    /// n of the random block, repeated once.
    pub block_tokens: usize,
}

/// A score's heading, its decimals, and where it is kept.
type Score = (&'static str, usize, fn(&HeadScores) -> Option<f64>);

const SCORES: [Score; 9] = [
    ("prev", 3, |head| Some(head.previous_token)),
    ("dup", 3, |head| Some(head.duplicate_token)),
    ("ind", 3, |head| Some(head.induction)),
    ("dup-text", 3, |head| head.duplicate_in_text),
    ("ind-text", 3, |head| head.induction_in_text),
    ("first", 3, |head| Some(head.first_token)),
    ("self", 3, |head| Some(head.current_token)),
    ("entropy", 3, |head| Some(head.entropy)),
    ("dist", 2, |head| Some(head.mean_distance)),
];

/// The reports as aligned text: what each column means, a line for each head, and one for the mean of untrained heads,
/// each ended by a line feed.
pub fn format_table(heads: &[HeadReport], ranges: Ranges) -> String {
    let mut headings = vec!["head"];
    headings.extend(SCORES.map(|score| score.0));
    headings.extend(["zeroed", "meaned", "95 %", "name"]);
    let mut rows: Vec<Vec<String>> = heads.iter().map(row).collect();
    let untrained: Vec<&HeadScores> = heads.iter().map(|head| &head.untrained).collect();
    rows.push(mean_row(&untrained));

    let mut table = meanings(ranges);
    table.push('\n');
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            let cells = rows.iter().map(|cells| cells[column].chars().count());
            cells.chain([headings[column].len()]).max().unwrap_or(0)
        })
        .collect();
    push_line(&mut table, &headings, &widths);
    for cells in &rows {
        push_line(&mut table, cells, &widths);
    }
    table
}

fn row(head: &HeadReport) -> Vec<String> {
    let mut cells = vec![format!("{}.{}", head.scores.layer, head.scores.head)];
    cells.extend(SCORES.map(|(_, decimals, value)| number(value(&head.scores), decimals)));
    let increase = |effect: Option<Effect>| number(effect.map(|effect| effect.increase), 4);
    cells.extend([increase(head.zero), increase(head.mean)]);
    let interval = head.mean.and_then(|mean| mean.interval);
    cells.push(interval.map_or("-".to_owned(), |[low, high]| format!("{low:.4} to {high:.4}")));
    cells.push(head.name.to_owned());
    cells
}

/// The mean of every score that some head has.
fn mean_row(heads: &[&HeadScores]) -> Vec<String> {
    let mut cells = vec!["fresh".to_owned()];
    cells.extend(SCORES.map(|(_, decimals, value)| {
        let values: Vec<f64> = heads.iter().filter_map(|head| value(head)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        number((!values.is_empty()).then_some(mean), decimals)
    }));
    cells.extend(["-", "-", "-", "untrained"].map(str::to_owned));
    cells
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn meanings(ranges: Ranges) -> String {
    let text = ranges.text_tokens;
    let last = text.saturating_sub(1);
    let block = ranges.block_tokens;
    let repeat = format!("i = {block}..{}, 0 to 1", (2 * block).saturating_sub(1));
    let lines = [
        ("prev", format!("previous token: mean A[i, i-1], i = 1..{last}, 0 to 1")),
        ("dup", format!("duplicate token: mean A[i, i-n], n = {block} random tokens repeated, {repeat}")),
        ("ind", format!("induction: mean A[i, i-n+1], the same tokens, {repeat}")),
        (
            "dup-text",
            "mean attention on earlier copies of the token, where the text has one, 0 to 1".to_owned(),
        ),
        (
            "ind-text",
            "mean attention on what followed an earlier copy, where it follows again, 0 to 1".to_owned(),
        ),
        ("first", format!("first token: mean A[i, 0], i = 1..{last}, 0 to 1")),
        ("self", format!("current token: mean A[i, i], i = 0..{last}, 0 to 1")),
        ("entropy", format!("mean entropy / its maximum, i = 1..{last}, 0 (one key) to 1 (uniform)")),
        ("dist", format!("mean |i - j| weighted by A[i, j], i = 1..{last}, in tokens, from 0")),
        ("zeroed", "rise of the loss with the head's output replaced by zero, nats per token".to_owned()),
        (
            "meaned",
            "the same with its mean over the text; 95 % of bootstrap resamples lie in the range after it"
                .to_owned(),
        ),
        (
            "name",
            format!(
                "the highest score of {NAMED_FROM} or more and {ABOVE_UNTRAINED} above untrained, if the model is worse without"
            ),
        ),
    ];
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
        // numbers to the right; the name is text and ends the line
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
    use std::collections::BTreeMap;

    const RANGES: Ranges = Ranges { text_tokens: 64, block_tokens: 20 };

    fn scores(layer: usize, previous_token: f64) -> HeadScores {
        HeadScores {
            layer,
            head: 3,
            previous_token,
            duplicate_token: 0.0123,
            induction: 0.25,
            duplicate_in_text: None,
            induction_in_text: Some(0.5),
            first_token: 0.125,
            current_token: 0.0625,
            entropy: 0.5,
            mean_distance: 12.345,
        }
    }

    fn head(layer: usize, previous_token: f64, mean: Option<Effect>) -> HeadReport {
        HeadReport {
            scores: scores(layer, previous_token),
            spread: BTreeMap::new(),
            untrained: scores(layer, previous_token / 10.0),
            zero: mean,
            mean,
            name: "previous-token",
        }
    }

    #[test]
    fn the_table_aligns_its_columns_and_ends_with_the_untrained_mean() {
        let effect = Effect { increase: 1.5, interval: Some([1.25, 1.75]) };
        let table = format_table(&[head(0, 0.987, Some(effect)), head(11, 0.1, None)], RANGES);
        let expected = "
 head   prev    dup    ind  dup-text  ind-text  first   self  entropy   dist  zeroed  meaned              95 %  name
  0.3  0.987  0.012  0.250         -     0.500  0.125  0.062    0.500  12.35  1.5000  1.5000  1.2500 to 1.7500  previous-token
 11.3  0.100  0.012  0.250         -     0.500  0.125  0.062    0.500  12.35       -       -                 -  previous-token
fresh  0.054  0.012  0.250         -     0.500  0.125  0.062    0.500  12.35       -       -                 -  untrained
";
        assert!(table.ends_with(expected), "{table}");
        assert!(table.contains("\nprev      previous token: mean A[i, i-1], i = 1..63, 0 to 1\n"));
    }
}
