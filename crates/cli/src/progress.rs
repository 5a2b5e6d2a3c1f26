//! How a run looks while it goes on: a bar on a terminal, one plain line per interval elsewhere.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use softdict_trainer::{Event, Observer, Result};
use std::time::Instant;

/// Shows the events of a run on standard error.
pub(crate) struct Watch {
    steps: u64,
    bar: Option<ProgressBar>,
    begin: Option<(Instant, u64)>, // when the first update was seen, and its number
}

impl Watch {
    /// For a run of `steps` updates.
    pub(crate) fn new(steps: u64) -> Self {
        let bar = output::draws_progress().then(|| bar(steps, "{bar:16} {pos}/{len} {wide_msg}"));
        Self { steps, bar, begin: None }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::notice(line)),
            None => output::notice(line),
        }
    }

    /// Seconds left, by the pace so far, evaluations and checkpoints included.
    fn left(&mut self, step: u64) -> Option<f64> {
        let (begin, first) = *self.begin.get_or_insert_with(|| (Instant::now(), step));
        let done = step - first;
        let remaining = self.steps.saturating_sub(step);
        (done > 0).then(|| begin.elapsed().as_secs_f64() / done as f64 * remaining as f64)
    }
}

impl Observer for Watch {
    fn event(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Step { step, loss, learning_rate, grad_norm, tokens_per_second, .. } => {
                let left = self.left(*step).map_or("n/a".to_owned(), output::duration);
                let rate = output::grouped(*tokens_per_second as u64);
                if let Some(bar) = &self.bar {
                    bar.set_position(*step);
                    bar.set_message(format!("loss {loss:.4}  {rate} tokens/s  {left} left"));
                } else {
                    let steps = self.steps;
                    output::notice(format!(
                        "step {step}/{steps}  loss {loss:.4}  lr {learning_rate:.2e}  grad {grad_norm:.3}  {rate} tokens/s  {left} left"
                    ));
                }
            }
            Event::Eval { step, train_loss, val_loss, val_bits_per_byte, best } => {
                let train = train_loss
                    .map_or(String::new(), |loss| format!("  train {loss:.4} (mean since the last)"));
                let mark = if *best { "  (best so far)" } else { "" };
                let bits =
                    val_bits_per_byte.map_or(String::new(), |bits| format!("  {bits:.4} bits per byte"));
                self.say(&format!("eval at step {step}{train}  val {val_loss:.4}{bits}{mark}"));
            }
            Event::Spike { step, loss, expected } => {
                self.say(&format!(
                    "loss spike at step {step}: {loss:.4}, where about {expected:.4} was expected"
                ));
            }
            Event::End { .. } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
            Event::Start { .. } | Event::Resume { .. } | Event::Heads { .. } | Event::Checkpoint { .. } => {}
        }
        Ok(())
    }
}

/// A bar of `len` units in the one style of this program.
fn bar(len: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style.progress_chars("━╸ "))
}

/// A bar over passes through the model, on a terminal; nothing elsewhere.
pub(crate) struct Passes(Option<ProgressBar>);

impl Passes {
    /// `what` is being done.
    pub(crate) fn new(what: &'static str) -> Self {
        let template = "{msg:20} {bar:24} {pos}/{len} {eta} left";
        Self(output::draws_progress().then(|| bar(0, template).with_message(what)))
    }

    /// `done` of `total` passes are done.
    pub(crate) fn set(&mut self, done: usize, total: usize) {
        if let Some(bar) = &self.0 {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// A bar over the bytes of a text, on a terminal; nothing elsewhere.
pub(crate) struct Bytes(Option<ProgressBar>);

impl Bytes {
    /// `what` is being done.
    pub(crate) fn new(what: &'static str) -> Self {
        let template = "{msg:20} {bar:24} {bytes}/{total_bytes} {bytes_per_sec}";
        Self(output::draws_progress().then(|| bar(0, template).with_message(what)))
    }

    /// `done` of `total` bytes are done.
    pub(crate) fn set(&mut self, done: u64, total: u64) {
        if let Some(bar) = &self.0 {
            bar.set_length(total);
            bar.set_position(done);
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
