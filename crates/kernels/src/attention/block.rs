//! What forward and backward share: one head's places, blocks of its pattern, and products by tiles.

#![expect(unsafe_code, reason = "tiles take pointers, which come from checked places")]

use super::{Layout, Options, Size};
use crate::matmul::lanes::{Lanes, Words};
use crate::matmul::pack::{Aligned, Depth, panel_of, panels};
use crate::matmul::tile::{Operands, Target, size, tile};
use crate::matmul::{Place, View};
use crate::parallel::Shared;

/// Query rows of a block.
pub(super) const QUERIES: usize = 96;
/// Keys that a tile may read beyond those that one of its rows sees: the rows of the largest tile.
pub(super) const MARGIN: usize = 12;
/// Keys of a block, which is the distance between the rows of a block's pattern.
pub(super) const KEYS: usize = 256;

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

/// A block: query rows `first..first + rows` and keys `key..key + keys`, as many as its last row sees.
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

    /// Number of the row (sequence, head, query) among all.
    pub(super) fn row(&self, row: usize) -> usize {
        (self.batch * self.size.heads + self.head) * self.size.queries + row
    }

    /// The block of queries `first..` and keys `key..`, unless it is hidden or there is none.
    pub(super) fn block(&self, first: usize, key: usize) -> Option<Block> {
        let rows = QUERIES.min(self.size.queries - first);
        let seen = self.visible(first + rows - 1);
        (key < seen).then(|| Block { first, rows, key, keys: KEYS.min(seen - key) })
    }

    /// How many of the block's keys its row `row` sees.
    pub(super) fn seen(&self, block: Block, row: usize) -> usize {
        self.visible(block.first + row).saturating_sub(block.key).min(block.keys)
    }

    /// The first of the block's rows that sees its key `key`; the block's rows if none does.
    pub(super) fn first_row(&self, block: Block, key: usize) -> usize {
        if !self.options.causal {
            return 0;
        }
        let past = self.size.keys - self.size.queries + block.first;
        (block.key + key).saturating_sub(past).min(block.rows)
    }

    /// Multiplies the kept entries of a row of the pattern from `key` on by 1/(1 − p) and the dropped ones by 0.
    pub(super) fn drop_row(&self, row: usize, key: usize, weights: &mut [f32]) {
        if let Some(dropout) = self.options.dropout {
            dropout.apply((self.row(row) * self.size.keys + key) as u64, weights);
        }
    }
}

/// Rows of the largest tile that `left` rows fill.
#[inline(always)]
pub(super) fn tile_rows<W: Words>(left: usize) -> usize {
    [W::On::ROWS, 8, 6, 4]
        .into_iter()
        .find(|&rows| rows <= left.min(W::On::ROWS) && size::<W>(rows) == rows)
        .unwrap_or(1)
}

/// A matrix as the right side of products: packed panels of columns, each with all rows.
#[derive(Default)]
pub(super) struct Panels {
    words: Aligned,
    rows: usize,
    columns: usize,
}

impl Panels {
    /// Packs `b`.
    #[inline(always)]
    pub(super) fn pack<W: Words>(&mut self, b: View<'_>) {
        (self.rows, self.columns) = (b.rows(), b.columns());
        let to = self.words.at_least(b.rows() * self.columns.next_multiple_of(2 * W::On::LANES));
        let depth = Depth { first: 0, numbers: b.rows() };
        // SAFETY: the columns lie in the view, and the buffer has `rows` words for each and for those of a panel.
        unsafe { panels::<W>(b, depth, (0, self.columns), to) };
    }

    /// Width of the panel that begins at `column`, and its words from row `row` on.
    #[inline(always)]
    fn at<W: Words>(&self, row: usize, column: usize) -> (usize, *const f32) {
        let (_, width) = panel_of::<W>(self.columns - column);
        (width, self.words.pointer().wrapping_add(column * self.rows + row * width))
    }

    /// `columns`, at least one, and those up to the end of their panel, where there is something, if not of use.
    #[inline(always)]
    pub(super) fn whole<W: Words>(&self, columns: usize) -> usize {
        let first = (columns.max(1) - 1) / (2 * W::On::LANES) * 2 * W::On::LANES;
        first + panel_of::<W>(self.columns - first).1
    }
}

/// The left side of a product: the address of its first word, and distances between rows and between words.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) at: *const f32,
    pub(super) row: usize,
    pub(super) step: usize,
}

/// out (+)= scale·left·right for `rows` rows, as many as a tile has, and `columns` columns.
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
    /// `left` and `right`, from row `from` on, have `words` words; `out`'s rows, `stride` apart, are this task's.
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

/// to (rows, keys) = scale·left·rightᵀ of a block, where any row of a tile sees the key; `left` are the head's query
/// rows, `right` its keys' panels, the rows of `to` are [`KEYS`] apart.
///
/// # Safety
/// `to` holds a block and is this thread's.
#[inline(always)]
pub(super) unsafe fn by_query<W: Words>(
    task: &Task,
    block: Block,
    left: View<'_>,
    right: &Panels,
    scale: f32,
    to: *mut f32,
) {
    let mut row = 0;
    while row < block.rows {
        let rows = tile_rows::<W>(block.rows - row);
        let columns = right.whole::<W>(block.key + task.seen(block, row + rows - 1)) - block.key;
        let left = Left { at: left.at(block.first + row, 0), row: left.place.row_stride, step: 1 };
        let strip = Strip { rows, words: task.size.head_size, columns, scale, accumulate: false };
        // SAFETY: the rows lie in the view, the keys in their panels, and the result is this thread's.
        unsafe { strip.times::<W>(left, right, (0, block.key), (to.add(row * KEYS), KEYS)) };
        row += rows;
    }
}

/// to (queries) (+)= weights·right over a block's keys: the first block overwrites, the others add.
///
/// # Safety
/// `weights` hold a block, zero up to the last key that a tile's rows see; the rows of `to` are this task's, and their
/// end was checked.
#[inline(always)]
pub(super) unsafe fn to_queries<W: Words>(
    task: &Task,
    block: Block,
    weights: *const f32,
    right: &Panels,
    (to, place): (Shared, Place),
) {
    let mut row = 0;
    while row < block.rows {
        let rows = tile_rows::<W>(block.rows - row);
        let words = task.seen(block, row + rows - 1);
        let left = Left { at: weights.wrapping_add(row * KEYS), row: KEYS, step: 1 };
        let columns = task.size.head_size;
        let strip = Strip { rows, words, columns, scale: 1.0, accumulate: block.key > 0 };
        let out = row_of(to, place, block.first + row);
        // SAFETY: the same contract; the rows of `right` have their panels.
        unsafe { strip.times::<W>(left, right, (block.key, 0), (out, place.row_stride)) };
        row += rows;
    }
}

/// The address of a row of `place` in a shared buffer, whose end was checked.
pub(super) fn row_of(out: Shared, place: Place, row: usize) -> *mut f32 {
    out.at(place.offset + row * place.row_stride)
}
