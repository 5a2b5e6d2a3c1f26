//! What forward and backward share: one head's places, blocks of its pattern, and products of strips of rows.

#![expect(unsafe_code, reason = "tiles take pointers, which come from checked places")]

use super::{Layout, Options, Size};
use crate::lanes::{Lanes, Words};
use crate::matmul::pack::{Aligned, Depth, along, panel_of, panels};
use crate::matmul::tile::{Operands, Target, tile};
use crate::matmul::{Place, View};
use crate::parallel::Shared;

/// Where queries, keys and values lie; all three may be one buffer.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// Buffer and layout of the H query heads.
    pub q: (&'a [f32], Layout),
    /// Buffer and layout of the G key heads.
    pub k: (&'a [f32], Layout),
    /// Buffer and layout of the G value heads.
    pub v: (&'a [f32], Layout),
}

/// One (sequence, head) pair and what it needs to find its rows.
#[derive(Clone, Copy)]
pub(super) struct Task {
    pub(super) size: Size,
    pub(super) options: Options,
    pub(super) batch: usize,
    pub(super) head: usize,
}

/// A block of the pattern: query rows `first..first + rows` and keys `key..key + keys`.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
}

impl Task {
    pub(super) fn kv_head(&self) -> usize {
        self.head / (self.size.heads / self.size.kv_heads)
    }

    /// The rows of `head` in a buffer.
    pub(super) fn place(&self, layout: Layout, head: usize, rows: usize) -> Place {
        Place {
            offset: layout.offset + self.batch * layout.batch + head * layout.head,
            rows,
            cols: self.size.head_size,
            row_stride: layout.row,
            col_stride: 1,
        }
    }

    /// The queries' rows of this head in a buffer laid out like q.
    pub(super) fn queries<'a>(&self, (data, layout): (&'a [f32], Layout)) -> View<'a> {
        View::strided(data, self.place(layout, self.head, self.size.queries))
    }

    /// The rows of this head's keys or values.
    pub(super) fn keys<'a>(&self, (data, layout): (&'a [f32], Layout)) -> View<'a> {
        View::strided(data, self.place(layout, self.kv_head(), self.size.keys))
    }

    /// How many keys the query row `row` sees.
    pub(super) fn visible(&self, row: usize) -> usize {
        if self.options.causal { self.size.keys - self.size.queries + row + 1 } else { self.size.keys }
    }

    /// The first query row that sees the key `key`.
    pub(super) fn first_row(&self, key: usize) -> usize {
        if self.options.causal { key.saturating_sub(self.size.keys - self.size.queries) } else { 0 }
    }

    /// Number of the row (sequence, head, query) among all.
    pub(super) fn row(&self, row: usize) -> usize {
        (self.batch * self.size.heads + self.head) * self.size.queries + row
    }

    /// How many of the block's keys its row `row` sees.
    pub(super) fn seen(&self, block: Block, row: usize) -> usize {
        self.visible(block.first + row).saturating_sub(block.key).min(block.keys)
    }

    /// Multiplies the kept entries of a row of the pattern from `key` on by 1/(1 − p) and the dropped ones by 0.
    pub(super) fn drop_row(&self, row: usize, key: usize, weights: &mut [f32]) {
        if let Some(dropout) = self.options.dropout {
            dropout.apply((self.row(row) * self.size.keys + key) as u64, weights);
        }
    }
}

/// A matrix as the right side of products: packed panels of columns, each with all its words.
#[derive(Default)]
pub(super) struct Panels {
    memory: Aligned,
    words: usize,
    columns: usize,
}

impl Panels {
    /// Packs `b`, to be summed over its rows.
    #[inline(always)]
    pub(super) fn pack<W: Words>(&mut self, b: View<'_>) {
        let depth = Depth { first: 0, numbers: b.rows() };
        (self.words, self.columns) = (depth.words::<W>(), b.columns());
        let to = self.memory.at_least(self.words * self.columns.next_multiple_of(2 * W::On::LANES));
        // SAFETY: the columns lie in the view, and the buffer has room for the words of whole panels.
        unsafe { panels::<W>(b, depth, (0, self.columns), to) };
    }

    /// Width of the panel that begins at `column`, and its words from `word` on.
    #[inline(always)]
    fn at<W: Words>(&self, word: usize, column: usize) -> (usize, *const f32) {
        let (_, width) = panel_of::<W>(self.columns - column);
        (width, self.memory.pointer().wrapping_add(column * self.words + word * width))
    }
}

/// The first column of the panel that holds `column`.
#[inline(always)]
pub(super) fn panel_start<W: Words>(column: usize) -> usize {
    column / (2 * W::On::LANES) * (2 * W::On::LANES)
}

/// `columns` and what is missing to whole panels: rows of strips have room for so many.
#[inline(always)]
pub(super) fn whole_panels<W: Words>(columns: usize) -> usize {
    columns.next_multiple_of(2 * W::On::LANES)
}

/// The left side of a product: the address of its first word, and distances between rows and between words.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) at: *const f32,
    pub(super) row: usize,
    pub(super) step: usize,
}

/// A few rows of a matrix as the left side of products.
#[derive(Default)]
pub(super) struct Rows(Aligned);

impl Rows {
    /// Packs `rows` rows of `a` from `first` on, no more than a tile has.
    #[inline(always)]
    pub(super) fn pack<W: Words>(&mut self, a: View<'_>, (first, rows): (usize, usize)) -> Left {
        let words = a.columns().div_ceil(W::PER_WORD);
        let stride = words.next_multiple_of(W::On::LANES);
        let to = self.0.at_least(W::On::ROWS * stride);
        for row in 0..rows {
            let mut word = 0;
            while word < words {
                let numbers = a.columns() - word * W::PER_WORD;
                // SAFETY: the numbers lie in the view's row, and the buffer has room for whole registers.
                unsafe {
                    let register = along::<W>(a.at(first + row, word * W::PER_WORD), numbers);
                    W::On::store(to.add(row * stride + word), register);
                }
                word += W::On::LANES;
            }
        }
        Left { at: to, row: stride, step: 1 }
    }
}

/// Turns `rows` rows of `width` numbers, `stride` apart, into words where they lie, to be summed along the rows.
///
/// # Safety
/// The rows are this thread's, and `width` is that of whole panels.
#[inline(always)]
pub(super) unsafe fn words_in_place<W: Words>(at: *mut f32, (rows, stride): (usize, usize), width: usize) {
    if W::IN_PLACE {
        return;
    }
    for row in 0..rows {
        let mut number = 0;
        while number < width {
            // SAFETY: a register of words takes no more room than its numbers, and comes after them.
            unsafe {
                let row = at.add(row * stride);
                W::On::store(row.add(number / W::PER_WORD), W::along(row.add(number)));
            }
            number += W::On::LANES * W::PER_WORD;
        }
    }
}

/// out (+)= scale·left·right for `rows` rows, no more than a tile has, and `columns` columns, summed over `words`.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    pub(super) rows: usize,
    pub(super) words: usize,
    pub(super) columns: usize,
    pub(super) scale: f32,
    pub(super) accumulate: bool,
}

impl Strip {
    /// # Safety
    /// `left` has `words` words for as many rows as the tile of this size, `right` from word `from` and column `first`
    /// on, which begins a panel; `out`'s rows, `stride` apart, are this task's.
    #[inline(always)]
    pub(super) unsafe fn times<W: Words>(
        self,
        left: Left,
        right: &Panels,
        (from, first): (usize, usize),
        (out, stride): (*mut f32, usize),
    ) {
        let Self { rows, words, columns, scale, accumulate } = self;
        let mut at = 0;
        while at < columns {
            let (width, b) = right.at::<W>(from, first + at);
            let count = (columns - at).min(width);
            let out = out.wrapping_add(at);
            let operands = Operands { words, a: left.at, a_row: left.row, a_step: left.step, b };
            let mut addends = [None; 3];
            if accumulate {
                addends[0] = Some((out.cast_const(), stride));
            }
            let target = Target { out: (out, stride), rows, columns: count, scale, addends };
            // SAFETY: the same contract.
            unsafe { tile::<W>(width, operands, target) };
            at += count;
        }
    }
}

/// The address of a row of `place` in a shared buffer, whose end was checked.
pub(super) fn row_of(out: Shared, place: Place, row: usize) -> *mut f32 {
    out.at(place.offset + row * place.row_stride)
}
