//! Cutting a text into chunks that are encoded apart, so that many threads work and memory stays small.

use std::ops::Range;

use crate::split::is_break;
use crate::text::continues_character;

/// What one thread encodes at a time: small enough to balance, large enough to hide the overhead.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// The longest stretch without a certain break that stays whole.
///
/// Merging it takes about 24 bytes of memory for each byte. Only beyond this length may ids differ from
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

/// The start of the character that `at` lies in; in bytes that are not UTF-8, at most 3 before it.
pub(crate) fn character_start(bytes: &[u8], at: usize) -> usize {
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|&at| bytes.get(at).is_none_or(|&byte| !continues_character(byte)))
        .unwrap_or(at)
}

/// The break between pieces nearest to `at`, within a chunk's length; `at` itself when there is none.
pub(crate) fn nearest_break(bytes: &[u8], at: usize) -> usize {
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
    }

    #[test]
    fn words_end_chunks_soon_after_the_target() {
        let text = "some words ".repeat(CHUNK_BYTES / 4);
        for chunk in chunks(text.as_bytes(), 0..text.len(), Cut::Piece) {
            assert!(chunk.len() < CHUNK_BYTES + 8);
        }
    }
}
