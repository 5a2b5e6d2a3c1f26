//! Models whose heads are known because their weights were set by hand: scores, costs and names must say so.
//!
//! The residual stream has a place for each thing: the token, its position, the token before it, and what comes next.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use candle_core::Device;
use softdict_inspect::ablation::{Ablation, Batch, Replacements};
use softdict_inspect::effect::window_losses;
use softdict_inspect::scores::repeated_block;
use softdict_inspect::survey::{Blocks, HeadReport, Survey, survey};
use softdict_model::settings::{NormChoice, Positions};
use softdict_model::{ModelConfig, ModelSettings, Parameters, Transformer};
use softdict_random::{Purpose, Stream};

const VOCAB: usize = 8;
const CONTEXT: usize = 16;
const HEADS: usize = 2;
/// Components of a head.
const SIZE: usize = 24;
const WIDTH: usize = HEADS * SIZE;

/// Where things lie in the residual stream.
const TOKEN: usize = 0;
const POSITION: usize = VOCAB;
const BEFORE: usize = VOCAB + CONTEXT;
const NEXT: usize = BEFORE + VOCAB;

/// The first position's embedding has this much in a place of its own, so that the norm makes all else in the row smaller.
const WEIGHT_OF_FIRST: f32 = 3.0;
/// What the first row then keeps as what came before: 0.2 of 1 behind a norm over (1, 1, 3) in 48 components.
const BEFORE_FIRST: f32 = 0.417_786;

/// Large enough that a softmax gives all to one key.
const SHARP: f32 = 20.0;

/// The weights of one head: each entry is (component of the head, component of the stream, weight).
#[derive(Default)]
struct Head {
    query: Vec<(usize, usize, f32)>,
    key: Vec<(usize, usize, f32)>,
    value: Vec<(usize, usize, f32)>,
    out: Vec<(usize, usize, f32)>,
}

/// Each token's row looks at the row before it, and keeps that token as what came before.
fn previous_token() -> Head {
    let before = |position: usize| position.saturating_sub(1);
    Head {
        query: (0..CONTEXT).map(|at| (before(at), POSITION + at, SHARP)).collect(),
        key: (0..CONTEXT).map(|at| (at, POSITION + at, SHARP)).collect(),
        value: copy(TOKEN),
        out: (0..VOCAB).map(|token| (token, BEFORE + token, 0.2)).collect(),
    }
}

/// Looks for a row that follows this token and predicts what stands there; where there is none it looks at the first row,
/// whose token is taken for its own predecessor, so that the difference of the two says nothing.
fn induction() -> Head {
    let mut query: Vec<_> = (0..VOCAB).map(|token| (token, TOKEN + token, SHARP)).collect();
    query.extend((0..CONTEXT).map(|at| (SIZE - 1, POSITION + at, SHARP)));
    let mut key: Vec<_> = (0..VOCAB).map(|token| (token, BEFORE + token, SHARP)).collect();
    key.push((SIZE - 1, POSITION, 0.3 * SHARP));
    let mut value = copy(TOKEN);
    value.extend((0..VOCAB).map(|token| (token, BEFORE + token, -1.0 / BEFORE_FIRST)));
    Head { query, key, value, out: (0..VOCAB).map(|token| (token, NEXT + token, 1.0)).collect() }
}

/// Looks at earlier copies of the token and not at the token itself, but writes nothing.
fn duplicate_token() -> Head {
    let same = |from: usize, weight| (0..VOCAB).map(move |token| (token, from + token, weight));
    let places = |weight| (0..CONTEXT).map(move |at| (VOCAB + at, POSITION + at, weight));
    Head {
        query: same(TOKEN, SHARP).chain(places(SHARP)).collect(),
        key: same(TOKEN, SHARP).chain(places(-SHARP)).collect(),
        ..Head::default()
    }
}

/// Looks at the first row, and writes nothing.
fn first_token() -> Head {
    Head {
        query: (0..CONTEXT).map(|at| (0, POSITION + at, SHARP)).collect(),
        key: vec![(0, POSITION, SHARP)],
        ..Head::default()
    }
}

fn copy(from: usize) -> Vec<(usize, usize, f32)> {
    (0..VOCAB).map(|token| (token, from + token, 1.0)).collect()
}

/// A model of these heads, whose FFNs add nothing, and whose head reads what comes next.
fn model(layers: &[[Head; HEADS]]) -> Transformer {
    let settings = ModelSettings {
        layers: layers.len(),
        heads: HEADS,
        width: WIDTH,
        context: CONTEXT,
        positions: Positions::Learned,
        norm: NormChoice::RmsNorm,
        bias: false,
        tied: false,
        ffn_dim: Some(1),
        ..Default::default()
    };
    let config = ModelConfig::new(&settings, VOCAB).unwrap();
    let mut parameters = Parameters::zeros(&config);
    let mut set = |name: &str, entries: Vec<(usize, usize, f32)>, columns: usize| {
        let range = parameters.table().range(name).unwrap();
        let values = &mut parameters.values_mut()[range];
        for (row, column, weight) in entries {
            values[row * columns + column] = weight;
        }
    };
    let ones = || (0..WIDTH).map(|at| (0, at, 1.0)).collect::<Vec<_>>();
    set("norm.weight", ones(), WIDTH);
    set("embedding.weight", (0..VOCAB).map(|token| (token, TOKEN + token, 1.0)).collect(), WIDTH);
    let mut positions: Vec<_> = (0..CONTEXT).map(|at| (at, POSITION + at, 1.0)).collect();
    positions.push((0, WIDTH - 1, WEIGHT_OF_FIRST));
    set("positions.weight", positions, WIDTH);
    set("head.weight", (0..VOCAB).map(|token| (token, NEXT + token, 4.0)).collect(), WIDTH);
    for (layer, heads) in layers.iter().enumerate() {
        let name = |part: &str| format!("blocks.{layer}.{part}.weight");
        set(&name("norm1"), ones(), WIDTH);
        set(&name("norm2"), ones(), WIDTH);
        for (number, head) in heads.iter().enumerate() {
            let first = number * SIZE;
            for (kind, entries) in [&head.query, &head.key, &head.value].into_iter().enumerate() {
                let rows = entries.iter().map(|&(row, column, w)| (kind * WIDTH + first + row, column, w));
                set(&name("attention.qkv"), rows.collect(), WIDTH);
            }
            let out = head.out.iter().map(|&(component, stream, w)| (stream, first + component, w));
            set(&name("attention.out"), out.collect(), WIDTH);
        }
    }
    Transformer::new(&config, &parameters, &Device::Cpu).unwrap()
}

fn circuit() -> Transformer {
    model(&[[previous_token(), first_token()], [induction(), duplicate_token()]])
}

/// Blocks of random tokens, each twice: all that this model can predict is the second half.
fn windows(count: usize) -> Vec<Vec<u32>> {
    let mut stream = Stream::new(5, Purpose::Scores, 9);
    (0..count).map(|_| repeated_block(&mut stream, VOCAB, VOCAB).unwrap()).collect()
}

fn batch(windows: &[Vec<u32>]) -> Batch {
    Batch::new(windows)
}

fn looked_at(model: &Transformer) -> Survey {
    let config = model.config();
    let untrained = Transformer::new(config, &Parameters::initial(config, 0), &Device::Cpu).unwrap();
    let windows = windows(24);
    let blocks = Blocks { tokens: CONTEXT / 2, count: 4, seed: 0 };
    survey(model, &untrained, &windows, &[batch(&windows)], blocks, &mut |_, _| ()).unwrap()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-3, "{found}, not {expected}");
}

fn costs_nothing(report: &HeadReport) {
    for effect in [report.zero, report.mean] {
        let effect = effect.unwrap();
        // the same sums in another order at most
        assert!(effect.increase.abs() < 1e-6, "{effect:?}");
    }
}

#[test]
fn an_induction_circuit_is_found_and_proven() {
    let Survey { loss, heads } = looked_at(&circuit());
    let [before, first, induction, duplicate] = heads.as_slice() else { panic!("{heads:?}") };
    near(before.scores.previous_token, 1.0);
    near(before.scores.mean_distance, 1.0);
    near(before.scores.entropy, 0.0);
    assert_eq!(before.name, "previous-token");
    near(induction.scores.induction, 1.0);
    near(induction.scores.induction_in_text.unwrap(), 1.0);
    near(induction.scores.duplicate_token, 0.0);
    assert_eq!(induction.name, "induction");
    // both halves of the circuit are needed: without either, all is guessing among eight tokens
    let guessing = (VOCAB as f64).ln();
    let loss = loss.unwrap();
    assert!(loss < 0.75 * guessing, "{loss}");
    for head in [before, induction] {
        for effect in [head.zero, head.mean] {
            let effect = effect.unwrap();
            assert!(loss + effect.increase > 0.95 * guessing, "{effect:?} on {loss}");
            let [low, high] = effect.interval.unwrap();
            assert!(0.0 < low && low <= effect.increase && effect.increase <= high);
        }
    }
    // where these look is as clear, but the model has no use for it
    near(first.scores.first_token, 1.0);
    near(duplicate.scores.duplicate_token, 1.0);
    near(duplicate.scores.duplicate_in_text.unwrap(), 1.0);
    for head in [first, duplicate] {
        costs_nothing(head);
        assert_eq!(head.name, "unclear");
    }
}

#[test]
fn uniform_heads_are_as_the_untrained_and_have_no_name() {
    let Survey { heads, .. } = looked_at(&model(&[[Head::default(), Head::default()]]));
    for head in &heads {
        near(head.scores.entropy, 1.0);
        // mean of 1/(i + 1) over i = 1..15
        let expected = (2..=CONTEXT).map(|keys| 1.0 / keys as f64).sum::<f64>() / (CONTEXT - 1) as f64;
        near(head.scores.previous_token, expected);
        near(head.scores.first_token, expected);
        near(head.spread["first_token"].p50, 1.0 / 9.0);
        costs_nothing(head);
        assert_eq!(head.name, "unclear");
    }
}

#[test]
fn taking_away_by_hand_is_what_the_survey_measures() {
    let model = circuit();
    let (windows, found) = (windows(24), looked_at(&model));
    let batch = batch(&windows);
    let ablations: Vec<Ablation> = ["1.0".parse().unwrap()].to_vec();
    let mut replacements = Replacements::new(model.config(), &ablations, None, &Device::Cpu).unwrap();
    assert_eq!(replacements.first_layer(), Some(1));
    let logits = model.forward(&batch.ids, batch.time, &mut replacements).unwrap();
    let losses = window_losses(&logits, &batch).unwrap();
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    near(mean - found.loss.unwrap(), found.heads[2].zero.unwrap().increase);
}

#[test]
fn ablations_are_written_as_layer_and_head() {
    let config = circuit().config().clone();
    let parse = |text: &str| text.parse::<Ablation>();
    for text in ["1.0", "1.0=zero"] {
        assert_eq!(parse(text).unwrap(), parse("1.0=zero").unwrap());
    }
    assert_ne!(parse("1.0=mean").unwrap(), parse("1.0").unwrap());
    for wrong in ["", "1", "1.", ".1", "1.0=max", "a.b", "1.0.0", "-1.0", "1.0="] {
        let message = parse(wrong).unwrap_err().to_string();
        assert!(message.contains("LAYER.HEAD"), "{message}");
    }
    for (text, what) in [("2.0", "layer 2"), ("0.2", "head 2")] {
        let error = Replacements::new(&config, &[parse(text).unwrap()], None, &Device::Cpu).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(Replacements::new(&config, &[parse("0.0=mean").unwrap()], None, &Device::Cpu).is_err());
}
