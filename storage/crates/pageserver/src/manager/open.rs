//! Opening the tenants and timelines of the object store when the pageserver starts.
//!
//! Tenants, and the timelines of one tenant, are opened side by side, ancestors before their branches. A timeline
//! that cannot be opened is kept as broken, with the reason (`broken`); all timelines but its branches are opened
//! nevertheless.

use std::sync::Arc;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use pg_types::{Lsn, TenantId, TimelineId};
use wal_decode::TimelineState;

use super::broken::Broken;
use super::found::{Descent, Found};
use super::keys::StoredConfig;
use super::{CONFIG_DOCUMENT, Tenant, TenantManager};
use crate::about;
use crate::eviction::NEVER_USED;
use crate::timeline::{Timeline, decode_state};
use crate::timeline_index::TimelineIndex;
use crate::version_store::VersionStore;

/// Tenants, and timelines of a tenant, that are opened at the same time.
const PARALLEL: usize = 16;

type Ancestor = Option<(Arc<Timeline>, Lsn)>;

impl TenantManager {
    /// Opens everything and starts ingesting.
    pub(super) async fn open_tenants(&self) -> anyhow::Result<()> {
        let tenants = self
            .options
            .objects
            .tenants()
            .await
            .context("list tenants")?;
        futures::stream::iter(tenants)
            .map(|id| self.open_tenant(id))
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await
    }

    async fn open_tenant(&self, id: TenantId) -> anyhow::Result<()> {
        let found = self.options.objects.get_document(id, CONFIG_DOCUMENT).await;
        let Some(bytes) =
            found.with_context(|| format!("read the configuration of tenant {id}"))?
        else {
            return Ok(());
        };
        let stored: StoredConfig = serde_json::from_slice(&bytes)
            .with_context(|| format!("the configuration of tenant {id} is damaged"))?;
        let tenant = Tenant::new(id, stored.config, stored.encrypted);
        match about::load(&self.options.objects, id).await {
            Ok(found) => *tenant.about_revision.write() = found.map(|found| found.revision),
            // The control plane finds that it is not described and describes it again.
            Err(error) => {
                tracing::error!(tenant = %id, "the tenant's description is lost: {error:#}")
            }
        }
        self.open_timelines(&tenant).await?;
        self.tenants.write().insert(id, tenant);
        Ok(())
    }

    async fn open_timelines(&self, tenant: &Arc<Tenant>) -> anyhow::Result<()> {
        let ids = self.options.objects.timelines(tenant.id).await;
        let found = self.find_timelines(tenant, ids.context("list timelines")?);
        self.open_found(tenant, found.await).await;
        Ok(())
    }

    /// Takes over those of the timelines whose index can be read; none while the tenant's data key is not at hand.
    pub(super) async fn find_timelines(
        &self,
        tenant: &Arc<Tenant>,
        ids: Vec<TimelineId>,
    ) -> Vec<Found> {
        if let Err(error) = self.have_key(tenant).await {
            for id in ids {
                Broken::new(&error, None).mark(tenant, id, Descent::Unknown);
            }
            return Vec::new();
        }
        let found: Vec<Option<Found>> = futures::stream::iter(ids)
            .map(|id| self.find_timeline(tenant, id))
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        found.into_iter().flatten().collect()
    }

    /// Opens timelines, ancestors before their branches.
    pub(super) async fn open_found(&self, tenant: &Arc<Tenant>, mut waiting: Vec<Found>) {
        while !waiting.is_empty() {
            let (mut ready, mut later) = (Vec::new(), Vec::new());
            for found in waiting {
                match found.part.ancestor {
                    None => ready.push((found, None)),
                    Some(point) => match tenant.working(point.timeline) {
                        Some(ancestor) => ready.push((found, Some((ancestor, point.lsn)))),
                        None => later.push(found),
                    },
                }
            }
            if ready.is_empty() {
                for found in later {
                    let (id, descent) = (found.id, found.descent());
                    Broken::without_ancestor(found).mark(tenant, id, descent);
                }
                return;
            }
            futures::stream::iter(ready)
                .for_each_concurrent(PARALLEL, async |(found, ancestor)| {
                    self.open_timeline(tenant, found, ancestor).await;
                })
                .await;
            waiting = later;
        }
    }

    /// Takes over a timeline's index, if it has one that can be read.
    async fn find_timeline(&self, tenant: &Tenant, id: TimelineId) -> Option<Found> {
        match TimelineIndex::take_over(self.options.objects.clone(), tenant.id, id).await {
            Ok(Some((index, part))) => Some(Found { id, index, part }),
            Ok(None) => {
                tenant.broken.write().remove(&id);
                None
            }
            Err(error) => {
                Broken::new(&error, None).mark(tenant, id, Descent::Unknown);
                None
            }
        }
    }

    async fn open_timeline(&self, tenant: &Arc<Tenant>, found: Found, ancestor: Ancestor) {
        let id = found.id;
        match self.open_layers(tenant, &found, ancestor.as_ref()).await {
            Ok((store, state)) => {
                self.start(tenant, id, found.index, store, ancestor, state);
                if tenant.broken.write().remove(&id).is_some() {
                    tracing::info!(tenant = %tenant.id, timeline = %id, "opened the timeline after all");
                }
            }
            Err(error) => {
                let descent = found.descent();
                Broken::new(&error, Some(found)).mark(tenant, id, descent);
            }
        }
    }

    async fn open_layers(
        &self,
        tenant: &Tenant,
        found: &Found,
        ancestor: Option<&(Arc<Timeline>, Lsn)>,
    ) -> anyhow::Result<(Arc<VersionStore>, TimelineState)> {
        let part = &found.part;
        let below = ancestor.map(|(timeline, lsn)| (timeline.store().clone(), *lsn));
        let cache = self.layer_cache(tenant.id, found.id);
        cache.keep_only(&part.layers)?;
        let store = Arc::new(VersionStore::new(
            cache,
            part.layers.clone(),
            below,
            self.memory.account(),
            self.pages.clone(),
        ));
        let at = part.disk_consistent_lsn;
        let chains = store
            .chains(&[(pg_types::Key::timeline_state(), Lsn::INVALID)], at)
            .await?;
        let value = chains[0]
            .meta()
            .with_context(|| format!("no state is stored at or before {at}"))?;
        let state = decode_state(value)?;
        anyhow::ensure!(
            state.last_record_lsn == at,
            "the index reaches {at}, the newest stored state only {}",
            state.last_record_lsn
        );
        // Opening the timeline read these layers, which says nothing about what later reads need.
        for file in store.map().iter() {
            file.set_used(NEVER_USED);
        }
        Ok((store, state))
    }
}
