//! What positions do beyond the length that was trained: losses of the tales at places that training never had.

use super::super::language::Tales;
use super::super::training::{Lesson, SEEDS, Sequences, Spread, each};
use super::super::verdict;
use softdict_model::settings::Positions;
use softdict_model::{ModelConfig, ModelSettings};
use std::fmt::Write;
use std::ops::Range;

/// Tokens of a training sequence, and of one to measure on.
const TRAINED: usize = 16;
const MEASURED: usize = 4 * TRAINED;
/// Places whose losses are compared: two within, two beyond.
const PLACES: [Range<usize>; 4] =
    [0..TRAINED / 2, TRAINED / 2..TRAINED, TRAINED..2 * TRAINED, 2 * TRAINED..MEASURED];
const WITHIN: usize = 1;
const NEAR: usize = 2;
const FAR: usize = 3;
/// Tokens of an update, however long the sequences are.
const TOKENS: usize = 512;
/// Sequences that losses are measured on.
const SEQUENCES: usize = 128;

fn config(positions: Positions, context: usize, vocab_size: usize) -> anyhow::Result<ModelConfig> {
    let settings = ModelSettings { layers: 2, heads: 2, width: 32, context, positions, ..Default::default() };
    Ok(ModelConfig::new(&settings, vocab_size)?)
}

/// The losses at [`PLACES`] of a model trained on sequences of `trained` tokens, as far as it can be asked; what it says
/// where it cannot.
fn learn(
    positions: Positions,
    trained: usize,
    seed: u64,
    texts: [&Tales; 2],
) -> anyhow::Result<(Vec<f64>, Option<String>)> {
    let [read, unseen] = texts;
    let (own, draw) = (config(positions, trained, read.vocab_size)?, read.draw());
    let lesson = Lesson { config: &own, draw: &draw, batch: TOKENS / trained, steps: 200, rate: 5e-3, seed };
    let parameters = lesson.train(|_, _| Ok(()))?;
    let long = Sequences::unseen(&unseen.draw(), SEQUENCES, MEASURED);
    if positions != Positions::Learned {
        // no weight depends on the context, so the same weights make a model that reads further
        let further = config(positions, MEASURED, read.vocab_size)?;
        let losses = PLACES.iter().map(|places| long.only(places).loss(&further, &parameters));
        return Ok((losses.collect::<anyhow::Result<_>>()?, None));
    }
    let refused = long.loss(&own, &parameters).err().map(|error| error.to_string());
    let short = long.beginning(trained);
    let within = PLACES.iter().filter(|places| places.end <= trained);
    let losses = within.map(|places| short.only(places).loss(&own, &parameters));
    Ok((losses.collect::<anyhow::Result<_>>()?, refused))
}

/// One kind of position and of training, of every seed.
struct Row {
    name: &'static str,
    losses: Vec<Spread>,
    refused: Option<String>,
}

impl Row {
    /// What places further on cost more than the last ones that were trained.
    fn rise(&self, at: usize) -> f64 {
        match (self.losses.get(at), self.losses.get(WITHIN)) {
            (Some(there), Some(within)) => there.mean - within.mean,
            _ => f64::NAN,
        }
    }
}

fn rows() -> anyhow::Result<[Row; 4]> {
    let texts = [&Tales::new(1, 4000), &Tales::new(2, 1000)];
    let kinds = [
        ("RoPE", Positions::Rope, TRAINED),
        ("none", Positions::None, TRAINED),
        ("learned", Positions::Learned, TRAINED),
        ("RoPE", Positions::Rope, MEASURED),
    ];
    let runs: Vec<_> = kinds.into_iter().flat_map(|kind| SEEDS.map(|seed| (kind, seed))).collect();
    let found = each(&runs, |&((_, positions, trained), seed)| learn(positions, trained, seed, texts))?;
    let mut found = found.chunks_exact(SEEDS.len());
    Ok(kinds.map(|(name, _, _)| {
        let seeds = found.next().unwrap_or_default();
        let measured = seeds.first().map_or(0, |(losses, _)| losses.len());
        Row {
            name,
            losses: (0..measured).map(|at| Spread::of(seeds.iter().map(|(losses, _)| losses[at]))).collect(),
            refused: seeds.first().and_then(|(_, refused)| refused.clone()),
        }
    }))
}

/// The part of the page.
pub(super) fn section() -> anyhow::Result<String> {
    let rows = rows()?;
    let headings = PLACES.map(|places| format!("{:>22}", format!("{} to {}", places.start, places.end - 1)));
    let mut text = format!(
        "\nAnd beyond the trained length: two blocks of width 32 learn the tales by sequences of {TRAINED} tokens, the last row by\n\
         {MEASURED}, all by {TOKENS} tokens an update. Loss by place, mean of {} seeds (lowest to highest):\n\n\
         \x20 positions  trained  {}\n",
        SEEDS.len(),
        headings.join("  "),
    );
    for (row, trained) in rows.iter().zip([TRAINED, TRAINED, TRAINED, MEASURED]) {
        let cells: Vec<String> = row.losses.iter().map(|loss| format!("{loss:>22}")).collect();
        let end = if row.refused.is_some() { "  the table ends" } else { "" };
        writeln!(text, "  {:<9}  {trained:>7}  {}{end}", row.name, cells.join("  "))?;
    }
    text += &claims(&rows);
    Ok(text)
}

/// What the document says, and what was found.
fn claims(rows: &[Row; 4]) -> String {
    let [rope, none, learned, long] = rows;
    let refused = learned.refused.as_deref().unwrap_or("nothing");
    let differ = (rope.rise(NEAR) - none.rise(NEAR)).abs() > 0.05;
    format!(
        "\nThe document says: how positions are represented determines how far a model can extrapolate.\n\
         \x20 {} that it matters: against places {} to {}, RoPE costs {:+.3} at the next {TRAINED} and {:+.3} after them, no\n\
         \x20 positions {:+.3} and {:+.3}; a model that was trained at {MEASURED} gains there: {:+.3} and {:+.3}\n\
         \x20 learned positions cannot be asked at all; the program says: {refused}\n\
         \x20 {}, if it is read as RoPE extrapolating: it is {} there than where it was trained, though its scores know\n\
         \x20 distances only; distances above {} were never seen, and more keys share each softmax\n",
        verdict(learned.refused.is_some() && differ),
        PLACES[WITHIN].start,
        PLACES[WITHIN].end - 1,
        rope.rise(NEAR),
        rope.rise(FAR),
        none.rise(NEAR),
        none.rise(FAR),
        long.rise(NEAR),
        long.rise(FAR),
        verdict(rope.rise(FAR) <= 0.0),
        if rope.rise(FAR) > 0.0 { "worse" } else { "no worse" },
        TRAINED - 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_trained_length_rope_and_none_lose_and_learned_positions_end() {
        let texts = [&Tales::new(1, 4000), &Tales::new(2, 1000)];
        let kinds = [Positions::Rope, Positions::None, Positions::Learned];
        let found = each(&kinds, |&kind| learn(kind, TRAINED, 1, texts)).unwrap();
        for (losses, refused) in &found[..2] {
            assert!(refused.is_none() && losses[FAR] > losses[WITHIN] + 0.05, "{losses:?}");
            assert!(losses[WITHIN] < losses[0] && losses[0] < 2.5, "{losses:?}");
        }
        let (losses, refused) = &found[2];
        assert_eq!(losses.len(), 2);
        assert!(
            refused.as_deref().is_some_and(|message| message.contains("64 tokens do not fit")),
            "{refused:?}"
        );
    }
}
