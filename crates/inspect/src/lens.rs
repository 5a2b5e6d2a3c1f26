//! What each layer would predict, and from which parts of the model a logit comes.
//!
//! The residual stream is a sum: the embedding, what every head adds, what every FFN adds. A logit is linear in that sum
//! once the final norm's scale is taken as it is, so it splits exactly into one share for each part.
//!
//! # Source
//! The logit lens: nostalgebraist 2020. Direct logit attribution: Elhage et al. 2021, "A mathematical framework for
//! transformer circuits".

use crate::ablation::HeadId;
use crate::error::{InspectError, Result};
use candle_core::{IndexOp, Tensor};
use serde::Serialize;
use softdict_kernels::norm::NormKind;
use softdict_model::{Chain, ModelConfig, ModelError, NoTap, Parameters, Site, Tap, Transformer};

/// A part of the model that writes into the residual stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The token's embedding, and its position's where it is learned.
    Embedding,
    /// One head, through its columns of the output projection.
    Head(HeadId),
    /// The bias of a layer's output projection.
    AttentionBias(usize),
    /// One FFN.
    Ffn(usize),
    /// The final norm's own shift.
    NormBias,
}

impl std::fmt::Display for Part {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedding => formatter.write_str("embedding"),
            Self::Head(id) => write!(formatter, "head {id}"),
            Self::AttentionBias(layer) => write!(formatter, "attention bias {layer}"),
            Self::Ffn(layer) => write!(formatter, "FFN {layer}"),
            Self::NormBias => formatter.write_str("final norm's bias"),
        }
    }
}

/// A forward pass, taken apart at one position.
#[derive(Debug, Clone)]
pub struct Lens {
    /// The logits that the stream would give before each block, and after the last: (L + 1) of V.
    pub depths: Vec<Vec<f32>>,
    /// What each part wrote into the stream, C numbers each; their sum is the stream before the final norm.
    writes: Vec<(Part, Vec<f64>)>,
}

/// The streams and outputs of one position.
struct Writes {
    position: usize,
    streams: Vec<Tensor>,      // (1, T, C), before each block and after the last
    embedding: Vec<f32>,       // C
    heads: Vec<Vec<Vec<f32>>>, // of each layer, of each head, D
    thoughts: Vec<Vec<f32>>,   // of each layer, C
}

impl Tap for Writes {
    fn wants(&self, site: Site, _: usize) -> bool {
        matches!(
            site,
            Site::Embedding | Site::ResidualBefore | Site::ResidualAfter | Site::HeadOutput | Site::FfnOutput
        )
    }

    fn at(&mut self, site: Site, layer: usize, tensor: Tensor) -> candle_core::Result<Tensor> {
        let row = |tensor: &Tensor| tensor.i((0, self.position))?.to_vec1::<f32>();
        match site {
            Site::Embedding => self.embedding = row(&tensor)?,
            Site::FfnOutput => self.thoughts.push(row(&tensor)?),
            Site::HeadOutput => self.heads.push(tensor.i((0, .., self.position))?.to_vec2()?),
            Site::ResidualBefore => self.streams.push(tensor.clone()),
            // a stream between two blocks is seen twice
            _ => {
                self.streams.truncate(layer + 1);
                self.streams.push(tensor.clone());
            }
        }
        Ok(tensor)
    }
}

impl Lens {
    /// Takes the pass over `ids`, through the tap `first`, apart at `position`; `parameters` are those of the model.
    ///
    /// # Errors
    /// When the position is not in the prompt, or the model fails.
    pub fn new(
        model: &Transformer,
        parameters: &Parameters,
        ids: &[u32],
        position: usize,
        first: &mut dyn Tap,
    ) -> Result<Self> {
        if position >= ids.len() {
            return Err(InspectError::NoSuch { what: "position", number: position, count: ids.len() });
        }
        let mut seen = Writes {
            position,
            streams: Vec::new(),
            embedding: Vec::new(),
            heads: Vec::new(),
            thoughts: Vec::new(),
        };
        model.forward(ids, ids.len(), &mut Chain { first, second: &mut seen })?;
        let config = model.config();
        let mut depths = Vec::with_capacity(seen.streams.len());
        for stream in &seen.streams {
            let logits = model.resume(config.layers(), stream, &mut NoTap)?;
            let row = logits.i((0, position)).and_then(|row| row.to_vec1());
            let row: Vec<f32> = row.map_err(ModelError::from)?;
            if row.iter().any(|logit| !logit.is_finite()) {
                return Err(InspectError::NotFinite { what: "logits" });
            }
            depths.push(row);
        }
        let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
        let mut writes = vec![(Part::Embedding, wide(&seen.embedding))];
        for (layer, (heads, thought)) in seen.heads.iter().zip(&seen.thoughts).enumerate() {
            let name = format!("blocks.{layer}.attention.out");
            let weight = parameters.get(&format!("{name}.weight"))?; // (C, H·D)
            for (head, output) in heads.iter().enumerate() {
                let id = HeadId { layer, head };
                writes.push((Part::Head(id), projected(config, weight, head, output)));
            }
            if let Ok(bias) = parameters.get(&format!("{name}.bias")) {
                writes.push((Part::AttentionBias(layer), wide(bias)));
            }
            writes.push((Part::Ffn(layer), wide(thought)));
        }
        Ok(Self { depths, writes })
    }

    /// The shares of the logit of `token`, or of its lead over `against`: they sum to it.
    ///
    /// # Errors
    /// When a token is outside the vocabulary.
    pub fn shares(
        &self,
        config: &ModelConfig,
        parameters: &Parameters,
        token: u32,
        against: Option<u32>,
    ) -> Result<Vec<(Part, f64)>> {
        let width = config.width();
        let head = match parameters.get("head.weight") {
            Ok(head) => head,
            Err(_) => parameters.get("embedding.weight")?,
        };
        let row = |token: u32| -> Result<&[f32]> {
            let (number, count) = (token as usize, config.vocab_size);
            if number >= count {
                return Err(InspectError::NoSuch { what: "token", number, count });
            }
            Ok(&head[number * width..(number + 1) * width])
        };
        let mut direction: Vec<f64> = row(token)?.iter().map(|&value| f64::from(value)).collect();
        if let Some(against) = against {
            for (value, other) in direction.iter_mut().zip(row(against)?) {
                *value -= f64::from(*other);
            }
        }
        let mut shares = Vec::with_capacity(self.writes.len() + 1);
        if let Ok(bias) = parameters.get("norm.bias") {
            let share = direction.iter().zip(bias).map(|(a, &b)| a * f64::from(b)).sum();
            shares.push((Part::NormBias, share));
        }
        for (value, &weight) in direction.iter_mut().zip(parameters.get("norm.weight")?) {
            *value *= f64::from(weight);
        }
        // the norm with its scale as it was: x ↦ s·(x − mean(x)), which is linear
        let norm = config.norm();
        let centred = |x: &[f64]| -> Vec<f64> {
            let mean = match norm.kind {
                NormKind::LayerNorm => x.iter().sum::<f64>() / width as f64,
                NormKind::RmsNorm => 0.0,
            };
            x.iter().map(|value| value - mean).collect()
        };
        let mut stream = vec![0.0; width];
        for (_, write) in &self.writes {
            for (total, value) in stream.iter_mut().zip(write) {
                *total += value;
            }
        }
        let variance = centred(&stream).iter().map(|value| value * value).sum::<f64>() / width as f64;
        let scale = 1.0 / (variance + f64::from(norm.eps)).sqrt();
        for (part, write) in &self.writes {
            let share: f64 = centred(write).iter().zip(&direction).map(|(a, b)| a * b).sum();
            shares.push((*part, share * scale));
        }
        Ok(shares)
    }
}

/// What a head writes into the stream: its output through its own columns of the projection.
fn projected(config: &ModelConfig, weight: &[f32], head: usize, output: &[f32]) -> Vec<f64> {
    let columns = config.heads * output.len();
    let first = head * output.len();
    let rows = weight.chunks_exact(columns).map(|row| &row[first..first + output.len()]);
    rows.map(|row| row.iter().zip(output).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::ModelSettings;
    use softdict_model::settings::{NormChoice, Positions};

    const IDS: [u32; 5] = [3, 1, 4, 1, 5];

    fn check(change: impl Fn(&mut ModelSettings)) {
        let mut settings = ModelSettings { layers: 2, heads: 4, width: 16, context: 8, ..Default::default() };
        change(&mut settings);
        let config = ModelConfig::new(&settings, 11).unwrap();
        let mut parameters = Parameters::initial(&config, 3);
        // biases and norms begin at 0 and 1: move them, so that they have a share
        for (at, value) in parameters.values_mut().iter_mut().enumerate() {
            *value += 0.1 * (at as f32).sin();
        }
        let model = Transformer::new(&config, &parameters, &Device::Cpu).unwrap();
        let logits: Vec<Vec<f32>> =
            model.forward(&IDS, 5, &mut NoTap).unwrap().i(0).unwrap().to_vec2().unwrap();
        for position in [0, 2, 4] {
            let lens = Lens::new(&model, &parameters, &IDS, position, &mut NoTap).unwrap();
            assert_eq!(lens.depths.len(), 3);
            for (found, expected) in lens.depths[2].iter().zip(&logits[position]) {
                assert!((found - expected).abs() < 1e-4);
            }
            for token in 0..11 {
                let sum = |against| {
                    let shares = lens.shares(&config, &parameters, token, against).unwrap();
                    shares.iter().map(|(_, share)| share).sum::<f64>()
                };
                let own = f64::from(logits[position][token as usize]);
                assert!((sum(None) - own).abs() < 1e-4, "{token}: {} and {own}", sum(None));
                let other = f64::from(logits[position][7]);
                assert!((sum(Some(7)) - (own - other)).abs() < 1e-4);
            }
        }
        assert!(Lens::new(&model, &parameters, &IDS, 5, &mut NoTap).is_err());
    }

    #[test]
    fn the_shares_of_a_logit_sum_to_it() {
        check(|_| ());
        check(|settings| {
            settings.norm = NormChoice::RmsNorm;
            settings.bias = false;
            settings.tied = false;
            settings.kv_heads = Some(2);
        });
        check(|settings| {
            settings.positions = Positions::Learned;
            settings.parallel_residual = true;
        });
    }
}
