//! Lists what an object store holds without changing anything: `weir-pageserver inventory`.
//!
//! The command claims no generation and takes over no timeline, so it may run beside the pageserver that uses the
//! store, or after the last pageserver is gone. An object that cannot be read is listed with the reason, beside all
//! objects that can.

use anyhow::{Context, Result};
use blob::{IndexPart, Loaded, Store};
use futures::{StreamExt, TryStreamExt};
use pg_types::{TenantId, TimelineId};
use serde_json::{Value, json};

use crate::about;

/// Tenants, and timelines of one, that are read at the same time.
const PARALLEL: usize = 8;

/// `{"tenants": [{"tenant_id", "about", "about_error", "timelines": [{"timeline_id", "state", "reason", "pg_version",
/// "ancestor_timeline_id", "ancestor_lsn", "disk_consistent_lsn"}]}]}`; `state` is `whole`, `deleting` or `damaged`.
pub async fn inventory(store: &Store) -> Result<Value> {
    let mut ids = store.tenants().await.context("list tenants")?;
    ids.sort_unstable();
    let tenants: Vec<Value> = futures::stream::iter(ids)
        .map(|id| tenant(store, id))
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    Ok(json!({ "tenants": tenants }))
}

async fn tenant(store: &Store, id: TenantId) -> Result<Value> {
    let (about, error) = match about::load(store, id).await {
        Ok(found) => (found.map(|found| found.about), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    let ids = store.timelines(id).await;
    let mut ids = ids.with_context(|| format!("list timelines of tenant {id}"))?;
    ids.sort_unstable();
    let timelines: Vec<Option<Value>> = futures::stream::iter(ids)
        .map(|timeline| describe(store, id, timeline))
        .buffered(PARALLEL)
        .collect()
        .await;
    let timelines: Vec<Value> = timelines.into_iter().flatten().collect();
    Ok(json!({"tenant_id": id, "about": about, "about_error": error, "timelines": timelines}))
}

/// `None` for what is left of a timeline that is not there: a claim, say.
async fn describe(store: &Store, tenant: TenantId, id: TimelineId) -> Option<Value> {
    match store.timeline(tenant, id).load().await {
        Ok(Loaded::Index(index)) => Some(whole(id, &index)),
        Ok(Loaded::Deleting) => Some(json!({"timeline_id": id, "state": "deleting"})),
        Ok(Loaded::Absent) => None,
        Err(error) => {
            Some(json!({"timeline_id": id, "state": "damaged", "reason": error.to_string()}))
        }
    }
}

fn whole(id: TimelineId, index: &IndexPart) -> Value {
    json!({
        "timeline_id": id,
        "state": "whole",
        "pg_version": index.metadata.pointer("/manifest/pg_version"),
        "ancestor_timeline_id": index.ancestor.map(|ancestor| ancestor.timeline),
        "ancestor_lsn": index.ancestor.map(|ancestor| ancestor.lsn),
        "disk_consistent_lsn": index.disk_consistent_lsn,
    })
}
