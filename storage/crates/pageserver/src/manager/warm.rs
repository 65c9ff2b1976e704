//! Warm-up: the names of the layers that were read lately are kept in the object store, so that a pageserver that
//! starts without its disk fetches those layers before a read needs them.
//!
//! Invariants:
//! - The document is advice. A layer it names that no index names any more is passed over; a document that is lost,
//!   damaged or old makes first reads slower and never wrong. So it has no generation, and the last writer wins.
//! - Warm-up evicts nothing: it stops fetching when a fetch would need an eviction.
//! - Readers come first: warm-up takes two of the fetches that may go on at the same time (`disk`).
//!
//! A crash leaves the document before a change or the one after it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::Context;
use blob::{seal, unseal};
use futures::StreamExt;
use pg_types::{TenantId, TimelineId};
use serde::{Deserialize, Serialize};

use super::{Tenant, TenantManager};
use crate::eviction::{FIRST_LOOK, NEVER_USED};
use crate::layer_cache::LayerCache;
use crate::layer_file::LayerFile;

const DOCUMENT: &str = "hot.json";
/// A document of another version says nothing.
const VERSION: u32 = 1;
/// How often it is remembered what is hot.
const REMEMBER_EVERY: Duration = Duration::from_secs(300);
/// Longest that a tenant's branches wait for its document to be stored.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Layers fetched at the same time, of `disk`'s sixteen.
const FETCHES_AT_ONCE: usize = 2;
/// After so many failures the object store is taken for broken; readers fetch what they need.
const MAX_FAILURES: u64 = 16;
/// Tenants whose documents are read at the same time.
const PARALLEL: usize = 16;

/// Layers by timeline, as their objects are called, those read last first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hot {
    version: u32,
    timelines: BTreeMap<TimelineId, Vec<String>>,
}

/// Names of what was read at all, what was read last first.
fn hottest(used: impl IntoIterator<Item = (u64, String)>) -> Vec<String> {
    let mut found: Vec<_> = used
        .into_iter()
        .filter(|(look, _)| *look != NEVER_USED)
        .collect();
    found.sort_by(|(one, name), (other, other_name)| other.cmp(one).then(name.cmp(other_name)));
    found.into_iter().map(|(_, name)| name).collect()
}

/// The first of each list, then the second of each, so that no timeline's hottest layer waits for another timeline's
/// coolest.
fn in_turn<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut ranked: Vec<(usize, T)> = lists
        .into_iter()
        .flat_map(|list| list.into_iter().enumerate())
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, it)| it).collect()
}

type Wanted = (Arc<LayerCache>, Arc<LayerFile>);

/// Warms up, then remembers what is hot again and again, for as long as there is a manager.
pub(super) async fn keep(manager: Weak<TenantManager>) {
    // Not before: what has not been fetched yet would be forgotten.
    if let Some(manager) = manager.upgrade() {
        manager.warm_up().await;
    }
    let mut look = tokio::time::interval(REMEMBER_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    look.tick().await;
    loop {
        look.tick().await;
        let Some(manager) = manager.upgrade() else {
            return;
        };
        manager.remember_hot_layers().await;
    }
}

impl TenantManager {
    /// Stores what is hot of the tenants for which that is not what the object store has.
    pub async fn remember_hot_layers(&self) {
        let mut remembered = self.remembered.lock().await;
        remembered.retain(|id, _| self.tenants.read().contains_key(id));
        for tenant in self.tenants() {
            let hot = tenant.hot();
            // With an object store that is a local directory there is nothing to fetch, nor to remember.
            if remembered.get(&tenant.id).unwrap_or(&Hot::default()) == &hot {
                continue;
            }
            match self.store_hot(&tenant, &hot).await {
                Ok(true) => {
                    remembered.insert(tenant.id, hot);
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(tenant = %tenant.id, "what is hot is not remembered: {error:#}")
                }
            }
        }
    }

    /// False when the tenant is being changed or has timelines that could not be opened: the next time, then.
    async fn store_hot(&self, tenant: &Tenant, hot: &Hot) -> anyhow::Result<bool> {
        let Ok(_nobody_deletes_it) = tenant.changing.try_lock() else {
            return Ok(false);
        };
        if !self.tenants.read().contains_key(&tenant.id) || !tenant.broken.read().is_empty() {
            return Ok(false);
        }
        let json = seal(serde_json::to_vec(hot).context("encode")?);
        let objects = &self.options.objects;
        let put = objects.put_document(tenant.id, DOCUMENT, json.into());
        tokio::time::timeout(STORE_TIMEOUT, put)
            .await
            .context("the object store does not answer")??;
        Ok(true)
    }

    /// Forgets what was hot of a tenant that is deleted.
    pub(super) async fn forget_hot(&self, tenant: TenantId) -> anyhow::Result<()> {
        let deleted = self.options.objects.delete_document(tenant, DOCUMENT).await;
        deleted.context("delete what was hot")
    }

    /// What an earlier process remembered of a tenant; nothing when it can't be read.
    async fn load_hot(&self, tenant: &Tenant) -> Hot {
        let load = async {
            let found = self.options.objects.get_document(tenant.id, DOCUMENT).await;
            let Some(bytes) = found? else {
                return Ok(Hot::default());
            };
            let json = unseal(&format!("{}/{DOCUMENT}", tenant.id), &bytes)?;
            let hot: Hot = serde_json::from_slice(json)?;
            Ok::<_, anyhow::Error>(hot)
        };
        match load.await {
            Ok(hot) if hot.version == VERSION => hot,
            Ok(_) => Hot::default(),
            Err(error) => {
                tracing::warn!(tenant = %tenant.id, "it is not known what was hot: {error:#}");
                Hot::default()
            }
        }
    }

    /// Fetches what was hot and is not on local disk, as long as there is room.
    async fn warm_up(&self) {
        let begun = Instant::now();
        let lists: Vec<Vec<Wanted>> = futures::stream::iter(self.tenants())
            .map(|tenant| async move {
                let hot = self.load_hot(&tenant).await;
                let wanted = tenant.recall(&hot);
                self.remembered.lock().await.insert(tenant.id, hot);
                wanted
            })
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        let wanted = in_turn(lists);
        if wanted.is_empty() {
            return;
        }
        let disk = self.disk.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || disk.evict_surplus()).await {
            tracing::error!("the look at the layer cache ended: {error}");
            return;
        }
        let (layers, bytes, failures) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let total = wanted.len();
        futures::stream::iter(wanted)
            .for_each_concurrent(FETCHES_AT_ONCE, async |(cache, file)| {
                let size = file.copy().bytes;
                if failures.load(Ordering::Relaxed) >= MAX_FAILURES || !self.disk.take_room(size) {
                    return;
                }
                match cache.fetch(&file).await {
                    Ok(()) => {
                        layers.fetch_add(1, Ordering::Relaxed);
                        bytes.fetch_add(size, Ordering::Relaxed);
                    }
                    Err(error) => {
                        failures.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!("a layer that was hot is not fetched: {error:#}");
                    }
                }
            })
            .await;
        tracing::info!(
            layers = layers.into_inner(),
            bytes = bytes.into_inner(),
            failures = failures.into_inner(),
            "fetched what was hot of {total} layers that were, in {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
}

impl Tenant {
    /// What is on local disk and was read, by timeline.
    fn hot(&self) -> Hot {
        let mut hot = Hot::default();
        for timeline in self.timelines.read().values() {
            let map = timeline.store().map();
            let used = map
                .iter()
                .filter(|file| file.is_copy() && file.is_resident())
                .map(|file| (file.copy().used, file.object_name()));
            let names = hottest(used);
            if !names.is_empty() {
                hot.version = VERSION;
                hot.timelines.insert(timeline.id(), names);
            }
        }
        hot
    }

    /// Takes what was read before for read just before this process began; what of it is not on local disk, what was
    /// read last first.
    fn recall(&self, hot: &Hot) -> Vec<Wanted> {
        let mut lists = Vec::new();
        for timeline in self.timelines.read().values() {
            let names = hot.timelines.get(&timeline.id()).into_iter().flatten();
            let ranks: HashMap<&String, u64> = names.zip(1..).collect();
            let mut found = Vec::new();
            for file in timeline.store().map().iter() {
                let Some(rank) = ranks.get(&file.object_name()) else {
                    continue;
                };
                // A read since the start says more.
                if file.copy().used == NEVER_USED {
                    file.set_used(FIRST_LOOK.saturating_sub(*rank));
                }
                if file.is_copy() && !file.is_resident() {
                    found.push((*rank, (timeline.store().cache().clone(), file.clone())));
                }
            }
            found.sort_by_key(|(rank, _)| *rank);
            lists.push(found.into_iter().map(|(_, wanted)| wanted).collect());
        }
        in_turn(lists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_last_comes_first_and_what_never_was_not_at_all() {
        let used = [(3, "b"), (NEVER_USED, "n"), (9, "c"), (3, "a")];
        let used = used.map(|(look, name)| (look, name.to_owned()));
        assert_eq!(hottest(used), ["c", "a", "b"]);
    }

    #[test]
    fn each_has_its_turn() {
        assert_eq!(
            in_turn(vec![vec![1, 2, 3], vec![], vec![4, 5]]),
            [1, 4, 2, 5, 3]
        );
    }
}
