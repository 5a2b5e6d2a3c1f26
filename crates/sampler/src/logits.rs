//! Filters on the logits of the next token, in the order that users know from transformers: repetition
//! penalty, temperature, top-k, top-p, min-p.
//!
//! A filtered token's logit becomes negative infinity. Every filter keeps the likeliest token, and among equal
//! logits the lower ids come first, so the same logits always leave the same tokens.

use std::cmp::Ordering;
use std::num::NonZeroUsize;

use crate::config::SampleOptions;
use crate::error::{Result, SampleError};

/// Applies all filters of `options` to the logits of the next token.
///
/// `seen` is the text so far, prompt included, as the repetition penalty needs it. The order is that of
/// transformers' `GenerationMixin._get_logits_processor`. At temperature 0 only the penalty applies, for the
/// other filters never change which token is the likeliest.
///
/// # Shapes
/// `logits`: `(V)`.
/// # Errors
/// [`SampleError::EmptyVocabulary`], [`SampleError::NonFinite`] and [`SampleError::UnknownToken`]; then the
/// logits are as before.
pub fn filter(logits: &mut [f32], seen: &[u32], options: &SampleOptions) -> Result<()> {
    check(logits)?;
    if let Some(penalty) = options.repetition_penalty {
        penalize_repetition(logits, seen, penalty)?;
    }
    if options.temperature <= 0.0 {
        return Ok(());
    }
    scale_by_temperature(logits, options.temperature);
    if let Some(k) = options.top_k {
        keep_top_k(logits, k);
    }
    if let Some(p) = options.top_p {
        keep_top_p(logits, p);
    }
    if let Some(p) = options.min_p {
        keep_min_p(logits, p);
    }
    Ok(())
}

/// Refuses logits from which no token can be chosen with reason.
fn check(logits: &[f32]) -> Result<()> {
    if logits.is_empty() {
        return Err(SampleError::EmptyVocabulary);
    }
    match logits.iter().position(|logit| !logit.is_finite()) {
        Some(id) => Err(SampleError::NonFinite { id: id as u32, value: logits[id] }),
        None => Ok(()),
    }
}

/// Makes each token of `seen` less likely: a positive logit is divided by `penalty`, a negative one multiplied.
///
/// Once per distinct token, however often it occurs.
///
/// # Errors
/// [`SampleError::UnknownToken`] for a token that has no logit; then no logit is changed.
/// # Source
/// Keskar et al. 2019, arXiv:1909.05858, section 4.1; the sign rule is transformers' mend of its equation,
/// which would make tokens with negative logits likelier.
pub fn penalize_repetition(logits: &mut [f32], seen: &[u32], penalty: f32) -> Result<()> {
    let mut distinct = seen.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    if let Some(&id) = distinct.last().filter(|&&id| id as usize >= logits.len()) {
        return Err(SampleError::UnknownToken { id, vocabulary: logits.len() });
    }
    for id in distinct {
        let logit = &mut logits[id as usize];
        let changed = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        // an extreme penalty must not turn a finite logit into an infinite one
        *logit = changed.clamp(f32::MIN, f32::MAX);
    }
    Ok(())
}

/// Divides the logits by `temperature`, above 0.
///
/// The largest becomes 0 first, which changes no probability: however small the temperature, the likeliest
/// token stays at 0 and the others sink, where plain division would overflow.
pub fn scale_by_temperature(logits: &mut [f32], temperature: f32) {
    let max = largest(logits);
    for logit in logits {
        *logit = (*logit - max) / temperature;
    }
}

/// Keeps exactly the `k` likeliest tokens, or all where there are no more than `k`.
///
/// # Source
/// Fan et al. 2018, arXiv:1805.04833, section 5.4.
pub fn keep_top_k(logits: &mut [f32], k: NonZeroUsize) {
    if k.get() >= logits.len() {
        return;
    }
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.select_nth_unstable_by(k.get(), |&left, &right| likelier(logits, left, right));
    for &id in &ids[k.get()..] {
        logits[id] = f32::NEG_INFINITY;
    }
}

/// Keeps the nucleus: the smallest set of the likeliest tokens whose probability is at least `p`; at least one
/// token, and all where `p` is 1.
///
/// # Source
/// Holtzman et al. 2020, arXiv:1904.09751, section 3.1, equation 2.
pub fn keep_top_p(logits: &mut [f32], p: f32) {
    if p >= 1.0 {
        return;
    }
    let weights = weights(logits);
    let total: f64 = weights.iter().sum();
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_unstable_by(|&left, &right| likelier(logits, left, right));
    let mut mass = 0.0;
    let mut is_full = false;
    for id in ids {
        if is_full {
            logits[id] = f32::NEG_INFINITY;
        }
        mass += weights[id];
        is_full |= mass >= f64::from(p) * total;
    }
}

/// Keeps the tokens whose probability is at least `p` times that of the likeliest.
///
/// # Source
/// Nguyen et al. 2024, arXiv:2407.01082, section 3.
pub fn keep_min_p(logits: &mut [f32], p: f32) {
    let floor = f64::from(largest(logits)) + f64::from(p).ln();
    for logit in logits {
        if f64::from(*logit) < floor {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// The largest logit; negative infinity where there is none.
pub(crate) fn largest(logits: &[f32]) -> f32 {
    logits.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

/// Probabilities up to a common factor, which makes the largest 1: exp(logit − largest).
pub(crate) fn weights(logits: &[f32]) -> Vec<f64> {
    let max = f64::from(largest(logits));
    logits.iter().map(|&logit| (f64::from(logit) - max).exp()).collect()
}

/// Orders tokens by falling logit, equal ones by rising id; without NaN this is a total order.
fn likelier(logits: &[f32], left: usize, right: usize) -> Ordering {
    logits[right].partial_cmp(&logits[left]).unwrap_or(Ordering::Equal).then(left.cmp(&right))
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the filters promise these very values")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OFF: f32 = f32::NEG_INFINITY;

    fn k(k: usize) -> NonZeroUsize {
        NonZeroUsize::new(k).unwrap()
    }

    fn kept(logits: &[f32]) -> Vec<usize> {
        (0..logits.len()).filter(|&id| logits[id] > OFF).collect()
    }

    /// Options that change nothing.
    fn plain() -> SampleOptions {
        SampleOptions { temperature: 1.0, top_k: None, ..SampleOptions::default() }
    }

    #[test]
    fn a_penalty_of_one_and_a_half_turns_3_into_2_and_minus_3_into_minus_4_and_a_half_once() {
        let mut logits = [3.0, -3.0, 1.0];
        penalize_repetition(&mut logits, &[0, 1, 0, 1], 1.5).unwrap();
        assert_eq!(logits, [2.0, -4.5, 1.0]);
    }

    #[test]
    fn an_extreme_penalty_leaves_finite_logits() {
        let mut logits = [3e38, -3e38, 0.0];
        penalize_repetition(&mut logits, &[0, 1, 2], 1e-38).unwrap();
        assert!(logits.iter().all(|logit| logit.is_finite()), "{logits:?}");
        penalize_repetition(&mut logits, &[0, 1, 2], 1e38).unwrap();
        assert!(logits.iter().all(|logit| logit.is_finite()), "{logits:?}");
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_named_and_changes_nothing() {
        let mut logits = [3.0, 1.0];
        let error = penalize_repetition(&mut logits, &[0, 2], 2.0).unwrap_err();
        assert!(matches!(error, SampleError::UnknownToken { id: 2, vocabulary: 2 }), "{error}");
        assert_eq!(logits, [3.0, 1.0]);
    }

    #[test]
    fn temperature_one_half_doubles_the_distances() {
        let mut logits = [1.0, 3.0, 2.5];
        scale_by_temperature(&mut logits, 0.5);
        assert_eq!(logits, [-4.0, 0.0, -1.0]);
    }

    #[test]
    fn the_smallest_temperature_leaves_the_likeliest_token_and_no_nan() {
        let mut logits = [f32::MIN, 5.0, f32::MAX, 7.0];
        scale_by_temperature(&mut logits, f32::from_bits(1));
        assert_eq!(logits, [OFF, OFF, 0.0, OFF]);
    }

    #[test]
    fn exactly_k_survive_a_tie_at_the_last_place_and_lower_ids_come_first() {
        let mut logits = [1.0, 2.0, 1.0, 3.0, 1.0];
        keep_top_k(&mut logits, k(3));
        assert_eq!(logits, [1.0, 2.0, OFF, 3.0, OFF]);
        // the two zeros are equal, whatever their sign
        let mut zeros = [-0.0, 0.0, 0.0];
        keep_top_k(&mut zeros, k(1));
        assert_eq!(kept(&zeros), [0]);
    }

    #[test]
    fn top_k_of_the_vocabulary_and_above_changes_nothing() {
        let before: Vec<f32> = (0..10).map(|id| (id * 7 % 10) as f32).collect();
        for count in [10, 999] {
            let mut logits = before.clone();
            keep_top_k(&mut logits, k(count));
            assert_eq!(logits, before);
        }
    }

    /// Probabilities 0.1, 0.5, 0.15, 0.25, in falling order 0.5, 0.75, 0.9, 1 together.
    #[test]
    fn the_nucleus_is_the_smallest_set_with_the_mass() {
        let logits = [0.1_f32, 0.5, 0.15, 0.25].map(f32::ln);
        for (p, expected) in [(0.01, vec![1]), (0.49, vec![1]), (0.6, vec![1, 3]), (0.8, vec![1, 2, 3])] {
            let mut filtered = logits;
            keep_top_p(&mut filtered, p);
            assert_eq!(kept(&filtered), expected, "p = {p}");
        }
    }

    #[test]
    fn a_tie_at_the_edge_of_the_nucleus_goes_to_the_lower_id() {
        let mut logits = [0.0; 4];
        keep_top_p(&mut logits, 0.4);
        assert_eq!(kept(&logits), [0, 1]);
    }

    /// Probabilities 0.1, 0.5, 0.15, 0.25; a floor of 0.25 × 0.5 is 0.125.
    #[test]
    fn min_p_keeps_what_is_likely_enough_beside_the_likeliest() {
        let logits = [0.1_f32, 0.5, 0.15, 0.25].map(f32::ln);
        for (p, expected) in
            [(0.25, vec![1, 2, 3]), (0.4, vec![1, 3]), (1.0, vec![1]), (0.0, vec![0, 1, 2, 3])]
        {
            let mut filtered = logits;
            keep_min_p(&mut filtered, p);
            assert_eq!(kept(&filtered), expected, "p = {p}");
        }
    }

    /// After the penalty token 0 falls behind token 1; at temperature 2 the nucleus of 0.6 then needs two tokens,
    /// at temperature 1 it would need one: each filter sees the work of those before it.
    #[test]
    fn filters_apply_in_the_documented_order() {
        let options = SampleOptions {
            temperature: 2.0,
            top_k: NonZeroUsize::new(3),
            top_p: Some(0.6),
            repetition_penalty: Some(4.0),
            ..plain()
        };
        // penalised: 1, 3, 2, 0; halved: 0.5, 1.5, 1, 0; three kept: softmax 0.186, 0.506, 0.307
        let mut logits = [4.0, 3.0, 2.0, 0.0];
        filter(&mut logits, &[0], &options).unwrap();
        assert_eq!(logits, [OFF, 0.0, -0.5, OFF]);
    }

    #[test]
    fn a_logit_that_is_not_finite_is_named_and_nothing_is_changed() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut logits = [1.0, 2.0, value];
            let error = filter(&mut logits, &[], &plain()).unwrap_err();
            assert!(error.to_string().contains(&format!("token 2 is {value}")), "{error}");
            assert_eq!(logits[..2], [1.0, 2.0]);
        }
        assert!(matches!(filter(&mut [], &[], &plain()), Err(SampleError::EmptyVocabulary)));
    }

    fn options() -> impl Strategy<Value = SampleOptions> {
        let on = |range| proptest::option::of(range);
        let filters = (on(1e-6_f32..=1.0), on(0.0_f32..=1.0), on(0.01_f32..=10.0));
        (prop_oneof![Just(0.0_f32), 1e-6_f32..10.0], 0_usize..20, filters).prop_map(
            |(temperature, top_k, (top_p, min_p, repetition_penalty))| {
                let top_k = NonZeroUsize::new(top_k);
                SampleOptions { temperature, top_k, top_p, min_p, repetition_penalty, ..plain() }
            },
        )
    }

    /// Few distinct values, so that ties are common.
    fn some_logits() -> impl Strategy<Value = Vec<f32>> {
        proptest::collection::vec((-8_i8..8).prop_map(|value| f32::from(value) * 0.5), 1..20)
    }

    proptest! {
        #[test]
        fn no_filter_removes_the_likeliest_token(mut logits in some_logits(), options in options()) {
            prop_assert!(options.validate().is_ok());
            let penalty = options.repetition_penalty.unwrap_or(1.0);
            let mut penalised = logits.clone();
            penalize_repetition(&mut penalised, &[0], penalty).unwrap();
            filter(&mut logits, &[0], &options).unwrap();
            let best = (0..logits.len()).min_by(|&a, &b| likelier(&penalised, a, b)).unwrap();
            prop_assert!(logits[best] > OFF);
            prop_assert!(logits.iter().all(|logit| !logit.is_nan()));
        }

        #[test]
        fn k_of_one_leaves_the_lowest_of_the_likeliest_tokens(logits in some_logits()) {
            let mut one = logits.clone();
            filter(&mut one, &[], &SampleOptions { top_k: NonZeroUsize::new(1), ..plain() }).unwrap();
            let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            prop_assert_eq!(kept(&one), [best]);
        }

        #[test]
        fn top_p_of_one_and_min_p_of_zero_and_k_of_none_keep_all(logits in some_logits()) {
            let (mut all, mut open) = (logits.clone(), logits);
            filter(&mut all, &[], &plain()).unwrap();
            let off = SampleOptions { top_p: Some(1.0), min_p: Some(0.0), repetition_penalty: Some(1.0), ..plain() };
            filter(&mut open, &[], &off).unwrap();
            prop_assert_eq!(&all, &open);
            prop_assert_eq!(kept(&all).len(), all.len());
        }

        #[test]
        fn the_nucleus_has_the_mass_and_not_without_its_last_token(logits in some_logits(), p in 0.01_f32..0.99) {
            let weights = weights(&logits);
            let total: f64 = weights.iter().sum();
            let mut filtered = logits.clone();
            keep_top_p(&mut filtered, p);
            let kept = kept(&filtered);
            let mass: f64 = kept.iter().map(|&id| weights[id]).sum::<f64>() / total;
            let last = kept.iter().copied().max_by(|&a, &b| likelier(&logits, a, b)).unwrap();
            // sums in another order differ by rounding only
            prop_assert!(mass >= f64::from(p) - 1e-12);
            prop_assert!(mass - weights[last] / total < f64::from(p) + 1e-12);
        }

        #[test]
        fn k_survive(logits in some_logits(), count in 1_usize..25) {
            let mut filtered = logits.clone();
            keep_top_k(&mut filtered, k(count));
            prop_assert_eq!(kept(&filtered).len(), count.min(logits.len()));
            let lost = (0..logits.len()).filter(|&id| filtered[id] == OFF).map(|id| logits[id]);
            let most_lost = lost.fold(OFF, f32::max);
            prop_assert!(kept(&filtered).iter().all(|&id| logits[id] >= most_lost));
        }
    }
}
