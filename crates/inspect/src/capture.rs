//! Attention patterns from a model's forward pass, read through a tap.

use crate::error::{InspectError, Result};
use candle_core::Tensor;
use softdict_model::{Chain, NoTap, Site, Tap, Transformer};

/// Bytes of a weight while a pass forms and shows the patterns of its layer: scores, their exponentials, the pattern, and
/// what is shown.
pub const FORMING: u64 = 4 * size_of::<f32>() as u64;

/// Shows the patterns of some layers and heads as they pass by.
struct PatternTap<'a> {
    layers: &'a [usize],
    heads: &'a [usize],
    visit: &'a mut Visit<'a>,
    /// Why it came to an end: a tap can tell candle's errors only.
    failed: Option<InspectError>,
}

/// What is called with a layer's number and its patterns, `[H, T, T]`.
type Visit<'a> = dyn FnMut(usize, &[f32]) -> Result<()> + 'a;

impl Tap for PatternTap<'_> {
    /// Every layer's: forming a pattern rounds otherwise than fused attention, so with fewer of them the last
    /// bits of a map would depend on which others were asked for.
    fn wants(&self, site: Site, _: usize) -> bool {
        site == Site::Pattern
    }

    fn at(&mut self, _: Site, layer: usize, pattern: Tensor) -> candle_core::Result<Tensor> {
        if self.layers.contains(&layer) {
            let shown = chosen(&pattern, self.heads)?;
            if let Err(error) = finite(layer, self.heads, &shown).and_then(|()| (self.visit)(layer, &shown)) {
                self.failed = Some(error);
                candle_core::bail!("the patterns of layer {layer} were not taken");
            }
        }
        Ok(pattern)
    }
}

/// The chosen heads of a pattern `(1, H, T, T)`, one after the other.
fn chosen(pattern: &Tensor, heads: &[usize]) -> candle_core::Result<Vec<f32>> {
    let all = pattern.get(0)?;
    let mut shown = Vec::with_capacity(heads.len() * all.dim(1)? * all.dim(2)?);
    for &head in heads {
        shown.extend(all.get(head)?.flatten_all()?.to_vec1::<f32>()?);
    }
    Ok(shown)
}

fn finite(layer: usize, heads: &[usize], patterns: &[f32]) -> Result<()> {
    let Some(index) = patterns.iter().position(|weight| !weight.is_finite()) else { return Ok(()) };
    let square = patterns.len() / heads.len();
    let (head, cell, tokens) = (heads[index / square], index % square, square.isqrt());
    Err(InspectError::Weight { layer, head, row: cell / tokens, key: cell % tokens, weight: patterns[index] })
}

/// Calls `visit` with the patterns of each of the chosen layers as the pass through the tap `first` comes to it: one
/// layer's are there at a time.
///
/// # Shapes
/// `visit` is given the layer and its patterns, `[H, T, T]` row-major, rows are queries; layers as the model has them,
/// heads in the order asked for.
/// # Errors
/// When a layer or head does not exist, the tokens do not fit in the context, or `visit` fails.
pub fn each_layer(
    model: &Transformer,
    ids: &[u32],
    layers: &[usize],
    heads: &[usize],
    first: &mut dyn Tap,
    visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
) -> Result<()> {
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
        return Ok(());
    }
    let mut tap = PatternTap { layers, heads, visit, failed: None };
    let passed = model.forward(ids, ids.len(), &mut Chain { first, second: &mut tap });
    match tap.failed {
        Some(error) => Err(error),
        None => Ok(passed.map(|_| ())?),
    }
}

/// The patterns of the chosen layers and heads on one sequence, all at once and in the order asked for.
///
/// # Shapes
/// Returns `[L, H, T, T]` row-major, rows are queries.
/// # Errors
/// As [`each_layer`].
pub fn capture(model: &Transformer, ids: &[u32], layers: &[usize], heads: &[usize]) -> Result<Vec<f32>> {
    // a weight that was never written would be no number
    let each = heads.len() * ids.len() * ids.len();
    let mut values = vec![f32::NAN; layers.len() * each];
    each_layer(model, ids, layers, heads, &mut NoTap, &mut |layer, patterns| {
        let places = values.chunks_exact_mut(each);
        for (_, place) in layers.iter().zip(places).filter(|(own, _)| **own == layer) {
            place.copy_from_slice(patterns);
        }
        Ok(())
    })?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::{ModelConfig, ModelSettings, Parameters};

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
        let values = capture(&model(|_| ()), &IDS, &[0, 1], &[0, 1, 2, 3]).unwrap();
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
        let all = capture(&model, &IDS, &[0, 1], &[0, 1, 2, 3]).unwrap();
        let some = capture(&model, &IDS, &[1], &[3, 0]).unwrap();
        assert_eq!(some[..49], all[7 * 49..]);
        assert_eq!(some[49..], all[4 * 49..5 * 49]);
    }

    #[test]
    fn capturing_changes_no_logit() {
        let model = model(|settings| settings.qk_norm = true);
        let mut visit = |_: usize, _: &[f32]| Ok(());
        let mut tap = PatternTap { layers: &[0, 1], heads: &[0], visit: &mut visit, failed: None };
        let logits = |tap: &mut dyn Tap| -> Vec<f32> {
            model.forward(&IDS, 7, tap).unwrap().flatten_all().unwrap().to_vec1().unwrap()
        };
        let (with, without) = (logits(&mut tap), logits(&mut NoTap));
        // two ways to compute the same softmax in f32
        assert!(with.iter().zip(&without).all(|(a, b)| (a - b).abs() < 1e-5));
    }

    #[test]
    fn a_head_that_does_not_exist_is_named() {
        let message = capture(&model(|_| ()), &IDS, &[0], &[4]).unwrap_err().to_string();
        assert!(message.contains("head 4") && message.contains('4'), "{message}");
        let message = capture(&model(|_| ()), &IDS, &[2], &[0]).unwrap_err().to_string();
        assert!(message.contains("layer 2"), "{message}");
    }
}
