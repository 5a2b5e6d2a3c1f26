//! The word lists, and the one rule that says which pairs of words the training text never shows.

use std::collections::BTreeSet;

use softdict_random::Stream;

use crate::{dictionaries, pronouns};

/// Keys of the dictionaries; the place in the list matters, see [`VALUES`].
pub const KEYS: [&str; 16] = [
    "paris", "tokyo", "cairo", "lima", "oslo", "rome", "delhi", "hanoi", "quito", "accra", "dublin",
    "athens", "berlin", "madrid", "nairobi", "havana",
];

/// Values of the dictionaries. The value at a key's own place, its true country, is held out: no line of the
/// training text binds the two, all other 240 bindings occur.
pub const VALUES: [&str; 16] = [
    "france", "japan", "egypt", "peru", "norway", "italy", "india", "vietnam", "ecuador", "ghana", "ireland",
    "greece", "germany", "spain", "kenya", "cuba",
];

/// A class of nouns with the adjectives that only this class can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// What can be tired: animals.
    Animate,
    /// What can be wide: places that one goes to or across.
    Place,
    /// What can be heavy: things that one carries.
    Object,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Animate, Self::Place, Self::Object];

    /// The nouns of the class.
    pub fn nouns(self) -> &'static [&'static str; 12] {
        match self {
            Self::Animate => &[
                "animal", "dog", "cat", "horse", "fox", "bear", "goat", "cow", "sheep", "rabbit", "wolf",
                "donkey",
            ],
            Self::Place => &[
                "street", "road", "river", "bridge", "field", "meadow", "valley", "lake", "forest", "swamp",
                "tunnel", "square",
            ],
            Self::Object => &[
                "box", "basket", "ladder", "barrel", "crate", "bucket", "mirror", "lamp", "plank", "sack",
                "drum", "chair",
            ],
        }
    }

    /// The adjectives of the class. The one at a noun's own place is held out: no line of the training text
    /// says it of that noun, all other 132 pairs of a class occur.
    pub fn adjectives(self) -> &'static [&'static str; 12] {
        match self {
            Self::Animate => &[
                "tired", "hungry", "sleepy", "scared", "lazy", "thirsty", "shy", "weak", "nervous", "lonely",
                "sick", "bored",
            ],
            Self::Place => &[
                "wide", "long", "dark", "busy", "muddy", "noisy", "icy", "rough", "foggy", "crowded",
                "windy", "flooded",
            ],
            Self::Object => &[
                "heavy", "bulky", "fragile", "sharp", "sticky", "brittle", "rusty", "greasy", "wobbly",
                "slippery", "dusty", "smelly",
            ],
        }
    }

    /// The class of a noun of the tales; `None` for any other word.
    pub fn of_noun(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.nouns().contains(&word))
    }

    /// The class of an adjective of the tales; `None` for any other word.
    pub fn of_adjective(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.adjectives().contains(&word))
    }
}

/// The rule: the words at place `left` of one list and `right` of its partner list never meet in training.
pub(crate) fn is_held_out(left: usize, right: usize) -> bool {
    left == right
}

/// Every word and mark that the tales can contain, sorted, each once.
pub fn vocabulary() -> Vec<&'static str> {
    let lists = KEYS.into_iter().chain(VALUES).chain(dictionaries::words()).chain(pronouns::words());
    let classes = Class::ALL.into_iter().flat_map(|class| class.nouns().iter().chain(class.adjectives()));
    lists.chain(classes.copied()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// One of `items`, each as likely.
pub(crate) fn pick<T: Copy>(stream: &mut Stream, items: &[T]) -> T {
    items[stream.below(items.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_stands_in_two_lists() {
        let mut words: Vec<&str> = KEYS.into_iter().chain(VALUES).collect();
        for class in Class::ALL {
            words.extend(class.nouns().iter().chain(class.adjectives()));
        }
        words.extend(dictionaries::words());
        let grammar: BTreeSet<&str> = pronouns::words().collect();
        // the comma and the full stop serve both kinds of line
        words.extend(grammar.iter().filter(|word| ![",", "."].contains(word)));
        let distinct: BTreeSet<&str> = words.iter().copied().collect();
        assert_eq!(words.len(), distinct.len());
    }

    #[test]
    fn words_are_lower_case_ascii_or_one_mark() {
        for word in vocabulary() {
            let letters = word.bytes().all(|byte| byte.is_ascii_lowercase());
            assert!(letters && !word.is_empty() || [",", ";", "."].contains(&word), "{word:?}");
        }
    }

    #[test]
    fn the_vocabulary_has_150_to_250_words() {
        let count = vocabulary().len();
        assert!((150..=250).contains(&count), "{count}");
    }

    #[test]
    fn the_documents_own_pairs_are_held_out() {
        let place = |list: &[&str], word: &str| list.iter().position(|entry| *entry == word).unwrap();
        assert!(is_held_out(place(&KEYS, "paris"), place(&VALUES, "france")));
        assert!(is_held_out(place(&KEYS, "tokyo"), place(&VALUES, "japan")));
        for (class, noun, adjective) in
            [(Class::Animate, "animal", "tired"), (Class::Place, "street", "wide")]
        {
            assert!(is_held_out(place(class.nouns(), noun), place(class.adjectives(), adjective)));
            assert_eq!(Class::of_noun(noun), Some(class));
            assert_eq!(Class::of_adjective(adjective), Some(class));
        }
    }
}
