//! The worked example of the deep dive: one head, four hand-made dimensions, one ambiguous pronoun.
//!
//! # Source
//! The deep dive, sections 4.3 (figures) and 5 (vectors and projections).

use super::{Figure, comparison};
use candle_core::{Device, Tensor};
use softdict_kernels::Ops;
use softdict_kernels::attention::{self, Options};
use std::fmt::Write;

/// Components of every vector.
const SIZE: usize = 4;
const DIMENSIONS: [&str; SIZE] = ["animate", "place", "motion", "state"];

const SENTENCE: [&str; 12] =
    ["the", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "too", "tired"];

/// What each word is, before [`FACTOR`].
const EMBEDDINGS: [(&str, [f32; SIZE]); 11] = [
    ("the", [0.02, 0.02, 0.02, 0.02]),
    ("animal", [0.95, 0.05, 0.20, 0.30]),
    ("did", [0.05, 0.02, 0.40, 0.05]),
    ("not", [0.02, 0.02, 0.10, 0.10]),
    ("cross", [0.10, 0.35, 0.92, 0.05]),
    ("street", [0.03, 0.94, 0.25, 0.05]),
    ("because", [0.02, 0.02, 0.02, 0.15]),
    ("it", [0.50, 0.45, 0.10, 0.35]),
    ("was", [0.05, 0.05, 0.05, 0.30]),
    ("too", [0.02, 0.02, 0.02, 0.25]),
    ("tired", [0.60, 0.02, 0.05, 0.95]),
];

/// The pronoun as it stands, and leaning towards a place.
const PRONOUN: [f32; SIZE] = [0.50, 0.45, 0.10, 0.35];
const LEANING: [f32; SIZE] = [0.20, 0.85, 0.10, 0.10];

/// Gives the vectors a length at which softmax tells them apart.
const FACTOR: f32 = 3.0;

/// The projections, a row per component that comes out: a query asks for what is animate or in a state, ...
const QUERY: [[f32; SIZE]; SIZE] =
    [[1.0, 0.0, 0.0, 0.9], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
/// ... a key offers its state, and what is animate as if it were one, ...
const KEY: [[f32; SIZE]; SIZE] =
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.9, 0.0, 0.0, 1.0]];
/// ... and a value is the word itself.
const VALUE: [[f32; SIZE]; SIZE] =
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];

/// Columns of the longest bar.
const BAR: f32 = 40.0;
/// Words of a table that have a weight worth seeing.
const SHOWN: usize = 6;

/// What one query finds in the sentence.
struct Lookup {
    /// Of each word, in the order of the sentence.
    scores: Vec<f32>,
    weights: Vec<f32>,
    /// The mixture of the values.
    output: Vec<f32>,
}

/// One head's attention of `pronoun` over the sentence, both ways as in an encoder.
fn look_up(pronoun: [f32; SIZE]) -> candle_core::Result<Lookup> {
    let device = &Device::Cpu;
    let ops = Ops::for_device(device);
    let scaled = |vector: [f32; SIZE]| vector.map(|component| component * FACTOR);
    let find =
        |word: &str| EMBEDDINGS.iter().find(|(own, _)| *own == word).map(|&(_, vector)| scaled(vector));
    let words: Vec<[f32; SIZE]> = SENTENCE.iter().filter_map(|word| find(word)).collect();
    let x = Tensor::from_slice(words.as_flattened(), (words.len(), SIZE), device)?; // (T, D)
    let asking = Tensor::new(&[scaled(pronoun)], device)?; // (1, D)
    let project = |x: &Tensor, matrix: [[f32; SIZE]; SIZE]| {
        ops.linear(x, &Tensor::new(&matrix, device)?, None)?.reshape((1, 1, (), SIZE)) // (B, H, rows, D)
    };
    let (q, k, v) = (project(&asking, QUERY)?, project(&x, KEY)?, project(&x, VALUE)?);
    let options = Options::plain(false, 1.0 / (SIZE as f32).sqrt());
    let flat = |tensor: Tensor| tensor.flatten_all()?.to_vec1::<f32>();
    Ok(Lookup {
        scores: flat((q.matmul(&k.transpose(2, 3)?.contiguous()?)? * f64::from(options.scale))?)?,
        weights: flat(attention::pattern(options, &q, &k)?)?,
        output: flat(ops.attention(options, &q, &k, &v)?)?,
    })
}

impl Lookup {
    /// The weight of the first occurrence of a word.
    fn weight(&self, word: &str) -> f64 {
        let place = SENTENCE.iter().position(|own| *own == word);
        place.and_then(|place| self.weights.get(place)).map_or(0.0, |&weight| f64::from(weight))
    }

    /// The strongest words with weight, score and bar.
    fn table(&self) -> String {
        let mut ranked: Vec<usize> = (0..SENTENCE.len()).collect();
        ranked.sort_by(|&a, &b| self.weights[b].total_cmp(&self.weights[a]));
        let mut text = String::from("  weight  score  word\n");
        for &place in ranked.iter().take(SHOWN) {
            let (weight, score, word) = (self.weights[place], self.scores[place], SENTENCE[place]);
            let bar = "█".repeat((weight * BAR).round() as usize);
            let line = format!("  {weight:6.3}  {score:5.2}  {word:<8} {bar}");
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// The output, component by component.
    fn mixture(&self) -> String {
        let parts = DIMENSIONS.iter().zip(&self.output).map(|(name, value)| format!("{name} {value:.2}"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// What the document prints, and what is computed here.
fn figures(before: &Lookup, after: &Lookup) -> Vec<Figure> {
    let figure = |name, documented, computed| Figure { name, documented, computed, decimals: 3 };
    let ratio = before.weight("animal") / before.weight("street");
    vec![
        figure("it -> animal", 0.569, before.weight("animal")),
        figure("it -> tired", 0.235, before.weight("tired")),
        figure("it -> it", 0.134, before.weight("it")),
        figure("it -> street", 0.022, before.weight("street")),
        figure("it -> cross", 0.013, before.weight("cross")),
        figure("it -> was", 0.005, before.weight("was")),
        Figure { name: "animal / street", documented: 25.72, computed: ratio, decimals: 2 },
        figure("leaning it -> street", 0.497, after.weight("street")),
        figure("leaning it -> it", 0.182, after.weight("it")),
        figure("leaning it -> animal", 0.087, after.weight("animal")),
    ]
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let (before, after) = (look_up(PRONOUN)?, look_up(LEANING)?);
    let ratio = before.weight("animal") / before.weight("street");
    let mut text = String::new();
    write!(
        text,
        "ATTENTION: a dictionary that is asked softly\n\n\
         \x20 {sentence}\n\n\
         Every word is a vector of {SIZE} numbers: {dimensions}. Three matrices make of it a\n\
         query (what it looks for), a key (what it can be found by) and a value (what it gives).\n\
         A score is query · key / √{SIZE}; softmax turns the scores into weights that sum to 1; the\n\
         result is the sum of the values, each times its weight.\n\n\
         What `it` looks at:\n\n{table}\n\
         `animal` gets {ratio:.2} times the weight of `street`, which stands nearer. What `it` takes along:\n\
         {mixture}.\n\n\
         The same sentence, matrices and keys, but `it` asks with a vector that leans towards a place:\n\n\
         {leaning}\n\
         Now it takes along: {leaning_mixture}.\n\
         No line of the program speaks of pronouns or animals. Where the vectors point is all there is.\n\n\
         Beside them the figures of the article that the example is from, \"Transformers Deep Dive:\n\
         Attention\", section 4.3; computed here by softdict's own attention in 32-bit numbers:\n\n\
         {comparison}\n\
         These vectors were made by hand to be readable, one head and both ways. `softdict train`\n\
         learns such vectors from text; `softdict attention` shows where its heads look, and\n\
         `softdict heads` puts numbers on them. They are rarely this clean.\n",
        sentence = SENTENCE.join(" "),
        dimensions = DIMENSIONS.join(", "),
        table = before.table(),
        mixture = before.mixture(),
        leaning = after.table(),
        leaning_mixture = after.mixture(),
        comparison = comparison(&figures(&before, &after)),
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_the_document_is_reproduced_to_its_last_decimal() {
        let (before, after) = (look_up(PRONOUN).unwrap(), look_up(LEANING).unwrap());
        let figures = figures(&before, &after);
        assert_eq!(figures.len(), 10);
        for figure in figures {
            assert!(figure.agrees(), "{}: {} {}", figure.name, figure.documented, figure.computed);
        }
        assert!((before.weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn the_output_is_the_weighted_sum_of_the_values() {
        let found = look_up(PRONOUN).unwrap();
        for component in 0..SIZE {
            let value = |word: &&str| EMBEDDINGS.iter().find(|(own, _)| own == word).unwrap().1[component];
            let values = SENTENCE.iter().map(|word| value(word) * FACTOR);
            let expected: f32 = values.zip(&found.weights).map(|(value, weight)| value * weight).sum();
            // fused attention sums in another order
            assert!((found.output[component] - expected).abs() < 1e-5);
        }
    }

    #[test]
    fn the_pronoun_that_leans_is_the_one_in_the_sentence_only_when_it_asks() {
        let own = EMBEDDINGS.iter().find(|(word, _)| *word == "it").unwrap();
        assert_eq!(own.1, PRONOUN);
        assert_ne!(LEANING, PRONOUN);
    }

    #[test]
    fn the_page_shows_the_table_in_order() {
        let page = page().unwrap();
        let places: Vec<usize> = [
            "0.569 ", "0.235 ", "0.134 ", "0.022 ", "0.013 ", "0.005 ", "25.72", "0.497 ", "0.182 ", "0.087 ",
        ]
        .map(|figure| page.find(figure).unwrap_or_else(|| panic!("{figure} in\n{page}")))
        .to_vec();
        assert!(places.is_sorted(), "{page}");
        assert!(page.contains("10 of 10 agree"), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    }
}
