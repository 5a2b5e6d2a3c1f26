//! `train` and `eval`: the numbers of a run, what moves which weights, and that the same run is the same bytes.

use crate::support::{Lab, distance};
use std::collections::BTreeMap;

const MODEL: &str = "step-000020/model.safetensors";

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_does_not() {
    let lab = Lab::new();
    for (run, seed) in [("a", "7"), ("b", "7"), ("c", "8")] {
        lab.train(run, &["model.dropout=0.1"]).args(&["--seed", seed]).ok();
    }
    for file in [MODEL, "step-000020/trainer.safetensors", "settings.toml"] {
        assert_eq!(lab.read(&format!("a/{file}")), lab.read(&format!("b/{file}")), "{file}");
    }
    assert_eq!(lab.timeless("a"), lab.timeless("b"));
    assert_ne!(lab.read(&format!("a/{MODEL}")), lab.read(&format!("c/{MODEL}")));
}

#[test]
fn one_thread_and_two_differ_by_rounding_only() {
    let lab = Lab::new();
    for threads in ["1", "2"] {
        lab.train(threads, &["model.width=32", "model.layers=2"]).args(&["--threads", threads]).ok();
        assert_eq!(lab.events(threads, "start")[0]["threads"].to_string(), threads);
    }
    // sums in another order: some 1e-7 of each loss, over 20 steps
    assert!(distance(&lab.series("1", "loss"), &lab.series("2", "loss")) < 1e-5);
}

#[test]
fn the_settings_that_a_run_writes_reproduce_it() {
    let lab = Lab::trained(&["model.norm=rmsnorm", "train.seed=5", "train.schedule=wsd"]);
    lab.softdict(&["train", "text.txt", "--config", "run/settings.toml", "--out", "again"]).ok();
    assert_eq!(lab.read(&format!("run/{MODEL}")), lab.read(&format!("again/{MODEL}")));
    assert_eq!(lab.read("run/settings.toml"), lab.read("again/settings.toml"));
}

#[test]
fn metrics_have_the_documented_names_and_count_every_token() {
    let lab = Lab::trained(&["train.accumulate=2", "train.log_every=5", "train.checkpoint_every=10"]);
    let names = |event: &serde_json::Value, wanted: &[&str]| {
        for name in wanted {
            assert!(!event[name].is_null(), "{name} in {event}");
        }
    };
    names(&lab.events("run", "start")[0], &["settings", "parameters", "device", "threads"]);
    names(&lab.events("run", "checkpoint")[0], &["step", "path"]);
    names(&lab.events("run", "end")[0], &["step", "reason"]);
    let steps = lab.events("run", "step");
    let numbers: Vec<u64> = steps.iter().map(|event| event["step"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 5, 10, 15, 20]);
    for event in &steps {
        names(event, &["loss", "learning_rate", "grad_norm"]);
        // 4 sequences of 16 tokens, twice
        assert_eq!(event["tokens"].as_u64(), event["step"].as_u64().map(|step| step * 128));
        assert!(event["tokens_per_second"].as_f64().unwrap() > 0.0);
    }
    // the seconds that the rates stand for are some of the run's
    let seconds: f64 = steps
        .iter()
        .scan(0.0, |before, event| {
            let tokens = event["tokens"].as_f64().unwrap();
            Some((tokens - std::mem::replace(before, tokens)) / event["tokens_per_second"].as_f64().unwrap())
        })
        .sum();
    assert!(seconds <= lab.events("run", "end")[0]["seconds"].as_f64().unwrap(), "{seconds}");
    let evals = lab.events("run", "eval");
    assert_eq!(evals.len(), 2);
    for event in &evals {
        names(event, &["step", "train_loss", "val_loss", "val_bits_per_byte"]);
        // a character is a byte here
        let bits = event["val_loss"].as_f64().unwrap() / std::f64::consts::LN_2;
        assert!((event["val_bits_per_byte"].as_f64().unwrap() - bits).abs() < 1e-9);
    }
    // no step learned yet: the loss of a model that knows nothing is near ln V
    let vocabulary = lab.tensors(&format!("run/{MODEL}"))["gpt_neox.embed_in.weight"].0[0] as f64;
    assert!((lab.series("run", "loss")[0] - vocabulary.ln()).abs() < 1.0);
}

#[test]
fn eight_windows_at_once_or_two_by_two_make_the_same_update() {
    let lab = Lab::new();
    let run = |name: &str, batch: &str, accumulate: &str| {
        let (batch, accumulate) = (format!("train.batch={batch}"), format!("train.accumulate={accumulate}"));
        lab.train(name, &[&batch, &accumulate, "train.steps=1", "train.warmup_steps=0"]).ok();
        let event = lab.events(name, "step").remove(0);
        assert_eq!(event["tokens"], 128);
        let numbers = ["loss", "grad_norm"].map(|name| event[name].as_f64().unwrap());
        (numbers, lab.tensors(&format!("{name}/step-000001/model.safetensors")))
    };
    let (whole, parts) = (run("whole", "8", "1"), run("parts", "2", "4"));
    for (a, b) in whole.0.iter().zip(&parts.0) {
        assert!((a - b).abs() <= 1e-5 * a, "{a} {b}");
    }
    for (name, (_, values)) in &whole.1 {
        let largest = values.iter().fold(0.0f32, |most, value| value.abs().max(most));
        for (a, b) in values.iter().zip(&parts.1[name].1) {
            assert!((a - b).abs() <= 1e-5 * largest, "{name}: {a} {b}, of {largest} at most");
        }
    }
}

#[test]
fn weight_decay_pulls_matrices_and_nothing_else() {
    let lab = Lab::new();
    let after_one_step = |name: &str, rate: &str, decay: &str| {
        let (rate, decay) = (format!("train.learning_rate={rate}"), format!("train.weight_decay={decay}"));
        let constant = ["train.steps=1", "train.warmup_steps=0", "train.schedule=constant"];
        lab.train(name, &[&constant[..], &[&rate, &decay]].concat()).ok();
        lab.tensors(&format!("{name}/step-000001/model.safetensors"))
    };
    // a rate that moves no f32: the weights before the step
    let before = after_one_step("before", "1e-30", "0");
    let (free, pulled) = (after_one_step("free", "1e-3", "0"), after_one_step("pulled", "1e-3", "10"));
    let (mut matrices, mut vectors) = (0, 0);
    for (name, (shape, values)) in &before {
        let is_matrix = shape.len() == 2;
        *(if is_matrix { &mut matrices } else { &mut vectors }) += values.len();
        let moved = values.iter().zip(&free[name].1).filter(|(before, after)| before != after).count();
        // a key's bias shifts all scores of a row alike without rotation, but here keys are rotated
        assert!(moved * 2 > values.len(), "{name}: one step moved {moved} of {}", values.len());
        for ((before, free), pulled) in values.iter().zip(&free[name].1).zip(&pulled[name].1) {
            if is_matrix {
                assert!((free - pulled - 1e-3 * 10.0 * before).abs() < 1e-6, "{name}: {free} {pulled}");
            } else {
                assert_eq!(free.to_bits(), pulled.to_bits(), "{name}");
            }
        }
    }
    // both sizes are said at the start, and they add up; the tied head counts once
    let stderr = lab.train("said", &[]).ok().stderr;
    let line = stderr.lines().find(|line| line.starts_with("decay ")).unwrap();
    let numbers: Vec<usize> = line
        .split_whitespace()
        .filter_map(|word| word.trim_end_matches(',').replace(',', "").parse().ok())
        .collect();
    assert!(numbers.contains(&matrices) && numbers.contains(&vectors), "{line}: {matrices}, {vectors}");
    assert_eq!(lab.events("said", "start")[0]["parameters"], matrices + vectors);
}

#[test]
fn the_learning_rate_keeps_within_its_bounds_at_every_edge() {
    let lab = Lab::new();
    for (warmup, steps) in [(0, 10), (10, 10), (10, 11), (1, 1), (10, 30)] {
        let run = format!("{warmup}-{steps}");
        let sets = [format!("train.warmup_steps={warmup}"), format!("train.steps={steps}")];
        lab.train(&run, &[&sets[0], &sets[1]]).ok();
        let rates = lab.series(&run, "learning_rate");
        assert_eq!(rates.len(), steps);
        assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 1e-3), "{rates:?}");
        if warmup > 0 {
            assert!((rates[warmup - 1] - 1e-3).abs() < 1e-15, "the peak is reached: {rates:?}");
        }
        if warmup < steps {
            assert!((rates[steps - 1] - 1e-4).abs() < 1e-15, "a tenth of the peak at the end: {rates:?}");
        }
    }
    // the first step of a warm-up moves the weights, too
    let first = |run: &str, rate: &str| {
        lab.train(run, &["train.warmup_steps=10", "train.steps=1", rate]).ok();
        lab.tensors(&format!("{run}/step-000001/model.safetensors"))
    };
    assert_ne!(first("moved", "train.learning_rate=1e-3"), first("still", "train.learning_rate=1e-30"));

    let long = lab.train("long", &["train.warmup_steps=20", "train.steps=10"]).ok();
    long.says(&["train.warmup_steps = 20", "run of 10 steps"]);
    assert!(lab.series("long", "learning_rate").iter().all(|rate| *rate > 0.0 && *rate <= 5e-4 + 1e-15));
}

#[test]
fn a_run_that_diverges_ends_with_the_step_a_hint_and_finite_weights() {
    for rate in ["1e6", "1e30"] {
        let lab = Lab::new();
        let rate = format!("train.learning_rate={rate}");
        let done = lab.train("run", &[&rate]).fails(1).says(&["train.learning_rate"]);
        let error = done.stderr.lines().find(|line| line.starts_with("error:")).unwrap();
        let (step, _) = error.strip_prefix("error: step ").unwrap().split_once(':').unwrap();
        let step: u64 = step.parse().unwrap();
        let logged = lab.events("run", "step");
        assert!(logged.iter().all(|event| event["loss"].is_number()), "{logged:?}");
        // nothing had been saved: the last weights that were numbers are
        let saved = lab.events("run", "checkpoint");
        assert_eq!(saved.last().unwrap()["step"], step - 1, "{error}");
        for (name, (_, values)) in lab.tensors("run/last/model.safetensors") {
            assert!(values.iter().all(|value| value.is_finite()), "{name}");
        }
    }
}

#[test]
fn what_a_diverged_run_leaves_still_samples() {
    let lab = Lab::new();
    // the third update of this rate is no number; what is on the disk was the last that was
    lab.train("run", &["train.learning_rate=1e6"]).fails(1);
    assert_eq!(lab.softdict(&["sample", "run", "--tokens", "10"]).ok().text().chars().count(), 1 + 10 + 1);
}

#[test]
fn the_hint_of_a_diverged_run_can_be_followed() {
    let lab = Lab::new();
    let done = lab.train("run", &["train.learning_rate=1e6"]).fails(1);
    let (_, hint) = done.stderr.split_once("Lower train.learning_rate").unwrap();
    // resuming under another rate is refused, so that is no advice
    lab.resume("run", &["train.learning_rate=1e-3"]).fails(1).says(&["train.learning_rate"]);
    assert!(!hint.contains("--resume") && hint.contains("--overwrite"), "{hint}");
    lab.train("run", &["train.learning_rate=1e-3"]).args(&["--overwrite"]).ok();
}

#[test]
fn dropout_is_on_in_training_and_off_everywhere_else() {
    let lab = Lab::new();
    let run = |name: &str, sets: &[&str]| lab.train(name, sets).ok();
    run("none", &[]);
    run("half", &["model.dropout=0.5"]);
    // an evaluation in between disturbs no random stream, and dropout is on again after it
    run("evaluated", &["model.dropout=0.5", "train.eval_every=3"]);
    let losses = |name: &str| lab.series(name, "loss");
    assert_ne!(losses("none"), losses("half"));
    assert_eq!(losses("half"), losses("evaluated"));

    let twice = |args: &[&str]| {
        let (first, second) = (lab.softdict(args).ok().stdout, lab.softdict(args).ok().stdout);
        assert_eq!(first, second, "{args:?}");
    };
    twice(&["eval", "half", "--json"]);
    twice(&["attention", "half", "--prompt", "the cat", "--format", "json"]);
    let shown = lab.softdict(&["attention", "half", "--prompt", "the cat", "--format", "json"]).ok().json();
    for head in shown["attention"][0].as_array().unwrap() {
        for row in head.as_array().unwrap() {
            let sum: f64 = row.as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap()).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{row}");
        }
    }
    twice(&["sample", "half", "--temperature", "0", "--tokens", "40"]);

    // the same weights under another dropout: a rate that moves nothing keeps them
    let kept = ["train.steps=1", "train.warmup_steps=0", "train.learning_rate=1e-30", "model.dropout=0.9"];
    lab.softdict(&["train", "text.txt", "--from", "half", "--out", "kept"]).set(&kept).ok();
    let loss = |name: &str| lab.softdict(&["eval", name, "--json"]).ok().json()["loss"].clone();
    assert_eq!(loss("half"), loss("kept"));
}

#[test]
fn eval_finds_the_loss_of_the_run_whatever_the_batch() {
    let lab = Lab::trained(&[]);
    let recorded = lab.events("run", "eval")[1]["val_loss"].as_f64().unwrap();
    let eval = |args: &[&str]| lab.softdict(&[&["eval", "run", "--json"], args].concat()).ok().json();
    for batch in ["1", "5", "64"] {
        let found = eval(&["--batch", batch]);
        assert!((found["loss"].as_f64().unwrap() - recorded).abs() < 1e-6, "{found} {recorded}");
    }
    let parts: BTreeMap<&str, serde_json::Value> =
        ["val", "train", "all"].map(|split| (split, eval(&["--split", split]))).into();
    let number = |split: &str, name: &str| parts[split][name].as_f64().unwrap();
    assert_eq!(number("train", "tokens") + number("val", "tokens"), number("all", "tokens"));
    let nats = |split: &str| number(split, "loss") * number(split, "tokens");
    assert!((nats("train") + nats("val") - nats("all")).abs() < 1e-6 * nats("all"));
    assert!((number("val", "loss").exp() - number("val", "perplexity")).abs() < 1e-9);

    // the text itself, given as another one: all of it
    let given = lab.softdict(&["eval", "run", "text.txt", "--json"]).ok().json();
    assert_eq!(given["tokens"].as_u64().unwrap() as usize, lab.read("text.txt").len() - 1);
}

#[test]
fn a_validation_split_below_a_window_chooses_no_best_checkpoint_and_is_said_to_be_off() {
    let lab = Lab::with(&crate::support::story(7)[..400]);
    let off = ["off: data.val_fraction = 0.1 leaves 40 tokens, and a window has 65"];
    lab.train("short", &["model.context=64"]).ok().says(&off);
    assert!(lab.events("short", "eval").is_empty() && !lab.has("short/best"));
    // asked for, it is evaluated all the same: 40 characters, of which the first is predicted by nothing
    assert_eq!(lab.softdict(&["eval", "short", "--json"]).ok().json()["tokens"], 39);
    // 40 tokens are a window of 39 and the token after it
    let done = lab.train("enough", &["model.context=39"]).ok();
    assert!(lab.has("enough/best") && !done.stderr.contains("off: data.val_fraction"), "{}", done.stderr);

    lab.train("none", &["data.val_fraction=0"]).ok().says(&["off: data.val_fraction = 0 leaves 0 tokens"]);
    assert!(lab.events("none", "eval").is_empty() && !lab.has("none/best"));
    lab.softdict(&["sample", "none", "--tokens", "3"]).ok().says(&["last"]);
    lab.softdict(&["eval", "none"]).fails(1).says(&["data.val_fraction", "--split train"]);
}

#[test]
fn without_a_text_the_tales_are_learned_and_runs_are_named_after_their_text() {
    let lab = Lab::new();
    let tiny = ["train.steps=2", "train.warmup_steps=1", "train.batch=2", "train.eval_tokens=200"];
    lab.softdict(&["train"]).set(&tiny).ok();
    assert!(lab.has("checkpoints/tales/last/model.safetensors"));
    let prompt = "table paris japan , tokyo cuba ; tokyo";
    let done = lab.softdict(&["sample", "checkpoints/tales", "--tokens", "1", "--prompt", prompt]).ok();
    assert!(done.text().starts_with(prompt));
    std::fs::rename(lab.path("text.txt"), lab.path("my text.md")).unwrap();
    lab.softdict(&["train", "my text.md"]).set(&crate::support::TINY).ok();
    assert!(lab.has("checkpoints/my text/last/model.safetensors"));
}

#[test]
fn from_goes_on_with_weights_and_tokenizer_on_another_text() {
    let lab = Lab::trained(&["train.steps=60"]);
    lab.write("other.txt", crate::support::story(30).replace("animal", "child"));
    let fine = ["train.steps=5", "train.warmup_steps=0", "train.log_every=1"];
    let from = |out: &str, sets: &[&str]| {
        lab.softdict(&["train", "other.txt", "--from", "run", "--out", out]).set(sets)
    };
    from("fine", &fine).ok();
    // it begins where the other ended, not at ln V
    let (begun, ended) = (lab.series("fine", "loss")[0], lab.series("run", "loss")[59]);
    assert!((begun - ended).abs() < 0.5 && begun < lab.series("run", "loss")[0] - 0.5, "{begun} {ended}");
    assert_eq!(lab.read("run/last/tokenizer.json"), lab.read("fine/last/tokenizer.json"));

    let layers = from("deeper", &["model.layers=3"]).fails(2);
    layers.says(&["model.layers = 3", "has 1", "run"]);
    lab.write("foreign.txt", "ÄÖÜ are not in its vocabulary, that is all there is to say about it");
    let foreign = ["train", "foreign.txt", "--from", "run", "--out", "foreign"];
    lab.softdict(&foreign).fails(1).says(&["foreign.txt", "'Ä' (U+00C4)"]);
    assert!(!lab.has("deeper") && !lab.has("foreign"));
}
