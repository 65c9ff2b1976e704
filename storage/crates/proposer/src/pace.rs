//! Holding a compute's WAL to a rate.
//!
//! WAL is read from Postgres no faster than the rate allows. What has not been read waits in Postgres: commits wait for
//! their WAL as they do behind a slow network, and sessions that do not wait for commits are held back by the agent
//! once too much WAL is on its way. WAL that has been read is never delayed, so that a limit adds nothing to the latency of
//! a compute that stays below it.
//!
//! The method is that of the generic cell rate algorithm (ITU-T I.371): each piece of WAL moves the time at which the next
//! one is due, and time that was not used counts for at most [`BURST`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Unused time that counts: so much of the rate may come at once after a pause.
const BURST: Duration = Duration::from_millis(250);

/// The rate that a compute's WAL is held to, shared by whoever sets it and the proposer. It outlives runs.
#[derive(Debug, Default)]
pub struct WalPace {
    /// Bytes a second; 0 for no limit.
    rate: AtomicU64,
    due: Due,
}

/// When the next WAL is due.
#[derive(Debug, Default)]
pub(crate) struct Due(Mutex<Option<Instant>>);

impl Due {
    /// So many bytes were read at `now`, at a rate in bytes a second. Returns how long to wait before more is read.
    pub fn took(&self, bytes: usize, rate: u64, now: Instant) -> Duration {
        let mut due = self.0.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let from = due.map_or(now, |due| due.max(earliest));
        let next = from + Duration::from_secs_f64(bytes as f64 / rate as f64);
        *due = Some(next);
        next.saturating_duration_since(now)
    }

    /// Forgets what was read.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }
}

impl WalPace {
    /// Holds WAL to so many bytes a second from here on; `None` lifts the limit.
    pub fn set(&self, bytes_per_second: Option<u64>) {
        let rate = bytes_per_second.unwrap_or(0);
        if self.rate.swap(rate, Ordering::Relaxed) != rate {
            self.due.forget();
            tracing::info!(bytes_per_second = rate, "WAL rate limit");
        }
    }

    /// Bytes a second; `None` for no limit.
    pub fn rate(&self) -> Option<u64> {
        match self.rate.load(Ordering::Relaxed) {
            0 => None,
            rate => Some(rate),
        }
    }

    /// So many bytes were read at `now`. Returns how long to wait before more is read.
    pub(crate) fn took(&self, bytes: usize, now: Instant) -> Duration {
        let Some(rate) = self.rate() else {
            return Duration::ZERO;
        };
        self.due.took(bytes, rate, now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_limit_nothing_waits() {
        let pace = WalPace::default();
        assert_eq!(pace.rate(), None);
        assert_eq!(pace.took(1 << 30, Instant::now()), Duration::ZERO);
    }

    #[test]
    fn a_new_rate_forgets_what_was_due_by_the_old_one() {
        let pace = WalPace::default();
        let now = Instant::now();
        pace.set(Some(1));
        assert!(pace.took(1000, now) > Duration::from_secs(900));
        pace.set(Some(1 << 20));
        assert!(pace.took(1 << 10, now) < Duration::from_millis(2));
        pace.set(None);
        assert_eq!(pace.took(1 << 30, now), Duration::ZERO);
    }

    proptest! {
        /// A reader that waits as told takes no more than the rate, a burst and the last piece.
        #[test]
        fn no_more_than_the_rate_is_taken(
            rate in 1_000u64..10_000_000,
            pieces in prop::collection::vec((1usize..200_000, 0u64..400), 1..200),
        ) {
            let pace = WalPace::default();
            pace.set(Some(rate));
            let start = Instant::now();
            let (mut now, mut taken, mut last) = (start, 0, 0);
            for (bytes, pause_ms) in pieces {
                now += Duration::from_millis(pause_ms);
                let allowed = (now - start + BURST).as_secs_f64() * rate as f64 + last as f64;
                prop_assert!(taken as f64 <= allowed + 1.0, "{taken} > {allowed}");
                now += pace.took(bytes, now);
                taken += bytes;
                last = bytes;
            }
        }

        /// A compute that stays below the rate does not wait for longer than one of its pieces takes.
        #[test]
        fn below_the_rate_hardly_anything_waits(bytes in 1usize..100_000) {
            let pace = WalPace::default();
            pace.set(Some(1_000_000));
            let piece = Duration::from_secs_f64(bytes as f64 / 1e6);
            let mut now = Instant::now();
            for _ in 0..100 {
                now += piece * 2;
                let waited = pace.took(bytes, now);
                prop_assert!(waited <= piece + Duration::from_micros(1), "{waited:?} of {piece:?}");
            }
        }
    }
}
