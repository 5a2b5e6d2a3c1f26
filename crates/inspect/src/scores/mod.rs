//! Numbers that say what kind of head a pattern belongs to.
//!
//! Each score is a mean over rows of T×T patterns A, rows are queries; [`positional`] ones need any text, [`copies`] a text
//! whose tokens come again, [`repeated`] ones a block of random tokens, repeated. [`HeadRows`] collects the rows,
//! [`HeadScores`] are the means, [`table`] prints them.
//!
//! A score says where a head looks, not what the model uses it for: that takes ablation, measured on text.

use serde::Serialize;
use std::collections::BTreeMap;

use crate::error::{InspectError, Result};

pub mod copies;
pub mod positional;
pub mod repeated;
pub mod table;

pub use repeated::repeated_block;
pub use table::{Ranges, format_table};

/// One T×T attention pattern, rows are queries.
#[derive(Debug, Clone, Copy)]
pub struct Pattern<'weights> {
    weights: &'weights [f32],
    tokens: usize,
    causal: bool,
}

impl<'weights> Pattern<'weights> {
    /// The pattern of `tokens` tokens; `causal` where later tokens are masked.
    ///
    /// # Shapes
    /// `weights`: `[T, T]` row-major.
    /// # Errors
    /// [`InspectError::Pattern`] where `weights` is not `tokens`² long.
    pub fn new(weights: &'weights [f32], tokens: usize, causal: bool) -> Result<Self> {
        let expected = tokens.saturating_mul(tokens);
        if weights.len() == expected {
            Ok(Self { weights, tokens, causal })
        } else {
            Err(InspectError::Pattern { tokens, expected, found: weights.len() })
        }
    }

    /// How many tokens there are, T.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether later tokens are masked.
    pub fn causal(&self) -> bool {
        self.causal
    }

    /// A[query, key].
    fn at(&self, query: usize, key: usize) -> f64 {
        f64::from(self.weights[query * self.tokens + key])
    }

    fn row(&self, query: usize) -> impl Iterator<Item = f64> {
        let start = query * self.tokens;
        self.weights[start..start + self.tokens].iter().copied().map(f64::from)
    }

    /// The mean of `value` over rows `first..T`.
    fn mean_from(&self, score: &'static str, first: usize, value: impl Fn(usize) -> f64) -> Result<f64> {
        if self.tokens <= first {
            return Err(InspectError::TooShort { score, tokens: self.tokens, needed: first + 1 });
        }
        let sum: f64 = (first..self.tokens).map(value).sum();
        Ok(sum / (self.tokens - first) as f64)
    }
}

/// All scores of one head. As JSON: an object with `layer`, `head` and the score names as written here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeadScores {
    /// The layer's number in the model.
    pub layer: usize,
    /// The head's number in its layer.
    pub head: usize,
    /// [`positional::previous_token`], 0 to 1.
    pub previous_token: f64,
    /// [`repeated::duplicate_token`], 0 to 1.
    pub duplicate_token: f64,
    /// [`repeated::induction`], 0 to 1.
    pub induction: f64,
    /// [`copies::duplicate_in_text`], 0 to 1; none where no token of the text comes again.
    pub duplicate_in_text: Option<f64>,
    /// [`copies::induction_in_text`], 0 to 1; none where no token of the text comes again.
    pub induction_in_text: Option<f64>,
    /// [`positional::first_token`], 0 to 1.
    pub first_token: f64,
    /// [`positional::current_token`], 0 to 1.
    pub current_token: f64,
    /// [`positional::entropy`], 0 to 1.
    pub entropy: f64,
    /// [`positional::mean_distance`], in tokens.
    pub mean_distance: f64,
}

/// Names of the scores, in the order of [`HeadRows`].
const NAMES: [&str; 9] = [
    "previous_token",
    "duplicate_token",
    "induction",
    "duplicate_in_text",
    "induction_in_text",
    "first_token",
    "current_token",
    "entropy",
    "mean_distance",
];

/// What every row of a head's patterns adds to its scores: the scores are the means.
#[derive(Debug, Clone, Default)]
pub struct HeadRows([Vec<f32>; NAMES.len()]);

impl HeadRows {
    /// Adds the rows of the pattern on a text.
    ///
    /// # Errors
    /// [`InspectError::TooShort`] where the text has one token only.
    pub fn add_text(&mut self, pattern: &Pattern<'_>, ids: &[u32]) -> Result<()> {
        if pattern.tokens() < 2 {
            return Err(InspectError::TooShort { score: NAMES[0], tokens: pattern.tokens(), needed: 2 });
        }
        let [previous, _, _, duplicate, induction, first, current, entropy, distance] = &mut self.0;
        for query in 0..pattern.tokens() {
            current.push(positional::rows::current_token(pattern, query) as f32);
            if query == 0 {
                continue;
            }
            previous.push(positional::rows::previous_token(pattern, query) as f32);
            first.push(positional::rows::first_token(pattern, query) as f32);
            entropy.push(positional::rows::entropy(pattern, query) as f32);
            distance.push(positional::rows::mean_distance(pattern, query) as f32);
            duplicate.extend(copies::duplicate_in_text(pattern, ids, query).map(|value| value as f32));
            induction.extend(copies::induction_in_text(pattern, ids, query).map(|value| value as f32));
        }
        Ok(())
    }

    /// Adds the rows of the pattern on a block of random tokens, repeated.
    ///
    /// # Errors
    /// [`InspectError::Block`] where the pattern has an odd number of tokens or none.
    pub fn add_block(&mut self, pattern: &Pattern<'_>) -> Result<()> {
        let block = pattern.tokens() / 2;
        repeated::check("induction", pattern, block)?;
        let [_, duplicate, induction, ..] = &mut self.0;
        for query in block..pattern.tokens() {
            duplicate.push(pattern.at(query, query - block) as f32);
            induction.push(pattern.at(query, query + 1 - block) as f32);
        }
        Ok(())
    }

    /// The means of all rows so far.
    ///
    /// # Errors
    /// [`InspectError::Empty`] where there is no text or no block.
    pub fn scores(&self, layer: usize, head: usize) -> Result<HeadScores> {
        let mean = |rows: &Vec<f32>| {
            let sum: f64 = rows.iter().map(|&row| f64::from(row)).sum();
            (!rows.is_empty()).then_some(sum / rows.len() as f64)
        };
        let some = |rows| mean(rows).ok_or(InspectError::Empty { what: "windows of text" });
        let [
            previous,
            duplicate,
            induction,
            duplicate_text,
            induction_text,
            first,
            current,
            entropy,
            distance,
        ] = &self.0;
        Ok(HeadScores {
            layer,
            head,
            previous_token: some(previous)?,
            duplicate_token: some(duplicate)?,
            induction: some(induction)?,
            duplicate_in_text: mean(duplicate_text),
            induction_in_text: mean(induction_text),
            first_token: some(first)?,
            current_token: some(current)?,
            entropy: some(entropy)?,
            mean_distance: some(distance)?,
        })
    }

    /// How each score is distributed over the rows, by name; none where it has no row.
    pub fn spread(mut self) -> BTreeMap<&'static str, Quantiles> {
        let names = NAMES.into_iter().zip(&mut self.0);
        names.filter_map(|(name, rows)| Some((name, Quantiles::of(rows)?))).collect()
    }
}

/// How a score is distributed over rows: a mean of 0.3 may be 0.3 everywhere, or 1 in three rows of ten.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// A tenth of the rows is not above this.
    pub p10: f64,
    /// Half of the rows are not.
    pub p50: f64,
    /// Nine tenths of the rows are not.
    pub p90: f64,
}

impl Quantiles {
    fn of(rows: &mut [f32]) -> Option<Self> {
        rows.sort_by(f32::total_cmp);
        let last = rows.len().checked_sub(1)?;
        let at = |tenths: usize| f64::from(rows[(last * tenths + 5) / 10]);
        Some(Self { p10: at(1), p50: at(5), p90: at(9) })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pattern whose row i looks at `target(i)` alone.
    pub(crate) fn pointing(tokens: usize, target: impl Fn(usize) -> usize) -> Vec<f32> {
        let mut weights = vec![0.0; tokens * tokens];
        for query in 0..tokens {
            weights[query * tokens + target(query)] = 1.0;
        }
        weights
    }

    /// A pattern whose row i is uniform over the keys up to i.
    pub(crate) fn uniform(tokens: usize) -> Vec<f32> {
        let weight = |index: usize| {
            let (query, key) = (index / tokens, index % tokens);
            if key <= query { 1.0 / (query + 1) as f32 } else { 0.0 }
        };
        (0..tokens * tokens).map(weight).collect()
    }

    pub(crate) fn pattern(weights: &[f32]) -> Pattern<'_> {
        Pattern::new(weights, weights.len().isqrt(), true).unwrap()
    }

    fn rows(text: &[f32], block: &[f32]) -> HeadRows {
        let mut rows = HeadRows::default();
        rows.add_text(&pattern(text), &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        rows.add_block(&pattern(block)).unwrap();
        rows
    }

    fn measured(text: &[f32], block: &[f32]) -> HeadScores {
        rows(text, block).scores(1, 2).unwrap()
    }

    #[test]
    fn a_pattern_has_to_be_square() {
        let error = Pattern::new(&[1.0, 0.0, 1.0], 2, true).unwrap_err().to_string();
        assert_eq!(error, "a pattern of 2 tokens has 4 weights, but 3 were given");
    }

    #[test]
    fn json_has_the_names_of_the_scores() {
        let scores = measured(&uniform(8), &uniform(8));
        let value = serde_json::to_value([scores]).unwrap();
        let mut names: Vec<_> = value[0].as_object().unwrap().keys().cloned().collect();
        names.sort();
        let expected = [
            "current_token",
            "duplicate_in_text",
            "duplicate_token",
            "entropy",
            "first_token",
            "head",
            "induction",
            "induction_in_text",
            "layer",
            "mean_distance",
            "previous_token",
        ];
        assert_eq!(names, expected);
        assert_eq!((&value[0]["layer"], &value[0]["head"]), (&1.into(), &2.into()));
    }

    #[test]
    fn the_rows_are_those_of_the_single_scores() {
        let (text, block) = (uniform(8), pointing(8, |query| query.saturating_sub(3)));
        let (scores, text, block) = (measured(&text, &block), pattern(&text), pattern(&block));
        let pairs = [
            (scores.previous_token, positional::previous_token(&text)),
            (scores.first_token, positional::first_token(&text)),
            (scores.current_token, positional::current_token(&text)),
            (scores.entropy, positional::entropy(&text)),
            (scores.mean_distance, positional::mean_distance(&text)),
            (scores.duplicate_token, repeated::duplicate_token(&block, 4)),
            (scores.induction, repeated::induction(&block, 4)),
        ];
        for (found, expected) in pairs {
            assert!((found - expected.unwrap()).abs() < 1e-6);
        }
        // no token of the text comes again
        assert_eq!((scores.duplicate_in_text, scores.induction_in_text), (None, None));
    }

    #[test]
    fn all_attention_on_the_first_token_is_no_induction() {
        let first = pointing(8, |_| 0);
        let scores = measured(&first, &first);
        assert_eq!(scores.induction.to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn windows_weigh_by_their_rows_and_the_spread_shows_what_a_mean_hides() {
        let (one, zero) = (pointing(8, |query| query.saturating_sub(1)), pointing(8, |query| query));
        let mut all = rows(&one, &one);
        all.add_text(&pattern(&zero), &[1; 8]).unwrap();
        assert!((all.scores(0, 0).unwrap().previous_token - 0.5).abs() < 1e-12);
        let spread = all.spread()["previous_token"];
        assert_eq!(spread, Quantiles { p10: 0.0, p50: 1.0, p90: 1.0 });
        assert!(HeadRows::default().scores(0, 0).is_err());
    }
}
