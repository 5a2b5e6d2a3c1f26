//! Forward and backward on the CPU: a task per sequence and head, blocks of query rows inside.

use super::{Layout, Options, Size};
use crate::matmul::{Into, Place, View, product};
use crate::parallel::Shared;
use crate::simd::{exp, max, sum, vectorized};
use rayon::prelude::*;

/// Query rows scored at a time; a block of scores is this many rows of T.
const BLOCK: usize = 64;

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
struct Task {
    size: Size,
    options: Options,
    batch: usize,
    head: usize,
}

impl Task {
    fn kv_head(&self) -> usize {
        self.head / (self.size.heads / self.size.kv_heads)
    }

    /// Rows `first..first + rows` of `head` in a buffer.
    fn place(&self, layout: Layout, head: usize, first: usize, rows: usize) -> Place {
        Place {
            offset: layout.offset + self.batch * layout.batch + head * layout.head + first * layout.row,
            rows,
            cols: self.size.head_size,
            row_stride: layout.row,
            col_stride: 1,
        }
    }

    /// How many keys the query row `row` sees.
    fn visible(&self, row: usize) -> usize {
        if self.options.causal { self.size.keys - self.size.queries + row + 1 } else { self.size.keys }
    }

    /// Number of the row (sequence, head, query) among all.
    fn row(&self, row: usize) -> usize {
        (self.batch * self.size.heads + self.head) * self.size.queries + row
    }

    /// Blocks of query rows as (first row, rows, keys that any of them sees).
    fn blocks(self) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.size.queries).step_by(BLOCK).map(move |first| {
            let rows = BLOCK.min(self.size.queries - first);
            (first, rows, self.visible(first + rows - 1))
        })
    }

    /// scores (rows, keys) = scale·Q·Kᵀ.
    fn score(&self, inputs: Inputs<'_>, first: usize, rows: usize, keys: usize, scores: &mut [f32]) {
        let q = View::strided(inputs.q.0, self.place(inputs.q.1, self.head, first, rows));
        let k = View::strided(inputs.k.0, self.place(inputs.k.1, self.kv_head(), 0, keys));
        let block = &mut scores[..rows * keys];
        crate::matmul::matmul(block, Into::Overwrite, self.options.scale, q, k.t());
    }

    /// Multiplies the kept entries of a row of the pattern by 1/(1 − p) and the dropped ones by 0.
    fn drop_row(&self, row: usize, weights: &mut [f32]) {
        if let Some(dropout) = self.options.dropout {
            dropout.apply((self.row(row) * self.size.keys) as u64, weights);
        }
    }
}

vectorized! {
    /// Turns a row of scores into softmax weights, zeros beyond `visible`; returns the log-sum-exp.
    fn softmax_row(row: &mut [f32], visible: usize) -> f32 {
        let (seen, hidden) = row.split_at_mut(visible);
        let largest = max(seen);
        for value in seen.iter_mut() {
            *value = exp(*value - largest);
        }
        let total = sum(seen.len(), |i| seen[i]);
        let scale = 1.0 / total;
        for value in seen.iter_mut() {
            *value *= scale;
        }
        hidden.fill(0.0);
        largest + total.ln()
    }

    /// The same weights once more from the log-sum-exp.
    fn weights_row(row: &mut [f32], visible: usize, log_sum_exp: f32) {
        let (seen, hidden) = row.split_at_mut(visible);
        for value in seen.iter_mut() {
            *value = exp(*value - log_sum_exp);
        }
        hidden.fill(0.0);
    }

    /// dscores = p·(dp − δ)·scale, overwriting `dp`.
    fn score_gradient_row(p: &[f32], dp: &mut [f32], delta: f32, scale: f32) {
        for (dp, &p) in dp.iter_mut().zip(p) {
            *dp = p * (*dp - delta) * scale;
        }
    }

    fn weighted(p: &[f32], dp: &[f32]) -> f32 {
        sum(p.len(), |i| p[i] * dp[i])
    }
}

/// out = softmax(scale·Q·Kᵀ)·V; `log_sum_exp` keeps what [`backward`] needs of each row.
///
/// # Shapes
/// `inputs` as their layouts say, `out` like q by `out_layout`, `log_sum_exp` `(B, H, T)`.
pub fn forward(
    size: Size,
    options: Options,
    inputs: Inputs<'_>,
    out: &mut [f32],
    out_layout: Layout,
    log_sum_exp: &mut [f32],
) {
    let out = Shared::new(out);
    log_sum_exp.par_chunks_mut(size.queries).enumerate().with_max_len(1).for_each(|(index, log_sum_exp)| {
        let task = Task { size, options, batch: index / size.heads, head: index % size.heads };
        let mut scores = vec![0.0; BLOCK.min(size.queries) * size.keys];
        for (first, rows, keys) in task.blocks() {
            task.score(inputs, first, rows, keys, &mut scores);
            for (at, row) in scores[..rows * keys].chunks_exact_mut(keys).enumerate() {
                log_sum_exp[first + at] = softmax_row(row, task.visible(first + at));
                task.drop_row(first + at, row);
            }
            let v = View::strided(inputs.v.0, task.place(inputs.v.1, task.kv_head(), 0, keys));
            let place = task.place(out_layout, task.head, first, rows);
            product(out, place, Into::Overwrite, 1.0, View::new(&scores[..rows * keys], rows, keys), v);
        }
    });
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

/// Inverts [`forward`].
///
/// # Shapes
/// `dout` like `out` of forward, by `out_layout`; `log_sum_exp` `(B, H, T)` as forward left it.
pub fn backward(
    size: Size,
    options: Options,
    inputs: Inputs<'_>,
    (dout, out_layout): (&[f32], Layout),
    log_sum_exp: &[f32],
    gradients: Gradients<'_>,
) {
    let [dq, dk, dv] = match gradients.buffers {
        Buffers::Packed(all) => [Shared::new(all); 3],
        Buffers::Apart([q, k, v]) => [Shared::new(q), Shared::new(k), Shared::new(v)],
    };
    let group = size.heads / size.kv_heads;
    let scratch = BLOCK.min(size.queries) * size.keys;
    (0..size.batch * size.kv_heads).into_par_iter().with_max_len(1).for_each(|index| {
        let (batch, kv_head) = (index / size.kv_heads, index % size.kv_heads);
        let (mut p, mut dp) = (vec![0.0; scratch], vec![0.0; scratch]);
        let mut dropped = vec![0.0; if options.dropout.is_some() { scratch } else { 0 }];
        for (nth, head) in (kv_head * group..(kv_head + 1) * group).enumerate() {
            let task = Task { size, options, batch, head };
            // The last block of a head sees all keys, so going backwards every row of dk and dv is written
            // before it is added to.
            let blocks: Vec<_> = task.blocks().collect();
            for (block, &(first, rows, keys)) in blocks.iter().rev().enumerate() {
                let area = rows * keys;
                let (p, dp) = (&mut p[..area], &mut dp[..area]);
                task.score(inputs, first, rows, keys, p);
                for (at, row) in p.chunks_exact_mut(keys).enumerate() {
                    weights_row(row, task.visible(first + at), log_sum_exp[task.row(first + at)]);
                }
                let into = if nth == 0 && block == 0 { Into::Overwrite } else { Into::Add };
                let dout = View::strided(dout, task.place(out_layout, head, first, rows));
                let v = View::strided(inputs.v.0, task.place(inputs.v.1, kv_head, 0, keys));
                let k = View::strided(inputs.k.0, task.place(inputs.k.1, kv_head, 0, keys));
                let q = View::strided(inputs.q.0, task.place(inputs.q.1, head, first, rows));
                // inverts: out = dropped(p)·v
                let used: &[f32] = if options.dropout.is_some() {
                    dropped[..area].copy_from_slice(p);
                    for (at, row) in dropped[..area].chunks_exact_mut(keys).enumerate() {
                        task.drop_row(first + at, row);
                    }
                    &dropped[..area]
                } else {
                    p
                };
                product(
                    dv,
                    task.place(gradients.v, kv_head, 0, keys),
                    into,
                    1.0,
                    View::new(used, rows, keys).t(),
                    dout,
                );
                crate::matmul::matmul(dp, Into::Overwrite, 1.0, dout, v.t());
                // inverts: p = softmax(scores); δ = Σ p·dp of the row
                for (at, (p, dp)) in p.chunks_exact(keys).zip(dp.chunks_exact_mut(keys)).enumerate() {
                    task.drop_row(first + at, dp);
                    score_gradient_row(p, dp, weighted(p, dp), options.scale);
                }
                // inverts: scores = scale·q·kᵀ
                let dscores = View::new(dp, rows, keys);
                product(dq, task.place(gradients.q, head, first, rows), Into::Overwrite, 1.0, dscores, k);
                product(dk, task.place(gradients.k, kv_head, 0, keys), into, 1.0, dscores.t(), q);
            }
        }
    });
}
