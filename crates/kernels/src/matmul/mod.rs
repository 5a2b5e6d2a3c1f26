//! Matrix products over strided views, in f32 or with operands rounded to bf16; sums are always f32.
//!
//! A block of B is packed into panels, then for every few rows of A (packed too, where they cannot be read as they
//! lie) the tile sums along the inner side in registers. Every element is summed in the order of the inner side,
//! in pieces of `DEPTH` words, however the work is split: the result depends on the level and the precision only.
//!
//! # Source
//! Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication", with B's panels streamed from
//! the second cache and A's rows kept in the first.

pub(crate) mod pack;
pub(crate) mod tile;
mod view;

pub(crate) use view::Place;
pub use view::View;

use crate::lanes::{Lanes, Words, by_precision};
use crate::parallel::{Shared, ranges, threads};
use pack::{Aligned, Depth, LINE, TILE, panel_of};
use std::cell::RefCell;
use tile::{Operands, Target, size, tile};

/// Words of the inner side summed before the results are written.
const DEPTH: usize = 384;
/// Words of B packed at a time: what fits in the second cache beside the rest.
const PANELS: usize = DEPTH * 384;

/// Tiles of A that are packed together: where its columns are contiguous, memory is read in long runs.
const GROUP: usize = 8;

/// How exactly the operands of a product are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// As they are.
    #[default]
    F32,
    /// Rounded to bf16, multiplied and summed in f32.
    Bf16,
}

/// What a product does besides multiplying: out = scale·a·b + (out) + (bias) + (residual).
#[derive(Clone, Copy)]
pub struct Edge<'a> {
    /// Factor on the product.
    pub scale: f32,
    /// The destination's old values are added.
    pub accumulate: bool,
    /// Added to every row, one value a column.
    pub bias: Option<&'a [f32]>,
    /// Added element by element.
    pub residual: Option<View<'a>>,
    /// Precision of a and b.
    pub precision: Precision,
}

impl Default for Edge<'_> {
    fn default() -> Self {
        Self { scale: 1.0, accumulate: false, bias: None, residual: None, precision: Precision::F32 }
    }
}

impl Edge<'_> {
    /// Adds the product to what is there.
    pub fn accumulate() -> Self {
        Self { accumulate: true, ..Self::default() }
    }
}

/// `out = edge(a·b)` for a row-major `out`, on all threads; each takes a part of the longer side.
///
/// # Shapes
/// `a` `(M, K)`, `b` `(K, N)`, `out` `(M, N)`.
pub fn matmul(out: &mut [f32], edge: Edge<'_>, a: View<'_>, b: View<'_>) {
    let (rows, columns) = (a.rows(), b.columns());
    let place = Place { offset: 0, rows, cols: columns, row_stride: columns, col_stride: 1 };
    let out = Shared::new(out);
    if threads() == 1 {
        return product(out, place, edge, a, b);
    }
    // pieces end where a tile does
    let (long, grain) = if rows >= columns { (rows, 12) } else { (columns, 32) };
    ranges(long.div_ceil(grain), 1, |part| {
        let part = part.start * grain..(part.end * grain).min(long);
        if rows >= columns {
            let residual = edge.residual.map(|residual| residual.some_rows(part.clone()));
            product(out, place.some_rows(part.clone()), Edge { residual, ..edge }, a.some_rows(part), b);
        } else {
            let residual = edge.residual.map(|residual| residual.t().some_rows(part.clone()).t());
            let bias = edge.bias.map(|bias| &bias[part.clone()]);
            let b = b.t().some_rows(part.clone()).t();
            product(out, place.t().some_rows(part).t(), Edge { bias, residual, ..edge }, a, b);
        }
    });
}

/// As [`matmul`], on this thread, into a place of a buffer that other tasks write elsewhere at the same time.
pub(crate) fn product(out: Shared, place: Place, edge: Edge<'_>, a: View<'_>, b: View<'_>) {
    assert_eq!(a.columns(), b.rows(), "inner sizes of a product");
    assert_eq!((place.rows, place.cols), (a.rows(), b.columns()), "size of a product");
    assert!(place.end() <= out.len(), "product ends at {} in {} values", place.end(), out.len());
    assert!(place.cols < 2 || place.col_stride == 1, "rows of a product are contiguous");
    if let Some(bias) = edge.bias {
        assert_eq!(bias.len(), place.cols, "length of a bias");
    }
    if let Some(residual) = edge.residual {
        assert_eq!((residual.rows(), residual.columns()), (place.rows, place.cols), "size of a residual");
        assert!(
            residual.columns() < 2 || residual.place.col_stride == 1,
            "rows of a residual are contiguous"
        );
    }
    if place.rows == 0 || place.cols == 0 {
        return;
    }
    let job = Job { out, place, edge, a: a.readable(), b: b.t().readable().t() };
    by_precision!(edge.precision, run(job: Job<'_>));
}

/// A product whose sizes agree.
#[derive(Clone, Copy)]
struct Job<'a> {
    out: Shared,
    place: Place,
    edge: Edge<'a>,
    a: View<'a>,
    b: View<'a>,
}

thread_local! {
    /// Packed rows of A and panels of B.
    static PACKED: RefCell<(Aligned, Aligned)> = RefCell::default();
}

/// The blocks: columns of B, then its depth, then rows of A.
///
/// No closure here or below: what is in one may be compiled without the level's instructions.
#[inline(always)]
fn run<W: Words>(job: Job<'_>) {
    let (mut packed_a, mut packed_b) = PACKED.take();
    let tiles = packed_a.at_least(GROUP * TILE);
    let inner = job.a.columns();
    // a shallow product takes more columns at a time, so that A is packed less often
    let words = inner.div_ceil(W::PER_WORD).clamp(1, DEPTH);
    let most = (PANELS / words).next_multiple_of(2 * LINE);
    let panels = packed_b.at_least((most + 2 * LINE) * words);
    let mut column = 0;
    while column < job.place.cols {
        let columns = most.min(job.place.cols - column);
        let mut first = 0;
        loop {
            let depth = Depth { first, numbers: (inner - first).min(DEPTH * W::PER_WORD) };
            #[expect(unsafe_code, reason = "fills the packing buffer")]
            // SAFETY: the columns lie in the view, and the buffer has words for each and for those of a panel.
            unsafe {
                pack::panels::<W>(job.b, depth, (column, columns), panels);
            }
            block::<W>(&job, depth, (column, columns), tiles, panels);
            first += depth.numbers;
            if first >= inner {
                break;
            }
        }
        column += columns;
    }
    PACKED.set((packed_a, packed_b));
}

/// All rows of A, a group of tiles at a time, times the packed panels.
#[inline(always)]
#[expect(unsafe_code, reason = "fills the packing buffer")]
fn block<W: Words>(
    job: &Job<'_>,
    depth: Depth,
    columns: (usize, usize),
    tiles: *mut f32,
    panels: *const f32,
) {
    let in_place = W::IN_PLACE && job.a.place.col_stride == 1;
    let mut row = 0;
    while row < job.place.rows {
        let rows = (GROUP * W::On::ROWS).min(job.place.rows - row);
        if !in_place {
            // SAFETY: the rows lie in the view, and the buffer holds a group of tiles.
            unsafe { pack::rows::<W>(job.a, depth, (row, rows), tiles) };
        }
        let mut nth = 0;
        while nth < rows {
            let count = W::On::ROWS.min(rows - nth);
            let tile = tiles.wrapping_add(nth / W::On::ROWS * TILE);
            let (mut a, mut strides) = (tile.cast_const(), pack::a_strides::<W>(job.a));
            if in_place && size::<W>(count) == count {
                (a, strides) = (job.a.at(row + nth, depth.first), (job.a.place.row_stride, 1));
            } else if in_place {
                // SAFETY: as above.
                unsafe { pack::rows::<W>(job.a, depth, (row + nth, count), tile) };
            }
            strip::<W>(job, depth, (row + nth, count), columns, (a, strides), panels);
            nth += count;
        }
        row += rows;
    }
}

/// One tile of rows times all packed panels.
#[inline(always)]
#[expect(unsafe_code, reason = "hands pointers to the tile")]
fn strip<W: Words>(
    job: &Job<'_>,
    depth: Depth,
    (row, rows): (usize, usize),
    (column, columns): (usize, usize),
    (a, (a_row, a_step)): (*const f32, (usize, usize)),
    panels: *const f32,
) {
    let Edge { scale, accumulate, bias, residual, .. } = job.edge;
    let (words, stride) = (depth.words::<W>(), job.place.row_stride);
    let mut at = 0;
    while at < columns {
        let (count, width) = panel_of::<W>(columns - at);
        let out = job.out.at(job.place.offset + row * stride + column + at);
        let mut addends = [None; 3];
        if depth.first > 0 || accumulate {
            addends[0] = Some((out.cast_const(), stride));
        }
        if depth.first == 0 {
            if let Some(bias) = bias {
                addends[1] = Some((bias[column + at..].as_ptr(), 0));
            }
            if let Some(from) = residual {
                addends[2] = Some((from.at(row, column + at), from.place.row_stride));
            }
        }
        let b = panels.wrapping_add(at * words);
        let operands = Operands { words, a, a_row, a_step, b };
        let target = Target { out: (out, stride), rows, columns: count, scale, addends };
        // SAFETY: all sizes were checked by `product`, the level by `by_precision`, and no other task writes
        // these elements, which is the contract of `Shared`.
        unsafe { tile::<W>(width, operands, target) };
        at += count;
    }
}

#[cfg(test)]
mod tests;
