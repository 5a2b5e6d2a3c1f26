//! What a long context costs. Alone in its file: the most that a process has held counts for all of it.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use candle_core::Device;
use softdict_model::{
    Batch, CachedTransformer, Decoder, Engine, FusedEngine, ModelConfig, ModelSettings, NoTap, Parameters,
    Reader, Transformer,
};
use softdict_testkit::peak_memory;

const MOST: u64 = 64 << 20;

/// Reads three tokens at once, then three more one by one, for two samples.
fn read(reader: &mut dyn Reader) {
    reader.read(&[1, 2, 3, 4, 5, 6], 3).unwrap();
    for id in 7..10 {
        reader.read(&[id, id], 1).unwrap();
    }
}

#[test]
fn a_context_of_a_million_tokens_costs_nothing_until_they_are_read() {
    let settings = ModelSettings { layers: 2, heads: 1, width: 128, context: 1 << 20, ..Default::default() };
    let config = ModelConfig::new(&settings, 10).unwrap();
    let parameters = Parameters::initial(&config, 1);
    let model = Transformer::new(&config, &parameters, &Device::Cpu).unwrap();
    model.forward(&[1, 2, 3], 3, &mut NoTap).unwrap();
    read(&mut CachedTransformer::new(model));
    read(&mut Decoder::new(&config, &parameters).unwrap());
    let batch = Batch { inputs: &[1, 2, 3], targets: &[2, 3, 4], time: 3 };
    FusedEngine::new(&config).unwrap().loss(&parameters, batch).unwrap();
    let Some(peak) = peak_memory() else { return };
    assert!(peak < MOST, "{peak} bytes");
}
