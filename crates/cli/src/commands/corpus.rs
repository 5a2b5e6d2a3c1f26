//! `softdict corpus`: the embedded tales, as text.

use crate::args::Corpus;
use crate::output;
use softdict_corpus::Part;
use std::io::Write;

pub(crate) fn run(args: &Corpus) -> anyhow::Result<()> {
    let mut out = output::stream();
    for line in softdict_corpus::lines(args.kind, Part::Training, args.seed).take(args.lines) {
        writeln!(out, "{}", line.text)?;
    }
    out.flush()?;
    Ok(())
}
