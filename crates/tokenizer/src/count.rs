//! What training reads from a text: its characters, or its pieces and how often each occurs.
//!
//! Both passes go through the text in batches of chunks, many threads at once, and come out the same
//! whatever the number of threads.

use rayon::prelude::*;

use crate::chunk::{Cut, batch, chunks};
use crate::error::Result;
use crate::piece::{Piece, PieceMap};
use crate::split::Splitter;
use crate::text::TextFile;
use crate::utf8::ascii_stretches;

/// Merges are learned from pieces of at most this many bytes; a longer run is cut for learning alone.
///
/// Without a bound, each merge would rewrite a line of DNA of any length once.
pub(crate) const LEARNED_PIECE_BYTES: usize = 128;

/// Memory for the table of pieces: the sum of [`cost`].
const TABLE_BYTES: usize = 128 << 20;

/// The distinct characters of a text, in order of code point.
pub(crate) fn characters(text: &TextFile, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<char>> {
    let mut all = Characters::default();
    for_chunks(text, Cut::Character, progress, Characters::of, |found| all.add(&found))?;
    Ok(('\0'..=char::MAX).filter(|&character| all.has(character)).collect())
}

/// A set of characters: one bit each.
struct Characters(Vec<u64>);

impl Default for Characters {
    fn default() -> Self {
        Self(vec![0; char::MAX as usize / 64 + 1])
    }
}

impl Characters {
    fn of(text: &str) -> Self {
        let mut found = Self::default();
        let mut bytes = [false; 128];
        for (ascii, any) in ascii_stretches(text) {
            ascii.bytes().for_each(|byte| bytes[usize::from(byte)] = true);
            any.chars().for_each(|character| found.insert(character));
        }
        ('\0'..'\u{80}').filter(|&ascii| bytes[ascii as usize]).for_each(|ascii| found.insert(ascii));
        found
    }

    fn insert(&mut self, character: char) {
        self.0[character as usize / 64] |= 1 << (character as usize % 64);
    }

    fn has(&self, character: char) -> bool {
        self.0[character as usize / 64] >> (character as usize % 64) & 1 == 1
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(bits, more)| *bits |= more);
    }
}

/// The distinct pieces of a text.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Each piece and how often it occurs.
    pub(crate) counts: PieceMap<u64>,
    /// Length of the longest run without a break, which learning cuts when it is too long.
    pub(crate) longest_bytes: usize,
    /// Whether the table was full, so that pieces seen late are not in it.
    pub(crate) full: bool,
    /// What is left of [`TABLE_BYTES`].
    room: usize,
}

/// Counts the pieces of a text.
pub(crate) fn pieces(text: &TextFile, progress: &mut dyn FnMut(u64, u64)) -> Result<Pieces> {
    let splitter = Splitter::new()?;
    let mut all = Pieces { room: TABLE_BYTES, ..Pieces::default() };
    for_chunks(
        text,
        Cut::Piece,
        progress,
        |chunk| {
            let mut counts: PieceMap<u64> = PieceMap::default();
            let mut longest = 0;
            for piece in splitter.pieces(chunk) {
                longest = longest.max(piece.len());
                for start in piece.clone().step_by(LEARNED_PIECE_BYTES) {
                    let part = start..piece.end.min(start + LEARNED_PIECE_BYTES);
                    counts.add(Piece::of(chunk.as_bytes(), part), 1);
                }
            }
            (counts, longest)
        },
        |(counts, longest)| {
            all.longest_bytes = all.longest_bytes.max(longest);
            all.add(&counts);
        },
    )?;
    Ok(all)
}

impl Pieces {
    /// Adds the counts of the next chunk; what is new in it only while there is room.
    fn add(&mut self, counts: &PieceMap<u64>) {
        let mut new = Vec::new();
        for (piece, &count) in counts.iter() {
            match self.counts.get_mut(piece) {
                Some(total) => *total += count,
                None => new.push((piece, count)),
            }
        }
        if new.iter().map(|&(piece, _)| cost(piece)).sum::<usize>() > self.room {
            // which pieces still fit must not depend on the order of a hash table
            new.sort_unstable();
        }
        for (piece, count) in new {
            if let Some(room) = self.room.checked_sub(cost(piece)) {
                self.room = room;
                self.counts.insert(piece, count);
            } else {
                self.full = true;
            }
        }
    }
}

/// Bytes that a piece takes while merges are learned: its entry, then four bytes each for symbol and place.
fn cost(piece: Piece<'_>) -> usize {
    64 + 8 * piece.len()
}

/// Applies `map` to each chunk on many threads and `reduce` to the results in the order of the text.
fn for_chunks<T: Send>(
    text: &TextFile,
    cut: Cut,
    progress: &mut dyn FnMut(u64, u64),
    map: impl Fn(&str) -> T + Sync,
    mut reduce: impl FnMut(T),
) -> Result<()> {
    text.require_utf8()?;
    let total = text.byte_len();
    let mut all = chunks(text.bytes(), 0..total, cut);
    loop {
        let batch = batch(&mut all);
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return Ok(());
        };
        let done = first.start..last.end;
        let results: Result<Vec<T>> =
            batch.into_par_iter().map(|chunk| text.checked(chunk).map(&map)).collect();
        results?.into_iter().for_each(&mut reduce);
        text.release(done.clone());
        progress(done.end as u64, total as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn text(content: &str) -> TextFile {
        TextFile::from_bytes("test", content).unwrap()
    }

    #[test]
    fn characters_come_once_each_in_order_of_code_point() {
        let found = characters(&text("banana\r\n\0🙂é"), &mut |_, _| ()).unwrap();
        assert_eq!(found, ['\0', '\n', '\r', 'a', 'b', 'n', 'é', '🙂']);
    }

    #[test]
    fn pieces_are_counted_over_all_chunks_and_long_runs_are_cut() {
        let content = "one two ".repeat(100_000) + &"x".repeat(300);
        let mut last = (0, 0);
        let found = pieces(&text(&content), &mut |done, total| last = (done, total)).unwrap();
        let count = |piece: &str| found.counts.get(Piece::of(piece.as_bytes(), 0..piece.len())).copied();
        assert_eq!(count("one"), Some(1));
        assert_eq!(count(" one"), Some(99_999));
        assert_eq!(count(" two"), Some(100_000));
        assert_eq!(count(&"x".repeat(LEARNED_PIECE_BYTES)), Some(1));
        assert_eq!(found.longest_bytes, 301);
        assert_eq!(last, (content.len() as u64, content.len() as u64));
        assert!(!found.full);
    }

    #[test]
    fn characters_and_pieces_are_those_of_the_whole_on_any_number_of_threads() {
        let content = "It's 12345 déjà vu; 漢字とかな 🙂🙃\n\n  x, don't   y\r\n".repeat(12_000);
        let all_characters: BTreeSet<char> = content.chars().collect();
        let mut all_pieces: BTreeMap<&[u8], u64> = BTreeMap::new();
        for piece in Splitter::new().unwrap().pieces(&content) {
            *all_pieces.entry(content[piece].as_bytes()).or_default() += 1;
        }
        let text = text(&content);
        for threads in 1..4 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let found = characters(&text, &mut |_, _| ()).unwrap();
                assert!(found.into_iter().eq(all_characters.iter().copied()));
                let found = pieces(&text, &mut |_, _| ()).unwrap();
                assert_eq!(found.counts.len(), all_pieces.len());
                for (piece, count) in &all_pieces {
                    assert_eq!(found.counts.get(Piece::of(piece, 0..piece.len())), Some(count));
                }
            });
        }
    }

    proptest! {
        #[test]
        fn a_full_table_goes_on_counting_and_takes_what_fits_in_order(
            chunks in prop::collection::vec(prop::collection::btree_map("[ab]{1,20}", 1u64..5, 0..20), 1..6),
            room in 0usize..4000,
        ) {
            let mut table = Pieces { room, ..Pieces::default() };
            let mut simple: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let (mut left, mut full) = (room, false);
            for chunk in &chunks {
                let mut counts = PieceMap::default();
                for (piece, &count) in chunk {
                    let piece = piece.as_bytes();
                    counts.insert(Piece::of(piece, 0..piece.len()), count);
                    let cost = 64 + 8 * piece.len();
                    if let Some(total) = simple.get_mut(piece) {
                        *total += count;
                    } else if cost <= left {
                        left -= cost;
                        simple.insert(piece.to_vec(), count);
                    } else {
                        full = true;
                    }
                }
                table.add(&counts);
            }
            let found = table.counts.iter().map(|(piece, &count)| (piece.bytes().into_owned(), count));
            prop_assert_eq!(found.collect::<BTreeMap<_, _>>(), simple);
            prop_assert_eq!(table.full, full);
        }
    }
}
