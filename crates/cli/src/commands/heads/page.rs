//! The page of `softdict heads --html`.

use crate::checkpoint::Loaded;
use crate::metrics::{self, Growth, SCORES};
use crate::output::{bytes, grouped, notice};
use crate::prompt::token_label;
use crate::windows::{frequent, present};
use crate::written::write_file;
use anyhow::Context;
use softdict_inspect::ablation::HeadId;
use softdict_inspect::lookup::{Circuit, Found, used};
use softdict_inspect::passages::passages;
use softdict_inspect::report::heads::{self, GrowthLine, HeadEntry, HeadsPage, UsedLine, WrittenLine};
use softdict_inspect::survey::HeadReport;
use softdict_model::Transformer;
use std::path::Path;

/// Passages, and lines of each dictionary.
const EACH: usize = 5;
/// Tokens that a line of the weights' dictionary names.
const NAMED: usize = 4;
/// Steps that the growth of scores is drawn at, at most: more than a small chart can show.
const STEPS: usize = 100;

/// Writes the page of all heads.
///
/// # Errors
/// When the file cannot be written, or the model fails.
pub(super) fn write(
    path: &Path,
    summary: String,
    reports: Vec<HeadReport>,
    model: &Transformer,
    loaded: &Loaded,
    windows: &[Vec<u32>],
) -> anyhow::Result<()> {
    let config = &loaded.spoken;
    let labels =
        |ids: &[u32]| ids.iter().map(|&id| token_label(id, loaded)).collect::<anyhow::Result<Vec<_>>>();
    let (shown, present) = (frequent(windows, EACH), present(windows));
    let (growth, growth_note) = growth(loaded)?;
    let mut entries = Vec::with_capacity(reports.len());
    for (report, passages) in reports.into_iter().zip(passages(model, windows, EACH)?) {
        let id = HeadId { layer: report.scores.layer, head: report.scores.head };
        let circuit = Circuit::new(config, &loaded.parameters, id)?.among(&present);
        let (finds, promotes) = (circuit.keys(&shown, 1, NAMED)?, circuit.promoted(&shown, NAMED)?);
        let named = |found: &[Found]| {
            let named = found.iter().map(|found| Ok((token_label(found.token, loaded)?, found.score)));
            named.collect::<anyhow::Result<Vec<(String, f32)>>>()
        };
        let lines = shown.iter().zip(finds.iter().zip(&promotes));
        let written = lines.map(|(&token, (finds, promotes))| {
            Ok(WrittenLine {
                token: token_label(token, loaded)?,
                finds: named(finds)?,
                promotes: named(promotes)?,
            })
        });
        let lines = used(model, &loaded.parameters, windows, id, &[], EACH)?;
        let lines = lines.iter().map(|line| {
            Ok(UsedLine {
                query: token_label(line.query, loaded)?,
                key: token_label(line.key, loaded)?,
                rows: line.rows,
                finds: line.finds,
                attention: line.attention,
                raises: token_label(line.raises.token, loaded)?,
            })
        });
        entries.push(HeadEntry {
            report,
            growth: lines_of(&growth, id),
            used: lines.collect::<anyhow::Result<_>>()?,
            written: written.collect::<anyhow::Result<_>>()?,
            passages,
        });
    }
    let page = HeadsPage {
        title: format!("What {} heads of {} layers learned to look up", entries.len(), config.layers()),
        summary,
        note: "A score says where a head looks; only what the model loses without it says whether it uses what it finds. \
               Intervals are bootstraps over windows (95 %). A name needs a score of 0.5 or more, 0.25 above an untrained \
               head, and a loss."
            .into(),
        growth_note,
        steps: growth.steps,
        checkpoint_step: loaded.step,
        windows: windows.iter().map(|window| labels(window)).collect::<anyhow::Result<_>>()?,
        heads: entries,
    };
    let size = write_file(path, &mut |out| Ok(heads::write(&page, out)?))
        .with_context(|| format!("--html {}", path.display()))?;
    notice(format!("{}: {}", path.display(), bytes(size)));
    Ok(())
}

/// How the scores of all heads grew in the run that the checkpoint is of, and what to say about it.
///
/// # Errors
/// When the run's events cannot be read.
fn growth(loaded: &Loaded) -> anyhow::Result<(Growth, String)> {
    let run = loaded.run.as_ref().filter(|run| metrics::path(run).exists());
    let kept = run.map(|run| metrics::events(run)).transpose()?;
    let growth = Growth::of(&kept.unwrap_or_default());
    let (Some(first), Some(last)) = (growth.steps.first(), growth.steps.last()) else {
        let note = "Of this checkpoint no scores were kept while it was trained. A run with --set train.heads_every=100 \
                    keeps them every 100 steps, and draws them here.";
        return Ok((Growth::default(), note.into()));
    };
    let (first, last, count) = (grouped(*first), grouped(*last), growth.steps.len());
    let drawn = if count > STEPS { format!(", {STEPS} of them drawn") } else { String::new() };
    let here = loaded.step.map_or(String::new(), |step| {
        format!(" The dashed line is this checkpoint, step {}.", grouped(step))
    });
    let note = format!(
        "Each from 0 to 1, at {count} steps from {first} to {last} of the run{drawn}, over {} windows of its text.{here}",
        super::PROBED
    );
    Ok((growth.thinned(STEPS), note))
}

/// The scores of one head over the steps, to three decimals.
fn lines_of(growth: &Growth, id: HeadId) -> Vec<GrowthLine> {
    let Some(scores) = growth.heads.get(&(id.layer, id.head)) else { return Vec::new() };
    let rounded = |value: &f64| value.is_finite().then(|| (value * 1000.0).round() / 1000.0);
    let lines = SCORES
        .iter()
        .zip(scores)
        .map(|((score, _), values)| GrowthLine { score, values: values.iter().map(rounded).collect() });
    lines.filter(|line| line.values.iter().any(Option::is_some)).collect()
}
