//! Decoding: linear layers and attention for one row of each sequence.
//!
//! A row has one product with each weight, so the time is that of reading the weights, and each is read from memory
//! once however many rows there are. What a row gets does not depend on the others, nor on the threads, to the bit.

#![expect(unsafe_code, reason = "tasks own places of one buffer, and registers go through pointers")]

use crate::lanes::{Lanes, Words, by_level};
use crate::linear::Size;
use crate::parallel::{Shared, pieces};
use crate::simd::{add_assign, exp, max, vectorized};

/// Weights that are worth handing to another thread: 64 KiB, two microseconds.
const LEAST: usize = 1 << 14;

/// Rows of x, and rows of W, whose products are made together: so many sums fit in the registers.
const ROWS: usize = 4;
const COLUMNS: usize = 4;

/// Half of a first cache of 32 KiB.
const FIRST: usize = 1 << 12;

/// y = x·Wᵀ + b + residual.
///
/// # Shapes
/// `x` `(M, K)`, `weight` `(N, K)`, `bias` `(N)`, `residual` and `y` `(M, N)`, as for [`crate::linear::forward`].
/// # Panics
/// When `x` and `y` differ in rows.
pub fn linear(
    size: Size,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    residual: Option<&[f32]>,
    y: &mut [f32],
) {
    let Size { inputs, outputs } = size;
    let rows = x.len() / inputs;
    assert_eq!((x.len(), y.len()), (rows * inputs, rows * outputs), "rows of a linear layer");
    for (row, y) in y.chunks_exact_mut(outputs).enumerate() {
        match (residual, bias) {
            (Some(residual), _) => y.copy_from_slice(&residual[row * outputs..(row + 1) * outputs]),
            (None, Some(bias)) => y.copy_from_slice(bias),
            (None, None) => y.fill(0.0),
        }
        if let (Some(_), Some(bias)) = (residual, bias) {
            add_assign(y, bias);
        }
    }
    let y = Shared::new(y);
    pieces(outputs, LEAST.div_ceil(inputs), |columns| {
        let weight = &weight[columns.start * inputs..columns.end * inputs];
        let out = y.at(columns.start);
        // columns are no task's but this one's, and x and y have the same rows
        let job = Products { width: inputs, a: weight, b: x, out, stride: outputs };
        by_level!(Exact, products(job: Products<'_>));
    });
}

/// Sizes of [`attention`].
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    /// Query heads H.
    pub heads: usize,
    /// Key/value heads G; each serves H/G consecutive query heads.
    pub kv_heads: usize,
    /// Components D of a head.
    pub head_size: usize,
    /// Key and value rows S that are seen.
    pub keys: usize,
    /// Rows from one head's keys to the next one's.
    pub capacity: usize,
}

/// out = softmax(scale·q·Kᵀ)·V for one query of each sequence, which sees all its keys.
///
/// # Shapes
/// `queries` B rows of `stride`, which begin with the `(H, D)` of q; `keys` and `values` `(B, G, capacity, D)`;
/// `scores` `(B, H, S)` or more; `out` `(B, H·D)`.
/// # Panics
/// When `scores` or `out` has another size.
pub fn attention(
    size: Heads,
    scale: f32,
    (queries, stride): (&[f32], usize),
    keys: &[f32],
    values: &[f32],
    scores: &mut [f32],
    out: &mut [f32],
) {
    let Heads { heads, kv_heads, head_size, keys: seen, capacity } = size;
    let (batch, group) = (queries.len() / stride, heads / kv_heads);
    assert!(
        scores.len() >= batch * heads * seen && out.len() == batch * heads * head_size,
        "size of attention"
    );
    let (scores, out) = (Shared::new(scores), Shared::new(out));
    // as much as a piece of a linear layer has to read
    let least = LEAST.div_ceil(2 * seen * head_size);
    pieces(batch * kv_heads, least, |some| {
        for index in some {
            let (row, kv_head) = (index / kv_heads, index % kv_heads);
            let start = row * stride + kv_head * group * head_size;
            let q = &queries[start..start + group * head_size];
            let cached = index * capacity * head_size..(index * capacity + seen) * head_size;
            // SAFETY: index < B·G, so both slices lie inside their buffers, as asserted above; `pieces` gives each index to
            // one task.
            let (scores, out) = unsafe {
                let own = |all: Shared, len: usize| std::slice::from_raw_parts_mut(all.at(index * len), len);
                (own(scores, group * seen), own(out, group * head_size))
            };
            scores.fill(0.0);
            let (a, out_scores) = (&keys[cached.clone()], scores.as_mut_ptr());
            let job = Products { width: head_size, a, b: q, out: out_scores, stride: seen };
            by_level!(Exact, products(job: Products<'_>));
            for (scores, out) in scores.chunks_exact_mut(seen).zip(out.chunks_exact_mut(head_size)) {
                softmax(scores, scale);
                let rows = &values[cached.clone()];
                let weights = &*scores;
                by_level!(Exact, gather(weights: &[f32], rows: &[f32], out: &mut [f32]));
            }
        }
    });
}

/// All products of the rows of `a`, each read once, with the rows of `b`, added to `out`: a row for each of `b`,
/// `stride` apart, a column for each of `a`. These places belong to the task.
#[derive(Clone, Copy)]
struct Products<'a> {
    width: usize,
    a: &'a [f32],
    b: &'a [f32],
    out: *mut f32,
    stride: usize,
}

#[inline(always)]
fn products<W: Words>(job: Products<'_>) {
    let Products { width, a, b, .. } = job;
    let (columns, rows) = (a.len() / width, b.len() / width);
    // known beforehand, one row of b costs least
    if rows == 1 {
        for column in 0..columns {
            tile::<W::On, 1, 1>(job, 0, column);
        }
        return;
    }
    // beside a row of `a` that comes from memory, as many of b as half the first cache holds
    let together = (FIRST / width).clamp(1, ROWS).min(rows);
    let mut column = 0;
    while column < columns {
        let some = COLUMNS.min(columns - column);
        // the first rows of b bring those of `a` into the cache one by one: processors read ahead in a single
        // stream, but not in several side by side
        for nth in 0..some {
            across::<W::On, 1>(job, (0, together), column + nth);
        }
        let mut row = together;
        while row < rows {
            let block = (row, ROWS.min(rows - row));
            if some == COLUMNS {
                across::<W::On, COLUMNS>(job, block, column);
            } else {
                for nth in 0..some {
                    across::<W::On, 1>(job, block, column + nth);
                }
            }
            row += ROWS;
        }
        column += some;
    }
}

/// The products of N rows of `a` with up to [`ROWS`] rows of `b`.
#[inline(always)]
fn across<L: Lanes, const N: usize>(job: Products<'_>, (row, rows): (usize, usize), column: usize) {
    match rows {
        1 => tile::<L, N, 1>(job, row, column),
        2 => tile::<L, N, 2>(job, row, column),
        3 => tile::<L, N, 3>(job, row, column),
        _ => tile::<L, N, ROWS>(job, row, column),
    }
}

/// The products of N rows of `a` with M rows of `b`, each with the same order of sums whatever N and M are.
#[inline(always)]
fn tile<L: Lanes, const N: usize, const M: usize>(job: Products<'_>, row: usize, column: usize) {
    let Products { width, out, stride, .. } = job;
    let a = &job.a[column * width..(column + N) * width];
    let b = &job.b[row * width..(row + M) * width];
    let whole = width / L::LANES * L::LANES;
    // SAFETY: registers end before `whole`, inside the slices; `out` has a place for each pair of rows.
    unsafe {
        let mut sums = [[L::splat(0.0); M]; N];
        let mut at = 0;
        while at < whole {
            for (n, sums) in sums.iter_mut().enumerate() {
                let a = L::load(a.as_ptr().add(n * width + at));
                for (m, sum) in sums.iter_mut().enumerate() {
                    *sum = L::multiply_add(a, L::load(b.as_ptr().add(m * width + at)), *sum);
                }
            }
            at += L::LANES;
        }
        for (n, sums) in sums.into_iter().enumerate() {
            for (m, sum) in sums.into_iter().enumerate() {
                let mut total = L::total(sum);
                for at in whole..width {
                    total += a[n * width + at] * b[m * width + at];
                }
                *out.add((row + m) * stride + column + n) += total;
            }
        }
    }
}

/// out = Σ over the rows, as long as `out`, of weight·row.
#[inline(always)]
fn gather<W: Words>(weights: &[f32], rows: &[f32], out: &mut [f32]) {
    let width = out.len();
    let mut at = 0;
    while at + 4 * W::On::LANES <= width {
        gather_columns::<W::On, 4>(weights, rows, out, at);
        at += 4 * W::On::LANES;
    }
    while at + W::On::LANES <= width {
        gather_columns::<W::On, 1>(weights, rows, out, at);
        at += W::On::LANES;
    }
    let rest = &mut out[at..];
    rest.fill(0.0);
    for (weight, row) in weights.iter().zip(rows.chunks_exact(width)) {
        for (sum, value) in rest.iter_mut().zip(&row[at..]) {
            *sum += weight * value;
        }
    }
}

/// The N registers of the sum that begin at column `at`.
#[inline(always)]
fn gather_columns<L: Lanes, const N: usize>(weights: &[f32], rows: &[f32], out: &mut [f32], at: usize) {
    // SAFETY: the caller's columns end inside `out`, and every row is as long.
    unsafe {
        let mut sums = [L::splat(0.0); N];
        for (weight, row) in weights.iter().zip(rows.chunks_exact(out.len())) {
            let weight = L::splat(*weight);
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = L::multiply_add(weight, L::load(row.as_ptr().add(at + n * L::LANES)), *sum);
            }
        }
        for (n, sum) in sums.into_iter().enumerate() {
            L::store(out.as_mut_ptr().add(at + n * L::LANES), sum);
        }
    }
}

vectorized! {
    /// Turns products into weights: softmax(scale·scores).
    fn softmax(scores: &mut [f32], scale: f32) {
        for score in scores.iter_mut() {
            *score *= scale;
        }
        let largest = max(scores);
        for score in scores.iter_mut() {
            *score = exp(*score - largest);
        }
        let factor = 1.0 / crate::simd::sum(scores.len(), |i| scores[i]);
        for score in scores.iter_mut() {
            *score *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::reference;
    use crate::parallel::enter_with;
    use crate::{attention::Options, linear};
    use candle_core::{Device, Tensor};
    use softdict_testkit::ramp;

    fn values(len: usize, seed: usize) -> Vec<f32> {
        ramp(len, seed).iter().map(|&value| value as f32).collect()
    }

    fn tensor(values: &[f32], shape: &[usize]) -> Tensor {
        Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
    }

    /// f32 sums of terms of size one, in two orders.
    fn assert_near(found: &[f32], expected: &Tensor) {
        let expected: Vec<f32> = expected.flatten_all().unwrap().to_vec1().unwrap();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{found} {expected}");
        }
    }

    #[test]
    fn linear_layers_equal_the_reference_and_rows_do_not_see_each_other() {
        // widths of less than a vector, of one, of an odd number with a rest, and of many
        for (inputs, outputs) in [(3, 5), (16, 1), (57, 33), (384, 70)] {
            for rows in [1, 2, 3, 4, 5, 9] {
                let (x, weight) = (values(rows * inputs, 0), values(outputs * inputs, 1));
                let (bias, residual) = (values(outputs, 2), values(rows * outputs, 3));
                let size = Size { inputs, outputs };
                let mut plain = vec![9.0; rows * outputs];
                linear(size, &x, &weight, None, None, &mut plain);
                let (tx, tw) = (tensor(&x, &[rows, inputs]), tensor(&weight, &[outputs, inputs]));
                assert_near(&plain, &linear::reference(&tx, &tw, None).unwrap());
                let mut whole = vec![9.0; rows * outputs];
                enter_with(3, || {
                    linear(size, &x, &weight, Some(&bias), Some(&residual), &mut whole);
                });
                let expected = linear::reference(&tx, &tw, Some(&tensor(&bias, &[outputs]))).unwrap();
                assert_near(&whole, &(expected + tensor(&residual, &[rows, outputs])).unwrap());
                for (x, expected) in x.chunks(inputs).zip(plain.chunks(outputs)) {
                    let mut alone = vec![9.0; outputs];
                    linear(size, x, &weight, None, None, &mut alone);
                    assert_eq!(alone, expected);
                }
            }
        }
    }

    #[test]
    fn attention_of_one_query_equals_the_reference() {
        let batch = 2;
        for (heads, kv_heads, head_size, seen, capacity) in
            [(4, 4, 8, 1, 3), (6, 2, 5, 7, 7), (2, 1, 80, 40, 41), (3, 3, 20, 300, 300)]
        {
            let stride = (heads + 2 * kv_heads) * head_size;
            let packed = values(batch * stride, 0);
            let cached = [
                values(batch * kv_heads * capacity * head_size, 1),
                values(batch * kv_heads * capacity * head_size, 2),
            ];
            let size = Heads { heads, kv_heads, head_size, keys: seen, capacity };
            let mut out = vec![9.0; batch * heads * head_size];
            let mut scores = vec![9.0; batch * heads * seen];
            enter_with(2, || {
                attention(size, 0.7, (&packed, stride), &cached[0], &cached[1], &mut scores, &mut out);
            });
            let q: Vec<f32> =
                packed.chunks(stride).flat_map(|row| &row[..heads * head_size]).copied().collect();
            let [k, v] = cached.map(|cached| {
                tensor(&cached, &[batch, kv_heads, capacity, head_size]).narrow(2, 0, seen).unwrap()
            });
            let options = Options::plain(true, 0.7);
            let expected = reference(options, &tensor(&q, &[batch, heads, 1, head_size]), &k, &v).unwrap();
            assert_near(&out, &expected);
        }
    }
}
