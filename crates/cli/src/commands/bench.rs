//! `softdict bench`: how fast this build is on this machine, as shares of what the machine can do.

mod measure;
mod works;

use crate::args::Bench;
use crate::{output, usage};
use measure::{Peaks, Sampling, Training, peaks, sampling, training};
use serde::Serialize;
use softdict_kernels::matmul::Precision;
use softdict_kernels::simd;
use softdict_trainer::Dtype;
use works::{WORKS, Work};

/// Seconds that a work is timed for when none is named, and when one is.
const SECONDS: f64 = 3.0;
const LONGER: f64 = 6.0;
/// Samples of the batch beside the single one.
const TOGETHER: usize = 8;

/// The rate of this machine's products in f32, in 10⁹ operations a second.
pub(crate) fn product_gflops() -> f64 {
    measure::product_rate(Precision::F32)
}

/// The rate of reading this machine's memory, in 10⁹ bytes a second.
pub(crate) fn memory_rate() -> f64 {
    measure::read_rate()
}

/// Everything that was measured.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    cpu: Option<String>,
    threads: usize,
    instructions: String,
    peaks: Option<Peaks>,
    training: Vec<Training>,
    sampling: Vec<Sampling>,
}

pub(crate) fn run(args: &Bench) -> anyhow::Result<()> {
    crate::machine::threads(args.threads)?;
    let report = if args.work.is_empty() { everything(args)? } else { some(args)? };
    if args.json {
        return output::text(&(serde_json::to_string_pretty(&report)? + "\n"));
    }
    output::text(&report.text())
}

impl Report {
    fn empty() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cpu: cpu_name(),
            threads: softdict_kernels::parallel::threads(),
            instructions: simd::level().to_string(),
            peaks: None,
            training: Vec::new(),
            sampling: Vec::new(),
        }
    }

    fn text(&self) -> String {
        let cpu = self.cpu.as_deref().unwrap_or("unknown CPU");
        let mut lines = vec![format!(
            "softdict {} on {cpu}, {} threads, {}",
            self.version, self.threads, self.instructions
        )];
        lines.push(String::new());
        if let Some(peaks) = &self.peaks {
            lines.push(format!("peak       products f32   {:7.1} GFLOP/s", peaks.f32_gflops));
            lines.push(format!("peak       products bf16  {:7.1} GFLOP/s", peaks.bf16_gflops));
            lines.push(format!("peak       reading memory {:7.1} GB/s", peaks.memory_gb_per_second));
        }
        lines.extend(self.training.iter().map(Training::line));
        lines.extend(self.sampling.iter().map(Sampling::line));
        lines.push(String::new());
        let timed = |work: &&Work| self.training.iter().any(|line| line.work == work.name);
        lines.extend(WORKS.iter().filter(timed).map(|work| format!("{}: {}", work.name, work.shape())));
        if self.peaks.is_some() {
            lines.push("Shares: of training, the rate of its products of that peak; of sampling, the time of reading".into());
            lines.push("every weight once for each token, at the memory's peak.".into());
        }
        if self.peaks.is_none() {
            lines.push("Without --work: the machine's peaks too, and everything as shares of them.".into());
        }
        lines.join("\n") + "\n"
    }
}

impl Training {
    fn line(&self) -> String {
        let dtype = if self.dtype == Dtype::F32 { "f32" } else { "bf16" };
        let tokens = output::grouped(self.tokens_per_second as u64);
        let Self { work, milliseconds, gflops, .. } = self;
        let share = share(self.share_of_peak);
        format!(
            "training   {work:7} {dtype:5} {milliseconds:9.2} ms a step {tokens:>9} tokens/s {gflops:7.1} GFLOP/s{share}"
        )
    }
}

impl Sampling {
    fn line(&self) -> String {
        let tokens = output::grouped(self.tokens_per_second as u64);
        let (Self { work, samples, .. }, share) = (self, share(self.share_of_peak));
        format!("sampling   {work:7} {samples} at once {tokens:>9} tokens/s{share}")
    }
}

fn share(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!(" {:5.0} % of peak", 100.0 * share))
}

/// Peaks, then training and sampling at A and B.
fn everything(args: &Bench) -> anyhow::Result<Report> {
    let peaks = peaks();
    let mut report = Report { peaks: Some(peaks), ..Report::empty() };
    for work in &WORKS[..2] {
        for dtype in dtypes(args) {
            report.training.push(training(*work, dtype, SECONDS, Some(&peaks))?);
        }
        for samples in [1, TOGETHER] {
            report.sampling.push(sampling(*work, samples, SECONDS / 3.0, Some(&peaks))?);
        }
    }
    Ok(report)
}

/// The works that were named, without the peaks.
fn some(args: &Bench) -> anyhow::Result<Report> {
    let mut report = Report::empty();
    for name in &args.work {
        let work = Work::named(name).ok_or_else(|| {
            let known = WORKS.map(|work| work.name).join(", ");
            usage(format!("--work {name}: it must be one of {known}"))
        })?;
        if args.sampling {
            report.sampling.push(sampling(work, args.samples.get(), LONGER / 2.0, None)?);
            continue;
        }
        for dtype in dtypes(args) {
            report.training.push(training(work, dtype, LONGER, None)?);
        }
    }
    Ok(report)
}

fn dtypes(args: &Bench) -> Vec<Dtype> {
    match args.dtype {
        Some(dtype) => vec![dtype.into()],
        None => vec![Dtype::F32, Dtype::Bf16],
    }
}

/// What the processor calls itself, where the system says.
fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
