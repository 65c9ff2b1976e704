//! How far a timeline has been ingested: the last record, the state as of that record, and the waiters for an LSN.
//!
//! Invariants:
//! - The position moves only forward, in [`Position::move_to`], which the ingest part calls under the append lock
//!   after every version of the record is in the open layer. A reader that sees a position can read everything up to
//!   it.
//! - When ingest stops, all waiters are woken.
//!
//! Nothing here is stored: a crash loses the position, which begins again at the index's LSN. This part calls
//! `identity` only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use pg_types::Lsn;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wal_decode::TimelineState;

use super::identity::Identity;
use super::size::LogicalSize;
use super::waiting::LsnWaiters;
use crate::error::{Error, Result};

/// How far a timeline has been ingested, and whether ingest goes on. A watcher is woken when ingest stops; waiters
/// for an LSN use `waiting`.
#[derive(Clone, Debug)]
pub struct Progress {
    pub last_record_lsn: Lsn,
    pub prev_record_lsn: Lsn,
    /// Why ingest stopped, once it met a record or bytes that it cannot ingest.
    pub stopped: Option<Arc<str>>,
}

/// The last record ingested, the state as of it, and the waiters for an LSN.
pub(super) struct Position {
    identity: Arc<Identity>,
    progress: watch::Sender<Progress>,
    waiters: LsnWaiters,
    /// As of the last record.
    state: RwLock<TimelineState>,
    /// The highest LSN a read has waited for.
    wanted: AtomicU64,
    /// As of the last record.
    pub size: LogicalSize,
}

impl Position {
    pub fn new(identity: Arc<Identity>, state: TimelineState) -> Position {
        let progress = Progress {
            last_record_lsn: state.last_record_lsn,
            prev_record_lsn: state.prev_record_lsn,
            stopped: None,
        };
        let metrics = &identity.metrics;
        metrics.set_last_record_lsn(progress.last_record_lsn);
        metrics.set_consistent_lsns(progress.last_record_lsn, progress.last_record_lsn);
        Position {
            identity,
            progress: watch::Sender::new(progress),
            waiters: LsnWaiters::default(),
            state: RwLock::new(state),
            wanted: AtomicU64::new(0),
            size: LogicalSize::default(),
        }
    }

    pub fn last_record_lsn(&self) -> Lsn {
        self.progress.borrow().last_record_lsn
    }

    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// The state as of the last record.
    pub fn state(&self) -> TimelineState {
        *self.state.read()
    }

    pub fn full_page_writes(&self) -> bool {
        self.state.read().full_page_writes
    }

    /// When images are made, as things are now.
    pub fn image_rule(&self) -> layers::ImageRule {
        self.identity.config().image_rule(self.full_page_writes())
    }

    /// Makes everything up to the state's LSN visible, by which the logical size grows by so many bytes, and wakes
    /// those who wait for it. The caller holds the append lock.
    pub fn move_to(&self, state: TimelineState, growth: i64) {
        let lsn = state.last_record_lsn;
        *self.state.write() = state;
        self.size.grown(growth);
        self.progress.send_if_modified(|progress| {
            progress.last_record_lsn = lsn;
            progress.prev_record_lsn = state.prev_record_lsn;
            // Waiters for an LSN that the move reaches are woken below.
            false
        });
        self.waiters.reached(lsn);
        self.identity.metrics.set_last_record_lsn(lsn);
    }

    /// Ingest cannot go on; reads up to the last record still work.
    pub fn stop(&self, reason: String) {
        tracing::error!(tenant = %self.identity.tenant, timeline = %self.identity.id, "timeline stopped: {reason}");
        self.identity.metrics.stopped.set(1);
        self.progress
            .send_modify(|progress| progress.stopped = Some(reason.into()));
    }

    /// Ingest tries again.
    pub fn resume(&self) {
        tracing::info!(tenant = %self.identity.tenant, timeline = %self.identity.id, "ingest begins again");
        self.identity.metrics.stopped.set(0);
        self.progress
            .send_modify(|progress| progress.stopped = None);
    }

    /// Waits until everything up to `lsn` is ingested.
    ///
    /// # Errors
    /// `Timeout`, `Stopped` when ingest is, `ShuttingDown` when `shut_down` is cancelled.
    pub async fn wait_for(
        &self,
        lsn: Lsn,
        timeout: Duration,
        shut_down: &CancellationToken,
    ) -> Result<()> {
        self.wanted.fetch_max(lsn.0, Ordering::Relaxed);
        let started = Instant::now();
        let mut waiter = self.waiters.enqueue(lsn);
        let mut progress = self.progress.subscribe();
        let reached_or_over =
            progress.wait_for(|now| now.last_record_lsn >= lsn || now.stopped.is_some());
        tokio::select! {
            () = waiter.arrived() => {}
            // As things are now; of what comes later it is told only that ingest has stopped.
            _ = reached_or_over => {}
            () = tokio::time::sleep(timeout) => {}
            () = shut_down.cancelled() => return Err(self.identity.shutting_down()),
        }
        let now = self.progress();
        match now.stopped {
            _ if now.last_record_lsn >= lsn => Ok(()),
            Some(reason) => Err(Error::Stopped(reason.to_string())),
            None => Err(Error::Timeout {
                wanted: lsn,
                reached: now.last_record_lsn,
                waited_ms: started.elapsed().as_millis() as u64,
            }),
        }
    }

    /// Whether a read waits, or waited in vain, for WAL that has not come.
    pub fn is_wanted_beyond(&self, lsn: Lsn) -> bool {
        self.wanted.load(Ordering::Relaxed) > lsn.0
    }
}
