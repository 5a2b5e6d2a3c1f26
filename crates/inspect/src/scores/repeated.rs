//! Scores on a block of n random distinct tokens, repeated (T = 2n): what a head does when it has seen this before.
//!
//! Nothing but the repetition can be predicted, so what these scores find is not memory of the training text.
//!
//! # Source
//! Olsson et al. 2022, "In-context learning and induction heads", the repeated random sequence test.

use std::collections::BTreeMap;

use softdict_random::Stream;

use super::Pattern;
use crate::error::{InspectError, Result};

/// How much a token looks at its earlier copy: mean of A[i, i−n] over i = n..2n−1, 0 to 1.
///
/// Use it to find heads that notice repetition. Perfect: 1. Uniform causal attention with n = 4: 0.158631.
///
/// # Errors
/// [`InspectError::Block`] where the pattern is not 2n×2n.
pub fn duplicate_token(pattern: &Pattern<'_>, block: usize) -> Result<f64> {
    check("duplicate token", pattern, block)?;
    pattern.mean_from("duplicate token", block, |query| pattern.at(query, query - block))
}

/// How much a token looks at what came after its earlier copy: mean of A[i, i−n+1] over i = n..2n−1, 0 to 1.
///
/// Use it to find heads that continue a pattern they have seen once. Perfect: 1. Uniform causal attention with
/// n = 4: 0.158631.
///
/// # Errors
/// [`InspectError::Block`] where the pattern is not 2n×2n.
pub fn induction(pattern: &Pattern<'_>, block: usize) -> Result<f64> {
    check("induction", pattern, block)?;
    pattern.mean_from("induction", block, |query| pattern.at(query, query + 1 - block))
}

pub(super) fn check(score: &'static str, pattern: &Pattern<'_>, block: usize) -> Result<()> {
    let tokens = pattern.tokens();
    if block > 0 && tokens == block.saturating_mul(2) {
        Ok(())
    } else {
        Err(InspectError::Block { score, tokens, block })
    }
}

/// `block` distinct token ids below `vocab` in random order, twice: the text of this module's scores.
///
/// # Errors
/// [`InspectError::Vocabulary`] where `block` is 0 or there are fewer than `block` ids of 32 bits.
pub fn repeated_block(stream: &mut Stream, vocab: usize, block: usize) -> Result<Vec<u32>> {
    if block == 0 || block > vocab {
        return Err(InspectError::Vocabulary { block, vocab });
    }
    // the first draws of a shuffle of 0..vocab, of which only the moved places are stored
    let mut moved: BTreeMap<usize, usize> = BTreeMap::new();
    let mut ids = Vec::with_capacity(2 * block);
    for place in 0..block {
        let drawn = place + stream.below(vocab - place);
        let id = moved.get(&drawn).copied().unwrap_or(drawn);
        moved.insert(drawn, moved.get(&place).copied().unwrap_or(place));
        ids.push(u32::try_from(id).map_err(|_| InspectError::Vocabulary { block, vocab })?);
    }
    ids.extend_from_within(..);
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use softdict_random::Purpose;

    use super::super::tests::{pattern, pointing, uniform};
    use super::*;

    fn stream(seed: u64) -> Stream {
        Stream::new(seed, Purpose::Scores, 0)
    }

    #[test]
    fn uniform_attention_has_the_computed_scores() {
        let weights = uniform(8);
        for score in [duplicate_token, induction] {
            let found = score(&pattern(&weights), 4).unwrap();
            assert!((found - 0.158_631).abs() < 1e-6, "{found}");
        }
    }

    #[test]
    fn a_perfect_head_has_one_score_and_not_the_other() {
        let after = pointing(8, |query| if query < 4 { 0 } else { query - 3 });
        assert!((induction(&pattern(&after), 4).unwrap() - 1.0).abs() < 1e-12);
        assert!(duplicate_token(&pattern(&after), 4).unwrap().abs() < 1e-12);
        let same = pointing(8, |query| query.saturating_sub(4));
        assert!(induction(&pattern(&same), 4).unwrap().abs() < 1e-12);
        assert!((duplicate_token(&pattern(&same), 4).unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_block_has_to_be_half_of_the_pattern() {
        let weights = uniform(7);
        let error = induction(&pattern(&weights), 3).unwrap_err().to_string();
        assert_eq!(error, "the induction score needs a block of n tokens repeated; 7 tokens are not 2 × 3");
        assert!(duplicate_token(&pattern(&[]), 0).is_err());
        let pair = [1.0, 0.0, 0.25, 0.75];
        assert!((induction(&pattern(&pair), 1).unwrap() - 0.75).abs() < 1e-12);
    }

    #[test]
    fn a_block_is_distinct_and_repeated() {
        for (vocab, block) in [(4, 4), (10, 3), (50_000, 64), (1, 1)] {
            let ids = repeated_block(&mut stream(3), vocab, block).unwrap();
            assert_eq!(ids[..block], ids[block..]);
            let mut sorted = ids[..block].to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), block);
            assert!(sorted.iter().all(|&id| (id as usize) < vocab));
        }
    }

    #[test]
    fn a_block_follows_its_stream() {
        let draw = |seed| repeated_block(&mut stream(seed), 1000, 20).unwrap();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn every_order_of_the_ids_is_as_likely() {
        let mut counts = BTreeMap::new();
        let mut stream = stream(0);
        for _ in 0..6000 {
            *counts.entry(repeated_block(&mut stream, 3, 3).unwrap()).or_insert(0u32) += 1;
        }
        // 1000 expected for each of 6 orders; six standard deviations of a binomial are 173
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| count.abs_diff(1000) < 173), "{counts:?}");
    }

    #[test]
    fn a_small_vocabulary_is_an_error() {
        let error = repeated_block(&mut stream(0), 3, 4).unwrap_err().to_string();
        assert_eq!(
            error,
            "a block of 4 distinct tokens cannot be drawn from a vocabulary of 3; ask for 1 to 3"
        );
        assert!(repeated_block(&mut stream(0), 3, 0).is_err());
    }
}
