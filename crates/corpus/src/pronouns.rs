//! Pronoun lines: which noun `it` stands for is decided by the adjective after it, and by nothing else.
//!
//! A sentence holds at most one noun of each class, so that the adjective leaves one choice. The order of the
//! nouns and the noun that is meant are drawn independently: neither place nor nearness says anything.

use std::ops::Range;

use softdict_random::Stream;

use crate::line::{Answer, Line, Writer};
use crate::words::{Class, is_held_out, pick};

const MARKER: &str = "story";
const BECAUSE: &str = "because";
const PRONOUN: &str = "it";
const ARTICLE: &str = "the";
const ASK: &str = ", so the";
const END: &str = ".";

/// When it happened; mostly unsaid. They move the nouns, so that no absolute position can be learned.
const OPENINGS: [&str; 8] = ["", "", "", "", "one morning", "last night", "in winter", "after lunch"];

/// What stands between `it` and the adjective.
const LINKS: [&str; 4] = ["was too", "was very", "looked too", "seemed very"];

/// Sentences by the classes in them, then by the order of the nouns, each order as likely; a capital stands for
/// a noun: `A` an animate one, `P` a place, `O` an object.
const SCENES: [&[&[&str]]; 4] = [
    &[
        &["the A did not cross the P", "the A could not leave the P", "the A never saw the P"],
        &["the P was not crossed by the A", "the P did not suit the A", "the P was never seen by the A"],
    ],
    &[
        &["the A did not carry the O", "the A could not move the O", "the A never used the O"],
        &["the O was not carried by the A", "the O did not suit the A", "the O was never used by the A"],
    ],
    &[
        &["the O did not suit the P", "the O could not cross the P", "the O was never used on the P"],
        &["the P did not suit the O", "the P could not hold the O", "the P was not made for the O"],
    ],
    &[
        &["the A did not carry the O across the P"],
        &["the A did not cross the P with the O"],
        &["the O was not carried by the A across the P"],
        &["the O was never moved across the P by the A"],
        &["near the P the A left the O"],
        &["near the P the O was left by the A"],
    ],
];

/// What a noun of the class did in the end.
fn endings(class: Class) -> &'static [&'static str] {
    match class {
        Class::Animate => &["rested", "waited", "slept", "turned back"],
        Class::Place => &["stayed empty", "stayed quiet"],
        Class::Object => &["stayed behind", "stayed there"],
    }
}

/// The class that a capital of [`SCENES`] stands for.
fn slot(word: &str) -> Option<Class> {
    match word {
        "A" => Some(Class::Animate),
        "P" => Some(Class::Place),
        "O" => Some(Class::Object),
        _ => None,
    }
}

/// A noun of a sentence: its class, its place among the nouns of the class, and where it stands.
struct Noun {
    class: Class,
    place: usize,
    range: Range<usize>,
}

/// What is told of a sentence before the pronoun's place.
struct Told {
    writer: Writer,
    meant: Noun,
    others: Vec<Range<usize>>,
}

/// The sentence up to `because`, and which of its nouns is meant.
fn tell(stream: &mut Stream) -> Told {
    let mut writer = Writer::new(MARKER);
    writer.push_all(pick(stream, &OPENINGS));
    let orders = pick(stream, &SCENES);
    let sentences = pick(stream, orders);
    let mut nouns: Vec<Noun> = Vec::with_capacity(Class::ALL.len());
    for word in pick(stream, sentences).split_whitespace() {
        if let Some(class) = slot(word) {
            let place = stream.below(class.nouns().len());
            nouns.push(Noun { class, place, range: writer.push(class.nouns()[place]) });
        } else {
            writer.push(word);
        }
    }

    let meant = nouns.swap_remove(stream.below(nouns.len()));
    let mut others: Vec<Range<usize>> = nouns.into_iter().map(|noun| noun.range).collect();
    others.sort_by_key(|range| range.start);
    writer.push(BECAUSE);
    Told { writer, meant, others }
}

/// A line of the training text, or one whose noun and adjective are held out.
pub(crate) fn line(stream: &mut Stream, held_out: bool) -> Line {
    let Told { mut writer, meant, others } = tell(stream);
    let query = writer.push(PRONOUN);
    writer.push_all(pick(stream, &LINKS));
    let cue = writer.push(meant.class.adjectives()[adjective(stream, &meant, held_out)]);
    writer.push_all(ASK);
    let word = writer.push(meant.class.nouns()[meant.place]);
    writer.push_all(pick(stream, endings(meant.class)));
    writer.push(END);
    writer.finish(vec![Answer { word, entry: meant.range, query, cue, others, held_out }])
}

/// The same with the noun where the pronoun stood, as `because the animal was too hungry`: its own place asks.
pub(crate) fn referent(stream: &mut Stream, held_out: bool) -> Line {
    let Told { mut writer, meant, others } = tell(stream);
    writer.push(ARTICLE);
    let word = writer.push(meant.class.nouns()[meant.place]);
    writer.push_all(pick(stream, &LINKS));
    let cue = writer.push(meant.class.adjectives()[adjective(stream, &meant, held_out)]);
    writer.push(END);
    writer.finish(vec![Answer { query: word.clone(), word, entry: meant.range, cue, others, held_out }])
}

/// Draws an adjective for `noun`: one of those that the training text says of it, or one of the others.
fn adjective(stream: &mut Stream, noun: &Noun, held_out: bool) -> usize {
    let all = 0..noun.class.adjectives().len();
    let allowed: Vec<usize> = all.filter(|&place| is_held_out(noun.place, place) == held_out).collect();
    pick(stream, &allowed)
}

/// The words of these lines besides nouns and adjectives, some of them more than once.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    let sentences = SCENES.into_iter().flatten().copied().flatten().copied();
    let rest = [MARKER, BECAUSE, PRONOUN, ARTICLE, ASK, END].into_iter().chain(OPENINGS).chain(LINKS);
    let ends = Class::ALL.into_iter().flat_map(endings).copied();
    sentences.chain(rest).chain(ends).flat_map(str::split_whitespace).filter(|word| slot(word).is_none())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use softdict_random::Purpose;

    use super::*;

    fn draw(count: u64, held_out: bool) -> impl Iterator<Item = Line> {
        (0..count).map(move |index| line(&mut Stream::new(5, Purpose::Corpus, index), held_out))
    }

    #[test]
    fn the_adjective_alone_decides_which_noun_is_meant() {
        for line in draw(4000, false).chain(draw(4000, true)) {
            let [answer] = &line.answers[..] else { panic!("one answer: {}", line.text) };
            let class = Class::of_adjective(line.word(&answer.cue)).unwrap();
            assert_eq!(Class::of_noun(line.word(&answer.entry)), Some(class), "{}", line.text);
            assert_eq!(line.word(&answer.word), line.word(&answer.entry));
            assert_eq!(line.word(&answer.query), "it");
            assert!(line.prompt(answer).ends_with(" , so the"));
            assert!(answer.entry.end < answer.query.start && answer.query.end < answer.cue.start);
            assert!(answer.cue.end < answer.word.start);
            let mut classes: BTreeSet<_> = BTreeSet::from([class]);
            for other in &answer.others {
                assert!(classes.insert(Class::of_noun(line.word(other)).unwrap()), "{}", line.text);
            }
            assert!(classes.len() >= 2, "{}", line.text);
            let before = line.prompt(answer).split(' ');
            assert_eq!(before.filter(|word| Class::of_noun(word).is_some()).count(), classes.len());
        }
    }

    #[test]
    fn a_referent_stands_where_its_pronoun_stood_and_is_asked_there() {
        for index in 0..400 {
            for held_out in [false, true] {
                let stream = || Stream::new(5, Purpose::Corpus, index);
                let (sentence, named) = (line(&mut stream(), held_out), referent(&mut stream(), held_out));
                let [told, asked] = [&sentence.answers[0], &named.answers[0]];
                let noun = sentence.word(&told.entry);
                let (before, after) =
                    (&sentence.text[..told.query.start], &sentence.text[told.query.end..told.cue.end]);
                assert_eq!(named.text, format!("{before}the {noun}{after} ."));
                assert_eq!([named.word(&asked.word), named.word(&asked.entry)], [noun, noun]);
                assert_eq!(
                    (&asked.entry, &asked.others, asked.held_out),
                    (&told.entry, &told.others, held_out)
                );
                assert_eq!(named.word(&asked.cue), sentence.word(&told.cue));
                assert!(asked.word.start > asked.entry.end && asked.word == asked.query);
            }
        }
    }

    /// Two nouns of known classes: in each order each is meant as often. Three: each place is meant as often.
    #[test]
    fn neither_place_nor_nearness_gives_the_noun_away() {
        let mut counts: BTreeMap<(Vec<Class>, usize), u32> = BTreeMap::new();
        for line in draw(24_000, false) {
            let answer = &line.answers[0];
            let mut nouns = answer.others.clone();
            nouns.push(answer.entry.clone());
            nouns.sort_by_key(|range| range.start);
            let classes = nouns.iter().map(|range| Class::of_noun(line.word(range)).unwrap()).collect();
            let place = nouns.iter().position(|range| *range == answer.entry).unwrap();
            *counts.entry((classes, place)).or_default() += 1;
        }
        assert_eq!(counts.len(), 6 * 2 + 6 * 3);
        for ((classes, place), count) in counts {
            // 6,000 lines a scene over its orders and places: 1,500 or 333 expected, six standard deviations
            let (expected, slack): (u32, u32) = if classes.len() == 2 { (1500, 225) } else { (333, 109) };
            assert!(count.abs_diff(expected) < slack, "{classes:?} {place}: {count}");
        }
    }

    #[test]
    fn training_lines_show_every_pair_but_the_held_out_ones() {
        let mut seen = BTreeSet::new();
        for line in draw(12_000, false) {
            let answer = &line.answers[0];
            seen.insert((line.word(&answer.word).to_owned(), line.word(&answer.cue).to_owned()));
        }
        for class in Class::ALL {
            for (noun, adjective) in class.nouns().iter().zip(class.adjectives()) {
                assert!(!seen.contains(&((*noun).to_owned(), (*adjective).to_owned())), "{noun} {adjective}");
            }
        }
        assert_eq!(seen.len(), 3 * 12 * 11);
    }

    #[test]
    fn held_out_lines_are_of_held_out_pairs() {
        let mut seen = BTreeSet::new();
        for line in draw(2000, true) {
            let answer = &line.answers[0];
            let class = Class::of_adjective(line.word(&answer.cue)).unwrap();
            let place = class.adjectives().iter().position(|word| *word == line.word(&answer.cue)).unwrap();
            assert_eq!(class.nouns()[place], line.word(&answer.word));
            assert!(answer.held_out);
            seen.insert(line.word(&answer.word).to_owned());
        }
        assert_eq!(seen.len(), 3 * 12);
    }
}
