//! Small models of every family.
#![allow(dead_code, clippy::allow_attributes, reason = "each test program uses a part")]

use softdict_checkpoint::{Contents, Progress};
use softdict_model::random::{Purpose, Stream};
use softdict_model::settings::{Ffn, ModelSettings, NormChoice, Positions, Scale};
use softdict_model::{ModelConfig, Parameters};

pub(crate) const TOKENIZER: &[u8] = b"{\"any\": \"bytes\"}";

pub(crate) fn config(change: impl Fn(&mut ModelSettings)) -> ModelConfig {
    let mut settings =
        ModelSettings { layers: 2, heads: 2, width: 16, context: 12, norm_eps: 3e-4, ..Default::default() };
    change(&mut settings);
    ModelConfig::new(&settings, 11).unwrap()
}

pub(crate) fn llama(settings: &mut ModelSettings) {
    (settings.norm, settings.ffn, settings.bias) = (NormChoice::RmsNorm, Ffn::SwiGlu, false);
}

pub(crate) fn gpt2(settings: &mut ModelSettings) {
    (settings.positions, settings.ffn) = (Positions::Learned, Ffn::GeluTanh);
}

pub(crate) fn mixed(settings: &mut ModelSettings) {
    (settings.qk_norm, settings.scale, settings.ffn) = (true, Scale::None, Ffn::Relu2);
    (settings.kv_heads, settings.dropout, settings.causal) = (Some(1), 0.3, false);
}

/// Parameters of which no two are alike, biases and norms included.
pub(crate) fn random_parameters(config: &ModelConfig, seed: u64) -> Parameters {
    let (mut parameters, mut stream) = (Parameters::zeros(config), Stream::new(seed, Purpose::Init, 0));
    parameters.values_mut().fill_with(|| stream.normal() as f32);
    parameters
}

pub(crate) fn contents<'a>(config: &'a ModelConfig, parameters: &'a Parameters) -> Contents<'a> {
    let progress = Progress { step: 3, tokens: 99, train_loss: Some(0.1), val_loss: Some(0.2) };
    Contents { config, parameters, tokenizer: Some(TOKENIZER), progress, trainer: None }
}
