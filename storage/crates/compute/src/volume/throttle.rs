//! Holding writes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long each write is held back, so that WAL cannot run away from the safekeepers; bounded by whoever
/// sets it.
#[derive(Debug, Default)]
pub struct Throttle {
    micros: AtomicU64,
}

impl Throttle {
    pub fn set(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.micros.store(micros, Ordering::Relaxed);
    }

    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}
