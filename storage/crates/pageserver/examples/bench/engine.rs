//! A pageserver on a directory of objects, with its page service on a port.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use pageserver::clock::MachineTime;
use pageserver::import::PostgresInstall;
use pageserver::manager::{ManagerOptions, TenantManager};
use pageserver::page_service;
use pageserver::timeline::Timeline;
use pg_types::{TenantId, TimelineId};
use tokio_util::sync::CancellationToken;

use crate::common::server::{FileWal, Wals, bin_dir, pg_user};

pub struct Engine {
    pub manager: Arc<TenantManager>,
    pub timeline: Arc<Timeline>,
    pub objects: PathBuf,
    pub address: String,
    stop: CancellationToken,
    _scratch: tempfile::TempDir,
}

/// What is taken in.
#[derive(clap::Args)]
pub struct Input {
    /// The project as it was before the WAL.
    #[arg(long)]
    pub objects: PathBuf,
    /// The directory of the WAL's segments.
    #[arg(long)]
    pub wal: PathBuf,
    /// Encrypts what is written, by the keys of this file.
    #[arg(long)]
    pub key_file: Option<PathBuf>,
}

impl Input {
    /// A pageserver that follows the WAL as far as it is told.
    pub async fn open(&self, memory: Memory) -> Result<(Engine, FileWal)> {
        let wal = FileWal::new(&self.wal);
        let keys = self.key_file.as_deref();
        let store = blob::Store::local(&self.objects)?.with_key_file(keys, keys.is_some())?;
        let engine = Engine::open_store(&self.objects, store, memory, Some(&wal)).await?;
        Ok((engine, wal))
    }
}

/// How much memory it gets; the defaults are the program's.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub block_cache_bytes: usize,
    pub page_cache_bytes: usize,
    pub layers_bytes: u64,
    pub recent_layers_bytes: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            block_cache_bytes: 256 << 20,
            page_cache_bytes: 128 << 20,
            layers_bytes: 2 << 30,
            recent_layers_bytes: 256 << 20,
        }
    }
}

/// The one project that `objects` holds.
pub async fn project(objects: &Path) -> Result<(TenantId, TimelineId)> {
    let store = blob::Store::local(objects)?;
    let tenants = store.tenants().await?;
    let tenant = *tenants.first().context("the store holds no tenant")?;
    let timelines = store.timelines(tenant).await?;
    let timeline = timelines.first().context("the store holds no timeline")?;
    Ok((tenant, *timeline))
}

impl Engine {
    /// Opens what `objects` holds; with WAL to follow, if there is any.
    pub async fn open(objects: &Path, memory: Memory, wal: Option<&FileWal>) -> Result<Engine> {
        Engine::open_store(objects, blob::Store::local(objects)?, memory, wal).await
    }

    /// The same, of a store that is opened already.
    async fn open_store(
        objects: &Path,
        store: blob::Store,
        memory: Memory,
        wal: Option<&FileWal>,
    ) -> Result<Engine> {
        let scratch = tempfile::tempdir()?;
        let (tenant, timeline) = project(objects).await?;
        let wals = Wals::default();
        if let Some(wal) = wal {
            wals.0.lock().expect("wals").insert(timeline, wal.clone());
        }
        let manager = TenantManager::open(ManagerOptions {
            data_dir: scratch.path().to_owned(),
            objects: store,
            postgres: PostgresInstall {
                bin_dir: bin_dir(),
                user: pg_user(),
            },
            block_cache_bytes: memory.block_cache_bytes,
            page_cache_bytes: memory.page_cache_bytes,
            memory_bytes: memory.layers_bytes,
            recent_layers_bytes: memory.recent_layers_bytes,
            layer_cache_bytes: 16 << 30,
            tombstones: std::time::Duration::from_secs(3600),
            wal: Arc::new(wals),
            time: Arc::new(MachineTime::new()?),
        })
        .await?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let stop = CancellationToken::new();
        tokio::spawn(page_service::serve(listener, manager.clone(), stop.clone()));
        Ok(Engine {
            timeline: manager.timeline(tenant, timeline)?,
            manager,
            objects: objects.to_owned(),
            address,
            stop,
            _scratch: scratch,
        })
    }

    /// Has the kernel forget the objects' content, so that the next read comes from the disk.
    pub fn chill(&self) -> Result<()> {
        for path in files_below(&self.objects)? {
            let file = std::fs::File::open(path)?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        Ok(())
    }

    pub async fn close(self) {
        self.stop.cancel();
        self.manager.shutdown().await;
    }
}

/// Puts the threads that do background work on these processors, wherever the rest of the process is kept. Of no
/// effect on those that are started later.
pub fn move_background(processors: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for processor in processors {
        set.set(*processor)?;
    }
    for thread in std::fs::read_dir("/proc/self/task")? {
        let thread = thread?;
        // One that has ended meanwhile has no name.
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if name.trim_end() == "background" {
            let id = thread.file_name().to_string_lossy().parse()?;
            sched_setaffinity(Pid::from_raw(id), &set).context("move a background thread")?;
        }
    }
    Ok(())
}

pub fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files_below(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

/// CPU time of this process so far, all threads, in seconds.
#[derive(Clone, Copy)]
pub struct CpuTime {
    /// Of the program and of the kernel.
    pub all: f64,
    /// Of the kernel alone.
    pub kernel: f64,
}

impl CpuTime {
    pub fn now() -> CpuTime {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the kernel counts CPU time");
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let kernel = seconds(usage.system_time());
        CpuTime {
            all: seconds(usage.user_time()) + kernel,
            kernel,
        }
    }
}

/// Sum over all series of a counter or gauge that have this label value, if one is asked for.
pub fn metric(name: &str, label: Option<(&str, &str)>) -> f64 {
    let families = prometheus::gather();
    let series = families
        .iter()
        .filter(|family| family.name() == name)
        .flat_map(|family| family.get_metric());
    let wanted = series.filter(|series| {
        label.is_none_or(|(name, value)| {
            let same =
                |pair: &prometheus::proto::LabelPair| pair.name() == name && pair.value() == value;
            series.get_label().iter().any(same)
        })
    });
    wanted
        .map(|series| series.get_counter().get_value() + series.get_gauge().get_value())
        .sum()
}
