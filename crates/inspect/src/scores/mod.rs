//! Numbers that say what kind of head a pattern belongs to.
//!
//! Each score is a mean over the rows of one T×T pattern A, rows are queries; [`positional`] ones need any
//! text, [`repeated`] ones a block of random tokens, repeated. [`HeadScores`] has one of each, [`table`]
//! prints them.
//!
//! A score says where a head looks, not what the model uses it for: that takes ablation, measured on text.

use serde::Serialize;

use crate::error::{InspectError, Result};

pub mod positional;
pub mod repeated;
pub mod table;

pub use repeated::repeated_block;
pub use table::{Column, Ranges, format_table};

/// From which score on a head is named after it: more than half of its attention goes there.
pub const NAMED_FROM: f64 = 0.5;

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
    /// [`positional::first_token`], 0 to 1.
    pub first_token: f64,
    /// [`positional::current_token`], 0 to 1.
    pub current_token: f64,
    /// [`positional::entropy`], 0 to 1.
    pub entropy: f64,
    /// [`positional::mean_distance`], in tokens.
    pub mean_distance: f64,
}

impl HeadScores {
    /// Scores one head from its pattern on natural `text` and on a `block` of n tokens, repeated (T = 2n).
    ///
    /// # Errors
    /// [`InspectError::TooShort`] where `text` has one token only, [`InspectError::Block`] where `block` has an
    /// odd number of tokens or none.
    pub fn measure(layer: usize, head: usize, text: &Pattern<'_>, block: &Pattern<'_>) -> Result<Self> {
        let block_tokens = block.tokens() / 2;
        Ok(Self {
            layer,
            head,
            previous_token: positional::previous_token(text)?,
            duplicate_token: repeated::duplicate_token(block, block_tokens)?,
            induction: repeated::induction(block, block_tokens)?,
            first_token: positional::first_token(text)?,
            current_token: positional::current_token(text)?,
            entropy: positional::entropy(text)?,
            mean_distance: positional::mean_distance(text)?,
        })
    }

    /// The mean of several measurements of one head, each counting the same; none for no measurement. Layer
    /// and head are the first one's.
    pub fn mean(samples: &[Self]) -> Option<Self> {
        let first = samples.first()?;
        let mean = |score: fn(&Self) -> f64| samples.iter().map(score).sum::<f64>() / samples.len() as f64;
        Some(Self {
            layer: first.layer,
            head: first.head,
            previous_token: mean(|sample| sample.previous_token),
            duplicate_token: mean(|sample| sample.duplicate_token),
            induction: mean(|sample| sample.induction),
            first_token: mean(|sample| sample.first_token),
            current_token: mean(|sample| sample.current_token),
            entropy: mean(|sample| sample.entropy),
            mean_distance: mean(|sample| sample.mean_distance),
        })
    }

    /// What the head is called: the highest of the five position scores where it is at least [`NAMED_FROM`],
    /// else `mixed`.
    pub fn kind(&self) -> &'static str {
        let named = [
            (self.induction, "induction"),
            (self.duplicate_token, "duplicate-token"),
            (self.previous_token, "previous-token"),
            (self.first_token, "first-token"),
            (self.current_token, "current-token"),
        ];
        let mut best = (NAMED_FROM, "mixed");
        for candidate in named.into_iter().filter(|candidate| candidate.0 >= NAMED_FROM) {
            if best.1 == "mixed" || candidate.0 > best.0 {
                best = candidate;
            }
        }
        best.1
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

    fn measured(text: &[f32], block: &[f32]) -> HeadScores {
        HeadScores::measure(1, 2, &pattern(text), &pattern(block)).unwrap()
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
            "duplicate_token",
            "entropy",
            "first_token",
            "head",
            "induction",
            "layer",
            "mean_distance",
            "previous_token",
        ];
        assert_eq!(names, expected);
        assert_eq!((&value[0]["layer"], &value[0]["head"]), (&1.into(), &2.into()));
    }

    #[test]
    fn heads_are_named_after_what_they_do() {
        let before = pointing(8, |query| query.saturating_sub(1));
        let first = pointing(8, |_| 0);
        let itself = pointing(8, |query| query);
        let same = pointing(8, |query| if query < 4 { query } else { query - 4 });
        let after = pointing(8, |query| if query < 4 { 0 } else { query - 3 });
        let spread = uniform(8);
        assert_eq!(measured(&before, &before).kind(), "previous-token");
        assert_eq!(measured(&first, &first).kind(), "first-token");
        assert_eq!(measured(&itself, &itself).kind(), "current-token");
        assert_eq!(measured(&spread, &same).kind(), "duplicate-token");
        assert_eq!(measured(&spread, &after).kind(), "induction");
        assert_eq!(measured(&spread, &spread).kind(), "mixed");
        // a head that rests on the first token in text and works on repeats is named after the work
        assert_eq!(measured(&first, &after).kind(), "induction");
    }

    #[test]
    fn all_attention_on_the_first_token_is_no_induction() {
        let first = pointing(8, |_| 0);
        let scores = measured(&first, &first);
        assert_eq!(scores.induction.to_bits(), 0.0_f64.to_bits());
        assert_eq!(scores.kind(), "first-token");
    }

    #[test]
    fn the_mean_weighs_measurements_alike() {
        let (one, zero) = (pointing(8, |query| query.saturating_sub(1)), pointing(8, |query| query));
        let mean = HeadScores::mean(&[measured(&one, &one), measured(&zero, &zero)]).unwrap();
        assert!((mean.previous_token - 0.5).abs() < 1e-12);
        assert!(HeadScores::mean(&[]).is_none());
    }
}
