//! Taking heads away: a tap that puts something else in the place of what they gathered.
//!
//! # Source
//! Mean ablation instead of zero, so that the rest of the model sees what it is used to: Wang et al. 2022,
//! "Interpretability in the wild", section 2.1.

use crate::error::{InspectError, Result};
use candle_core::{Device, Tensor};
use serde::Serialize;
use softdict_model::{ModelConfig, Site, Tap, Transformer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What stands in for a head's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Replacement {
    /// Nothing: the head adds zero.
    Zero,
    /// Its mean over a text: the head says what it says on average, and nothing about this place.
    Mean,
}

/// One head, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HeadId {
    /// The layer's number in the model.
    pub layer: usize,
    /// The head's number in its layer.
    pub head: usize,
}

impl fmt::Display for HeadId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.layer, self.head)
    }
}

/// A head to take away, as `LAYER.HEAD`, `LAYER.HEAD=zero` or `LAYER.HEAD=mean`; zero when it is not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Ablation {
    /// Which head.
    #[serde(flatten)]
    pub id: HeadId,
    /// What stands in for it.
    pub by: Replacement,
}

impl fmt::Display for Ablation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.by == Replacement::Zero { "zero" } else { "mean" };
        write!(formatter, "{}={by}", self.id)
    }
}

impl FromStr for Ablation {
    type Err = InspectError;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || InspectError::Ablation { found: text.to_owned() };
        let (head, by) = match text.split_once('=') {
            None | Some((_, "zero")) => (text.split('=').next().unwrap_or_default(), Replacement::Zero),
            Some((head, "mean")) => (head, Replacement::Mean),
            Some(_) => return Err(wrong()),
        };
        let (layer, head) = head.split_once('.').ok_or_else(wrong)?;
        let number = |digits: &str| {
            let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
            digits.parse().ok().filter(|_| plain).ok_or_else(wrong)
        };
        Ok(Self { id: HeadId { layer: number(layer)?, head: number(head)? }, by })
    }
}

/// The mean output of every head over a text.
#[derive(Debug, Clone)]
pub struct HeadMeans {
    layers: Vec<Tensor>, // (H, D) each
}

/// Sums what every head gathers.
struct Sums {
    layers: Vec<Option<Tensor>>, // (H, D) each
    rows: usize,
}

impl Tap for Sums {
    fn wants(&self, site: Site, _: usize) -> bool {
        site == Site::HeadOutput
    }

    fn at(&mut self, _: Site, layer: usize, gathered: Tensor) -> candle_core::Result<Tensor> {
        let sum = gathered.sum((0, 2))?; // (B, H, T, D) to (H, D)
        let slot = &mut self.layers[layer];
        *slot = Some(match slot.take() {
            Some(before) => (before + sum)?,
            None => sum,
        });
        if layer == 0 {
            self.rows += gathered.dim(0)? * gathered.dim(2)?;
        }
        Ok(gathered)
    }
}

impl HeadMeans {
    /// The means over all positions of all `batches`, each of windows of one length, one after the other.
    ///
    /// # Errors
    /// When there is no token, or the model fails.
    pub fn over(model: &Transformer, batches: &[Batch]) -> Result<Self> {
        let mut sums = Sums { layers: vec![None; model.config().layers()], rows: 0 };
        for batch in batches {
            model.forward(&batch.ids, batch.time, &mut sums)?;
        }
        let rows = sums.rows as f64;
        let layers: candle_core::Result<Vec<_>> =
            sums.layers.into_iter().flatten().map(|sum| sum / rows).collect();
        let layers = layers.map_err(softdict_model::ModelError::from)?;
        if layers.is_empty() {
            return Err(InspectError::Empty { what: "windows of text" });
        }
        Ok(Self { layers })
    }
}

/// Windows of one length, one after the other, and what is to be predicted at each of their tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// B·T ids.
    pub ids: Vec<u32>,
    /// B·T ids, each the one after, or the hidden one; [`softdict_kernels::cross_entropy::IGNORE`] where nothing is predicted.
    pub targets: Vec<u32>,
    /// T.
    pub time: usize,
}

impl Batch {
    /// Windows of T + 1 tokens each, two or more, of which the last is only predicted.
    pub fn new(windows: &[Vec<u32>]) -> Self {
        let time = windows.first().map_or(1, Vec::len) - 1;
        Self {
            ids: windows.iter().flat_map(|window| &window[..time]).copied().collect(),
            targets: windows.iter().flat_map(|window| &window[1..]).copied().collect(),
            time,
        }
    }
}

/// Whether a model has all these heads, and each is named once.
///
/// # Errors
/// When not.
pub fn check(config: &ModelConfig, ablations: &[Ablation]) -> Result<()> {
    for (at, Ablation { id, .. }) in ablations.iter().enumerate() {
        for (what, number, count) in [("layer", id.layer, config.layers()), ("head", id.head, config.heads)] {
            if number >= count {
                return Err(InspectError::NoSuch { what, number, count });
            }
        }
        if ablations[..at].iter().any(|other| other.id == *id) {
            return Err(InspectError::Twice { head: *id });
        }
    }
    Ok(())
}

/// A tap that replaces the outputs of some heads.
#[derive(Debug, Clone, Default)]
pub struct Replacements {
    layers: BTreeMap<usize, [Tensor; 2]>, // which are gone, u8 (1, H, 1, 1), and what stands there, (1, H, 1, D)
}

impl Replacements {
    /// Takes the heads of `ablations` away; `means` are needed where one asks for its mean.
    ///
    /// # Errors
    /// When a head does not exist, or a mean is asked for and there is none.
    pub fn new(
        config: &ModelConfig,
        ablations: &[Ablation],
        means: Option<&HeadMeans>,
        device: &Device,
    ) -> Result<Self> {
        check(config, ablations)?;
        let mut by_layer: BTreeMap<usize, Vec<Ablation>> = BTreeMap::new();
        for &ablation in ablations {
            by_layer.entry(ablation.id.layer).or_default().push(ablation);
        }
        let mut layers = BTreeMap::new();
        for (layer, ablations) in by_layer {
            let (heads, size) = (config.heads, config.head_size());
            let (mut gone, mut instead) = (vec![0u8; heads], vec![0f32; heads * size]);
            for Ablation { id, by } in ablations {
                gone[id.head] = 1;
                let place = &mut instead[id.head * size..(id.head + 1) * size];
                match (by, means) {
                    (Replacement::Zero, _) => place.fill(0.0),
                    (Replacement::Mean, Some(means)) => {
                        let mean = means.layers[layer].get(id.head).and_then(|mean| mean.to_vec1::<f32>());
                        place.copy_from_slice(&mean.map_err(softdict_model::ModelError::from)?);
                    }
                    (Replacement::Mean, None) => return Err(InspectError::Empty { what: "windows of text" }),
                }
            }
            let tensors = Tensor::from_vec(gone, (1, heads, 1, 1), device)
                .and_then(|gone| Ok([gone, Tensor::from_vec(instead, (1, heads, 1, size), device)?]));
            layers.insert(layer, tensors.map_err(softdict_model::ModelError::from)?);
        }
        Ok(Self { layers })
    }

    /// The first layer in which something changes.
    pub fn first_layer(&self) -> Option<usize> {
        self.layers.keys().next().copied()
    }
}

impl Tap for Replacements {
    fn wants(&self, site: Site, layer: usize) -> bool {
        site == Site::HeadOutput && self.layers.contains_key(&layer)
    }

    fn at(&mut self, _: Site, layer: usize, gathered: Tensor) -> candle_core::Result<Tensor> {
        let Some([gone, instead]) = self.layers.get(&layer) else { return Ok(gathered) };
        // chosen, not multiplied by zero: what is gone may be no number at all
        let shape = gathered.shape();
        gone.broadcast_as(shape)?.where_cond(&instead.broadcast_as(shape)?, &gathered)
    }
}
