//! A line of the tales, and where in it the answers, their entries and their queries stand.

use std::ops::Range;

/// One word of a line that can be known only by looking it up earlier in the line.
///
/// All ranges are bytes of [`Line::text`] and cover one word without the space before it; the token of a word
/// is therefore the one that *ends* where the range ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The word to predict: a value asked for, or the noun that `it` stands for.
    pub word: Range<usize>,
    /// The same word where it must be looked up: the value in the table, the noun in the sentence.
    pub entry: Range<usize>,
    /// The word that asks: the key after the table, the pronoun `it`, or the place of the word itself.
    pub query: Range<usize>,
    /// The word that ties the query to the entry: the key in the table, or the adjective.
    pub cue: Range<usize>,
    /// The entries that would be wrong, in the order of the line.
    pub others: Vec<Range<usize>>,
    /// Whether the training text never shows this pair of words together.
    pub held_out: bool,
}

/// One line of the tales.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The line without its newline.
    pub text: String,
    /// Every word that must be looked up, in the order of the line; at least one.
    pub answers: Vec<Answer>,
}

impl Line {
    /// Whether any answer of the line is of a pair that the training text never shows.
    pub fn is_held_out(&self) -> bool {
        self.answers.iter().any(|answer| answer.held_out)
    }

    /// The word at `range`, one of the ranges of an [`Answer`] of this line; empty for a range of another line
    /// that does not fit this one.
    pub fn word(&self, range: &Range<usize>) -> &str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// The text up to `answer` without the space before it: what to give a model so that its next token is the
    /// answer. Empty for an answer of another line that does not fit this one.
    pub fn prompt(&self, answer: &Answer) -> &str {
        answer.word.start.checked_sub(1).and_then(|end| self.text.get(..end)).unwrap_or_default()
    }
}

/// A line being written word by word.
pub(crate) struct Writer {
    text: String,
}

impl Writer {
    /// Begins with the word that marks the kind of line: the only one without a space before it.
    pub(crate) fn new(marker: &str) -> Self {
        Self { text: marker.to_owned() }
    }

    /// Appends one word (or mark) after a space; returns where it stands.
    pub(crate) fn push(&mut self, word: &str) -> Range<usize> {
        self.text.push(' ');
        let start = self.text.len();
        self.text.push_str(word);
        start..self.text.len()
    }

    /// Appends each word of `phrase`.
    pub(crate) fn push_all(&mut self, phrase: &str) {
        for word in phrase.split_whitespace() {
            self.push(word);
        }
    }

    /// The finished line.
    pub(crate) fn finish(self, answers: Vec<Answer>) -> Line {
        Line { text: self.text, answers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_words_stand_where_the_ranges_say() {
        let mut writer = Writer::new("table");
        let key = writer.push("paris");
        writer.push_all("france ;");
        let line = writer.finish(Vec::new());
        assert_eq!(line.text, "table paris france ;");
        assert_eq!(line.word(&key), "paris");
        assert!(!line.is_held_out());
    }

    #[test]
    fn a_prompt_ends_before_the_space_of_its_answer() {
        let mut writer = Writer::new("table");
        let (cue, entry) = (writer.push("oslo"), writer.push("cuba"));
        writer.push(";");
        let (query, word) = (writer.push("oslo"), writer.push("cuba"));
        let answer = Answer { word, entry, query, cue, others: Vec::new(), held_out: false };
        let line = writer.finish(vec![answer]);
        assert_eq!(line.prompt(&line.answers[0]), "table oslo cuba ; oslo");
    }

    #[test]
    fn ranges_of_a_longer_line_give_nothing_rather_than_a_panic() {
        let line = Writer::new("table").finish(Vec::new());
        assert_eq!(line.word(&(3..90)), "");
    }
}
