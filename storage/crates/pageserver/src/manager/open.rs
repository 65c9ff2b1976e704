//! Opening what the object store holds when the pageserver starts.
//!
//! Tenants, and the timelines of one, are opened side by side, ancestors before their branches. A timeline
//! that can't be opened stays behind as broken, with the reason; it keeps nobody else from being opened.

use std::sync::Arc;

use anyhow::Context;
use blob::IndexPart;
use futures::{StreamExt, TryStreamExt};
use pg_types::{Lsn, TenantId, TimelineId};

use super::{Broken, CONFIG_DOCUMENT, Descent, Tenant, TenantManager};
use crate::about;
use crate::index::TimelineIndex;
use crate::store::Store;
use crate::timeline::{Timeline, decode_state};

/// Tenants, and timelines of a tenant, that are opened at the same time.
const PARALLEL: usize = 16;

type Found = (TimelineId, TimelineIndex, IndexPart);

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
        let config = serde_json::from_slice(&bytes)
            .with_context(|| format!("the configuration of tenant {id} is damaged"))?;
        let tenant = Tenant::new(id, config);
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

    /// Opens a tenant's timelines, ancestors before their branches.
    async fn open_timelines(&self, tenant: &Arc<Tenant>) -> anyhow::Result<()> {
        let ids = self.options.objects.timelines(tenant.id).await;
        let mut waiting: Vec<Found> = futures::stream::iter(ids.context("list timelines")?)
            .map(|id| self.find_timeline(tenant, id))
            .buffer_unordered(PARALLEL)
            .filter_map(async |found| found)
            .collect()
            .await;
        while !waiting.is_empty() {
            let (mut ready, mut later) = (Vec::new(), Vec::new());
            for (id, index, part) in waiting {
                match part.ancestor {
                    None => ready.push((id, index, part, None)),
                    Some(point) => match tenant.timeline(point.timeline) {
                        Ok(ancestor) => ready.push((id, index, part, Some((ancestor, point.lsn)))),
                        Err(_) => later.push((id, index, part)),
                    },
                }
            }
            if ready.is_empty() {
                for (id, _, part) in later {
                    let error = anyhow::anyhow!("its ancestor is missing or broken");
                    mark_broken(tenant, id, descent(&part), &error);
                }
                return Ok(());
            }
            futures::stream::iter(ready)
                .for_each_concurrent(PARALLEL, async |(id, index, part, ancestor)| {
                    let descent = descent(&part);
                    if let Err(error) = self.open_timeline(tenant, id, index, part, ancestor).await
                    {
                        mark_broken(tenant, id, descent, &error);
                    }
                })
                .await;
            waiting = later;
        }
        Ok(())
    }

    /// Takes over a timeline's index, if it has one that can be read.
    async fn find_timeline(&self, tenant: &Tenant, id: TimelineId) -> Option<Found> {
        match TimelineIndex::take_over(self.options.objects.clone(), tenant.id, id).await {
            Ok(found) => found.map(|(index, part)| (id, index, part)),
            Err(error) => {
                mark_broken(tenant, id, Descent::Unknown, &error);
                None
            }
        }
    }

    async fn open_timeline(
        &self,
        tenant: &Arc<Tenant>,
        id: TimelineId,
        index: TimelineIndex,
        part: IndexPart,
        ancestor: Option<(Arc<Timeline>, Lsn)>,
    ) -> anyhow::Result<()> {
        let below = ancestor
            .as_ref()
            .map(|(timeline, lsn)| (timeline.store().clone(), *lsn));
        let cache = self.layer_cache(tenant.id, id);
        cache.keep_only(&part.layers)?;
        let store = Arc::new(Store::new(
            cache,
            part.layers,
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
        self.start(tenant, id, index, store, ancestor, state);
        Ok(())
    }
}

fn descent(part: &IndexPart) -> Descent {
    Descent::Known(part.ancestor.map(|point| point.timeline))
}

fn mark_broken(tenant: &Tenant, id: TimelineId, descent: Descent, error: &anyhow::Error) {
    tracing::error!(tenant = %tenant.id, timeline = %id, "cannot open the timeline: {error:#}");
    let reason = format!("{error:#}");
    tenant.broken.write().insert(id, Broken { reason, descent });
}
