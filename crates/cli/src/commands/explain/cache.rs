//! The KV cache: what was read stays read.
//!
//! # Source
//! "Attention is a lookup table you learn", section "What this costs you", on the KV cache.

use softdict_model::cost::Cost;
use softdict_model::{Decoder, ModelConfig, ModelSettings, Parameters};
use softdict_random::{Purpose, Stream};
use std::fmt::Write;

const TOKENS: usize = 48;
const VOCAB: usize = 65;

struct Found {
    /// Rows that went through the model, with the cache and without.
    rows: [usize; 2],
    /// The largest difference of a logit.
    difference: f32,
    /// The largest logit, to compare with.
    largest: f32,
    /// Bytes that the cache holds for one token.
    bytes: usize,
}

/// Reads random tokens one by one, once with the cache and once all anew for each.
fn find() -> anyhow::Result<Found> {
    let config = ModelConfig::new(&ModelSettings::default(), VOCAB)?;
    let parameters = Parameters::initial(&config, 1);
    let mut stream = Stream::new(0, Purpose::Init, 9);
    let ids: Vec<u32> = (0..TOKENS).map(|_| stream.below(VOCAB) as u32).collect();
    let (mut kept, mut anew) = (Decoder::new(&config, &parameters)?, Decoder::new(&config, &parameters)?);
    let mut found =
        Found { rows: [0, 0], difference: 0.0, largest: 0.0, bytes: Cost::new(&config).cache_bytes(1) };
    for end in 1..=TOKENS {
        let with = kept.read(&ids[end - 1..end], 1)?;
        anew.clear();
        let without = anew.read(&ids[..end], end)?;
        found.rows = [found.rows[0] + 1, found.rows[1] + end];
        for (a, b) in with.iter().zip(without) {
            found.difference = found.difference.max((a - b).abs());
            found.largest = found.largest.max(b.abs());
        }
    }
    Ok(found)
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let Found { rows, difference, largest, bytes } = find()?;
    let mut text = format!(
        "CACHE: keys and values of the past do not change, so they are kept\n\n\
         {TOKENS} random tokens, one after the other, through a model of the default shape (4 layers of width 128):\n\n\
         \x20               rows through the model  what is kept\n\
         \x20 with a cache  {:>22}  {} bytes a token\n\
         \x20 without       {:>22}  nothing\n\n",
        rows[0], bytes, rows[1]
    );
    write!(
        text,
        "The document says: the cache is the difference between a viable product and none.\n\
         \x20 borne out: without it n tokens take n·(n + 1)/2 rows, {:.1} times as many here, and more with every token\n\
         \x20 and the answer is the same: no logit differs by more than {difference:.1e}, the largest being {largest:.2}\n\
         Under the causal mask the past cannot see what comes: that is why keeping it changes nothing (explain mask).\n\
         `softdict sample --no-cache` computes everything anew.\n",
        rows[1] as f64 / rows[0] as f64,
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_saves_rows_and_changes_nothing() {
        let found = find().unwrap();
        assert_eq!(found.rows, [TOKENS, TOKENS * (TOKENS + 1) / 2]);
        assert!(found.difference < 1e-4 && found.largest > 0.1, "{} {}", found.difference, found.largest);
        assert_eq!(found.bytes, 4 * 2 * 128 * 4);
    }
}
