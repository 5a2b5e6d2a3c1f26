//! `softdict history`: a run over its steps, from what its `metrics.jsonl` kept.

use crate::args::History as Args;
use crate::metrics::{self, Growth, SCORES};
use crate::output::{self, bytes, notice};
use crate::usage;
use crate::written::write_file;
use anyhow::{Context, bail};
use softdict_inspect::report::history::{Panel, Series, write_html, write_png, write_svg};
use softdict_trainer::Event;
use std::path::Path;

/// How the history is written.
enum Kind {
    Picture,
    Drawing,
    Page,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let kind = kind(&args.out)?;
    let events = metrics::events(&args.run)?;
    let panels = panels(&events);
    if panels.iter().all(|panel| panel.series.iter().all(|series| series.points.is_empty())) {
        bail!("{}: no step was told yet, so there is nothing to draw", args.run.display());
    }
    let title = format!("History of {}", args.run.display());
    let mut summary =
        events.iter().map(Event::step).max().map_or(String::new(), |last| format!("{last} steps"));
    if panels.len() < 3 {
        summary += "; no scores of heads were kept (train.heads_every)";
    }
    let size = write_file(&args.out, &mut |out| {
        let written = match kind {
            Kind::Picture => write_png(&title, &panels, out),
            Kind::Drawing => write_svg(&title, &panels, out),
            Kind::Page => write_html(&title, &summary, &panels, out),
        };
        Ok(written?)
    })
    .with_context(|| format!("--out {}", args.out.display()))?;
    notice(format!("{}: {summary}, {}", args.out.display(), bytes(size)));
    output::text("")
}

/// What the file's name asks for.
fn kind(out: &Path) -> anyhow::Result<Kind> {
    let extension = out.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "png" => Ok(Kind::Picture),
        "svg" => Ok(Kind::Drawing),
        "html" | "htm" => Ok(Kind::Page),
        _ => Err(usage(format!("--out {}: end it in .png, .svg or .html", out.display()))),
    }
}

/// Loss, learning rate, and a panel for each score of which something is known.
fn panels(events: &[Event]) -> Vec<Panel> {
    let (mut train, mut val, mut rate) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        let at = event.step() as f64;
        // no run gets there: a damaged line
        if event.step() > 1 << 53 {
            continue;
        }
        match event {
            Event::Step { loss, learning_rate, .. } => {
                train.push((at, *loss));
                rate.push((at, *learning_rate));
            }
            Event::Eval { val_loss, .. } => val.push((at, *val_loss)),
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
    let growth = Growth::of(events);
    for (nth, (_, title)) in SCORES.iter().enumerate() {
        let of_heads = growth.heads.iter().map(|((layer, head), scores)| {
            let points = growth.steps.iter().zip(&scores[nth]).map(|(step, value)| (*step as f64, *value));
            one(&format!("{layer}.{head}"), *layer, points.collect())
        });
        let series: Vec<Series> = of_heads.collect();
        if series.iter().any(|series| series.points.iter().any(|point| point.1.is_finite())) {
            panels.push(Panel { title: format!("{title}, every head, a colour for each layer"), series });
        }
    }
    panels
}
