//! Captured attention: one T×T pattern for each chosen layer and head, checked on the way in.

use crate::error::{InspectError, Result};

/// How far a row's sum may be from 1: f32 rounding over thousands of keys stays well below it, and a
/// wrong softmax or a dropped weight does not.
const ROW_SUM_TOLERANCE: f64 = 1e-3;

/// What a capture hands over; [`AttentionMaps::new`] checks it.
#[derive(Debug, Clone, Default)]
pub struct MapParts {
    /// The text of each token, as the tokenizer cut it.
    pub tokens: Vec<String>,
    /// The id of each token.
    pub token_ids: Vec<u32>,
    /// How many tokens come from the prompt; the rest was generated.
    pub prompt_tokens: usize,
    /// The number in the model of each captured layer.
    pub layers: Vec<usize>,
    /// The number in its layer of each captured head.
    pub heads: Vec<usize>,
    /// Whether a token sees only itself and what came before.
    pub causal: bool,
    /// The weights, `[L, H, T, T]`, rows are queries.
    pub values: Vec<f32>,
}

/// How much attention there is: what decides how large a report gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many layers are shown.
    pub layers: usize,
    /// How many heads of each layer are shown.
    pub heads: usize,
    /// How many tokens there are.
    pub tokens: usize,
}

impl Shape {
    /// How many weights that is.
    pub fn weights(&self) -> u64 {
        [self.layers, self.heads, self.tokens, self.tokens]
            .iter()
            .fold(1, |product, &size| product.saturating_mul(size as u64))
    }
}

/// Attention patterns of chosen layers and heads over one sequence: finite, rows summing to 1, and with
/// exact zeros on later tokens where the model is causal.
#[derive(Debug, Clone)]
pub struct AttentionMaps {
    parts: MapParts,
}

impl AttentionMaps {
    /// Takes a capture over, after checking it.
    ///
    /// # Shapes
    /// `parts.values`: `[L, H, T, T]` row-major.
    /// # Errors
    /// [`InspectError::Empty`], [`InspectError::Length`] or [`InspectError::Prompt`] where the lists do not
    /// fit together; [`InspectError::Weight`], [`InspectError::Future`] or [`InspectError::RowSum`] for the
    /// first row that is no attention row, naming its layer, head and position.
    pub fn new(parts: MapParts) -> Result<Self> {
        let lists =
            [("tokens", parts.tokens.len()), ("layers", parts.layers.len()), ("heads", parts.heads.len())];
        if let Some((what, _)) = lists.into_iter().find(|&(_, length)| length == 0) {
            return Err(InspectError::Empty { what });
        }
        let tokens = parts.tokens.len();
        length("token_ids", tokens, parts.token_ids.len())?;
        if parts.prompt_tokens > tokens {
            return Err(InspectError::Prompt { prompt_tokens: parts.prompt_tokens, tokens });
        }
        let shape = Shape { layers: parts.layers.len(), heads: parts.heads.len(), tokens };
        length("values", usize::try_from(shape.weights()).unwrap_or(usize::MAX), parts.values.len())?;
        let maps = Self { parts };
        maps.check_rows()?;
        Ok(maps)
    }

    fn check_rows(&self) -> Result<()> {
        for (layer_index, &layer) in self.layers().iter().enumerate() {
            for (head_index, &head) in self.heads().iter().enumerate() {
                let pattern = self.pattern(layer_index, head_index);
                for (row, weights) in pattern.chunks_exact(self.len()).enumerate() {
                    check_row(weights, row, self.causal()).map_err(|fault| fault.at(layer, head, row))?;
                }
            }
        }
        Ok(())
    }

    /// The T×T pattern of one head; rows are queries. The indices count the captured layers and heads.
    ///
    /// # Panics
    /// Like slice indexing, where an index is not below the length of [`Self::layers`] or [`Self::heads`].
    pub fn pattern(&self, layer_index: usize, head_index: usize) -> &[f32] {
        let size = self.len() * self.len();
        let start = (layer_index * self.heads().len() + head_index) * size;
        &self.parts.values[start..start + size]
    }

    /// Every pattern in storage order with its layer's and head's number in the model.
    pub fn patterns(&self) -> impl Iterator<Item = (usize, usize, &[f32])> {
        let heads = self.heads();
        let numbers =
            self.layers().iter().flat_map(move |&layer| heads.iter().map(move |&head| (layer, head)));
        let patterns = self.parts.values.chunks_exact(self.len() * self.len());
        numbers.zip(patterns).map(|((layer, head), pattern)| (layer, head, pattern))
    }

    /// How many tokens there are, T.
    #[expect(clippy::len_without_is_empty, reason = "the constructor refuses maps without tokens")]
    pub fn len(&self) -> usize {
        self.parts.tokens.len()
    }

    /// How many layers, heads and tokens there are.
    pub fn shape(&self) -> Shape {
        Shape { layers: self.layers().len(), heads: self.heads().len(), tokens: self.len() }
    }

    /// The text of each token, exactly as the tokenizer cut it.
    pub fn tokens(&self) -> &[String] {
        &self.parts.tokens
    }

    /// The id of each token.
    pub fn token_ids(&self) -> &[u32] {
        &self.parts.token_ids
    }

    /// How many tokens come from the prompt; the rest was generated.
    pub fn prompt_tokens(&self) -> usize {
        self.parts.prompt_tokens
    }

    /// The number in the model of each captured layer.
    pub fn layers(&self) -> &[usize] {
        &self.parts.layers
    }

    /// The number in its layer of each captured head.
    pub fn heads(&self) -> &[usize] {
        &self.parts.heads
    }

    /// Whether a token sees only itself and what came before.
    pub fn causal(&self) -> bool {
        self.parts.causal
    }

    /// All weights, `[L, H, T, T]` row-major.
    pub fn values(&self) -> &[f32] {
        &self.parts.values
    }
}

fn length(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(InspectError::Length { what, expected, found }) }
}

/// What is wrong with a row, before it is known whose row it is.
enum Fault {
    Weight { key: usize, weight: f32 },
    Future { key: usize, weight: f32 },
    Sum(f64),
}

impl Fault {
    fn at(self, layer: usize, head: usize, row: usize) -> InspectError {
        match self {
            Self::Weight { key, weight } => InspectError::Weight { layer, head, row, key, weight },
            Self::Future { key, weight } => InspectError::Future { layer, head, row, key, weight },
            Self::Sum(sum) => InspectError::RowSum { layer, head, row, sum },
        }
    }
}

fn check_row(weights: &[f32], row: usize, causal: bool) -> std::result::Result<(), Fault> {
    let mut sum = 0.0;
    for (key, &weight) in weights.iter().enumerate() {
        // also refuses NaN, which compares with nothing
        if !(0.0..=1.0 + ROW_SUM_TOLERANCE).contains(&f64::from(weight)) {
            return Err(Fault::Weight { key, weight });
        }
        if causal && key > row && weight != 0.0 {
            return Err(Fault::Future { key, weight });
        }
        sum += f64::from(weight);
    }
    if (sum - 1.0).abs() > ROW_SUM_TOLERANCE { Err(Fault::Sum(sum)) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Maps whose row i is uniform over the keys it sees, for `tokens` in layers 0.. and heads 0...
    pub(crate) fn uniform(tokens: &[&str], layers: usize, heads: usize) -> AttentionMaps {
        let count = tokens.len();
        let pattern = (0..count * count).map(|index| {
            let (row, key) = (index / count, index % count);
            if key <= row { 1.0 / (row + 1) as f32 } else { 0.0 }
        });
        let pattern: Vec<f32> = pattern.collect();
        AttentionMaps::new(MapParts {
            tokens: tokens.iter().map(ToString::to_string).collect(),
            token_ids: (0..count as u32).map(|id| id + 10).collect(),
            prompt_tokens: count.div_ceil(2),
            layers: (0..layers).collect(),
            heads: (0..heads).collect(),
            causal: true,
            values: pattern.repeat(layers * heads),
        })
        .unwrap()
    }

    fn parts() -> MapParts {
        uniform(&["a", "b", "c"], 2, 2).parts
    }

    fn message(parts: MapParts) -> String {
        AttentionMaps::new(parts).unwrap_err().to_string()
    }

    #[test]
    fn patterns_are_found_by_layer_and_head() {
        let mut parts = parts();
        let second = 3 * 9 + 3;
        parts.values[second..second + 2].copy_from_slice(&[0.75, 0.25]);
        let maps = AttentionMaps::new(parts).unwrap();
        assert_eq!(maps.pattern(1, 1)[3..6], [0.75, 0.25, 0.0]);
        assert_eq!(maps.pattern(1, 0)[3..6], [0.5, 0.5, 0.0]);
        let (layer, head, pattern) = maps.patterns().nth(3).unwrap();
        assert_eq!((layer, head, pattern), (1, 1, maps.pattern(1, 1)));
        assert_eq!(maps.shape().weights(), 36);
    }

    #[test]
    fn lists_that_do_not_fit_together_are_refused() {
        assert!(message(MapParts { token_ids: vec![1], ..parts() }).contains("token_ids has 1 entries, 3"));
        assert!(message(MapParts { values: vec![1.0], ..parts() }).contains("values has 1 entries, 36"));
        assert!(message(MapParts { heads: vec![], ..parts() }).contains("without heads"));
        assert!(message(MapParts { tokens: vec![], ..parts() }).contains("without tokens"));
        assert!(message(MapParts { prompt_tokens: 4, ..parts() }).contains("4 prompt tokens"));
    }

    #[test]
    fn the_first_bad_row_is_named() {
        let mut future = MapParts { layers: vec![4, 7], heads: vec![0, 5], ..parts() };
        let mut sum = future.clone();
        let mut nan = future.clone();
        let mut negative = future.clone();
        future.values[3 * 9 + 5] = 1e-30;
        assert!(message(future).contains("layer 7, head 5, row 1: weight 0.000000000000000000000000000001"));
        sum.values[9 + 8] = 0.0;
        assert!(message(sum).contains("layer 4, head 5, row 2: the weights sum to 0.666"));
        nan.values[18 + 4] = f32::NAN;
        assert!(message(nan).contains("layer 7, head 0, row 1, key 1: NaN"));
        negative.values[0] = -0.5;
        assert!(message(negative).contains("layer 4, head 0, row 0, key 0: -0.5"));
    }

    #[test]
    fn attention_both_ways_may_look_ahead() {
        let all = vec![0.5, 0.5, 0.5, 0.5];
        let parts = MapParts {
            tokens: vec!["a".into(), "b".into()],
            token_ids: vec![0, 1],
            prompt_tokens: 2,
            layers: vec![0],
            heads: vec![0],
            causal: false,
            values: all,
        };
        assert!(AttentionMaps::new(parts.clone()).is_ok());
        assert!(AttentionMaps::new(MapParts { causal: true, ..parts }).is_err());
    }
}
