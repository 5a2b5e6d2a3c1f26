//! Packing: operands become words in the order in which the tile reads them.

#![expect(unsafe_code, reason = "reads views and writes buffers whose sizes the caller has checked")]

use super::{DEPTH, View};
use crate::lanes::{Lanes, Words};

/// Words of one line of the processor's caches.
pub(crate) const LINE: usize = 16;

/// A buffer that begins on a cache line.
#[derive(Default)]
pub(crate) struct Aligned(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its place in memory is used")] [f32; LINE]);

impl Aligned {
    /// The buffer, made to hold at least `words`.
    pub(crate) fn at_least(&mut self, words: usize) -> *mut f32 {
        if self.0.len() * LINE < words {
            self.0.resize(words.div_ceil(LINE), Line([0.0; LINE]));
        }
        self.0.as_mut_ptr().cast()
    }

    /// The buffer as it is.
    pub(crate) fn pointer(&self) -> *const f32 {
        self.0.as_ptr().cast()
    }
}

/// Numbers of a view along its summed side, from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct Depth {
    pub(crate) first: usize,
    pub(crate) numbers: usize,
}

impl Depth {
    pub(crate) fn words<W: Words>(self) -> usize {
        self.numbers.div_ceil(W::PER_WORD)
    }
}

/// Columns of the panel that begins `left` columns before the end, and its width: two registers, or one if that is
/// enough.
#[inline(always)]
pub(crate) fn panel_of<W: Words>(left: usize) -> (usize, usize) {
    let lanes = W::On::LANES;
    (left.min(2 * lanes), if left <= lanes { lanes } else { 2 * lanes })
}

/// Packs `columns` columns of B from `column` on into panels: of each, for every word, its columns. The panel that
/// begins at column c of them stands at c times the words. What stands in missing columns is never used.
///
/// # Safety
/// The columns and `depth` lie inside `b`; `to` holds that many words for as many columns as whole panels have.
#[inline(always)]
pub(crate) unsafe fn panels<W: Words>(
    b: View<'_>,
    depth: Depth,
    (column, columns): (usize, usize),
    to: *mut f32,
) {
    let words = depth.words::<W>();
    // SAFETY: the same contract.
    unsafe {
        if b.place.col_stride == 1 {
            // along the rows, as they lie in memory
            let mut word = 0;
            while word < words {
                let mut at = 0;
                while at < columns {
                    let (count, width) = panel_of::<W>(columns - at);
                    let to = to.add(at * words + word * width);
                    let numbers = W::PER_WORD.min(depth.numbers - word * W::PER_WORD);
                    let first = (depth.first + word * W::PER_WORD, column + at);
                    across::<W>(b, first, (numbers, count.min(W::On::LANES)), to);
                    if count > W::On::LANES {
                        let first = (first.0, first.1 + W::On::LANES);
                        across::<W>(b, first, (numbers, count - W::On::LANES), to.add(W::On::LANES));
                    }
                    at += count;
                }
                word += 1;
            }
            return;
        }
        let mut square = [0f32; LINE * LINE];
        let mut at = 0;
        while at < columns {
            let (count, width) = panel_of::<W>(columns - at);
            let panel = to.add(at * words);
            let mut lane = 0;
            while lane < count {
                let some = (count - lane).min(W::On::LANES);
                let from = b.at(depth.first, column + at + lane);
                turned::<W>(from, b.place.col_stride, depth, some, (panel.add(lane), width), &mut square);
                lane += some;
            }
            at += count;
        }
    }
}

/// Packs `count` columns that are `stride` apart and run along the summed side, a square at a time.
#[inline(always)]
unsafe fn turned<W: Words>(
    from: *const f32,
    stride: usize,
    depth: Depth,
    count: usize,
    (to, width): (*mut f32, usize),
    square: &mut [f32; LINE * LINE],
) {
    let lanes = W::On::LANES;
    let mut word = 0;
    // SAFETY: the caller's contract; the square holds the widest level's.
    unsafe {
        while word < depth.words::<W>() {
            let numbers = depth.numbers - word * W::PER_WORD;
            for nth in 0..count {
                let from = from.wrapping_add(word * W::PER_WORD + nth * stride);
                W::On::store(square.as_mut_ptr().add(nth * lanes), along::<W>(from, numbers));
            }
            let to = to.add(word * width);
            if numbers >= lanes * W::PER_WORD {
                W::On::transpose(square.as_ptr(), to, width);
            } else {
                for word in 0..numbers.div_ceil(W::PER_WORD) {
                    for nth in 0..lanes {
                        *to.add(word * width + nth) = square[nth * lanes + word];
                    }
                }
            }
            word += lanes;
        }
    }
}

/// Words of a packed tile of A, whichever way it lies.
pub(crate) const TILE: usize = DEPTH * LINE;

/// How a packed tile of A lies: from row to row, and from word to word.
pub(crate) fn a_strides<W: Words>(a: View<'_>) -> (usize, usize) {
    if a.place.col_stride == 1 { (DEPTH, 1) } else { (1, W::On::LANES) }
}

/// Packs `rows` rows of A from `row` on into tiles that lie as [`a_strides`] says.
///
/// # Safety
/// The rows and `depth` lie inside `a`; `to` holds [`TILE`] words for every tile.
#[inline(always)]
pub(crate) unsafe fn rows<W: Words>(a: View<'_>, depth: Depth, (row, rows): (usize, usize), to: *mut f32) {
    let (lanes, words) = (W::On::LANES, depth.words::<W>());
    // SAFETY: the same contract.
    unsafe {
        if a.place.col_stride == 1 {
            for nth in 0..rows {
                let (from, tile) = (a.at(row + nth, depth.first), nth / W::On::ROWS);
                let to = to.add(tile * TILE + nth % W::On::ROWS * DEPTH);
                let mut word = 0;
                while word < words {
                    let numbers = depth.numbers - word * W::PER_WORD;
                    let words = along::<W>(from.wrapping_add(word * W::PER_WORD), numbers);
                    W::On::store(to.add(word), words);
                    word += lanes;
                }
            }
            return;
        }
        // along the columns, as they lie in memory
        let a = a.t();
        let mut word = 0;
        while word < words {
            let numbers = W::PER_WORD.min(depth.numbers - word * W::PER_WORD);
            let (mut nth, mut to) = (0, to.add(word * lanes));
            while nth < rows {
                let first = (depth.first + word * W::PER_WORD, row + nth);
                across::<W>(a, first, (numbers, (rows - nth).min(W::On::ROWS)), to);
                nth += W::On::ROWS;
                to = to.wrapping_add(TILE);
            }
            word += 1;
        }
    }
}

/// Words of up to a register of numbers, zeros after the last of `numbers`.
#[inline(always)]
pub(crate) unsafe fn along<W: Words>(from: *const f32, numbers: usize) -> crate::lanes::Register<W> {
    let whole = W::On::LANES * W::PER_WORD;
    // SAFETY: `numbers` are valid, says the caller; the buffer holds the most that are read.
    unsafe {
        if numbers >= whole {
            return W::along(from);
        }
        let mut buffer = [0f32; 2 * LINE];
        std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), numbers);
        W::along(buffer.as_ptr())
    }
}

/// Writes one register of words: of each of `count` neighbours, its number in `numbers` rows from `first` on.
#[inline(always)]
unsafe fn across<W: Words>(
    view: View<'_>,
    first: (usize, usize),
    (numbers, count): (usize, usize),
    to: *mut f32,
) {
    let (from, stride) = (view.at(first.0, first.1), view.place.row_stride);
    // SAFETY: the caller's contract; a register may be read where the buffer goes on; the copy is two registers.
    unsafe {
        // the last rows of a buffer may end before a register does
        if numbers == W::PER_WORD && view.goes_on((first.0 + numbers - 1, first.1), W::On::LANES) {
            W::On::store(to, W::across(from, stride));
            return;
        }
        let mut buffer = [0f32; 2 * LINE];
        for number in 0..numbers {
            for nth in 0..count {
                buffer[number * LINE + nth] = *from.add(number * stride + nth);
            }
        }
        W::On::store(to, W::across(buffer.as_ptr(), LINE));
    }
}
