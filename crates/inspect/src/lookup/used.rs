//! The lookup table as a text uses it: which query tokens find which key tokens, how much of the attention that is, and
//! what the head then says.

use super::{Circuit, Found};
use crate::ablation::HeadId;
use crate::error::Result;
use candle_core::{IndexOp, Tensor};
use serde::Serialize;
use softdict_model::{Parameters, Site, Tap, Transformer};
use std::collections::BTreeMap;

/// What a row gives to one token in all, to be counted as found.
const LEAST: f64 = 0.01;

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Used {
    /// The token that looks.
    pub query: u32,
    /// The token that is looked at.
    pub key: u32,
    /// Rows of the query token in the text.
    pub rows: usize,
    /// Of these, rows that look at the key token at all.
    pub finds: usize,
    /// Share of the query token's attention that goes to the key token, over all its rows, 0 to 1.
    pub attention: f64,
    /// The token whose logit the head's mean output there raises most, by how much for a unit of the final norm's scale.
    pub raises: Found,
}

/// The patterns and outputs of one layer on one window.
struct Seen {
    layer: usize,
    pattern: Option<Tensor>, // (1, H, T, T)
    output: Option<Tensor>,  // (1, H, T, D)
}

impl Tap for Seen {
    fn wants(&self, site: Site, layer: usize) -> bool {
        layer == self.layer && matches!(site, Site::Pattern | Site::HeadOutput)
    }

    fn at(&mut self, site: Site, _: usize, tensor: Tensor) -> candle_core::Result<Tensor> {
        let slot = if site == Site::Pattern { &mut self.pattern } else { &mut self.output };
        *slot = Some(tensor.clone());
        Ok(tensor)
    }
}

/// Attention from one token to another.
#[derive(Default, Clone, Copy)]
struct Pair {
    attention: f64,
    finds: usize,
}

/// The `top` pairs of tokens with the most attention, over the windows of a text, the most first; only of the query tokens
/// `queries`, if there are any. What a row gives to itself is no lookup and does not count.
///
/// # Errors
/// When the head does not exist, or the model fails.
pub fn used(
    model: &Transformer,
    parameters: &Parameters,
    windows: &[Vec<u32>],
    id: HeadId,
    queries: &[u32],
    top: usize,
) -> Result<Vec<Used>> {
    let mut present: Vec<u32> = windows.iter().flatten().copied().collect();
    present.sort_unstable();
    present.dedup();
    let circuit = Circuit::new(model.config(), parameters, id)?.among(&present);
    let mut pairs: BTreeMap<(u32, u32), Pair> = BTreeMap::new();
    let mut rows: BTreeMap<u32, usize> = BTreeMap::new();
    for window in windows {
        let (pattern, _) = look(model, window, id)?;
        for (row, weights) in pattern.chunks_exact(window.len()).enumerate() {
            let query = window[row];
            if !queries.is_empty() && !queries.contains(&query) {
                continue;
            }
            *rows.entry(query).or_default() += 1;
            for (key, attention) in by_token(window, weights, row) {
                let pair = pairs.entry((query, key)).or_default();
                pair.attention += attention;
                pair.finds += usize::from(attention >= LEAST);
            }
        }
    }
    let mut best: Vec<((u32, u32), Pair)> = pairs.into_iter().collect();
    best.sort_by(|a, b| b.1.attention.total_cmp(&a.1.attention).then(a.0.cmp(&b.0)));
    best.truncate(top);
    // once more, for what the head said at the best ones
    let size = model.config().head_size();
    let mut said = vec![vec![0f32; size]; best.len()];
    for window in windows {
        let (pattern, output) = look(model, window, id)?;
        let rows = pattern.chunks_exact(window.len()).zip(output.chunks_exact(size)).enumerate();
        for (row, (weights, output)) in
            rows.filter(|(row, _)| best.iter().any(|(pair, _)| pair.0 == window[*row]))
        {
            let found = by_token(window, weights, row);
            for (((query, key), pair), said) in best.iter().zip(&mut said) {
                if let (true, Some(attention)) = (window[row] == *query, found.get(key)) {
                    let share = (attention / pair.attention) as f32;
                    said.iter_mut().zip(output).for_each(|(total, value)| *total += share * value);
                }
            }
        }
    }
    best.iter()
        .zip(&said)
        .map(|(&((query, key), Pair { attention, finds }), said)| {
            let rows = rows.get(&query).copied().unwrap_or_default();
            let raises = circuit.raised(said, 1)?.first().copied();
            let raises = raises.unwrap_or(Found { token: 0, score: 0.0 });
            Ok(Used { query, key, rows, finds, attention: attention / rows.max(1) as f64, raises })
        })
        .collect()
}

/// What a row gives to each token in all, itself left out.
fn by_token(window: &[u32], weights: &[f32], row: usize) -> BTreeMap<u32, f64> {
    let mut found: BTreeMap<u32, f64> = BTreeMap::new();
    for (key, &weight) in weights.iter().enumerate() {
        if key != row && weight > 0.0 {
            *found.entry(window[key]).or_default() += f64::from(weight);
        }
    }
    found
}

/// One head's pattern `(T, T)` and output `(T, D)` on a window.
fn look(model: &Transformer, window: &[u32], id: HeadId) -> Result<(Vec<f32>, Vec<f32>)> {
    let mut tap = Seen { layer: id.layer, pattern: None, output: None };
    model.forward(window, window.len(), &mut tap)?;
    let flat = |tensor: Option<Tensor>| -> Result<Vec<f32>> {
        let Some(tensor) = tensor else { return Ok(Vec::new()) };
        let values = tensor.i((0, id.head)).and_then(|own| own.flatten_all()?.to_vec1());
        Ok(values.map_err(softdict_model::ModelError::from)?)
    };
    Ok((flat(tap.pattern)?, flat(tap.output)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::settings::Positions;
    use softdict_model::{ModelConfig, ModelSettings};

    #[test]
    fn uniform_attention_finds_tokens_as_often_as_they_stand_there() {
        let settings =
            ModelSettings { layers: 1, heads: 2, width: 8, positions: Positions::None, ..Default::default() };
        let config = ModelConfig::new(&settings, 9).unwrap();
        let parameters = Parameters::zeros(&config);
        let model = Transformer::new(&config, &parameters, &Device::Cpu).unwrap();
        // 2 sees 1, then 1, the other 2 and 3; what a row gives to itself does not count
        let id = HeadId { layer: 0, head: 1 };
        let text = [vec![1, 2, 3, 2]];
        let table = used(&model, &parameters, &text, id, &[], 100).unwrap();
        let line = |query, key| table.iter().find(|line| (line.query, line.key) == (query, key)).unwrap();
        assert_eq!(table.len(), 5);
        assert_eq!((line(2, 1).rows, line(2, 1).finds), (2, 2));
        assert!((line(2, 1).attention - 0.375).abs() < 1e-6);
        assert!((line(2, 2).attention - 0.125).abs() < 1e-6);
        assert!((line(2, 3).attention - 0.125).abs() < 1e-6);
        assert!((line(3, 1).attention - 1.0 / 3.0).abs() < 1e-6);
        // the most attention in all comes first
        assert_eq!((table[0].query, table[0].key), (2, 1));
        let of_three = used(&model, &parameters, &text, id, &[3], 100).unwrap();
        assert!(of_three.len() == 2 && of_three.iter().all(|line| line.query == 3));
        assert_eq!(used(&model, &parameters, &[vec![1, 2]], id, &[], 1).unwrap().len(), 1);
        assert!(used(&model, &parameters, &[vec![1]], HeadId { layer: 1, head: 0 }, &[], 1).is_err());
    }

    #[test]
    fn many_faint_weights_on_one_token_count_together() {
        let settings = ModelSettings {
            layers: 1,
            heads: 1,
            width: 8,
            context: 400,
            positions: Positions::None,
            ..Default::default()
        };
        let config = ModelConfig::new(&settings, 9).unwrap();
        let parameters = Parameters::zeros(&config);
        let model = Transformer::new(&config, &parameters, &Device::Cpu).unwrap();
        let mut window = vec![1; 399];
        window.push(2);
        let id = HeadId { layer: 0, head: 0 };
        let line = &used(&model, &parameters, &[window], id, &[2], 1).unwrap()[0];
        assert_eq!((line.key, line.finds), (1, 1));
        assert!((line.attention - 399.0 / 400.0).abs() < 1e-4, "{line:?}");
    }
}
