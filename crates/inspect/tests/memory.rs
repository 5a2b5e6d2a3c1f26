//! What attention holds at a time. Alone in its file: the most that a process has held counts for all of it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use candle_core::Device;
use softdict_inspect::report::{Format, Style, write};
use softdict_inspect::{AttentionMaps, MapParts};
use softdict_model::{ModelConfig, ModelSettings, NoTap, Parameters, Transformer};
use softdict_testkit::peak_memory;

const TOKENS: usize = 384;
const HEADS: usize = 6;
/// Bytes of the patterns of a layer.
const LAYER: u64 = (HEADS * TOKENS * TOKENS * 4) as u64;

/// Writes the patterns of all layers in every format but CSV, which takes long.
fn write_all(layers: usize) {
    let settings =
        ModelSettings { layers, heads: HEADS, width: 12, context: TOKENS, ..ModelSettings::default() };
    let config = ModelConfig::new(&settings, 10).unwrap();
    let model = Transformer::new(&config, &Parameters::initial(&config, 1), &Device::Cpu).unwrap();
    let parts = MapParts {
        tokens: vec!["t".into(); TOKENS],
        token_ids: (0..TOKENS as u32).map(|token| token * 7 % 10).collect(),
        prompt_tokens: TOKENS,
        layers: (0..layers).collect(),
        heads: (0..HEADS).collect(),
        causal: true,
        ablated: Vec::new(),
    };
    let mut tap = NoTap;
    let maps = AttentionMaps::computed(&model, parts, &mut tap).unwrap();
    for format in Format::ALL.into_iter().filter(|&format| format != Format::Csv) {
        write(format, &maps, &Style::default(), &mut std::io::sink()).unwrap();
    }
}

#[test]
fn the_patterns_of_one_layer_are_held_at_a_time() {
    write_all(2);
    let Some(few) = peak_memory() else { return };
    write_all(14);
    // the twelve layers more would be twelve times as much
    let more = peak_memory().unwrap() - few;
    assert!(more < 3 * LAYER, "{more} bytes more, a layer has {LAYER}");
}
