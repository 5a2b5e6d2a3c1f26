//! Scores, circuits, shares and patches of two fixtures are those of transformers, hooks and numpy
//! (`scripts/golden_inspect.py`).
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use candle_core::Device;
use softdict_checkpoint::{Checkpoint, load};
use softdict_inspect::ablation::HeadId;
use softdict_inspect::capture;
use softdict_inspect::lens::{Lens, Part};
use softdict_inspect::lookup::{Circuit, Found};
use softdict_inspect::patch::{Prompts, patch};
use softdict_inspect::scores::{HeadRows, Pattern};
use softdict_model::{NoTap, Transformer};
use softdict_testkit::{Golden, golden_folder};

/// What is asked of every number here.
const TOLERANCE: f64 = 1e-4;

struct Fixture {
    checkpoint: Checkpoint,
    model: Transformer,
    golden: Golden,
}

fn each(check: impl Fn(&Fixture)) {
    for name in ["gpt2", "llama_gqa_untied"] {
        let checkpoint = load(&golden_folder().join(name)).unwrap();
        let model = Transformer::new(&checkpoint.config, &checkpoint.parameters, &Device::Cpu).unwrap();
        check(&Fixture { checkpoint, model, golden: Golden::open(&format!("{name}/inspect.safetensors")) });
    }
}

impl Fixture {
    fn ids(&self, name: &str) -> Vec<u32> {
        self.golden.integers(name).1.iter().map(|&id| u32::try_from(id).unwrap()).collect()
    }

    fn heads(&self) -> impl Iterator<Item = HeadId> {
        let heads = self.checkpoint.config.heads;
        (0..self.checkpoint.config.layers() * heads)
            .map(move |index| HeadId { layer: index / heads, head: index % heads })
    }
}

fn near(what: &str, found: f64, expected: f32) {
    let expected = f64::from(expected);
    assert!(
        (found - expected).abs() < TOLERANCE * expected.abs().max(1.0),
        "{what}: {found}, not {expected}"
    );
}

#[test]
fn head_scores() {
    each(|fixture| {
        let (block, (_, expected)) = (fixture.ids("block"), fixture.golden.floats("scores"));
        let config = &fixture.checkpoint.config;
        let (layers, heads): (Vec<usize>, Vec<usize>) =
            ((0..config.layers()).collect(), (0..config.heads).collect());
        let patterns = capture(&fixture.model, &block, &layers, &heads).unwrap();
        for ((pattern, expected), id) in
            patterns.chunks(block.len() * block.len()).zip(expected.chunks(7)).zip(fixture.heads())
        {
            let pattern = Pattern::new(pattern, block.len(), true).unwrap();
            let mut rows = HeadRows::default();
            rows.add_text(&pattern, &block).unwrap();
            rows.add_block(&pattern).unwrap();
            let scores = rows.scores(id.layer, id.head).unwrap();
            let found = [
                scores.previous_token,
                scores.duplicate_token,
                scores.induction,
                scores.first_token,
                scores.current_token,
                scores.entropy,
                scores.mean_distance,
            ];
            for (found, expected) in found.into_iter().zip(expected) {
                near(&id.to_string(), found, *expected);
            }
        }
    });
}

#[test]
fn circuits() {
    each(|fixture| {
        let (queries, distance) = (fixture.ids("queries"), fixture.ids("distance")[0] as usize);
        let (config, parameters) = (&fixture.checkpoint.config, &fixture.checkpoint.parameters);
        let vocab = config.vocab_size;
        let (keys, promoted) = (fixture.golden.floats("keys").1, fixture.golden.floats("promoted").1);
        let of_heads = keys.chunks(2 * vocab).zip(promoted.chunks(2 * vocab));
        for ((keys, promoted), id) in of_heads.zip(fixture.heads()) {
            let circuit = Circuit::new(config, parameters, id).unwrap();
            let check = |what: &str, found: Vec<Vec<Found>>, expected: &[f32]| {
                for (found, expected) in found.iter().zip(expected.chunks(vocab)) {
                    assert_eq!(found.len(), vocab);
                    for Found { token, score } in found {
                        near(&format!("{what} of {id}"), f64::from(*score), expected[*token as usize]);
                    }
                }
            };
            check("keys", circuit.keys(&queries, distance, vocab).unwrap(), keys);
            check("promoted", circuit.promoted(&queries, vocab).unwrap(), promoted);
        }
    });
}

#[test]
fn shares_of_a_logit() {
    each(|fixture| {
        let (config, parameters) = (&fixture.checkpoint.config, &fixture.checkpoint.parameters);
        let (clean, answer) = (fixture.ids("clean"), fixture.ids("answer")[0]);
        let lens = Lens::new(&fixture.model, parameters, &clean, clean.len() - 1, &mut NoTap).unwrap();
        let shares = lens.shares(config, parameters, answer, None).unwrap();
        let of = |part: Part| shares.iter().find(|(own, _)| *own == part).map_or(0.0, |(_, share)| *share);
        let mut found = vec![of(Part::Embedding)];
        for layer in 0..config.layers() {
            found.extend((0..config.heads).map(|head| of(Part::Head(HeadId { layer, head }))));
            found.extend([of(Part::AttentionBias(layer)), of(Part::Ffn(layer))]);
        }
        found.push(of(Part::NormBias));
        let expected = fixture.golden.floats("shares").1;
        assert_eq!(found.len(), expected.len());
        for (index, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            near(&format!("share {index}"), found, expected);
        }
    });
}

#[test]
fn patches() {
    each(|fixture| {
        let (clean, corrupt) = (fixture.ids("clean"), fixture.ids("corrupt"));
        let (answer, against) = (fixture.ids("answer")[0], fixture.ids("against")[0]);
        let prompts = Prompts { clean: &clean, corrupt: &corrupt, answer, against, at: clean.len() - 1 };
        let found = patch(&fixture.model, prompts, &mut |_, _| ()).unwrap();
        let heads: Vec<Vec<f64>> = found.heads.into_iter().flatten().collect();
        for (name, found) in [("residual", found.residual), ("heads", heads), ("ffn", found.ffn)] {
            let expected = fixture.golden.floats(name).1;
            assert_eq!(found.len() * clean.len(), expected.len(), "{name}");
            for (found, expected) in found.iter().flatten().zip(expected) {
                near(name, *found, expected);
            }
        }
    });
}
