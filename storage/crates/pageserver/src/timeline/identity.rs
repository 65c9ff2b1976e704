//! The identity of a timeline: ids, manifest, settings and metrics, which every part of the timeline reads and no
//! part changes.
//!
//! The settings are shared with all timelines of the tenant and are changed by the manager alone. Metrics only count.
//! This part calls no other part.

use std::sync::Arc;

use pg_types::{TenantId, TimelineId};

use super::SharedConfig;
use crate::config::TenantConfig;
use crate::error::Error;
use crate::metrics::TimelineMetrics;
use crate::timeline_index::Manifest;

/// What every part of a timeline knows of it.
pub(super) struct Identity {
    pub tenant: TenantId,
    pub id: TimelineId,
    pub manifest: Manifest,
    pub metrics: TimelineMetrics,
    config: SharedConfig,
}

impl Identity {
    pub fn new(
        tenant: TenantId,
        id: TimelineId,
        manifest: Manifest,
        config: SharedConfig,
    ) -> Identity {
        Identity {
            tenant,
            id,
            manifest,
            metrics: TimelineMetrics::new(tenant, id),
            config,
        }
    }

    /// The tenant's settings as of now.
    pub fn config(&self) -> Arc<TenantConfig> {
        self.config.read().clone()
    }

    pub fn not_found(&self, what: String) -> Error {
        Error::NotFound(format!(
            "{what} (tenant {}, timeline {})",
            self.tenant, self.id
        ))
    }

    pub fn shutting_down(&self) -> Error {
        Error::ShuttingDown(format!("timeline {} is being shut down", self.id))
    }
}
