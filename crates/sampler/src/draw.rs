//! The seeded choice of one token.

use softdict_random::Stream;

use crate::error::{Result, SampleError};
use crate::logits::weights;

/// Chooses a token: at `temperature` 0 the likeliest, of equal ones the lowest; else drawn with the
/// probabilities softmax(logits). Negative infinity marks a token that was filtered out.
///
/// The logits are those that [`filter`](crate::filter) left, already divided by the temperature. The draw
/// inverts the cumulative distribution in f64, in the order of the ids: the first token whose cumulative weight
/// exceeds a uniform share of the total. It takes one [`uniform`](Stream::uniform) from the stream, at
/// temperature 0 none.
///
/// # Shapes
/// `logits`: `(V)`.
/// # Errors
/// [`SampleError::EmptyVocabulary`], [`SampleError::NonFinite`] for NaN or positive infinity, and
/// [`SampleError::NothingLeft`] where every token is filtered out; then nothing is taken from the stream.
pub fn draw(logits: &[f32], temperature: f32, stream: &mut Stream) -> Result<u32> {
    let last = last_possible(logits)?;
    if temperature <= 0.0 {
        return Ok(likeliest(logits));
    }
    let weights = weights(logits);
    let total: f64 = weights.iter().sum();
    let target = stream.uniform() * total;
    let mut cumulative = 0.0;
    for (id, weight) in weights.iter().enumerate() {
        cumulative += weight;
        if cumulative > target {
            return Ok(id as u32);
        }
    }
    // only rounding leads here, and the share that it cut off is the last token's
    Ok(last)
}

/// The lowest of the tokens with the largest logit.
fn likeliest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

/// The last token that is not filtered out, once the logits are known to allow a choice.
fn last_possible(logits: &[f32]) -> Result<u32> {
    if logits.is_empty() {
        return Err(SampleError::EmptyVocabulary);
    }
    if let Some(id) = logits.iter().position(|&logit| logit.is_nan() || logit == f32::INFINITY) {
        return Err(SampleError::NonFinite { id: id as u32, value: logits[id] });
    }
    let last = logits.iter().rposition(|&logit| logit > f32::NEG_INFINITY);
    last.map(|id| id as u32).ok_or(SampleError::NothingLeft { vocabulary: logits.len() })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use proptest::prelude::*;
    use softdict_random::Purpose;

    use super::*;
    use crate::config::SampleOptions;
    use crate::logits::filter;

    const OFF: f32 = f32::NEG_INFINITY;

    fn stream(seed: u64) -> Stream {
        Stream::new(seed, Purpose::Sampling, 0)
    }

    /// Logits that change with every token as those of a model do, so that a text can be drawn from them.
    fn step_logits(position: usize) -> Vec<f32> {
        (0..10).map(|id| ((id * 37 + position * 11) % 23) as f32 * 0.2).collect()
    }

    fn text(options: &SampleOptions, seed: u64) -> Vec<u32> {
        let mut stream = stream(seed);
        let mut ids = Vec::new();
        for position in 0..40 {
            let mut logits = step_logits(position);
            filter(&mut logits, &ids, options).unwrap();
            ids.push(draw(&logits, options.temperature, &mut stream).unwrap());
        }
        ids
    }

    fn with_top_k(k: usize) -> SampleOptions {
        SampleOptions { temperature: 1.0, top_k: NonZeroUsize::new(k), ..SampleOptions::default() }
    }

    #[test]
    fn top_k_of_0_10_and_999_of_ten_tokens_give_the_same_text() {
        let open = text(&with_top_k(0), 5);
        assert_eq!(text(&with_top_k(10), 5), open);
        assert_eq!(text(&with_top_k(999), 5), open);
        assert_ne!(text(&with_top_k(2), 5), open);
    }

    #[test]
    fn top_k_of_1_and_temperature_0_give_the_greedy_text() {
        let greedy: Vec<u32> = (0..40).map(|position| likeliest(&step_logits(position))).collect();
        assert_eq!(text(&with_top_k(1), 5), greedy);
        assert_eq!(text(&SampleOptions { temperature: 0.0, ..with_top_k(0) }, 6), greedy);
    }

    #[test]
    fn a_seed_repeats_its_text_and_others_give_others() {
        let options = with_top_k(0);
        assert_eq!(text(&options, 1), text(&options, 1));
        let texts = [1, 2, 3].map(|seed| text(&options, seed));
        assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2]);
    }

    /// Pearson's χ² of 20,000 draws from eight tokens, seven of them possible.
    #[test]
    fn tokens_are_drawn_as_often_as_their_probabilities_say() {
        let probabilities = [0.4, 0.25, 0.0, 0.15, 0.1, 0.05, 0.04, 0.01_f64];
        let logits = probabilities.map(|p| (p.ln() + 3.0) as f32);
        let mut stream = stream(2);
        let mut counts = [0_u32; 8];
        for _ in 0..20_000 {
            counts[draw(&logits, 1.0, &mut stream).unwrap() as usize] += 1;
        }
        assert_eq!(counts[2], 0);
        let statistic: f64 = counts
            .iter()
            .zip(probabilities)
            .filter(|(_, p)| *p > 0.0)
            .map(|(&count, p)| (f64::from(count) - 20_000.0 * p).powi(2) / (20_000.0 * p))
            .sum();
        // six degrees of freedom: above 22.5 in one of a thousand streams
        assert!(statistic < 22.5, "χ² = {statistic}, {counts:?}");
    }

    #[test]
    fn adding_a_constant_to_all_logits_changes_no_draw() {
        let logits = [0.5, -1.0, 2.0, 1.5];
        let shifted = logits.map(|logit| logit + 4096.0);
        let (mut left, mut right) = (stream(3), stream(3));
        for _ in 0..500 {
            let drawn = draw(&logits, 1.0, &mut left).unwrap();
            assert_eq!(drawn, draw(&shifted, 1.0, &mut right).unwrap());
        }
    }

    #[test]
    fn temperature_zero_takes_the_lowest_of_the_likeliest_and_no_random_number() {
        let mut stream = stream(0);
        for (logits, expected) in
            [(vec![1.0, 3.0, 3.0, 2.0], 1), (vec![-0.0, 0.0], 0), (vec![OFF, -5.0, OFF], 1), (vec![7.0], 0)]
        {
            assert_eq!(draw(&logits, 0.0, &mut stream).unwrap(), expected);
        }
        assert_eq!(stream.position(), 0);
        draw(&[1.0, 2.0], 1.0, &mut stream).unwrap();
        assert_eq!(stream.position(), 2, "one uniform number is two words");
    }

    #[test]
    fn no_choice_is_made_where_none_can_be() {
        let mut stream = stream(0);
        for temperature in [0.0, 1.0] {
            let mut error = |logits: &[f32]| draw(logits, temperature, &mut stream).unwrap_err();
            assert!(matches!(error(&[]), SampleError::EmptyVocabulary));
            assert!(matches!(error(&[OFF, OFF]), SampleError::NothingLeft { vocabulary: 2 }));
            assert!(matches!(error(&[0.0, f32::INFINITY]), SampleError::NonFinite { id: 1, .. }));
            assert!(matches!(error(&[f32::NAN, 0.0]), SampleError::NonFinite { id: 0, .. }));
        }
        assert_eq!(stream.position(), 0);
    }

    proptest! {
        #[test]
        fn a_filtered_token_is_never_drawn(
            logits in proptest::collection::vec(prop_oneof![Just(OFF), -30.0_f32..30.0], 1..12),
            seed in 0_u64..1000,
        ) {
            match draw(&logits, 1.0, &mut stream(seed)) {
                Ok(id) => prop_assert!(logits[id as usize] > OFF),
                Err(error) => {
                    prop_assert!(matches!(error, SampleError::NothingLeft { .. }), "{error}");
                    prop_assert!(logits.iter().all(|logit| logit.is_infinite()));
                }
            }
        }
    }
}
