//! The decoder against the transformer's logits, for every knob, however the tokens come.

use super::Decoder;
use crate::config::ModelConfig;
use crate::fused::tests::{VOCABULARY, base, ids, parameters, variants};
use crate::parameters::Parameters;
use crate::settings::{Ffn, ModelSettings};
use crate::{CachedTransformer, NoTap, Reader, Transformer};
use candle_core::Device;

/// Logits of the transformer at every position of one sequence, `(T, V)`.
fn transformer(config: &ModelConfig, parameters: &Parameters, ids: &[u32]) -> Vec<f32> {
    let model = Transformer::new(config, parameters, &Device::Cpu).unwrap();
    model.forward(ids, ids.len(), &mut NoTap).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_near(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        // the same sums in another order, in f32
        assert!(
            (found - expected).abs() <= 1e-5 * largest,
            "{name}: {found}, expected {expected} of {largest}"
        );
    }
}

/// Every knob of the training pass that a causal model can have, and mixtures that only decoding tells apart.
fn causal() -> impl Iterator<Item = (&'static str, ModelSettings)> {
    let gated = ModelSettings { ffn: Ffn::SwiGlu, parallel_residual: true, qk_norm: true, ..base() };
    let wide = ModelSettings { width: 160, heads: 2, kv_heads: Some(1), tied: false, ..base() };
    let more = [("gated, parallel, qk norm", gated), ("wide heads, one of keys", wide)];
    variants().into_iter().chain(more).filter(|(_, settings)| settings.causal)
}

#[test]
fn decoded_logits_equal_the_transformers_at_every_position_for_every_knob() {
    for (name, settings) in causal() {
        let config = ModelConfig::new(&settings, VOCABULARY).unwrap();
        let parameters = parameters(&config);
        let ids = ids(11, 7);
        let expected = transformer(&config, &parameters, &ids);
        let mut decoder = Decoder::new(&config, &parameters).unwrap();
        for pieces in [&[1; 11][..], &[11], &[4, 1, 3, 1, 2]] {
            decoder.clear();
            let mut at = 0;
            for &piece in pieces {
                let logits = decoder.read(&ids[at..at + piece], piece).unwrap();
                at += piece;
                let expected = &expected[(at - 1) * VOCABULARY..at * VOCABULARY];
                assert_near(&format!("{name}, {at} tokens"), logits, expected);
            }
        }
    }
}

#[test]
fn samples_read_together_are_read_as_each_alone() {
    for (name, settings) in causal() {
        let config = ModelConfig::new(&settings, VOCABULARY).unwrap();
        let parameters = parameters(&config);
        // more samples than one reading of the weights from the first cache serves, and not a multiple
        let samples: Vec<Vec<u32>> = (0..6).map(|sample| ids(9, sample)).collect();
        let mut together = Decoder::new(&config, &parameters).unwrap();
        let mut alone = Decoder::new(&config, &parameters).unwrap();
        let mut expected = vec![Vec::new(); samples.len()];
        let pieces = [0..4, 4..5, 5..6, 6..8, 8..9];
        for (ids, expected) in samples.iter().zip(&mut expected) {
            alone.clear();
            for piece in pieces.clone() {
                expected.push(alone.read(&ids[piece.clone()], piece.len()).unwrap().to_vec());
            }
        }
        for (number, piece) in pieces.into_iter().enumerate() {
            let fresh: Vec<u32> = samples.iter().flat_map(|ids| &ids[piece.clone()]).copied().collect();
            let logits = together.read(&fresh, piece.len()).unwrap();
            for (logits, expected) in logits.chunks_exact(VOCABULARY).zip(&expected) {
                assert_near(name, logits, &expected[number]);
            }
        }
    }
}

#[test]
fn what_was_read_stays_when_the_buffers_grow_whoever_reads() {
    let settings = ModelSettings { context: 150, kv_heads: Some(2), ..base() };
    let config = ModelConfig::new(&settings, VOCABULARY).unwrap();
    let parameters = parameters(&config);
    let model = Transformer::new(&config, &parameters, &Device::Cpu).unwrap();
    let mut decoder = Decoder::new(&config, &parameters).unwrap();
    let mut cached = CachedTransformer::new(model);
    // again with other samples, in buffers that are long already; one grows while it is read as a prompt
    let rounds: [&[usize]; 3] = [&[60, 1, 1, 1, 1, 1, 1, 63, 1, 20], &[10, 1, 1, 138], &[149, 1]];
    for (samples, pieces) in (2..).zip(rounds) {
        decoder.clear();
        cached.clear();
        let texts: Vec<Vec<u32>> = (0..samples).map(|sample| ids(150, sample)).collect();
        let mut expected = Vec::new();
        for text in &texts {
            expected.push(transformer(&config, &parameters, text));
        }
        let mut at = 0;
        for &piece in pieces {
            let fresh: Vec<u32> = texts.iter().flat_map(|text| &text[at..at + piece]).copied().collect();
            at += piece;
            let last = (at - 1) * VOCABULARY..at * VOCABULARY;
            let expected: Vec<f32> =
                expected.iter().flat_map(|logits| &logits[last.clone()]).copied().collect();
            let readers: [&mut dyn Reader; 2] = [&mut decoder, &mut cached];
            for reader in readers {
                assert_near(&format!("{at} tokens"), reader.read(&fresh, piece).unwrap(), &expected);
            }
        }
    }
}

#[test]
fn threads_change_no_bit_of_a_token() {
    let settings = ModelSettings { width: 192, heads: 4, ffn_dim: Some(1024), layers: 6, ..base() };
    let config = ModelConfig::new(&settings, VOCABULARY).unwrap();
    let parameters = parameters(&config);
    assert!(parameters.values().len() >= super::SHARED_FROM, "one thread would do it all");
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut decoder = Decoder::new(&config, &parameters).unwrap();
            let read = |pair: &[u32]| decoder.read(pair, 1).unwrap().to_vec();
            ids(20, 3).chunks(2).map(read).collect::<Vec<_>>()
        })
    };
    assert_eq!(with(1), with(3));
}

#[test]
fn rows_that_no_token_has_are_left_out() {
    for tied in [true, false] {
        let settings = ModelSettings { tied, ..base() };
        let padded = ModelConfig::new(&settings, VOCABULARY + 3).unwrap();
        let config = ModelConfig { vocab_size: VOCABULARY, ..padded.clone() };
        let parameters = parameters(&padded);
        let ids = ids(5, 1);
        let expected = transformer(&padded, &parameters, &ids);
        let mut decoder = Decoder::new(&config, &parameters).unwrap();
        let last = &expected[4 * (VOCABULARY + 3)..][..VOCABULARY];
        assert_near("padded", decoder.read(&ids, 5).unwrap(), last);
        assert!(decoder.read(&[VOCABULARY as u32], 1).is_err());
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let config = ModelConfig::new(&base(), VOCABULARY).unwrap();
    let parameters = parameters(&config);
    let mut decoder = Decoder::new(&config, &parameters).unwrap();
    assert!(decoder.read(&[1; 12], 12).unwrap_err().to_string().contains("12 tokens"));
    assert!(decoder.read(&[1; 3], 2).is_err());
    decoder.read(&[1; 6], 2).unwrap();
    assert!(decoder.read(&[1; 2], 1).is_err());
    decoder.clear();
    assert!(decoder.read(&[], 0).is_err());
    assert!(decoder.read(&[17], 1).unwrap_err().to_string().contains("token id is 17"));
    let ids = ids(11, 2);
    let logits = decoder.read(&ids, 11).unwrap();
    assert_near("after errors", logits, &transformer(&config, &parameters, &ids)[10 * VOCABULARY..]);
    assert!(decoder.read(&[1], 1).is_err());

    let wide = ModelConfig::new(&ModelSettings { width: 48, ..base() }, VOCABULARY).unwrap();
    assert!(Decoder::new(&wide, &parameters).err().unwrap().to_string().contains("embedding.weight"));
    let deep = ModelConfig::new(&ModelSettings { layers: 3, ..base() }, VOCABULARY).unwrap();
    assert!(Decoder::new(&deep, &parameters).err().unwrap().to_string().contains("blocks.2."));
    let blind = ModelConfig::new(&ModelSettings { causal: false, ..base() }, VOCABULARY).unwrap();
    let message = Decoder::new(&blind, &parameters).err().unwrap().to_string();
    assert!(message.contains("model.causal = false"), "{message}");
}
