//! The tales by number: line `index` of a seed is the same whoever asks, in whatever order.

use std::fmt;
use std::str::FromStr;

use softdict_random::{Purpose, Stream};

use crate::{CorpusError, Line, dictionaries, pronouns};

/// Which lines a text is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tale {
    /// Sentences whose `it` an adjective resolves.
    Pronouns,
    /// The same with the noun itself where `it` stood, and nothing after the adjective: what a model that sees both ways
    /// can tell at the pronoun's own place.
    Referents,
    /// Tables of random pairs, and queries to them.
    Dictionaries,
    /// Both: of three lines about two are dictionaries, which take longer to learn.
    #[default]
    Tales,
}

impl Tale {
    /// Every tale, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Pronouns, Self::Referents, Self::Dictionaries, Self::Tales];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pronouns => "pronouns",
            Self::Referents => "referents",
            Self::Dictionaries => "dictionaries",
            Self::Tales => "tales",
        }
    }
}

impl fmt::Display for Tale {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Tale {
    type Err = CorpusError;

    fn from_str(name: &str) -> Result<Self, CorpusError> {
        let found = Self::ALL.into_iter().find(|tale| tale.name() == name);
        found.ok_or_else(|| CorpusError::UnknownTale { name: name.to_owned() })
    }
}

/// Which pairs of words a line may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Never a held-out pair: the text to train on.
    Training,
    /// At least one answer of a held-out pair in every line: the test of generalisation.
    HeldOut,
}

/// Line `index` of a tale: a pure function of its arguments. Line `index` of [`Tale::Tales`] is line `index` of
/// one of the two that it mixes.
pub fn line_at(tale: Tale, part: Part, seed: u64, index: u64) -> Line {
    let held_out = part == Part::HeldOut;
    let mut stream = Stream::new(seed, Purpose::Corpus, 2 * index + u64::from(held_out));
    // drawn for every tale, so that the rest of the line does not depend on the tale
    let is_pronoun = stream.below(3) == 0;
    match tale {
        Tale::Tales if is_pronoun => pronouns::line(&mut stream, held_out),
        Tale::Pronouns => pronouns::line(&mut stream, held_out),
        Tale::Referents => pronouns::referent(&mut stream, held_out),
        Tale::Tales | Tale::Dictionaries => {
            dictionaries::line(&mut stream, dictionaries::keys(seed, held_out, index), held_out)
        }
    }
}

/// The endless lines of a tale; made by [`lines`].
#[derive(Debug, Clone)]
pub struct Lines {
    tale: Tale,
    part: Part,
    seed: u64,
    next: u64,
}

impl Iterator for Lines {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let line = line_at(self.tale, self.part, self.seed, self.next);
        self.next += 1;
        Some(line)
    }

    fn nth(&mut self, skipped: usize) -> Option<Line> {
        self.next += skipped as u64;
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// The lines of a tale from the first on; the iterator never ends.
pub fn lines(tale: Tale, part: Part, seed: u64) -> Lines {
    Lines { tale, part, seed, next: 0 }
}

/// The first `count` lines of the training text, each with its newline.
///
/// ```
/// use softdict_corpus::{Tale, generate};
/// let text = generate(Tale::Tales, 100, 1);
/// assert_eq!(text.lines().count(), 100);
/// assert!(!text.contains("paris france"));
/// ```
pub fn generate(tale: Tale, count: usize, seed: u64) -> String {
    let mut text = String::new();
    for line in lines(tale, Part::Training, seed).take(count) {
        text.push_str(&line.text);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Class, KEYS, VALUES, vocabulary};

    #[test]
    fn the_same_seed_gives_the_same_text_and_another_seed_another() {
        for tale in Tale::ALL {
            let text = generate(tale, 200, 7);
            assert_eq!(text, generate(tale, 200, 7), "{tale}");
            assert_ne!(text, generate(tale, 200, 8), "{tale}");
            assert!(generate(tale, 300, 7).starts_with(&text), "{tale}");
        }
    }

    #[test]
    fn a_mixed_line_is_the_line_of_one_of_the_two() {
        let mut pronouns = 0;
        for index in 0..2000 {
            let of = |tale| line_at(tale, Part::Training, 3, index);
            let (mixed, pronoun) = (of(Tale::Tales), of(Tale::Pronouns));
            pronouns += u32::from(mixed == pronoun);
            assert!(mixed == pronoun || mixed == of(Tale::Dictionaries));
        }
        // 667 expected, a standard deviation of 21
        assert!((540..795).contains(&pronouns), "{pronouns}");
    }

    #[test]
    fn lines_can_be_skipped_to() {
        let mut all = lines(Tale::Tales, Part::HeldOut, 4);
        let expected: Vec<Line> = all.by_ref().take(9).skip(5).collect();
        let skipped: Vec<Line> = lines(Tale::Tales, Part::HeldOut, 4).skip(5).take(4).collect();
        assert_eq!(expected, skipped);
        assert_eq!(all.next(), Some(line_at(Tale::Tales, Part::HeldOut, 4, 9)));
    }

    #[test]
    fn no_held_out_pair_meets_in_a_line_of_the_training_text() {
        let text = generate(Tale::Tales, 20_000, 1) + &generate(Tale::Referents, 5000, 2);
        let bindings = KEYS.into_iter().zip(VALUES);
        let states = Class::ALL
            .into_iter()
            .flat_map(|class| class.nouns().iter().copied().zip(class.adjectives().iter().copied()));
        let bindings: Vec<String> = bindings.map(|(key, value)| format!(" {key} {value} ")).collect();
        let states: Vec<(&str, &str)> = states.collect();
        for line in text.lines() {
            assert!(!bindings.iter().any(|pair| line.contains(pair.as_str())), "{line}");
            let words: BTreeSet<&str> = line.split(' ').collect();
            assert!(
                !states.iter().any(|(noun, state)| words.contains(noun) && words.contains(state)),
                "{line}"
            );
        }
    }

    #[test]
    fn every_line_of_the_held_out_part_holds_out_an_answer_and_no_other_line_does() {
        for tale in Tale::ALL {
            assert!(lines(tale, Part::HeldOut, 2).take(1000).all(|line| line.is_held_out()));
            assert!(!lines(tale, Part::Training, 2).take(1000).any(|line| line.is_held_out()));
        }
    }

    #[test]
    fn every_line_has_at_most_60_words_and_single_spaces() {
        for part in [Part::Training, Part::HeldOut] {
            for line in lines(Tale::Tales, part, 6).take(5000) {
                let words: Vec<&str> = line.text.split(' ').collect();
                assert!(words.len() <= 60, "{}", line.text);
                assert!(words.iter().all(|word| !word.is_empty()), "{}", line.text);
                assert!(["table", "story"].contains(&words[0]), "{}", line.text);
                assert_eq!(words.last(), Some(&"."));
            }
        }
    }

    #[test]
    fn the_text_uses_the_whole_vocabulary_and_nothing_else() {
        let text = generate(Tale::Tales, 5000, 9);
        let used: BTreeSet<&str> = text.split_whitespace().collect();
        assert_eq!(used.into_iter().collect::<Vec<_>>(), vocabulary());
    }

    #[test]
    fn names_are_read_back_and_a_wrong_one_is_named() {
        for tale in Tale::ALL {
            assert_eq!(tale.name().parse(), Ok(tale));
        }
        let error = "tale".parse::<Tale>().unwrap_err();
        let message =
            r#"corpus: there is no tale "tale"; choose one of pronouns, referents, dictionaries, tales"#;
        assert_eq!(error.to_string(), message);
    }
}
