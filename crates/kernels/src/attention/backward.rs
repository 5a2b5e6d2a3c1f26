//! Inverts attention's forward: a task per sequence and key/value head.
//!
//! A strip of a few keys meets a block of queries: its part of the pattern, transposed, stays in the first cache for
//! the gradients of its keys and values, and the scores' gradient is kept for those of the block's queries.

#![expect(unsafe_code, reason = "tiles take pointers, which come from checked places")]

use super::block::{
    Block, Inputs, Left, Panels, Rows, Strip, Task, panel_start, row_of, whole_panels, words_in_place,
};
use super::{Layout, Options, Size};
use crate::lanes::{Lanes, Words, by_precision, exp};
use crate::matmul::Place;
use crate::matmul::pack::Aligned;
use crate::parallel::{Shared, tasks};
use crate::simd::dot;
use std::cell::RefCell;

/// Query rows of a block, which is the distance between the rows of a strip.
const QUERIES: usize = 256;
/// Keys of a block.
const KEYS: usize = 288;
/// More than the rows of any tile: so many queries before the first that sees a strip may be read with it.
const MARGIN: usize = 16;

/// What forward left, and the gradient of its result.
#[derive(Clone, Copy)]
pub struct Saved<'a> {
    /// Forward's result.
    pub out: &'a [f32],
    /// Its gradient.
    pub dout: &'a [f32],
    /// Layout of both.
    pub layout: Layout,
    /// `(B, H, T)`.
    pub log_sum_exp: &'a [f32],
}

/// Where [`backward`] writes, overwriting: buffers and layouts like those of the inputs, or one buffer for all three.
pub struct Gradients<'a> {
    /// The buffers; one buffer stands for all three.
    pub buffers: Buffers<'a>,
    /// Layout of dq.
    pub q: Layout,
    /// Layout of dk.
    pub k: Layout,
    /// Layout of dv.
    pub v: Layout,
}

/// One packed gradient buffer, or one each.
pub enum Buffers<'a> {
    /// dq, dk and dv are columns of one buffer.
    Packed(&'a mut [f32]),
    /// dq, dk, dv.
    Apart([&'a mut [f32]; 3]),
}

/// What a thread keeps between tasks.
#[derive(Default)]
struct Scratch {
    queries: [Panels; 2],  // Qᵀ for the scores, Q for dk
    douts: [Panels; 2],    // doutᵀ for dp, dout for dv
    keys: Panels,          // K, for dq
    strips: [Rows; 2],     // of K, of V
    p: Aligned,            // (ROWS, QUERIES): a strip of the pattern
    ds: Aligned,           // (ROWS, QUERIES): of dp, then of the scores' gradient
    across: Aligned,       // (KEYS, QUERIES): the scores' gradient of a block, words along the keys
    kept: Aligned,         // (KEYS, QUERIES): factors of dropout
    log_sum_exp: Vec<f32>, // of each row of the head, whole panels
    delta: Vec<f32>,       // likewise
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Inverts [`super::forward`].
///
/// # Shapes
/// `saved` as forward left it; the gradients as their layouts say.
/// # Panics
/// When a buffer is shorter than its layout says.
pub fn backward(
    size: Size,
    options: Options,
    inputs: Inputs<'_>,
    saved: Saved<'_>,
    gradients: Gradients<'_>,
) {
    let [dq, dk, dv] = match gradients.buffers {
        Buffers::Packed(all) => [Shared::new(all); 3],
        Buffers::Apart([q, k, v]) => [Shared::new(q), Shared::new(k), Shared::new(v)],
    };
    let group = size.heads / size.kv_heads;
    tasks(size.batch * size.kv_heads, |index| {
        let (batch, kv_head) = (index / size.kv_heads, index % size.kv_heads);
        for nth in 0..group {
            let task = Task { size, options, batch, head: kv_head * group + nth };
            let keys = |layout| task.place(layout, kv_head, size.keys);
            let queries = task.place(gradients.q, task.head, size.queries);
            let to = [(dq, queries), (dk, keys(gradients.k)), (dv, keys(gradients.v))];
            for (buffer, place) in to {
                assert!(place.end() <= buffer.len(), "attention ends at {} in {}", place.end(), buffer.len());
            }
            let job = Job { task, inputs, saved, to, is_first: nth == 0 };
            by_precision!(options.precision, head(job: Job<'_>));
        }
    });
}

#[derive(Clone, Copy)]
struct Job<'a> {
    task: Task,
    inputs: Inputs<'a>,
    saved: Saved<'a>,
    to: [(Shared, Place); 3],
    is_first: bool, // of the query heads that share keys and values
}

/// All blocks of one query head.
#[inline(always)]
fn head<W: Words>(job: Job<'_>) {
    let mut scratch = SCRATCH.take();
    let Job { task, inputs, saved, .. } = job;
    let (queries, dout) = (task.queries(inputs.q), task.queries((saved.dout, saved.layout)));
    scratch.queries[0].pack::<W>(queries.t());
    scratch.queries[1].pack::<W>(queries);
    scratch.douts[0].pack::<W>(dout.t());
    scratch.douts[1].pack::<W>(dout);
    if job.is_first {
        scratch.keys.pack::<W>(task.keys(inputs.k));
    }
    statistics(&job, whole_panels::<W>(task.size.queries), &mut scratch);
    let mut key = 0;
    while key < task.size.keys {
        let keys = KEYS.min(task.size.keys - key);
        let mut first = task.first_row(key) / QUERIES * QUERIES;
        while first < task.size.queries {
            let block = Block { first, rows: QUERIES.min(task.size.queries - first), key, keys };
            kept(&job, block, &mut scratch.kept);
            let mut nth = 0;
            while nth < keys {
                let some = W::On::ROWS.min(keys - nth);
                strip::<W>(&job, block, (nth, some), &mut scratch);
                nth += some;
            }
            to_queries::<W>(&job, block, &mut scratch);
            first += QUERIES;
        }
        key += KEYS;
    }
    SCRATCH.set(scratch);
}

/// The log-sum-exp of every row, and δ = Σ dout·out, which is Σ p·dp; zeros up to `len`.
fn statistics(job: &Job<'_>, len: usize, scratch: &mut Scratch) {
    let Job { task, saved: Saved { out, dout, layout, log_sum_exp }, .. } = *job;
    let (place, first) = (task.place(layout, task.head, task.size.queries), task.row(0));
    scratch.log_sum_exp.clear();
    scratch.log_sum_exp.extend_from_slice(&log_sum_exp[first..first + place.rows]);
    scratch.log_sum_exp.resize(len, 0.0);
    scratch.delta.clear();
    scratch.delta.extend((0..place.rows).map(|row| {
        let at = place.offset + row * place.row_stride;
        dot(&out[at..at + place.cols], &dout[at..at + place.cols])
    }));
    scratch.delta.resize(len, 0.0);
}

/// Under dropout, the factors on a block of the pattern, a row for each key.
fn kept(job: &Job<'_>, block: Block, to: &mut Aligned) {
    let task = &job.task;
    if task.options.dropout.is_none() {
        return;
    }
    let to = to.at_least(KEYS * QUERIES);
    for row in 0..block.rows {
        let (mut factors, seen) = ([1.0; KEYS], task.seen(block, row));
        task.drop_row(block.first + row, block.key, &mut factors[..seen]);
        for (key, factor) in factors[..seen].iter().enumerate() {
            // SAFETY: key < KEYS and row < QUERIES.
            unsafe { *to.add(key * QUERIES + row) = *factor };
        }
    }
}

/// A few keys meet the queries of a block that see them.
#[inline(always)]
fn strip<W: Words>(job: &Job<'_>, block: Block, (nth, keys): (usize, usize), scratch: &mut Scratch) {
    let (task, key) = (&job.task, block.key + nth);
    let seen_from = task.first_row(key);
    let start = panel_start::<W>(seen_from.saturating_sub(block.first));
    if start >= block.rows {
        return;
    }
    let (first, columns) = (block.first + start, block.rows - start);
    let width = whole_panels::<W>(columns);
    let (p, ds) = (scratch.p.at_least(W::On::ROWS * QUERIES), scratch.ds.at_least(W::On::ROWS * QUERIES));
    let k = scratch.strips[0].pack::<W>(task.keys(job.inputs.k), (key, keys));
    let v = scratch.strips[1].pack::<W>(task.keys(job.inputs.v), (key, keys));
    let words = task.size.head_size.div_ceil(W::PER_WORD);
    let scores = Strip { rows: keys, words, columns, scale: task.options.scale, accumulate: false };
    // scores = scale·k·qᵀ once more, and dp = v·doutᵀ, which inverts out = p·v towards p
    // SAFETY: the rows were packed with these words, the queries have their panels; a strip is this thread's and has room
    // for whole panels, for QUERIES is a multiple of theirs.
    unsafe {
        scores.times::<W>(k, &scratch.queries[0], (0, first), (p, QUERIES));
        Strip { scale: 1.0, ..scores }.times::<W>(v, &scratch.douts[0], (0, first), (ds, QUERIES));
        for row in 0..keys {
            let hidden = task.first_row(key + row).saturating_sub(first).min(columns);
            let rows = (p.add(row * QUERIES), ds.add(row * QUERIES));
            invert::<W>(job, scratch, (first, (nth + row) * QUERIES + start), rows, width);
            for row in [rows.0, rows.1] {
                row.write_bytes(0, hidden);
                row.add(columns).write_bytes(0, width - columns);
            }
        }
        if !keys.is_multiple_of(W::PER_WORD) {
            ds.add(keys * QUERIES).write_bytes(0, width);
        }
        keep_across::<W>(ds, (nth, keys), (start, width), &mut scratch.across);
        words_in_place::<W>(p, (keys, QUERIES), width);
        words_in_place::<W>(ds, (keys, QUERIES), width);
    }
    // the first queries that see a key overwrite
    let accumulate = !job.is_first || seen_from < block.first;
    let words = columns.div_ceil(W::PER_WORD);
    let gathered = Strip { rows: keys, words, columns: task.size.head_size, scale: 1.0, accumulate };
    // inverts: out = p·v towards v, then scores = scale·q·kᵀ towards k
    for (weights, right, (to, place)) in
        [(p, &scratch.douts[1], job.to[2]), (ds, &scratch.queries[1], job.to[1])]
    {
        let (left, out) = (Left { at: weights, row: QUERIES, step: 1 }, row_of(to, place, key));
        // SAFETY: what is hidden is zero, and so is what fills the last word; the rows of the results are this task's,
        // and their end was checked.
        unsafe { gathered.times::<W>(left, right, (first / W::PER_WORD, 0), (out, place.row_stride)) };
    }
}

/// Inverts p = softmax(scores) for a key's row of a strip, whose first column is the query `first`: scores become p,
/// and dp becomes p·(dp − δ)·scale. `at` is the row's place among the factors of dropout.
///
/// # Safety
/// Both rows have room for `width`, whole registers, and are this thread's.
#[inline(always)]
unsafe fn invert<W: Words>(
    job: &Job<'_>,
    scratch: &Scratch,
    (first, at): (usize, usize),
    (p, ds): (*mut f32, *mut f32),
    width: usize,
) {
    let log_sum_exp = scratch.log_sum_exp[first..first + width].as_ptr();
    let delta = scratch.delta[first..first + width].as_ptr();
    let has_dropout = job.task.options.dropout.is_some();
    // SAFETY: the same contract; statistics go on to the end of a panel, factors are a block.
    unsafe {
        let scale = W::On::splat(job.task.options.scale);
        let mut column = 0;
        while column < width {
            let score = W::On::load(p.add(column));
            let weight = exp::<W::On>(W::On::subtract(score, W::On::load(log_sum_exp.add(column))));
            let (mut used, mut dp) = (weight, W::On::load(ds.add(column)));
            if has_dropout {
                let factor = W::On::load(scratch.kept.pointer().add(at + column));
                (used, dp) = (W::On::multiply(weight, factor), W::On::multiply(dp, factor));
            }
            W::On::store(p.add(column), used);
            let centred = W::On::subtract(dp, W::On::load(delta.add(column)));
            W::On::store(ds.add(column), W::On::multiply(W::On::multiply(weight, scale), centred));
            column += W::On::LANES;
        }
    }
}

/// Keeps a strip of the scores' gradient as words along the keys, zeros before its first column.
///
/// # Safety
/// The strip has room for `width`, whole registers, and for whole words of keys.
#[inline(always)]
unsafe fn keep_across<W: Words>(
    ds: *const f32,
    (nth, keys): (usize, usize),
    (start, width): (usize, usize),
    across: &mut Aligned,
) {
    let across = across.at_least(KEYS * QUERIES);
    for word in 0..keys.div_ceil(W::PER_WORD) {
        // SAFETY: the same contract; the words of a block's keys are no more than these, and columns end with a block.
        unsafe {
            let to = across.add((nth / W::PER_WORD + word) * QUERIES + start);
            let margin = MARGIN.min(start);
            to.sub(margin).write_bytes(0, margin);
            let mut column = 0;
            while column < width {
                let from = ds.add(word * W::PER_WORD * QUERIES + column);
                W::On::store(to.add(column), W::across(from, QUERIES));
                column += W::On::LANES;
            }
        }
    }
}

/// Inverts scores = scale·q·kᵀ towards q: the first block of keys overwrites, the others add.
#[inline(always)]
fn to_queries<W: Words>(job: &Job<'_>, block: Block, scratch: &mut Scratch) {
    let (task, (to, place)) = (&job.task, job.to[0]);
    let across = scratch.across.pointer();
    let mut row = 0;
    while row < block.rows {
        let rows = W::On::ROWS.min(block.rows - row);
        let words = task.seen(block, row + rows - 1).div_ceil(W::PER_WORD);
        let columns = task.size.head_size;
        let strip = Strip { rows, words, columns, scale: 1.0, accumulate: block.key > 0 };
        let left = Left { at: across.wrapping_add(row), row: 1, step: QUERIES };
        let out = row_of(to, place, block.first + row);
        // SAFETY: every strip of keys that one of these rows sees was kept, with zeros where another does not; the rows of
        // the result are this task's, and their end was checked.
        unsafe {
            strip.times::<W>(left, &scratch.keys, (block.key / W::PER_WORD, 0), (out, place.row_stride));
        }
        row += rows;
    }
}
