//! What training reads from a text: its characters, or its pieces and how often each occurs.
//!
//! Both passes go through the text in batches of chunks, many threads at once, and come out the same
//! whatever the number of threads.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::chunk::{Cut, chunks};
use crate::error::Result;
use crate::split::Splitter;
use crate::text::TextFile;

/// Chunks in flight for each thread; more would only hold more memory.
pub(crate) const CHUNKS_PER_THREAD: usize = 4;

/// Merges are learned from pieces of at most this many bytes; a longer run is cut for learning alone.
///
/// Without a bound, each merge would rewrite a line of DNA of any length once.
pub(crate) const LEARNED_PIECE_BYTES: usize = 128;

/// Memory for the table of pieces: the sum of [`cost`].
const TABLE_BYTES: usize = 128 << 20;

/// The distinct characters of a text, in order of code point.
pub(crate) fn characters(text: &TextFile, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<char>> {
    let mut seen = vec![false; char::MAX as usize + 1];
    for_chunks(
        text,
        Cut::Character,
        progress,
        |chunk| {
            let mut seen = vec![false; char::MAX as usize + 1];
            let mut found = Vec::new();
            for character in chunk.chars() {
                if !std::mem::replace(&mut seen[character as usize], true) {
                    found.push(character);
                }
            }
            found
        },
        |found| found.into_iter().for_each(|character| seen[character as usize] = true),
    )?;
    Ok(('\0'..=char::MAX).filter(|&character| seen[character as usize]).collect())
}

/// The distinct pieces of a text.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Each piece and how often it occurs, in order of its bytes.
    pub(crate) counts: Vec<(Box<[u8]>, u64)>,
    /// Length of the longest run without a break, which learning cuts when it is too long.
    pub(crate) longest_bytes: usize,
    /// Whether the table was full, so that pieces seen late are not in it.
    pub(crate) full: bool,
}

/// Counts the pieces of a text.
pub(crate) fn pieces(text: &TextFile, progress: &mut dyn FnMut(u64, u64)) -> Result<Pieces> {
    let splitter = Splitter::new()?;
    let mut result = Pieces::default();
    let mut table: HashMap<Box<[u8]>, u64> = HashMap::new();
    let mut used = 0;
    for_chunks(
        text,
        Cut::Piece,
        progress,
        |chunk| {
            // a clone has its own scratch space, which threads would otherwise wait for
            let splitter = splitter.clone();
            let mut counts: HashMap<&[u8], u64> = HashMap::new();
            let mut longest = 0;
            for piece in splitter.pieces(chunk) {
                longest = longest.max(piece.len());
                for part in piece.as_bytes().chunks(LEARNED_PIECE_BYTES) {
                    *counts.entry(part).or_default() += 1;
                }
            }
            let counts: Vec<(Box<[u8]>, u64)> =
                counts.into_iter().map(|(piece, count)| (piece.into(), count)).collect();
            (counts, longest)
        },
        |(mut counts, longest)| {
            // which pieces still fit must not depend on the order of a hash table
            if used + counts.iter().map(|(piece, _)| cost(piece)).sum::<usize>() > TABLE_BYTES {
                counts.sort_unstable();
            }
            result.longest_bytes = result.longest_bytes.max(longest);
            for (piece, count) in counts {
                if let Some(total) = table.get_mut(&piece) {
                    *total += count;
                } else if used + cost(&piece) <= TABLE_BYTES {
                    used += cost(&piece);
                    table.insert(piece, count);
                } else {
                    result.full = true;
                }
            }
        },
    )?;
    result.counts = table.into_iter().collect();
    result.counts.sort_unstable();
    Ok(result)
}

/// Bytes that a piece takes while merges are learned: its entry, then four bytes each for symbol and place.
fn cost(piece: &[u8]) -> usize {
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
        let batch: Vec<_> = all.by_ref().take(CHUNKS_PER_THREAD * rayon::current_num_threads()).collect();
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
        let count = |piece: &str| {
            found.counts.iter().find(|(bytes, _)| **bytes == *piece.as_bytes()).map(|&(_, count)| count)
        };
        assert_eq!(count("one"), Some(1));
        assert_eq!(count(" one"), Some(99_999));
        assert_eq!(count(" two"), Some(100_000));
        assert_eq!(count(&"x".repeat(LEARNED_PIECE_BYTES)), Some(1));
        assert_eq!(found.longest_bytes, 301);
        assert_eq!(last, (content.len() as u64, content.len() as u64));
        assert!(!found.full);
    }
}
