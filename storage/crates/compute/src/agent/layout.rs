//! The local side of a start: empty directories, the volume with its small files, the mount, Postgres's data
//! directory. What a crash leaves of it, the next start replaces.

use std::fs::File;
use std::sync::Arc;

use anyhow::Context as _;
use nix::mount::{MntFlags, umount2};

use super::{Options, Paths};
use crate::bundle::Bundle;
use crate::pages::StorageSource;
use crate::postgres::{self, DataDirectory, Files, OsUser, SERVED};
use crate::prewarm::{self, List};
use crate::spec::Spec;
use crate::start::{self, StartPoint};
use crate::volume::mount::Mounted;
use crate::volume::{Volume, WriteMode};

/// What a start has made locally.
pub(super) struct LaidOut {
    pub volume: Arc<Volume>,
    pub mounted: Mounted,
    pub data: DataDirectory,
    /// Where Postgres waits for the pages to load ahead of need, and what it is to read there.
    pub prewarm: Option<(File, Vec<u8>)>,
}

/// Everything the local side of a start needs; applied on a thread that may block.
pub(super) struct Layout {
    /// Where everything local goes.
    pub paths: Paths,
    pub user: OsUser,
    /// What the compute is to be, with the settings that this start uses.
    pub spec: Spec,
    /// Where and as what Postgres starts.
    pub point: StartPoint,
    /// The small files of that LSN.
    pub bundle: Bundle,
    /// Pages for Postgres to load ahead of need, as it reads them.
    pub prewarm: Option<Vec<u8>>,
    /// Pages that the start will read.
    pub first_reads: List,
    /// Bytes of the branch, if storage has said it.
    pub size: Option<u64>,
    /// How this process runs computes.
    pub options: Options,
    /// Where the volume gets pages and names from.
    pub source: StorageSource,
}

impl Layout {
    /// Makes the files and mounts the volume, once [`clear`] has made room. Fails with the step that did not succeed; the
    /// next start clears up.
    pub fn apply(mut self) -> anyhow::Result<LaidOut> {
        let files = start::lay_out(&self.point, &self.bundle.pg_control)?;
        let volume = Volume::new(
            Arc::new(self.source),
            self.paths.cache.clone(),
            max_open_files(),
        )?;
        volume.set_read_ahead(self.options.read_ahead);
        volume.clean().set_budget(self.options.cache);
        volume.quota().set(self.spec.storage_quota_bytes);
        if let Some(size) = self.size {
            volume.quota().heard(size);
        }
        volume.writes().choose(match volume.quota().near() {
            Some(near) => {
                tracing::info!("writes go through: {near}");
                WriteMode::Through
            }
            None => self.options.writes,
        });
        let data = DataDirectory::create(&self.paths.data, &self.paths.volume, &self.user)
            .with_context(|| format!("create {}", self.paths.data.display()))?;
        volume.put_file("global/pg_control", &files.pg_control)?;
        for (path, content) in self.bundle.files.iter().chain(&self.bundle.auxiliary) {
            let (top, _) = path.split_once('/').unwrap_or((path, ""));
            anyhow::ensure!(
                top != "pg_tblspc",
                "the timeline has a tablespace besides pg_default and pg_global ({path}), which is not supported"
            );
            if SERVED.contains(&top) {
                volume
                    .put_file(path, content)
                    .with_context(|| format!("put {path}"))?;
            } else if ["pg_twophase", "pg_stat"].contains(&top) {
                data.put(path, content)
                    .with_context(|| format!("put {path}"))?;
            }
        }
        volume.bring(self.first_reads.each_page());
        data.put_wal(&files.wal).context("write the first WAL")?;
        let prewarm = self.prewarm.take().and_then(|pages| {
            let pipe = data
                .pipe(prewarm::FILE)
                .inspect_err(|error| tracing::warn!(%error, "no pages are loaded ahead of need"));
            volume.behind().expect(pipe.is_ok());
            Some((pipe.ok()?, pages))
        });
        let mut os_users = vec![OsUser::current()?.name];
        if !os_users.contains(&"root".to_owned()) && self.user.name != os_users[0] {
            os_users.push(self.user.name.clone());
        }
        let conf = Files::new(
            &self.spec,
            &self.paths.socket,
            self.point.state.full_page_writes,
            &os_users,
        );
        for (name, content) in conf.0 {
            data.put(name, content.as_bytes())
                .with_context(|| format!("write {name}"))?;
        }
        let volume = Arc::new(volume);
        let mounted = Mounted::new(
            volume.clone(),
            &self.paths.volume,
            self.user.uid,
            self.user.gid,
        )?;
        Ok(LaidOut {
            volume,
            mounted,
            data,
            prewarm,
        })
    }
}

/// Takes away what an earlier start left, and makes an empty mount point, cache and socket directory. Blocks for as long
/// as it takes to remove the cache of the last run.
pub(super) fn clear(paths: &Paths, user: &OsUser) -> std::io::Result<()> {
    // Only a process without a mount namespace of its own can have left one.
    umount2(&paths.volume, MntFlags::MNT_DETACH).ok();
    for path in [&paths.cache, &paths.socket, &paths.data] {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // The agent alone opens files in these two: were they Postgres's, links could be put there.
    let own = OsUser::current().map_err(std::io::Error::other)?;
    postgres::make_directory(&paths.volume, &own)?;
    postgres::make_directory(&paths.cache, &own)?;
    postgres::make_directory(&paths.socket, user)
}

/// Cache files that may be open: what the process may have, less what the rest of it needs.
fn max_open_files() -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(soft)
        .unwrap_or(1 << 20)
        .saturating_sub(256)
        .clamp(64, 1 << 19)
}
