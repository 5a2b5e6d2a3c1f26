//! Which settings keep a model out of which family.

use super::Family;
use serde::Serialize;
use softdict_model::ModelConfig;
use softdict_model::settings::{Ffn, NormChoice, Positions, Scale};

/// Settings that would have to be other, each as `model.key = wanted`.
struct Obstacles(Vec<String>);

impl Obstacles {
    fn check<T: PartialEq + Serialize>(&mut self, key: &str, found: &T, allowed: &[T]) {
        if allowed.contains(found) {
            return;
        }
        // a setting is written as users write it, without the quotes of JSON
        let word = |value: &T| serde_json::to_value(value).map_or_else(|_| String::new(), |v| v.to_string());
        let allowed: Vec<String> = allowed.iter().map(|value| word(value).replace('"', "")).collect();
        self.0.push(format!("model.{key} = {}", allowed.join(" or ")));
    }
}

/// The settings of `config` that `family` cannot express; none for [`Family::Softdict`].
pub(super) fn obstacles(family: Family, config: &ModelConfig) -> Vec<String> {
    let s = &config.settings;
    let mut all = Obstacles(Vec::new());
    let (positions, norm, ffn): (_, _, &[Ffn]) = match family {
        Family::GptNeox => (Positions::Rope, NormChoice::LayerNorm, &[Ffn::Gelu, Ffn::GeluTanh]),
        Family::Llama => (Positions::Rope, NormChoice::RmsNorm, &[Ffn::SwiGlu]),
        Family::Gpt2 => (Positions::Learned, NormChoice::LayerNorm, &[Ffn::GeluTanh]),
        Family::Softdict => return Vec::new(),
    };
    all.check("positions", &s.positions, &[positions]);
    all.check("norm", &s.norm, &[norm]);
    all.check("ffn", &s.ffn, ffn);
    all.check("bias", &s.bias, &[family != Family::Llama]);
    all.check("causal", &s.causal, &[true]);
    all.check("qk_norm", &s.qk_norm, &[false]);
    all.check("scale", &s.scale, &[Scale::Sqrt]);
    if family != Family::GptNeox {
        all.check("parallel_residual", &s.parallel_residual, &[false]);
    }
    if family != Family::Llama {
        all.check("kv_heads", &config.kv_heads, &[config.heads]);
    }
    if family == Family::Llama && s.positions == Positions::Rope && config.rotated != config.head_size() {
        all.check("rope_fraction", &s.rope_fraction, &[1.0]);
    }
    if family == Family::Gpt2 {
        all.check("tied", &s.tied, &[true]);
    }
    all.0
}

/// The family of transformers that `config` misses by the fewest settings, and those.
///
/// Of two as near, the one with the same kind of positions, which are what a user chooses first.
pub(super) fn nearest(config: &ModelConfig) -> (Family, Vec<String>) {
    let [first, second, third] =
        [Family::GptNeox, Family::Llama, Family::Gpt2].map(|f| (f, obstacles(f, config)));
    let distance = |found: &(Family, Vec<String>)| {
        (found.1.len(), found.1.iter().any(|obstacle| obstacle.starts_with("model.positions")))
    };
    let nearer = |a, b| if distance(&b) < distance(&a) { b } else { a };
    nearer(nearer(first, second), third)
}
