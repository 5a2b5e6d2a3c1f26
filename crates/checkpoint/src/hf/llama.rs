//! Llama: rotary positions over whole heads, RMSNorm, SwiGLU, no biases, grouped queries.

use super::keys::Keys;
use super::table::{Entry, Layout, Names};
use super::{Format, decimal};
use crate::error::Result;
use serde_json::{Value, json};
use softdict_model::ModelConfig;
use softdict_model::settings::{Ffn, ModelSettings, NormChoice, Positions};

pub(super) const FORMAT: Format = Format {
    model_type: "llama",
    class: "LlamaForCausalLM",
    entries,
    canonical,
    tied_head: Some([HEAD, EMBEDDING]),
    write,
    read,
};

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

fn entries(config: &ModelConfig) -> Vec<Entry> {
    let mut names = Names::of(config);
    let (queries, keys) = (config.heads * config.head_size(), config.kv_heads * config.head_size());
    names.add(EMBEDDING, "embedding.weight", Layout::Same);
    for layer in 0..config.layers() {
        let file = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let own = |part: &str| format!("blocks.{layer}.{part}.weight");
        names.add(&file("input_layernorm"), &own("norm1"), Layout::Same);
        for (part, rows) in [
            ("self_attn.q_proj", 0..queries),
            ("self_attn.k_proj", queries..queries + keys),
            ("self_attn.v_proj", queries + keys..queries + 2 * keys),
        ] {
            names.add_rows(&file(part), &own("attention.qkv"), rows);
        }
        names.add(&file("self_attn.o_proj"), &own("attention.out"), Layout::Same);
        names.add(&file("post_attention_layernorm"), &own("norm2"), Layout::Same);
        names.add_rows(&file("mlp.gate_proj"), &own("ffn.up"), 0..config.ffn_dim);
        names.add_rows(&file("mlp.up_proj"), &own("ffn.up"), config.ffn_dim..2 * config.ffn_dim);
        names.add(&file("mlp.down_proj"), &own("ffn.down"), Layout::Same);
    }
    names.add("model.norm.weight", "norm.weight", Layout::Same);
    names.add(HEAD, "head.weight", Layout::Same);
    names.finish()
}

fn canonical(name: &str) -> Option<String> {
    // frequencies that older versions stored
    let computed = name.starts_with("model.") && name.ends_with(".rotary_emb.inv_freq");
    (!computed).then(|| name.to_owned())
}

fn write(config: &ModelConfig) -> Value {
    let s = &config.settings;
    json!({
        "attention_bias": false,
        "attention_dropout": decimal(s.dropout),
        "head_dim": config.head_size(),
        "hidden_act": "silu",
        "hidden_size": s.width,
        "intermediate_size": config.ffn_dim,
        "max_position_embeddings": s.context,
        "mlp_bias": false,
        "num_attention_heads": config.heads,
        "num_hidden_layers": s.layers,
        "num_key_value_heads": config.kv_heads,
        "rms_norm_eps": s.norm_eps,
        "rope_parameters": { "rope_theta": s.rope_base, "rope_type": "default" },
        // the same for transformers 4
        "rope_scaling": null, "rope_theta": s.rope_base,
    })
}

fn read(keys: &Keys<'_>) -> Result<(ModelSettings, usize)> {
    keys.must_be("attention_bias", false, false)?;
    keys.must_be("mlp_bias", false, false)?;
    if keys.word("hidden_act")?.is_some_and(|activation| !["silu", "swish"].contains(&activation)) {
        return Err(keys.wrong("hidden_act", "softdict's gated FFN has silu alone"));
    }
    let (heads, width) = (keys.count("num_attention_heads")?, keys.count("hidden_size")?);
    if keys.maybe_count("head_dim")?.is_some_and(|size| size.checked_mul(heads) != Some(width)) {
        let expected = format!("in softdict's model {heads} heads of a width of {width} share it equally");
        return Err(keys.wrong("head_dim", expected));
    }
    let (rope_base, fraction) = keys.rope("rope_theta", "partial_rotary_factor")?;
    if fraction.is_some_and(|fraction| fraction != 1.0) {
        let expected = "llama rotates whole heads";
        return Err(keys.wrong("partial_rotary_factor", expected));
    }
    let settings = ModelSettings {
        layers: keys.count("num_hidden_layers")?,
        heads,
        kv_heads: keys.maybe_count("num_key_value_heads")?,
        width,
        context: keys.count("max_position_embeddings")?,
        positions: Positions::Rope,
        rope_base,
        rope_fraction: 1.0,
        norm: NormChoice::RmsNorm,
        norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
        ffn: Ffn::SwiGlu,
        ffn_dim: Some(keys.count("intermediate_size")?),
        bias: false,
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(false),
        dropout: keys.dropout("attention_dropout")?,
        ..ModelSettings::default()
    };
    Ok((settings, keys.count("vocab_size")?))
}
