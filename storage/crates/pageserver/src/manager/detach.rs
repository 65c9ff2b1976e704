//! Detaching a branch from its ancestors: the request, and the lock under which the branch changes its index.
//!
//! While that index changes, no lease is given, no branch made, nothing deleted and no history trimmed in the tenant;
//! such requests wait for the lock. `timeline/detach.rs` says what a crash leaves.

use std::sync::Arc;

use pg_types::{TenantId, TimelineId};

use super::{Tenant, TenantManager};
use crate::api::DetachInfo;
use crate::error::Result;
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
                detached.detaching_ended(result);
            });
        }
        Ok(timeline.detach_info())
    }
}

async fn detach(tenant: &Tenant, timeline: &Arc<Timeline>) -> Result<()> {
    let copied = timeline.copy_ancestors().await?;
    // No lease is given, no branch made, nothing deleted and no history trimmed while the branch leaves its
    // ancestors.
    let _nothing_else_changes = tenant.changing.lock().await;
    timeline.leave_ancestors(copied).await
}
