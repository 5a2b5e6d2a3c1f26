//! `softdict attention`: what every head looks at on a prompt, in every format.

use crate::ablate::{reader, replacements};
use crate::args::Attention;
use crate::checkpoint::{self, Loaded};
use crate::machine::{self, available_memory};
use crate::output::{self, bytes, grouped, notice};
use crate::prompt::{chosen, prompt_ids, token_text};
use crate::usage;
use crate::written::write_file;
use anyhow::{Context, bail};
use softdict_inspect::report::{self, Format, Style};
use softdict_inspect::{AttentionMaps, FORMING, MapParts, Shape};
use softdict_sampler::{Flow, SampleOptions, generate};
use std::io::{IsTerminal, Write};

/// Of all heads, a report this large is worth a word, and one that large is written only when asked for.
const LARGE: u64 = 20 << 20;
const TOO_LARGE: u64 = 200 << 20;

pub(crate) fn run(args: &Attention) -> anyhow::Result<()> {
    let format = format(args)?;
    let device = machine::prepare(&args.source.machine)?;
    let loaded = checkpoint::open(&args.checkpoint, args.source.which.into(), &device)?;
    let config = &loaded.spoken;
    let layers = chosen("--layer", &args.layer, config.layers())?;
    let heads = chosen("--head", &args.head, config.heads)?;
    let prompt = prompt(args, &loaded)?;
    let shape = Shape { layers: layers.len(), heads: heads.len(), tokens: prompt.len() + args.generate };
    check_size(args, format, &shape)?;
    let ids = continued(&prompt, args, &loaded)?;
    let model = loaded.speaker()?;
    let mut replacements = replacements(&loaded, &model, &args.ablate, None)?;
    let parts = MapParts {
        tokens: ids.iter().map(|&id| token_text(id, &loaded)).collect::<anyhow::Result<_>>()?,
        prompt_tokens: prompt.len(),
        causal: config.settings.causal,
        ablated: args.ablate.clone(),
        token_ids: ids,
        layers,
        heads,
    };
    let maps = AttentionMaps::computed(&model, parts, &mut replacements)?;
    let Some(path) = &args.out else {
        let mut out = output::stream();
        report::write(format, &maps, &output::style(), &mut out)?;
        out.flush()?;
        return Ok(());
    };
    let size = write_file(path, &mut |out| Ok(report::write(format, &maps, &Style::default(), out)?))
        .with_context(|| format!("--out {}", path.display()))?;
    notice(format!("{}: {format}, {}", path.display(), bytes(size)));
    Ok(())
}

/// The format by its name, else by the file's.
fn format(args: &Attention) -> anyhow::Result<Format> {
    let format = match (args.format, &args.out) {
        (Some(format), _) => format,
        (None, Some(path)) => Format::from_extension(path).map_err(|error| usage(error.to_string()))?,
        (None, None) => Format::Term,
    };
    let binary = matches!(format, Format::Npy | Format::Png | Format::Safetensors);
    if binary && args.out.is_none() && std::io::stdout().is_terminal() {
        return Err(usage(format!("--format {format} is no text for a terminal; give --out FILE.{format}")));
    }
    Ok(format)
}

/// The ids of the prompt, or its last ones that leave room for what is to be generated.
fn prompt(args: &Attention, loaded: &Loaded) -> anyhow::Result<Vec<u32>> {
    let mut ids = prompt_ids("--prompt", &args.prompt, loaded)?;
    let context = loaded.spoken.context();
    let room = context.saturating_sub(args.generate);
    if room == 0 {
        let most = context - 1;
        return Err(usage(format!(
            "--generate {}: the model sees {context} tokens at once, the prompt's included; give {most} at most",
            args.generate
        )));
    }
    if ids.len() > room {
        let (found, kept) = (grouped(ids.len() as u64), grouped(room as u64));
        let reason = match args.generate {
            0 => format!("the model sees {} at once", grouped(context as u64)),
            more => {
                format!("the model sees {} at once, {more} of them to be generated", grouped(context as u64))
            }
        };
        notice(format!("the prompt has {found} tokens: {reason}, so the last {kept} are shown"));
        ids.drain(..ids.len() - room);
    }
    Ok(ids)
}

/// The prompt and its likeliest next tokens.
fn continued(prompt: &[u32], args: &Attention, loaded: &Loaded) -> anyhow::Result<Vec<u32>> {
    let (mut ids, count) = (prompt.to_vec(), args.generate);
    if count > 0 {
        let options =
            SampleOptions { temperature: 0.0, tokens: count, num_samples: 1, ..SampleOptions::default() };
        generate(reader(loaded, &args.ablate)?.as_mut(), prompt, &options, 0, true, &mut |_, id| {
            ids.push(id);
            Flow::Continue
        })?;
    }
    Ok(ids)
}

/// # Errors
/// When all heads would make a report that nobody can open, or the maps do not fit in memory.
fn check_size(args: &Attention, format: Format, shape: &Shape) -> anyhow::Result<()> {
    let Shape { layers, heads, tokens } = *shape;
    let what = format!("{layers} layers × {heads} heads × {tokens} × {tokens} weights");
    let advice = "choose some with --layer and --head";
    // a layer's at a time
    let memory = Shape { layers: 1, ..*shape }.weights().saturating_mul(FORMING);
    if let Some(free) = available_memory().filter(|&free| memory > free) {
        bail!(
            "{what} take {}, and {} of memory are free; {advice}, or shorten --prompt",
            bytes(memory),
            bytes(free)
        );
    }
    let size = format.size_estimate(shape);
    if !(args.layer.is_empty() && args.head.is_empty()) || size <= LARGE {
        return Ok(());
    }
    if size > TOO_LARGE {
        bail!("{what} as {format} would be about {}, more than {}; {advice}", bytes(size), bytes(TOO_LARGE));
    }
    notice(format!("{what} as {format} will be about {}; for less, {advice}", bytes(size)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn args(extra: &[&str]) -> Attention {
        let all = [&["softdict", "attention", "run", "--prompt", "- x"], extra].concat();
        match Cli::parse_from(all).command {
            Command::Attention(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_file_name_decides_the_format_unless_told_otherwise() {
        assert_eq!(format(&args(&[])).unwrap(), Format::Term);
        assert_eq!(format(&args(&["--out", "a.html"])).unwrap(), Format::Html);
        assert_eq!(format(&args(&["--out", "a.html", "--format", "csv"])).unwrap(), Format::Csv);
        let message = format(&args(&["--out", "a.doc"])).unwrap_err().to_string();
        assert!(message.contains("a.doc"), "{message}");
    }

    #[test]
    fn a_huge_report_of_all_heads_is_refused_and_a_selection_is_not() {
        let shape = Shape { layers: 12, heads: 12, tokens: 1024 };
        let message = check_size(&args(&[]), Format::Csv, &shape).unwrap_err().to_string();
        assert!(message.contains("--layer") && message.contains("GiB"), "{message}");
        let one = Shape { layers: 1, heads: 1, tokens: 1024 };
        check_size(&args(&["--layer", "3", "--head", "1"]), Format::Csv, &one).unwrap();
        // 6 layers × 6 heads × 512² weights: said, not refused
        check_size(&args(&[]), Format::Json, &Shape { layers: 6, heads: 6, tokens: 512 }).unwrap();
        let endless = Shape { layers: 1 << 20, heads: 1 << 20, tokens: 1 << 20 };
        assert!(
            check_size(&args(&["--layer", "0"]), Format::Term, &endless).is_err()
                || !cfg!(target_os = "linux")
        );
    }
}
