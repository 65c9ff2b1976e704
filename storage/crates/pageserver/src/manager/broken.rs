//! Timelines that could not be opened: the reason, and further attempts while an attempt can help.
//!
//! A full disk or a silent object store is a passing trouble, and the timeline is then opened without a restart. A
//! damaged timeline stays as it is until an operator repairs it and restarts the pageserver, or deletes it. Nothing
//! here is stored; a restart after a crash is one more attempt.

use std::sync::{Arc, Weak};
use std::time::Duration;

use blob::BlobError;
use layers::LayerError;
use pg_types::TimelineId;

use super::found::{Descent, Found};
use super::{Tenant, TenantManager};
use crate::error::{Error, Result};

/// Between two attempts: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A timeline that could not be opened. Its data is still there, and may be fine.
pub(super) struct Broken {
    reason: String,
    descent: Descent,
    /// Whether another attempt may succeed without an operator's help.
    may_pass: bool,
    /// What an attempt begins with, if its index could be taken over.
    found: Option<Found>,
}

impl Broken {
    pub fn new(error: &anyhow::Error, found: Option<Found>) -> Broken {
        Broken {
            reason: format!("{error:#}"),
            descent: Descent::Unknown,
            may_pass: may_pass(error),
            found,
        }
    }

    /// A branch of a broken timeline: it is opened after its ancestor, if the ancestor ever is.
    pub fn without_ancestor(found: Found) -> Broken {
        Broken {
            reason: "its ancestor is missing or broken".to_owned(),
            descent: Descent::Unknown,
            may_pass: true,
            found: Some(found),
        }
    }

    /// Puts it in place of what was known of the timeline. The log has each reason once.
    pub fn mark(mut self, tenant: &Tenant, id: TimelineId, descent: Descent) {
        self.descent = descent;
        let mut broken = tenant.broken.write();
        let before = broken.get(&id);
        if before.is_none_or(|before| before.reason != self.reason) {
            let (reason, again) = (&self.reason, self.may_pass);
            tracing::error!(tenant = %tenant.id, timeline = %id, again, "cannot open the timeline: {reason}");
        }
        broken.insert(id, self);
    }

    /// What a request for the timeline is told.
    pub fn error(&self, id: TimelineId) -> Error {
        let reason = &self.reason;
        Error::Internal(match self.may_pass {
            true => anyhow::anyhow!(
                "timeline {id} can't be opened yet, it is tried again by itself: {reason}"
            ),
            false => anyhow::anyhow!("timeline {id} is broken: {reason}"),
        })
    }
}

/// Whether the error is one of a disk or a store that may work again later.
fn may_pass(error: &anyhow::Error) -> bool {
    // An error of ours does not show what it is made of.
    let error = match error.downcast_ref::<Error>() {
        Some(Error::Internal(inner)) => inner,
        _ => error,
    };
    error.chain().any(|cause| {
        cause.is::<std::io::Error>()
            || matches!(
                cause.downcast_ref::<LayerError>(),
                Some(LayerError::Io { .. })
            )
            || cause
                .downcast_ref::<BlobError>()
                .is_some_and(BlobError::is_transient)
    })
}

/// Tries again and again what may pass, for as long as there is a manager.
pub(super) async fn keep_trying(manager: Weak<TenantManager>) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(manager) = manager.upgrade() else {
            return;
        };
        let mut tried = false;
        for tenant in manager.tenants() {
            tried |= manager.try_again(&tenant).await;
        }
        pause = match tried {
            true => (pause * 2).min(LONGEST_PAUSE),
            false => FIRST_PAUSE,
        };
    }
}

impl TenantManager {
    /// Whether there was anything to try.
    async fn try_again(&self, tenant: &Arc<Tenant>) -> bool {
        let may_pass = |tenant: &Tenant| tenant.broken.read().values().any(|it| it.may_pass);
        if !may_pass(tenant) {
            return false;
        }
        let Ok(_nobody_deletes_it) = tenant.changing.try_lock() else {
            return true;
        };
        // Timelines stay among the broken ones while they are being opened, so that no request takes them for
        // deleted.
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for (id, broken) in tenant.broken.write().iter_mut() {
            if broken.may_pass {
                match broken.found.take() {
                    Some(it) => found.push(it),
                    None => unknown.push(*id),
                }
            }
        }
        found.extend(self.find_timelines(tenant, unknown).await);
        self.open_found(tenant, found).await;
        true
    }
}

/// Refuses to delete what a timeline that could not be opened may still need: it may be whole once its
/// trouble is mended, and would then lack everything before its branch point.
pub(super) fn check_broken_branches(tenant: &Tenant, id: TimelineId) -> Result<()> {
    let broken = tenant.broken.read();
    let is_unreadable =
        |broken: Option<&Broken>| broken.is_some_and(|it| matches!(it.descent, Descent::Unknown));
    for (other, entry) in broken.iter().filter(|(other, _)| **other != id) {
        let why = match entry.descent {
            Descent::Known(Some(ancestor)) if ancestor == id => "is a branch of it",
            // Of two unreadable ones the first to go must be possible to delete.
            Descent::Unknown if !is_unreadable(broken.get(&id)) => "may be a branch of it",
            _ => continue,
        };
        return Err(Error::PreconditionFailed(format!(
            "timeline {other} {why} and could not be opened ({}); mend it and restart the pageserver, or delete \
             it first",
            entry.reason
        )));
    }
    Ok(())
}
