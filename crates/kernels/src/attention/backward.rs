//! Inverts attention's forward: a task per sequence and key/value head.

#![expect(unsafe_code, reason = "tiles take pointers, which come from checked places")]

use super::block::{
    Block, Inputs, KEYS, Left, MARGIN, Panels, QUERIES, Strip, Task, by_query, row_of, tile_rows, to_queries,
};
use super::{Layout, Options, Size};
use crate::matmul::lanes::{Exact, Words};
use crate::matmul::pack::Aligned;
use crate::matmul::{Place, by_level};
use crate::parallel::{Shared, tasks};
use crate::simd::{dot, exp, vectorized};
use std::cell::RefCell;

vectorized! {
    /// Scores become weights once more, from the row's log-sum-exp.
    fn weigh(scores: &mut [f32], log_sum_exp: f32) {
        for value in scores.iter_mut() {
            *value = exp(*value - log_sum_exp);
        }
    }

    /// dscores = p·(dp − δ)·scale, overwriting `dp`.
    fn score_gradient(p: &[f32], dp: &mut [f32], delta: f32, scale: f32) {
        for (dp, &p) in dp.iter_mut().zip(p) {
            *dp = p * (*dp - delta) * scale;
        }
    }
}

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
    keys: [Panels; 2], // Kᵀ for the scores, K for dq
    values: Panels,    // Vᵀ, for dp
    queries: Panels,   // Q, for dk
    douts: Panels,     // dout, for dv
    p: Aligned,        // (QUERIES, KEYS)
    dp: Aligned,       // (QUERIES, KEYS), then the scores' gradient
    dropped: Aligned,  // (QUERIES, KEYS), under dropout
    delta: Vec<f32>,   // of each row of a block
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
            by_level!(Exact, head(job: Job<'_>));
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
    let task = job.task;
    let (k, v) = (task.keys(job.inputs.k), task.keys(job.inputs.v));
    scratch.queries.pack::<W>(task.queries(job.inputs.q));
    scratch.douts.pack::<W>(task.queries((job.saved.dout, job.saved.layout)));
    if job.is_first {
        scratch.keys[0].pack::<W>(k.t());
        scratch.keys[1].pack::<W>(k);
        scratch.values.pack::<W>(v.t());
        clear(&job);
    }
    let mut first = 0;
    while first < task.size.queries {
        deltas(&job, first, &mut scratch.delta);
        let mut key = 0;
        while let Some(block) = task.block(first, key) {
            one_block::<W>(&job, block, &mut scratch);
            key += KEYS;
        }
        first += QUERIES;
    }
    SCRATCH.set(scratch);
}

/// Zeros dk and dv, to which every block of queries adds.
fn clear(job: &Job<'_>) {
    for (buffer, place) in &job.to[1..] {
        for row in 0..place.rows {
            // SAFETY: the rows are this task's, and their end was checked.
            unsafe { row_of(*buffer, *place, row).write_bytes(0, place.cols) };
        }
    }
}

/// δ = Σ dout·out of every row of a block, which is Σ p·dp.
fn deltas(job: &Job<'_>, first: usize, delta: &mut Vec<f32>) {
    let Saved { out, dout, layout, .. } = job.saved;
    let place = job.task.place(layout, job.task.head, job.task.size.queries);
    let rows = QUERIES.min(job.task.size.queries - first);
    delta.clear();
    delta.extend((first..first + rows).map(|row| {
        let at = place.offset + row * place.row_stride;
        dot(&out[at..at + place.cols], &dout[at..at + place.cols])
    }));
}

#[inline(always)]
fn one_block<W: Words>(job: &Job<'_>, block: Block, scratch: &mut Scratch) {
    let (task, scale) = (job.task, job.task.options.scale);
    let (p, dp) = (scratch.p.at_least(QUERIES * KEYS), scratch.dp.at_least(QUERIES * KEYS));
    let (q, dout) = (task.queries(job.inputs.q), task.queries((job.saved.dout, job.saved.layout)));
    // scores = scale·q·kᵀ once more, and dp = dout·vᵀ, which inverts out = p·v towards p
    // SAFETY: both buffers hold a block and are this thread's.
    unsafe {
        by_query::<W>(&task, block, q, &scratch.keys[0], scale, p);
        by_query::<W>(&task, block, dout, &scratch.values, 1.0, dp);
    }
    let mut used = p;
    if task.options.dropout.is_some() {
        used = scratch.dropped.at_least(QUERIES * KEYS);
    }
    for row in 0..block.rows {
        let log_sum_exp = job.saved.log_sum_exp[task.row(block.first + row)];
        let seen = task.seen(block, row);
        let touched = (seen + MARGIN).min(block.keys);
        // SAFETY: rows of KEYS numbers each, of this thread, in different buffers.
        unsafe {
            let p = std::slice::from_raw_parts_mut(p.add(row * KEYS), touched);
            let dp = std::slice::from_raw_parts_mut(dp.add(row * KEYS), touched);
            weigh(&mut p[..seen], log_sum_exp);
            p[seen..].fill(0.0);
            dp[seen..].fill(0.0);
            if task.options.dropout.is_some() {
                let used = std::slice::from_raw_parts_mut(used.add(row * KEYS), touched);
                used.copy_from_slice(p);
                task.drop_row(block.first + row, block.key, &mut used[..seen]);
                task.drop_row(block.first + row, block.key, &mut dp[..seen]);
            }
            // inverts: p = softmax(scores)
            score_gradient(&p[..seen], &mut dp[..seen], scratch.delta[row], scale);
        }
    }
    let [dq, dk, dv] = job.to;
    // inverts: out = dropped(p)·v towards v, then scores = scale·q·kᵀ towards q and k
    // SAFETY: rows of `used` and `dp` end in zeros, see above; the results' rows are this task's, and their end was checked.
    unsafe {
        to_keys::<W>(&task, block, used, &scratch.douts, dv);
        to_queries::<W>(&task, block, dp, &scratch.keys[1], dq);
        to_keys::<W>(&task, block, dp, &scratch.queries, dk);
    }
}

/// to (keys) += weightsᵀ·right, from the first row that sees any of a tile's keys.
///
/// # Safety
/// As [`to_queries`].
#[inline(always)]
unsafe fn to_keys<W: Words>(
    task: &Task,
    block: Block,
    weights: *const f32,
    right: &Panels,
    (to, place): (Shared, Place),
) {
    let mut key = 0;
    while key < block.keys {
        let keys = tile_rows::<W>(block.keys - key);
        let row = task.first_row(block, key);
        let left = Left { at: weights.wrapping_add(row * KEYS + key), row: 1, step: KEYS };
        let words = block.rows - row;
        let strip = Strip { rows: keys, words, columns: task.size.head_size, scale: 1.0, accumulate: true };
        let out = row_of(to, place, block.key + key);
        // SAFETY: the same contract; the rows of `right` have their panels.
        unsafe { strip.times::<W>(left, right, (block.first + row, 0), (out, place.row_stride)) };
        key += keys;
    }
}
