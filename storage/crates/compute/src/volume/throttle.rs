//! Holding writes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long each written page is held back, so that WAL cannot run away from the safekeepers; bounded by whoever
/// sets it.
#[derive(Debug, Default)]
pub struct Throttle {
    micros: AtomicU64,
    /// No write is held any more.
    released: Mutex<bool>,
    changed: Condvar,
}

impl Throttle {
    /// Holds each page back by `delay` from here on, writes that are being held included.
    pub fn set(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        if self.micros.swap(micros, Ordering::Relaxed) != micros {
            let _held = self.released.lock();
            self.changed.notify_all();
        }
    }

    /// By how much a page is held back.
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// Waits as long as a write of `pages` pages is to be held back.
    pub(super) fn hold(&self, pages: u32) {
        let started = Instant::now();
        let mut released = self.released.lock();
        while !*released {
            let until = started + self.delay().saturating_mul(pages);
            if Instant::now() >= until {
                return;
            }
            self.changed.wait_until(&mut released, until);
        }
    }

    /// Lets go of every write that is held, and holds none from here on.
    pub(super) fn release(&self) {
        *self.released.lock() = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_write_is_held_for_each_of_its_pages() {
        let throttle = Throttle::default();
        let started = Instant::now();
        throttle.hold(128);
        assert!(started.elapsed() < Duration::from_secs(1));
        throttle.set(Duration::from_millis(2));
        let started = Instant::now();
        throttle.hold(10);
        assert!(started.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_held_write_is_let_go_by_a_shorter_delay_and_by_the_end() {
        for let_go in [
            |throttle: &Throttle| throttle.set(Duration::ZERO),
            |throttle: &Throttle| throttle.release(),
        ] {
            let throttle = Arc::new(Throttle::default());
            throttle.set(LONG);
            let held = throttle.clone();
            let thread = std::thread::spawn(move || held.hold(128));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!thread.is_finished());
            let_go(&throttle);
            thread.join().unwrap();
        }
    }
}
