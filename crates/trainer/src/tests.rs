//! The loop as a whole: exact resume, PyTorch's loss curve, accumulation, faults.

use crate::testing::{dataset, small_config};
use crate::{
    EndReason, Event, Job, Objective, Observer, Outcome, Result, Sampling, Schedule, TrainSettings, Trainer,
};
use candle_core::Device;
use softdict_model::{ModelConfig, ModelSettings, Parameters};
use softdict_tokenizer::{Dataset, Tokenizer};
use std::path::Path;

#[derive(Default)]
struct Record(Vec<Event>);

impl Observer for Record {
    fn event(&mut self, event: &Event) -> Result<()> {
        self.0.push(event.clone());
        Ok(())
    }
}

impl Record {
    /// Steps and evaluations, without what a clock says.
    fn timeless(&self) -> Vec<Event> {
        let untimed = |event: &Event| match event.clone() {
            Event::Step { step, loss, learning_rate, grad_norm, tokens, .. } => {
                Some(Event::Step { step, loss, learning_rate, grad_norm, tokens, tokens_per_second: 0.0 })
            }
            told @ (Event::Eval { .. } | Event::Heads { .. }) => Some(told),
            _ => None,
        };
        self.0.iter().filter_map(untimed).collect()
    }
}

fn settings(steps: u64) -> TrainSettings {
    TrainSettings {
        steps,
        batch: 3,
        accumulate: 2,
        learning_rate: 3e-3,
        warmup_steps: 4,
        decay_steps: Some(20),
        schedule: Schedule::Cosine,
        eval_every: 6,
        log_every: 1,
        ..Default::default()
    }
}

fn dropout_config() -> ModelConfig {
    let settings = ModelSettings { dropout: 0.1, ..small_config().settings };
    ModelConfig::new(&settings, 64).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "what a probe returns")]
/// Something that the weights decide and that differs from step to step.
fn first_weights(
    parameters: &Parameters,
) -> std::result::Result<serde_json::Value, Box<dyn std::error::Error + Send + Sync>> {
    Ok(serde_json::json!(parameters.values()[..3]))
}

struct World {
    _data: tempfile::TempDir,
    dataset: Dataset,
    tokenizer: Tokenizer,
    run: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let (data, dataset, tokenizer) = dataset(700, 0.1);
        Self { _data: data, dataset, tokenizer, run: tempfile::tempdir().unwrap() }
    }

    fn job<'a>(&'a self, config: &'a ModelConfig, settings: &'a TrainSettings) -> Job<'a> {
        Job {
            fixed: serde_json::Value::Null,
            run: self.run.path(),
            config,
            settings,
            record: serde_json::Value::Null,
            dataset: &self.dataset,
            text_name: "a test",
            tokenizer: self.tokenizer.to_json(),
            mask: Some(config.vocab_size as u32 - 1),
            device: &Device::Cpu,
            probe: &first_weights,
        }
    }

    fn train(&self, config: &ModelConfig, settings: &TrainSettings) -> (Record, Result<Outcome>) {
        let mut record = Record::default();
        let outcome =
            Trainer::start(self.job(config, settings), None).and_then(|mut t| t.run(&mut record, &|| false));
        (record, outcome)
    }

    fn resume(&self, config: &ModelConfig, settings: &TrainSettings) -> (Record, Outcome) {
        let folder = softdict_checkpoint::resolve(self.run.path(), softdict_checkpoint::Which::Last).unwrap();
        let parameters = softdict_checkpoint::load(&folder).unwrap().parameters;
        let mut record = Record::default();
        let mut trainer = Trainer::resume(self.job(config, settings), parameters, &folder).unwrap();
        let outcome = trainer.run(&mut record, &|| false).unwrap();
        (record, outcome)
    }

    fn bytes(&self, step: u64) -> [Vec<u8>; 2] {
        let folder = self.run.path().join(softdict_checkpoint::step_folder(step));
        ["model.safetensors", "trainer.safetensors"].map(|file| std::fs::read(folder.join(file)).unwrap())
    }
}

#[test]
fn twenty_steps_equal_ten_and_a_resume_to_the_last_bit() {
    for sampling in [Sampling::Random, Sampling::Epoch] {
        let config = dropout_config();
        let whole = World::new();
        let long = TrainSettings { sampling, ..settings(20) };
        let (straight, outcome) = whole.train(&config, &long);
        assert_eq!(outcome.unwrap().reason, EndReason::Finished);

        let parts = World::new();
        let (mut first, _) = parts.train(&config, &TrainSettings { sampling, ..settings(10) });
        let (second, _) = parts.resume(&config, &long);
        // the shorter run evaluated its end, which the longer one does not
        first.0.retain(|event| !matches!(event, Event::Eval { step: 10, .. }));
        let joined: Vec<Event> = [first.timeless(), second.timeless()].concat();
        let steps = |events: &[Event]| -> Vec<Event> {
            events.iter().filter(|event| matches!(event, Event::Step { .. })).cloned().collect()
        };
        assert_eq!(steps(&joined), steps(&straight.timeless()));
        assert_eq!(parts.bytes(20)[0], whole.bytes(20)[0]);
    }
}

#[test]
fn a_run_that_was_stopped_goes_on_as_if_it_had_not_been() {
    let (config, settings) = (dropout_config(), TrainSettings { heads_every: Some(7), ..settings(14) });
    let whole = World::new();
    let (straight, _) = whole.train(&config, &settings);
    let stopped = World::new();
    let mut record = Record::default();
    let count = std::cell::Cell::new(0);
    let stop = || {
        count.set(count.get() + 1);
        count.get() > 7
    };
    let outcome =
        Trainer::start(stopped.job(&config, &settings), None).unwrap().run(&mut record, &stop).unwrap();
    assert_eq!((outcome.reason, outcome.step), (EndReason::Stopped, 7));
    let (rest, _) = stopped.resume(&config, &settings);
    assert_eq!([record.timeless(), rest.timeless()].concat(), straight.timeless());
    assert_eq!(stopped.bytes(14), whole.bytes(14));
    let lines = |world: &World| {
        let text = std::fs::read_to_string(world.run.path().join("metrics.jsonl")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Record(events).timeless()
    };
    assert_eq!(lines(&stopped), lines(&whole));
}

#[test]
fn eight_windows_at_once_equal_two_passes_of_four() {
    let config = small_config();
    let step = |batch, accumulate| {
        let world = World::new();
        let (record, _) = world.train(&config, &TrainSettings { batch, accumulate, ..settings(4) });
        let Event::Step { loss, grad_norm, tokens, .. } = record.timeless()[0].clone() else { panic!() };
        let parameters = softdict_checkpoint::load(&world.run.path().join("step-000004")).unwrap().parameters;
        (loss, grad_norm, tokens, parameters)
    };
    let (one, two) = (step(8, 1), step(4, 2));
    assert!((one.0 - two.0).abs() < 1e-5 * one.0 && (one.1 - two.1).abs() < 1e-5 * one.1);
    assert_eq!((one.2, two.2), (64, 64));
    // four AdamW steps, whose first divides small gradients by themselves
    let largest = one.3.values().iter().fold(0.0f32, |most, value| value.abs().max(most));
    for (a, b) in one.3.values().iter().zip(two.3.values()) {
        assert!((a - b).abs() < 1e-5 * largest, "{a} {b}, of {largest} at most");
    }
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_leaves_a_finite_checkpoint() {
    let config = small_config();
    let world = World::new();
    let wild = TrainSettings { learning_rate: 1e30, warmup_steps: 0, grad_clip: 0.0, ..settings(20) };
    let message = world.train(&config, &wild).1.unwrap_err().to_string();
    assert!(message.contains("step") && message.contains("train.learning_rate"), "{message}");
    let last = softdict_checkpoint::resolve(world.run.path(), softdict_checkpoint::Which::Last);
    if let Ok(folder) = last {
        assert!(softdict_checkpoint::load(&folder).unwrap().parameters.first_non_finite().is_none());
    }
}

#[test]
fn overfitting_keeps_the_best_and_patience_ends_the_run() {
    let config = small_config();
    let world = World::new();
    let eager = TrainSettings {
        learning_rate: 3e-2,
        min_learning_rate: Some(3e-2),
        steps: 400,
        decay_steps: None,
        eval_every: 5,
        patience: Some(3),
        ..settings(400)
    };
    let outcome = world.train(&config, &eager).1.unwrap();
    let best = outcome.best.unwrap();
    assert_eq!(outcome.reason, EndReason::Patience);
    assert_eq!(outcome.step, best.step + 15);
    assert!(best.val_loss <= outcome.last.unwrap().loss);
    let resolved = softdict_checkpoint::resolve(world.run.path(), softdict_checkpoint::Which::Best).unwrap();
    assert!(resolved.ends_with(softdict_checkpoint::step_folder(best.step)), "{resolved:?}");
    let progress = softdict_checkpoint::load(&resolved).unwrap().manifest.unwrap().progress;
    assert_eq!((progress.step, progress.val_loss), (best.step, Some(best.val_loss)));
}

#[test]
fn a_finished_run_resumes_to_nothing() {
    let (config, settings) = (small_config(), settings(6));
    let world = World::new();
    world.train(&config, &settings).1.unwrap();
    let before = world.bytes(6);
    let (record, outcome) = world.resume(&config, &settings);
    assert_eq!((outcome.step, outcome.reason), (6, EndReason::Finished));
    assert!(record.timeless().iter().all(|event| !matches!(event, Event::Step { .. })));
    assert_eq!(world.bytes(6), before);
}

#[test]
fn a_checkpoint_without_its_optimizer_is_not_resumed() {
    let (config, settings) = (small_config(), settings(6));
    let world = World::new();
    world.train(&config, &settings).1.unwrap();
    let folder = world.run.path().join("step-000006");
    std::fs::remove_file(folder.join("trainer.safetensors")).unwrap();
    let parameters = Parameters::initial(&config, 1);
    let error = Trainer::resume(world.job(&config, &settings), parameters, &folder).err().unwrap();
    assert!(error.to_string().contains("trainer.safetensors"), "{error}");
}

#[test]
fn another_text_is_not_resumed_on() {
    let (config, settings) = (small_config(), settings(6));
    let world = World::new();
    world.train(&config, &settings).1.unwrap();
    let mut other = World::new();
    other.dataset.record.text_sha256 = "0".repeat(64);
    let folder: &Path = &world.run.path().join("step-000006");
    let error = Trainer::resume(other.job(&config, &settings), Parameters::initial(&config, 1), folder);
    assert!(error.err().unwrap().to_string().contains("SHA-256"));
}

#[test]
fn a_text_without_validation_trains_without_evaluation() {
    let (_data, dataset, tokenizer) = dataset(100, 0.0);
    let run = tempfile::tempdir().unwrap();
    let world = World { _data: tempfile::tempdir().unwrap(), dataset, tokenizer, run };
    let (record, outcome) = world.train(&small_config(), &settings(6));
    let outcome = outcome.unwrap();
    assert!(outcome.best.is_none() && outcome.last.is_none());
    assert!(!record.0.iter().any(|event| matches!(event, Event::Eval { .. })));
}

#[test]
fn tokens_are_counted_and_the_rate_is_a_number() {
    let world = World::new();
    let (record, _) = world.train(&small_config(), &settings(3));
    let mut counted = 0;
    for event in &record.0 {
        if let Event::Step { tokens, tokens_per_second, .. } = event {
            counted += 3 * 2 * 8;
            assert_eq!(*tokens, counted);
            assert!(tokens_per_second.is_finite() && *tokens_per_second > 0.0);
        }
    }
    assert_eq!(counted, 144);
}

fn bidirectional() -> ModelConfig {
    let settings = ModelSettings { causal: false, ..small_config().settings };
    ModelConfig::new(&settings, 64).unwrap()
}

#[test]
fn an_objective_that_does_not_fit_the_mask_is_refused() {
    let (both_ways, masked) =
        (bidirectional(), TrainSettings { objective: Objective::Masked, ..settings(2) });
    let error = World::new().train(&both_ways, &settings(2)).1.unwrap_err().to_string();
    assert!(error.contains("model.causal = false") && error.contains("\"next\""), "{error}");
    let error = World::new().train(&small_config(), &masked).1.unwrap_err().to_string();
    assert!(error.contains("model.causal = true") && error.contains("\"masked\""), "{error}");
    let world = World::new();
    let job = Job { mask: None, ..world.job(&both_ways, &masked) };
    let error = Trainer::start(job, None).err().unwrap().to_string();
    assert!(error.contains("stands for a hidden token"), "{error}");
}

#[test]
fn hidden_tokens_are_learned_and_a_resumed_run_hides_the_same() {
    let config = bidirectional();
    let masked = |steps| TrainSettings {
        objective: Objective::Masked,
        learning_rate: 1e-2,
        batch: 32,
        decay_steps: Some(200),
        ..settings(steps)
    };
    let (whole, halves) = (World::new(), World::new());
    let (record, outcome) = whole.train(&config, &masked(200));
    halves.train(&config, &masked(90)).1.unwrap();
    halves.resume(&config, &masked(200));
    assert_eq!(halves.bytes(200), whole.bytes(200));
    let first = record.0.iter().find_map(|event| match event {
        Event::Step { loss, .. } => Some(*loss),
        _ => None,
    });
    // a text that repeats is told from its two sides
    let (first, last) = (first.unwrap(), outcome.unwrap().last.unwrap().loss);
    assert!(last < 0.3 * first, "{first} {last}");
    assert!(record.0.iter().all(|event| !matches!(event, Event::Eval { val_bits_per_byte: Some(_), .. })));
}

#[test]
fn heads_are_scored_before_the_first_step_whenever_they_are_due_and_at_the_end() {
    let (config, world) = (small_config(), World::new());
    let (record, _) = world.train(&config, &TrainSettings { heads_every: Some(4), ..settings(10) });
    let scored = record.0.iter().filter_map(|event| match event {
        Event::Heads { step, heads } => Some((*step, heads.clone())),
        _ => None,
    });
    let (steps, heads): (Vec<u64>, Vec<serde_json::Value>) = scored.unzip();
    assert_eq!(steps, [0, 4, 8, 10]);
    assert!(heads.windows(2).all(|pair| pair[0] != pair[1]), "{heads:?}");
    let (record, _) = World::new().train(&config, &settings(3));
    assert!(!record.0.iter().any(|event| matches!(event, Event::Heads { .. })));
    let failing =
        |_: &Parameters| -> std::result::Result<serde_json::Value, Box<dyn std::error::Error + Send + Sync>> {
            Err("no heads".into())
        };
    let (world, settings) = (World::new(), TrainSettings { heads_every: Some(1), ..settings(3) });
    let job = Job { probe: &failing, ..world.job(&config, &settings) };
    let error = Trainer::start(job, None).unwrap().run(&mut Record::default(), &|| false).unwrap_err();
    assert!(error.to_string().contains("train.heads_every"), "{error}");
}
