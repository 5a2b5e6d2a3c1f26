//! A team of threads for many pieces of work of a few microseconds each.
//!
//! Waking a thread costs about as much as such a piece takes, so the helpers of a team stay awake from its first
//! piece to its last, and take pieces as they come. Nobody waits for a helper that the system has not yet
//! scheduled: whoever is there does the work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Rounds of spinning before a waiting thread lets others run; about 50 µs.
const PATIENCE: usize = 2000;

/// What is being shared out.
struct Job {
    work: &'static (dyn Fn(usize) + Sync),
    next: usize,
    pieces: usize,
}

/// The calling thread and the helpers that [`Team::with`] found for it.
pub(crate) struct Team {
    helpers: usize,
    job: Mutex<Option<Job>>,
    posted: AtomicUsize,  // jobs so far
    running: AtomicUsize, // pieces taken and not finished
    closed: AtomicBool,
}

impl Team {
    /// The calling thread alone.
    pub(crate) const fn alone() -> Self {
        Self {
            helpers: 0,
            job: Mutex::new(None),
            posted: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Runs `work` with a team of `threads`, of which all but the caller's are lent by rayon's pool until it ends.
    pub(crate) fn with<R>(threads: usize, work: impl FnOnce(&Self) -> R) -> R {
        let team = Self { helpers: threads.saturating_sub(1), ..Self::alone() };
        if team.helpers == 0 {
            return work(&team);
        }
        rayon::in_place_scope(|scope| {
            for _ in 0..team.helpers {
                scope.spawn(|_| team.help());
            }
            let _closing = Closing(&team);
            work(&team)
        })
    }

    /// The caller and the helpers.
    pub(crate) fn threads(&self) -> usize {
        self.helpers + 1
    }

    /// Calls `work` for every piece, once each, and returns when all are done.
    pub(crate) fn share(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        if self.helpers == 0 || pieces < 2 {
            (0..pieces).for_each(work);
            return;
        }
        #[expect(unsafe_code, reason = "lends a closure of this call to threads that outlive it")]
        // SAFETY: `settling` takes the job away and waits for the pieces that run before this call returns or unwinds,
        // and nobody calls the closure without having taken a piece from the job.
        let work =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work) };
        let settling = Settling(self);
        *self.lock() = Some(Job { work, next: 0, pieces });
        self.posted.fetch_add(1, Ordering::Release);
        self.take_pieces();
        drop(settling);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Job>> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until no piece of the job at hand is left.
    fn take_pieces(&self) {
        loop {
            let mut job = self.lock();
            let Some(Job { work, next, pieces }) = job.as_mut() else { return };
            if next == pieces {
                return;
            }
            let (work, piece) = (*work, *next);
            *next += 1;
            self.running.fetch_add(1, Ordering::Relaxed);
            drop(job);
            let _running = Running(self);
            work(piece);
        }
    }

    /// What a helper does.
    fn help(&self) {
        let mut seen = 0;
        let mut waiting = Waiting::default();
        while !self.closed.load(Ordering::Acquire) {
            let posted = self.posted.load(Ordering::Acquire);
            if posted == seen {
                waiting.pause();
            } else {
                (seen, waiting) = (posted, Waiting::default());
                self.take_pieces();
            }
        }
    }
}

/// Sends the helpers home, even when the work panics.
struct Closing<'a>(&'a Team);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
    }
}

/// A piece that is being worked on.
struct Running<'a>(&'a Team);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Release);
    }
}

/// Ends a job: no piece is taken any more, and those that were are done.
struct Settling<'a>(&'a Team);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
        let mut waiting = Waiting::default();
        while self.0.running.load(Ordering::Acquire) > 0 {
            waiting.pause();
        }
    }
}

/// Spins for a while, then lets other threads run.
#[derive(Default)]
struct Waiting(usize);

impl Waiting {
    fn pause(&mut self) {
        self.0 += 1;
        if self.0 < PATIENCE { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_of_every_job_is_worked_on_once_and_jobs_come_in_order() {
        for threads in [1, 2, 5] {
            Team::with(threads, |team| {
                for pieces in [0usize, 1, 2, 7, 100] {
                    let done: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                    team.share(pieces, &|piece| {
                        done[piece].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(
                        done.iter().all(|count| count.load(Ordering::Relaxed) == 1),
                        "{threads} {pieces}"
                    );
                }
            });
        }
    }

    #[test]
    fn a_panic_in_a_piece_reaches_the_caller_and_nobody_waits_for_ever() {
        for bad in [0, 50, 99] {
            let run = || Team::with(3, |team| team.share(100, &|piece| assert!(piece != bad)));
            assert!(std::panic::catch_unwind(run).is_err());
        }
    }

    #[test]
    fn a_pool_of_one_thread_has_no_helper_to_wait_for() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let total = AtomicUsize::new(0);
        pool.install(|| {
            Team::with(2, |team| {
                team.share(64, &|_| {
                    total.fetch_add(1, Ordering::Relaxed);
                });
            });
        });
        assert_eq!(total.into_inner(), 64);
    }
}
