//! Trimming history: when it happens, and which LSNs of a timeline its branches still need.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pg_types::{Lsn, TenantId, TimelineId};

use super::{Tenant, TenantManager};
use crate::error::Result;
use crate::timeline_index::{Lease, StartPoint};
use crate::timestamp::PgTimestamp;

/// How often it is looked which tenants are due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// History is trimmed this many times within one window, and at least every ten minutes.
const TRIMS_PER_WINDOW: u32 = 10;
const LONGEST_PERIOD: Duration = Duration::from_secs(600);

/// Trims every tenant's history again and again, for as long as there is a manager.
pub(super) async fn trim(manager: Weak<TenantManager>) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut trimmed: HashMap<TenantId, Instant> = HashMap::new();
    loop {
        look.tick().await;
        let Some(manager) = manager.upgrade() else {
            return;
        };
        manager.clock.keep().await;
        let tenants = manager.tenants();
        trimmed.retain(|id, _| tenants.iter().any(|tenant| tenant.id == *id));
        for tenant in tenants {
            for timeline in tenant.timelines.read().values() {
                timeline.report_uploads();
            }
            let window = tenant.config.read().history_window();
            let period = (window / TRIMS_PER_WINDOW).min(LONGEST_PERIOD);
            let last = trimmed.get(&tenant.id);
            if last.is_none_or(|last| last.elapsed() >= period)
                && trim_tenant(&tenant, window).await
            {
                trimmed.insert(tenant.id, Instant::now());
            }
        }
    }
}

/// False when it has to be tried again soon: a branch is being made, say.
async fn trim_tenant(tenant: &Tenant, window: Duration) -> bool {
    let Ok(_nobody_branches) = tenant.changing.try_lock() else {
        return false;
    };
    if !tenant.broken.read().is_empty() {
        // It may be a branch, whose point would be lost.
        tracing::debug!(tenant = %tenant.id, "history is not trimmed while a timeline is broken");
        return true;
    }
    let points = branch_points(tenant);
    let timelines: Vec<_> = tenant.timelines.read().values().cloned().collect();
    for timeline in timelines {
        let points = points.get(&timeline.id()).cloned().unwrap_or_default();
        if let Err(error) = timeline.trim_history(window, points).await {
            tracing::warn!(tenant = %tenant.id, timeline = %timeline.id(), "cannot trim history: {error}");
        }
    }
    true
}

/// The LSNs at which each timeline is read by its branches, and by theirs.
fn branch_points(tenant: &Tenant) -> HashMap<TimelineId, Vec<Lsn>> {
    let mut points: HashMap<TimelineId, Vec<Lsn>> = HashMap::new();
    for timeline in tenant.timelines.read().values() {
        let mut upto = Lsn::MAX;
        let mut next = timeline.ancestor();
        while let Some((ancestor, branch_lsn)) = next {
            upto = upto.min(branch_lsn);
            points.entry(ancestor.id()).or_default().push(upto);
            next = ancestor.ancestor();
        }
    }
    points
}

impl TenantManager {
    /// Keeps an LSN of a timeline readable for some seconds, whatever the history window. Returns the lease and the
    /// time that the wall clock shows when it ends, if the clock is not set meanwhile. Fails with `BadRequest` for a
    /// time that is 0 or longer than a week, with `NotFound` without such a timeline and for an LSN before the
    /// history, with `Timeout` or `Stopped` when the LSN is not ingested in time, and when another process has taken
    /// the timeline over.
    pub async fn lease(
        &self,
        tenant: TenantId,
        timeline: TimelineId,
        lsn: Lsn,
        seconds: u64,
    ) -> Result<(Lease, PgTimestamp)> {
        let tenant: Arc<Tenant> = self.tenant(tenant)?;
        let timeline = tenant.timeline(timeline)?;
        let _nothing_is_trimmed = tenant.changing.lock().await;
        let lease = timeline.lease(lsn, seconds).await?;
        Ok((lease, self.clock.shown_at(lease.until)))
    }

    /// Keeps the LSN that a compute started from readable for
    /// [`START_HOLD_SECONDS`](crate::timeline::START_HOLD_SECONDS) from now on. Fails with `Fenced` for a compute
    /// that was replaced, with `Conflict` for another LSN than the term's, with `BadRequest` for a term or an LSN
    /// that no compute has started with, and with `PreconditionFailed` when the hold had lapsed and the LSN is before
    /// the history.
    pub async fn hold_start(
        &self,
        tenant: TenantId,
        timeline: TimelineId,
        start: StartPoint,
    ) -> Result<()> {
        let tenant: Arc<Tenant> = self.tenant(tenant)?;
        let timeline = tenant.timeline(timeline)?;
        if timeline.renew_start(start)? {
            return Ok(());
        }
        let _nothing_is_trimmed = tenant.changing.lock().await;
        timeline.take_start(start).await
    }
}
