//! A block: who holds the parameters, who takes the operations.
//!
//! # Source
//! "Attention is a lookup table you learn", last section: "the feed-forward layers that hold two thirds of the parameters";
//! the deep dive, section 3.4.

use super::{Figure, comparison};
use softdict_model::cost::Cost;
use softdict_model::{ModelConfig, ModelSettings, Part};
use std::fmt::Write;

/// One block's shares.
struct Shares {
    /// Of parameters: attention, FFN, norms.
    parameters: [f64; 3],
    /// Of a token's operations at the context's length: products of attention, its square, products of the FFN.
    flops: [f64; 3],
}

fn shares(context: usize) -> anyhow::Result<Shares> {
    let settings = ModelSettings { layers: 1, heads: 12, width: 768, context, ..Default::default() };
    // a vocabulary of one: the block alone
    let cost = Cost::new(&ModelConfig::new(&settings, 1)?);
    let parts = cost.parameters_by_part();
    let of = |part| parts.iter().find(|(own, _)| *own == part).map_or(0.0, |(_, count)| *count as f64);
    let (attention, ffn) = (of(Part::Attention), of(Part::Ffn));
    // the block's own two norms; a third stands behind the last block
    let norms = of(Part::Norm) * 2.0 / 3.0;
    let all = attention + ffn + norms;
    let square = cost.attention_flops(context) as f64 / context as f64;
    let weights = cost.linear_flops() as f64 - 2.0 * 768.0;
    let (of_attention, of_ffn) = (weights / 3.0, weights * 2.0 / 3.0);
    let flops = weights + square;
    Ok(Shares {
        parameters: [attention / all, ffn / all, norms / all],
        flops: [of_attention / flops, square / flops, of_ffn / flops],
    })
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let mut text = String::from(
        "BLOCK: attention mixes positions, the FFN works on each; norms and residual lines keep it trainable\n\n\
         \x20 x + attention(norm(x)), then x + FFN(norm(x)); width 768, FFN of 3,072, causal\n\n\
         \x20             parameters\n",
    );
    let block = shares(1024)?;
    for (name, share) in ["attention", "FFN", "norms"].into_iter().zip(block.parameters) {
        writeln!(text, "  {name:<10}  {:>8.2} %", 100.0 * share)?;
    }
    text.push_str("\n  operations at  attention's products  attention's square  FFN's products\n");
    for context in [64, 1024, 4096, 32_768] {
        let [products, square, ffn] = shares(context)?.flops.map(|share| 100.0 * share);
        writeln!(text, "  {context:>6} tokens  {products:>18.1} %  {square:>16.1} %  {ffn:>12.1} %")?;
    }
    let figures = [Figure {
        name: "FFN's share of a block's parameters",
        documented: 0.67,
        computed: block.parameters[1],
        decimals: 2,
    }];
    write!(
        text,
        "\nThe document says: the feed-forward layers hold two thirds of the parameters.\n{}\
         \x20 of a block that is so; embeddings come on top (`softdict cost` has a whole model's parts)\n",
        comparison(&figures)
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_thirds_of_a_block_are_ffn_and_the_square_takes_over_with_length() {
        let block = shares(1024).unwrap();
        assert!((block.parameters.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((block.parameters[1] - 2.0 / 3.0).abs() < 1e-3);
        for context in [64, 32_768] {
            assert!((shares(context).unwrap().flops.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
        assert!(shares(64).unwrap().flops[1] < 0.01 && shares(32_768).unwrap().flops[1] > 0.5);
    }
}
