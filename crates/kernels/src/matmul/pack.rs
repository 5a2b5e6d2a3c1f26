//! Packing: operands become words in the order in which the tile reads them.

#![expect(unsafe_code, reason = "reads views and writes buffers whose sizes the caller has checked")]

use super::lanes::{Lanes, Words};
use super::{DEPTH, View};

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

/// Packs `columns` columns of B from `column` on, at most a tile's: for each word, `width` columns. What stands in
/// the missing ones is never used.
///
/// # Safety
/// The columns and `depth` lie inside `b`; `to` holds `width` columns of words.
#[inline(always)]
pub(crate) unsafe fn panel<W: Words>(
    b: View<'_>,
    depth: Depth,
    (column, columns, width): (usize, usize, usize),
    to: *mut f32,
) {
    let lanes = W::On::LANES;
    let mut square = [0f32; LINE * LINE];
    for at in (0..columns).step_by(lanes) {
        let count = (columns - at).min(lanes);
        // SAFETY: the same contract, for `count` of the columns.
        unsafe {
            if b.place.col_stride == 1 {
                let rows = Neighbours { from: (depth.first, column + at), numbers: depth.numbers, count };
                across::<W>(b, rows, to.add(at), width);
                continue;
            }
            let from = b.at(depth.first, column + at);
            for word in (0..depth.words::<W>()).step_by(lanes) {
                let numbers = depth.numbers - word * W::PER_WORD;
                for nth in 0..count {
                    let from = from.wrapping_add(word * W::PER_WORD + nth * b.place.col_stride);
                    W::On::store(square.as_mut_ptr().add(nth * lanes), along::<W>(from, numbers));
                }
                let to = to.add(word * width + at);
                if numbers >= lanes * W::PER_WORD {
                    W::On::transpose(square.as_ptr(), to, width);
                    continue;
                }
                for word in 0..numbers.div_ceil(W::PER_WORD) {
                    for nth in 0..lanes {
                        *to.add(word * width + nth) = square[nth * lanes + word];
                    }
                }
            }
        }
    }
}

/// How a packed tile of A lies: from row to row, and from word to word.
pub(crate) fn a_strides<W: Words>(a: View<'_>) -> (usize, usize) {
    if a.place.col_stride == 1 { (DEPTH, 1) } else { (1, W::On::LANES) }
}

/// Packs `rows` rows of A from `row` on, at most a tile's, to lie as [`a_strides`] says.
///
/// # Safety
/// The rows and `depth` lie inside `a`; `to` holds a tile of words.
#[inline(always)]
pub(crate) unsafe fn rows<W: Words>(a: View<'_>, depth: Depth, (row, rows): (usize, usize), to: *mut f32) {
    let lanes = W::On::LANES;
    // SAFETY: the same contract.
    unsafe {
        if a.place.col_stride == 1 {
            for nth in 0..rows {
                let from = a.at(row + nth, depth.first);
                for word in (0..depth.words::<W>()).step_by(lanes) {
                    let numbers = depth.numbers - word * W::PER_WORD;
                    let words = along::<W>(from.wrapping_add(word * W::PER_WORD), numbers);
                    W::On::store(to.add(nth * DEPTH + word), words);
                }
            }
        } else {
            let columns = Neighbours { from: (depth.first, row), numbers: depth.numbers, count: rows };
            across::<W>(a.t(), columns, to, lanes);
        }
    }
}

/// Words of up to a register of numbers, zeros after the last of `numbers`.
#[inline(always)]
unsafe fn along<W: Words>(from: *const f32, numbers: usize) -> super::lanes::Register<W> {
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

/// `count` neighbours in each of `numbers` rows of a view.
struct Neighbours {
    from: (usize, usize),
    numbers: usize,
    count: usize,
}

/// Writes a register of words for every `PER_WORD` rows, registers `width` apart.
#[inline(always)]
unsafe fn across<W: Words>(view: View<'_>, rows: Neighbours, to: *mut f32, width: usize) {
    let (stride, whole) = (view.place.row_stride, rows.numbers / W::PER_WORD);
    let from = view.at(rows.from.0, rows.from.1);
    // SAFETY: the caller's contract; a register may be read where the buffer goes on; the copy is two registers.
    unsafe {
        let mut word = 0;
        // the last rows of a buffer may end before a register does
        while word < whole
            && view.goes_on((rows.from.0 + (word + 1) * W::PER_WORD - 1, rows.from.1), W::On::LANES)
        {
            W::On::store(to.add(word * width), W::across(from.add(word * W::PER_WORD * stride), stride));
            word += 1;
        }
        for word in word..rows.numbers.div_ceil(W::PER_WORD) {
            let mut buffer = [0f32; 2 * LINE];
            for number in 0..W::PER_WORD.min(rows.numbers - word * W::PER_WORD) {
                let from = from.add((word * W::PER_WORD + number) * stride);
                std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr().add(number * LINE), rows.count);
            }
            W::On::store(to.add(word * width), W::across(buffer.as_ptr(), LINE));
        }
    }
}
