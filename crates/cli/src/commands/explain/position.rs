//! Positions: without them attention cannot tell one order from another; RoPE can.
//!
//! # Source
//! The deep dive, section 3.5; Su et al. 2021, arXiv:2104.09864.

mod beyond;

use super::random::difference;
use candle_core::{Device, IndexOp};
use softdict_model::settings::Positions;
use softdict_model::{ModelConfig, ModelSettings, NoTap, Parameters, Transformer};
use std::fmt::Write;

/// `dog bites man` and `man bites dog`, and where each word went.
const SENTENCE: [u32; 3] = [1, 2, 3];
const TURNED: [u32; 3] = [3, 2, 1];

/// How far the logits of the same word in both orders differ at most, untrained, attention both ways.
fn distance(positions: Positions) -> anyhow::Result<f32> {
    let settings = ModelSettings {
        layers: 2,
        heads: 2,
        width: 32,
        context: 8,
        causal: false,
        positions,
        ..Default::default()
    };
    let config = ModelConfig::new(&settings, 5)?;
    let model = Transformer::new(&config, &Parameters::initial(&config, 1), &Device::Cpu)?;
    let (one, other) = (model.forward(&SENTENCE, 3, &mut NoTap)?, model.forward(&TURNED, 3, &mut NoTap)?);
    let mut most = 0f32;
    for (at, word) in SENTENCE.iter().enumerate() {
        let there = TURNED.iter().position(|own| own == word).unwrap_or(0);
        most = most.max(difference(&one.i((0, at))?, &other.i((0, there))?)?);
    }
    Ok(most)
}

/// With RoPE, how far the scores of a pattern move when the whole sentence stands further on.
fn shift() -> anyhow::Result<f32> {
    use softdict_kernels::Ops;
    use softdict_kernels::rope::RopeTable;
    let table = std::sync::Arc::new(RopeTable::new(0..64, 16, 10_000.0)?);
    let (q, k) = (super::random::normal(&[1, 1, 6, 16], 1)?, super::random::normal(&[1, 1, 6, 16], 2)?);
    let scores = |first| -> candle_core::Result<candle_core::Tensor> {
        let (q, k) = (Ops::Fused.rope(&table, &q, first)?, Ops::Fused.rope(&table, &k, first)?);
        q.matmul(&k.transpose(2, 3)?.contiguous()?)
    };
    Ok(difference(&scores(0)?, &scores(50)?)?)
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let mut text = String::from(
        "POSITION: has to be added, for attention does not know it\n\n\
         `dog bites man` against `man bites dog`: how far the logits behind the same word differ, in an untrained model of two\n\
         layers that sees both ways\n\n",
    );
    let kinds = [(Positions::None, "none"), (Positions::Learned, "learned"), (Positions::Rope, "RoPE")];
    for (kind, name) in kinds {
        writeln!(text, "  positions {name:<8} {:.1e}", distance(kind)?)?;
    }
    write!(
        text,
        "\nThe document says: shuffle the tokens and the set of comparisons is unchanged.\n\
         \x20 borne out: without positions the two sentences are the same to {:.0e}, which is rounding\n\
         \x20 borne out: with learned positions or RoPE they are not\n\
         RoPE turns queries and keys by their places, so that a score knows only how far apart they are:\n\
         \x20 moving six tokens 50 places on changes no score by more than {:.0e}\n\
         The causal mask alone also tells places apart a little: the first token sees one key, the tenth ten.\n{}",
        distance(Positions::None)?.max(1e-9),
        shift()?,
        beyond::section()?,
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_seen_with_positions_only() {
        assert!(distance(Positions::None).unwrap() < 1e-5);
        assert!(distance(Positions::Rope).unwrap() > 1e-3 && distance(Positions::Learned).unwrap() > 1e-3);
        assert!(shift().unwrap() < 1e-4);
    }
}
