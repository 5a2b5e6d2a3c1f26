//! What happens between updates: evaluations and checkpoints.

use super::Trainer;
use crate::error::{Result, TrainError};
use crate::evaluate::{evaluate, is_evaluated};
use crate::events::Event;
use softdict_checkpoint::{Contents, Progress, TrainerState, Which};
use softdict_model::Batch;

impl Trainer<'_> {
    pub(super) fn evaluation_is_due(&self) -> bool {
        let step = self.state.step;
        let due = step.is_multiple_of(self.job.settings.eval_every) || self.is_last();
        step > 0 && due && self.state.evaluated != Some(step)
    }

    pub(super) fn evaluate(&mut self, tell: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
        let settings = self.job.settings;
        let val = &self.job.dataset.val;
        let (engine, parameters, most) = (&mut self.engine, &self.parameters, settings.eval_tokens);
        let mut loss = |batch: Batch<'_>| engine.loss(parameters, batch);
        let context = self.job.config.context();
        let found = if is_evaluated(val, context) {
            evaluate(&mut loss, context, val, most, settings.batch, self.job.masking())?
        } else {
            None
        };
        let Some(found) = found else {
            self.state.evaluated = Some(self.state.step);
            return Ok(());
        };
        if !found.loss.is_finite() {
            let (step, kept) = (self.state.step, self.saved.unwrap_or(0));
            let learning_rate = settings.learning_rate;
            let (what, value, tensor) = ("validation loss", found.loss, String::new());
            return Err(TrainError::NotFinite { step, what, value, tensor, kept, learning_rate });
        }
        self.last = Some(found);
        let (step, train_loss) = (self.state.step, self.state.train_loss());
        let best = self.state.evaluated(found.loss);
        // a model that sees both sides of a token does not encode the text
        let is_code = self.job.masking().is_none();
        let val_bits_per_byte = is_code.then(|| found.bits_per_byte(self.job.dataset.record.val));
        tell(&Event::Eval { step, train_loss, val_loss: found.loss, val_bits_per_byte, best })?;
        if best && self.saved != Some(step) {
            self.save(tell)?;
        }
        let name = softdict_checkpoint::step_folder(step);
        self.check_place()?;
        if self.saved == Some(step) {
            let val_loss = Some(found.loss);
            let progress = Progress { step, tokens: self.state.tokens, train_loss, val_loss };
            softdict_checkpoint::annotate(&self.job.run.join(&name), progress)?;
        }
        if best {
            softdict_checkpoint::point(self.job.run, "best", &name)?;
        }
        Ok(())
    }

    /// A folder that was moved away must not come into being again half full, and what stands in its place is not ours.
    fn check_place(&self) -> Result<()> {
        self.place.check().map_err(TrainError::io(self.job.run, "go on in this folder, which was moved or replaced (what went along goes on from there by --resume)"))
    }

    /// Points to the best checkpoint again where that pointer was lost. Where the checkpoint is lost, the best from here on
    /// takes its place; returns its step.
    ///
    /// # Errors
    /// When the run's folder cannot be read or written.
    pub fn restore_best(&mut self) -> Result<Option<u64>> {
        let (run, Some(best)) = (self.job.run, self.state.best) else { return Ok(None) };
        if softdict_checkpoint::resolve(run, Which::Best).is_ok() {
            return Ok(None);
        }
        let pointer = run.join(Which::Best.name());
        if pointer.is_symlink() || pointer.is_file() {
            std::fs::remove_file(&pointer)
                .map_err(TrainError::io(&pointer, "remove the pointer that leads nowhere in"))?;
        }
        if softdict_checkpoint::list_steps(run)?.iter().any(|(step, _)| *step == best.step) {
            let name = softdict_checkpoint::step_folder(best.step);
            softdict_checkpoint::point(run, Which::Best.name(), &name)?;
            return Ok(None);
        }
        (self.state.best, self.state.since_best) = (None, 0);
        Ok(Some(best.step))
    }

    pub(super) fn save(&mut self, tell: &mut dyn FnMut(&Event) -> Result<()>) -> Result<()> {
        let (run, step) = (self.job.run, self.state.step);
        self.check_place()?;
        let name = softdict_checkpoint::step_folder(step);
        let state = serde_json::to_value(&self.state)
            .map_err(|error| TrainError::State { path: run.join(&name), reason: error.to_string() })?;
        let tensors = [("mean", &self.optimizer.mean), ("square", &self.optimizer.square)];
        let tensors = tensors.map(|(name, values)| (name.to_owned(), values.as_slice())).to_vec();
        let contents = Contents {
            config: self.job.config,
            parameters: &self.parameters,
            tokenizer: Some(self.job.tokenizer),
            // the validation loss is added when it is known
            progress: Progress {
                step,
                tokens: self.state.tokens,
                train_loss: self.state.train_loss(),
                val_loss: None,
            },
            trainer: Some(TrainerState { tensors, state }),
        };
        softdict_checkpoint::save(&run.join(&name), &contents)?;
        softdict_checkpoint::point(run, "last", &name)?;
        self.saved = Some(step);
        if self.job.settings.keep_checkpoints > 0 {
            softdict_checkpoint::prune(run, self.job.settings.keep_checkpoints)?;
        }
        tell(&Event::Checkpoint { step, path: name })
    }
}
