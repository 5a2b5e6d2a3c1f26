//! The training loop.

mod milestones;

use crate::data::Cursor;
use crate::error::{Result, TrainError};
use crate::evaluate::Evaluation;
use crate::events::{EndReason, Event, MetricsFile, Observer};
use crate::job::{Job, Outcome};
use crate::optimizer::Optimizer;
use crate::schedule::learning_rate;
use crate::settings::Dtype;
use crate::state::{State, first_difference};
use softdict_files::Place;
use softdict_kernels::adamw::global_norm;
use softdict_kernels::{memory, parallel};
use softdict_model::random::{Purpose, Stream};
use softdict_model::{Batch, ComposedEngine, DropoutPass, Engine, FusedEngine, Parameters};
use std::path::Path;
use std::time::{Duration, Instant};

/// A model in training.
pub struct Trainer<'a> {
    job: Job<'a>,
    engine: Box<dyn Engine>,
    cursor: Cursor<'a>,
    parameters: Parameters,
    optimizer: Optimizer,
    gradient: Vec<f32>,
    inputs: Vec<u32>,
    targets: Vec<u32>,
    state: State,
    saved: Option<u64>,
    last: Option<Evaluation>,
    pace: Pace,
    place: Place,
}

/// Time spent on updates since the last line of progress.
#[derive(Default)]
struct Pace {
    spent: Duration,
    tokens: u64,
}

impl<'a> Trainer<'a> {
    /// A run from its beginning; from the given weights, else from random ones.
    ///
    /// # Errors
    /// When the text is too short.
    pub fn start(job: Job<'a>, parameters: Option<Parameters>) -> Result<Self> {
        let parameters = parameters.unwrap_or_else(|| Parameters::initial(job.config, job.settings.seed));
        let optimizer = Optimizer::new(parameters.table());
        let state = State::new(&job.dataset.record.text_sha256, job.fixed.clone());
        Self::assemble(job, parameters, optimizer, state)
    }

    /// A run as the checkpoint in `folder` left it.
    ///
    /// # Errors
    /// When the checkpoint has no trainer's state, or belongs to another text.
    pub fn resume(job: Job<'a>, parameters: Parameters, folder: &Path) -> Result<Self> {
        let (tensors, json) = softdict_checkpoint::load_trainer(folder)?;
        let state = State::from_json(folder, json)?;
        let now = &job.dataset.record.text_sha256;
        if *now != state.text_sha256 {
            let (now, then) = (now.clone(), state.text_sha256);
            return Err(TrainError::Changed {
                key: format!("the content of {} (SHA-256)", job.text_name),
                now,
                then,
            });
        }
        if let Some([key, now, then]) = first_difference(&job.fixed, &state.settings) {
            return Err(TrainError::Changed { key, now, then });
        }
        let mut optimizer = Optimizer::new(parameters.table());
        for (name, into) in [("mean", &mut optimizer.mean), ("square", &mut optimizer.square)] {
            let found = tensors.iter().find(|(own, _)| own == name).map(|(_, values)| values.as_slice());
            match found {
                Some(values) if values.len() == into.len() => into.copy_from_slice(values),
                _ => {
                    let reason = format!("lacks {} values of the optimizer's {name}", into.len());
                    return Err(TrainError::State { path: folder.to_path_buf(), reason });
                }
            }
        }
        let saved = Some(state.step);
        let mut trainer = Self::assemble(job, parameters, optimizer, state)?;
        trainer.saved = saved;
        Ok(trainer)
    }

    fn assemble(job: Job<'a>, parameters: Parameters, optimizer: Optimizer, state: State) -> Result<Self> {
        let (settings, context) = (job.settings, job.config.context());
        job.check()?;
        let tokens = &job.dataset.train;
        let (sampling, seed) = (settings.sampling, settings.seed);
        let cursor = Cursor::new(tokens, job.text_name, context, sampling, seed, state.drawn)?;
        let engine: Box<dyn Engine> = if job.device.is_cpu() {
            Box::new(FusedEngine::with_precision(job.config, settings.dtype.precision())?)
        } else if settings.dtype == Dtype::Bf16 {
            return Err(TrainError::Conflict {
                first: "train.dtype = \"bf16\"".into(),
                second: "a device that is not the CPU".into(),
                reason: "products of bf16 are made on the CPU only",
            });
        } else {
            Box::new(ComposedEngine::new(job.config, job.device))
        };
        Ok(Self {
            place: Place::of(job.run).map_err(TrainError::io(job.run, "open"))?,
            gradient: memory::zeros(parameters.table().len()),
            inputs: vec![0; settings.batch * context],
            targets: vec![0; settings.batch * context],
            saved: None,
            last: None,
            pace: Pace::default(),
            job,
            engine,
            cursor,
            parameters,
            optimizer,
            state,
        })
    }

    /// Updates made so far.
    pub fn step(&self) -> u64 {
        self.state.step
    }

    /// The weights as they are.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Seconds that one update takes here, measured on the run's first windows without changing anything.
    ///
    /// # Errors
    /// When the model fails.
    pub fn seconds_per_step(&mut self) -> Result<f64> {
        let begin = self.cursor.drawn();
        self.cursor.fill(&mut self.inputs, &mut self.targets)?;
        self.cursor.seek(begin);
        let mut fastest = f64::INFINITY;
        // the first pass also makes the buffers
        for _ in 0..3 {
            let clock = Instant::now();
            let batch =
                Batch { inputs: &self.inputs, targets: &self.targets, time: self.job.config.context() };
            self.engine.accumulate(&self.parameters, batch, 0.0, None, &mut self.gradient)?;
            fastest = fastest.min(clock.elapsed().as_secs_f64());
        }
        self.gradient.fill(0.0);
        Ok(fastest * self.job.settings.accumulate as f64)
    }

    /// Trains until all steps are made, patience ends, or `stop` says so; the last checkpoint is then complete.
    ///
    /// # Errors
    /// When the loss is no longer a number, or a file cannot be written. What was saved before stays.
    pub fn run(&mut self, observer: &mut dyn Observer, stop: &dyn Fn() -> bool) -> Result<Outcome> {
        let clock = Instant::now();
        let mut metrics = MetricsFile::open(self.job.run, self.state.step, self.state.evaluated)?;
        let mut tell = |event: &Event| -> Result<()> {
            metrics.event(event)?;
            observer.event(event)
        };
        tell(&self.first_event())?;
        if self.state.step == 0 {
            self.score_heads(&mut tell)?;
        }
        let reason = loop {
            if self.evaluation_is_due() {
                self.evaluate(&mut tell)?;
            }
            if self.state.step >= self.job.settings.steps {
                break EndReason::Finished;
            }
            if self.job.settings.patience.is_some_and(|patience| self.state.since_best >= patience) {
                break EndReason::Patience;
            }
            if stop() {
                break EndReason::Stopped;
            }
            self.update(&mut tell)?;
            // before the checkpoint, so that who resumes from it finds this step's scores told
            let scored = self.score_heads(&mut tell);
            // written before it is evaluated, so that a failing evaluation loses nothing
            let is_due = self.state.step.is_multiple_of(self.job.settings.checkpoint_every());
            if is_due || self.is_last() || (scored.is_err() && self.parameters.first_non_finite().is_none()) {
                self.save(&mut tell)?;
            }
            scored?;
        };
        if self.saved != Some(self.state.step) {
            self.save(&mut tell)?;
        }
        let (step, best) = (self.state.step, self.state.best);
        tell(&Event::End {
            step,
            reason,
            best,
            spikes: self.state.spikes.count,
            seconds: clock.elapsed().as_secs_f64(),
        })?;
        Ok(Outcome { step, reason, best, last: self.last, spikes: self.state.spikes.count })
    }

    fn first_event(&self) -> Event {
        let device = format!("{:?}", self.job.device.location()).to_lowercase();
        let threads = rayon::current_num_threads();
        if self.state.step > 0 {
            return Event::Resume { step: self.state.step, device, threads };
        }
        let parameters = self.parameters.table().len();
        Event::Start { settings: self.job.record.clone(), parameters, device, threads }
    }

    /// Tells the heads' scores, where they are due.
    fn score_heads(&self, tell: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
        let step = self.state.step;
        if self.job.settings.heads_every.is_some_and(|every| step.is_multiple_of(every) || self.is_last()) {
            let heads = (self.job.probe)(&self.parameters).map_err(|source| TrainError::Probe { source })?;
            tell(&Event::Heads { step, heads })?;
        }
        Ok(())
    }

    fn is_last(&self) -> bool {
        self.state.step >= self.job.settings.steps
    }

    /// One update and what is told of it.
    fn update(&mut self, tell: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
        let clock = Instant::now();
        let step = self.state.step + 1;
        let tokens = self.job.settings.tokens_per_step(self.job.config.context()) as u64;
        let rate = learning_rate(self.job.settings, step);
        let (loss, norm) = parallel::enter(|| self.descend(step, rate))?;
        if !(loss.is_finite() && norm.is_finite()) {
            return Err(self.not_finite(step, loss, norm, tell));
        }
        self.state.step = step;
        self.state.tokens += tokens;
        self.state.drawn = self.cursor.drawn();
        self.state.loss_sum += loss;
        self.state.loss_count += 1;
        if let Some(expected) = self.state.spikes.take(loss) {
            tell(&Event::Spike { step, loss, expected })?;
        }
        self.pace.spent += clock.elapsed();
        self.pace.tokens += tokens;
        if step == 1 || step.is_multiple_of(self.job.settings.log_every) || self.is_last() {
            let tokens_per_second = self.pace.tokens as f64 / self.pace.spent.as_secs_f64().max(1e-9);
            self.pace = Pace::default();
            let (learning_rate, grad_norm, tokens) = (rate, norm, self.state.tokens);
            tell(&Event::Step { step, loss, learning_rate, grad_norm, tokens, tokens_per_second })?;
        }
        Ok(())
    }

    /// The gradients of all micro-batches, clipped, into AdamW; returns the mean loss and the gradient's norm. When one
    /// of them is no number, the weights stay as they were.
    fn descend(&mut self, step: u64, rate: f64) -> Result<(f64, f64)> {
        let (settings, context) = (self.job.settings, self.job.config.context());
        let masking = self.job.masking();
        let predicted = match masking {
            Some(masking) => settings.batch * settings.accumulate * masking.predicted(context),
            None => settings.tokens_per_step(context),
        };
        let mut loss = 0.0;
        for _ in 0..settings.accumulate {
            self.cursor.fill(&mut self.inputs, &mut self.targets)?;
            if let Some(masking) = masking {
                let mut stream = Stream::new(settings.seed, Purpose::Masking, self.state.passes);
                masking.hide(&mut self.inputs, &mut self.targets, context, &mut stream);
            }
            let batch = Batch { inputs: &self.inputs, targets: &self.targets, time: context };
            let dropout = DropoutPass { seed: settings.seed, pass: self.state.passes };
            let (scale, gradient) = (1.0 / predicted as f32, &mut self.gradient);
            loss += self.engine.accumulate(&self.parameters, batch, scale, Some(dropout), gradient)?;
            self.state.passes += 1;
        }
        let (loss, norm) = (loss / predicted as f64, global_norm(&self.gradient));
        if loss.is_finite() && norm.is_finite() {
            self.optimizer.update(settings, step, rate, norm, &mut self.parameters, &mut self.gradient);
        }
        Ok((loss, norm))
    }

    /// The error of an update that must not be made; the weights before it are kept if nothing else was.
    fn not_finite(
        &mut self,
        step: u64,
        loss: f64,
        norm: f64,
        tell: &mut dyn FnMut(&Event) -> Result<()>,
    ) -> TrainError {
        let table = self.parameters.table();
        let broken = |values: &[f32]| values.iter().any(|value| !value.is_finite());
        let tensor = table
            .iter()
            .find(|parameter| broken(&self.gradient[parameter.range()]))
            .map_or(String::new(), |parameter| format!(", first in the gradient of {}", parameter.name));
        if self.saved.is_none()
            && self.parameters.first_non_finite().is_none()
            && let Err(error) = self.save(tell)
        {
            return error;
        }
        let (what, value) = if loss.is_finite() { ("gradient norm", norm) } else { ("loss", loss) };
        let (kept, learning_rate) = (self.saved.unwrap_or(0), self.job.settings.learning_rate);
        TrainError::NotFinite { step, what, value, tensor, kept, learning_rate }
    }
}
