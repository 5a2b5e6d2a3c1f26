//! What learning does with and without the division: short trainings of one and the same lookup.

use super::super::language::Back;
use super::super::training::{Lesson, SEEDS, Sequences, Spread, each};
use super::super::verdict;
use candle_core::Device;
use softdict_model::settings::{Init, Scale};
use softdict_model::{Engine, FusedEngine, ModelConfig, ModelSettings, Parameters, Transformer};
use std::fmt::Write;

/// The symbol that is to be found: one lookup, which only attention can make.
const NEEDED: [usize; 1] = [3];
const TIME: usize = 12;
const WIDTH: usize = 128;
/// When a loss is looked at; the last is the length of a training.
const STEPS: [u64; 5] = [0, 20, 40, 80, 120];
/// Sequences that the loss and the gradient are measured on, and the entropy.
const MEASURED: usize = 64;
const LOOKED_AT: usize = 16;

/// A model in which the division is left out or not.
#[derive(Clone, Copy)]
struct Case {
    heads: usize,
    layers: usize,
    init: Init,
}

/// The head grows; then what can make up for the division.
const CASES: [Case; 5] = [
    Case { heads: 4, layers: 1, init: Init::FanIn },
    Case { heads: 2, layers: 1, init: Init::FanIn },
    WIDE,
    Case { heads: 1, layers: 2, init: Init::FanIn },
    Case { heads: 1, layers: 1, init: Init::Fixed },
];
const WIDE: Case = Case { heads: 1, layers: 1, init: Init::FanIn };
/// Places in [`CASES`].
const NARROW_AT: usize = 0;
const WIDE_AT: usize = 2;
const DEEPER_AT: usize = 3;
const SMALLER_AT: usize = 4;

/// One training.
struct Learned {
    /// After each of [`STEPS`].
    losses: Vec<f64>,
    /// Of the first layer's rows over their maximum, before and after: 1 is uniform, 0 one key.
    entropy: [f64; 2],
    /// Norm of the loss's gradient for the weights of queries and keys, before.
    gradient: f64,
}

fn learn(case: Case, scale: Scale, seed: u64) -> anyhow::Result<Learned> {
    let back = Back(&NEEDED);
    let settings = ModelSettings {
        layers: case.layers,
        heads: case.heads,
        width: WIDTH,
        context: TIME,
        init: Some(case.init),
        scale,
        // a narrow FFN: it has only to name what attention finds
        ffn_dim: Some(WIDTH),
        tied: false,
        ..Default::default()
    };
    let (config, draw) = (ModelConfig::new(&settings, back.answers())?, back.draw());
    let lesson =
        Lesson { config: &config, draw: &draw, batch: 16, steps: STEPS[STEPS.len() - 1], rate: 3e-3, seed };
    let unseen = Sequences::unseen(&draw, MEASURED, TIME);
    let mut losses = Vec::new();
    let end = lesson.train(|step, parameters| {
        if STEPS.contains(&step) {
            losses.push(unseen.loss(&config, parameters)?);
        }
        Ok(())
    })?;
    let begin = Parameters::initial(&config, seed);
    let entropy = [entropy(&config, &begin, &unseen)?, entropy(&config, &end, &unseen)?];
    Ok(Learned { losses, entropy, gradient: gradient(&config, &begin, &unseen)? })
}

/// The mean entropy of the first layer's rows that see several keys, each over the logarithm of how many.
fn entropy(config: &ModelConfig, parameters: &Parameters, unseen: &Sequences) -> anyhow::Result<f64> {
    let model = Transformer::new(config, parameters, &Device::Cpu)?;
    let heads: Vec<usize> = (0..config.heads).collect();
    let (mut sum, mut rows) = (0.0, 0.0);
    for ids in unseen.inputs.chunks_exact(TIME).take(LOOKED_AT) {
        let patterns = softdict_inspect::capture(&model, ids, &[0], &heads)?; // (1, H, T, T)
        for (row, weights) in patterns.chunks_exact(TIME).enumerate().filter(|(row, _)| row % TIME > 0) {
            let seen = weights.iter().map(|&weight| f64::from(weight)).filter(|&weight| weight > 0.0);
            sum -= seen.map(|weight| weight * weight.ln()).sum::<f64>() / ((row % TIME + 1) as f64).ln();
            rows += 1.0;
        }
    }
    Ok(sum / rows)
}

/// The norm of the gradient of the mean loss for the first layer's query and key weights.
fn gradient(config: &ModelConfig, parameters: &Parameters, unseen: &Sequences) -> anyhow::Result<f64> {
    let mut gradient = vec![0.0; parameters.table().len()];
    let scale = 1.0 / unseen.counted() as f32;
    FusedEngine::new(config)?.accumulate(parameters, unseen.batch(), scale, None, &mut gradient)?;
    let place = parameters.table().range("blocks.0.attention.qkv.weight")?;
    // queries and keys come first, values after them
    let rows = &gradient[place.start..place.start + place.len() * 2 / 3];
    Ok(rows.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt())
}

/// One case with one scale, of every seed.
struct Row(Vec<Learned>);

impl Row {
    fn loss(&self, at: usize) -> Spread {
        Spread::of(self.0.iter().map(|learned| learned.losses[at]))
    }

    fn end(&self) -> Spread {
        self.loss(STEPS.len() - 1)
    }

    fn entropy(&self, at: usize) -> f64 {
        Spread::of(self.0.iter().map(|learned| learned.entropy[at])).mean
    }

    fn gradient(&self) -> f64 {
        Spread::of(self.0.iter().map(|learned| learned.gradient)).mean
    }
}

/// Every case, with the division and without.
fn all() -> anyhow::Result<Vec<[Row; 2]>> {
    let mut runs = Vec::new();
    for case in CASES {
        for scale in [Scale::Sqrt, Scale::None] {
            runs.extend(SEEDS.map(|seed| (case, scale, seed)));
        }
    }
    let mut learned = each(&runs, |&(case, scale, seed)| learn(case, scale, seed))?.into_iter();
    let mut row = || Row(learned.by_ref().take(SEEDS.len()).collect());
    Ok(CASES.iter().map(|_| [row(), row()]).collect())
}

/// The part of the page.
pub(super) fn section() -> anyhow::Result<String> {
    let rows = all()?;
    let mut text = format!(
        "\nAnd learning: the symbol {} places back of random symbols, blocks of width {WIDTH}, the same {} seeds with and without.\n\
         Loss on unseen sequences (guessing costs 1.79), entropy of the first layer, gradient of its query and key weights:\n\n\
         \x20   d  blocks  init      scale  loss after {}  (low to high)   entropy at 0 / {}  gradient at 0\n",
        NEEDED[0],
        SEEDS.len(),
        STEPS.map(|step| format!("{step:>6}")).join(" "),
        STEPS[STEPS.len() - 1],
    );
    for (case, pair) in CASES.into_iter().zip(&rows) {
        let init = if case.init == Init::FanIn { "1/√width" } else { "0.02" };
        for (name, row) in ["1/√d", "none"].into_iter().zip(pair) {
            let losses: Vec<String> =
                (0..STEPS.len()).map(|at| format!("{:>6.3}", row.loss(at).mean)).collect();
            let (end, size) = (row.end(), WIDTH / case.heads);
            writeln!(
                text,
                "  {size:>3}  {:>6}  {init:<8}  {name:<4}             {}  ({:.2} to {:.2})      {:.3} / {:.3}  {:>13.4}",
                case.layers,
                losses.join(" "),
                end.low,
                end.high,
                row.entropy(0),
                row.entropy(1),
                row.gradient(),
            )?;
        }
    }
    text += &claims(&rows);
    Ok(text)
}

/// What the documents say of learning, and what was found.
fn claims(rows: &[[Row; 2]]) -> String {
    let [wide, bare] = &rows[WIDE_AT];
    let without = |at: usize| rows[at][1].end().mean;
    // halfway between guessing and knowing
    let fails = |at: usize| without(at) > 0.9;
    format!(
        "\nThe document says: without the scaling the softmax saturates and gradients vanish.\n\
         \x20 {} that it saturates: at d = {WIDTH} the untrained first layer's entropy is {:.3} in place of {:.3}\n\
         \x20 {} that gradients vanish before training: the queries' and keys' is {:.2} times that with 1/√d;\n\
         \x20 the missing factor alone would make it {:.1} times\n\
         The document says: the layer stops learning; that is the reason wide models train at all.\n\
         \x20 {} at d = {WIDTH} in one block: {:.3} after {} updates, with 1/√d {:.3}; it creeps rather than stops\n\
         \x20 it grows with d: four heads of size 32 end at {:.3} without\n\
         \x20 {} with a second block: {:.3}; it is only later\n\
         \x20 {} when weights start at 0.02: {:.3}; scores are then small enough; after {} it stands at {:.3}, with 1/√d at {:.3}\n\
         So the root is needed for queries and keys of unit variance, as the arithmetic says. A small start hides it: this\n\
         program starts at 1/√width below width 256 and at 0.02 from there on (`model.init`).\n",
        verdict(bare.entropy(0) < 0.5 * wide.entropy(0)),
        bare.entropy(0),
        wide.entropy(0),
        verdict(bare.gradient() < 0.1 * wide.gradient()),
        bare.gradient() / wide.gradient(),
        (WIDTH as f64).sqrt(),
        verdict(fails(WIDE_AT)),
        bare.end().mean,
        STEPS[STEPS.len() - 1],
        wide.end().mean,
        without(NARROW_AT),
        verdict(fails(DEEPER_AT)),
        without(DEEPER_AT),
        verdict(fails(SMALLER_AT)),
        without(SMALLER_AT),
        STEPS[1],
        rows[SMALLER_AT][1].loss(1).mean,
        rows[SMALLER_AT][0].loss(1).mean,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_head_learns_only_with_the_division_unless_the_weights_start_small() {
        let runs = [(WIDE_AT, Scale::Sqrt), (WIDE_AT, Scale::None), (SMALLER_AT, Scale::None)];
        let found = each(&runs, |&(at, scale)| learn(CASES[at], scale, 1)).unwrap();
        let end = |at: usize| found[at].losses[STEPS.len() - 1];
        assert!(end(0) < 0.05 && end(1) > 1.0 && end(2) < 0.05, "{} {} {}", end(0), end(1), end(2));
        assert!(found[0].losses[0] > 1.7);
        assert!(found[1].entropy[0] < 0.5 * found[0].entropy[0]);
        assert!(found[2].entropy[0] > 0.9 && found[0].entropy[1] < found[0].entropy[0]);
        assert!(found.iter().all(|learned| learned.gradient > 0.0));
    }

    #[test]
    fn uniform_attention_has_entropy_one() {
        let settings = ModelSettings { layers: 1, heads: 2, width: 8, context: TIME, ..Default::default() };
        let config = ModelConfig::new(&settings, 6).unwrap();
        let unseen = Sequences::unseen(&Back(&NEEDED).draw(), 2, TIME);
        // zero queries and keys score all keys alike
        let found = entropy(&config, &Parameters::zeros(&config), &unseen).unwrap();
        assert!((found - 1.0).abs() < 1e-6, "{found}");
    }
}
