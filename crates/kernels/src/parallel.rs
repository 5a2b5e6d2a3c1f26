//! Splitting work over rayon's threads: one contiguous piece a thread, so pieces stay in their core's cache.
//!
//! Everything runs in the pool that the caller is in. Entering it once per pass ([`enter`]) instead of once
//! per kernel saves a wake-up each time.

use rayon::prelude::*;
use std::ops::Range;

/// Rows per thread when `rows` are shared out; at least one, so that it can be a chunk size.
pub fn share(rows: usize) -> usize {
    rows.div_ceil(rayon::current_num_threads()).max(1)
}

/// Runs `work` inside the pool, so that the kernels it calls start without waking a thread.
pub fn enter<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}

/// Calls `work` with contiguous ranges that cover `0..items`, at least `least` items each, in parallel.
pub fn ranges(items: usize, least: usize, work: impl Fn(Range<usize>) + Sync) {
    let each = share(items).max(least.max(1));
    let pieces = items.div_ceil(each);
    if pieces <= 1 {
        if items > 0 {
            work(0..items);
        }
        return;
    }
    (0..pieces).into_par_iter().with_max_len(1).for_each(|piece| {
        work(piece * each..((piece + 1) * each).min(items));
    });
}

/// Sums what `work` returns for blocks of `block` items, in order, so the result does not depend on the threads.
pub fn ordered_sum(items: usize, block: usize, work: impl Fn(Range<usize>) -> f64 + Sync) -> f64 {
    let block = block.max(1);
    let partial: Vec<f64> = (0..items.div_ceil(block))
        .into_par_iter()
        .map(|index| work(index * block..((index + 1) * block).min(items)))
        .collect();
    partial.iter().sum()
}

/// A mutable buffer that several tasks write at places which never overlap.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    pointer: *mut f32,
    len: usize,
}

// SAFETY: the users of `at` promise that tasks write disjoint places.
#[expect(unsafe_code, reason = "lets tasks write interleaved, disjoint places of one buffer")]
unsafe impl Send for Shared {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "lets tasks write interleaved, disjoint places of one buffer")]
unsafe impl Sync for Shared {}

impl Shared {
    pub(crate) fn new(buffer: &mut [f32]) -> Self {
        Self { pointer: buffer.as_mut_ptr(), len: buffer.len() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of element `index`, which must lie inside the buffer.
    pub(crate) fn at(&self, index: usize) -> *mut f32 {
        assert!(index <= self.len, "index {index} beyond a shared buffer of {}", self.len);
        self.pointer.wrapping_add(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn ranges_cover_every_item_once() {
        for items in [0usize, 1, 2, 7, 100] {
            let seen = Mutex::new(vec![0; items]);
            ranges(items, 3, |range| {
                for index in range {
                    seen.lock().unwrap()[index] += 1;
                }
            });
            assert!(seen.into_inner().unwrap().iter().all(|&count| count == 1));
        }
    }

    #[test]
    fn ordered_sums_do_not_depend_on_the_threads() {
        let values: Vec<f32> = (0..10_000).map(|i| (i as f32).sin()).collect();
        let run = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                ordered_sum(values.len(), 256, |range| values[range].iter().map(|&v| f64::from(v)).sum())
            })
        };
        assert_eq!(run(1).to_bits(), run(3).to_bits());
    }
}
