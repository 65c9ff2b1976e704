//! How much history a timeline keeps.
//!
//! Invariants:
//! - Below the *horizon* nothing is readable but branch points, leased LSNs and the start of a compute that runs. The horizon never falls. It is stored
//!   before the first version behind it is dropped, so that no restart offers what may be gone.
//! - The horizon moves only while no branch is being made and no lease given (the manager holds the tenant's lock),
//!   together with the list of what must stay readable below it. After a restart nothing is dropped until that list
//!   has been made again.
//!
//! Time is measured by commit records, and by the pageserver's clock only where that is earlier: a database that is
//! idle keeps a whole window before its last commit. No jump ahead of either clock, or of both together, may delete
//! history: the pageserver's clock is the wall clock without its jumps within the window (`clock`), and leases end by
//! even time.

mod start;

pub use start::START_HOLD_SECONDS;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use pg_types::Lsn;

use super::Timeline;
use super::compaction::Compaction;
use super::identity::Identity;
use super::layer_stack::LayerStack;
use super::lock_order::{HISTORY_HELD, Ranked};
use super::position::Position;
use crate::api::LsnKind;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::timeline_index::{Lease, TimelineIndex};
use crate::timestamp::PgTimestamp;

/// Longest lease, seconds.
const LONGEST_LEASE: u64 = 7 * 86_400;

/// How much of its own history a timeline keeps. What its ancestors keep is asked of them, by [`Timeline`].
pub struct Retention {
    identity: Arc<Identity>,
    position: Arc<Position>,
    index: Arc<TimelineIndex>,
    layers: Arc<LayerStack>,
    compaction: Arc<Compaction>,
    clock: Arc<Clock>,
    /// Why history is cut by another time than the wall clock's.
    held: Ranked<HISTORY_HELD, Option<String>>,
    /// Until when the newest compute's start is held, seconds of even time.
    start_held_until: AtomicU64,
}

impl Retention {
    pub(super) fn new(
        identity: Arc<Identity>,
        position: Arc<Position>,
        index: Arc<TimelineIndex>,
        layers: Arc<LayerStack>,
        compaction: Arc<Compaction>,
        clock: Arc<Clock>,
    ) -> Retention {
        Retention {
            identity,
            position,
            index,
            layers,
            compaction,
            clock,
            held: Ranked::default(),
            start_held_until: AtomicU64::new(0),
        }
    }

    /// Below it only branch points and leases are readable; [`Lsn::INVALID`] while nothing has been given up.
    pub fn horizon(&self) -> Lsn {
        self.index.horizon()
    }

    /// Where the history begins that is in the timeline's own layers.
    pub fn begin(&self) -> Lsn {
        match self.index.is_detached() {
            true => self.horizon(),
            false => self.horizon().max(self.identity.manifest.start_lsn),
        }
    }

    /// Why history is not cut by the wall clock at present.
    pub fn held(&self) -> Option<String> {
        self.held.lock().clone()
    }

    /// Whether a lease of this timeline, or its compute, keeps exactly this LSN readable.
    fn is_leased(&self, at: Lsn) -> bool {
        let now = self.clock.seconds();
        let holds = |lease: &Lease| lease.lsn == at && lease.until > now;
        self.index.leases().iter().any(holds) || self.start_held().is_some_and(|it| it.lsn == at)
    }

    /// Keeps a record boundary of this timeline's own history readable for so many seconds of even time.
    async fn lease(&self, lsn: Lsn, seconds: u64) -> Result<Lease> {
        let until = self.clock.seconds() + seconds;
        let lease = Lease { lsn, until };
        self.index.store_lease(lease).await?;
        crash::point!("lease.stored");
        Ok(lease)
    }

    /// The time before which history is older than the window; `None` when the clock can't say.
    fn window_limit(&self, window: Duration) -> Option<PgTimestamp> {
        let time = self.clock.history_time(window);
        *self.held.lock() = time.why;
        let newest = PgTimestamp(self.position.state().last_commit_timestamp);
        let window = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
        let now = time.now?;
        Some(PgTimestamp(newest.min(now).0.saturating_sub(window)))
    }

    /// Lets go of history before `window_begin`, which is `None` while no commit lies before the window, save at
    /// `branch_points` and leased LSNs.
    async fn trim(&self, window_begin: Option<Lsn>, branch_points: Vec<Lsn>) -> Result<()> {
        let last = self.position.last_record_lsn();
        let reached = self.index.consistent_lsn().min(last);
        let before = self.horizon();
        let horizon = window_begin.map_or(before, |lsn| lsn.min(reached).max(before));
        let now = self.clock.seconds();
        // A lease that has run out is forgotten for good, whatever the clock says later.
        let expired = self.index.leases().iter().any(|lease| lease.until <= now);
        // Nor is a start that nobody holds any more offered again once it is given up.
        let lapsed = self.start_lapsed().filter(|start| start.lsn < horizon);
        if horizon > before || expired || lapsed.is_some() {
            crash::point!("history.before-horizon");
            self.index.store_horizon(horizon, now, lapsed).await?;
            crash::point!("history.horizon-stored");
            let (tenant, timeline) = (self.identity.tenant, self.identity.id);
            tracing::debug!(%tenant, %timeline, %horizon, "history starts later now");
        }
        let leases = self.index.leases();
        let points = branch_points
            .into_iter()
            .chain(leases.iter().map(|lease| lease.lsn))
            .chain(self.start_held().map(|start| start.lsn));
        self.compaction
            .keep(layers::Retention::new(horizon, points));
        let last = self.position.last_record_lsn();
        self.identity.metrics.set_horizon(last, self.begin());
        self.layers.want_compaction();
        Ok(())
    }
}

impl Timeline {
    /// What the timeline keeps of its own history.
    pub fn retention(&self) -> &Retention {
        &self.retention
    }

    /// Where the history of this timeline and its ancestors begins.
    pub fn oldest_lsn(&self) -> Lsn {
        let (own, start) = (self.retention.horizon(), self.identity.manifest.start_lsn);
        self.lineage.with_parent(|parent| match parent {
            _ if own > start => own,
            // What the ancestor has before the branch point, unless it has let go of some of that.
            Some((ancestor, branch_lsn)) => ancestor.oldest_lsn().min(*branch_lsn),
            // It has taken its ancestors' history along.
            None if self.index.is_detached() => own,
            None => start,
        })
    }

    /// Refuses, with `NotFound`, LSNs that this timeline cannot be read at any more. To be asked after a read as
    /// well: history may have been trimmed meanwhile.
    pub fn check_readable(&self, at: Lsn) -> Result<()> {
        let oldest = self.oldest_lsn();
        if at >= oldest || self.is_leased(at) {
            return Ok(());
        }
        Err(self.identity.not_found(format!(
            "LSN {at} is before the history, which starts at {oldest}; the tenant's history_window_seconds says how \
             much is kept"
        )))
    }

    /// Whether a lease, or the compute that started there, keeps exactly this LSN readable.
    pub(super) fn is_leased(&self, at: Lsn) -> bool {
        let owner = self.owner_of(at);
        owner.as_deref().unwrap_or(self).retention.is_leased(at)
    }

    /// The ancestor whose own history an LSN lies in; none if it is this timeline's.
    fn owner_of(&self, at: Lsn) -> Option<Arc<Timeline>> {
        let mut owner: Option<Arc<Timeline>> = None;
        loop {
            let current = owner.as_deref().unwrap_or(self);
            match current.ancestor() {
                Some((ancestor, branch_lsn))
                    if at < current.identity.manifest.start_lsn.min(branch_lsn) =>
                {
                    owner = Some(ancestor);
                }
                _ => return owner,
            }
        }
    }

    /// Keeps an LSN readable for some time; the record boundary it is given for, and until when in seconds of even
    /// time. The caller holds the tenant's lock.
    pub(crate) async fn lease(&self, lsn: Lsn, seconds: u64) -> Result<Lease> {
        if seconds == 0 || seconds > LONGEST_LEASE {
            return Err(Error::BadRequest(format!(
                "a lease of {seconds} s: give 1 to {LONGEST_LEASE}"
            )));
        }
        let lsn = self.resolve_position(lsn, Some(lsn)).await?;
        let lsn = self.boundary(lsn).await?;
        let owner = self.owner_of(lsn);
        let owner = owner.as_deref().unwrap_or(self);
        owner.retention.lease(lsn, seconds).await
    }

    /// Lets go of history older than the window, save at `branch_points` and leased LSNs. The caller holds the
    /// tenant's lock, so that none of either is added meanwhile.
    pub(crate) async fn trim_history(
        &self,
        window: Duration,
        branch_points: Vec<Lsn>,
    ) -> Result<()> {
        if !self.lineage.has_all() {
            return Ok(());
        }
        let begin = self.window_begin(window).await?;
        self.retention.trim(begin, branch_points).await
    }

    /// The LSN at which the window begins; `None` while no commit lies before it, or the clock can't say.
    async fn window_begin(&self, window: Duration) -> Result<Option<Lsn>> {
        let Some(limit) = self.retention.window_limit(window) else {
            return Ok(None);
        };
        let found = self.lsn_by_timestamp(limit).await?;
        Ok(match found.kind {
            LsnKind::Past => None,
            LsnKind::Present | LsnKind::Future => Some(found.lsn),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
