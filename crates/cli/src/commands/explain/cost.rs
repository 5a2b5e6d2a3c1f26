//! What attention costs, and what it does not: the square, and everything else.
//!
//! # Source
//! The deep dive, sections 2, 3.6 and 4.4; "Attention is a lookup table you learn", section "What this costs you".

use super::{Figure, comparison};
use softdict_model::cost::Cost;
use softdict_model::{ModelConfig, ModelSettings};
use std::fmt::Write;

const LENGTHS: [usize; 4] = [12, 100, 1000, 10_000];
const COMPARISONS: [f64; 4] = [144.0, 10_000.0, 1_000_000.0, 100_000_000.0];
const NAMES: [&str; 4] = ["comparisons, 12", "comparisons, 100", "comparisons, 1,000", "comparisons, 10,000"];
/// A longer text, and the one it is compared with.
const LONGER: usize = 6000;
const SHORTER: usize = 800;

/// A model of GPT-2's shape, whose attention goes both ways as in the document.
fn model() -> anyhow::Result<Cost> {
    let settings = ModelSettings {
        layers: 12,
        heads: 12,
        width: 768,
        context: 10_000,
        causal: false,
        ..Default::default()
    };
    Ok(Cost::new(&ModelConfig::new(&settings, 50_257)?))
}

/// Scores that are formed, counted by forming them: one query row of every token against every token.
fn comparisons(tokens: usize) -> f64 {
    let cost = |tokens| {
        ModelConfig::new(
            &ModelSettings {
                layers: 1,
                heads: 1,
                width: 2,
                causal: false,
                context: 10_000,
                ..Default::default()
            },
            2,
        )
        .map(|config| Cost::new(&config).attention_flops(tokens))
    };
    // Q·Kᵀ and P·V of width 2: eight operations a comparison
    cost(tokens).map_or(f64::NAN, |flops| flops as f64 / 8.0)
}

/// How many times more a longer text takes: in attention, and in all.
fn growth(cost: &Cost) -> [f64; 2] {
    let total = |tokens: usize| (tokens as u64 * cost.linear_flops() + cost.attention_flops(tokens)) as f64;
    [
        cost.attention_flops(LONGER) as f64 / cost.attention_flops(SHORTER) as f64,
        total(LONGER) / total(SHORTER),
    ]
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let cost = model()?;
    let mut text = String::from(
        "COST: every token compares with every token\n\n\
         A model of GPT-2's shape (12 layers of width 768, 50,257 tokens), forward, both ways; GFLOP of one text:\n\n\
         \x20   tokens     comparisons     attention  everything else  attention's share\n",
    );
    for tokens in LENGTHS {
        let (attention, linear) =
            (cost.attention_flops(tokens) as f64 / 1e9, tokens as f64 * cost.linear_flops() as f64 / 1e9);
        let (compared, share) = (comparisons(tokens), 100.0 * attention / (attention + linear));
        writeln!(
            text,
            "  {tokens:>8} {:>15}  {attention:>12.4}  {linear:>15.2}  {share:>15.2} %",
            crate::output::grouped(compared as u64)
        )?;
    }
    let [attention, total] = growth(&cost);
    let mut figures: Vec<Figure> = LENGTHS
        .iter()
        .zip(COMPARISONS)
        .zip(NAMES)
        .map(|((&tokens, documented), name)| Figure {
            name,
            documented,
            computed: comparisons(tokens),
            decimals: 0,
        })
        .collect();
    figures.push(Figure {
        name: "attention of 7.5 times the tokens",
        documented: 56.0,
        computed: attention,
        decimals: 0,
    });
    write!(
        text,
        "\n{SHORTER} tokens against {LONGER}, 7.5 times as many: attention {attention:.2} times, everything together {total:.2} times.\n\n{}\n\
         The document says: doubling the context quadruples the attention cost.\n\
         \x20 borne out: {:.0} times\n\
         The document says: this single term is the central economic fact.\n\
         \x20 only at length: products with weights cost as much as attention at {} tokens for this shape, and more below\n\
         `softdict cost CKPT TEXT` counts the documents of a text.\n",
        comparison(&figures),
        cost.attention_flops(2000) as f64 / cost.attention_flops(1000) as f64,
        crate::output::grouped(even(&cost)),
    )?;
    Ok(text)
}

/// The length from which attention costs more than everything else.
fn even(cost: &Cost) -> u64 {
    let each = cost.attention_flops(1000) as f64 / 1e6;
    (cost.linear_flops() as f64 / each).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_figures_are_the_squares_and_the_whole_grows_less() {
        for (tokens, expected) in LENGTHS.into_iter().zip(COMPARISONS) {
            assert!((comparisons(tokens) - expected).abs() < 0.5);
        }
        let cost = model().unwrap();
        let [attention, total] = growth(&cost);
        assert!((attention - 56.25).abs() < 1e-9 && (7.5..56.0).contains(&total), "{attention} {total}");
        let tokens = even(&cost);
        let (linear, attention) = (tokens * cost.linear_flops(), cost.attention_flops(tokens as usize));
        assert!((attention as f64 / linear as f64 - 1.0).abs() < 0.01);
        assert!(page().unwrap().contains("5 of 5 agree"), "{}", page().unwrap());
    }
}
