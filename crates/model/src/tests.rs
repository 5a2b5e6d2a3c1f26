//! What a transformer must do whatever its weights: causality, caching, taps, order.

use crate::config::ModelConfig;
use crate::settings::{ModelSettings, Positions};
use crate::{KvCache, NoTap, Parameters, Site, Tap, Transformer};
use candle_core::{Device, Result, Tensor};
use softdict_kernels::Ops;

const VOCABULARY: usize = 23;
const IDS: [u32; 9] = [3, 1, 4, 1, 5, 9, 2, 6, 5];

fn config(change: impl Fn(&mut ModelSettings)) -> ModelConfig {
    let mut settings = ModelSettings { layers: 2, heads: 4, width: 24, context: 12, ..Default::default() };
    change(&mut settings);
    ModelConfig::new(&settings, VOCABULARY).unwrap()
}

fn model(config: &ModelConfig) -> Transformer {
    Transformer::new(config, &Parameters::initial(config, 4), &Device::Cpu).unwrap()
}

fn values(logits: &Tensor) -> Vec<f32> {
    logits.flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_near(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance, "{a} {b}");
    }
}

fn forward(model: &Transformer, ids: &[u32]) -> Vec<f32> {
    values(&model.forward(ids, ids.len(), &mut NoTap).unwrap())
}

#[test]
fn future_tokens_do_not_change_the_past() {
    let model = model(&config(|_| ()));
    let whole = forward(&model, &IDS);
    let mut changed = IDS;
    changed[6] = 20;
    let other = forward(&model, &changed);
    assert_eq!(whole[..6 * VOCABULARY], other[..6 * VOCABULARY]);
    assert_ne!(whole[6 * VOCABULARY..], other[6 * VOCABULARY..]);
}

#[test]
fn a_bidirectional_model_sees_the_future_and_has_no_cache() {
    let config = config(|s| s.causal = false);
    let model = model(&config);
    let mut changed = IDS;
    changed[8] = 20;
    assert_ne!(forward(&model, &IDS)[..VOCABULARY], forward(&model, &changed)[..VOCABULARY]);
    let mut cache = KvCache::new(&config, 1, &Device::Cpu).unwrap();
    let error = model.decode(&IDS, 9, &mut cache, &mut NoTap).unwrap_err().to_string();
    assert!(error.contains("model.causal = false"), "{error}");
}

#[test]
fn decoding_with_the_cache_equals_the_full_pass() {
    for change in [
        (|_: &mut ModelSettings| ()) as fn(&mut ModelSettings),
        |s| (s.kv_heads, s.qk_norm) = (Some(2), true),
        |s| s.positions = Positions::Learned,
        |s| s.parallel_residual = true,
    ] {
        let config = config(change);
        for ops in [Ops::Fused, Ops::Reference] {
            let model =
                Transformer::with_ops(&config, &Parameters::initial(&config, 4), &Device::Cpu, ops).unwrap();
            let whole = forward(&model, &IDS);
            for pieces in [&[9][..], &[1; 9], &[4, 1, 3, 1]] {
                let mut cache = KvCache::new(&config, 1, &Device::Cpu).unwrap();
                let mut parts = Vec::new();
                let mut at = 0;
                for &piece in pieces {
                    let logits = model.decode(&IDS[at..at + piece], piece, &mut cache, &mut NoTap).unwrap();
                    parts.extend(values(&logits));
                    at += piece;
                }
                // the same sums in another order
                assert_near(&parts, &whole, 2e-5);
            }
        }
    }
}

#[test]
fn patterns_through_the_cache_are_those_of_a_whole_pass() {
    /// The rows of every layer's pattern, `[L][T·H]` of `S` keys.
    struct Rows(Vec<Vec<Vec<f32>>>);
    impl Tap for Rows {
        fn wants(&self, site: Site, _: usize) -> bool {
            site == Site::Pattern
        }
        fn at(&mut self, _: Site, layer: usize, pattern: Tensor) -> candle_core::Result<Tensor> {
            self.0.resize(self.0.len().max(layer + 1), Vec::new());
            // query by query, head by head
            for head in pattern.get(0)?.transpose(0, 1)?.to_vec3::<f32>()? {
                self.0[layer].extend(head);
            }
            Ok(pattern)
        }
    }
    for heads in [None, Some(1)] {
        let config = config(|s| s.kv_heads = heads);
        let model = model(&config);
        let (mut whole, mut parts) = (Rows(Vec::new()), Rows(Vec::new()));
        model.forward(&IDS, 9, &mut whole).unwrap();
        let mut cache = KvCache::new(&config, 1, &Device::Cpu).unwrap();
        for id in IDS {
            model.decode(&[id], 1, &mut cache, &mut parts).unwrap();
        }
        for (whole, parts) in whole.0.iter().zip(&parts.0) {
            assert_eq!((whole.len(), parts.len()), (9 * config.heads, 9 * config.heads));
            for (whole, part) in whole.iter().zip(parts) {
                // a step sees the tokens so far, a pass has zeros for the later ones
                assert_near(part, &whole[..part.len()], 1e-5);
                assert!(whole[part.len()..].iter().all(|&weight| weight == 0.0));
            }
        }
    }
}

#[test]
fn sequences_of_a_batch_do_not_see_each_other() {
    let model = model(&config(|_| ()));
    let both: Vec<u32> = IDS.iter().chain(&[7, 7, 0, 1, 2, 2, 2, 8, 1]).copied().collect();
    let batch = values(&model.forward(&both, 9, &mut NoTap).unwrap());
    assert_near(&batch[..9 * VOCABULARY], &forward(&model, &IDS), 1e-5);
}

#[test]
fn without_positions_the_order_of_the_past_is_invisible() {
    let mut shuffled = IDS;
    shuffled[..8].reverse();
    let last = |positions| {
        let model = model(&config(|s| s.positions = positions));
        let logits = |ids: &[u32]| forward(&model, ids)[8 * VOCABULARY..].to_vec();
        (logits(&IDS), logits(&shuffled))
    };
    // one layer of attention sums over a set; deeper layers see causal prefixes, so this holds for one layer only
    let single = config(|s| (s.positions, s.layers) = (Positions::None, 1));
    let model = model(&single);
    assert_near(
        &forward(&model, &IDS)[8 * VOCABULARY..],
        &forward(&model, &shuffled)[8 * VOCABULARY..],
        1e-5,
    );
    let (a, b) = last(Positions::Rope);
    assert!(a.iter().zip(&b).any(|(a, b)| (a - b).abs() > 1e-3));
}

#[test]
fn what_does_not_fit_is_refused() {
    let config = config(|_| ());
    let model = model(&config);
    let long = [1; 13];
    assert!(model.forward(&long, 13, &mut NoTap).unwrap_err().to_string().contains("13 tokens"));
    assert!(model.forward(&[23], 1, &mut NoTap).unwrap_err().to_string().contains("token id is 23"));
    let mut cache = KvCache::new(&config, 1, &Device::Cpu).unwrap();
    model.decode(&[1; 12], 12, &mut cache, &mut NoTap).unwrap();
    assert!(model.decode(&[1], 1, &mut cache, &mut NoTap).is_err());
    cache.clear();
    model.decode(&[1], 1, &mut cache, &mut NoTap).unwrap();
}

/// Asks for everything, keeps what it saw, and may replace one site by zeros.
struct Everything {
    seen: Vec<(Site, usize, Vec<usize>)>,
    zero: Option<(Site, usize)>,
}

impl Tap for Everything {
    fn wants(&self, _: Site, _: usize) -> bool {
        true
    }

    fn at(&mut self, site: Site, layer: usize, tensor: Tensor) -> Result<Tensor> {
        self.seen.push((site, layer, tensor.dims().to_vec()));
        if self.zero == Some((site, layer)) { tensor.zeros_like() } else { Ok(tensor) }
    }
}

#[test]
fn a_tap_sees_every_site_with_its_documented_shape_and_changes_nothing() {
    let config = config(|s| s.kv_heads = Some(2));
    let model = model(&config);
    let mut tap = Everything { seen: Vec::new(), zero: None };
    let logits = values(&model.forward(&IDS, 9, &mut tap).unwrap());
    // the pattern is formed by the composed operations here and never in the other pass
    assert_near(&logits, &forward(&model, &IDS), 1e-5);
    assert_eq!(tap.seen.len(), 2 + 2 * 11);
    for (site, layer, shape) in tap.seen {
        let expected: &[usize] = match site {
            Site::Query | Site::HeadOutput => &[1, 4, 9, 6],
            Site::Key | Site::Value => &[1, 2, 9, 6],
            Site::Pattern => &[1, 4, 9, 9],
            Site::FfnHidden => &[1, 9, 96],
            _ => &[1, 9, 24],
        };
        assert_eq!(shape, expected, "{site:?} {layer}");
    }
}

#[test]
fn what_a_tap_puts_in_place_is_what_the_model_goes_on_with() {
    let config = config(|_| ());
    let model = model(&config);
    let whole = forward(&model, &IDS);
    for site in [Site::Embedding, Site::Pattern, Site::HeadOutput, Site::FfnHidden, Site::Value] {
        let mut tap = Everything { seen: Vec::new(), zero: Some((site, 0)) };
        let changed = values(&model.forward(&IDS, 9, &mut tap).unwrap());
        assert!(whole.iter().zip(&changed).any(|(a, b)| (a - b).abs() > 1e-3), "{site:?}");
    }
}

#[test]
fn weights_of_another_shape_are_refused_by_name() {
    let (small, large) = (config(|_| ()), config(|s| s.width = 48));
    let error = Transformer::new(&large, &Parameters::initial(&small, 1), &Device::Cpu).err().unwrap();
    assert!(!error.to_string().is_empty());
    let deeper = config(|s| s.layers = 3);
    let error = Transformer::new(&deeper, &Parameters::initial(&small, 1), &Device::Cpu).err().unwrap();
    assert!(error.to_string().contains("blocks.2."), "{error}");
}
