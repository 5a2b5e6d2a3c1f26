//! What a run's `metrics.jsonl` kept, read back.

use anyhow::Context;
use serde_json::Value;
use softdict_trainer::{Event, MOST_METRICS};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Scores of heads whose growth is drawn: shares from 0 to 1; and what they are called.
pub(crate) const SCORES: [(&str, &str); 7] = [
    ("previous_token", "previous token"),
    ("induction", "induction, random blocks"),
    ("induction_in_text", "induction, where the text repeats"),
    ("duplicate_token", "duplicate token, random blocks"),
    ("first_token", "first token"),
    ("current_token", "current token"),
    ("entropy", "entropy over its maximum"),
];

/// Where a run keeps its events.
pub(crate) fn path(run: &Path) -> PathBuf {
    run.join("metrics.jsonl")
}

/// All events of a run.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn events(run: &Path) -> anyhow::Result<Vec<Event>> {
    let path = path(run);
    let text = softdict_files::read(&path, MOST_METRICS)
        .with_context(|| format!("{}: no events of a run could be read", path.display()))?;
    // a run that was cut off may leave half a line at the end, and half a character in it
    Ok(String::from_utf8_lossy(&text).lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Every head's scores over the steps at which they were kept (`train.heads_every`).
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// The steps.
    pub(crate) steps: Vec<u64>,
    /// For each layer and head, for each of [`SCORES`], a value a step; not a number where there is none.
    pub(crate) heads: BTreeMap<(usize, usize), [Vec<f64>; SCORES.len()]>,
}

impl Growth {
    pub(crate) fn of(events: &[Event]) -> Self {
        let kept = events.iter().filter_map(|event| match event {
            Event::Heads { step, heads } => Some((*step, heads)),
            _ => None,
        });
        let named = |heads: &Value| -> BTreeSet<(u64, u64)> {
            let number = |head: &Value, name: &str| head.get(name).and_then(Value::as_u64);
            let heads = heads.as_array().into_iter().flatten();
            heads.filter_map(|head| Some((number(head, "layer")?, number(head, "head")?))).collect()
        };
        // a model's heads are the same at every step; what says otherwise is no event of its run
        let mut first = None;
        let kept = kept.filter(|(_, heads)| {
            let named = named(heads);
            !named.is_empty() && *first.get_or_insert_with(|| named.clone()) == named
        });
        let (steps, kept): (Vec<u64>, Vec<&Value>) = kept.unzip();
        let mut heads = BTreeMap::new();
        for (nth, of_step) in kept.into_iter().enumerate() {
            for head in of_step.as_array().into_iter().flatten() {
                let number = |name: &str| head.get(name).and_then(Value::as_u64);
                let (Some(layer), Some(index)) = (number("layer"), number("head")) else { continue };
                let scores = heads
                    .entry((layer as usize, index as usize))
                    .or_insert_with(|| SCORES.map(|_| vec![f64::NAN; steps.len()]));
                for (values, (name, _)) in scores.iter_mut().zip(SCORES) {
                    values[nth] = head.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
                }
            }
        }
        Self { steps, heads }
    }

    /// At most `most` of the steps, evenly chosen, the first and the last among them.
    pub(crate) fn thinned(self, most: usize) -> Self {
        let (last, most) = (self.steps.len().saturating_sub(1), most.max(2));
        if last < most {
            return self;
        }
        let chosen: Vec<usize> = (0..most).map(|nth| nth * last / (most - 1)).collect();
        let values = |all: Vec<f64>| chosen.iter().map(|&at| all[at]).collect();
        Self {
            steps: chosen.iter().map(|&at| self.steps[at]).collect(),
            heads: self.heads.into_iter().map(|(id, scores)| (id, scores.map(values))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(step: u64, heads: Value) -> Event {
        Event::Heads { step, heads }
    }

    #[test]
    fn a_heads_scores_are_found_by_step_and_what_is_missing_is_no_number() {
        let both = serde_json::json!([
            { "layer": 0, "head": 1, "previous_token": 0.25, "induction": null },
            { "layer": 2, "head": 0, "previous_token": 0.5 },
        ]);
        let later = serde_json::json!([
            { "layer": 0, "head": 1, "previous_token": 0.75 },
            { "layer": 2, "head": 0 },
            { "head": 7 },
            "?",
        ]);
        // another model's
        let one = serde_json::json!([{ "layer": 0, "head": 1, "previous_token": 0.5 }]);
        let growth = Growth::of(&[kept(0, both), kept(9, later), kept(10, Value::Null), kept(11, one)]);
        assert_eq!(growth.steps, [0, 9]);
        assert_eq!(growth.heads.keys().collect::<Vec<_>>(), [&(0, 1), &(2, 0)]);
        let previous = |id| &growth.heads[&id][0];
        assert_eq!(previous((0, 1))[..2], [0.25, 0.75]);
        assert!(previous((2, 0))[1].is_nan());
        assert!(growth.heads[&(0, 1)][1].iter().all(|value| value.is_nan()));
    }

    #[test]
    fn a_long_run_is_thinned_evenly_to_its_first_and_last_step() {
        let events: Vec<Event> = (0..1000)
            .map(|step| {
                let head = serde_json::json!([{ "layer": 0, "head": 0, "entropy": step as f64 / 1000.0 }]);
                kept(step, head)
            })
            .collect();
        let growth = Growth::of(&events).thinned(100);
        assert_eq!((growth.steps.len(), growth.steps[0], growth.steps[99]), (100, 0, 999));
        assert!(growth.steps.windows(2).all(|pair| (10..=11).contains(&(pair[1] - pair[0]))));
        let entropy = &growth.heads[&(0, 0)][6];
        assert!(entropy.iter().zip(&growth.steps).all(|(value, step)| *value == *step as f64 / 1000.0));
        let short = Growth::of(&events[..3]).thinned(3);
        assert_eq!(short.steps, [0, 1, 2]);
        assert!(Growth::default().thinned(5).steps.is_empty());
    }

    #[test]
    fn half_a_line_at_the_end_is_no_event() {
        let folder = tempfile::tempdir().unwrap();
        let line = serde_json::to_string(&kept(4, Value::Null)).unwrap();
        std::fs::write(
            folder.path().join("metrics.jsonl"),
            [line.as_bytes(), b"\n\xff\n", &line.as_bytes()[..9]].concat(),
        )
        .unwrap();
        assert_eq!(events(folder.path()).unwrap().len(), 1);
        let message = format!("{:#}", events(&folder.path().join("none")).unwrap_err());
        assert!(message.contains("metrics.jsonl"), "{message}");
    }

    #[test]
    fn damaged_metrics_are_read_as_far_as_they_go() {
        let folder = tempfile::tempdir().unwrap();
        let head = serde_json::json!([{ "layer": 0, "head": 1, "previous_token": 0.25, "induction": null }]);
        let told = [
            kept(0, head.clone()),
            Event::Spike { step: 1, loss: 4.0, expected: 2.0 },
            Event::Eval {
                step: 2,
                train_loss: None,
                val_loss: 2.0,
                val_bits_per_byte: Some(3.0),
                best: true,
            },
            kept(3, head),
        ];
        let lines: Vec<u8> = told
            .iter()
            .flat_map(|event| serde_json::to_string(event).unwrap().into_bytes().into_iter().chain([b'\n']))
            .collect();
        softdict_testkit::fuzz("metrics", &[lines], 2 << 30, &mut |bytes| {
            std::fs::write(folder.path().join("metrics.jsonl"), bytes).unwrap();
            let growth = Growth::of(&events(folder.path()).unwrap()).thinned(3);
            assert!(growth.heads.values().flatten().all(|values| values.len() == growth.steps.len()));
        });
    }
}
