//! All timelines of this safekeeper.

mod directories;
mod founding;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use consensus::Configuration;
use parking_lot::Mutex;
use pg_types::{TenantId, TimelineId};
use wire::wal::{Failure, FailureKind};

use self::directories::{BEING_CREATED, BEING_DELETED};
use self::founding::configuration;
use crate::care::Care;
use crate::control::{Identity, sync_dir};
use crate::disk::{Disk, DiskError};
use crate::metrics;
use crate::offload::Offload;
use crate::open_error::OpenError;
use crate::room::{self, Space};
use crate::timeline::Timeline;

/// A timeline that stopped because of its disk is opened again on demand, but not more often than this.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const MAINTENANCE_PERIOD: Duration = Duration::from_secs(1);

pub use founding::{Founder, Founding};

/// Names a timeline.
pub type Id = (TenantId, TimelineId);

#[derive(Clone)]
enum Entry {
    Open(Arc<Timeline>),
    /// A timeline whose files could not be opened.
    Broken {
        reason: String,
        since: Instant,
    },
}

/// All timelines of one data directory, which is locked for as long as this lives.
pub struct Registry {
    dir: PathBuf,
    disk: Disk,
    entries: Mutex<HashMap<Id, Entry>>,
    offload: Option<Arc<Offload>>,
    care: Option<Arc<Care>>,
    space: Arc<Space>,
    /// Held while a timeline is created, deleted or opened again.
    changes: tokio::sync::Mutex<()>,
    /// Locked as long as the process lives, so that no second one works on the same files.
    _lock: fs::File,
}

/// What `create` found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Created {
    /// Nothing; the timeline is there now.
    New,
    /// The timeline exists already, with the same values: a repetition. Its directory is left as it is.
    Same,
    /// The timeline exists already, with other values.
    Different,
}

/// One line of the list of timelines.
pub enum Listed {
    /// A timeline whose files could be opened. It may have stopped since ([`Timeline::stop_state`]).
    Open(Arc<Timeline>),
    /// A timeline that could not be opened, and why.
    Broken(Id, String),
}

/// Why the data directory cannot be used, or a timeline not be created or deleted.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file system failed; a repetition can help once it works again.
    #[error("cannot use data directory {dir}: {source}")]
    Dir {
        /// The data directory, or that of the timeline.
        dir: String,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The directory, which the field names, is locked. Its other process has to end first.
    #[error("data directory {0} is in use by another safekeeper process")]
    InUse(String),
    /// The directory belongs to another safekeeper, or who it is cannot be read or stored.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The request to found a timeline names nobody, too many, or one safekeeper twice. Nothing was created.
    #[error("the founders of a timeline make no sense: {0}")]
    Founders(#[from] consensus::ChangeError),
    /// The timeline's files cannot be made, or opened once they were.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Registry {
    /// Opens every timeline below `dir`. One that can't be opened is kept as broken and harms no other. Blocks.
    /// `node` is the number of this safekeeper, to which the directory must belong.
    pub fn open(dir: &Path, node: u64) -> Result<Registry, RegistryError> {
        let bad = |source| RegistryError::Dir {
            dir: dir.display().to_string(),
            source,
        };
        fs::create_dir_all(dir).map_err(bad)?;
        let lock = fs::File::create(dir.join("lock")).map_err(bad)?;
        lock.try_lock()
            .map_err(|_| RegistryError::InUse(dir.display().to_string()))?;
        let registry = Registry {
            dir: dir.to_owned(),
            disk: Disk::open(dir, node)?,
            entries: Mutex::default(),
            offload: None,
            care: None,
            space: Arc::default(),
            changes: tokio::sync::Mutex::default(),
            _lock: lock,
        };
        for id in directories::timelines(&registry.dir).map_err(bad)? {
            let entry = registry.load(id);
            registry.entries.lock().insert(id, entry);
        }
        registry.count();
        Ok(registry)
    }

    /// The same, and finished WAL goes to an object store.
    pub fn offloading_to(self, offload: Offload) -> Registry {
        Registry {
            offload: Some(Arc::new(offload)),
            ..self
        }
    }

    /// The same, and each timeline keeps so much WAL at most, with so much of the disk left free; bytes, 0 for no limit.
    pub fn limited_to(self, quota: u64, reserve: u64) -> Registry {
        self.space.limit(quota, reserve);
        self
    }

    /// The same, and damaged WAL is looked for and repaired.
    pub fn cared_for_by(self, care: Care) -> Registry {
        Registry {
            care: Some(Arc::new(care)),
            ..self
        }
    }

    /// What looks for damaged WAL and repairs it; `None` unless [`Registry::cared_for_by`] was called.
    pub fn care(&self) -> Option<&Arc<Care>> {
        self.care.as_ref()
    }

    /// What brings finished WAL to an object store; `None` unless [`Registry::offloading_to`] was called.
    pub fn offload(&self) -> Option<&Arc<Offload>> {
        self.offload.as_ref()
    }

    /// Identity of the data directory, and the logs that it was given.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    fn path(&self, (tenant, timeline): Id) -> PathBuf {
        self.dir.join(tenant.to_string()).join(timeline.to_string())
    }

    fn load(&self, id: Id) -> Entry {
        match Timeline::open(&self.path(id), &self.disk) {
            Ok(timeline) => Entry::Open(Arc::new(timeline.within(self.space.clone()))),
            Err(error) => {
                let reason = error.to_string();
                tracing::error!(tenant = %id.0, timeline = %id.1, reason, "timeline cannot be opened");
                Entry::Broken {
                    reason,
                    since: Instant::now(),
                }
            }
        }
    }

    /// Begins the background work of every timeline that is open. Called once, within a tokio runtime.
    pub fn start(self: &Arc<Registry>) {
        let open: Vec<Arc<Timeline>> = self
            .entries
            .lock()
            .values()
            .filter_map(|entry| {
                if let Entry::Open(timeline) = entry {
                    Some(timeline.clone())
                } else {
                    None
                }
            })
            .collect();
        self.space.measure(&self.dir);
        stalls::spawn("room", room::watch(self.space.clone(), self.dir.clone()));
        open.into_iter()
            .for_each(|timeline| self.start_timeline(timeline));
    }

    fn start_timeline(&self, timeline: Arc<Timeline>) {
        if let Some(offload) = &self.offload {
            stalls::spawn("offload", offload.clone().watch(timeline.clone()));
        }
        if let Some(care) = &self.care {
            stalls::spawn("care", care.clone().watch(timeline.clone()));
        }
        stalls::spawn("maintenance", maintain(timeline));
    }

    fn count(&self) {
        let entries = self.entries.lock();
        let active = entries
            .values()
            .filter(
                |entry| matches!(entry, Entry::Open(timeline) if timeline.stop_state().is_none()),
            )
            .count();
        metrics::TIMELINES
            .with_label_values(&["active"])
            .set(active as i64);
        metrics::TIMELINES
            .with_label_values(&["stopped"])
            .set((entries.len() - active) as i64);
    }

    /// Founds a log, once: on a disk that is one of the founders and has never had this log, it begins as a voter. Anywhere
    /// else it begins empty and waits to be made a learner.
    pub async fn create(
        self: &Arc<Registry>,
        identity: Identity,
        founding: Founding,
    ) -> Result<Created, RegistryError> {
        let id = (identity.tenant, identity.timeline);
        let _change = self.changes.lock().await;
        match self.entries.lock().get(&id) {
            Some(Entry::Open(existing)) if existing.identity == identity => {
                return Ok(Created::Same);
            }
            Some(_) => return Ok(Created::Different),
            None => {}
        }
        let registry = self.clone();
        let timeline =
            tokio::task::spawn_blocking(move || registry.create_blocking(identity, &founding))
                .await
                .expect("creation does not panic")?;
        self.start_timeline(timeline.clone());
        self.entries.lock().insert(id, Entry::Open(timeline));
        self.count();
        tracing::info!(tenant = %id.0, timeline = %id.1, start_lsn = %identity.start_lsn, "timeline created");
        Ok(Created::New)
    }

    /// The directory appears with its control file in it, or not at all.
    fn create_blocking(
        &self,
        identity: Identity,
        founding: &Founding,
    ) -> Result<Arc<Timeline>, RegistryError> {
        let path = self.path((identity.tenant, identity.timeline));
        let parent = self.dir.join(identity.tenant.to_string());
        let temporary = path.with_extension(BEING_CREATED);
        let bad = |source| RegistryError::Dir {
            dir: path.display().to_string(),
            source,
        };
        let founders = match founding {
            Founding::On(founders) => Some(configuration(founders)?),
            Founding::Unlisted | Founding::Learner => None,
        };
        let member = self
            .disk
            .next_member((identity.tenant, identity.timeline))?;
        let configuration = match founders {
            Some(founders) if founders.role_of(member).is_some() => founders,
            None if *founding == Founding::Unlisted && member.incarnation == 1 => {
                Configuration::default()
            }
            _ => Configuration::waiting(member),
        };
        tracing::info!(tenant = %identity.tenant, timeline = %identity.timeline, %member, generation = %configuration.generation, "log begins");
        fs::create_dir_all(&temporary).map_err(bad)?;
        Timeline::create(&temporary, identity, member, configuration)?;
        fs::rename(&temporary, &path).map_err(bad)?;
        sync_dir(&parent)
            .and_then(|()| sync_dir(&self.dir))
            .map_err(bad)?;
        let timeline = Timeline::open(&path, &self.disk)?;
        Ok(Arc::new(timeline.within(self.space.clone())))
    }

    /// Ends a timeline's work and removes its directory with all WAL in it. Idempotent: nothing happens to a timeline that
    /// is not here. After an error it can be repeated, and after a crash the next start removes what is left.
    pub async fn delete(self: &Arc<Registry>, id: Id) -> Result<(), RegistryError> {
        let _change = self.changes.lock().await;
        let Some(entry) = self.entries.lock().get(&id).cloned() else {
            return Ok(());
        };
        let (path, parent) = (self.path(id), self.dir.join(id.0.to_string()));
        let doomed = path.with_extension(BEING_DELETED);
        let bad = {
            let dir = path.display().to_string();
            |source| RegistryError::Dir { dir, source }
        };
        let registry = self.clone();
        let remove = move || {
            if let Entry::Open(timeline) = entry {
                timeline.close("the timeline was deleted");
                timeline.quiesce();
            }
            // What an earlier removal left half done.
            if doomed.exists() {
                fs::remove_dir_all(&doomed)?;
            }
            fs::rename(&path, &doomed)?;
            sync_dir(&parent)?;
            registry.entries.lock().remove(&id);
            fs::remove_dir_all(&doomed)?;
            // Stays while the tenant has other timelines.
            let _ = fs::remove_dir(&parent);
            Ok(())
        };
        tokio::task::spawn_blocking(remove)
            .await
            .expect("removal does not panic")
            .map_err(bad)?;
        self.count();
        tracing::info!(tenant = %id.0, timeline = %id.1, "timeline deleted");
        Ok(())
    }

    /// All timelines, by their ids.
    pub fn list(&self) -> Vec<Listed> {
        let entries = self.entries.lock();
        let mut ids: Vec<&Id> = entries.keys().collect();
        ids.sort();
        ids.into_iter()
            .map(|id| match &entries[id] {
                Entry::Open(timeline) => Listed::Open(timeline.clone()),
                Entry::Broken { reason, .. } => Listed::Broken(*id, reason.clone()),
            })
            .collect()
    }

    /// The timeline, if it exists here.
    pub fn get(&self, id: Id) -> Option<Listed> {
        Some(match self.entries.lock().get(&id)? {
            Entry::Open(timeline) => Listed::Open(timeline.clone()),
            Entry::Broken { reason, .. } => Listed::Broken(id, reason.clone()),
        })
    }

    /// The timeline for a WAL connection; tries once more to open one whose disk failed more than five seconds ago. Fails
    /// with `NotFound`, or with `Stopped` and the reason.
    pub async fn connect(self: &Arc<Registry>, id: Id) -> Result<Arc<Timeline>, Failure> {
        if let Some(timeline) = self.usable(id)? {
            return Ok(timeline);
        }
        let _change = self.changes.lock().await;
        if let Some(timeline) = self.usable(id)? {
            return Ok(timeline);
        }
        let registry = self.clone();
        let before = self.entries.lock().get(&id).cloned();
        let entry = tokio::task::spawn_blocking(move || {
            if let Some(Entry::Open(stopped)) = before {
                stopped.quiesce();
            }
            registry.load(id)
        })
        .await
        .expect("opening does not panic");
        self.entries.lock().insert(id, entry.clone());
        self.count();
        match entry {
            Entry::Open(timeline) => {
                tracing::info!(tenant = %id.0, timeline = %id.1, "timeline works again");
                self.start_timeline(timeline.clone());
                Ok(timeline)
            }
            Entry::Broken { reason, .. } => Err(Failure {
                kind: FailureKind::Stopped,
                message: reason,
            }),
        }
    }

    /// `None` when it is time to try to open it again.
    fn usable(&self, id: Id) -> Result<Option<Arc<Timeline>>, Failure> {
        let entries = self.entries.lock();
        let (reason, retry) = match entries.get(&id) {
            None => {
                let message = format!(
                    "timeline {} of tenant {} does not exist on this safekeeper",
                    id.1, id.0
                );
                return Err(Failure {
                    kind: FailureKind::NotFound,
                    message,
                });
            }
            Some(Entry::Broken { reason, since }) => {
                (reason.clone(), since.elapsed() > RETRY_AFTER)
            }
            Some(Entry::Open(timeline)) => match timeline.stop_state() {
                None => return Ok(Some(timeline.clone())),
                Some(stop) => (
                    stop.reason,
                    stop.retryable && stop.since.elapsed() > RETRY_AFTER,
                ),
            },
        };
        if retry {
            Ok(None)
        } else {
            Err(Failure {
                kind: FailureKind::Stopped,
                message: reason,
            })
        }
    }
}

async fn maintain(timeline: Arc<Timeline>) {
    let mut clock = tokio::time::interval(MAINTENANCE_PERIOD);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = timeline.closed().cancelled() => return,
            _ = clock.tick() => {}
        }
        let timeline = timeline.clone();
        // An error has stopped the timeline and is reported by whoever asks next.
        let _ = tokio::task::spawn_blocking(move || timeline.maintain()).await;
    }
}
