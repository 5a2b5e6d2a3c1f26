//! Dictionary lines: pairs bound at random, then queries that only this line's table answers.
//!
//! Two choices decide how soon a model looks up. Both were measured with a decoder of two layers and width 64 on
//! windows of 64 tokens that begin anywhere, 16 windows a step; seeds differ much, so read them as tendencies.
//! - All but one of a table's keys are asked, in random order: the last answer is never simply the value that is
//!   left over. With all keys asked, two seeds took 700 and more than 2,000 steps; with all but one, 800 and 800.
//! - Four lines in a row share no key: hardly any window holds two tables that answer one query differently.
//!   With keys drawn anew for each line, one seed stood at 98 % after 2,000 steps; with dealt keys at 100 % after
//!   800.
//!
//! Fewer tables in sight help as well: with mixed lines and 1,024 tokens a step, windows of 32 tokens took three
//! seeds 800 to 1,200 steps, windows of 64 took one of three more than 2,000.

use std::ops::Range;

use softdict_random::{Purpose, Stream};

use crate::line::{Answer, Line, Writer};
use crate::words::{KEYS, VALUES, is_held_out, pick};

/// Pairs of a table.
const PAIRS: usize = 4;
/// Lines in a row whose tables share no key.
const ROUND: usize = KEYS.len() / PAIRS;
/// Queries to a table.
const QUERIES: usize = PAIRS - 1;

const MARKER: &str = "table";
const BETWEEN_PAIRS: &str = ",";
const AFTER_TABLE: &str = ";";
const END: &str = ".";

/// One pair of a table: places in [`KEYS`] and [`VALUES`].
#[derive(Clone, Copy)]
struct Pair {
    key: usize,
    value: usize,
}

impl Pair {
    fn is_held_out(self) -> bool {
        is_held_out(self.key, self.value)
    }
}

/// The keys of line `index`, places in [`KEYS`]: each round of four lines deals them all out anew.
pub(crate) fn keys(seed: u64, held_out: bool, index: u64) -> [usize; PAIRS] {
    let round = index / ROUND as u64;
    // rounds draw from substreams far above those of the lines, which count from 0
    let mut stream = Stream::new(seed, Purpose::Corpus, (1 << 55) + 2 * round + u64::from(held_out));
    let mut dealt: [usize; KEYS.len()] = std::array::from_fn(|key| key);
    stream.shuffle(&mut dealt);
    let first = (index % ROUND as u64) as usize * PAIRS;
    std::array::from_fn(|place| dealt[first + place])
}

/// A line of the training text with these keys, or one that asks for at least one held-out pair.
pub(crate) fn line(stream: &mut Stream, keys: [usize; PAIRS], held_out: bool) -> Line {
    let pairs = bind(stream, keys, held_out);
    let mut order: [usize; PAIRS] = std::array::from_fn(|pair| pair);
    stream.shuffle(&mut order);
    if held_out && !order[..QUERIES].iter().any(|&pair| pairs[pair].is_held_out()) {
        order.swap(stream.below(QUERIES), QUERIES);
    }

    let mut writer = Writer::new(MARKER);
    let mut entries: Vec<(Range<usize>, Range<usize>)> = Vec::with_capacity(PAIRS);
    for (place, pair) in pairs.iter().enumerate() {
        if place > 0 {
            writer.push(BETWEEN_PAIRS);
        }
        entries.push((writer.push(KEYS[pair.key]), writer.push(VALUES[pair.value])));
    }
    writer.push(AFTER_TABLE);
    let mut answers = Vec::with_capacity(QUERIES);
    for (place, &pair) in order[..QUERIES].iter().enumerate() {
        if place > 0 {
            writer.push(BETWEEN_PAIRS);
        }
        let (query, word) = (writer.push(KEYS[pairs[pair].key]), writer.push(VALUES[pairs[pair].value]));
        let (cue, entry) = entries[pair].clone();
        let others =
            (0..PAIRS).filter(|&other| other != pair).map(|other| entries[other].1.clone()).collect();
        answers.push(Answer { word, entry, query, cue, others, held_out: pairs[pair].is_held_out() });
    }
    writer.push(END);
    writer.finish(answers)
}

/// Gives each key a value of its own: none of the pairs held out, or at least one.
fn bind(stream: &mut Stream, keys: [usize; PAIRS], held_out: bool) -> Vec<Pair> {
    let mut own = [false; PAIRS];
    if held_out {
        own.fill_with(|| stream.below(2) == 0);
        own[stream.below(PAIRS)] = true;
    }
    // held-out pairs take their values first, for only one value will do for each of them
    let mut free: Vec<usize> = (0..VALUES.len()).collect();
    free.retain(|value| !keys.iter().zip(own).any(|(key, own)| own && key == value));
    let mut pairs = Vec::with_capacity(PAIRS);
    for (key, own) in keys.into_iter().zip(own) {
        let value = if own {
            key
        } else {
            let allowed: Vec<usize> =
                free.iter().copied().filter(|&value| !is_held_out(key, value)).collect();
            let value = pick(stream, &allowed);
            free.retain(|&other| other != value);
            value
        };
        pairs.push(Pair { key, value });
    }
    pairs
}

/// The words of these lines besides keys and values.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    [MARKER, BETWEEN_PAIRS, AFTER_TABLE, END].into_iter()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn draw(count: u64, held_out: bool) -> impl Iterator<Item = Line> {
        (0..count).map(move |index| {
            line(&mut Stream::new(11, Purpose::Corpus, index), keys(11, held_out, index), held_out)
        })
    }

    /// The table of a line as its text shows it.
    fn table(line: &Line) -> BTreeMap<&str, &str> {
        let (table, _) = line.text.strip_prefix("table ").unwrap().split_once(" ; ").unwrap();
        table.split(" , ").map(|pair| pair.split_once(' ').unwrap()).collect()
    }

    #[test]
    fn every_query_is_answered_from_the_table_of_its_line() {
        for line in draw(2000, false).chain(draw(2000, true)) {
            let table = table(&line);
            let (_, queries) = line.text.split_once(" ; ").unwrap();
            let queries: Vec<&str> = queries.strip_suffix(" .").unwrap().split(" , ").collect();
            assert_eq!(queries.len(), QUERIES, "{}", line.text);
            assert_eq!(queries.len(), line.answers.len());
            for (query, answer) in queries.iter().zip(&line.answers) {
                let (key, value) = query.split_once(' ').unwrap();
                assert_eq!(table[key], value, "{}", line.text);
                assert_eq!((line.word(&answer.query), line.word(&answer.word)), (key, value));
                assert_eq!((line.word(&answer.cue), line.word(&answer.entry)), (key, value));
                assert_eq!(answer.cue.end + 1, answer.entry.start);
                assert_eq!(answer.query.end + 1, answer.word.start);
                assert!(answer.entry.end < answer.query.start);
                assert_eq!(answer.others.len(), PAIRS - 1);
                assert!(answer.others.iter().all(|other| line.word(other) != value));
                assert!(answer.others.iter().all(|other| table.values().any(|v| *v == line.word(other))));
            }
        }
    }

    #[test]
    fn keys_and_values_of_a_line_are_distinct() {
        for line in draw(2000, false).chain(draw(2000, true)) {
            let table = table(&line);
            assert_eq!(table.len(), PAIRS, "{}", line.text);
            assert_eq!(table.values().collect::<BTreeSet<_>>().len(), PAIRS, "{}", line.text);
            let asked: BTreeSet<&str> = line.answers.iter().map(|answer| line.word(&answer.query)).collect();
            assert_eq!(asked.len(), QUERIES, "{}", line.text);
        }
    }

    #[test]
    fn four_lines_in_a_row_share_no_key_and_rounds_differ() {
        let mut rounds = BTreeSet::new();
        let lines: Vec<Line> = draw(400, false).collect();
        for round in lines.chunks(ROUND) {
            let keys: Vec<&str> = round.iter().flat_map(|line| table(line).into_keys()).collect();
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), KEYS.len(), "{keys:?}");
            rounds.insert(keys);
        }
        assert_eq!(rounds.len(), 100);
    }

    #[test]
    fn training_lines_show_every_pair_but_the_held_out_ones() {
        let mut seen = BTreeMap::new();
        for line in draw(8000, false) {
            for (key, value) in table(&line) {
                *seen.entry((key.to_owned(), value.to_owned())).or_insert(0) += 1;
            }
        }
        for (key, value) in KEYS.into_iter().zip(VALUES) {
            assert!(!seen.contains_key(&(key.to_owned(), value.to_owned())), "{key} {value}");
        }
        assert_eq!(seen.len(), 16 * 15);
        // 32,000 pairs over 240 bindings: 133 expected, a standard deviation of 12
        assert!(seen.values().all(|&count| (70..200).contains(&count)), "{seen:?}");
    }

    #[test]
    fn held_out_lines_ask_for_a_held_out_pair() {
        for line in draw(2000, true) {
            assert!(line.is_held_out(), "{}", line.text);
            for answer in &line.answers {
                let key = KEYS.iter().position(|key| *key == line.word(&answer.query)).unwrap();
                assert_eq!(answer.held_out, VALUES[key] == line.word(&answer.word), "{}", line.text);
            }
        }
    }

    #[test]
    fn the_place_asked_for_is_every_place_of_the_table_alike() {
        let mut counts = [0_u32; 4];
        for line in draw(8000, false) {
            let answer = &line.answers[0];
            counts[answer.others.iter().filter(|other| other.start < answer.entry.start).count()] += 1;
        }
        // 2,000 each, a standard deviation of 39
        assert!(counts.iter().all(|count| count.abs_diff(2000) < 235), "{counts:?}");
    }
}
