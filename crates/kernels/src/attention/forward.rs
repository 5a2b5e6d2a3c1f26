//! out = softmax(scale·Q·Kᵀ)·V, a task per sequence and head.

#![expect(unsafe_code, reason = "tiles take pointers, which come from checked places")]

use super::block::{Block, Inputs, KEYS, MARGIN, Panels, QUERIES, Task, by_query, row_of, to_queries};
use super::{Layout, Options, Size};
use crate::matmul::lanes::{Exact, Words};
use crate::matmul::pack::Aligned;
use crate::matmul::{Place, by_level};
use crate::parallel::{Shared, tasks};
use crate::simd::{exp, max, sum, vectorized};
use std::cell::RefCell;

vectorized! {
    /// One more piece of a row under the running softmax: scores become exp(score − largest so far); returns the
    /// factor that brings earlier pieces to the same.
    fn advance(scores: &mut [f32], largest: &mut f32, total: &mut f32) -> f32 {
        let now = max(scores).max(*largest);
        for value in scores.iter_mut() {
            *value = exp(*value - now);
        }
        let factor = if *total > 0.0 { exp(*largest - now) } else { 0.0 };
        *total = *total * factor + sum(scores.len(), |i| scores[i]);
        *largest = now;
        factor
    }

    fn multiply(row: &mut [f32], factor: f32) {
        for value in row.iter_mut() {
            *value *= factor;
        }
    }
}

/// What a thread keeps between tasks.
#[derive(Default)]
struct Scratch {
    keys: Panels,         // Kᵀ
    values: Panels,       // V
    weights: Aligned,     // (QUERIES, KEYS)
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
        by_level!(Exact, head(job: Job<'_>));
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
    scratch.keys.pack::<W>(job.task.keys(job.inputs.k).t());
    scratch.values.pack::<W>(job.task.keys(job.inputs.v));
    let mut first = 0;
    while first < job.task.size.queries {
        let rows = QUERIES.min(job.task.size.queries - first);
        scratch.state.clear();
        scratch.state.resize(rows, [f32::NEG_INFINITY, 0.0]);
        let mut key = 0;
        while let Some(block) = job.task.block(first, key) {
            let weights = scratch.weights.at_least(QUERIES * KEYS);
            let (task, q) = (&job.task, job.task.queries(job.inputs.q));
            // SAFETY: the weights hold a block and are this thread's; `soften` leaves zeros where nothing is seen; the
            // rows of the output are this task's, and their end was checked.
            unsafe {
                by_query::<W>(task, block, q, &scratch.keys, task.options.scale, weights);
                soften(&job, block, weights, &mut scratch.state);
                to_queries::<W>(task, block, weights, &scratch.values, (job.out, job.place));
            }
            key += KEYS;
        }
        finish(&job, first, &scratch.state);
        first += rows;
    }
    SCRATCH.set(scratch);
}

/// Scores become exp(score − largest), zeros where a row sees nothing; earlier results are brought to the same.
fn soften(job: &Job<'_>, block: Block, weights: *mut f32, state: &mut [[f32; 2]]) {
    let task = job.task;
    for (row, [largest, total]) in state.iter_mut().enumerate() {
        let seen = task.seen(block, row);
        // SAFETY: rows of KEYS weights each, of this thread.
        let weights =
            unsafe { std::slice::from_raw_parts_mut(weights.add(row * KEYS), block.keys.min(seen + MARGIN)) };
        let (seen, hidden) = weights.split_at_mut(seen);
        hidden.fill(0.0);
        if seen.is_empty() {
            continue;
        }
        let factor = advance(seen, largest, total);
        task.drop_row(block.first + row, block.key, seen);
        if block.key > 0 {
            // SAFETY: this row of the output is this task's, and its end was checked.
            let out = unsafe {
                let at = row_of(job.out, job.place, block.first + row);
                std::slice::from_raw_parts_mut(at, task.size.head_size)
            };
            multiply(out, factor);
        }
    }
}

/// Divides by the totals and keeps the log-sum-exp.
fn finish(job: &Job<'_>, first: usize, state: &[[f32; 2]]) {
    for (row, &[largest, total]) in state.iter().enumerate() {
        let row = first + row;
        // SAFETY: this row of the output, and its log-sum-exp, are this task's; both ends were checked.
        unsafe {
            let out = row_of(job.out, job.place, row);
            multiply(std::slice::from_raw_parts_mut(out, job.task.size.head_size), 1.0 / total);
            *job.log_sum_exp.at(job.task.row(row)) = largest + total.ln();
        }
    }
}
