//! Moments of this machine's clock since its start, which goes on while the machine sleeps.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the machine's start by `CLOCK_BOOTTIME`. `std`'s clock stands still while the machine is suspended, and
/// a lease measured by it would outlast its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Moment {
        // Linux has had this clock since 2.6.39, and the call has no other error.
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME is there");
        Moment(Duration::from(now))
    }

    pub fn from_micros(micros: u64) -> Moment {
        Moment(Duration::from_micros(micros))
    }

    /// Microseconds since the machine's start.
    pub fn micros(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }

    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }

    /// How much later this is than `earlier`; zero if it is not.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
