//! Which tokens each pass sees: windows of a file of ids, chosen by one integer.

use crate::error::{Result, TrainError};
use crate::settings::Sampling;
use softdict_model::random::{Purpose, Stream};
use softdict_tokenizer::TokenFile;

/// A cursor over the windows of a text; its whole state is the number of windows drawn so far.
#[derive(Debug)]
pub struct Cursor<'a> {
    tokens: &'a TokenFile,
    context: usize,
    sampling: Sampling,
    seed: u64,
    drawn: u64,
    order: Option<(u64, Vec<u32>)>, // the epoch and its order of windows
}

impl<'a> Cursor<'a> {
    /// A cursor after `drawn` windows.
    ///
    /// # Errors
    /// When the text, called `name` in the message, has no whole window.
    pub fn new(
        tokens: &'a TokenFile,
        name: &str,
        context: usize,
        sampling: Sampling,
        seed: u64,
        drawn: u64,
    ) -> Result<Self> {
        let (found, needed) = (tokens.len(), context + 1);
        if found < needed {
            return Err(TrainError::TooShort { text: name.to_owned(), found, needed, context });
        }
        Ok(Self { tokens, context, sampling, seed, drawn, order: None })
    }

    /// Windows drawn so far.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// Goes on as if `drawn` windows had been drawn.
    pub fn seek(&mut self, drawn: u64) {
        self.drawn = drawn;
    }

    /// Fills the inputs and, one token later, the targets of `inputs.len() / context` sequences.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn fill(&mut self, inputs: &mut [u32], targets: &mut [u32]) -> Result<()> {
        for (inputs, targets) in
            inputs.chunks_exact_mut(self.context).zip(targets.chunks_exact_mut(self.context))
        {
            let start = self.next_start();
            self.tokens.copy_to(start..start + self.context, inputs)?;
            self.tokens.copy_to(start + 1..start + 1 + self.context, targets)?;
        }
        Ok(())
    }

    fn next_start(&mut self) -> usize {
        let drawn = self.drawn;
        self.drawn += 1;
        match self.sampling {
            Sampling::Random => {
                let mut stream = Stream::new(self.seed, Purpose::Data, 0);
                stream.seek(2 * drawn); // `below` takes two words
                stream.below(self.tokens.len() - self.context)
            }
            Sampling::Epoch => {
                let windows = (self.tokens.len() - 1) / self.context;
                let (epoch, index) = (drawn / windows as u64, (drawn % windows as u64) as usize);
                if self.order.as_ref().is_none_or(|(known, _)| *known != epoch) {
                    let mut order: Vec<u32> = (0..windows as u32).collect();
                    Stream::new(self.seed, Purpose::Data, epoch + 1).shuffle(&mut order);
                    self.order = Some((epoch, order));
                }
                let window = self.order.as_ref().map_or(0, |(_, order)| order[index]);
                window as usize * self.context
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::token_file;

    fn starts(sampling: Sampling, drawn: u64, count: usize) -> Vec<u32> {
        let (_folder, tokens) = token_file(53);
        let mut cursor = Cursor::new(&tokens, "text", 5, sampling, 7, drawn).unwrap();
        let (mut inputs, mut targets) = (vec![0; 5 * count], vec![0; 5 * count]);
        cursor.fill(&mut inputs, &mut targets).unwrap();
        for (inputs, targets) in inputs.chunks(5).zip(targets.chunks(5)) {
            assert_eq!(inputs[1..], targets[..4]);
        }
        assert_eq!(cursor.drawn(), drawn + count as u64);
        inputs.iter().step_by(5).copied().collect() // the file counts up, so an id is its place
    }

    #[test]
    fn a_cursor_continues_where_it_was() {
        for sampling in [Sampling::Random, Sampling::Epoch] {
            let all = starts(sampling, 0, 25);
            assert_eq!(all[12..], starts(sampling, 12, 13));
        }
    }

    #[test]
    fn an_epoch_sees_every_window_once_and_the_next_one_in_another_order() {
        let starts = starts(Sampling::Epoch, 0, 20);
        let (mut first, second) = (starts[..10].to_vec(), starts[10..].to_vec());
        assert_ne!(first, second);
        first.sort_unstable();
        assert_eq!(first, (0..10).map(|window| window * 5).collect::<Vec<_>>());
    }

    #[test]
    fn random_windows_reach_both_ends() {
        let starts = starts(Sampling::Random, 0, 600);
        assert_eq!((starts.iter().min(), starts.iter().max()), (Some(&0), Some(&47)));
    }

    #[test]
    fn a_text_shorter_than_a_window_says_what_is_needed() {
        let (_folder, tokens) = token_file(40);
        let error = Cursor::new(&tokens, "short.txt", 64, Sampling::Random, 7, 0).unwrap_err().to_string();
        for part in ["short.txt", "40 tokens", "65 are needed", "model.context = 64"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
