//! out = softmax(scale·Q·Kᵀ)·V, a task per sequence and head.

#![expect(unsafe_code, reason = "tiles take pointers, which come from checked places")]

use super::block::{
    Block, Inputs, Left, Panels, Rows, Strip, Task, panel_start, row_of, whole_panels, words_in_place,
};
use super::{Layout, Options, Size};
use crate::lanes::{Lanes, Words, by_precision, exp};
use crate::matmul::Place;
use crate::matmul::pack::Aligned;
use crate::parallel::{Shared, tasks};
use std::cell::RefCell;

/// Query rows that meet a block of keys and values while these are in the second cache.
const QUERIES: usize = 384;
/// Keys of a block, which is the distance between the rows of a strip of the pattern, in the first cache.
const KEYS: usize = 256;

/// What a thread keeps between tasks.
#[derive(Default)]
struct Scratch {
    keys: Panels,         // Kᵀ
    values: Panels,       // V
    queries: Rows,        // of a strip
    weights: Aligned,     // (ROWS, KEYS)
    state: Vec<[f32; 2]>, // of each row of a block: largest score, total
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// out = softmax(scale·Q·Kᵀ)·V; `log_sum_exp` keeps what [`super::backward`] needs of each row.
///
/// # Shapes
/// `inputs` as their layouts say, `out` like q by `out_layout`, `log_sum_exp` `(B, H, T)`.
/// # Panics
/// When a buffer is shorter than its layout says.
pub fn forward(
    size: Size,
    options: Options,
    inputs: Inputs<'_>,
    out: &mut [f32],
    out_layout: Layout,
    log_sum_exp: &mut [f32],
) {
    assert_eq!(log_sum_exp.len(), size.batch * size.heads * size.queries, "rows of attention");
    let (out, log_sum_exp) = (Shared::new(out), Shared::new(log_sum_exp));
    tasks(size.batch * size.heads, |index| {
        let task = Task { size, options, batch: index / size.heads, head: index % size.heads };
        let place = task.place(out_layout, task.head, size.queries);
        assert!(place.end() <= out.len(), "attention ends at {} in {} values", place.end(), out.len());
        let job = Job { task, inputs, out, place, log_sum_exp };
        by_precision!(options.precision, head(job: Job<'_>));
    });
}

#[derive(Clone, Copy)]
struct Job<'a> {
    task: Task,
    inputs: Inputs<'a>,
    out: Shared,
    place: Place,
    log_sum_exp: Shared,
}

/// All blocks of one head.
#[inline(always)]
fn head<W: Words>(job: Job<'_>) {
    let mut scratch = SCRATCH.take();
    let task = job.task;
    scratch.keys.pack::<W>(task.keys(job.inputs.k).t());
    scratch.values.pack::<W>(task.keys(job.inputs.v));
    let mut first = 0;
    while first < task.size.queries {
        let rows = QUERIES.min(task.size.queries - first);
        scratch.state.clear();
        scratch.state.resize(rows, [f32::NEG_INFINITY, 0.0]);
        let (mut key, seen) = (0, task.visible(first + rows - 1));
        while key < seen {
            let block = Block { first, rows, key, keys: KEYS.min(seen - key) };
            let mut row = 0;
            while row < rows {
                let some = W::On::ROWS.min(rows - row);
                strip::<W>(&job, block, (row, some), &mut scratch);
                row += some;
            }
            key += KEYS;
        }
        finish(&job, first, &scratch.state);
        first += rows;
    }
    SCRATCH.set(scratch);
}

/// A few rows meet the keys and the values of a block.
#[inline(always)]
fn strip<W: Words>(job: &Job<'_>, block: Block, (row, rows): (usize, usize), scratch: &mut Scratch) {
    let task = &job.task;
    let seen = task.seen(block, row + rows - 1);
    if seen == 0 {
        return;
    }
    // the panel of the last key that is seen is formed to its end, if there are so many keys
    let last = panel_start::<W>(seen - 1) + 2 * W::On::LANES;
    let (columns, head_size) = (last.min(task.size.keys - block.key), task.size.head_size);
    let width = whole_panels::<W>(columns);
    let left = scratch.queries.pack::<W>(task.queries(job.inputs.q), (block.first + row, rows));
    let weights = scratch.weights.at_least(W::On::ROWS * KEYS);
    let words = head_size.div_ceil(W::PER_WORD);
    let scores = Strip { rows, words, columns, scale: task.options.scale, accumulate: false };
    // SAFETY: the rows were packed with these words, the keys have their panels; a strip is this thread's and has room for
    // whole panels, for KEYS is a multiple of theirs.
    unsafe {
        scores.times::<W>(left, &scratch.keys, (0, block.key), (weights, KEYS));
        for nth in 0..rows {
            let state = &mut scratch.state[row + nth];
            soften::<W>(job, block, row + nth, (weights.add(nth * KEYS), width), state);
        }
        words_in_place::<W>(weights, (rows, KEYS), width);
    }
    let left = Left { at: weights, row: KEYS, step: 1 };
    let words = seen.div_ceil(W::PER_WORD);
    let gathered = Strip { rows, words, columns: head_size, scale: 1.0, accumulate: block.key > 0 };
    let out = row_of(job.out, job.place, block.first + row);
    let from = (block.key / W::PER_WORD, 0);
    // SAFETY: weights are zero where a row sees nothing; the rows of the output are this task's, and their end was checked.
    unsafe { gathered.times::<W>(left, &scratch.values, from, (out, job.place.row_stride)) };
}

/// One more piece of a row under the running softmax: scores become exp(score − largest so far), zeros where the row
/// sees nothing, and what was summed for it before is brought to the same.
///
/// # Safety
/// The row has room for `width`, whole registers, and is this thread's; the row of the output is this task's.
#[inline(always)]
unsafe fn soften<W: Words>(
    job: &Job<'_>,
    block: Block,
    row: usize,
    (at, width): (*mut f32, usize),
    [largest, total]: &mut [f32; 2],
) {
    let task = &job.task;
    let seen = task.seen(block, row);
    // SAFETY: the same contract.
    let weights = unsafe { std::slice::from_raw_parts_mut(at, width) };
    weights[seen..].fill(f32::NEG_INFINITY);
    // SAFETY: whole registers, as above.
    unsafe {
        let mut most = W::On::splat(*largest);
        let mut column = 0;
        while column < width {
            most = W::On::max(most, W::On::load(at.add(column)));
            column += W::On::LANES;
        }
        let now = W::On::largest(most);
        let (shift, mut sum) = (W::On::splat(now), W::On::splat(0.0));
        column = 0;
        while column < width {
            let weight = exp::<W::On>(W::On::subtract(W::On::load(at.add(column)), shift));
            W::On::store(at.add(column), weight);
            sum = W::On::add(sum, weight);
            column += W::On::LANES;
        }
        let factor = if block.key > 0 { (*largest - now).exp() } else { 0.0 };
        // what is hidden adds less than 1e-36 to a total of one or more
        *total = *total * factor + W::On::total(sum);
        *largest = now;
        if block.key > 0 && factor < 1.0 {
            multiply(job, block.first + row, factor);
        }
    }
    weights[seen..].fill(0.0);
    task.drop_row(block.first + row, block.key, &mut weights[..seen]);
}

/// Multiplies a row of the output.
///
/// # Safety
/// The row is this task's, and its end was checked.
unsafe fn multiply(job: &Job<'_>, row: usize, factor: f32) {
    let out = row_of(job.out, job.place, row);
    // SAFETY: the same contract.
    for value in unsafe { std::slice::from_raw_parts_mut(out, job.task.size.head_size) } {
        *value *= factor;
    }
}

/// Divides by the totals and keeps the log-sum-exp.
fn finish(job: &Job<'_>, first: usize, state: &[[f32; 2]]) {
    for (row, &[largest, total]) in state.iter().enumerate() {
        let row = first + row;
        // SAFETY: this row of the output, and its log-sum-exp, are this task's; both ends were checked.
        unsafe {
            multiply(job, row, 1.0 / total);
            *job.log_sum_exp.at(job.task.row(row)) = largest + total.ln();
        }
    }
}
