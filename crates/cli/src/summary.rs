//! What a run will be, said before its first step.

use crate::machine::{available_memory, device_name};
use crate::output::{bytes, duration, grouped, notice};
use crate::settings::Settings;
use candle_core::Device;
use softdict_checkpoint::Family;
use softdict_model::cost::Cost;
use softdict_model::{ModelConfig, ParameterTable};
use softdict_tokenizer::Dataset;
use softdict_trainer::is_evaluated;
use std::fmt::Write;

/// What the summary needs to know.
pub(crate) struct Plan<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) config: &'a ModelConfig,
    pub(crate) dataset: &'a Dataset,
    pub(crate) device: &'a Device,
    /// Updates that were made before.
    pub(crate) done: u64,
}

/// Foresees what training needs; with `force`, what does not fit is only said.
///
/// # Errors
/// When training needs more memory than there is.
pub(crate) fn check_memory(
    settings: &Settings,
    config: &ModelConfig,
    device: &Device,
    force: bool,
) -> anyhow::Result<()> {
    let Some(available) = available_memory().filter(|_| device.is_cpu()) else { return Ok(()) };
    let (batch, context) = (settings.train.batch, config.context());
    let needed = memory(batch, config);
    if needed > available {
        let problem =
            format!("training needs about {}, and {} of memory are free", bytes(needed), bytes(available));
        if force {
            notice(format!("{problem}: going on, as --force says"));
            return Ok(());
        }
        anyhow::bail!(
            "{problem}: lower train.batch (now {batch}), model.context ({context}), model.width ({}) or model.layers ({}), or go on with --force",
            config.width(),
            config.layers()
        );
    }
    Ok(())
}

fn memory(batch: usize, config: &ModelConfig) -> u64 {
    Cost::new(config).training_bytes(batch, config.context())
}

impl Plan<'_> {
    /// The summary, given the seconds that one update takes.
    pub(crate) fn text(&self, seconds_per_step: f64) -> String {
        let (config, train, record) = (self.config, &self.settings.train, &self.dataset.record);
        let cost = Cost::new(config);
        let table = ParameterTable::new(config);
        let parameters = cost.parameters() as u64;
        let parts: Vec<String> = cost
            .parameters_by_part()
            .into_iter()
            .map(|(part, count)| format!("{} {}", part.name(), grouped(count as u64)))
            .collect();
        let (decayed, kept) = table.decay_groups();
        let step_tokens = train.tokens_per_step(config.context()) as u64;
        let left = train.steps.saturating_sub(self.done);
        let epochs = (train.steps * step_tokens) as f64 / record.train.tokens.max(1) as f64;
        let flops = train.accumulate as f64 * cost.training_flops(train.batch, config.context()) as f64;
        let evaluates = is_evaluated(&self.dataset.val, config.context());
        let evaluations = if evaluates { left.div_ceil(train.eval_every) as f64 } else { 0.0 };
        let evaluated = train.eval_tokens.unwrap_or(record.val.tokens).min(record.val.tokens) as f64;
        // an evaluation is the forward third of an update
        let seconds = seconds_per_step * (left as f64 + evaluations * evaluated / step_tokens as f64 / 3.0);
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<11} {value}");
        };
        line(
            "model",
            format!(
                "{} layers, {} heads, width {}, context {}, vocabulary {}",
                config.layers(),
                config.heads,
                config.width(),
                config.context(),
                grouped(config.vocab_size as u64)
            ),
        );
        line("parameters", format!("{} = {}", grouped(parameters), parts.join(" + ")));
        line(
            "decay",
            format!(
                "{} parameters in matrices decay by {}, {} in biases and norms do not",
                grouped(decayed as u64),
                train.weight_decay,
                grouped(kept as u64)
            ),
        );
        line(
            "text",
            format!(
                "{} training tokens ({:.1} per parameter), {} for validation",
                grouped(record.train.tokens as u64),
                record.train.tokens as f64 / parameters as f64,
                grouped(record.val.tokens as u64)
            ),
        );
        if !evaluates {
            line(
                "validation",
                format!(
                    "off: data.val_fraction = {} leaves {} tokens, and a window has {}; so no best checkpoint is chosen",
                    self.settings.data.val_fraction,
                    grouped(record.val.tokens as u64),
                    grouped(config.context() as u64 + 1)
                ),
            );
        }
        line(
            "training",
            format!(
                "{} steps of {} tokens, {epochs:.1} times through the text",
                grouped(train.steps),
                grouped(step_tokens)
            ),
        );
        if train.warmup_steps > train.steps {
            let (warmup, steps) = (train.warmup_steps, train.steps);
            let note = format!(
                "warm-up (train.warmup_steps = {warmup}) is longer than the run of {steps} steps: the learning rate never reaches its peak"
            );
            line("", note);
        }
        line("device", device_name(self.device));
        line("memory", format!("about {}", bytes(memory(train.batch, config))));
        line(
            "time",
            format!(
                "{}{} ({} tokens/s, {:.1} GFLOP/s, measured)",
                if seconds < 0.5 { "" } else { "about " },
                duration(seconds),
                grouped((step_tokens as f64 / seconds_per_step) as u64),
                flops / seconds_per_step / 1e9
            ),
        );
        line("format", Family::note(config));
        text.trim_end().to_owned()
    }
}
