//! What changed between two checkpoints of one model, on one prompt: the predictions, and where every head looks.

use crate::ablation::HeadId;
use crate::capture::capture;
use crate::error::{InspectError, Result};
use candle_core::IndexOp;
use serde::Serialize;
use softdict_model::{ModelError, NoTap, Transformer};

/// How one head's pattern changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HeadChange {
    /// Which head.
    pub head: HeadId,
    /// The share of a row's attention that moved, 0 to 1: half the sum of absolute differences, mean over rows.
    pub moved: f64,
    /// Where it changed most: the row, the key, and the weight before and after.
    pub row: usize,
    /// As above.
    pub key: usize,
    /// As above.
    pub before: f32,
    /// As above.
    pub after: f32,
}

/// What changed between two models on a prompt.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// Every head, the most changed first.
    pub heads: Vec<HeadChange>,
    /// Logits at the position asked for, before and after: V each.
    #[serde(skip)]
    pub logits: [Vec<f32>; 2],
}

/// Compares two models of the same layers, heads and vocabulary on a prompt; predictions are those at position `at`.
///
/// # Errors
/// When they have not the same shape, the position is not in the prompt, or a model fails.
pub fn difference(before: &Transformer, after: &Transformer, ids: &[u32], at: usize) -> Result<Difference> {
    let shape = |model: &Transformer| {
        let config = model.config();
        [config.layers(), config.heads, config.vocab_size]
    };
    for ((what, expected), found) in
        ["layers", "heads", "tokens of the vocabulary"].into_iter().zip(shape(before)).zip(shape(after))
    {
        if expected != found {
            return Err(InspectError::Length { what, expected, found });
        }
    }
    if at >= ids.len() {
        return Err(InspectError::NoSuch { what: "position", number: at, count: ids.len() });
    }
    let [layers, heads, _] = shape(before).map(|count| (0..count).collect::<Vec<usize>>());
    let patterns = |model| capture(model, ids, &layers, &heads);
    let (old, new) = (patterns(before)?, patterns(after)?);
    let square = ids.len() * ids.len();
    let pairs = old.chunks_exact(square).zip(new.chunks_exact(square)).enumerate();
    let mut changes: Vec<HeadChange> = pairs
        .map(|(index, (old, new))| {
            let id = HeadId { layer: index / heads.len(), head: index % heads.len() };
            change(id, old, new, ids.len())
        })
        .collect();
    changes.sort_by(|a, b| b.moved.total_cmp(&a.moved));
    let asked = |model: &Transformer| -> Result<Vec<f32>> {
        let logits = model.forward(ids, ids.len(), &mut NoTap)?;
        let row = logits.i((0, at)).and_then(|row| row.to_vec1());
        let row: Vec<f32> = row.map_err(ModelError::from)?;
        if row.iter().any(|logit| !logit.is_finite()) {
            return Err(InspectError::NotFinite { what: "logits" });
        }
        Ok(row)
    };
    Ok(Difference { heads: changes, logits: [asked(before)?, asked(after)?] })
}

fn change(head: HeadId, old: &[f32], new: &[f32], tokens: usize) -> HeadChange {
    let (mut sum, mut at) = (0.0, 0);
    for (index, (a, b)) in old.iter().zip(new).enumerate() {
        sum += f64::from((a - b).abs());
        if (a - b).abs() > (old[at] - new[at]).abs() {
            at = index;
        }
    }
    let moved = sum / (2 * tokens) as f64;
    HeadChange { head, moved, row: at / tokens, key: at % tokens, before: old[at], after: new[at] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::{ModelConfig, ModelSettings, Parameters};

    #[test]
    fn a_pattern_that_moved_whole_moved_by_one() {
        let (old, new) = ([1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]);
        let found = change(HeadId { layer: 1, head: 2 }, &old, &new, 2);
        assert!((found.moved - 0.5).abs() < 1e-9);
        assert_eq!((found.row, found.key, found.before, found.after), (1, 0, 1.0, 0.0));
    }

    #[test]
    fn a_model_does_not_differ_from_itself_and_shapes_must_agree() {
        let model = |heads, seed| {
            let settings = ModelSettings { layers: 2, heads, width: 8, context: 8, ..Default::default() };
            let config = ModelConfig::new(&settings, 9).unwrap();
            Transformer::new(&config, &Parameters::initial(&config, seed), &Device::Cpu).unwrap()
        };
        let same = difference(&model(2, 1), &model(2, 1), &[1, 2, 3], 2).unwrap();
        assert!(same.heads.iter().all(|head| head.moved.abs() < 1e-12));
        assert_eq!(same.logits[0], same.logits[1]);
        let other = difference(&model(2, 1), &model(2, 2), &[1, 2, 3], 2).unwrap();
        assert_eq!(other.heads.len(), 4);
        assert!(
            other.heads[0].moved > 0.0 && other.heads.windows(2).all(|pair| pair[0].moved >= pair[1].moved)
        );
        let message = difference(&model(2, 1), &model(4, 1), &[1], 0).unwrap_err().to_string();
        assert!(message.contains("heads"), "{message}");
    }
}
