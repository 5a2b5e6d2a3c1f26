//! `softdict explain`: the ideas that the program stands on, computed with its own operations.
//!
//! One topic is one file: a function that computes and returns a page of text.

mod attention;
mod block;
mod cache;
mod chunking;
mod cost;
mod flash;
mod heads;
mod language;
mod lookup;
mod mask;
mod position;
mod random;
mod scale;
mod training;

use crate::args::Explain;
use crate::{output, usage};

/// Something that can be explained.
struct Topic {
    name: &'static str,
    summary: &'static str,
    page: fn() -> anyhow::Result<String>,
}

const TOPICS: [Topic; 11] = [
    Topic {
        name: "lookup",
        summary: "a table that is asked with a vector, and what temperature does",
        page: lookup::page,
    },
    Topic {
        name: "attention",
        summary: "why `it` finds `animal`: queries, keys and values of one sentence, to three decimals",
        page: attention::page,
    },
    Topic {
        name: "scale",
        summary: "why scores are divided by √d: entropy, gradient, and learning without it",
        page: scale::page,
    },
    Topic {
        name: "heads",
        summary: "one wide question or several narrow ones: counted, and trained from three seeds",
        page: heads::page,
    },
    Topic {
        name: "block",
        summary: "who holds the parameters and who takes the operations",
        page: block::page,
    },
    Topic { name: "mask", summary: "the future has weight exactly zero", page: mask::page },
    Topic {
        name: "position",
        summary: "without positions every order is the same; and losses beyond the trained length",
        page: position::page,
    },
    Topic {
        name: "cost",
        summary: "every token compares with every token, and when that matters",
        page: cost::page,
    },
    Topic {
        name: "chunking",
        summary: "k pieces cost a k-th of the square, and what is lost",
        page: chunking::page,
    },
    Topic {
        name: "cache",
        summary: "keys and values of the past are kept: the same answer for less",
        page: cache::page,
    },
    Topic { name: "flash", summary: "exact attention without a T×T matrix", page: flash::page },
];

/// Whose claims they are.
const SOURCES: &str = "The document: \"Attention is a lookup table you learn\" (lookup, scale, heads, cost, cache, block),\n\
                       or \"Transformers Deep Dive: Attention\" by the Anacodic Team (the others).";

pub(crate) fn run(args: &Explain) -> anyhow::Result<()> {
    let Some(wanted) = &args.topic else {
        return output::text(&list());
    };
    let Some(topic) = TOPICS.iter().find(|topic| topic.name.eq_ignore_ascii_case(wanted)) else {
        let known: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
        return Err(usage(format!("there is no topic {wanted}; the topics are: {}", known.join(", "))));
    };
    output::text(&format!("{}\n{SOURCES}\n", (topic.page)()?))
}

fn list() -> String {
    let lines = TOPICS.iter().map(|topic| format!("  {:<12} {}\n", topic.name, topic.summary));
    format!("softdict explain TOPIC\n\n{}", lines.collect::<String>())
}

/// What is said of a claim, once it is computed.
fn verdict(holds: bool) -> &'static str {
    if holds { "borne out" } else { "not borne out" }
}

/// One figure of the source documents beside what is computed here.
struct Figure {
    name: &'static str,
    documented: f64,
    computed: f64,
    /// Decimals that the document gives.
    decimals: usize,
}

impl Figure {
    /// Whether the computed value, rounded as the document rounds, is the documented one.
    fn agrees(&self) -> bool {
        let shown = |value: f64| format!("{value:.*}", self.decimals);
        shown(self.documented) == shown(self.computed)
    }
}

/// A table of figures, and in its last line how many agree.
fn comparison(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
    let rows = figures.iter().map(|figure| {
        let Figure { name, documented, computed, decimals } = figure;
        let (difference, more) = (computed - documented, decimals + 3);
        format!("  {name:<width$}  {documented:>8.decimals$}  {computed:>9.more$}  {difference:>+10.more$}\n")
    });
    let agreed = figures.iter().filter(|figure| figure.agrees()).count();
    format!(
        "  {:<width$}  document   computed  difference\n{}  {agreed} of {} agree to the last decimal that the document gives\n",
        "",
        rows.collect::<String>(),
        figures.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_topic_names_the_known_ones() {
        let message = run(&Explain { topic: Some("magic".into()) }).unwrap_err().to_string();
        assert!(message.contains("magic") && message.contains("attention"), "{message}");
    }

    #[test]
    fn every_topic_is_listed_and_has_a_page() {
        for topic in TOPICS {
            assert!(list().contains(topic.name));
            assert!((topic.page)().unwrap().len() > 200, "{}", topic.name);
        }
    }

    #[test]
    fn a_figure_agrees_only_when_it_rounds_to_the_documented_one() {
        let figure = |computed| Figure { name: "x", documented: 0.569, computed, decimals: 3 };
        assert!(figure(0.568_95).agrees() && figure(0.5694).agrees());
        assert!(!figure(0.5696).agrees() && !figure(0.5684).agrees());
        let table = comparison(&[figure(0.569), figure(0.6)]);
        assert!(table.contains("1 of 2 agree") && table.contains("+0.031000"), "{table}");
    }
}
