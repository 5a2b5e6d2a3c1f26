//! Decoding: linear layers and attention for one row of each sequence.
//!
//! A row has one product with each weight, so the time is that of reading the weights, and each is read from memory
//! once however many rows there are. What a row gets does not depend on the others, nor on the threads, to the bit.

use crate::linear::Size;
use crate::parallel::Shared;
use crate::simd::{add_assign, exp, max, vectorized};
use crate::team::Team;
use pulp::{Arch, Simd, WithSimd};

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
    team: &Team,
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
    team.ranges(outputs, LEAST.div_ceil(inputs), |columns| {
        let weight = &weight[columns.start * inputs..columns.end * inputs];
        let add = |row: usize, column: usize, product: f32| {
            #[expect(unsafe_code, reason = "tasks own disjoint columns of y")]
            // SAFETY: row < M and column < N, so the element lies inside y; `ranges` gives each column to one task.
            unsafe {
                *y.at(row * outputs + columns.start + column) += product;
            }
        };
        Arch::new().dispatch(Products { width: inputs, a: weight, b: x, put: add });
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
#[expect(clippy::too_many_arguments, reason = "the buffers of one step, owned by the decoder")]
pub fn attention(
    team: &Team,
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
    team.ranges(batch * kv_heads, least, |pieces| {
        for index in pieces {
            let (row, kv_head) = (index / kv_heads, index % kv_heads);
            let start = row * stride + kv_head * group * head_size;
            let q = &queries[start..start + group * head_size];
            let cached = index * capacity * head_size..(index * capacity + seen) * head_size;
            #[expect(unsafe_code, reason = "tasks own disjoint rows of the scores and of the output")]
            // SAFETY: index < B·G, so both slices lie inside their buffers, as asserted above; `ranges` gives each index to
            // one task.
            let (scores, out) = unsafe {
                let own = |all: Shared, len: usize| std::slice::from_raw_parts_mut(all.at(index * len), len);
                (own(scores, group * seen), own(out, group * head_size))
            };
            let put = |head: usize, key: usize, product: f32| scores[head * seen + key] = product;
            Arch::new().dispatch(Products { width: head_size, a: &keys[cached.clone()], b: q, put });
            for (scores, out) in scores.chunks_exact_mut(seen).zip(out.chunks_exact_mut(head_size)) {
                softmax(scores, scale);
                Arch::new().dispatch(Gather { weights: scores, rows: &values[cached.clone()], out });
            }
        }
    });
}

/// All products of the rows of `a`, each read once, with the rows of `b`: `put(row of b, row of a, product)`.
struct Products<'a, P> {
    width: usize,
    a: &'a [f32],
    b: &'a [f32],
    put: P,
}

impl<P: FnMut(usize, usize, f32)> WithSimd for Products<'_, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let Self { width, a, b, .. } = self;
        // known beforehand, one row of b costs least
        if b.len() == width {
            for (column, a) in a.chunks_exact(width).enumerate() {
                self.tile::<S, 1, 1>(simd, (0, column), a, b);
            }
            return;
        }
        // beside a row of `a` that comes from memory, as many of b as half the first cache holds
        let together = (FIRST / width).clamp(1, ROWS);
        let (first, rest) = b.split_at(b.len().min(together * width));
        for (group, a) in a.chunks(COLUMNS * width).enumerate() {
            // the first rows of b bring those of `a` into the cache one by one: processors read ahead in a single
            // stream, but not in several side by side
            for (at, a) in a.chunks_exact(width).enumerate() {
                self.across::<S, 1>(simd, (0, group * COLUMNS + at), a, first);
            }
            for (block, b) in rest.chunks(ROWS * width).enumerate() {
                let place = (together + block * ROWS, group * COLUMNS);
                if a.len() == COLUMNS * width {
                    self.across::<S, COLUMNS>(simd, place, a, b);
                    continue;
                }
                for (at, a) in a.chunks_exact(width).enumerate() {
                    self.across::<S, 1>(simd, (place.0, place.1 + at), a, b);
                }
            }
        }
    }
}

impl<P: FnMut(usize, usize, f32)> Products<'_, P> {
    /// The products of N rows of `a` with up to [`ROWS`] rows of `b`.
    #[inline(always)]
    fn across<S: Simd, const N: usize>(&mut self, simd: S, place: (usize, usize), a: &[f32], b: &[f32]) {
        match b.len() / self.width {
            1 => self.tile::<S, N, 1>(simd, place, a, b),
            2 => self.tile::<S, N, 2>(simd, place, a, b),
            3 => self.tile::<S, N, 3>(simd, place, a, b),
            _ => self.tile::<S, N, ROWS>(simd, place, a, b),
        }
    }

    /// The products of N rows of `a` with M rows of `b`, each with the same order of sums whatever N and M are.
    #[inline(always)]
    fn tile<S: Simd, const N: usize, const M: usize>(
        &mut self,
        simd: S,
        (row, column): (usize, usize),
        a: &[f32],
        b: &[f32],
    ) {
        let (a, rest_a) = split::<S, N>(a, self.width);
        let (b, rest_b) = split::<S, M>(b, self.width);
        let mut sums = [[simd.splat_f32s(0.0); M]; N];
        for step in 0..a[0].len() {
            for n in 0..N {
                for m in 0..M {
                    sums[n][m] = simd.mul_add_e_f32s(a[n][step], b[m][step], sums[n][m]);
                }
            }
        }
        for n in 0..N {
            for m in 0..M {
                let mut total = simd.reduce_sum_f32s(sums[n][m]);
                for (a, b) in rest_a[n].iter().zip(rest_b[m]) {
                    total += a * b;
                }
                (self.put)(row + m, column + n, total);
            }
        }
    }
}

/// The first N rows as vectors, and what fills none.
#[inline(always)]
fn split<S: Simd, const N: usize>(rows: &[f32], width: usize) -> ([&[S::f32s]; N], [&[f32]; N]) {
    let (mut vectors, mut rest) = ([&[][..]; N], [&[][..]; N]);
    for n in 0..N {
        (vectors[n], rest[n]) = S::as_simd_f32s(&rows[n * width..(n + 1) * width]);
    }
    (vectors, rest)
}

/// out = Σ over the rows of weight·row.
struct Gather<'a> {
    weights: &'a [f32],
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl Gather<'_> {
    /// The N vectors of the sum that begin at vector `at`.
    #[inline(always)]
    fn columns<S: Simd, const N: usize>(&mut self, simd: S, at: usize) {
        let mut sums = [simd.splat_f32s(0.0); N];
        for (weight, row) in self.weights.iter().zip(self.rows.chunks_exact(self.out.len())) {
            let weight = simd.splat_f32s(*weight);
            let row = &S::as_simd_f32s(row).0[at..at + N];
            for n in 0..N {
                sums[n] = simd.mul_add_e_f32s(weight, row[n], sums[n]);
            }
        }
        S::as_mut_simd_f32s(self.out).0[at..at + N].copy_from_slice(&sums);
    }
}

impl WithSimd for Gather<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let width = self.out.len();
        let vectors = S::as_simd_f32s(self.out).0.len();
        let mut at = 0;
        while at + 4 <= vectors {
            self.columns::<S, 4>(simd, at);
            at += 4;
        }
        while at < vectors {
            self.columns::<S, 1>(simd, at);
            at += 1;
        }
        let rest = S::as_mut_simd_f32s(self.out).1;
        let first = width - rest.len();
        rest.fill(0.0);
        for (weight, row) in self.weights.iter().zip(self.rows.chunks_exact(width)) {
            for (sum, value) in rest.iter_mut().zip(&row[first..]) {
                *sum += weight * value;
            }
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
                linear(&Team::alone(), size, &x, &weight, None, None, &mut plain);
                let (tx, tw) = (tensor(&x, &[rows, inputs]), tensor(&weight, &[outputs, inputs]));
                assert_near(&plain, &linear::reference(&tx, &tw, None).unwrap());
                let mut whole = vec![9.0; rows * outputs];
                Team::with(3, |team| {
                    linear(team, size, &x, &weight, Some(&bias), Some(&residual), &mut whole);
                });
                let expected = linear::reference(&tx, &tw, Some(&tensor(&bias, &[outputs]))).unwrap();
                assert_near(&whole, &(expected + tensor(&residual, &[rows, outputs])).unwrap());
                for (x, expected) in x.chunks(inputs).zip(plain.chunks(outputs)) {
                    let mut alone = vec![9.0; outputs];
                    linear(&Team::alone(), size, x, &weight, None, None, &mut alone);
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
            Team::with(2, |team| {
                attention(team, size, 0.7, (&packed, stride), &cached[0], &cached[1], &mut scores, &mut out);
            });
            let q: Vec<f32> =
                packed.chunks(stride).flat_map(|row| &row[..heads * head_size]).copied().collect();
            let [k, v] = cached.map(|cached| {
                tensor(&cached, &[batch, kv_heads, capacity, head_size]).narrow(2, 0, seen).unwrap()
            });
            let options = Options { causal: true, scale: 0.7, dropout: None };
            let expected = reference(options, &tensor(&q, &[batch, heads, 1, head_size]), &k, &v).unwrap();
            assert_near(&out, &expected);
        }
    }
}
