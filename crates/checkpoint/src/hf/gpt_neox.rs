//! GPT-NeoX (Pythia): rotary positions, `LayerNorm`, GELU, biases everywhere.

use super::keys::Keys;
use super::table::{Entry, Layout, Names, within_layer};
use super::{Format, decimal};
use crate::error::Result;
use serde_json::{Value, json};
use softdict_model::ModelConfig;
use softdict_model::settings::{Ffn, ModelSettings, NormChoice, Positions};

pub(super) const FORMAT: Format = Format {
    model_type: "gpt_neox",
    class: "GPTNeoXForCausalLM",
    entries,
    canonical,
    tied_head: Some([HEAD, EMBEDDING]),
    write,
    read,
};

const EMBEDDING: &str = "gpt_neox.embed_in.weight";
/// The name in files; in memory transformers 5 calls it `lm_head.weight`, and accepts both.
const HEAD: &str = "embed_out.weight";
/// The share of a head that transformers rotates where the file does not say.
const DEFAULT_FRACTION: f64 = 0.25;

fn entries(config: &ModelConfig) -> Vec<Entry> {
    let mut names = Names::of(config);
    let packed = Layout::HeadByHead { heads: config.heads, head_size: config.head_size() };
    names.add(EMBEDDING, "embedding.weight", Layout::Same);
    for layer in 0..config.layers() {
        for (part, own, layout) in [
            ("input_layernorm", "norm1", Layout::Same),
            ("attention.query_key_value", "attention.qkv", packed),
            ("attention.dense", "attention.out", Layout::Same),
            ("post_attention_layernorm", "norm2", Layout::Same),
            ("mlp.dense_h_to_4h", "ffn.up", Layout::Same),
            ("mlp.dense_4h_to_h", "ffn.down", Layout::Same),
        ] {
            names.add_both(
                &format!("gpt_neox.layers.{layer}.{part}"),
                &format!("blocks.{layer}.{own}"),
                layout,
            );
        }
    }
    names.add_both("gpt_neox.final_layer_norm", "norm", Layout::Same);
    names.add(HEAD, "head.weight", Layout::Same);
    names.finish()
}

fn canonical(name: &str) -> Option<String> {
    // masks and frequencies that older versions stored
    let computed = ["attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"];
    if within_layer(name, "gpt_neox.layers.").is_some_and(|part| computed.contains(&part)) {
        return None;
    }
    Some(if name == "lm_head.weight" { HEAD.to_owned() } else { name.to_owned() })
}

fn write(config: &ModelConfig) -> Value {
    let s = &config.settings;
    let dropout = decimal(s.dropout);
    json!({
        "attention_bias": true,
        "attention_dropout": dropout,
        "classifier_dropout": 0.0,
        "hidden_act": if s.ffn == Ffn::GeluTanh { "gelu_new" } else { "gelu" },
        "hidden_dropout": dropout,
        "hidden_size": s.width,
        "intermediate_size": config.ffn_dim,
        "layer_norm_eps": s.norm_eps,
        "max_position_embeddings": s.context,
        "num_attention_heads": config.heads,
        "num_hidden_layers": s.layers,
        "rope_parameters": {
            "partial_rotary_factor": s.rope_fraction, "rope_theta": s.rope_base, "rope_type": "default",
        },
        // the same for transformers 4
        "rope_scaling": null, "rotary_emb_base": s.rope_base, "rotary_pct": s.rope_fraction,
        "use_parallel_residual": s.parallel_residual,
    })
}

fn read(keys: &Keys<'_>) -> Result<(ModelSettings, usize)> {
    keys.must_be("attention_bias", true, true)?;
    let (rope_base, fraction) = keys.rope("rotary_emb_base", "rotary_pct")?;
    let settings = ModelSettings {
        layers: keys.count("num_hidden_layers")?,
        heads: keys.count("num_attention_heads")?,
        width: keys.count("hidden_size")?,
        context: keys.count("max_position_embeddings")?,
        positions: Positions::Rope,
        rope_base,
        rope_fraction: fraction.unwrap_or(DEFAULT_FRACTION),
        norm: NormChoice::LayerNorm,
        norm_eps: keys.number("layer_norm_eps")?.unwrap_or(1e-5),
        ffn: keys.activation("hidden_act", "gelu")?,
        ffn_dim: Some(keys.count("intermediate_size")?),
        bias: true,
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
        dropout: keys.dropout("hidden_dropout")?,
        parallel_residual: keys.flag("use_parallel_residual")?.unwrap_or(true),
        ..ModelSettings::default()
    };
    Ok((settings, keys.count("vocab_size")?))
}
