//! Where a head attends most: the strongest rows of different windows of a text.

use crate::capture::each_layer;
use crate::error::Result;
use serde::Serialize;
use softdict_model::{NoTap, Transformer};

/// Tokens of a passage: so many before its row, and so many after.
const BEFORE: usize = 40;
const AFTER: usize = 8;
/// Tokens before what the row looks at.
const MARGIN: usize = 4;
/// Weights that are shown.
const SHOWN: f32 = 0.05;

/// A piece of a window around a row that looks at one token before it more than any other row there does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Passage {
    /// Which window.
    pub window: usize,
    /// The piece's first token, and the one after its last.
    pub first: usize,
    /// As above.
    pub end: usize,
    /// The row.
    pub row: usize,
    /// Its largest weight on another token.
    pub weight: f32,
    /// What the rows of the piece look at: (row, key, weight), keys may lie before the piece.
    pub arcs: Vec<(usize, usize, f32)>,
}

/// Up to `each` passages of every head, counted through the layers, the strongest first.
///
/// # Errors
/// When the model fails.
pub fn passages(model: &Transformer, windows: &[Vec<u32>], each: usize) -> Result<Vec<Vec<Passage>>> {
    let config = model.config();
    let layers: Vec<usize> = (0..config.layers()).collect();
    let heads: Vec<usize> = (0..config.heads).collect();
    let mut best: Vec<Vec<Passage>> = vec![Vec::new(); layers.len() * heads.len()];
    for (window, ids) in windows.iter().enumerate() {
        let time = ids.len();
        each_layer(model, ids, &layers, &heads, &mut NoTap, &mut |layer, patterns| {
            let best = &mut best[layer * heads.len()..];
            for (pattern, best) in patterns.chunks_exact(time * time).zip(best) {
                let Some((row, key, weight)) = strongest(pattern, time) else { continue };
                if best.len() == each && best.last().is_some_and(|last| last.weight >= weight) {
                    continue;
                }
                let place = best.partition_point(|other| other.weight >= weight);
                best.insert(place, passage(pattern, time, window, (row, key, weight)));
                best.truncate(each);
            }
            Ok(())
        })?;
    }
    Ok(best)
}

/// The row with the largest weight on another token than itself and the first, which many heads rest on; and that token.
fn strongest(pattern: &[f32], time: usize) -> Option<(usize, usize, f32)> {
    let mut best: Option<(usize, usize, f32)> = None;
    for (row, weights) in pattern.chunks_exact(time).enumerate() {
        for (key, &weight) in weights.iter().enumerate().skip(1) {
            if key != row && best.is_none_or(|(_, _, most)| weight > most) {
                best = Some((row, key, weight));
            }
        }
    }
    best
}

fn passage(pattern: &[f32], time: usize, window: usize, (row, key, weight): (usize, usize, f32)) -> Passage {
    let first = row.saturating_sub(BEFORE).min(key.saturating_sub(MARGIN));
    let end = (row.max(key) + 1 + AFTER).min(time);
    let rows = pattern.chunks_exact(time).enumerate().take(end).skip(first);
    let arcs = rows.flat_map(|(row, weights)| {
        let shown = weights.iter().enumerate().filter(|(_, weight)| **weight >= SHOWN);
        // two decimals are what is shown
        shown.map(move |(key, &weight)| (row, key, (weight * 100.0).round() / 100.0))
    });
    Passage { window, first, end, row, weight, arcs: arcs.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use softdict_model::{ModelConfig, ModelSettings, Parameters};

    #[test]
    fn the_strongest_row_is_neither_itself_nor_the_first_token() {
        let mut pattern = vec![0.0; 16];
        (pattern[0], pattern[4], pattern[10], pattern[15]) = (1.0, 0.9, 1.0, 0.6);
        pattern[9] = 0.3; // row 2 on key 1
        assert_eq!(strongest(&pattern, 4), Some((2, 1, 0.3)));
        assert_eq!(strongest(&[1.0], 1), None);
        let found = passage(&pattern, 4, 7, (2, 1, 0.3));
        assert_eq!((found.window, found.first, found.end), (7, 0, 4));
        let far = passage(&vec![0.0; 10_000], 100, 0, (90, 10, 0.9));
        assert_eq!((far.first, far.end), (6, 99));
        assert_eq!(found.arcs, [(0, 0, 1.0), (1, 0, 0.9), (2, 1, 0.3), (2, 2, 1.0), (3, 3, 0.6)]);
    }

    #[test]
    fn each_head_has_its_own_from_different_windows_the_strongest_first() {
        let settings = ModelSettings { layers: 2, heads: 2, width: 8, context: 12, ..Default::default() };
        let config = ModelConfig::new(&settings, 9).unwrap();
        let model = Transformer::new(&config, &Parameters::initial(&config, 1), &Device::Cpu).unwrap();
        let windows: Vec<Vec<u32>> =
            (0..5).map(|w| (0..12).map(|i| (i * (w + 2) + w) % 9).collect()).collect();
        let found = passages(&model, &windows, 3).unwrap();
        assert_eq!(found.len(), 4);
        for passages in found {
            assert_eq!(passages.len(), 3);
            assert!(passages.windows(2).all(|pair| pair[0].weight >= pair[1].weight));
            let mut windows: Vec<usize> = passages.iter().map(|passage| passage.window).collect();
            windows.sort_unstable();
            windows.dedup();
            assert_eq!(windows.len(), 3);
        }
    }
}
