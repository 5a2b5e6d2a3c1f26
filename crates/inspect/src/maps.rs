//! Attention over one sequence: a T×T pattern for each chosen layer and head, checked before anything is shown.

use crate::ablation::Ablation;
use crate::capture::each_layer;
use crate::error::{InspectError, Result};
use crate::rows::check_row;
use softdict_model::{Tap, Transformer};
use std::cell::RefCell;

/// What a report says beside the weights.
#[derive(Debug, Clone, Default)]
pub struct MapParts {
    /// The text of each token, as the tokenizer cut it.
    pub tokens: Vec<String>,
    /// The id of each token.
    pub token_ids: Vec<u32>,
    /// How many tokens come from the prompt; the rest was generated.
    pub prompt_tokens: usize,
    /// The number in the model of each layer shown.
    pub layers: Vec<usize>,
    /// The number in its layer of each head shown.
    pub heads: Vec<usize>,
    /// Whether a token sees only itself and what came before.
    pub causal: bool,
    /// The heads that were taken away.
    pub ablated: Vec<Ablation>,
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

/// The patterns of one layer.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'maps> {
    /// Its number in the model.
    pub number: usize,
    /// The number of each head shown.
    heads: &'maps [usize],
    /// The weights, `[H, T, T]`, rows are queries.
    pub values: &'maps [f32],
}

impl<'maps> Layer<'maps> {
    /// The T×T pattern of each head, with the head's number; rows are queries.
    pub fn patterns(self) -> impl Iterator<Item = (usize, &'maps [f32])> {
        self.heads.iter().copied().zip(self.values.chunks_exact(self.values.len() / self.heads.len()))
    }
}

/// Where the weights come from.
enum Source<'a> {
    /// All of them, `[L, H, T, T]`.
    Kept(Vec<f32>),
    /// A model, which computes them in every pass. The cell, because a pass needs the tap for itself.
    Computed { model: &'a Transformer, first: RefCell<&'a mut dyn Tap> },
}

/// Attention patterns of chosen layers and heads over one sequence, handed out a layer at a time: finite, rows summing
/// to 1, and with exact zeros on later tokens where the model is causal.
pub struct AttentionMaps<'a> {
    parts: MapParts,
    source: Source<'a>,
}

impl<'a> AttentionMaps<'a> {
    /// Takes patterns over, after checking them.
    ///
    /// # Shapes
    /// `values`: `[L, H, T, T]` row-major.
    /// # Errors
    /// [`InspectError::Empty`], [`InspectError::Length`] or [`InspectError::Prompt`] where the lists do not
    /// fit together; [`InspectError::Weight`], [`InspectError::Future`] or [`InspectError::RowSum`] for the
    /// first row that is no attention row, naming its layer, head and position.
    pub fn new(parts: MapParts, values: Vec<f32>) -> Result<Self> {
        check_lists(&parts)?;
        let weights = usize::try_from(shape(&parts).weights()).unwrap_or(usize::MAX);
        length("values", weights, values.len())?;
        Self { parts, source: Source::Kept(values) }.checked()
    }

    /// The patterns of `model` on the token ids of `parts`, behind the tap `first`. Every pass over them computes them
    /// again, so that one layer's are in memory at a time; the first pass checks them.
    ///
    /// # Errors
    /// As [`Self::new`], and those of [`crate::each_layer`].
    pub fn computed(model: &'a Transformer, mut parts: MapParts, first: &'a mut dyn Tap) -> Result<Self> {
        check_lists(&parts)?;
        // as a pass comes to them
        parts.layers.sort_unstable();
        parts.layers.dedup();
        Self { parts, source: Source::Computed { model, first: RefCell::new(first) } }.checked()
    }

    fn checked(self) -> Result<Self> {
        self.each_layer(&mut |layer| {
            for (head, pattern) in layer.patterns() {
                for (row, weights) in pattern.chunks_exact(self.len()).enumerate() {
                    check_row(weights, row, self.causal())
                        .map_err(|fault| fault.at(layer.number, head, row))?;
                }
            }
            Ok(())
        })?;
        Ok(self)
    }

    /// Calls `visit` with every layer, in the order of [`Self::layers`].
    ///
    /// # Errors
    /// Those of `visit` and of the model.
    ///
    /// # Panics
    /// When `visit` begins another pass over a model's maps.
    pub fn each_layer(&self, visit: &mut dyn FnMut(Layer<'_>) -> Result<()>) -> Result<()> {
        let heads = self.heads();
        match &self.source {
            Source::Kept(values) => {
                let each = heads.len() * self.len() * self.len();
                self.layers()
                    .iter()
                    .zip(values.chunks_exact(each))
                    .try_for_each(|(&number, values)| visit(Layer { number, heads, values }))
            }
            Source::Computed { model, first } => each_layer(
                model,
                self.token_ids(),
                self.layers(),
                heads,
                *first.borrow_mut(),
                &mut |number, values| visit(Layer { number, heads, values }),
            ),
        }
    }

    /// How many tokens there are, T.
    #[expect(clippy::len_without_is_empty, reason = "the constructor refuses maps without tokens")]
    pub fn len(&self) -> usize {
        self.parts.tokens.len()
    }

    /// How many layers, heads and tokens there are.
    pub fn shape(&self) -> Shape {
        shape(&self.parts)
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

    /// What a summary adds where heads were taken away: `, without heads 1.0=zero`.
    pub fn without(&self) -> String {
        if self.ablated().is_empty() {
            return String::new();
        }
        let names: Vec<String> = self.ablated().iter().map(ToString::to_string).collect();
        format!(", without heads {}", names.join(", "))
    }

    /// The heads that were taken away.
    pub fn ablated(&self) -> &[Ablation] {
        &self.parts.ablated
    }

    /// Whether a token sees only itself and what came before.
    pub fn causal(&self) -> bool {
        self.parts.causal
    }
}

fn shape(parts: &MapParts) -> Shape {
    Shape { layers: parts.layers.len(), heads: parts.heads.len(), tokens: parts.tokens.len() }
}

fn check_lists(parts: &MapParts) -> Result<()> {
    let Shape { layers, heads, tokens } = shape(parts);
    let lists = [("tokens", tokens), ("layers", layers), ("heads", heads)];
    if let Some((what, _)) = lists.into_iter().find(|&(_, length)| length == 0) {
        return Err(InspectError::Empty { what });
    }
    length("token_ids", tokens, parts.token_ids.len())?;
    if parts.prompt_tokens > tokens {
        return Err(InspectError::Prompt { prompt_tokens: parts.prompt_tokens, tokens });
    }
    Ok(())
}

fn length(what: &'static str, expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(InspectError::Length { what, expected, found }) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::capture::capture;
    use candle_core::Device;
    use softdict_model::{ModelConfig, ModelSettings, NoTap, Parameters};

    /// Maps whose row i is uniform over the keys it sees, for `tokens` in layers 0.. and heads 0...
    pub(crate) fn uniform(tokens: &[&str], layers: usize, heads: usize) -> AttentionMaps<'static> {
        let count = tokens.len();
        let pattern = (0..count * count).map(|index| {
            let (row, key) = (index / count, index % count);
            if key <= row { 1.0 / (row + 1) as f32 } else { 0.0 }
        });
        let pattern: Vec<f32> = pattern.collect();
        let parts = MapParts {
            tokens: tokens.iter().map(ToString::to_string).collect(),
            token_ids: (0..count as u32).map(|id| id + 10).collect(),
            prompt_tokens: count.div_ceil(2),
            layers: (0..layers).collect(),
            heads: (0..heads).collect(),
            causal: true,
            ablated: Vec::new(),
        };
        AttentionMaps::new(parts, pattern.repeat(layers * heads)).unwrap()
    }

    /// Every weight, `[L, H, T, T]`.
    pub(crate) fn values(maps: &AttentionMaps<'_>) -> Vec<f32> {
        let mut values = Vec::new();
        maps.each_layer(&mut |layer| {
            values.extend_from_slice(layer.values);
            Ok(())
        })
        .unwrap();
        values
    }

    fn parts() -> (MapParts, Vec<f32>) {
        let maps = uniform(&["a", "b", "c"], 2, 2);
        (maps.parts.clone(), values(&maps))
    }

    fn message(parts: MapParts, values: Vec<f32>) -> String {
        AttentionMaps::new(parts, values).err().unwrap().to_string()
    }

    #[test]
    fn patterns_are_found_by_layer_and_head() {
        let (mut parts, mut values) = parts();
        parts.layers = vec![3, 5];
        let second = 3 * 9 + 3;
        values[second..second + 2].copy_from_slice(&[0.75, 0.25]);
        let maps = AttentionMaps::new(parts, values).unwrap();
        let mut rows = Vec::new();
        maps.each_layer(&mut |layer| {
            rows.extend(layer.patterns().map(|(head, pattern)| (layer.number, head, pattern[3..6].to_vec())));
            Ok(())
        })
        .unwrap();
        let even = vec![0.5, 0.5, 0.0];
        let changed = vec![0.75, 0.25, 0.0];
        assert_eq!(rows, [(3, 0, even.clone()), (3, 1, even.clone()), (5, 0, even), (5, 1, changed)]);
        assert_eq!(maps.shape().weights(), 36);
    }

    #[test]
    fn computed_patterns_are_those_that_are_kept_in_every_pass() {
        let settings = ModelSettings { layers: 3, heads: 2, width: 8, context: 8, ..Default::default() };
        let config = ModelConfig::new(&settings, 20).unwrap();
        let model = Transformer::new(&config, &Parameters::initial(&config, 2), &Device::Cpu).unwrap();
        let (own, _) = parts();
        let own = MapParts { layers: vec![2, 0, 2], heads: vec![1, 0], ..own };
        let mut tap = NoTap;
        let maps = AttentionMaps::computed(&model, own, &mut tap).unwrap();
        assert_eq!(maps.layers(), [0, 2]);
        let expected = capture(&model, maps.token_ids(), &[0, 2], &[1, 0]).unwrap();
        assert_eq!(values(&maps), expected);
        assert_eq!(values(&maps), expected);
        let missing = MapParts { layers: vec![3], ..maps.parts.clone() };
        let error = AttentionMaps::computed(&model, missing, &mut NoTap).err().unwrap().to_string();
        assert!(error.contains("layer 3"), "{error}");
    }

    #[test]
    fn lists_that_do_not_fit_together_are_refused() {
        let (all, values) = parts();
        let refused = |change: &dyn Fn(&mut MapParts)| {
            let mut own = all.clone();
            change(&mut own);
            message(own, values.clone())
        };
        assert!(refused(&|parts| parts.token_ids = vec![1]).contains("token_ids has 1 entries, 3"));
        assert!(refused(&|parts| parts.heads = vec![]).contains("without heads"));
        assert!(refused(&|parts| parts.tokens = vec![]).contains("without tokens"));
        assert!(refused(&|parts| parts.prompt_tokens = 4).contains("4 prompt tokens"));
        assert!(message(all, vec![1.0]).contains("values has 1 entries, 36"));
    }

    #[test]
    fn the_first_bad_row_is_named() {
        let (parts, values) = parts();
        let parts = MapParts { layers: vec![4, 7], heads: vec![0, 5], ..parts };
        let refused = |cell: usize, weight: f32| {
            let mut values = values.clone();
            values[cell] = weight;
            message(parts.clone(), values)
        };
        let future = refused(3 * 9 + 5, 1e-30);
        assert!(future.contains("layer 7, head 5, row 1: weight 0.000000000000000000000000000001"));
        assert!(refused(9 + 8, 0.0).contains("layer 4, head 5, row 2: the weights sum to 0.666"));
        assert!(refused(18 + 4, f32::NAN).contains("layer 7, head 0, row 1, key 1: NaN"));
        assert!(refused(0, -0.5).contains("layer 4, head 0, row 0, key 0: -0.5"));
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
            ablated: Vec::new(),
        };
        assert!(AttentionMaps::new(parts.clone(), all.clone()).is_ok());
        assert!(AttentionMaps::new(MapParts { causal: true, ..parts }, all).is_err());
    }
}
