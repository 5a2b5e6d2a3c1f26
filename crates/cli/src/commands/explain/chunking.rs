//! Chunks: attention within pieces of a text costs a part of the square, and loses what lies further away.
//!
//! # Source
//! The deep dive, section 3.6, on what the square does to long texts.

use super::random::{difference, normal};
use candle_core::Tensor;
use softdict_kernels::Ops;
use softdict_kernels::attention::{self, Options};
use softdict_model::cost::Cost;
use softdict_model::{ModelConfig, ModelSettings};
use std::fmt::Write;

const TOKENS: usize = 1024;
const SIZE: usize = 16;
const CHUNKS: [usize; 5] = [1, 2, 4, 8, 16];

/// Attention's operations when the text is read in so many chunks, as a share of reading it whole.
fn share(chunks: usize) -> anyhow::Result<f64> {
    let settings = ModelSettings { context: TOKENS, causal: false, ..Default::default() };
    let cost = Cost::new(&ModelConfig::new(&settings, 65)?);
    Ok(chunks as f64 * cost.attention_flops(TOKENS / chunks) as f64 / cost.attention_flops(TOKENS) as f64)
}

/// Of random tokens: the weight that reading whole puts outside a token's own chunk, and how far the results differ.
fn lost(chunks: usize) -> candle_core::Result<[f32; 2]> {
    let [q, k, v] = [1, 2, 3].map(|topic| normal(&[1, 1, TOKENS, SIZE], topic));
    let (q, k, v) = (q?, k?, v?);
    let options = Options::plain(false, 1.0 / (SIZE as f32).sqrt());
    let size = TOKENS / chunks;
    let rows = attention::pattern(options, &q, &k)?.reshape((TOKENS, TOKENS))?.to_vec2::<f32>()?;
    let outside = rows.iter().enumerate().map(|(row, weights)| {
        let own = row / size * size..(row / size + 1) * size;
        (1.0 - weights[own].iter().sum::<f32>()).max(0.0)
    });
    let outside = outside.sum::<f32>() / TOKENS as f32;
    let split = |x: &Tensor| x.reshape((chunks, 1, size, SIZE));
    let whole = Ops::Fused.attention(options, &q, &k, &v)?;
    let pieces = Ops::Fused.attention(options, &split(&q)?, &split(&k)?, &split(&v)?)?;
    Ok([outside, difference(&whole, &pieces.reshape((1, 1, TOKENS, SIZE))?)?])
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let mut text = format!(
        "CHUNKING: k pieces cost a k-th of the square\n\n\
         {TOKENS} random tokens, read whole and in k chunks that do not see each other:\n\n\
         \x20  k  attention's operations  weight that lay outside the chunk  largest change of a result\n"
    );
    for chunks in CHUNKS {
        let ([outside, change], share) = (lost(chunks)?, share(chunks)?);
        writeln!(text, "  {chunks:>2}  {:>20.2} %  {outside:>33.3}  {change:>26.3}", 100.0 * share)?;
    }
    write!(
        text,
        "\nThe document says: the cost is n²; in k chunks of n/k tokens it is k·(n/k)² = n²/k.\n\
         \x20 borne out: 16 chunks take {:.2} % of the operations\n\
         What it saves is not free: these random tokens look everywhere alike, so 15 sixteenths of what they saw is gone.\n\
         `softdict cost --lengths 512,4096` compares chunks of 512 with the whole.\n",
        100.0 * share(16)?
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cost_one_kth_and_lose_what_lies_outside() {
        for chunks in CHUNKS {
            assert!((share(chunks).unwrap() - 1.0 / chunks as f64).abs() < 1e-9);
        }
        let [outside, change] = lost(1).unwrap();
        assert!(outside.abs() < 1e-5 && change < 1e-5);
        let [outside, change] = lost(16).unwrap();
        assert!((outside - 15.0 / 16.0).abs() < 0.01 && change > 0.1, "{outside} {change}");
    }
}
