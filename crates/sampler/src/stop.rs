//! Stop strings in a stream of text: holds back what might still become one.

/// Watches the text of one sample for stop strings.
#[derive(Debug, Clone)]
pub struct StopWatch {
    stops: Vec<String>,
    held: String,
    found: Option<String>,
}

impl StopWatch {
    /// Watches for `stops`; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Self { stops, held: String::new(), found: None }
    }

    /// The stop string that ended the sample.
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Takes the next piece of text and returns what can be shown for certain; nothing after a stop string.
    pub fn push(&mut self, piece: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        self.held.push_str(piece);
        // the stop that begins first wins; of two at one place, the longer
        let first = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at, stop)))
            .min_by_key(|(at, stop)| (*at, std::cmp::Reverse(stop.len())));
        if let Some((at, stop)) = first {
            self.found = Some(stop.clone());
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let certain = self.held.len() - self.longest_beginning();
        self.held.drain(..certain).collect()
    }

    /// What was held back, once no more text comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of the held text that begin a stop string.
    fn longest_beginning(&self) -> usize {
        let begins = |at: usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[at..]));
        let mut places = self.held.char_indices().map(|(at, _)| at);
        places.find(|&at| begins(at)).map_or(0, |at| self.held.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut watch = StopWatch::new(&stops);
        let mut shown: String = pieces.iter().map(|piece| watch.push(piece)).collect();
        shown.push_str(&watch.finish());
        (shown, watch.found().map(str::to_owned))
    }

    #[test]
    fn a_stop_string_is_found_across_pieces_and_not_shown() {
        assert_eq!(run(&["END"], &["some E", "N", "D more"]), ("some ".into(), Some("END".into())));
        assert_eq!(run(&["\n\n"], &["a\n", "b\n", "\nc"]), ("a\nb".into(), Some("\n\n".into())));
    }

    #[test]
    fn what_only_looked_like_a_stop_is_shown() {
        assert_eq!(run(&["END"], &["EN", "EMY"]), ("ENEMY".into(), None));
        assert_eq!(run(&["END"], &["THE EN"]), ("THE EN".into(), None));
        assert_eq!(run(&[""], &["a", "b"]), ("ab".into(), None));
    }

    #[test]
    fn the_earliest_stop_wins_and_characters_stay_whole() {
        assert_eq!(run(&["漢x", "é"], &["a漢", "é漢x"]), ("a漢".into(), Some("é".into())));
    }

    #[test]
    fn certain_text_is_not_held_back() {
        let mut watch = StopWatch::new(&["stop".into()]);
        assert_eq!(watch.push("abcs"), "abc");
        assert_eq!(watch.push("x"), "sx");
    }
}
