//! The `[model]` section of the settings, as users write it.

use serde::{Deserialize, Serialize};

/// How the model knows the order of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Positions {
    /// Queries and keys are rotated by their position (Su et al. 2021).
    Rope,
    /// A learned vector for each position is added to the embedding.
    Learned,
    /// Nothing: attention alone does not see order.
    None,
}

/// Which norm precedes each sub-layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormChoice {
    /// Mean and variance are removed.
    LayerNorm,
    /// Only the size is removed.
    RmsNorm,
}

/// The nonlinearity of the FFN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ffn {
    /// Exact GELU.
    Gelu,
    /// GPT-2's tanh approximation of it.
    GeluTanh,
    /// Gated: silu(gate)·up.
    #[serde(rename = "swiglu")]
    SwiGlu,
    /// Squared ReLU.
    Relu2,
}

/// What scores are divided by before the softmax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// √(head size), as Vaswani et al. 2017, section 3.2.1.
    Sqrt,
    /// Nothing: shows what the division is for.
    None,
}

/// Size of the initial weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "InitSetting")]
pub enum Init {
    /// Standard deviation 1/√(inputs of the layer).
    #[serde(rename = "fan_in")]
    FanIn,
    /// Standard deviation 0.02 everywhere (Radford et al. 2019, GPT-2).
    #[serde(rename = "0.02")]
    Fixed,
}

/// [`Init`] as it is read: `0.02` may be written as a word or as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum InitSetting {
    Word(String),
    Number(f64),
}

impl TryFrom<InitSetting> for Init {
    type Error = String;

    fn try_from(setting: InitSetting) -> std::result::Result<Self, String> {
        let word = match setting {
            InitSetting::Word(word) => word,
            InitSetting::Number(number) => number.to_string(),
        };
        match word.as_str() {
            "fan_in" => Ok(Self::FanIn),
            "0.02" => Ok(Self::Fixed),
            _ => Err(format!("{word} is neither fan_in nor 0.02")),
        }
    }
}

/// The `[model]` section of the settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as users write them")]
pub struct ModelSettings {
    /// Blocks.
    pub layers: usize,
    /// Query heads of each block.
    pub heads: usize,
    /// Key/value heads; absent means as many as `heads`.
    pub kv_heads: Option<usize>,
    /// Width of the residual stream.
    pub width: usize,
    /// Tokens that the model sees at once.
    pub context: usize,
    /// How the model knows the order of tokens.
    pub positions: Positions,
    /// Base of the rotary frequencies.
    pub rope_base: f64,
    /// Share of each head that is rotated.
    pub rope_fraction: f64,
    /// Which norm precedes each sub-layer.
    pub norm: NormChoice,
    /// ε of the norms.
    pub norm_eps: f64,
    /// The nonlinearity of the FFN.
    pub ffn: Ffn,
    /// Width of the FFN; absent means 4·width, for `swiglu` 8/3·width rounded up to a multiple of 16.
    pub ffn_dim: Option<usize>,
    /// RMSNorm on each head's queries and keys (Henry et al. 2020, arXiv:2010.04245).
    pub qk_norm: bool,
    /// Biases in linear layers and norms.
    pub bias: bool,
    /// The output head is the embedding.
    pub tied: bool,
    /// Probability of dropping, in training: embedding, attention pattern, and both branches of a block.
    pub dropout: f32,
    /// Tokens see only what came before.
    pub causal: bool,
    /// What scores are divided by.
    pub scale: Scale,
    /// Size of the initial weights; absent means `fan_in` below width 256, else `0.02`.
    pub init: Option<Init>,
    /// Both branches of a block read the same input (GPT-J, Pythia).
    pub parallel_residual: bool,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            layers: 4,
            heads: 4,
            kv_heads: None,
            width: 128,
            context: 64,
            positions: Positions::Rope,
            rope_base: 10_000.0,
            rope_fraction: 1.0,
            norm: NormChoice::LayerNorm,
            norm_eps: 1e-5,
            ffn: Ffn::Gelu,
            ffn_dim: None,
            qk_norm: false,
            bias: true,
            tied: true,
            dropout: 0.0,
            causal: true,
            scale: Scale::Sqrt,
            init: None,
            parallel_residual: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_users_write_them() {
        let settings: ModelSettings =
            serde_json::from_str(r#"{"norm":"rmsnorm","ffn":"swiglu","init":"0.02","positions":"none"}"#)
                .unwrap();
        assert_eq!((settings.norm, settings.ffn), (NormChoice::RmsNorm, Ffn::SwiGlu));
        assert_eq!(settings.init, Some(Init::Fixed));
        let number: ModelSettings = serde_json::from_str(r#"{"init":0.02}"#).unwrap();
        assert_eq!(number.init, Some(Init::Fixed));
        assert!(serde_json::from_str::<ModelSettings>(r#"{"init":0.03}"#).is_err());
        let config = crate::ModelConfig::new(&settings, 9).unwrap();
        // 8/3·128 = 341.33, next multiple of 16
        assert_eq!(config.ffn_dim, 352);
        assert!(serde_json::from_str::<ModelSettings>(r#"{"layer":3}"#).is_err());
    }
}
