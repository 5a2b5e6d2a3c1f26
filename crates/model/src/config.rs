//! The shape of a model, validated: what everything else takes.

use crate::error::{ModelError, Result};
use crate::settings::{Ffn, Init, ModelSettings, NormChoice, Positions, Scale};
use softdict_kernels::activation::Activation;
use softdict_kernels::norm::{Norm, NormKind};
use softdict_kernels::rope::RopeTable;
use std::ops::Range;

/// Widths below this start from [`Init::FanIn`] unless told otherwise: 0.02 leaves narrow models stuck.
const FAN_IN_BELOW: usize = 256;

/// Limits far above what this program is for, so that a number in a file cannot ask for absurd work.
const MOST: [(&str, usize); 5] = [
    ("model.layers", 1024),
    ("model.heads", 1024),
    ("model.width", 65_536),
    ("model.context", 1 << 20),
    ("model.ffn_dim", 1 << 20),
];

fn within(key: &'static str, value: usize) -> Result<()> {
    let most = MOST.iter().find(|(name, _)| *name == key).map_or(usize::MAX, |(_, most)| *most);
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(ModelError::Range { key, value: value.to_string(), range: format!("from 1 to {most}") })
}

fn number(key: &'static str, value: f64, right: bool, range: &str) -> Result<()> {
    if right { Ok(()) } else { Err(ModelError::Range { key, value: value.to_string(), range: range.into() }) }
}

fn conflict(first: (&str, f64), second: (&str, f64), reason: impl Into<String>) -> ModelError {
    let pair = |(key, value): (&str, f64)| format!("{key} = {value}");
    ModelError::Conflict { first: pair(first), second: pair(second), reason: reason.into() }
}

/// A validated model shape, with nothing left to decide.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The settings, `kv_heads`, `ffn_dim` and `init` filled in.
    pub settings: ModelSettings,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Query heads H.
    pub heads: usize,
    /// Key/value heads G.
    pub kv_heads: usize,
    /// Width F of the FFN.
    pub ffn_dim: usize,
    /// Rotated components of each head; 0 without RoPE.
    pub rotated: usize,
    /// Size of the initial weights.
    pub init: Init,
}

impl ModelConfig {
    /// Checks everything that can be checked before a text is read.
    ///
    /// # Errors
    /// Names the keys, their values and what would be right.
    pub fn check(settings: &ModelSettings) -> Result<()> {
        Self::new(settings, 1).map(|_| ())
    }

    /// The configuration of `settings` for a vocabulary of `vocab_size` tokens.
    ///
    /// # Errors
    /// As [`ModelConfig::check`].
    pub fn new(settings: &ModelSettings, vocab_size: usize) -> Result<Self> {
        let s = settings;
        for (key, value) in [
            ("model.layers", s.layers),
            ("model.heads", s.heads),
            ("model.width", s.width),
            ("model.context", s.context),
        ] {
            within(key, value)?;
        }
        number("model.rope_base", s.rope_base, s.rope_base > 1.0 && s.rope_base.is_finite(), "above 1")?;
        let fraction = s.rope_fraction > 0.0 && s.rope_fraction <= 1.0;
        number("model.rope_fraction", s.rope_fraction, fraction, "above 0 and at most 1")?;
        let eps = s.norm_eps > 0.0 && s.norm_eps < 1.0;
        number("model.norm_eps", s.norm_eps, eps, "above 0 and below 1")?;
        let dropout = (0.0..1.0).contains(&s.dropout);
        number("model.dropout", f64::from(s.dropout), dropout, "at least 0 and below 1")?;
        let (width, heads) = (("model.width", s.width as f64), ("model.heads", s.heads as f64));
        if !s.width.is_multiple_of(s.heads) {
            let reason =
                "each head takes an equal share of the width; make the width a multiple of the heads";
            return Err(conflict(width, heads, reason));
        }
        let kv_heads = s.kv_heads.unwrap_or(s.heads);
        if kv_heads == 0 || !s.heads.is_multiple_of(kv_heads) {
            let reason = "key/value heads must divide the heads";
            return Err(conflict(("model.kv_heads", kv_heads as f64), heads, reason));
        }
        let head_size = s.width / s.heads;
        let rotated = if s.positions == Positions::Rope { Self::rotated_width(s, head_size)? } else { 0 };
        let gated = (s.width * 8).div_ceil(3).next_multiple_of(16);
        let ffn_dim = s.ffn_dim.unwrap_or(if s.ffn == Ffn::SwiGlu { gated } else { 4 * s.width });
        within("model.ffn_dim", ffn_dim)?;
        let init = s.init.unwrap_or(if s.width < FAN_IN_BELOW { Init::FanIn } else { Init::Fixed });
        let settings = ModelSettings {
            kv_heads: Some(kv_heads),
            ffn_dim: Some(ffn_dim),
            init: Some(init),
            ..settings.clone()
        };
        let config = Self { heads: s.heads, settings, vocab_size, kv_heads, ffn_dim, rotated, init };
        // 2⁴⁰ parameters are four terabytes
        if config.parameter_estimate() > 1u128 << 40 {
            let reason = "together they ask for more than 2^40 parameters";
            return Err(conflict(("model.layers", s.layers as f64), width, reason));
        }
        Ok(config)
    }

    fn rotated_width(s: &ModelSettings, head_size: usize) -> Result<usize> {
        let heads = ("model.heads", s.heads as f64);
        let rotated = (head_size as f64 * s.rope_fraction) as usize;
        if rotated > 0 && rotated.is_multiple_of(2) {
            return Ok(rotated);
        }
        if s.rope_fraction < 1.0 {
            let reason = format!(
                "{rotated} of the {head_size} components of a head would be rotated; rotation needs an even number of at least 2"
            );
            return Err(conflict(("model.rope_fraction", s.rope_fraction), heads, reason));
        }
        let reason = format!(
            "the head size {head_size} must be even for model.positions = rope, rotation needs pairs"
        );
        Err(conflict(("model.width", s.width as f64), heads, reason))
    }

    fn parameter_estimate(&self) -> u128 {
        let (width, ffn) = (self.width() as u128, self.ffn_dim as u128);
        self.layers() as u128 * (4 * width * width + 3 * width * ffn)
            + (2 * self.vocab_size as u128 + self.context() as u128) * width
    }

    /// Blocks L.
    pub fn layers(&self) -> usize {
        self.settings.layers
    }

    /// Width C of the residual stream.
    pub fn width(&self) -> usize {
        self.settings.width
    }

    /// Tokens that the model sees at once.
    pub fn context(&self) -> usize {
        self.settings.context
    }

    /// Components D of a head.
    pub fn head_size(&self) -> usize {
        self.settings.width / self.heads
    }

    /// Columns of the packed query, key and value projection: (H + 2G)·D.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_size()
    }

    /// The norm before each sub-layer.
    pub fn norm(&self) -> Norm {
        let kind = match self.settings.norm {
            NormChoice::LayerNorm => NormKind::LayerNorm,
            NormChoice::RmsNorm => NormKind::RmsNorm,
        };
        Norm { kind, eps: self.settings.norm_eps as f32 }
    }

    /// The norm of each head's queries and keys under `qk_norm`.
    pub fn head_norm(&self) -> Norm {
        Norm { kind: NormKind::RmsNorm, eps: self.settings.norm_eps as f32 }
    }

    /// The nonlinearity of the FFN.
    pub fn activation(&self) -> Activation {
        match self.settings.ffn {
            Ffn::Gelu => Activation::Gelu,
            Ffn::GeluTanh => Activation::GeluTanh,
            Ffn::SwiGlu => Activation::SwiGlu,
            Ffn::Relu2 => Activation::Relu2,
        }
    }

    /// Whether norms have a bias: `LayerNorm` under `bias`, RMSNorm never.
    pub fn norm_bias(&self) -> bool {
        self.settings.bias && self.settings.norm == NormChoice::LayerNorm
    }

    /// The rotary table of `positions`; none without RoPE.
    ///
    /// # Errors
    /// When the rotated components are no pairs.
    pub fn rope(&self, positions: Range<usize>) -> Result<Option<RopeTable>> {
        if self.rotated == 0 {
            return Ok(None);
        }
        Ok(Some(RopeTable::new(positions, self.rotated, self.settings.rope_base)?))
    }

    /// Factor on the scores.
    pub fn score_scale(&self) -> f32 {
        match self.settings.scale {
            Scale::Sqrt => 1.0 / (self.head_size() as f32).sqrt(),
            Scale::None => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(change: impl Fn(&mut ModelSettings)) -> String {
        let mut settings = ModelSettings::default();
        change(&mut settings);
        ModelConfig::check(&settings).unwrap_err().to_string()
    }

    #[test]
    fn impossible_shapes_name_their_keys_and_values() {
        let shapes: [(String, &[&str]); 7] = [
            (message(|s| s.width = 65), &["model.width = 65", "model.heads = 4"]),
            (message(|s| (s.width, s.heads) = (30, 6)), &["head size 5", "even"]),
            (
                message(|s| (s.width, s.heads, s.rope_fraction) = (40, 4, 0.5)),
                &["model.rope_fraction = 0.5", "5 of the 10"],
            ),
            (message(|s| s.heads = 0), &["model.heads = 0", "from 1"]),
            (message(|s| s.kv_heads = Some(3)), &["model.kv_heads = 3", "model.heads = 4"]),
            (message(|s| s.dropout = 1.5), &["model.dropout = 1.5"]),
            (message(|s| s.layers = 1_000_000_000), &["model.layers = 1000000000"]),
        ];
        for (message, parts) in shapes {
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
        assert!(message(|s| s.norm_eps = f64::NAN).contains("model.norm_eps"));
        assert!(message(|s| (s.layers, s.width, s.heads) = (1024, 65_536, 4)).contains("2^40"));
    }

    #[test]
    fn an_odd_head_is_fine_without_rotation() {
        let odd = ModelSettings { width: 30, heads: 6, positions: Positions::Learned, ..Default::default() };
        assert_eq!(ModelConfig::new(&odd, 10).unwrap().rotated, 0);
        let three = ModelSettings { width: 30, heads: 3, ..Default::default() };
        assert_eq!(ModelConfig::new(&three, 10).unwrap().rotated, 10);
    }
}
