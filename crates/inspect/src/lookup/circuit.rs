//! A head's circuits over single tokens, from the weights alone.
//!
//! Both start from the embedding of one token behind the layer's norm: for the first layer that is what the head sees but
//! for learned positions; for later ones it is the direct path, which earlier layers add to.
//!
//! # Source
//! Elhage et al. 2021, "A mathematical framework for transformer circuits": QK and OV circuits.

use crate::ablation::HeadId;
use crate::error::{InspectError, Result};
use serde::Serialize;
use softdict_kernels::linear::{self, Size};
use softdict_kernels::matmul::Precision;
use softdict_kernels::norm::{self, Norm, NormKind};
use softdict_kernels::rope::{self, Rows, Turn};
use softdict_model::{ModelConfig, Parameters};

/// Tokens whose keys or logits are formed at a time: V×V numbers never exist.
const CHUNK: usize = 4096;

/// A token and how strongly it was found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Found {
    /// Its id.
    pub token: u32,
    /// The score before the softmax, or the rise of the logit for a unit of the final norm's scale.
    pub score: f32,
}

/// One head's weights.
pub struct Circuit<'a> {
    config: &'a ModelConfig,
    parameters: &'a Parameters,
    id: HeadId,
    candidates: Vec<u32>,
}

/// Which of a head's three inputs.
#[derive(Clone, Copy)]
enum Input {
    Query,
    Key,
    Value,
}

impl<'a> Circuit<'a> {
    /// The circuits of head `id`. The vocabulary is that of `config`; `parameters` may have more rows.
    ///
    /// # Errors
    /// When there is no such head.
    pub fn new(config: &'a ModelConfig, parameters: &'a Parameters, id: HeadId) -> Result<Self> {
        for (what, number, count) in [("layer", id.layer, config.layers()), ("head", id.head, config.heads)] {
            if number >= count {
                return Err(InspectError::NoSuch { what, number, count });
            }
        }
        Ok(Self { config, parameters, id, candidates: (0..config.vocab_size as u32).collect() })
    }

    /// The same with these tokens as the only answers: those that a text has, for what a model never saw means nothing.
    #[must_use]
    pub fn among(self, candidates: &[u32]) -> Self {
        Self { candidates: candidates.to_vec(), ..self }
    }

    /// For each query token, the `top` key tokens with the highest scores, `distance` tokens before it.
    ///
    /// Keys of all candidates are compared, `CHUNK` at a time.
    ///
    /// # Errors
    /// When a token is outside the vocabulary, or the distance beyond the context.
    pub fn keys(&self, queries: &[u32], distance: usize, top: usize) -> Result<Vec<Vec<Found>>> {
        let size = self.config.head_size();
        let mut q = self.inputs(Input::Query, queries)?;
        self.turn(&mut q, distance)?;
        let scale = self.config.score_scale();
        let mut best = vec![Vec::new(); queries.len()];
        for tokens in self.candidates.chunks(CHUNK) {
            let mut k = self.inputs(Input::Key, tokens)?;
            self.turn(&mut k, 0)?;
            let mut scores = vec![0.0; queries.len() * tokens.len()];
            let product = Size { inputs: size, outputs: tokens.len() };
            linear::forward(product, Precision::F32, &q, &k, None, None, &mut scores);
            for (best, scores) in best.iter_mut().zip(scores.chunks_exact(tokens.len())) {
                keep_best(best, tokens, scores, scale, top);
            }
        }
        finite(best.iter().flatten())?;
        Ok(best)
    }

    /// For each key token, the `top` tokens whose logits the head raises most when it attends to it alone.
    ///
    /// The final norm's weight is folded in and its scale left out: it is the same for all tokens.
    ///
    /// # Errors
    /// When a token is outside the vocabulary.
    pub fn promoted(&self, keys: &[u32], top: usize) -> Result<Vec<Vec<Found>>> {
        let values = self.inputs(Input::Value, keys)?;
        let rows = values.chunks_exact(self.config.head_size());
        rows.map(|value| self.raised(value, top)).collect()
    }

    /// The `top` tokens whose logits a head's output raises most.
    ///
    /// # Shapes
    /// `output` D, as [`softdict_model::Site::HeadOutput`] has it.
    /// # Errors
    /// When a weight is missing.
    pub fn raised(&self, output: &[f32], top: usize) -> Result<Vec<Found>> {
        let (config, size) = (self.config, self.config.head_size());
        let weight = self.get("attention.out.weight")?; // (C, H·D)
        let first = self.id.head * size;
        let rows = weight.chunks_exact(config.heads * size);
        let mut write: Vec<f32> =
            rows.map(|row| row[first..first + size].iter().zip(output).map(|(a, b)| a * b).sum()).collect();
        if config.norm().kind == NormKind::LayerNorm {
            let mean = write.iter().sum::<f32>() / write.len() as f32;
            for value in &mut write {
                *value -= mean;
            }
        }
        for (value, weight) in write.iter_mut().zip(self.parameters.get("norm.weight")?) {
            *value *= weight;
        }
        let head = match self.parameters.get("head.weight") {
            Ok(head) => head,
            Err(_) => self.parameters.get("embedding.weight")?,
        };
        let mut best = Vec::new();
        for tokens in self.candidates.chunks(CHUNK) {
            let mut rows = Vec::with_capacity(tokens.len() * config.width());
            for &token in tokens {
                let first = token as usize * config.width();
                rows.extend_from_slice(&head[first..first + config.width()]);
            }
            let mut logits = vec![0.0; tokens.len()];
            let product = Size { inputs: config.width(), outputs: tokens.len() };
            linear::forward(product, Precision::F32, &write, &rows, None, None, &mut logits);
            keep_best(&mut best, tokens, &logits, 1.0, top);
        }
        finite(best.iter())?;
        Ok(best)
    }

    fn get(&self, name: &str) -> Result<&'a [f32]> {
        Ok(self.parameters.get(&format!("blocks.{}.{name}", self.id.layer))?)
    }

    /// Queries, keys or values of single tokens, before RoPE: `(tokens, D)`.
    fn inputs(&self, kind: Input, tokens: &[u32]) -> Result<Vec<f32>> {
        let (config, size, width) = (self.config, self.config.head_size(), self.config.width());
        let embedding = self.parameters.get("embedding.weight")?;
        let mut rows = Vec::with_capacity(tokens.len() * width);
        for &token in tokens {
            let (number, count) = (token as usize, config.vocab_size);
            if number >= count {
                return Err(InspectError::NoSuch { what: "token", number, count });
            }
            rows.extend_from_slice(&embedding[number * width..(number + 1) * width]);
        }
        let normed = self.normed(config.norm(), &rows, "norm1")?;
        let group = config.heads / config.kv_heads;
        let head = match kind {
            Input::Query => self.id.head,
            Input::Key => config.heads + self.id.head / group,
            Input::Value => config.heads + config.kv_heads + self.id.head / group,
        };
        let weight = &self.get("attention.qkv.weight")?[head * size * width..(head + 1) * size * width];
        let bias = self.get("attention.qkv.bias").ok().map(|bias| &bias[head * size..(head + 1) * size]);
        let mut found = vec![0.0; tokens.len() * size];
        let product = Size { inputs: width, outputs: size };
        linear::forward(product, Precision::F32, &normed, weight, bias, None, &mut found);
        match kind {
            Input::Query if config.settings.qk_norm => {
                self.normed(config.head_norm(), &found, "attention.query_norm")
            }
            Input::Key if config.settings.qk_norm => {
                self.normed(config.head_norm(), &found, "attention.key_norm")
            }
            _ => Ok(found),
        }
    }

    fn normed(&self, kind: Norm, rows: &[f32], name: &str) -> Result<Vec<f32>> {
        let weight = self.get(&format!("{name}.weight"))?;
        let bias = self.get(&format!("{name}.bias")).ok();
        let mut normed = vec![0.0; rows.len()];
        let mut stats = vec![[0.0; 2]; rows.len() / weight.len()];
        norm::forward(kind, rows, weight, bias, &mut normed, &mut stats);
        Ok(normed)
    }

    /// RoPE as at one position, where the model has it.
    fn turn(&self, rows: &mut [f32], position: usize) -> Result<()> {
        let config = self.config;
        if position >= config.context() {
            return Err(InspectError::NoSuch { what: "distance", number: position, count: config.context() });
        }
        let Some(table) = config.rope(position..position + 1)? else { return Ok(()) };
        let size = config.head_size();
        rope::rotate(
            &table,
            Rows { stride: size, heads: 1, head_size: size, time: 1, first: position },
            Turn::Forward,
            rows,
        );
        Ok(())
    }
}

/// # Errors
/// When a score is no finite number.
fn finite<'f>(mut found: impl Iterator<Item = &'f Found>) -> Result<()> {
    if found.all(|found| found.score.is_finite()) {
        Ok(())
    } else {
        Err(InspectError::NotFinite { what: "scores" })
    }
}

/// Merges a chunk's scores into the best so far, the highest first.
fn keep_best(best: &mut Vec<Found>, tokens: &[u32], scores: &[f32], scale: f32, top: usize) {
    for (&token, &score) in tokens.iter().zip(scores) {
        let found = Found { token, score: score * scale };
        if best.len() == top && best.last().is_some_and(|last| last.score >= found.score) {
            continue;
        }
        let place = best.partition_point(|other| other.score >= found.score);
        best.insert(place, found);
        best.truncate(top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, IndexOp};
    use softdict_model::settings::NormChoice;
    use softdict_model::{ModelSettings, NoTap, Site, Tap, Transformer};

    /// Keeps one site of the first layer.
    struct Keep(Site, Option<candle_core::Tensor>);

    impl Tap for Keep {
        fn wants(&self, site: Site, layer: usize) -> bool {
            site == self.0 && layer == 0
        }

        fn at(
            &mut self,
            _: Site,
            _: usize,
            tensor: candle_core::Tensor,
        ) -> candle_core::Result<candle_core::Tensor> {
            self.1 = Some(tensor.clone());
            Ok(tensor)
        }
    }

    fn check(change: impl Fn(&mut ModelSettings)) {
        let mut settings = ModelSettings { layers: 1, heads: 4, width: 16, context: 9, ..Default::default() };
        change(&mut settings);
        let config = ModelConfig::new(&settings, 13).unwrap();
        let parameters = Parameters::initial(&config, 3);
        let model = Transformer::new(&config, &parameters, &Device::Cpu).unwrap();
        let id = HeadId { layer: 0, head: 2 };
        let circuit = Circuit::new(&config, &parameters, id).unwrap();
        let (query, distance) = (5, 3);
        let found = &circuit.keys(&[query], distance, 13).unwrap()[0];
        assert!(found.windows(2).all(|pair| pair[0].score >= pair[1].score));
        // in the first layer, what a token says does not depend on the others: read pairs of tokens off a pass
        let mut scores = Vec::new();
        for key in 0..13u32 {
            let ids = [key, 1, 1, query];
            let keep = |site| {
                let mut tap = Keep(site, None);
                model.forward(&ids, 4, &mut tap).unwrap();
                tap.1.unwrap()
            };
            let q: Vec<f32> = keep(Site::Query).i((0, 2, 3)).unwrap().to_vec1().unwrap();
            let group = config.heads / config.kv_heads;
            let k: Vec<f32> = keep(Site::Key).i((0, 2 / group, 0)).unwrap().to_vec1().unwrap();
            scores.push(q.iter().zip(&k).map(|(a, b)| a * b).sum::<f32>() * config.score_scale());
        }
        for Found { token, score } in found {
            assert!((score - scores[*token as usize]).abs() < 1e-4, "{token}: {score}");
        }
        assert_eq!(circuit.keys(&[query], distance, 2).unwrap()[0], found[..2]);
        let some = Circuit::new(&config, &parameters, id).unwrap().among(&[found[3].token, found[1].token]);
        assert_eq!(some.keys(&[query], distance, 5).unwrap()[0], [found[1], found[3]]);
        assert!(circuit.keys(&[13], 0, 2).is_err() && circuit.keys(&[1], 9, 2).is_err());
    }

    #[test]
    fn the_keys_of_a_query_are_those_of_the_model() {
        check(|_| ());
        check(|settings| {
            settings.norm = NormChoice::RmsNorm;
            settings.bias = false;
            settings.kv_heads = Some(2);
            settings.qk_norm = true;
        });
    }

    #[test]
    fn what_a_key_promotes_is_what_the_head_adds_to_the_logits() {
        let settings = ModelSettings { layers: 1, heads: 2, width: 16, context: 9, ..Default::default() };
        let config = ModelConfig::new(&settings, 13).unwrap();
        let parameters = Parameters::initial(&config, 3);
        let id = HeadId { layer: 0, head: 1 };
        let circuit = Circuit::new(&config, &parameters, id).unwrap();
        let model = Transformer::new(&config, &parameters, &Device::Cpu).unwrap();
        // a prompt of one token: the head attends to it alone
        let lens = crate::lens::Lens::new(&model, &parameters, &[7], 0, &mut NoTap).unwrap();
        let share = |token| {
            let shares = lens.shares(&config, &parameters, token, None).unwrap();
            shares.into_iter().find(|(part, _)| *part == crate::lens::Part::Head(id)).unwrap().1
        };
        let found = &circuit.promoted(&[7], 13).unwrap()[0];
        // the final norm's scale is the one factor that is left out
        let scale = share(found[0].token) / f64::from(found[0].score);
        for Found { token, score } in found {
            assert!((share(*token) - scale * f64::from(*score)).abs() < 1e-4, "{token}");
        }
    }
}
