//! Cutting a text into chunks that are encoded apart, so that many threads work and memory stays small.

use std::ops::Range;

use crate::split::is_break;
use crate::utf8::character_start;

/// What one thread encodes at a time: small enough to balance, large enough to hide the overhead.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// Chunks in flight for each thread; more would only hold more memory.
pub(crate) const CHUNKS_PER_THREAD: usize = 4;

/// The longest stretch without a certain break that stays whole.
///
/// Merging it takes about 30 bytes of memory for each byte. Only beyond this length may ids differ from
/// what the `tokenizers` crate gives, which needs the whole of it in memory, many times over.
pub(crate) const LONGEST_RUN: usize = 4 << 20;

/// Where a chunk may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Anywhere.
    Byte,
    /// Between characters.
    Character,
    /// Between pieces of the splitting rule.
    Piece,
}

/// Chunks that together are `range` of `bytes`.
///
/// They depend on the text and the start of the range alone, never on the number of threads.
pub(crate) fn chunks(bytes: &[u8], range: Range<usize>, cut: Cut) -> impl Iterator<Item = Range<usize>> {
    let bytes = &bytes[..range.end];
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= bytes.len() {
            return None;
        }
        let end = chunk_end(bytes, start, cut);
        let chunk = start..end;
        start = end;
        Some(chunk)
    })
}

fn chunk_end(bytes: &[u8], start: usize, cut: Cut) -> usize {
    let target = start + CHUNK_BYTES;
    if target >= bytes.len() {
        return bytes.len();
    }
    match cut {
        Cut::Byte => target,
        Cut::Character => character_start(bytes, target),
        Cut::Piece => {
            let limit = bytes.len().min(start + LONGEST_RUN);
            (target..limit)
                .find(|&at| is_break(bytes, at))
                .or_else(|| (start + 1..target).rev().find(|&at| is_break(bytes, at)))
                .unwrap_or_else(|| character_start(bytes, limit))
        }
    }
}

/// The next chunks to work on: one for each thread at least, and otherwise no more text than [`batch_bytes`].
pub(crate) fn batch(all: &mut impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < rayon::current_num_threads() || bytes < batch_bytes() {
        let Some(chunk) = all.next() else { break };
        bytes += chunk.len();
        batch.push(chunk);
    }
    batch
}

/// Text in flight at a time, on all threads.
pub(crate) fn batch_bytes() -> usize {
    CHUNKS_PER_THREAD * rayon::current_num_threads() * CHUNK_BYTES
}

/// The break between pieces nearest to `at`, within a chunk's length; `at` itself when there is none, and at the end.
pub(crate) fn nearest_break(bytes: &[u8], at: usize) -> usize {
    if at == bytes.len() {
        return at;
    }
    let nearby = (0..CHUNK_BYTES).flat_map(|distance| [at.checked_add(distance), at.checked_sub(distance)]);
    nearby.flatten().find(|&at| at <= bytes.len() && is_break(bytes, at)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_covers(bytes: &[u8], cut: Cut) -> Vec<Range<usize>> {
        let all: Vec<_> = chunks(bytes, 0..bytes.len(), cut).collect();
        let mut next = 0;
        for chunk in &all {
            assert_eq!(chunk.start, next);
            assert!(!chunk.is_empty());
            next = chunk.end;
        }
        assert_eq!(next, bytes.len());
        all
    }

    #[test]
    fn chunks_cover_the_text_and_never_cut_a_character() {
        let text = "añ漢🙂".repeat(CHUNK_BYTES / 4);
        for cut in [Cut::Character, Cut::Piece] {
            let all = assert_covers(text.as_bytes(), cut);
            assert!(all.iter().all(|chunk| text.is_char_boundary(chunk.end)));
        }
        assert_covers(text.as_bytes(), Cut::Byte);
        assert_covers(&vec![0x80; 3 * CHUNK_BYTES], Cut::Character);
    }

    #[test]
    fn a_run_without_break_stays_whole_up_to_the_limit() {
        let run = "a".repeat(LONGEST_RUN - 10);
        let text = format!("one {run} two {run}{run}");
        let all = assert_covers(text.as_bytes(), Cut::Piece);
        let lengths: Vec<usize> = all.iter().map(ExactSizeIterator::len).collect();
        assert_eq!(lengths, [LONGEST_RUN - 6, 4, LONGEST_RUN, LONGEST_RUN - 19]);
    }

    #[test]
    fn the_nearest_break_may_be_on_either_side() {
        assert_eq!(nearest_break(b"one three", 4), 3);
        assert_eq!(nearest_break(b"one three four", 7), 9);
        assert_eq!(nearest_break(b"unbroken", 5), 5);
        // the whole text is one part when nothing is cut off
        assert_eq!(nearest_break(b"one x", 5), 5);
    }

    #[test]
    fn words_end_chunks_soon_after_the_target() {
        let text = "some words ".repeat(CHUNK_BYTES / 4);
        for chunk in chunks(text.as_bytes(), 0..text.len(), Cut::Piece) {
            assert!(chunk.len() < CHUNK_BYTES + 8);
        }
    }

    #[test]
    fn batches_are_bounded_in_bytes_but_keep_every_thread_busy() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let lengths = |chunk: usize| {
            let mut all = (0..40).map(|n| n * chunk..(n + 1) * chunk);
            std::iter::from_fn(|| Some(pool.install(|| batch(&mut all)).len()).filter(|&len| len > 0))
                .collect()
        };
        let (small, large): (Vec<usize>, Vec<usize>) = (lengths(CHUNK_BYTES), lengths(LONGEST_RUN));
        assert_eq!(small, [12, 12, 12, 4]);
        assert_eq!(large, [vec![3; 13], vec![1]].concat());
    }
}
