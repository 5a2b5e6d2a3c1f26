//! Attention patterns from a model's forward pass, read through a tap.

use crate::error::{InspectError, Result};
use candle_core::Tensor;
use softdict_model::{Chain, Site, Tap, Transformer};

/// Keeps the patterns of some layers and heads as they pass by.
struct PatternTap<'a> {
    layers: &'a [usize],
    heads: &'a [usize],
    values: Vec<f32>, // [L, H, T, T], of the chosen ones
}

impl Tap for PatternTap<'_> {
    /// Every layer's: forming a pattern rounds otherwise than fused attention, so with fewer of them the last
    /// bits of a map would depend on which others were asked for.
    fn wants(&self, site: Site, _: usize) -> bool {
        site == Site::Pattern
    }

    fn at(&mut self, _: Site, layer: usize, pattern: Tensor) -> candle_core::Result<Tensor> {
        let first = pattern.get(0)?; // (H, T, T) of the only sequence
        let square = first.dim(1)? * first.dim(2)?;
        // straight to their places: all patterns are held once, and one head's twice
        let places = self.values.chunks_exact_mut(self.heads.len() * square);
        for (_, places) in self.layers.iter().zip(places).filter(|(own, _)| **own == layer) {
            for (&head, place) in self.heads.iter().zip(places.chunks_exact_mut(square)) {
                place.copy_from_slice(&first.get(head)?.flatten_all()?.to_vec1::<f32>()?);
            }
        }
        Ok(pattern)
    }
}

/// The patterns of the chosen layers and heads on one sequence, in the order asked for, in a pass through the tap `first`.
///
/// # Shapes
/// Returns `[L, H, T, T]` row-major, rows are queries.
/// # Errors
/// When a layer or head does not exist, or the tokens do not fit in the context.
pub fn capture(
    model: &Transformer,
    ids: &[u32],
    layers: &[usize],
    heads: &[usize],
    first: &mut dyn Tap,
) -> Result<Vec<f32>> {
    let config = model.config();
    for (what, wanted, count) in [("layer", layers, config.layers()), ("head", heads, config.heads)] {
        if let Some(&number) = wanted.iter().find(|&&number| number >= count) {
            return Err(InspectError::NoSuch { what, number, count });
        }
    }
    if ids.is_empty() {
        return Err(InspectError::Empty { what: "tokens" });
    }
    if heads.is_empty() {
        return Ok(Vec::new());
    }
    // a weight that was never written would be no number
    let values = vec![f32::NAN; layers.len() * heads.len() * ids.len() * ids.len()];
    let mut tap = PatternTap { layers, heads, values };
    model.forward(ids, ids.len(), &mut Chain { first, second: &mut tap })?;
    let values = tap.values;
    if let Some(index) = values.iter().position(|weight| !weight.is_finite()) {
        let (tokens, weight) = (ids.len(), values[index]);
        let (map, cell) = (index / (tokens * tokens), index % (tokens * tokens));
        let (layer, head) = (layers[map / heads.len()], heads[map % heads.len()]);
        return Err(InspectError::Weight { layer, head, row: cell / tokens, key: cell % tokens, weight });
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::{ModelConfig, ModelSettings, NoTap, Parameters};

    fn model(change: impl Fn(&mut ModelSettings)) -> Transformer {
        let mut settings =
            ModelSettings { layers: 2, heads: 4, width: 16, context: 16, ..Default::default() };
        change(&mut settings);
        let config = ModelConfig::new(&settings, 20).unwrap();
        Transformer::new(&config, &Parameters::initial(&config, 2), &Device::Cpu).unwrap()
    }

    const IDS: [u32; 7] = [3, 1, 4, 1, 5, 9, 2];

    #[test]
    fn patterns_are_causal_and_rows_sum_to_one() {
        let values = capture(&model(|_| ()), &IDS, &[0, 1], &[0, 1, 2, 3], &mut NoTap).unwrap();
        assert_eq!(values.len(), 2 * 4 * 49);
        for pattern in values.chunks(49) {
            for (query, row) in pattern.chunks(7).enumerate() {
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                assert!(row[query + 1..].iter().all(|&weight| weight == 0.0));
            }
            assert!(pattern[0] == 1.0);
        }
    }

    #[test]
    fn a_selection_is_a_part_of_the_whole_in_the_order_asked_for() {
        let model = model(|settings| settings.kv_heads = Some(2));
        let all = capture(&model, &IDS, &[0, 1], &[0, 1, 2, 3], &mut NoTap).unwrap();
        let some = capture(&model, &IDS, &[1], &[3, 0], &mut NoTap).unwrap();
        assert_eq!(some[..49], all[7 * 49..]);
        assert_eq!(some[49..], all[4 * 49..5 * 49]);
    }

    #[test]
    fn capturing_changes_no_logit() {
        let model = model(|settings| settings.qk_norm = true);
        let mut tap = PatternTap { layers: &[0, 1], heads: &[0], values: vec![f32::NAN; 2 * 49] };
        let logits = |tap: &mut dyn Tap| -> Vec<f32> {
            model.forward(&IDS, 7, tap).unwrap().flatten_all().unwrap().to_vec1().unwrap()
        };
        let (with, without) = (logits(&mut tap), logits(&mut NoTap));
        // two ways to compute the same softmax in f32
        assert!(with.iter().zip(&without).all(|(a, b)| (a - b).abs() < 1e-5));
    }

    #[test]
    fn a_head_that_does_not_exist_is_named() {
        let message = capture(&model(|_| ()), &IDS, &[0], &[4], &mut NoTap).unwrap_err().to_string();
        assert!(message.contains("head 4") && message.contains('4'), "{message}");
        let message = capture(&model(|_| ()), &IDS, &[2], &[0], &mut NoTap).unwrap_err().to_string();
        assert!(message.contains("layer 2"), "{message}");
    }
}
