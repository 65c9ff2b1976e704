//! Which relations the WAL of the last minutes was for. Outlives the runs of a compute, as the metrics do.
//!
//! Two summaries, the one being filled and the one before: what is told covers between one and two periods, and
//! what a compute wrote an hour ago does not hide what it writes now. Not for Prometheus, where every relation of
//! every compute would be a series.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wal_decode::WalByRelation;

/// After so long another summary is begun.
pub const PERIOD: Duration = Duration::from_secs(300);

/// What the WAL of the last minutes was for.
#[derive(Debug)]
pub struct RelationLedger {
    windows: Mutex<Windows>,
}

#[derive(Debug)]
struct Windows {
    current: WalByRelation,
    since: Instant,
    /// With when it began.
    previous: Option<(WalByRelation, Instant)>,
}

impl Default for RelationLedger {
    fn default() -> RelationLedger {
        RelationLedger {
            windows: Mutex::new(Windows {
                current: WalByRelation::default(),
                since: Instant::now(),
                previous: None,
            }),
        }
    }
}

impl RelationLedger {
    /// Lets `count` add to the summary of now. Readers wait meanwhile: one piece of WAL at a time.
    pub fn count<T>(&self, count: impl FnOnce(&mut WalByRelation) -> T) -> T {
        let mut windows = self.windows.lock();
        windows.turn(Instant::now());
        count(&mut windows.current)
    }

    /// What was counted, and for how long.
    pub fn recent(&self) -> (WalByRelation, Duration) {
        let mut windows = self.windows.lock();
        let now = Instant::now();
        windows.turn(now);
        let mut all = windows.current.clone();
        let mut since = windows.since;
        if let Some((previous, began)) = &windows.previous {
            all.merge(previous);
            since = *began;
        }
        (all, now - since)
    }
}

impl Windows {
    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.since);
        if age < PERIOD {
            return;
        }
        let ended = std::mem::take(&mut self.current);
        // After a long silence both are old; that nothing was written for a period is what there is to say.
        self.previous = if age < 2 * PERIOD {
            Some((ended, self.since))
        } else {
            Some((WalByRelation::default(), now - PERIOD))
        };
        self.since = now;
    }
}
