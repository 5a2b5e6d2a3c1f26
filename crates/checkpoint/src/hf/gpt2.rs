//! GPT-2: learned positions, `LayerNorm`, tanh-GELU, biases, matrices stored as (inputs, outputs).

use super::keys::Keys;
use super::table::{Entry, Layout, Names, within_layer};
use super::{Format, decimal};
use crate::error::Result;
use serde_json::{Value, json};
use softdict_model::ModelConfig;
use softdict_model::settings::{ModelSettings, NormChoice, Positions, Scale};

pub(super) const FORMAT: Format = Format {
    model_type: "gpt2",
    class: "GPT2LMHeadModel",
    entries,
    canonical,
    tied_head: Some([HEAD, EMBEDDING]),
    write,
    read,
};

const EMBEDDING: &str = "transformer.wte.weight";
const HEAD: &str = "lm_head.weight";

fn entries(config: &ModelConfig) -> Vec<Entry> {
    let mut names = Names::of(config);
    names.add(EMBEDDING, "embedding.weight", Layout::Same);
    names.add("transformer.wpe.weight", "positions.weight", Layout::Same);
    for layer in 0..config.layers() {
        for (part, own, layout) in [
            ("ln_1", "norm1", Layout::Same),
            ("attn.c_attn", "attention.qkv", Layout::Transposed),
            ("attn.c_proj", "attention.out", Layout::Transposed),
            ("ln_2", "norm2", Layout::Same),
            ("mlp.c_fc", "ffn.up", Layout::Transposed),
            ("mlp.c_proj", "ffn.down", Layout::Transposed),
        ] {
            names.add_both(
                &format!("transformer.h.{layer}.{part}"),
                &format!("blocks.{layer}.{own}"),
                layout,
            );
        }
    }
    names.add_both("transformer.ln_f", "norm", Layout::Same);
    names.add(HEAD, "head.weight", Layout::Same);
    names.finish()
}

/// The published files leave the prefix out.
const BARE: [&str; 4] = ["wte.", "wpe.", "h.", "ln_f."];

fn canonical(name: &str) -> Option<String> {
    let bare = name.strip_prefix("transformer.").unwrap_or(name);
    // masks that older versions stored
    if within_layer(bare, "h.").is_some_and(|part| ["attn.bias", "attn.masked_bias"].contains(&part)) {
        return None;
    }
    let prefix = if BARE.iter().any(|part| name.starts_with(part)) { "transformer." } else { "" };
    Some(format!("{prefix}{name}"))
}

fn write(config: &ModelConfig) -> Value {
    let s = &config.settings;
    let dropout = decimal(s.dropout);
    json!({
        "activation_function": "gelu_new",
        "attn_pdrop": dropout,
        "embd_pdrop": dropout,
        "layer_norm_epsilon": s.norm_eps,
        "n_embd": s.width,
        "n_head": config.heads,
        "n_inner": config.ffn_dim,
        "n_layer": s.layers,
        "n_positions": s.context,
        "reorder_and_upcast_attn": false,
        "resid_pdrop": dropout,
        "scale_attn_by_inverse_layer_idx": false,
        "scale_attn_weights": true,
    })
}

fn read(keys: &Keys<'_>) -> Result<(ModelSettings, usize)> {
    keys.must_be("scale_attn_by_inverse_layer_idx", false, false)?;
    let width = keys.count("n_embd")?;
    let settings = ModelSettings {
        layers: keys.count("n_layer")?,
        heads: keys.count("n_head")?,
        width,
        context: keys.count("n_positions")?,
        positions: Positions::Learned,
        norm: NormChoice::LayerNorm,
        norm_eps: keys.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        ffn: keys.activation("activation_function", "gelu_new")?,
        // absent means four times the width, which is also softdict's own rule
        ffn_dim: keys.maybe_count("n_inner")?,
        bias: true,
        tied: keys.flag("tie_word_embeddings")?.unwrap_or(true),
        dropout: keys.dropout("resid_pdrop")?,
        scale: if keys.flag("scale_attn_weights")?.unwrap_or(true) { Scale::Sqrt } else { Scale::None },
        ..ModelSettings::default()
    };
    Ok((settings, keys.count("vocab_size")?))
}
