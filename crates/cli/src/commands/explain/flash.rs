//! Attention by blocks: the same numbers without the square in memory.
//!
//! # Source
//! The deep dive, section 3.6, on IO-aware exact methods; Dao et al. 2022, arXiv:2205.14135.

use super::random::{difference, normal};
use candle_core::Var;
use softdict_kernels::Ops;
use softdict_kernels::attention::Options;
use std::fmt::Write;

const SIZE: usize = 32;
/// Tokens of the comparison, more than one block of any kind.
const TOKENS: usize = 600;
const LENGTHS: [usize; 4] = [1024, 4096, 16_384, 65_536];

/// The largest differences of the result and of the gradients, blocks against the whole square.
fn differences() -> candle_core::Result<[f32; 4]> {
    let vars = [1, 2, 3]
        .map(|topic| normal(&[1, 2, TOKENS, SIZE], topic).and_then(|tensor| Var::from_tensor(&tensor)));
    let [q, k, v] = vars;
    let (q, k, v) = (q?, k?, v?);
    let options = Options::plain(true, 1.0 / (SIZE as f32).sqrt());
    let run = |ops: Ops| -> candle_core::Result<Vec<candle_core::Tensor>> {
        let out = ops.attention(options, &q, &k, &v)?;
        let store = out.sqr()?.sum_all()?.backward()?;
        let gradients = [&q, &k, &v].map(|var| store.get(var).cloned());
        Ok([Some(out)].into_iter().chain(gradients).flatten().collect())
    };
    let (blocks, square) = (run(Ops::Fused)?, run(Ops::Reference)?);
    let mut found = [0.0; 4];
    for ((found, a), b) in found.iter_mut().zip(&blocks).zip(&square) {
        *found = difference(a, b)?;
    }
    Ok(found)
}

/// Bytes of the square of one head, and of what blocks keep instead: a log-sum-exp for each row.
fn memory(tokens: usize) -> [u64; 2] {
    let tokens = tokens as u64;
    [4 * tokens * tokens, 4 * tokens]
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let [out, dq, dk, dv] = differences()?;
    let mut text = format!(
        "FLASH: exact attention without a T×T matrix\n\n\
         A block of queries meets a block of keys at a time; each row keeps its largest score and its sum so far, and what was\n\
         summed before is brought to the same scale. Backward forms the blocks again from one number a row.\n\n\
         {TOKENS} random tokens, two heads of {SIZE}, causal; by blocks (as softdict trains) against the whole square:\n\
         \x20 largest difference  result {out:.1e}  gradients of q {dq:.1e}, k {dk:.1e}, v {dv:.1e}\n\n\
         \x20 tokens  the square of one head  what blocks keep of it\n"
    );
    for tokens in LENGTHS {
        let [square, kept] = memory(tokens).map(crate::output::bytes);
        writeln!(text, "  {tokens:>6}  {square:>22}  {kept:>22}")?;
    }
    write!(
        text,
        "\nThe document says: such methods are exact, and cut memory, not arithmetic.\n\
         \x20 borne out: the differences are those of 32-bit sums in another order\n\
         \x20 borne out: memory is linear in the length: 16 times the tokens, {} times the square, {} times what blocks keep\n\
         `softdict bench --work D16384` trains on 16,384 tokens at once, in a few hundred MiB in all.\n",
        memory(LENGTHS[2])[0] / memory(LENGTHS[0])[0],
        memory(LENGTHS[2])[1] / memory(LENGTHS[0])[1],
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_give_what_the_square_gives() {
        let found = differences().unwrap();
        // f32 sums of 600 terms of size one
        assert!(found.iter().all(|difference| (1e-9..1e-3).contains(difference)), "{found:?}");
    }
}
