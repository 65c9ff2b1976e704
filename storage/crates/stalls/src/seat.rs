//! What a thread says of itself, and the limits that it is held to.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How long a poll may keep its thread.
pub const LIMIT: Duration = Duration::from_millis(20);
/// How often polls are looked at.
pub const TICK: Duration = Duration::from_millis(5);
/// The variable that says what a stall does besides being counted.
pub const VARIABLE: &str = "WEIR_WORKER_STALLS";
/// What the line of a program begins with that a stall has ended.
pub const MARK: &str = "worker stalled, the program ends here:";

/// Bits of a poll's word that say which task it is of; the rest is the number of the poll on its thread.
pub(crate) const NAME_BITS: u32 = 16;
/// No watched poll.
pub(crate) const NONE: u64 = 0;

/// What a thread does, for the one that watches.
pub(crate) struct Seat {
    /// Of the thread, for the kernel.
    pub thread: u32,
    /// The poll that runs there now, or [`NONE`].
    pub poll: AtomicU64,
}

impl Seat {
    /// The seat of a thread that is in no poll.
    pub fn of(thread: u32) -> Seat {
        Seat {
            thread,
            poll: AtomicU64::new(NONE),
        }
    }
}
