//! What is watched while Postgres runs: its WAL's way to the safekeepers and into storage, and the timeline.
//!
//! WAL that runs away from the safekeepers is slowed down by holding writes to the volume back, for a bounded
//! time each. Where that does not help (a long transaction within `shared_buffers`), where storage has stopped at a
//! record it can't redo, and where the safekeepers have no room for more WAL, writes are refused: sessions default to
//! read-only and those that hold a transaction id are ended, over and over until the reason is gone. A session whose
//! commit waits for the majority is left alone: ending it would make its rows visible before they are safe, and it
//! writes no more WAL.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pg_types::{BLCKSZ, Lsn};
use proposer::{Positions, RoomCause};

use super::activity::Activity;
use super::live::Live;
use super::load::Sampler;
use super::status::FullPageWrites;
use super::{Agent, End};
use crate::postgres::{Admin, AdminError, STANDBY};
use crate::volume::Stats;

const VITALS_EVERY: Duration = Duration::from_millis(250);
const TIMELINE_EVERY: Duration = Duration::from_millis(300);
const REFUSE_EVERY: Duration = Duration::from_millis(200);
const SIZE_EVERY: Duration = Duration::from_secs(5);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// From here on writes are held back, up to [`MAX_DELAY`] each at the upper end.
const QUORUM_LAG: (u64, u64) = (64 << 20, 1 << 30);
const INGEST_LAG: (u64, u64) = (256 << 20, 2 << 30);
const MAX_DELAY: Duration = Duration::from_millis(50);
/// WAL that the safekeepers lack beyond this is too much for the local disk: writes are refused until half of it.
const MAX_QUORUM_LAG: u64 = 4 << 30;

/// Of the WAL in whose course a compute is slowed down, the part that is left when writes are refused, and the part that
/// there has to be before they are taken again.
const REFUSED_PART: u64 = 16;
const LIFTED_PART: u64 = 2;

/// Keeps status and metric at what the WAL says.
pub async fn full_page_writes(agent: &Agent, live: &Live) {
    let mut changes = live.proposer.last_fpw_change();
    loop {
        let change = *changes.borrow_and_update();
        if let Some(change) = change.filter(|change| change.committed) {
            agent.observe_full_page_writes(FullPageWrites {
                enabled: change.enabled,
                lsn: Some(change.end_lsn),
                record_lsn: Some(change.record_lsn),
            });
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Has the control group's limits be those of the compute's size where a change of it left others: a limit of memory that
/// had to stay because more was in use, or those of a caller who went away in the middle.
pub async fn size(agent: &Agent, live: &Arc<Live>) {
    loop {
        tokio::time::sleep(SIZE_EVERY).await;
        // Whoever changes the spec just now sees to it.
        if let Ok(_one) = agent.changing.try_lock() {
            agent.resize(live, agent.spec().compute_units).await;
        }
    }
}

/// Ends when the volume must be written through. A watch of its own: a Postgres that answers nobody, which a lost page
/// may be the reason of, does not delay it.
pub async fn writes(live: &Live) -> End {
    loop {
        tokio::time::sleep(VITALS_EVERY).await;
        if let Some(needed) = live.volume.write_through_needed() {
            return End::WriteThrough(needed);
        }
    }
}

/// Looks at Postgres, sets the throttle, refuses writes when WAL runs away. Ends only when commits no longer wait
/// for the proposer.
pub async fn vitals(agent: &Agent, live: &Arc<Live>) -> End {
    let mut admin: Option<Admin> = None;
    let mut refusal = Refusal::default();
    let mut counted = Counted::default();
    let mut activity = Activity::new(Instant::now());
    let mut unlogged_counted = None;
    let mut load = Sampler::default();
    loop {
        tokio::time::sleep(VITALS_EVERY).await;
        counted.take(agent, live.volume.stats());
        let clean = live.volume.clean().count() * BLCKSZ as u64;
        agent.metrics.clean_bytes.set(clean as i64);
        agent.count_released(1).await;
        if admin.as_ref().is_none_or(Admin::is_closed) {
            admin = match tokio::time::timeout(PROBE_TIMEOUT, live.admin()).await {
                Ok(Ok(connected)) => Some(connected),
                _ => None,
            };
        }
        let Some(session) = &admin else {
            agent.see_idle(&mut activity, None);
            continue;
        };
        let vitals = match tokio::time::timeout(PROBE_TIMEOUT, session.vitals()).await {
            Ok(Ok(vitals)) => vitals,
            _ => {
                admin = None;
                agent.see_idle(&mut activity, None);
                continue;
            }
        };
        // A superuser took the proposer out of it: Postgres has let every waiting commit go, without a warning.
        if vitals.standbys != STANDBY {
            return End::Lost(format!(
                "synchronous_standby_names was changed to {:?}: commits returned without a majority",
                vitals.standbys
            ));
        }
        agent.see_idle(&mut activity, Some(vitals.look));
        agent
            .see_unlogged(live, &activity, &mut unlogged_counted)
            .await;
        // A sample that does not come in time is left out: what follows must go on.
        tokio::time::timeout(PROBE_TIMEOUT, load.sample_if_due(agent, live, session))
            .await
            .ok();
        agent.see_waiting(live, vitals.commits_waiting);
        agent.metrics.connections.set(vitals.client_connections);
        agent.set(|status| {
            status.active_connections = Some(vitals.client_connections);
            status.base_backups = Some(vitals.base_backups);
        });
        let positions = *live.proposer.positions().borrow();
        let commit = positions.commit.max(live.start_lsn);
        let quorum_lag = behind(vitals.insert_lsn, commit);
        let ingest_lag = behind(commit, positions.applied.max(live.ingested()));
        let delay = delay(quorum_lag, QUORUM_LAG).max(delay(ingest_lag, INGEST_LAG));
        live.volume.throttle().set(delay);
        agent.metrics.throttle_seconds.set(delay.as_secs_f64());
        let limit = if refusal.active {
            MAX_QUORUM_LAG / 2
        } else {
            MAX_QUORUM_LAG
        };
        let why = (quorum_lag > limit)
            .then(|| format!("{} MB of WAL wait for the safekeepers", quorum_lag >> 20))
            .or_else(|| without_room(&positions, refusal.active));
        refusal.follow(agent, live, why).await;
    }
}

fn behind(ahead: Lsn, at: Lsn) -> u64 {
    ahead.checked_sub(at).unwrap_or(0)
}

fn delay(lag: u64, (soft, hard): (u64, u64)) -> Duration {
    let share = lag.saturating_sub(soft) as f64 / (hard - soft) as f64;
    MAX_DELAY.mul_f64(share.min(1.0))
}

/// Why the safekeepers take hardly any more WAL, if they do. Once writes are refused (`refused`) there has to be much more
/// room before they are taken again. Commits that wait find the room that is left.
fn without_room(positions: &Positions, refused: bool) -> Option<String> {
    let room = positions.room?;
    let part = if refused { LIFTED_PART } else { REFUSED_PART };
    if room.left(positions.record_end) > room.slow_bytes() / part {
        return None;
    }
    let kept = behind(positions.record_end, positions.remote_consistent) >> 20;
    let why = match room.cause {
        RoomCause::Quota => "a branch may have no more there",
        RoomCause::Disk => "a majority of them is short of disk space",
    };
    Some(format!(
        "the safekeepers keep {kept} MB of WAL that storage has not made durable behind {}, and {why}; writes are taken again when storage has caught up",
        positions.remote_consistent
    ))
}

/// Follows the pageserver's view of the timeline. Ends only when a newer compute has come.
pub async fn timeline(agent: &Agent, live: &Live) -> End {
    let timeline = match agent.timeline_client() {
        Ok(timeline) => timeline,
        Err(end) => return end,
    };
    let mut refusal = Refusal::default();
    loop {
        let pause = if refusal.active {
            REFUSE_EVERY
        } else {
            TIMELINE_EVERY
        };
        tokio::time::sleep(pause).await;
        // A pageserver that is away stops nothing: what is asked of it waits.
        let Ok(status) = timeline.status().await else {
            if let Some(why) = refusal.why.clone() {
                refusal.follow(agent, live, Some(why)).await;
            }
            continue;
        };
        if status.max_term > live.term.0 {
            return End::Fenced(format!(
                "a newer compute has taken over this timeline with term {}; this one has {}",
                status.max_term, live.term
            ));
        }
        live.ingested
            .fetch_max(status.last_record_lsn.0, Ordering::Relaxed);
        if let Some(size) = status.current_logical_size
            && status.last_record_lsn >= live.commit_lsn()
        {
            live.volume.quota().heard(size);
        }
        let why = (status.state != "active").then(|| {
            let reason = status.reason.as_deref().unwrap_or("no reason is given");
            format!(
                "storage is {} at {}: {reason}",
                status.state, status.last_record_lsn
            )
        });
        refusal.follow(agent, live, why).await;
    }
}

/// Whether this watcher refuses writes, and why.
#[derive(Default)]
struct Refusal {
    active: bool,
    why: Option<String>,
}

impl Refusal {
    /// Takes up, keeps up or lifts the refusal.
    async fn follow(&mut self, agent: &Agent, live: &Live, why: Option<String>) {
        let done = match &why {
            Some(reason) => self.refuse(agent, live, reason).await,
            None if self.active => self.lift(agent, live).await,
            None => Ok(()),
        };
        self.why = why;
        if let Err(error) = done {
            tracing::error!("cannot change whether writes are refused: {error}");
        }
    }

    async fn refuse(&mut self, agent: &Agent, live: &Live, reason: &str) -> Result<(), AdminError> {
        let text = format!("writes refused: {reason}");
        agent.set(|status| status.reason = Some(text.clone()));
        agent.metrics.writes_refused.set(1);
        let admin = live.admin().await?;
        if !self.active {
            tracing::error!("{text}");
            admin
                .alter_system("default_transaction_read_only", Some("on"))
                .await?;
            self.active = true;
        }
        // A session may have been in a transaction, or say READ WRITE: it must not pile up commits either.
        admin
            .run(
                "end sessions that write",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE backend_xid IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()
                   AND wait_event IS DISTINCT FROM 'SyncRep'",
            )
            .await
    }

    async fn lift(&mut self, agent: &Agent, live: &Live) -> Result<(), AdminError> {
        let admin = live.admin().await?;
        admin
            .alter_system("default_transaction_read_only", None)
            .await?;
        self.active = false;
        tracing::info!("writes are accepted again");
        agent.metrics.writes_refused.set(0);
        agent.set(|status| status.reason = None);
        Ok(())
    }
}

/// How much of a volume's counters is in the metrics, which outlive the volume.
#[derive(Default)]
struct Counted([u64; 11]);

impl Counted {
    fn take(&mut self, agent: &Agent, stats: &Stats) {
        let metrics = &agent.metrics;
        let pairs = [
            (&stats.pages_fetched, &metrics.pages_fetched),
            (&stats.bytes_fetched, &metrics.bytes_fetched),
            (&stats.pages_read_ahead, &metrics.read_ahead),
            (&stats.read_ahead_used, &metrics.read_ahead_used),
            (&stats.read_ahead_unused, &metrics.read_ahead_unused),
            (&stats.reads_behind, &metrics.reads_behind),
            (&stats.writes, &metrics.writes),
            (&stats.bytes_written, &metrics.bytes_written),
            (&stats.pages_evicted, &metrics.evicted),
            (&stats.pages_not_kept, &metrics.not_kept),
            (&stats.failed_operations, &metrics.failed_operations),
        ];
        for (counted, (now, metric)) in self.0.iter_mut().zip(pairs) {
            let now = now.load(Ordering::Relaxed);
            metric.inc_by(now - *counted);
            *counted = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_late_and_taken_again_early() {
        let at = |left: u64| Positions {
            record_end: Lsn((1 << 30) - left),
            room: Some(proposer::Room {
                limit_lsn: Lsn(1 << 30),
                slow_lsn: Lsn((1 << 30) - (16 << 20)),
                cause: RoomCause::Quota,
            }),
            ..Positions::default()
        };
        assert!(without_room(&Positions::default(), true).is_none());
        assert!(without_room(&at(2 << 20), false).is_none());
        assert!(without_room(&at(2 << 20), true).is_some());
        assert!(without_room(&at(1 << 20), false).is_some());
        assert!(without_room(&at(9 << 20), true).is_none());
    }

    #[test]
    fn delays_grow_with_the_lag_and_are_bounded() {
        assert_eq!(delay(1 << 20, QUORUM_LAG), Duration::ZERO);
        assert!(delay(200 << 20, QUORUM_LAG) < delay(400 << 20, QUORUM_LAG));
        assert_eq!(delay(u64::MAX, QUORUM_LAG), MAX_DELAY);
    }
}
