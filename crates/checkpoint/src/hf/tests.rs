use super::*;
use softdict_model::random::{Purpose, Stream};
use softdict_model::settings::{Ffn, NormChoice, Positions, Scale};
use softdict_model::{ParameterTable, Parameters};
use std::collections::BTreeSet;

fn config(change: impl Fn(&mut ModelSettings)) -> ModelConfig {
    let mut settings = ModelSettings { layers: 2, heads: 2, width: 16, ..Default::default() };
    change(&mut settings);
    ModelConfig::new(&settings, 11).unwrap()
}

fn llama(settings: &mut ModelSettings) {
    (settings.norm, settings.ffn, settings.bias) = (NormChoice::RmsNorm, Ffn::SwiGlu, false);
}

fn gpt2(settings: &mut ModelSettings) {
    (settings.positions, settings.ffn) = (Positions::Learned, Ffn::GeluTanh);
}

/// A random configuration of the family.
fn random_config(family: Family, stream: &mut Stream) -> ModelConfig {
    let heads = 1 + stream.below(4);
    let kv_heads = [1, heads][stream.below(2)];
    let settings = ModelSettings {
        layers: 1 + stream.below(3),
        heads,
        width: heads * 2 * (1 + stream.below(6)),
        context: 1 + stream.below(40),
        rope_base: 100.0 + 1e4 * stream.uniform(),
        norm_eps: 1e-6 + 1e-3 * stream.uniform(),
        ffn_dim: [None, Some(1 + stream.below(50))][stream.below(2)],
        dropout: [0.0, 0.1, 0.3][stream.below(3)],
        tied: stream.below(2) == 0,
        ..ModelSettings::default()
    };
    let mut settings = settings;
    match family {
        Family::GptNeox => settings.parallel_residual = stream.below(2) == 0,
        Family::Llama => {
            llama(&mut settings);
            settings.kv_heads = Some(kv_heads);
        }
        Family::Gpt2 => {
            gpt2(&mut settings);
            (settings.tied, settings.rope_base) = (true, 10_000.0);
        }
        Family::Softdict => {
            (settings.kv_heads, settings.qk_norm) = (Some(kv_heads), true);
            settings.norm = [NormChoice::LayerNorm, NormChoice::RmsNorm][stream.below(2)];
            settings.bias = stream.below(2) == 0;
            settings.ffn = [Ffn::Relu2, Ffn::SwiGlu][stream.below(2)];
        }
    }
    ModelConfig::new(&settings, 2 + stream.below(40)).unwrap()
}

#[test]
fn every_table_covers_each_parameter_once_and_reads_what_it_writes() {
    let mut stream = Stream::new(3, Purpose::Init, 0);
    for _ in 0..60 {
        for family in Family::ALL {
            let config = random_config(family, &mut stream);
            assert_eq!(Family::of(&config), family, "{config:?}");
            let entries = entries(family, &config);
            let mut covered = vec![0; ParameterTable::new(&config).len()];
            entries.iter().flat_map(Entry::place).for_each(|place| covered[place] += 1);
            assert!(covered.iter().all(|&times| times == 1), "{family:?} {config:?}");

            let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            assert_eq!(names.len(), entries.len());
            assert!(names.iter().all(|name| canonical(family, name).as_deref() == Some(name)));

            let parameters = Parameters::initial(&config, 5);
            let mut back = Parameters::zeros(&config);
            for entry in &entries {
                let file = entry.gather(parameters.values());
                assert_eq!(file.len(), entry.shape().iter().product::<usize>());
                entry.scatter(&file, |value| value, back.values_mut());
            }
            assert_eq!(back.values(), parameters.values(), "{family:?} {config:?}");
        }
    }
}

#[test]
fn a_configuration_is_read_back_as_it_was_written() {
    let mut stream = Stream::new(4, Purpose::Init, 0);
    for _ in 0..60 {
        for family in Family::ALL {
            let config = random_config(family, &mut stream);
            let bytes = serde_json::to_vec(&config_json(family, &config, "float32")).unwrap();
            let (found, read) = read_config(Path::new("config.json"), &bytes).unwrap();
            assert_eq!((found, read), (family, config));
        }
    }
}

#[test]
fn query_key_and_value_of_a_head_lie_together_in_gpt_neox() {
    // 2 heads of 2 components, width 4: the file's row 2 is head 0's first key, in the model the fifth row
    let config = config(|s| s.width = 4);
    let entries = entries(Family::GptNeox, &config);
    let packed =
        entries.iter().find(|entry| entry.name.ends_with("layers.0.attention.query_key_value.bias")).unwrap();
    let mut parameters = Parameters::zeros(&config);
    for (row, place) in packed.place().enumerate() {
        parameters.values_mut()[place] = row as f32;
    }
    let file = packed.gather(parameters.values());
    assert_eq!(file, [0., 1., 4., 5., 8., 9., 2., 3., 6., 7., 10., 11.]);
}

#[test]
fn the_note_says_which_settings_keep_others_from_opening_a_checkpoint() {
    let note = |change: fn(&mut ModelSettings)| Family::note(&config(change));
    assert!(note(|_| ()).contains("GPTNeoXForCausalLM"));
    assert!(note(llama).contains("LlamaForCausalLM"));
    assert!(note(gpt2).contains("GPT2LMHeadModel"));
    let mixed = note(|s| (s.qk_norm, s.scale) = (true, Scale::None));
    assert!(
        mixed.contains("gpt_neox") && mixed.ends_with("model.qk_norm = false, model.scale = sqrt"),
        "{mixed}"
    );
    let partial = note(|s| {
        llama(s);
        s.rope_fraction = 0.5;
    });
    assert!(partial.ends_with("as llama it would need model.rope_fraction = 1.0"), "{partial}");
    let untied = note(|s| {
        gpt2(s);
        s.tied = false;
    });
    assert!(untied.contains("only softdict") && untied.ends_with("model.tied = true"), "{untied}");
    let squared = note(|s| s.ffn = Ffn::Relu2);
    assert!(squared.ends_with("model.ffn = gelu or gelu_tanh"), "{squared}");
}

const NEOX: &str = r#"{"model_type":"gpt_neox","hidden_size":16,"intermediate_size":64,"num_attention_heads":2,
    "num_hidden_layers":2,"max_position_embeddings":32,"vocab_size":11"#;
const LLAMA: &str = r#"{"model_type":"llama","hidden_size":16,"intermediate_size":64,"num_attention_heads":2,
    "num_hidden_layers":2,"max_position_embeddings":32,"vocab_size":11"#;
const GPT2: &str =
    r#"{"model_type":"gpt2","n_embd":16,"n_head":2,"n_layer":2,"n_positions":32,"vocab_size":11"#;

fn read(start: &str, rest: &str) -> Result<ModelConfig> {
    read_config(Path::new("some/config.json"), format!("{start}{rest}}}").as_bytes())
        .map(|(_, config)| config)
}

#[test]
fn absent_keys_mean_what_they_mean_to_transformers() {
    let neox = read(NEOX, "").unwrap();
    let s = &neox.settings;
    assert_eq!((s.rope_base, s.rope_fraction, neox.rotated, s.norm_eps), (10_000.0, 0.25, 2, 1e-5));
    assert_eq!((s.parallel_residual, s.tied, s.ffn, s.bias), (true, false, Ffn::Gelu, true));
    let llama = read(LLAMA, "").unwrap();
    assert_eq!((llama.kv_heads, llama.settings.norm_eps, llama.settings.tied), (2, 1e-6, false));
    let gpt2 = read(GPT2, r#","n_inner":null"#).unwrap();
    assert_eq!((gpt2.ffn_dim, gpt2.settings.tied, gpt2.settings.ffn), (64, true, Ffn::GeluTanh));
}

#[test]
fn old_and_new_spellings_of_the_rotation_are_read_and_the_new_one_wins() {
    let base = |rest: &str| read(LLAMA, rest).unwrap().settings.rope_base;
    assert_eq!(base(r#","rope_theta":500,"rope_scaling":null"#), 500.0);
    assert_eq!(
        base(r#","rope_parameters":{"rope_theta":600.5,"rope_type":"default"},"rope_theta":500"#),
        600.5
    );
    let old = read(NEOX, r#","rotary_emb_base":700,"rotary_pct":1"#).unwrap().settings;
    assert_eq!((old.rope_base, old.rope_fraction), (700.0, 1.0));
    let new = r#","rotary_pct":1.0,"rope_parameters":{"partial_rotary_factor":0.5,"rope_type":"default"}"#;
    assert_eq!(read(NEOX, new).unwrap().rotated, 4);
    // a third of a head of 6 is 2 only if the decimals come back as the same bits
    let third = r#","rope_parameters":{"partial_rotary_factor":0.3333333333333333}"#;
    assert_eq!(read(&NEOX.replace("16", "12"), third).unwrap().rotated, 2);
}

#[test]
fn what_the_model_cannot_express_is_refused_with_file_key_and_value() {
    let cases = [
        (NEOX, r#","attention_bias":false"#, ["attention_bias is false", "true"]),
        (NEOX, r#","hidden_act":"quick_gelu""#, ["hidden_act is \"quick_gelu\"", "gelu_new"]),
        (
            NEOX,
            r#","rope_scaling":{"type":"linear","factor":2.0}"#,
            ["rope_scaling.type is \"linear\"", "default"],
        ),
        (
            LLAMA,
            r#","rope_parameters":{"rope_type":"llama3"}"#,
            ["rope_parameters.rope_type is \"llama3\"", "default"],
        ),
        (
            LLAMA,
            r#","rope_parameters":{"full":{"rope_type":"default"}}"#,
            ["rope_parameters.full is {", "alike"],
        ),
        (LLAMA, r#","partial_rotary_factor":0.5"#, ["partial_rotary_factor is 0.5", "whole heads"]),
        (LLAMA, r#","attention_bias":true"#, ["attention_bias is true", "false"]),
        (LLAMA, r#","mlp_bias":true"#, ["mlp_bias is true", "false"]),
        (LLAMA, r#","head_dim":12"#, ["head_dim is 12", "equally"]),
        (LLAMA, r#","head_dim":9223372036854775808"#, ["head_dim is 9223372036854775808", "equally"]),
        (LLAMA, r#","hidden_act":"gelu""#, ["hidden_act is \"gelu\"", "silu"]),
        (LLAMA, r#","sliding_window":4096"#, ["sliding_window is 4096", "absent"]),
        (LLAMA, r#","num_key_value_heads":3"#, ["some/config.json", "model.kv_heads = 3"]),
        (LLAMA, r#","rms_norm_eps":"small""#, ["rms_norm_eps is \"small\"", "a number"]),
        (
            GPT2,
            r#","scale_attn_by_inverse_layer_idx":true"#,
            ["scale_attn_by_inverse_layer_idx is true", "false"],
        ),
        (GPT2, r#","n_inner":-1"#, ["n_inner is -1", "a whole number"]),
        (r#"{"model_type":"mamba""#, "", ["model_type is \"mamba\"", "gpt_neox, llama, gpt2, softdict"]),
        (r#"{"vocab_size":3"#, "", ["model_type is absent", "gpt_neox"]),
        (r#"{"model_type":"gpt2""#, "", ["n_embd is absent", "a whole number"]),
        (r#"{"model_type":"softdict","vocab_size":3"#, "", ["softdict is absent", "settings"]),
        (r#"{"model_type":"softdict","softdict":{"layer":3}"#, "", ["softdict is {\"layer\":3}", "`layers`"]),
        (r#"{"model_type":"gpt2","#, "", ["some/config.json", "line 1"]),
        ("[", "", ["some/config.json", "line 1"]),
    ];
    for (start, rest, parts) in cases {
        let message = read(start, rest).unwrap_err().to_string();
        for part in ["some/config.json"].iter().chain(&parts) {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
}

#[test]
fn a_billion_layers_are_refused() {
    for start in [NEOX, LLAMA] {
        let message = read(&start.replace("layers\":2", "layers\":1000000000"), "").unwrap_err().to_string();
        assert!(message.contains("some/config.json") && message.contains("1000000000"), "{message}");
    }
    let absurd = read(&NEOX.replace("vocab_size\":11", "vocab_size\":18446744073709551615"), "");
    assert!(absurd.unwrap_err().to_string().contains("2^40"));
}

#[test]
fn names_without_weights_are_passed_over_and_aliases_understood() {
    for (family, name) in [
        (Family::GptNeox, "gpt_neox.layers.3.attention.bias"),
        (Family::GptNeox, "gpt_neox.layers.10.attention.masked_bias"),
        (Family::GptNeox, "gpt_neox.layers.0.attention.rotary_emb.inv_freq"),
        (Family::Llama, "model.layers.0.self_attn.rotary_emb.inv_freq"),
        (Family::Gpt2, "h.0.attn.bias"),
        (Family::Gpt2, "transformer.h.11.attn.masked_bias"),
    ] {
        assert_eq!(canonical(family, name), None, "{name}");
    }
    for (family, name, known) in [
        (Family::GptNeox, "lm_head.weight", "embed_out.weight"),
        (Family::GptNeox, "gpt_neox.layers.3.attention.dense.bias", "gpt_neox.layers.3.attention.dense.bias"),
        (Family::Gpt2, "h.3.attn.c_attn.bias", "transformer.h.3.attn.c_attn.bias"),
        (Family::Gpt2, "wte.weight", "transformer.wte.weight"),
        (Family::Gpt2, "lm_head.weight", "lm_head.weight"),
    ] {
        assert_eq!(canonical(family, name).as_deref(), Some(known));
    }
}
