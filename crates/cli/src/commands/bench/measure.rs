//! The measurements: peaks of the machine, then the program's own work on random tokens.

use super::works::Work;
use anyhow::Context;
use serde::Serialize;
use softdict_kernels::adamw::global_norm;
use softdict_kernels::matmul::{Edge, Precision, View, matmul};
use softdict_kernels::{memory, parallel};
use softdict_model::cost::Cost;
use softdict_model::{Batch, Decoder, Engine, FusedEngine, Parameters};
use softdict_random::{Purpose, Stream};
use softdict_sampler::{Flow, SampleOptions, generate};
use softdict_trainer::{Dtype, Optimizer, TrainSettings};
use std::time::Instant;

/// Sides of the square products whose best rate is the peak.
const SIDES: [usize; 3] = [768, 1152, 1536];
/// Numbers that are read to measure memory: 512 MiB, above any cache.
const READ: usize = 128 << 20;
/// Steps that are not counted: the first makes the buffers.
const WARM_UP: usize = 3;
/// Seed of weights and tokens; what they are does not matter for speed.
const SEED: u64 = 1;

/// The best rates of this machine, with all threads.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Peaks {
    /// Products in f32, in 10⁹ operations a second.
    pub(crate) f32_gflops: f64,
    /// Products of bf16.
    pub(crate) bf16_gflops: f64,
    /// Reading memory, in 10⁹ bytes a second.
    pub(crate) memory_gb_per_second: f64,
}

impl Peaks {
    pub(crate) fn product(&self, dtype: Dtype) -> f64 {
        match dtype {
            Dtype::F32 => self.f32_gflops,
            Dtype::Bf16 => self.bf16_gflops,
        }
    }
}

/// Training of one work.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Training {
    pub(crate) work: &'static str,
    pub(crate) dtype: Dtype,
    /// Steps that were timed.
    pub(crate) steps: usize,
    /// Median of a step.
    pub(crate) milliseconds: f64,
    pub(crate) tokens_per_second: f64,
    /// The operations of [`Cost::training_flops`] in a second, in 10⁹.
    pub(crate) gflops: f64,
    /// Of the peak of products.
    pub(crate) share_of_peak: Option<f64>,
    /// The process's largest memory so far, where the system says.
    pub(crate) peak_mib: Option<f64>,
}

/// Sampling from one work's model.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sampling {
    pub(crate) work: &'static str,
    /// Samples that grow together.
    pub(crate) samples: usize,
    /// Of all samples together.
    pub(crate) tokens_per_second: f64,
    /// What reading the weights once a step takes of the time, at the peak of memory.
    pub(crate) share_of_peak: Option<f64>,
}

/// Rates of products and of memory, the best of a few tries each.
pub(crate) fn peaks() -> Peaks {
    Peaks {
        f32_gflops: product_rate(Precision::F32),
        bf16_gflops: product_rate(Precision::Bf16),
        memory_gb_per_second: read_rate(),
    }
}

pub(crate) fn product_rate(precision: Precision) -> f64 {
    let rate = |side: usize| {
        let (a, b) = (vec![0.5; side * side], vec![0.25; side * side]);
        let mut out = vec![0.0; side * side];
        let seconds = best(20, || {
            let (a, b) = (View::new(&a, side, side), View::new(&b, side, side));
            parallel::enter(|| matmul(&mut out, Edge { precision, ..Edge::default() }, a, b));
        });
        2.0 * (side as f64).powi(3) / seconds / 1e9
    };
    SIDES.into_iter().map(rate).fold(0.0, f64::max)
}

pub(crate) fn read_rate() -> f64 {
    let mut values = memory::zeros(READ);
    values.fill(1.0);
    let seconds = best(5, || {
        std::hint::black_box(parallel::enter(|| global_norm(&values)));
    });
    (READ * size_of::<f32>()) as f64 / seconds / 1e9
}

/// Seconds of the fastest of `tries` calls.
fn best(tries: usize, mut work: impl FnMut()) -> f64 {
    let mut seconds = || {
        let clock = Instant::now();
        work();
        clock.elapsed().as_secs_f64()
    };
    (0..tries).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Whole updates (forward, backward, clipping, AdamW) on random tokens, for about `seconds` and at least five.
pub(crate) fn training(
    work: Work,
    dtype: Dtype,
    seconds: f64,
    peaks: Option<&Peaks>,
) -> anyhow::Result<Training> {
    let config = work.config()?;
    let settings = TrainSettings { batch: work.batch, dtype, ..TrainSettings::default() };
    let mut engine = FusedEngine::with_precision(&config, dtype.precision())?;
    let mut parameters = Parameters::initial(&config, SEED);
    let mut optimizer = Optimizer::new(parameters.table());
    let mut gradient = memory::zeros(parameters.table().len());
    let mut random = Stream::new(SEED, Purpose::Data, 0);
    let tokens = work.tokens();
    let mut times = Vec::new();
    let clock = Instant::now();
    for step in 1.. {
        let ids: Vec<u32> = (0..=tokens).map(|_| random.below(config.vocab_size) as u32).collect();
        let batch = Batch { inputs: &ids[..tokens], targets: &ids[1..], time: config.context() };
        let begin = Instant::now();
        parallel::enter(|| {
            engine.accumulate(&parameters, batch, 1.0 / tokens as f32, None, &mut gradient)?;
            let norm = global_norm(&gradient);
            optimizer.update(&settings, step, settings.learning_rate, norm, &mut parameters, &mut gradient);
            softdict_model::Result::Ok(())
        })?;
        times.push(begin.elapsed().as_secs_f64());
        if times.len() >= WARM_UP + 5 && clock.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    times.drain(..WARM_UP);
    let (steps, time) = (times.len(), median(times));
    let gflops = Cost::new(&config).training_flops(work.batch, config.context()) as f64 / time / 1e9;
    Ok(Training {
        work: work.name,
        dtype,
        steps,
        milliseconds: time * 1e3,
        tokens_per_second: tokens as f64 / time,
        gflops,
        share_of_peak: peaks.map(|peaks| gflops / peaks.product(dtype)),
        peak_mib: peak_mib(),
    })
}

/// `samples` texts of as many tokens as the context holds, for about `seconds`.
pub(crate) fn sampling(
    work: Work,
    samples: usize,
    seconds: f64,
    peaks: Option<&Peaks>,
) -> anyhow::Result<Sampling> {
    let config = work.config()?;
    let parameters = Parameters::initial(&config, SEED);
    let mut reader = Decoder::new(&config, &parameters)?;
    let tokens = config.context() - 1;
    let options =
        SampleOptions { tokens, num_samples: samples, temperature: 1.0, ..SampleOptions::default() };
    let mut times = Vec::new();
    let clock = Instant::now();
    for seed in 0.. {
        let begin = Instant::now();
        generate(&mut reader, &[0], &options, seed, true, &mut |_, _| Flow::Continue).context("sampling")?;
        times.push(begin.elapsed().as_secs_f64());
        if times.len() >= WARM_UP + 3 && clock.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    times.drain(..WARM_UP);
    let steps_per_second = tokens as f64 / median(times);
    let bytes = (size_of::<f32>() * parameters.table().len()) as f64;
    Ok(Sampling {
        work: work.name,
        samples,
        tokens_per_second: steps_per_second * samples as f64,
        share_of_peak: peaks.map(|peaks| bytes * steps_per_second / (peaks.memory_gb_per_second * 1e9)),
    })
}

/// The largest memory this process has had, where the system says.
fn peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes / 1024.0)
}
