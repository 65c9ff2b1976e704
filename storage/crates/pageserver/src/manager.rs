//! All tenants and timelines of this pageserver: opening, creating, branching, deleting.
//!
//! The object store says which exist: a tenant by its `config.json`, a timeline by its index. A timeline exists once
//! its first index is durable, and no longer exists once its deletion has begun, so a crash leaves it either absent
//! or whole. Leftovers of an unfinished creation or deletion are removed at the next start.

mod broken;
mod create;
mod deleted;
mod detach;
mod found;
mod history;
mod keys;
mod open;
mod safekeepers;
mod warm;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use layers::BlockCache;
use parking_lot::RwLock;
use pg_types::{Lsn, TenantId, TimelineId};
use tokio::sync::OnceCell;

use crate::about::{self, About};
use crate::api::TenantInfo;
use crate::background::Background;
use crate::clock::{Clock, TimeSource};
use crate::config::{TenantConfig, TenantConfigPatch};
use crate::disk::DiskCache;
use crate::error::{Error, Result};
use crate::import::{Import, PostgresInstall};
use crate::layer_cache::LayerCache;
use crate::memory::MemoryBudget;
use crate::page_cache::PageCache;
use crate::recent::RecentLayers;
use crate::schedule::Schedule;
use crate::timeline::{OpenTimeline, SharedConfig, Timeline};
use crate::timeline_index::TimelineIndex;
use crate::version_store::VersionStore;

use broken::{Broken, check_broken_branches};
pub use safekeepers::{Safekeepers, WalSources};

pub(crate) const CONFIG_DOCUMENT: &str = "config.json";

/// What the manager needs to know about its surroundings.
pub struct ManagerOptions {
    /// Directory of local state: templates, and copies of layers. All of it can be made again.
    pub data_dir: PathBuf,
    /// The object store, which has all that is durable.
    pub objects: blob::Store,
    /// The `initdb` that makes the template of new timelines.
    pub postgres: PostgresInstall,
    /// Bytes of decompressed layer blocks kept in memory.
    pub block_cache_bytes: usize,
    /// Bytes of pages kept as they were made for a read.
    pub page_cache_bytes: usize,
    /// Bytes of versions, over all timelines, that are not in layer files yet.
    pub memory_bytes: u64,
    /// Bytes of new layers kept in memory for reads, when the object store is a local directory.
    pub recent_layers_bytes: u64,
    /// Bytes of layers copied to local disk, when the object store is not on it.
    pub layer_cache_bytes: u64,
    /// How long the object store remembers that a timeline was deleted: longer than a safekeeper may keep a log that the
    /// control plane wants deleted.
    pub tombstones: Duration,
    /// Where timelines get their WAL from.
    pub wal: Arc<dyn WalSources>,
    /// The clocks by which history is cut and leases end.
    pub time: Arc<dyn TimeSource>,
}

/// One project's storage.
pub struct Tenant {
    /// Id of the tenant, chosen by the control plane.
    pub id: TenantId,
    config: SharedConfig,
    /// Whether the tenant has a data key, which its configuration keeps in mind.
    encrypted: AtomicBool,
    /// Of the description in the object store.
    about_revision: RwLock<Option<String>>,
    timelines: RwLock<BTreeMap<TimelineId, Arc<Timeline>>>,
    /// Timelines that could not be opened.
    broken: RwLock<BTreeMap<TimelineId, Broken>>,
    /// One creation, branch or deletion at a time.
    changing: tokio::sync::Mutex<()>,
}

impl Tenant {
    fn new(id: TenantId, config: TenantConfig, encrypted: bool) -> Arc<Tenant> {
        Arc::new(Tenant {
            id,
            config: Arc::new(RwLock::new(Arc::new(config))),
            encrypted: AtomicBool::new(encrypted),
            about_revision: RwLock::default(),
            timelines: RwLock::default(),
            broken: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// Ids of the timelines, settings in force and revision of the description, as of now.
    pub fn info(&self) -> TenantInfo {
        let timelines = self
            .timelines
            .read()
            .keys()
            .chain(self.broken.read().keys())
            .copied()
            .collect();
        TenantInfo {
            id: self.id,
            timelines,
            config: (**self.config.read()).clone(),
            about_revision: self.about_revision.read().clone(),
        }
    }

    /// The timelines that are open, by id; without those that could not be opened.
    pub fn working_timelines(&self) -> Vec<Arc<Timeline>> {
        self.timelines.read().values().cloned().collect()
    }

    fn working(&self, id: TimelineId) -> Option<Arc<Timeline>> {
        self.timelines.read().get(&id).cloned()
    }

    /// An open timeline. Fails with `NotFound` when the tenant has no such timeline, and with `Internal`, with the
    /// reason, when the timeline exists and could not be opened.
    pub fn timeline(&self, id: TimelineId) -> Result<Arc<Timeline>> {
        if let Some(timeline) = self.working(id) {
            return Ok(timeline);
        }
        match self.broken.read().get(&id) {
            Some(broken) => Err(broken.error(id)),
            None => Err(Error::NotFound(format!(
                "tenant {} has no timeline {id}",
                self.id
            ))),
        }
    }
}

/// All tenants and timelines of this pageserver, and what they share: caches, memory, background threads.
pub struct TenantManager {
    options: ManagerOptions,
    blocks: Arc<BlockCache>,
    pages: Arc<PageCache>,
    disk: Arc<DiskCache>,
    recent: Arc<RecentLayers>,
    memory: Arc<MemoryBudget>,
    clock: Arc<Clock>,
    background: Background,
    schedule: Arc<Schedule>,
    tenants: RwLock<BTreeMap<TenantId, Arc<Tenant>>>,
    /// The scanned template cluster, read when the first project is created.
    template: OnceCell<Arc<Import>>,
    creating: tokio::sync::Mutex<()>,
    /// What the object store has of what is hot, as far as it was read or written here.
    remembered: tokio::sync::Mutex<BTreeMap<TenantId, warm::Hot>>,
}

impl TenantManager {
    /// Opens everything the object store holds and starts ingesting. Fails when the object store can't be read, when
    /// a tenant's configuration is damaged, and when background threads can't be started. A timeline that can't be
    /// opened is no failure: requests for it say why.
    pub async fn open(options: ManagerOptions) -> anyhow::Result<Arc<TenantManager>> {
        let blocks = Arc::new(BlockCache::new(options.block_cache_bytes));
        let clock = Clock::open(options.time.clone(), options.objects.clone()).await?;
        let manager = Arc::new(TenantManager {
            memory: MemoryBudget::new(options.memory_bytes),
            pages: Arc::new(PageCache::new(options.page_cache_bytes)),
            disk: DiskCache::new(&options.data_dir, options.layer_cache_bytes),
            recent: Arc::new(RecentLayers::new(options.recent_layers_bytes)),
            options,
            blocks,
            clock,
            background: Background::start().context("start background threads")?,
            schedule: Arc::default(),
            tenants: RwLock::default(),
            template: OnceCell::new(),
            creating: tokio::sync::Mutex::default(),
            remembered: tokio::sync::Mutex::default(),
        });
        // Before anything is opened: timelines ingest from the moment they are.
        stalls::spawn("memory", MemoryBudget::share(&manager.memory));
        let scheduled = Schedule::run(&manager.schedule);
        manager.background.handle().spawn(scheduled);
        stalls::spawn("disk", DiskCache::keep(&manager.disk));
        manager.open_tenants().await?;
        stalls::spawn(
            "broken timelines",
            broken::keep_trying(Arc::downgrade(&manager)),
        );
        stalls::spawn("history", history::trim(Arc::downgrade(&manager)));
        stalls::spawn("warm layers", warm::keep(Arc::downgrade(&manager)));
        stalls::spawn("tombstones", deleted::sweep(Arc::downgrade(&manager)));
        Ok(manager)
    }

    fn layer_cache(&self, tenant: TenantId, timeline: TimelineId) -> Arc<LayerCache> {
        let directory = self
            .options
            .data_dir
            .join("tenants")
            .join(tenant.to_string())
            .join(timeline.to_string());
        let remote = self.options.objects.timeline(tenant, timeline);
        let (blocks, disk, recent) = (self.blocks.clone(), self.disk.clone(), self.recent.clone());
        Arc::new(LayerCache::new(directory, blocks, disk, recent, remote))
    }

    /// Registers a timeline and starts its work.
    fn start(
        &self,
        tenant: &Arc<Tenant>,
        id: TimelineId,
        index: TimelineIndex,
        store: Arc<VersionStore>,
        ancestor: Option<(Arc<Timeline>, Lsn)>,
        state: wal_decode::TimelineState,
    ) -> Arc<Timeline> {
        let config = tenant.config.clone();
        let timeline = Timeline::open(OpenTimeline {
            tenant: tenant.id,
            id,
            config,
            ancestor,
            store,
            index,
            state,
            memory: self.memory.clone(),
            clock: self.clock.clone(),
            background: self.background.handle().clone(),
        });
        let source = self
            .options
            .wal
            .source(tenant.id, id, timeline.safekeepers().list());
        timeline.start(source, &self.schedule);
        tenant.timelines.write().insert(id, timeline.clone());
        timeline
    }

    /// All tenants, by id.
    pub fn tenants(&self) -> Vec<Arc<Tenant>> {
        self.tenants.read().values().cloned().collect()
    }

    /// The tenant of an id; fails with `NotFound` when there is none.
    pub fn tenant(&self, id: TenantId) -> Result<Arc<Tenant>> {
        let found = self.tenants.read().get(&id).cloned();
        found.ok_or_else(|| {
            Error::NotFound(format!(
                "there is no tenant {id}; create it with PUT /v1/tenant/{id}"
            ))
        })
    }

    /// An open timeline of a tenant; fails as [`TenantManager::tenant`] and [`Tenant::timeline`] do.
    pub fn timeline(&self, tenant: TenantId, timeline: TimelineId) -> Result<Arc<Timeline>> {
        self.tenant(tenant)?.timeline(timeline)
    }

    /// Creates a tenant with default settings, durable on return, or returns the one that is there. Fails when the
    /// object store does not take the settings; the request can be repeated.
    pub async fn create_tenant(&self, id: TenantId) -> Result<Arc<Tenant>> {
        let _one_at_a_time = self.creating.lock().await;
        if let Ok(tenant) = self.tenant(id) {
            return Ok(tenant);
        }
        let config = TenantConfig::default();
        let encrypted = self.first_key(id).await?;
        self.store_config(id, &config, encrypted).await?;
        let tenant = Tenant::new(id, config, encrypted);
        self.tenants.write().insert(id, tenant.clone());
        tracing::info!(tenant = %id, "created the tenant");
        Ok(tenant)
    }

    /// Changes a tenant's settings, for all its timelines at once; stored before it takes effect. Fails with
    /// `BadRequest` for a value out of range, and when the object store does not take the settings: those in force
    /// stay then, and either may count after a restart.
    pub async fn configure(&self, tenant: &Tenant, patch: &TenantConfigPatch) -> Result<()> {
        let _one_at_a_time = tenant.changing.lock().await;
        let current = tenant.config.read().clone();
        let changed = current
            .patched(patch)
            .map_err(|error| Error::BadRequest(error.to_string()))?;
        self.store_config(tenant.id, &changed, tenant.is_encrypted())
            .await?;
        tracing::info!(tenant = %tenant.id, config = ?changed, "changed the configuration");
        *tenant.config.write() = Arc::new(changed);
        Ok(())
    }

    /// Puts what the control plane has to say of a tenant in place of what it said before; durable on return. Fails
    /// as [`about::store`] does.
    pub async fn put_about(&self, tenant: &Tenant, about: &About) -> Result<()> {
        let _one_at_a_time = tenant.changing.lock().await;
        about::store(&self.options.objects, tenant.id, about).await?;
        *tenant.about_revision.write() = Some(about.revision.clone());
        Ok(())
    }

    /// What the control plane has said of a tenant. Fails with `NotFound` when it has said nothing, and as
    /// [`about::load`] does.
    pub async fn about(&self, tenant: &Tenant) -> Result<About> {
        let found = about::load(&self.options.objects, tenant.id).await?;
        found.ok_or_else(|| Error::NotFound(format!("tenant {} is not described", tenant.id)))
    }

    /// Deletes a tenant with all its timelines; fine if there is none. Fails when something can't be deleted; the
    /// request can be repeated and goes on from there.
    pub async fn delete_tenant(&self, id: TenantId) -> Result<()> {
        let Ok(tenant) = self.tenant(id) else {
            return Ok(());
        };
        let _one_at_a_time = tenant.changing.lock().await;
        let mut timelines: Vec<Arc<Timeline>> = tenant.timelines.read().values().cloned().collect();
        // Branches before what they branched from, so that a crash leaves no branch without its ancestor.
        timelines.sort_by_key(|timeline| std::cmp::Reverse(depth(timeline)));
        for timeline in timelines {
            self.remove_timeline(&tenant, &timeline).await?;
        }
        let broken: Vec<TimelineId> = tenant.broken.read().keys().copied().collect();
        for timeline in broken {
            self.remove_broken(&tenant, timeline).await?;
        }
        about::delete(&self.options.objects, id).await?;
        self.forget_hot(id).await?;
        let objects = &self.options.objects;
        let key = "delete the data key";
        objects.delete_tenant_key(id).await.context(key)?;
        objects
            .delete_document(id, CONFIG_DOCUMENT)
            .await
            .context("delete the configuration")?;
        // A rotation may have put it there again meanwhile; it puts none of a tenant without a configuration.
        objects.delete_tenant_key(id).await.context(key)?;
        self.tenants.write().remove(&id);
        tracing::info!(tenant = %id, "deleted the tenant");
        Ok(())
    }

    /// Deletes a timeline; fine if it does not exist. Branches of it, and theirs, are deleted before it if asked for.
    /// A crash in between leaves those not yet deleted whole, and a repetition goes on with them.
    ///
    /// Fails with `PreconditionFailed` when there are branches that are not to be deleted, or a timeline that could
    /// not be opened and is, or may be, a branch: nothing is deleted then. Fails when something can't be deleted: the
    /// request can be repeated.
    pub async fn delete_timeline(
        &self,
        tenant: TenantId,
        id: TimelineId,
        with_branches: bool,
    ) -> Result<()> {
        let Ok(tenant) = self.tenant(tenant) else {
            return Ok(());
        };
        let _one_at_a_time = tenant.changing.lock().await;
        let timelines = tenant.timelines.read().clone();
        let mut branches: Vec<&Arc<Timeline>> = timelines
            .values()
            .filter(|other| descends_from(other, id))
            .collect();
        if let Some(branch) = branches.first().filter(|_| !with_branches) {
            return Err(Error::PreconditionFailed(format!(
                "timeline {id} has branches ({} is one); delete them first, or all with ?branches=delete",
                branch.id()
            )));
        }
        // All of it before anything is deleted: what is refused leaves everything as it is.
        check_broken_branches(&tenant, id)?;
        for branch in &branches {
            check_broken_branches(&tenant, branch.id())?;
        }
        branches.sort_by_key(|branch| std::cmp::Reverse(depth(branch)));
        for branch in branches {
            self.remove_timeline(&tenant, branch).await?;
        }
        match timelines.get(&id) {
            Some(timeline) => self.remove_timeline(&tenant, timeline).await,
            None if tenant.broken.read().contains_key(&id) => self.remove_broken(&tenant, id).await,
            None => Ok(()),
        }
    }

    async fn remove_timeline(&self, tenant: &Tenant, timeline: &Arc<Timeline>) -> Result<()> {
        timeline.shutdown().await;
        timeline.delete_objects().await?;
        tenant.timelines.write().remove(&timeline.id());
        timeline.store().cache().remove_all().await?;
        tracing::info!(tenant = %tenant.id, timeline = %timeline.id(), "deleted the timeline");
        Ok(())
    }

    async fn remove_broken(&self, tenant: &Tenant, id: TimelineId) -> Result<()> {
        let remote = self.options.objects.timeline(tenant.id, id);
        remote
            .delete_all()
            .await
            .context("delete the timeline's objects")?;
        tenant.broken.write().remove(&id);
        self.layer_cache(tenant.id, id).remove_all().await?;
        Ok(())
    }

    /// Ends all background work. Nothing is flushed: a stop is no different from a crash, and as safe.
    pub async fn shutdown(&self) {
        for tenant in self.tenants() {
            let timelines: Vec<_> = tenant.timelines.read().values().cloned().collect();
            for timeline in timelines {
                timeline.shutdown().await;
            }
        }
    }
}

fn descends_from(timeline: &Timeline, id: TimelineId) -> bool {
    timeline
        .ancestor()
        .is_some_and(|(ancestor, _)| ancestor.id() == id || descends_from(&ancestor, id))
}

fn depth(timeline: &Timeline) -> usize {
    timeline
        .ancestor()
        .map_or(0, |(ancestor, _)| 1 + depth(&ancestor))
}
