//! `softdict history`: a run over its steps, from what its `metrics.jsonl` kept.

use crate::args::History as Args;
use crate::output::{self, bytes, notice};
use crate::usage;
use crate::written::write_file;
use anyhow::{Context, bail};
use softdict_inspect::report::history::{Panel, Series, write_html, write_svg};
use softdict_trainer::Event;
use std::collections::BTreeMap;

/// Scores of heads that are drawn, and what they are called.
const SCORES: [(&str, &str); 7] = [
    ("previous_token", "previous token"),
    ("induction", "induction, random blocks"),
    ("induction_in_text", "induction, where the text repeats"),
    ("duplicate_token", "duplicate token, random blocks"),
    ("first_token", "first token"),
    ("current_token", "current token"),
    ("entropy", "entropy over its maximum"),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let path = args.run.join("metrics.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    // a run that was cut off may leave half a line at the end
    let events: Vec<Event> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let panels = panels(&events);
    if panels.iter().all(|panel| panel.series.iter().all(|series| series.points.is_empty())) {
        bail!("{}: no step was told yet, so there is nothing to draw", path.display());
    }
    let title = format!("History of {}", args.run.display());
    let mut summary =
        events.iter().map(Event::step).max().map_or(String::new(), |last| format!("{last} steps"));
    if panels.len() < 3 {
        summary += "; no scores of heads were kept (train.heads_every)";
    }
    let extension = args.out.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is_page = match extension.to_ascii_lowercase().as_str() {
        "svg" => false,
        "html" | "htm" => true,
        _ => return Err(usage(format!("--out {}: end it in .svg or .html", args.out.display()))),
    };
    write_file(&args.out, &mut |out| {
        let written = if is_page {
            write_html(&title, &summary, &panels, out)
        } else {
            write_svg(&title, &panels, out)
        };
        Ok(written?)
    })
    .with_context(|| format!("--out {}", args.out.display()))?;
    let size = std::fs::metadata(&args.out).map_or(0, |data| data.len());
    notice(format!("{}: {summary}, {}", args.out.display(), bytes(size)));
    output::text("")
}

/// Loss, learning rate, and a panel for each score of which something is known.
fn panels(events: &[Event]) -> Vec<Panel> {
    let (mut train, mut val, mut rate) = (Vec::new(), Vec::new(), Vec::new());
    let mut scores: BTreeMap<(usize, u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events {
        let at = event.step() as f64;
        match event {
            Event::Step { loss, learning_rate, .. } => {
                train.push((at, *loss));
                rate.push((at, *learning_rate));
            }
            Event::Eval { val_loss, .. } => val.push((at, *val_loss)),
            Event::Heads { heads, .. } => {
                for head in heads.as_array().into_iter().flatten() {
                    let number = |name: &str| head.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
                    for (nth, (name, _)) in SCORES.iter().enumerate() {
                        let value = head.get(*name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
                        scores.entry((nth, number("layer"), number("head"))).or_default().push((at, value));
                    }
                }
            }
            _ => {}
        }
    }
    let one = |name: &str, colour, points| Series { name: name.to_owned(), colour, points };
    let mut panels = vec![
        Panel {
            title: "loss, nats per token".into(),
            series: vec![one("training, of a batch", 5, train), one("validation", 0, val)],
        },
        Panel { title: "learning rate".into(), series: vec![one("learning rate", 6, rate)] },
    ];
    for (nth, (_, title)) in SCORES.iter().enumerate() {
        let of_heads = scores.iter().filter(|((own, ..), _)| *own == nth);
        let series: Vec<Series> = of_heads
            .map(|((_, layer, head), points)| {
                one(&format!("{layer}.{head}"), *layer as usize, points.clone())
            })
            .collect();
        if series.iter().any(|series| series.points.iter().any(|point| point.1.is_finite())) {
            panels.push(Panel { title: format!("{title}, every head, a colour for each layer"), series });
        }
    }
    panels
}
