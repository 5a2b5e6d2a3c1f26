//! Splitting work over threads: one contiguous piece a thread, so pieces stay in their core's cache.
//!
//! A pass of many small operations is wrapped in [`enter`]: its threads then stay awake from one operation to the
//! next, for waking one takes longer than many an operation. Outside, every operation goes to rayon's pool. Both give
//! the same results: what is summed over pieces is summed in their order.

use crate::team::Team;
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Pieces a thread in [`pieces`].
const PIECES_PER_THREAD: usize = 4;

thread_local! {
    /// The team that this thread leads and that has nothing to do.
    static TEAM: Cell<Option<NonNull<Team>>> = const { Cell::new(None) };
}

/// Puts a team back where it was, even when the work between panics.
struct Restored(Option<NonNull<Team>>);

impl Drop for Restored {
    fn drop(&mut self) {
        TEAM.set(self.0);
    }
}

/// Threads that share the work.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Rows per thread when `rows` are shared out; at least one, so that it can be a chunk size.
pub fn share(rows: usize) -> usize {
    rows.div_ceil(rayon::current_num_threads()).max(1)
}

/// Runs `work` with threads that stay awake for its operations.
pub fn enter<R>(work: impl FnOnce() -> R) -> R {
    enter_with(threads(), work)
}

/// As [`enter`], with so many threads: one where an operation takes less time than sharing it.
pub fn enter_with<R>(threads: usize, work: impl FnOnce() -> R) -> R {
    let before = TEAM.get();
    if before.is_some() {
        return work();
    }
    Team::with(threads, |team| {
        let _restored = Restored(before);
        TEAM.set(Some(NonNull::from(team)));
        work()
    })
}

/// Calls `work` with contiguous ranges that cover `0..items`, at least `least` items each, in parallel.
pub fn ranges(items: usize, least: usize, work: impl Fn(Range<usize>) + Sync + Send) {
    let each = share(items).max(least.max(1));
    let pieces = items.div_ceil(each);
    if pieces <= 1 {
        if items > 0 {
            work(0..items);
        }
        return;
    }
    tasks(pieces, |piece| work(piece * each..((piece + 1) * each).min(items)));
}

/// As [`ranges`], in several pieces a thread: one that comes late leaves little to wait for.
pub fn pieces(items: usize, least: usize, work: impl Fn(Range<usize>) + Sync + Send) {
    #[expect(unsafe_code, reason = "the team lives on the stack of `enter`, further up this thread")]
    // SAFETY: `enter` removes the pointer before its team goes.
    let threads = TEAM.get().map_or_else(threads, |team| unsafe { team.as_ref() }.threads());
    let pieces = if threads == 1 { 1 } else { PIECES_PER_THREAD * threads };
    let each = items.div_ceil(pieces).max(least).max(1);
    tasks(items.div_ceil(each), |piece| work(piece * each..((piece + 1) * each).min(items)));
}

/// Calls `work` for every number below `count`, in parallel, one at a time.
pub fn tasks(count: usize, work: impl Fn(usize) + Sync + Send) {
    if count < 2 || threads() == 1 {
        return (0..count).for_each(work);
    }
    match TEAM.take() {
        Some(team) => {
            // an operation inside this one finds no team, and goes to the pool
            let _restored = Restored(Some(team));
            #[expect(unsafe_code, reason = "the team lives on the stack of `enter`, further up this thread")]
            // SAFETY: `enter` removes the pointer before its team goes.
            unsafe { team.as_ref() }.share(count, &work);
        }
        None => (0..count).into_par_iter().with_max_len(1).for_each(work),
    }
}

/// Calls `work` with each of `pieces`, in parallel, and returns the results in order.
pub fn map<P: Send, R: Send>(pieces: impl Iterator<Item = P>, work: impl Fn(P) -> R + Sync + Send) -> Vec<R> {
    let pieces: Vec<Mutex<(Option<P>, Option<R>)>> =
        pieces.map(|piece| Mutex::new((Some(piece), None))).collect();
    tasks(pieces.len(), |index| {
        let mut slot = pieces[index].lock().unwrap_or_else(PoisonError::into_inner);
        let (piece, result) = &mut *slot;
        *result = piece.take().map(&work);
    });
    let results = pieces.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner).1);
    results.flatten().collect()
}

/// Calls `work` with each of `pieces`, in parallel: chunks of the buffers of one operation, zipped.
pub fn each<P: Send>(pieces: impl Iterator<Item = P>, work: impl Fn(P) + Sync + Send) {
    map(pieces, work);
}

/// Sums what `work` returns for blocks of `block` items, in order, so the result does not depend on the threads.
pub fn ordered_sum(items: usize, block: usize, work: impl Fn(Range<usize>) -> f64 + Sync + Send) -> f64 {
    let block = block.max(1);
    let mut partial = vec![0.0; items.div_ceil(block)];
    let piece = share(partial.len());
    each(partial.chunks_mut(piece).enumerate(), |(index, partial)| {
        for (at, partial) in partial.iter_mut().enumerate() {
            let first = (index * piece + at) * block;
            *partial = work(first..(first + block).min(items));
        }
    });
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
    fn ranges_and_pieces_cover_every_item_once() {
        for items in [0usize, 1, 2, 7, 100, 1000] {
            let seen = Mutex::new(vec![0; items]);
            let count = |range: Range<usize>| {
                for index in range {
                    seen.lock().unwrap()[index] += 1;
                }
            };
            ranges(items, 3, count);
            pieces(items, 3, count);
            for threads in [1, 2, 5] {
                enter_with(threads, || pieces(items, 3, count));
            }
            assert!(seen.into_inner().unwrap().iter().all(|&count| count == 5));
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
