//! Activation patching: which parts of a pass carry what tells two prompts apart.
//!
//! The model reads the corrupt prompt, but one activation is replaced by that of the clean one. What share of the clean
//! prompt's answer that brings back is what the activation carries.
//!
//! # Source
//! Vig et al. 2020, "Investigating gender bias in language models using causal mediation analysis"; the measure is the
//! normalised logit difference of Wang et al. 2022, "Interpretability in the wild".

use crate::error::{InspectError, Result};
use candle_core::{Device, IndexOp, Tensor};
use serde::Serialize;
use softdict_model::{ModelError, NoTap, Site, Tap, Transformer};

/// Rows of a pass: positions are patched side by side, as so many sequences.
const ROWS: usize = 8192;

/// What share of the answer each patch brings back: 0 as if nothing was patched, 1 as if the prompt was clean.
#[derive(Debug, Clone, Serialize)]
pub struct Restored {
    /// The residual stream that enters each block, by layer and position.
    pub residual: Vec<Vec<f64>>,
    /// What each head gathered, by layer, head and position.
    pub heads: Vec<Vec<Vec<f64>>>,
    /// What each FFN added, by layer and position.
    pub ffn: Vec<Vec<f64>>,
    /// The logit difference of the two answers on the clean prompt.
    pub clean: f64,
    /// The same on the corrupt one.
    pub corrupt: f64,
}

/// Two prompts of one length, and the answers whose logits are compared.
#[derive(Debug, Clone, Copy)]
pub struct Prompts<'a> {
    /// What the model is given the activations of.
    pub clean: &'a [u32],
    /// What it reads.
    pub corrupt: &'a [u32],
    /// The answer to the clean prompt.
    pub answer: u32,
    /// The answer to the corrupt one.
    pub against: u32,
    /// The position whose logits tell: the last, or where a token is hidden.
    pub at: usize,
}

/// Keeps every activation that may be patched.
struct Recording(Vec<(Site, usize, Tensor)>);

impl Tap for Recording {
    fn wants(&self, site: Site, _: usize) -> bool {
        matches!(site, Site::ResidualBefore | Site::HeadOutput | Site::FfnOutput)
    }

    fn at(&mut self, site: Site, layer: usize, tensor: Tensor) -> candle_core::Result<Tensor> {
        self.0.push((site, layer, tensor.clone()));
        Ok(tensor)
    }
}

impl Recording {
    fn get(&self, site: Site, layer: usize) -> Result<&Tensor> {
        let found = self.0.iter().find(|(own, at, _)| *own == site && *at == layer);
        found.map(|(_, _, tensor)| tensor).ok_or(InspectError::Empty { what: "layers" })
    }
}

/// Puts the clean activation at one position of each sequence, for one head or for all of them.
struct Patch<'a> {
    site: Site,
    layer: usize,
    clean: &'a Tensor, // (1, T, C) or (1, H, T, D)
    chosen: Tensor,    // u8, (B, T, 1) or (B, H, T, 1)
}

impl Tap for Patch<'_> {
    fn wants(&self, site: Site, layer: usize) -> bool {
        (site, layer) == (self.site, self.layer)
    }

    fn at(&mut self, _: Site, _: usize, tensor: Tensor) -> candle_core::Result<Tensor> {
        let shape = tensor.shape();
        self.chosen.broadcast_as(shape)?.where_cond(&self.clean.broadcast_as(shape)?, &tensor)
    }
}

/// Patches every place in turn: the stream before each block, each head's output and each FFN's, at every position.
///
/// `progress` hears how many passes are done, and of how many.
///
/// # Errors
/// When the prompts differ in length, the answers do not tell them apart, or the model fails.
pub fn patch(
    model: &Transformer,
    prompts: Prompts<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Restored> {
    let (time, found) = (prompts.clean.len(), prompts.corrupt.len());
    if time != found || time == 0 {
        return Err(InspectError::Length { what: "the corrupt prompt", expected: time, found });
    }
    if prompts.at >= time {
        return Err(InspectError::NoSuch { what: "position", number: prompts.at, count: time });
    }
    let (mut clean, mut corrupt) = (Recording(Vec::new()), Recording(Vec::new()));
    let read = |ids, tap: &mut dyn Tap| -> Result<f64> {
        Ok(differences(&model.forward(ids, time, tap)?, prompts)?[0])
    };
    let (before, after) = (read(prompts.clean, &mut clean)?, read(prompts.corrupt, &mut corrupt)?);
    if !(before.is_finite() && after.is_finite()) {
        return Err(InspectError::NotFinite { what: "logits" });
    }
    // closer than f32 tells apart after a pass
    if (before - after).abs() < 1e-4 {
        return Err(InspectError::NothingToPatch { difference: before - after });
    }
    let config = model.config();
    let (total, mut done) = (config.layers() * (config.heads + 2), 0);
    let mut at = |site, layer, head: Option<usize>| -> Result<Vec<f64>> {
        let stream = corrupt.get(Site::ResidualBefore, layer)?; // (1, T, C)
        let mut shares = Vec::with_capacity(time);
        for first in (0..time).step_by((ROWS / time).max(1)) {
            let count = (ROWS / time).max(1).min(time - first);
            let chosen = chosen(head.map(|head| (config.heads, head)), (first, count), time, model.device());
            let chosen = chosen.map_err(ModelError::from)?;
            let streams = stream.repeat((count, 1, 1)).map_err(ModelError::from)?;
            let mut tap = Patch { site, layer, clean: clean.get(site, layer)?, chosen };
            let found = differences(&model.resume(layer, &streams, &mut tap)?, prompts)?;
            shares.extend(found.iter().map(|found| (found - after) / (before - after)));
        }
        done += 1;
        progress(done, total);
        Ok(shares)
    };
    let (mut residual, mut heads, mut ffn) = (Vec::new(), Vec::new(), Vec::new());
    for layer in 0..config.layers() {
        residual.push(at(Site::ResidualBefore, layer, None)?);
        let of_heads = (0..config.heads).map(|head| at(Site::HeadOutput, layer, Some(head)));
        heads.push(of_heads.collect::<Result<Vec<_>>>()?);
        ffn.push(at(Site::FfnOutput, layer, None)?);
    }
    Ok(Restored { residual, heads, ffn, clean: before, corrupt: after })
}

/// Which entries of `count` sequences are patched: in the nth, position `first` + n, of one head or of the whole stream.
fn chosen(
    head: Option<(usize, usize)>,
    (first, count): (usize, usize),
    time: usize,
    device: &Device,
) -> candle_core::Result<Tensor> {
    let (heads, own) = head.unwrap_or((1, 0));
    let mut chosen = vec![0u8; count * heads * time];
    for nth in 0..count {
        chosen[(nth * heads + own) * time + first + nth] = 1;
    }
    match head {
        Some(_) => Tensor::from_vec(chosen, (count, heads, time, 1), device),
        None => Tensor::from_vec(chosen, (count, time, 1), device),
    }
}

/// The logit of the answer over that of the other, in each sequence.
fn differences(logits: &Tensor, prompts: Prompts<'_>) -> Result<Vec<f64>> {
    let rows: candle_core::Result<Vec<Vec<f32>>> = logits.i((.., prompts.at)).and_then(|rows| rows.to_vec2());
    let rows = rows.map_err(ModelError::from)?;
    let count = rows.first().map_or(0, Vec::len);
    for number in [prompts.answer as usize, prompts.against as usize] {
        if number >= count {
            return Err(InspectError::NoSuch { what: "token", number, count });
        }
    }
    let difference =
        |row: &Vec<f32>| f64::from(row[prompts.answer as usize]) - f64::from(row[prompts.against as usize]);
    Ok(rows.iter().map(difference).collect())
}

/// The likeliest token at position `at` of a prompt, which is then an answer to compare.
///
/// # Errors
/// When the position is not in the prompt, or the model fails.
pub fn likeliest(model: &Transformer, ids: &[u32], at: usize) -> Result<u32> {
    let logits = model.forward(ids, ids.len(), &mut NoTap)?;
    let row: candle_core::Result<Vec<f32>> = logits.i((0, at)).and_then(|row| row.to_vec1());
    let row = row.map_err(ModelError::from)?;
    if row.iter().any(|logit| !logit.is_finite()) {
        return Err(InspectError::NotFinite { what: "logits" });
    }
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    Ok(best.map_or(0, |(token, _)| token as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use softdict_model::{ModelConfig, ModelSettings, Parameters};

    fn model() -> Transformer {
        let settings = ModelSettings { layers: 2, heads: 2, width: 16, context: 8, ..Default::default() };
        let config = ModelConfig::new(&settings, 11).unwrap();
        Transformer::new(&config, &Parameters::initial(&config, 4), &Device::Cpu).unwrap()
    }

    const PROMPTS: Prompts<'static> =
        Prompts { clean: &[1, 2, 3, 4], corrupt: &[1, 9, 3, 4], answer: 5, against: 6, at: 3 };

    #[test]
    fn what_comes_before_the_change_restores_nothing_and_the_change_itself_all() {
        let found = patch(&model(), PROMPTS, &mut |_, _| ()).unwrap();
        // the prompts differ at position 1 alone, and nothing has moved from there before the first block
        for (position, share) in found.residual[0].iter().enumerate() {
            let expected = if position == 1 { 1.0 } else { 0.0 };
            assert!((share - expected).abs() < 1e-3, "{position}: {share}");
        }
        // what a block adds at earlier positions cannot know of it
        for shares in found.heads.iter().flatten().chain(&found.ffn).chain(&found.residual) {
            assert!(shares[0].abs() < 1e-3);
        }
        assert_eq!((found.heads.len(), found.heads[0].len(), found.heads[0][0].len()), (2, 2, 4));
    }

    #[test]
    fn patching_by_hand_gives_the_same() {
        let (model, found) = (model(), patch(&model(), PROMPTS, &mut |_, _| ()).unwrap());
        let mut clean = Recording(Vec::new());
        model.forward(PROMPTS.clean, 4, &mut clean).unwrap();
        let chosen = chosen(Some((2, 1)), (3, 1), 4, &Device::Cpu).unwrap();
        let mut tap = Patch {
            site: Site::HeadOutput,
            layer: 1,
            clean: clean.get(Site::HeadOutput, 1).unwrap(),
            chosen,
        };
        let logits = model.forward(PROMPTS.corrupt, 4, &mut tap).unwrap();
        let difference = differences(&logits, PROMPTS).unwrap()[0];
        let expected = (difference - found.corrupt) / (found.clean - found.corrupt);
        assert!((found.heads[1][1][3] - expected).abs() < 1e-3);
    }

    #[test]
    fn prompts_that_cannot_be_compared_are_refused() {
        let model = model();
        let run = |prompts| patch(&model, prompts, &mut |_, _| ()).unwrap_err().to_string();
        assert!(run(Prompts { corrupt: &[1, 2], ..PROMPTS }).contains("corrupt prompt has 2"));
        assert!(run(Prompts { corrupt: PROMPTS.clean, ..PROMPTS }).contains("tell"));
        assert!(run(Prompts { at: 4, ..PROMPTS }).contains("position 4"));
        assert!(run(Prompts { answer: 11, ..PROMPTS }).contains("token 11"));
    }
}
