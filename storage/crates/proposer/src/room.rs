//! Slowing a compute down as the safekeepers run out of room for its WAL, instead of stopping it from one moment to the next.
//!
//! A majority takes WAL up to a limit, which moves on as storage makes WAL durable as pages and safekeepers trim it. Within the
//! last part before the limit WAL is read from Postgres at a rate that falls from any to none. At the limit none is read
//! until there is room again. What has been read and has no room waits in memory, what has not waits in Postgres: its
//! commits wait, and are neither lost nor reported.
//!
//! With the share `x` of that part that is left, the rate is the part's bytes in [`SLOW_DOWN`], times `x / (1 - x)`. A compute
//! that writes as fast as it is let takes about 1.8 times [`SLOW_DOWN`] until a sixteenth is left, whatever the part's size.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use pg_types::Lsn;
use tokio::sync::watch;
use wire::wal::Room;

use crate::Positions;
use crate::core::Core;
use crate::pace::Due;

/// See the module's head.
const SLOW_DOWN: Duration = Duration::from_secs(20);
/// The lowest rate before the limit, bytes a second: the last commits that wait must not wait for hours.
const LEAST_RATE: u64 = 64 << 10;
/// The longest that one piece of WAL is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How fast WAL behind `reached` may be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Speed {
    Free,
    /// Bytes a second.
    Slow(u64),
    Stopped,
}

fn speed(room: Option<Room>, reached: Lsn) -> Speed {
    let Some(room) = room else {
        return Speed::Free;
    };
    let left = room.left(reached);
    if left == 0 {
        return Speed::Stopped;
    }
    let used = room.slow_bytes().saturating_sub(left);
    if used == 0 {
        return Speed::Free;
    }
    let whole = room.slow_bytes() as f64 / SLOW_DOWN.as_secs_f64();
    let rate = whole * (left as f64 / used as f64);
    Speed::Slow((rate as u64).max(LEAST_RATE))
}

impl Core {
    /// How much more WAL a majority takes; `None` for no limit, and while no majority is connected.
    pub fn room(&self) -> Option<Room> {
        let voters = self.proposer.voters();
        let connected = voters.iter().flatten().map(|peer| &self.members[*peer]);
        let mut rooms: Vec<Option<Room>> = connected
            .filter(|member| member.connected)
            .map(|member| member.room)
            .collect();
        // Most room first, no limit before all others.
        rooms.sort_by_key(|room| Reverse(room.map_or(Lsn::MAX, |room| room.limit_lsn)));
        *rooms.get(consensus::majority(voters.len()) - 1)?
    }
}

/// Waits, behind a piece of WAL of so many bytes that ends at `reached`, until the next one may be read. Returns how long it
/// waited. Fails when the proposer has ended.
pub async fn wait(
    due: &Due,
    positions: &mut watch::Receiver<Positions>,
    bytes: usize,
    reached: Lsn,
) -> Result<Duration, watch::error::RecvError> {
    let begun = Instant::now();
    let now = speed(positions.borrow().room, reached);
    match now {
        Speed::Free => {
            due.forget();
            return Ok(Duration::ZERO);
        }
        Speed::Slow(rate) => {
            let pause = due.took(bytes, rate, begun).min(LONGEST_WAIT);
            let freed = positions.wait_for(|now| speed(now.room, reached) == Speed::Free);
            if let Ok(freed) = tokio::time::timeout(pause, freed).await {
                freed?;
            }
        }
        Speed::Stopped => {
            positions
                .wait_for(|now| speed(now.room, reached) != Speed::Stopped)
                .await?;
        }
    }
    Ok(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use wire::wal::RoomCause;

    use super::*;

    const ROOM: Room = Room {
        limit_lsn: Lsn(4000 << 20),
        slow_lsn: Lsn(3000 << 20),
        cause: RoomCause::Quota,
    };

    #[test]
    fn nothing_is_slowed_down_before_the_last_part() {
        assert_eq!(speed(None, Lsn::MAX), Speed::Free);
        assert_eq!(speed(Some(ROOM), Lsn(1)), Speed::Free);
        assert_eq!(speed(Some(ROOM), ROOM.slow_lsn), Speed::Free);
    }

    #[test]
    fn the_rate_falls_without_a_step_to_the_least_and_then_to_none() {
        let rates: Vec<u64> = (1..1000)
            .map(|mib| match speed(Some(ROOM), ROOM.slow_lsn + (mib << 20)) {
                Speed::Slow(rate) => rate,
                other => panic!("{other:?} at {mib} MiB"),
            })
            .collect();
        assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]));
        assert!(rates[0] > 10 << 30, "no step where it begins: {}", rates[0]);
        assert!(rates[998] < 128 << 10, "slow at the end: {}", rates[998]);
        assert_eq!(speed(Some(ROOM), ROOM.limit_lsn), Speed::Stopped);
        assert_eq!(speed(Some(ROOM), Lsn::MAX), Speed::Stopped);
    }

    #[test]
    fn a_limit_that_has_moved_back_stops_at_once() {
        let none = Room {
            slow_lsn: ROOM.limit_lsn,
            ..ROOM
        };
        assert_eq!(speed(Some(none), ROOM.limit_lsn), Speed::Stopped);
        assert_eq!(speed(Some(none), Lsn(1)), Speed::Free);
    }
}
