//! Mutexes of a timeline's parts that know their place in the order in which locks are taken.
//!
//! Invariant: a thread that holds a mutex takes only mutexes of a higher rank, so that no two threads ever wait for
//! each other. Unit tests and debug builds panic at a lock that is taken out of order; the release build checks
//! nothing, and a ranked mutex is a `parking_lot` mutex there. A guard never lives across an await: it is not `Send`.
//!
//! The ranks below are the order. Outside of it are locks that are asynchronous, taken before any of these;
//! read-write locks that are held for a copy only (settings, state); and the one of the ancestor, taken from a branch
//! towards its ancestors.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// A lock that is held for longer is waited for off the async worker: a background thread holds it that looks at all
/// pages, say, or is behind everything else for a processor.
const SOON: Duration = Duration::from_micros(500);

/// The request to detach a branch, and what has become of it.
pub const DETACH: u32 = 0;
/// The layers that were copied for it.
pub const COPIES: u32 = 1;
/// Held while a record is appended and while the open layer is frozen.
pub const APPEND: u32 = 10;
/// The last record in a frozen layer.
pub const FROZEN_UPTO: u32 = 20;
/// Since when the open layer holds something.
pub const DIRTY_SINCE: u32 = 21;
/// The logical size.
pub const SIZE: u32 = 22;
/// The queue of waiters for an LSN.
pub const WAITERS: u32 = 23;
/// The chains' lengths.
pub const CHAIN_COUNTS: u32 = 30;
/// Reads that the chains' lengths have not been told of.
pub const NOTED_READS: u32 = 31;
/// The page whose image ingest waits for.
pub const URGENT_PAGE: u32 = 32;
/// Since when a page is due for an image.
pub const IMAGES_DUE: u32 = 33;
/// As of which record images are being made.
pub const IMAGES_MAKING: u32 = 34;
/// The terms that wrote the ingested WAL.
pub const TERMS: u32 = 40;
/// The safekeepers whose WAL is not the timeline's.
pub const SICK_SAFEKEEPERS: u32 = 41;
/// What compaction may drop.
pub const RETENTION: u32 = 50;
/// Why history is cut by another time than the wall clock's.
pub const HISTORY_HELD: u32 = 51;

/// A mutex of rank `RANK`, below 64; a thread that holds it takes only mutexes of a higher rank.
#[derive(Default)]
pub struct Ranked<const RANK: u32, T> {
    inner: Mutex<T>,
}

/// The lock on a [`Ranked`] mutex, until it is dropped.
pub struct RankedGuard<'a, const RANK: u32, T> {
    inner: MutexGuard<'a, T>,
    _held: Held<RANK>,
}

impl<const RANK: u32, T> Ranked<RANK, T> {
    pub fn new(value: T) -> Self {
        Ranked {
            inner: Mutex::new(value),
        }
    }

    /// Waits for the lock; on an async worker, for long only after other tasks have been taken over. Panics in tests
    /// and debug builds when this thread holds one of the same or a higher rank.
    #[inline]
    pub fn lock(&self) -> RankedGuard<'_, RANK, T> {
        let held = Held::<RANK>::take();
        RankedGuard {
            inner: self.inner.try_lock().unwrap_or_else(|| self.wait()),
            _held: held,
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        let soon = self.inner.try_lock_for(SOON);
        soon.unwrap_or_else(|| stalls::off_worker(|| self.inner.lock()))
    }
}

impl<const RANK: u32, T> Deref for RankedGuard<'_, RANK, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<const RANK: u32, T> DerefMut for RankedGuard<'_, RANK, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Says that this thread holds a lock of a rank.
struct Held<const RANK: u32>;

#[cfg(any(test, debug_assertions))]
mod checked {
    use std::cell::Cell;

    use super::Held;

    thread_local! {
        /// The ranks that the thread holds, a bit each.
        static HELD: Cell<u64> = const { Cell::new(0) };
    }

    impl<const RANK: u32> Held<RANK> {
        pub(super) fn take() -> Self {
            HELD.with(|held| {
                let ranks = held.get();
                assert!(
                    ranks >> RANK == 0,
                    "a lock of rank {RANK} is taken while the thread holds the ranks {ranks:#b}: see `lock_order`"
                );
                held.set(ranks | 1 << RANK);
            });
            Held
        }
    }

    impl<const RANK: u32> Drop for Held<RANK> {
        fn drop(&mut self) {
            HELD.with(|held| held.set(held.get() & !(1 << RANK)));
        }
    }
}

#[cfg(not(any(test, debug_assertions)))]
impl<const RANK: u32> Held<RANK> {
    #[inline]
    fn take() -> Self {
        Held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: locks can be taken upwards, in any number and given back in any order.
    #[test]
    fn a_higher_rank_can_be_taken() {
        let (low, high) = (Ranked::<3, _>::new(1), Ranked::<7, _>::new(2));
        for _ in 0..2 {
            let first = low.lock();
            let second = high.lock();
            assert_eq!(*first + *second, 3);
            drop(first);
            drop(second);
        }
    }

    /// Promise: what could end in two threads that wait for each other is found by the first thread that does it.
    #[test]
    #[should_panic(expected = "a lock of rank 3 is taken")]
    fn a_lower_rank_cannot() {
        let (low, high) = (Ranked::<3, _>::new(1), Ranked::<7, _>::new(2));
        let _high = high.lock();
        drop(low.lock());
    }
}
