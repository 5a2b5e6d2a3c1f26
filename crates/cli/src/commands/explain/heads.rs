//! Heads: one wide question or several narrow ones from the same budget, counted and trained.
//!
//! # Source
//! "Attention is a lookup table you learn", section "Why more than one head"; the deep dive, section 3.4.

use super::language::{Back, Tales};
use super::training::{Lesson, SEEDS, Sequences, Spread, each};
use super::verdict;
use candle_core::Device;
use softdict_model::cost::Cost;
use softdict_model::{ModelConfig, ModelSettings, Parameters, Transformer};
use std::fmt::Write;

const HEADS: [usize; 4] = [1, 2, 4, 8];
/// How many places back the symbols stand that an answer needs.
const NEEDED: [&[usize]; 3] = [&[3], &[2, 5], &[1, 3, 6]];
/// Symbols of a sequence.
const TIME: usize = 12;
/// Sequences that a loss is measured on, and that the heads' weights are averaged over.
const MEASURED: usize = 128;
const LOOKED_AT: usize = 16;

/// One block of width 32: the smallest in which eight heads still have four components each.
fn shape(heads: usize, answers: usize) -> anyhow::Result<ModelConfig> {
    let settings =
        ModelSettings { layers: 1, heads, width: 32, context: TIME, tied: false, ..Default::default() };
    Ok(ModelConfig::new(&settings, answers)?)
}

/// What one training of one block ends at.
struct Learned {
    loss: f64,
    /// Of each head: the mean weight on each place that the answer needs.
    weights: Vec<Vec<f64>>,
}

impl Learned {
    /// The weight on the place that is looked at least, from the head that looks at it most.
    fn worse_held(&self) -> f64 {
        let places = 0..self.weights.first().map_or(0, Vec::len);
        let most = |place: usize| self.weights.iter().map(|head| head[place]).fold(0.0, f64::max);
        places.map(most).fold(f64::INFINITY, f64::min)
    }
}

fn learn(needed: &[usize], heads: usize, seed: u64) -> anyhow::Result<Learned> {
    let back = Back(needed);
    let (config, draw) = (shape(heads, back.answers())?, back.draw());
    // where one and two places are learned well, and three by four heads
    let lesson = Lesson { config: &config, draw: &draw, batch: 16, steps: 300, rate: 1e-2, seed };
    let parameters = lesson.train(|_, _| Ok(()))?;
    let loss = Sequences::unseen(&draw, MEASURED, TIME).loss(&config, &parameters)?;
    Ok(Learned { loss, weights: weights(&config, &parameters, &back)? })
}

/// Of each head, the mean weight on each of the places needed, over all places that have an answer.
fn weights(config: &ModelConfig, parameters: &Parameters, back: &Back<'_>) -> anyhow::Result<Vec<Vec<f64>>> {
    let model = Transformer::new(config, parameters, &Device::Cpu)?;
    let heads: Vec<usize> = (0..config.heads).collect();
    let mut sums = vec![vec![0.0; back.0.len()]; config.heads];
    for ids in Sequences::unseen(&back.draw(), LOOKED_AT, TIME).inputs.chunks_exact(TIME) {
        let patterns = softdict_inspect::capture(&model, ids, &[0], &heads)?; // (1, H, T, T)
        for (pattern, sums) in patterns.chunks_exact(TIME * TIME).zip(&mut sums) {
            for (row, weights) in pattern.chunks_exact(TIME).enumerate().skip(back.first()) {
                for (sum, back) in sums.iter_mut().zip(back.0) {
                    *sum += f64::from(weights[row - back]);
                }
            }
        }
    }
    let rows = (LOOKED_AT * (TIME - back.first())) as f64;
    Ok(sums.into_iter().map(|head| head.into_iter().map(|sum| sum / rows).collect()).collect())
}

/// Losses over the tales, of every seed, with 1 head and with 4 of the same width.
fn tales() -> anyhow::Result<[Spread; 2]> {
    let (read, unseen) = (Tales::new(1, 4000), Tales::new(2, 400));
    let (draw, measured) = (read.draw(), Sequences::unseen(&unseen.draw(), MEASURED, 16));
    let runs: Vec<(usize, u64)> =
        [1, 4].into_iter().flat_map(|heads| SEEDS.map(|seed| (heads, seed))).collect();
    let losses = each(&runs, |&(heads, seed)| {
        let settings = ModelSettings { layers: 2, heads, width: 32, context: 16, ..Default::default() };
        let config = ModelConfig::new(&settings, read.vocab_size)?;
        let lesson = Lesson { config: &config, draw: &draw, batch: 32, steps: 200, rate: 5e-3, seed };
        measured.loss(&config, &lesson.train(|_, _| Ok(()))?)
    })?;
    let [one, many] = [0, 1].map(|at| losses[at * SEEDS.len()..][..SEEDS.len()].iter().copied());
    Ok([Spread::of(one), Spread::of(many)])
}

/// Parameters, operations of a whole text, and scores of a layer, of a model of GPT-2's shape with so many heads.
fn budget(heads: usize) -> anyhow::Result<[u64; 3]> {
    let settings = ModelSettings { layers: 12, heads, width: 768, context: 1024, ..Default::default() };
    let cost = Cost::new(&ModelConfig::new(&settings, 50_257)?);
    let operations = 1024 * cost.linear_flops() + cost.attention_flops(1024);
    Ok([cost.parameters() as u64, operations, (heads * 1024 * 1024) as u64])
}

/// Every training of the first table: of each row, of each number of heads, of each seed.
fn all() -> anyhow::Result<Vec<Vec<Vec<Learned>>>> {
    let mut runs = Vec::new();
    for needed in NEEDED {
        runs.extend(HEADS.into_iter().flat_map(|heads| SEEDS.map(|seed| (needed, heads, seed))));
    }
    let mut learned = each(&runs, |&(needed, heads, seed)| learn(needed, heads, seed))?.into_iter();
    let row = |_| HEADS.map(|_| learned.by_ref().take(SEEDS.len()).collect()).into();
    Ok(NEEDED.iter().map(row).collect())
}

/// The losses of one cell.
fn spread(cell: &[Learned]) -> Spread {
    Spread::of(cell.iter().map(|learned| learned.loss))
}

/// Whether more heads did better than the seeds differ.
fn clearly_below(many: Spread, one: Spread) -> bool {
    many.high < one.low
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let mut text = String::from(
        "HEADS: one wide question, or several narrow ones from the same budget\n\n\
         A model of GPT-2's shape, width 768, reading 1,024 tokens:\n\n\
         \x20 heads  of size     parameters  operations (G)  scores of a layer\n",
    );
    let counted = [1, 2, 4, 8, 12];
    let budgets = counted.map(budget).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    for (heads, [parameters, operations, scores]) in counted.into_iter().zip(&budgets) {
        let (parameters, scores) = (crate::output::grouped(*parameters), crate::output::grouped(*scores));
        let giga = *operations as f64 / 1e9;
        writeln!(text, "  {heads:>5}  {:>7}  {parameters:>13}  {giga:>14.2}  {scores:>17}", 768 / heads)?;
    }
    let (learned, tales) = (all()?, tales()?);
    write!(
        text,
        "\nTrained: one block of width 32 reads random symbols; each answer is the symbols so many places back. Loss on unseen\n\
         sequences after 300 updates, in nats an answer, mean of {} seeds (lowest to highest):\n\n\
         \x20 places back  parameters  guessing  {}\n",
        SEEDS.len(),
        HEADS.map(|heads| format!("{:>20}", format!("heads: {heads}"))).join("  "),
    )?;
    for (needed, row) in NEEDED.into_iter().zip(&learned) {
        let named = needed.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let count = Cost::new(&shape(1, Back(needed).answers())?).parameters();
        let cells: Vec<String> = row.iter().map(|cell| format!("{:>20}", spread(cell))).collect();
        let guessing = (Back(needed).answers() as f64).ln();
        let count = crate::output::grouped(count as u64);
        writeln!(text, "  {named:<11}  {count:>10}  {guessing:>8.2}  {}", cells.join("  "))?;
    }
    text += &looks(&learned[1])?;
    let [one, many] = tales;
    writeln!(
        text,
        "\nThe tales, two blocks of width 32, 200 updates: 1 head {one}, 4 heads {many}.\n\n{}",
        claims(&budgets, &learned, tales)
    )?;
    Ok(text)
}

/// Where the heads look that need two places: of one head, and of two.
fn looks(row: &[Vec<Learned>]) -> anyhow::Result<String> {
    let mut text = String::from(
        "\nWhere they look when 2 and 5 places back are needed, mean weight on the one + on the other:\n\n\
         \x20 seed   the only head      first of two     second of two\n",
    );
    for ((seed, one), two) in SEEDS.iter().zip(&row[0]).zip(&row[1]) {
        write!(text, "  {seed:>4}")?;
        for head in one.weights.iter().chain(&two.weights) {
            let shown: Vec<String> = head.iter().map(|weight| format!("{weight:.2}")).collect();
            write!(text, "   {:>13}", shown.join(" + "))?;
        }
        text.push('\n');
    }
    Ok(text)
}

/// What the documents say, and what was found.
fn claims(budgets: &[[u64; 3]], learned: &[Vec<Vec<Learned>>], tales: [Spread; 2]) -> String {
    let same = budgets.iter().all(|budget| budget[..2] == budgets[0][..2]);
    let held = |column: usize| Spread::of(learned[1][column].iter().map(Learned::worse_held));
    let at = |row: usize, column: usize| spread(&learned[row][column]);
    let several = (1..3).all(|row| clearly_below(at(row, 2), at(row, 0)));
    let [one, many] = tales;
    format!(
        "The document says: the parameter count is unchanged.\n\
         \x20 {}, and the operations of all products too; what grows is the scores that softmax goes over, as many times as heads\n\
         The document says: a single softmax cannot hold several sharp distributions, it has to compromise.\n\
         \x20 {}: of two places needed, the one that is looked at less gets {:.2} from the only head, and {:.2} from one of four.\n\
         \x20 An average of two symbols tells which is which only by how much there is of each: {:.2} nats, with four heads {:.2}\n\
         The document says: different heads can attend to different things.\n\
         \x20 they can, and do not always: of {} trainings of two heads {} give each place more than half of one head's weight\n\
         The document says: the same budget on narrow questions is the better trade almost everywhere.\n\
         \x20 {} where an answer needs several places: 4 heads end at {:.2} and {:.2}, 1 head at {:.2} and {:.2}; more\n\
         \x20 heads than places help too: 2 heads end at {:.2} where two places are needed\n\
         \x20 {} where it needs one place: both know it, 1 head ends at {:.4}, 8 heads of four components at {:.4}\n\
         \x20 {} on the tales in so short a training: 4 heads differ by {:+.3} from 1, seeds of 1 head by {:.3}",
        verdict(same),
        verdict(clearly_below(held(0), held(2))),
        held(0).mean,
        held(2).mean,
        at(1, 0).mean,
        at(1, 2).mean,
        SEEDS.len(),
        learned[1][1].iter().filter(|run| run.worse_held() > 0.5).count(),
        verdict(several),
        at(1, 2).mean,
        at(2, 2).mean,
        at(1, 0).mean,
        at(2, 0).mean,
        at(1, 1).mean,
        verdict(clearly_below(at(0, 3), at(0, 0))),
        at(0, 0).mean,
        at(0, 3).mean,
        verdict(clearly_below(many, one)),
        many.mean - one.mean,
        one.high - one.low,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_cost_no_parameters_and_no_products_but_scores() {
        let (one, twelve) = (budget(1).unwrap(), budget(12).unwrap());
        assert_eq!(one[..2], twelve[..2]);
        assert_eq!(12 * one[2], twelve[2]);
        for needed in NEEDED {
            let answers = Back(needed).answers();
            let counts = HEADS.map(|heads| Cost::new(&shape(heads, answers).unwrap()).parameters());
            assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        }
    }

    #[test]
    fn a_place_is_held_as_well_as_by_the_head_that_looks_at_it_most() {
        let held = |weights: &[[f64; 2]]| {
            let weights = weights.iter().map(|head| head.to_vec()).collect();
            Learned { loss: 0.0, weights }.worse_held()
        };
        let close = |found: f64, expected: f64| (found - expected).abs() < 1e-12;
        assert!(close(held(&[[0.3, 0.6]]), 0.3));
        assert!(close(held(&[[0.2, 0.8], [0.7, 0.1]]), 0.7));
        // two heads at one place leave the other
        assert!(close(held(&[[0.1, 0.7], [0.2, 0.6]]), 0.2));
    }

    #[test]
    fn one_head_averages_two_places_where_each_of_four_heads_may_take_one() {
        let runs = each(&[1, 4], |&heads| learn(NEEDED[1], heads, 1)).unwrap();
        let [one, four] = [&runs[0], &runs[1]];
        // ln 6 is what knowing one of the two symbols leaves
        assert!((0.6..6f64.ln()).contains(&one.loss) && four.loss < 0.3, "{} {}", one.loss, four.loss);
        assert!(one.weights[0].iter().sum::<f64>() > 0.6, "{:?}", one.weights);
        assert!(one.worse_held() < 0.4 && four.worse_held() > 0.5, "{:?} {:?}", one.weights, four.weights);
    }
}
