//! Short trainings for the topics that are about learning: the same losses every time, on any number of cores.

use softdict_kernels::adamw::global_norm;
use softdict_kernels::cross_entropy::IGNORE;
use softdict_kernels::parallel;
use softdict_model::{Batch, Engine, FusedEngine, ModelConfig, Parameters};
use softdict_random::{Purpose, Stream};
use softdict_trainer::{Optimizer, TrainSettings, learning_rate};
use std::fmt;
use std::ops::Range;

/// Draws one sequence: what is read, and what is to be predicted at each place.
pub(super) type Draw<'a> = dyn Fn(&mut Stream, &mut [u32], &mut [u32]) + Sync + 'a;

/// Every training is made this often, for one alone says little about the next.
pub(super) const SEEDS: [u64; 3] = [1, 2, 3];

/// One short training; what is not here is the trainer's default.
pub(super) struct Lesson<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) draw: &'a Draw<'a>,
    /// Sequences of one update.
    pub(super) batch: usize,
    pub(super) steps: u64,
    /// Peak of the learning rate.
    pub(super) rate: f64,
    /// Of the initial weights and of the sequences.
    pub(super) seed: u64,
}

impl Lesson<'_> {
    /// Trains from the beginning, and shows `watch` how many updates were made and the weights, also before the first.
    ///
    /// # Errors
    /// When the model or `watch` fails.
    pub(super) fn train(
        &self,
        mut watch: impl FnMut(u64, &Parameters) -> anyhow::Result<()>,
    ) -> anyhow::Result<Parameters> {
        let settings = TrainSettings {
            steps: self.steps,
            warmup_steps: self.steps / 10,
            learning_rate: self.rate,
            ..Default::default()
        };
        let mut engine = FusedEngine::new(self.config)?;
        let mut parameters = Parameters::initial(self.config, self.seed);
        let mut optimizer = Optimizer::new(parameters.table());
        let mut gradient = vec![0.0; parameters.table().len()];
        let mut stream = Stream::new(self.seed, Purpose::Data, 0);
        watch(0, &parameters)?;
        for step in 1..=self.steps {
            let drawn = Sequences::draw(&mut stream, self.draw, self.batch, self.config.context());
            let scale = 1.0 / drawn.counted() as f32;
            engine.accumulate(&parameters, drawn.batch(), scale, None, &mut gradient)?;
            let (rate, norm) = (learning_rate(&settings, step), global_norm(&gradient));
            optimizer.update(&settings, step, rate, norm, &mut parameters, &mut gradient);
            watch(step, &parameters)?;
        }
        Ok(parameters)
    }
}

/// Sequences of equal length, and what is to be predicted at each of their places.
pub(super) struct Sequences {
    pub(super) inputs: Vec<u32>,
    pub(super) targets: Vec<u32>,
    pub(super) time: usize,
}

impl Sequences {
    fn draw(stream: &mut Stream, draw: &Draw<'_>, count: usize, time: usize) -> Self {
        let (mut inputs, mut targets) = (vec![0; count * time], vec![0; count * time]);
        for (inputs, targets) in inputs.chunks_exact_mut(time).zip(targets.chunks_exact_mut(time)) {
            draw(stream, inputs, targets);
        }
        Self { inputs, targets, time }
    }

    /// `count` sequences of `time` tokens to measure on: no training draws from their stream.
    pub(super) fn unseen(draw: &Draw<'_>, count: usize, time: usize) -> Self {
        Self::draw(&mut Stream::new(0, Purpose::Data, 1), draw, count, time)
    }

    /// The same, of which only the predictions at `places` count.
    pub(super) fn only(&self, places: &Range<usize>) -> Self {
        let kept = |(place, &target)| if places.contains(&(place % self.time)) { target } else { IGNORE };
        let targets = self.targets.iter().enumerate().map(kept).collect();
        Self { inputs: self.inputs.clone(), targets, time: self.time }
    }

    /// The same, of which only the first `time` tokens are read.
    pub(super) fn beginning(&self, time: usize) -> Self {
        let cut =
            |tokens: &[u32]| tokens.chunks_exact(self.time).flat_map(|all| &all[..time]).copied().collect();
        Self { inputs: cut(&self.inputs), targets: cut(&self.targets), time }
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        Batch { inputs: &self.inputs, targets: &self.targets, time: self.time }
    }

    /// Predictions that count, at least 1 so that a mean of nothing is 0.
    pub(super) fn counted(&self) -> usize {
        self.targets.iter().filter(|&&target| target != IGNORE).count().max(1)
    }

    /// The mean loss in nats of a prediction that counts.
    ///
    /// # Errors
    /// When the sequences are longer than the context.
    pub(super) fn loss(&self, config: &ModelConfig, parameters: &Parameters) -> anyhow::Result<f64> {
        Ok(FusedEngine::new(config)?.loss(parameters, self.batch())? / self.counted() as f64)
    }
}

/// `work` for each of `items`, in their order, each on one thread: then no sum depends on how many cores there are.
///
/// # Errors
/// The first of the works'.
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> anyhow::Result<R> + Sync + Send,
) -> anyhow::Result<Vec<R>> {
    let alone = |item| rayon::ThreadPoolBuilder::new().num_threads(1).build()?.install(|| work(item));
    parallel::map(items.iter(), alone).into_iter().collect()
}

/// What the seeds found of one thing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count().max(1) as f64;
        Self {
            mean: values.clone().sum::<f64>() / count,
            low: values.clone().fold(f64::INFINITY, f64::min),
            high: values.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{:.3} ({:.2} to {:.2})", self.mean, self.low, self.high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::explain::language::{Back, SYMBOLS};
    use softdict_model::ModelSettings;

    fn config() -> ModelConfig {
        let settings =
            ModelSettings { layers: 1, heads: 1, width: 16, context: 8, tied: false, ..Default::default() };
        ModelConfig::new(&settings, SYMBOLS).unwrap()
    }

    #[test]
    fn a_training_learns_and_repeats_to_the_last_bit_whatever_runs_beside_it() {
        let (config, back) = (config(), Back(&[1]));
        let draw = back.draw();
        let unseen = Sequences::unseen(&draw, 32, 8);
        let losses = each(&[7, 7, 8], |&seed| {
            let lesson = Lesson { config: &config, draw: &draw, batch: 16, steps: 60, rate: 1e-2, seed };
            let mut seen = Vec::new();
            lesson.train(|step, parameters| {
                if step % 60 == 0 {
                    seen.push(unseen.loss(&config, parameters)?.to_bits());
                }
                Ok(())
            })?;
            Ok(seen)
        })
        .unwrap();
        assert_eq!(losses[0], losses[1]);
        assert_ne!(losses[0], losses[2]);
        let [first, last] = [0, 1].map(|at| f64::from_bits(losses[0][at]));
        // what is one place back takes one head and little time: ln 6 = 1.79 without it
        assert!(first > 1.7 && last < 1.0, "{first} {last}");
    }

    #[test]
    fn losses_at_parts_of_the_places_average_to_the_loss_at_all() {
        let (config, back) = (config(), Back(&[2]));
        let unseen = Sequences::unseen(&back.draw(), 10, 8);
        let parameters = Parameters::initial(&config, 1);
        let sum = |places| {
            let part = unseen.only(&places);
            part.loss(&config, &parameters).unwrap() * part.counted() as f64
        };
        assert_eq!((unseen.counted(), unseen.only(&(0..5)).counted()), (60, 30));
        let whole = unseen.loss(&config, &parameters).unwrap();
        assert!(((sum(0..5) + sum(5..8)) / 60.0 - whole).abs() < 1e-6);
        // causal: what is not read later changes nothing earlier
        let short = unseen.beginning(5).loss(&config, &parameters).unwrap();
        assert!((short - sum(0..5) / 30.0).abs() < 1e-6);
    }

    #[test]
    fn a_spread_is_the_mean_between_the_extremes() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!(format!("{spread:>22}"), "  2.000 (1.00 to 3.00)");
    }
}
