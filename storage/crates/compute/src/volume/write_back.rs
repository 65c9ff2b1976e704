//! When a write reaches the volume: at once, or when the kernel hands it over.
//!
//! Written through, each page that Postgres writes costs a round trip to the agent. Written back, the kernel keeps
//! the page in its cache and hands it over later, many pages in one request; most pages of a bulk load are
//! written several times before that. Postgres may be told "written" so early because nothing of a volume outlives its
//! run: what is durable is the WAL on the safekeepers.
//!
//! Invariants:
//! - the mode is chosen before the mount and stays: the kernel learns it when it connects;
//! - written back, no write is refused, since Postgres has been told that it succeeded. One that fails all the same (a
//!   full local disk, storage that does not answer) closes the volume at once: nobody reads the page as it was before;
//! - growth is refused by a quota only when written through. A volume that is written back asks for a run that writes
//!   through as soon as its size comes near the quota (see [`super::Quota::near`]).
//!
//! A crash leaves nothing: the pages in the kernel's cache go with the mount.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::quota::Near;

/// The moment at which a write reaches the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// Each write reaches the volume before Postgres goes on.
    #[default]
    Through,
    /// The kernel keeps what is written and hands it over later.
    Back,
}

/// Why a volume that is written back must be replaced by one that is written through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteThroughNeeded {
    /// Growth may have to be refused soon, which only a write that has not been answered yet can be.
    #[error("writes go through from here on: {0}")]
    Quota(Near),
    /// A page that Postgres believes written is lost; the run cannot go on.
    #[error(
        "a page that Postgres had written could not be kept ({0}); the compute starts anew and writes through"
    )]
    Lost(String),
}

/// The mode of one volume, and what happened to writes handed over later.
#[derive(Debug, Default)]
pub struct Writes {
    back: AtomicBool,
    connected: AtomicBool,
    lost: Mutex<Option<String>>,
}

impl Writes {
    /// The mode in force.
    pub fn mode(&self) -> WriteMode {
        if self.back.load(Ordering::Acquire) {
            WriteMode::Back
        } else {
            WriteMode::Through
        }
    }

    /// Chooses the mode.
    ///
    /// # Panics
    /// When a kernel has connected, which has learned the mode.
    pub fn choose(&self, mode: WriteMode) {
        assert!(
            !self.connected.load(Ordering::Acquire),
            "the mode of writes changes only before the mount"
        );
        self.back.store(mode == WriteMode::Back, Ordering::Release);
    }

    /// The kernel connects. `offered`: whether it can hand writes over later; the mode is what is left.
    pub(super) fn connect(&self, offered: bool) -> WriteMode {
        if !offered {
            self.back.store(false, Ordering::Release);
        }
        self.connected.store(true, Ordering::Release);
        self.mode()
    }

    /// A write failed. Returns whether Postgres had been told that it succeeded.
    pub(super) fn failed(&self, why: &dyn std::fmt::Display) -> bool {
        let back = self.mode() == WriteMode::Back;
        if back {
            self.lost.lock().get_or_insert_with(|| why.to_string());
        }
        back
    }

    /// The first write that was lost, in words.
    pub(super) fn lost(&self) -> Option<String> {
        self.lost.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_offers_no_write_back_writes_through() {
        let writes = Writes::default();
        assert_eq!(writes.mode(), WriteMode::Through);
        writes.choose(WriteMode::Back);
        assert_eq!(writes.connect(false), WriteMode::Through);
        assert_eq!(writes.mode(), WriteMode::Through);
    }

    #[test]
    fn only_a_write_that_was_answered_before_it_failed_is_lost() {
        let writes = Writes::default();
        assert!(!writes.failed(&"no space"));
        assert_eq!(writes.lost(), None);
        writes.choose(WriteMode::Back);
        assert_eq!(writes.connect(true), WriteMode::Back);
        assert!(writes.failed(&"no space"));
        assert!(writes.failed(&"another"));
        assert_eq!(writes.lost(), Some("no space".to_owned()));
    }

    #[test]
    #[should_panic(expected = "only before the mount")]
    fn the_mode_stays_once_a_kernel_has_connected() {
        let writes = Writes::default();
        writes.connect(true);
        writes.choose(WriteMode::Back);
    }
}
