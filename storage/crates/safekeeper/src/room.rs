//! How much WAL a timeline may keep on the disk that all timelines of a safekeeper share.
//!
//! WAL is trimmed once storage has it durable as pages. Where storage stands still, a timeline's WAL would fill the disk,
//! and with it stop every other timeline. So each one has an allowance:
//!
//! | free bytes of the disk | allowance |
//! |---|---|
//! | at least twice the reserve | the quota |
//! | the reserve | a small one: an eighth of the quota, 64 MiB or more |
//! | half of the reserve | none |
//!
//! and between these, in proportion. What is left of the disk below the reserve is thus kept for timelines that keep little, and
//! half of it for votes and control files.
//!
//! Nothing here is stored. A limit is a full disk that comes early: WAL beyond it is refused, nothing is forgotten, votes and
//! elections go on, and WAL that an election recovers is taken in any case (`docs/adr/0053-*`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pg_types::Lsn;
use wire::wal::{Room, RoomCause};

use crate::metrics;

/// How often the free bytes of the disk are looked at.
pub const MEASURE_PERIOD: Duration = Duration::from_secs(1);
/// The least that a quota may be, bytes; a timeline that keeps up needs about as much.
pub const LEAST_QUOTA_BYTES: u64 = 64 << 20;
/// A part of so many of the quota is what a timeline may keep while the disk is short.
const SMALL_PART: u64 = 8;
/// No more than this part of a disk is held in reserve.
const RESERVE_PART: u64 = 10;
/// The proposer slows down within the last of so many parts of its allowance.
const SLOW_PART: u64 = 4;

/// The allowance of every timeline on one disk. Without [`Space::limit`] there is no limit.
#[derive(Debug, Default)]
pub struct Space {
    /// Bytes; 0 for no quota.
    quota: AtomicU64,
    /// Bytes; 0 for none.
    reserve: AtomicU64,
    /// Free bytes of the disk when last looked at.
    free: AtomicU64,
    /// Size of the disk, bytes; 0 before it was looked at.
    total: AtomicU64,
}

impl Space {
    /// Sets the quota of each timeline and the reserve of the disk, bytes; 0 for none.
    pub fn limit(&self, quota: u64, reserve: u64) {
        self.quota.store(quota, Ordering::Relaxed);
        self.reserve.store(reserve, Ordering::Relaxed);
        metrics::WAL_QUOTA.set(quota as i64);
        metrics::DISK_RESERVE.set(reserve as i64);
    }

    /// Looks at the free bytes of the disk that holds `dir`. A disk that does not say keeps the figures it had. Blocks.
    pub fn measure(&self, dir: &Path) {
        match nix::sys::statvfs::statvfs(dir) {
            Ok(found) => self.measured(
                found.blocks_available() * found.fragment_size(),
                found.blocks() * found.fragment_size(),
            ),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "cannot tell how much of the disk is free");
            }
        }
    }

    fn measured(&self, free: u64, total: u64) {
        self.free.store(free, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        metrics::DISK_FREE.set(free as i64);
    }

    /// Bytes of WAL that a timeline may keep now, and what says so; `None` for no limit.
    fn allowance(&self) -> Option<(u64, RoomCause)> {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let (quota, total, free) = (of(&self.quota), of(&self.total), of(&self.free));
        let reserve = of(&self.reserve).min(total / RESERVE_PART);
        if free >= 2 * reserve {
            return (quota > 0).then_some((quota, RoomCause::Quota));
        }
        let quota = if quota > 0 { quota } else { total };
        let small = (quota / SMALL_PART).max(LEAST_QUOTA_BYTES).min(quota);
        let half = reserve / 2;
        let share = |part: u64, bytes: u64, of: u64| {
            (u128::from(part) * u128::from(bytes) / u128::from(of.max(1))) as u64
        };
        let allowed = if free >= reserve {
            small + share(free - reserve, quota - small, reserve)
        } else {
            share(free.saturating_sub(half), small, reserve - half)
        };
        Some((allowed, RoomCause::Disk))
    }

    /// Room of a log that begins at `oldest`.
    pub fn room(&self, oldest: Lsn) -> Option<Room> {
        let (allowed, cause) = self.allowance()?;
        let limit_lsn = Lsn(oldest.0.saturating_add(allowed));
        let slow_lsn = Lsn(limit_lsn.0 - allowed / SLOW_PART);
        Some(Room {
            limit_lsn,
            slow_lsn,
            cause,
        })
    }
}

/// Looks at the free bytes of the disk that holds `dir`, once a [`MEASURE_PERIOD`]. Never ends.
pub async fn watch(space: Arc<Space>, dir: PathBuf) {
    let mut clock = tokio::time::interval(MEASURE_PERIOD);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let (space, dir) = (space.clone(), dir.clone());
        // A panic ends the program; a disk that hangs delays the next look.
        let _ = tokio::task::spawn_blocking(move || space.measure(&dir)).await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(quota: u64, reserve: u64, free: u64) -> Space {
        let space = Space::default();
        space.limit(quota * MIB, reserve * MIB);
        space.measured(free * MIB, 100_000 * MIB);
        space
    }

    fn allowed(quota: u64, reserve: u64, free: u64) -> Option<u64> {
        space(quota, reserve, free).allowance().map(|it| it.0 / MIB)
    }

    #[test]
    fn the_allowance_is_the_quota_and_shrinks_as_the_disk_fills() {
        assert_eq!(allowed(1024, 100, 5000), Some(1024));
        assert_eq!(allowed(1024, 100, 200), Some(1024));
        assert_eq!(allowed(1024, 100, 150), Some(128 + 448));
        assert_eq!(allowed(1024, 100, 100), Some(128));
        assert_eq!(allowed(1024, 100, 75), Some(64));
        assert_eq!(allowed(1024, 100, 50), Some(0));
        assert_eq!(allowed(1024, 100, 0), Some(0));
    }

    #[test]
    fn either_limit_works_without_the_other() {
        assert_eq!(allowed(0, 0, 0), None);
        assert_eq!(allowed(0, 100, 5000), None);
        assert_eq!(allowed(0, 100, 40), Some(0));
        assert_eq!(allowed(1024, 0, 0), Some(1024));
    }

    #[test]
    fn a_small_disk_keeps_no_more_than_a_tenth_in_reserve() {
        let space = Space::default();
        space.limit(1 << 30, 1 << 30);
        space.measured(60 * MIB, 96 * MIB);
        assert_eq!(space.allowance(), Some((1 << 30, RoomCause::Quota)));
    }

    proptest! {
        /// Less free disk never means a larger allowance, and no allowance is above the quota.
        #[test]
        fn the_allowance_only_shrinks(quota in 64u64..100_000, reserve in 0u64..10_000, free in 1u64..100_000) {
            let more = space(quota, reserve, free).allowance().expect("a quota").0;
            let less = space(quota, reserve, free - 1).allowance().expect("a quota").0;
            prop_assert!(less <= more && more <= quota * MIB);
        }

        #[test]
        fn slowing_down_begins_before_the_limit(quota in 64u64..100_000, oldest in 0u64..1 << 60) {
            let room = space(quota, 0, 0).room(Lsn(oldest)).expect("a quota");
            prop_assert_eq!(room.left(Lsn(oldest)), quota * MIB);
            prop_assert_eq!(room.slow_bytes(), quota * MIB / SLOW_PART);
        }
    }
}
