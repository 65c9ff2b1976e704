//! What stands between the kernel and the volume: pools of threads, open directories, attributes.
//!
//! [`super::filesystem`] answers the kernel's requests with it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};
use parking_lot::Mutex;
use pg_types::BLCKSZ;

use super::pool::Pool;
use super::tree::Node;
use super::{Volume, VolumeError};

/// Threads that wait for storage.
const FETCH_THREADS: usize = 32;
/// Threads that hold writes back.
const THROTTLE_THREADS: usize = 8;
/// Threads for reads that stand behind those of sessions: one process reads, and the kernel for it ahead.
const BEHIND_THREADS: usize = 2;

type Entries = Arc<Vec<(u64, String, bool)>>;

/// The state that a mounted volume needs to answer the kernel.
pub struct Front {
    /// The volume that is served.
    pub(super) volume: Arc<Volume>,
    /// The user that everything belongs to.
    pub(super) uid: u32,
    /// The group that everything belongs to.
    pub(super) gid: u32,
    /// Threads for operations that may wait for storage.
    pub(super) fetches: Pool,
    /// Threads for writes that are held back.
    pub(super) throttled: Pool,
    /// Threads for reads that stand behind those of sessions.
    behind: Pool,
    /// Directories being read, as they were when opened: deleting while reading must skip nothing.
    pub(super) open_directories: Arc<Mutex<HashMap<u64, Entries>>>,
    /// The number of the directory that is opened next.
    pub(super) next_handle: AtomicU64,
}

impl Front {
    /// Serves `volume` with everything owned by `uid` and `gid`.
    pub fn new(volume: Arc<Volume>, uid: u32, gid: u32) -> std::io::Result<Front> {
        Ok(Front {
            volume,
            uid,
            gid,
            fetches: Pool::new("volume-fetch", FETCH_THREADS)?,
            throttled: Pool::new("volume-slow", THROTTLE_THREADS)?,
            behind: Pool::new("volume-behind", BEHIND_THREADS)?,
            open_directories: Arc::default(),
            next_handle: AtomicU64::new(1),
        })
    }

    /// Attributes of a node, owned as everything here is.
    pub(super) fn attributes(&self, node: &Node) -> FileAttr {
        attributes(node, self.uid, self.gid)
    }

    /// Runs `job` here, or where it may wait.
    pub(super) fn here_or_fetching(&self, wait: bool, job: impl FnOnce(&Volume) + Send + 'static) {
        if wait {
            let volume = self.volume.clone();
            self.fetches.run(move || job(&volume));
        } else {
            job(&self.volume);
        }
    }

    /// Runs a read of the process `pid` here, or where it may wait: at once for a session, and behind those of sessions
    /// for who fills Postgres's buffers ahead of need.
    pub(super) fn here_or_in_turn(
        &self,
        pid: u32,
        wait: bool,
        job: impl FnOnce(&Volume) + Send + 'static,
    ) {
        if !wait {
            return job(&self.volume);
        }
        let volume = self.volume.clone();
        if volume.behind().is_of(pid) {
            (volume.stats().reads_behind).fetch_add(1, Ordering::Relaxed);
            return self.behind.run(move || {
                volume.behind().hold();
                job(&volume);
            });
        }
        let waits = volume.behind().session();
        self.fetches.run(move || {
            job(&volume);
            drop(waits);
        });
    }
}

/// Attributes of a node, owned by this user and group.
pub(super) fn attributes(node: &Node, uid: u32, gid: u32) -> FileAttr {
    let of = Volume::attributes(node);
    FileAttr {
        ino: INodeNo(of.ino),
        size: of.size,
        blocks: of.size.div_ceil(512),
        atime: of.created,
        mtime: of.created,
        ctime: of.created,
        crtime: of.created,
        kind: if of.directory {
            FileType::Directory
        } else {
            FileType::RegularFile
        },
        perm: of.mode,
        nlink: if of.directory { 2 } else { 1 },
        uid,
        gid,
        rdev: 0,
        blksize: BLCKSZ as u32,
        flags: 0,
    }
}

/// The number for the kernel; what nobody expects is counted and logged.
pub(super) fn errno(volume: &Volume, error: &VolumeError, doing: &str, ino: u64) -> Errno {
    match error {
        VolumeError::Closed | VolumeError::Source(_) | VolumeError::Io(_) => {
            volume
                .stats
                .failed_operations
                .fetch_add(1, Ordering::Relaxed);
            if !matches!(error, VolumeError::Closed) {
                tracing::error!(inode = ino, "cannot {doing}: {error}");
            }
        }
        // Postgres tells the client that the disk is full; which limit that is stands here.
        VolumeError::Full(_) => tracing::warn!(inode = ino, "cannot {doing}: {error}"),
        _ => {}
    }
    Errno::from_i32(error.errno() as i32)
}

/// A name as text. One that is not UTF-8 is invalid: Postgres names no file so.
pub(super) fn utf8(name: &OsStr) -> Result<&str, VolumeError> {
    name.to_str()
        .ok_or(VolumeError::Invalid("name is not UTF-8"))
}

/// Permission bits of something new.
pub(super) fn permissions(mode: u32, umask: u32) -> u16 {
    (mode & !umask & 0o777) as u16
}

/// Attributes of nothing: inode 0 lets the kernel remember that a name is absent.
pub(super) fn blank() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLCKSZ as u32,
        flags: 0,
    }
}
