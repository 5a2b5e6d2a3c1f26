//! Scores of any pattern A (T×T, rows are queries i, columns are keys j): where a row looks by position alone.
//!
//! # Source
//! The names follow Elhage et al. 2021, "A mathematical framework for transformer circuits"; entropy and
//! distance follow Vig and Belinkov 2019, "Analyzing the structure of attention in a transformer language
//! model", section 4.

use super::Pattern;
use crate::error::Result;

/// How much a token looks at the one before it: mean of A[i, i−1] over i = 1..T−1, 0 to 1.
///
/// Use it to find the first half of an induction circuit. Perfect: 1. Uniform causal attention over 8 tokens
/// already gives 0.245408, so compare with that for the same T.
///
/// # Errors
/// [`crate::InspectError::TooShort`] where T < 2.
pub fn previous_token(pattern: &Pattern<'_>) -> Result<f64> {
    pattern.mean_from("previous token", 1, |query| rows::previous_token(pattern, query))
}

/// How much a token looks at the very first: mean of A[i, 0] over i = 1..T−1, 0 to 1.
///
/// Use it to find heads at rest: with nothing to do, many put their attention on the first token.
///
/// # Errors
/// [`crate::InspectError::TooShort`] where T < 2.
pub fn first_token(pattern: &Pattern<'_>) -> Result<f64> {
    pattern.mean_from("first token", 1, |query| rows::first_token(pattern, query))
}

/// How much a token looks at itself: mean of A[i, i] over i = 0..T−1, 0 to 1.
///
/// Use it to find heads that act like one more feed-forward layer. Row 0 of a causal pattern is always 1, so
/// even the uniform one scores (1 + 1/2 + … + 1/T)/T.
///
/// # Errors
/// [`crate::InspectError::TooShort`] where T is 0.
pub fn current_token(pattern: &Pattern<'_>) -> Result<f64> {
    pattern.mean_from("current token", 0, |query| rows::current_token(pattern, query))
}

/// How spread a token's attention is: mean over i = 1..T−1 of −Σⱼ A[i, j]·ln A[i, j] / ln(keys), 0 to 1.
///
/// `keys` is how many keys row i sees: i+1 where the pattern is causal, T where it is not. 0 is one key alone, 1
/// is uniform. Use it to tell heads that choose from heads that average. Row 0 of a causal pattern has no choice
/// and does not count.
///
/// # Errors
/// [`crate::InspectError::TooShort`] where T < 2.
pub fn entropy(pattern: &Pattern<'_>) -> Result<f64> {
    pattern.mean_from("entropy", 1, |query| rows::entropy(pattern, query))
}

/// How far a token looks: mean over i = 1..T−1 of Σⱼ A[i, j]·|i − j|, in tokens.
///
/// 0 is itself alone; a causal pattern reaches at most T/2, all attention on the first token. Use it to order
/// heads from local to far; uniform causal attention gives T/4.
///
/// # Errors
/// [`crate::InspectError::TooShort`] where T < 2.
pub fn mean_distance(pattern: &Pattern<'_>) -> Result<f64> {
    pattern.mean_from("mean distance", 1, |query| rows::mean_distance(pattern, query))
}

/// What single rows add to the scores.
pub(super) mod rows {
    use super::Pattern;

    pub(in super::super) fn previous_token(pattern: &Pattern<'_>, query: usize) -> f64 {
        pattern.at(query, query - 1)
    }

    pub(in super::super) fn first_token(pattern: &Pattern<'_>, query: usize) -> f64 {
        pattern.at(query, 0)
    }

    pub(in super::super) fn current_token(pattern: &Pattern<'_>, query: usize) -> f64 {
        pattern.at(query, query)
    }

    pub(in super::super) fn entropy(pattern: &Pattern<'_>, query: usize) -> f64 {
        let keys = if pattern.causal() { query + 1 } else { pattern.tokens() };
        // 0·ln 0 is 0 in the limit
        let nats: f64 =
            pattern.row(query).filter(|&weight| weight > 0.0).map(|weight| -weight * weight.ln()).sum();
        // a row that sums to 1 only to f32 rounding may come out a hair outside
        (nats / (keys as f64).ln()).clamp(0.0, 1.0)
    }

    pub(in super::super) fn mean_distance(pattern: &Pattern<'_>, query: usize) -> f64 {
        pattern.row(query).enumerate().map(|(key, weight)| weight * query.abs_diff(key) as f64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{pattern, pointing, uniform};
    use super::*;

    /// Weights are f32, so sums of a few of them are right to about 1e-7.
    const TOLERANCE: f64 = 1e-6;

    fn close(found: Result<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found - expected).abs() < TOLERANCE, "{found}, not {expected}");
    }

    #[test]
    fn uniform_attention_has_the_computed_scores() {
        let weights = uniform(8);
        let pattern = pattern(&weights);
        close(previous_token(&pattern), 0.245_408);
        close(first_token(&pattern), 0.245_408);
        // (1 + 1/2 + … + 1/8)/8
        close(current_token(&pattern), 0.339_732_142_857);
        close(entropy(&pattern), 1.0);
        // row i: i/2 on average, over i = 1..7
        close(mean_distance(&pattern), 2.0);
    }

    #[test]
    fn perfect_heads_score_one() {
        let before = pointing(8, |query| query.saturating_sub(1));
        close(previous_token(&pattern(&before)), 1.0);
        close(mean_distance(&pattern(&before)), 1.0);
        close(entropy(&pattern(&before)), 0.0);
        let first = pointing(8, |_| 0);
        close(first_token(&pattern(&first)), 1.0);
        close(mean_distance(&pattern(&first)), 4.0);
        let itself = pointing(8, |query| query);
        close(current_token(&pattern(&itself)), 1.0);
        close(previous_token(&pattern(&itself)), 0.0);
        close(mean_distance(&pattern(&itself)), 0.0);
    }

    #[test]
    fn entropy_counts_the_keys_that_a_row_sees() {
        // half on each of two keys: ln 2 over ln 2, then over ln 3
        let weights = [1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.5, 0.0, 0.5];
        close(entropy(&pattern(&weights)), f64::midpoint(1.0, 2f64.ln() / 3f64.ln()));
        let all = [0.25; 16];
        close(entropy(&Pattern::new(&all, 4, false).unwrap()), 1.0);
    }

    #[test]
    fn attention_ahead_counts_as_distance() {
        let ahead = pointing(4, |query| 3 - query);
        close(mean_distance(&Pattern::new(&ahead, 4, false).unwrap()), (1.0 + 1.0 + 3.0) / 3.0);
    }

    #[test]
    fn one_token_has_no_previous_one() {
        let error = previous_token(&pattern(&[1.0])).unwrap_err().to_string();
        assert_eq!(error, "the previous token score of 1 tokens is undefined; it needs 2 or more");
        close(current_token(&pattern(&[1.0])), 1.0);
    }
}
