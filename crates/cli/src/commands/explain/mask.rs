//! The causal mask: the future has weight exactly zero.
//!
//! # Source
//! The deep dive, section 3.6: "decoder-only models used for generation add causal masking so a token can only attend
//! backwards".

use super::random::{difference, normal};
use candle_core::Tensor;
use softdict_kernels::Ops;
use softdict_kernels::attention::{self, Options};
use std::fmt::Write;

const TOKENS: usize = 6;
const SIZE: usize = 8;

struct Found {
    rows: Vec<Vec<f32>>,
    /// The largest weight on a later token, both ways and causal.
    ahead: [f32; 2],
    /// How much the first outputs change when the last token does.
    moved: [f32; 2],
}

fn find() -> candle_core::Result<Found> {
    let shape = [1, 1, TOKENS, SIZE];
    let (q, k, v) = (normal(&shape, 1)?, normal(&shape, 2)?, normal(&shape, 3)?);
    let last = normal(&[1, 1, 1, SIZE], 4)?;
    let changed = |x: &Tensor| Tensor::cat(&[&x.narrow(2, 0, TOKENS - 1)?, &last], 2);
    let (mut ahead, mut moved, mut rows) = ([0.0; 2], [0.0; 2], Vec::new());
    for (way, causal) in [false, true].into_iter().enumerate() {
        let options = Options::plain(causal, 1.0 / (SIZE as f32).sqrt());
        rows = attention::pattern(options, &q, &k)?.reshape((TOKENS, TOKENS))?.to_vec2::<f32>()?;
        ahead[way] = (0..TOKENS).flat_map(|row| rows[row][row + 1..].iter().copied()).fold(0.0, f32::max);
        let run = |k: &Tensor, v: &Tensor| Ops::Fused.attention(options, &q, k, v)?.narrow(2, 0, TOKENS - 1);
        moved[way] = difference(&run(&k, &v)?, &run(&changed(&k)?, &changed(&v)?)?)?;
    }
    Ok(Found { rows, ahead, moved })
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let found = find()?;
    let mut text = format!(
        "MASK: a token that is to predict the next one must not see it\n\n\
         {TOKENS} random tokens, one head of {SIZE} components, each row what one token looks at, with the causal mask:\n\n"
    );
    for row in &found.rows {
        text.push_str("  ");
        for weight in row {
            write!(text, "{weight:7.3}")?;
        }
        text.push('\n');
    }
    write!(
        text,
        "\nThe document says: with the mask a token can only attend backwards.\n\
         \x20 borne out: the largest weight ahead is {:.3} without the mask and exactly {} with it\n\
         \x20 borne out: another last token moves what the others take along by up to {:.3} without it, by {} with it\n\
         That is why all positions of a text train at once, and why a KV cache may keep the past as it is.\n",
        found.ahead[0], found.ahead[1], found.moved[0], found.moved[1],
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_future_is_seen() {
        let found = find().unwrap();
        assert!(found.ahead[1].to_bits() == 0 && found.moved[1].to_bits() == 0);
        assert!(found.ahead[0] > 0.1 && found.moved[0] > 0.01);
    }
}
