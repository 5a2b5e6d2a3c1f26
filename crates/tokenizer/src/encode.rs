//! Encoding a text of any length: in chunks, on all threads, in memory that does not grow with it.

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::chunk::{Cut, LONGEST_RUN, batch, batch_bytes, chunks};
use crate::error::{Error, Result};
use crate::tokenizer::{Encoder, Tokenizer};
use crate::utf8::count_characters;

/// Where a chunk that starts so far before the end of what was read ends does not depend on what follows:
/// a run and a character.
const LOOK_AHEAD: usize = LONGEST_RUN + 4;

/// Why a chunk has no ids; the place is a byte offset in the chunk.
enum Fault {
    Character(char, usize),
    NotUtf8(usize),
}

/// What was encoded before the bytes at hand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origin {
    bytes: usize,
    characters: usize,
}

impl Tokenizer {
    /// Encodes what a reader gives, part by part, in memory that does not grow with the text.
    ///
    /// `finish` makes something of the ids of each part, on the thread that encoded it; `sink` gets what it
    /// made in the order of the text. Together the parts have the ids that [`Tokenizer::encode_bytes`] gives
    /// for all of the text. `name` stands for the reader in messages. A tokenizer of another kind than char,
    /// byte or BPE needs the whole text at once.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_bytes`], after the parts before it have been handed over; also when the reader
    /// or `sink` fails.
    pub fn encode_stream<T: Send, E: From<Error>>(
        &self,
        mut input: impl Read,
        name: &str,
        finish: impl Fn(&[u32]) -> T + Sync,
        mut sink: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        let wanted = match &self.encoder {
            Encoder::Foreign(_) => usize::MAX,
            _ => LOOK_AHEAD + LONGEST_RUN.max(batch_bytes()),
        };
        let (mut text, mut origin) = (Vec::new(), Origin::default());
        loop {
            let missing = wanted - text.len();
            let read = input.by_ref().take(missing as u64).read_to_end(&mut text);
            let whole = read.map_err(Error::io(Path::new(name), "read"))? < missing;
            let end = if whole { text.len() } else { certain_end(&text) };
            self.encode_range(&text, 0..end, origin, &finish, &mut |part, _| sink(part))?;
            if whole {
                return Ok(());
            }
            origin.bytes += end;
            origin.characters += count_characters(&text[..end]);
            text.drain(..end);
        }
    }

    /// Encodes a range of `bytes` chunk by chunk: `finish` makes something of the ids of each, on the thread
    /// that encoded it, and `sink` gets that in order, each time with the place that it reaches up to.
    ///
    /// The range is encoded as a text of its own; what is before it, in `bytes` and before them, counts for the
    /// places in errors alone.
    pub(crate) fn encode_range<T: Send, E: From<Error>>(
        &self,
        bytes: &[u8],
        range: Range<usize>,
        origin: Origin,
        finish: &(impl Fn(&[u32]) -> T + Sync),
        sink: &mut dyn FnMut(T, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let cut = match &self.encoder {
            Encoder::Foreign(foreign) => {
                return foreign.encode(bytes, range, |ids, end| sink(finish(ids), end));
            }
            Encoder::Byte => Cut::Byte,
            Encoder::Char(_) => Cut::Character,
            Encoder::Bpe(_) => Cut::Piece,
        };
        // ids are needed no longer than it takes to finish them
        let buffers = Mutex::new(Vec::new());
        let encode = |chunk: &Range<usize>| {
            let lock = || buffers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut ids: Vec<u32> = lock().pop().unwrap_or_default();
            ids.clear();
            let encoded = self.encode_chunk(&bytes[chunk.clone()], &mut ids).map(|()| finish(&ids));
            lock().push(ids);
            (chunk.clone(), encoded)
        };
        let mut deliver = |(chunk, encoded): (Range<usize>, Result<T, Fault>)| {
            sink(encoded.map_err(|fault| self.describe(&fault, bytes, chunk.start, origin))?, chunk.end)
        };
        let mut all = chunks(bytes, range, cut);
        let mut finished = Vec::new();
        loop {
            let batch = batch(&mut all);
            match batch.as_slice() {
                [] => return finished.into_iter().try_for_each(deliver),
                // a prompt: not worth waking a thread
                [only] if finished.is_empty() => deliver(encode(only))?,
                batch => {
                    let mut encoded = Vec::new();
                    // while one batch is encoded this thread hands the one before it over
                    rayon::in_place_scope(|scope| {
                        scope.spawn(|_| batch.par_iter().map(encode).collect_into_vec(&mut encoded));
                        finished.drain(..).try_for_each(&mut deliver)
                    })?;
                    finished = encoded;
                }
            }
        }
    }

    fn encode_chunk(&self, bytes: &[u8], ids: &mut Vec<u32>) -> Result<(), Fault> {
        let text = || std::str::from_utf8(bytes).map_err(|error| Fault::NotUtf8(error.valid_up_to()));
        match &self.encoder {
            Encoder::Byte => ids.extend(bytes.iter().copied().map(u32::from)),
            Encoder::Char(table) => {
                table.encode(text()?, ids).map_err(|(character, at)| Fault::Character(character, at))?;
            }
            Encoder::Bpe(encoder) => encoder.encode(text()?, ids),
            // has its own way through a text
            Encoder::Foreign(_) => {}
        }
        Ok(())
    }

    fn describe(&self, fault: &Fault, bytes: &[u8], start: usize, origin: Origin) -> Error {
        match *fault {
            Fault::NotUtf8(at) => Error::InputNotUtf8 { offset: origin.bytes + start + at },
            Fault::Character(character, at) => Error::UnknownCharacter {
                character,
                position: origin.characters + count_characters(&bytes[..start + at]) + 1,
                vocab_size: self.vocab_size(),
            },
        }
    }
}

/// The end of the last chunk that ends there whatever follows.
fn certain_end(text: &[u8]) -> usize {
    // where a piece may end any text may be cut
    let all = chunks(text, 0..text.len(), Cut::Piece);
    all.take_while(|chunk| chunk.start + LOOK_AHEAD <= text.len()).last().map_or(0, |chunk| chunk.end)
}
