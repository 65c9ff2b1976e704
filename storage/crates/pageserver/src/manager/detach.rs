//! Detaching a branch from its ancestors: the request, and the lock under which the branch changes its index.
//!
//! While that index changes, no lease is given, no branch made, nothing deleted and no history trimmed in the tenant;
//! such requests wait for the lock. Until then the detach can be given up. `timeline/detach.rs` says what a crash
//! leaves.

use std::sync::Arc;

use pg_types::{TenantId, TimelineId};

use super::{Tenant, TenantManager};
use crate::api::DetachInfo;
use crate::error::{Error, Result};
use crate::timeline::Timeline;

impl TenantManager {
    /// Begins to detach a branch in the background, unless the branch is being detached or is detached already. The
    /// caller asks again after a restart or a failure. Returns how far it is. Fails with `NotFound` without such a
    /// timeline, and with `Conflict` for a timeline that never had an ancestor; what goes wrong later is in the
    /// answer to a later request.
    pub fn detach(&self, tenant: TenantId, timeline: TimelineId) -> Result<DetachInfo> {
        let tenant = self.tenant(tenant)?;
        let timeline = tenant.timeline(timeline)?;
        if timeline.begin_detaching()? {
            let detached = timeline.clone();
            timeline.spawn_behind(async move {
                let result = detach(&tenant, &detached).await;
                detached.detaching_ended(result).await;
            });
        }
        Ok(timeline.detach_info())
    }

    /// Has a detach that is under way stop, and returns how far it is: "running" until it has stopped. One that
    /// changes the branch's index already is not stopped, and nothing happens where none is under way. Fails with
    /// `NotFound` without such a timeline.
    pub fn give_up_detaching(&self, tenant: TenantId, timeline: TimelineId) -> Result<DetachInfo> {
        let timeline = self.tenant(tenant)?.timeline(timeline)?;
        timeline.give_up_detaching();
        Ok(timeline.detach_info())
    }
}

async fn detach(tenant: &Tenant, timeline: &Arc<Timeline>) -> Result<()> {
    let copied = tokio::select! {
        copied = timeline.copy_ancestors() => copied?,
        () = timeline.detaching_given_up() => return Err(given_up()),
    };
    // No lease is given, no branch made, nothing deleted and no history trimmed while the branch leaves its
    // ancestors.
    let _nothing_else_changes = tenant.changing.lock().await;
    if !timeline.begin_leaving() {
        return Err(given_up());
    }
    timeline.leave_ancestors(copied).await
}

fn given_up() -> Error {
    Error::Conflict("the detach was given up".to_owned())
}
