//! Who this safekeeper is: the identity of its data directory, and which logs that directory has been given.
//!
//! A member of a log votes with its promises and with the WAL that it acknowledged. A directory that is new, copied from
//! elsewhere, or put back from a backup has neither, and must not vote in the name of the one that had.
//!
//! - `<data>/disk`, JSON: number of the safekeeper, the directory's uuid, and the inode and time of birth of the file
//!   itself. No copy of the file has the same inode and the same time of birth: a copy gets a uuid of its own, and keeps
//!   those it had before under `former`.
//! - `<data>/held/<tenant>/<timeline>`: how often this disk has been given that log, decimal. It outlives the log's
//!   directory, so that a log which is lost with its directory comes back as another member.
//! - each log's control file names the member it was made to be, and the origin of its directory (see
//!   [`crate::control::Control`]).
//!
//! Invariants:
//! - the number of a log is durable before its directory appears, and never goes down;
//! - two directories never use one uuid, except that a copy of whole blocks (a snapshot of a volume, an image of a
//!   virtual machine) cannot be told from the original: `docs/consensus.md` says what is left to catch that.
//!
//! A crash leaves at worst a number that no log has used.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use consensus::MemberId;
use pg_types::{DiskId, TenantId, TimelineId};
use serde::{Deserialize, Serialize};

use crate::control::{Control, sync_dir};
use crate::origin::Origin;

const FILE: &str = "disk";
const HELD: &str = "held";

#[derive(Serialize, Deserialize)]
struct Stored {
    node: u64,
    disk: String,
    origin: Origin,
    /// Identities of the directories that this one is a copy of, the oldest first.
    #[serde(default)]
    former: Vec<String>,
}

/// Why the identity of a data directory, or what it was given, cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file system failed. The file in place is the old one or the new one; the caller may try again.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried, such as `read` or `replace`.
        action: &'static str,
        /// Path of the file or directory.
        path: String,
        /// The error of the file system.
        source: io::Error,
    },
    /// A file that says who the directory is, or how often it had a log, cannot be understood. An operator puts it
    /// right.
    #[error(
        "{path} makes no sense ({why}); put the file back, or move it away: this directory then counts as a new disk, and its logs vote no more until they are added as learners"
    )]
    Damaged {
        /// Path of the file.
        path: String,
        /// For people: what is wrong with its content.
        why: String,
    },
    /// The directory is that of another safekeeper. Nothing was changed.
    #[error(
        "data directory {dir} belongs to safekeeper {owner}, not to {node}; start safekeeper {owner} on it, or give {node} a directory of its own"
    )]
    OtherNode {
        /// The data directory.
        dir: String,
        /// Number of the safekeeper that the directory belongs to.
        owner: u64,
        /// Number of the safekeeper that was started on it.
        node: u64,
    },
}

fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.display().to_string();
    move |source| DiskError::Io {
        action,
        path,
        source,
    }
}

/// Number of the safekeeper and uuid of the directory, as its file says; `None` when the directory does not say. Changes
/// nothing, and does not look whether the directory is a copy.
pub fn stored_identity(dir: &Path) -> Option<(u64, DiskId)> {
    let stored: Stored = serde_json::from_slice(&fs::read(dir.join(FILE)).ok()?).ok()?;
    Some((stored.node, stored.disk.parse().ok()?))
}

/// The data directory of one safekeeper, locked by its owner.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    node: u64,
    id: DiskId,
}

impl Disk {
    /// Finds out who the directory is, and gives it an identity if it has none of its own. Blocks.
    pub fn open(dir: &Path, node: u64) -> Result<Disk, DiskError> {
        let path = dir.join(FILE);
        let former = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(at("read", &path)(error)),
            Ok(bytes) => {
                let damaged = |why: String| DiskError::Damaged {
                    path: path.display().to_string(),
                    why,
                };
                let stored: Stored =
                    serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
                let id = stored
                    .disk
                    .parse()
                    .map_err(|error| damaged(format!("{error}")))?;
                if stored.node != node {
                    return Err(DiskError::OtherNode {
                        dir: dir.display().to_string(),
                        owner: stored.node,
                        node,
                    });
                }
                let origin = Origin::of(&path).map_err(at("read", &path))?;
                if origin == stored.origin {
                    let dir = dir.to_owned();
                    return Ok(Disk { dir, node, id });
                }
                tracing::error!(
                    dir = %dir.display(), disk = %id,
                    "this data directory is a copy, or was put back from one: it counts as a new disk, and its logs do not vote. Add this safekeeper to them as a learner"
                );
                let mut former = stored.former;
                former.push(stored.disk);
                former
            }
        };
        let id = DiskId(*uuid::Uuid::new_v4().as_bytes());
        store(dir, node, id, former)?;
        tracing::info!(dir = %dir.display(), node, disk = %id, "the data directory has an identity now");
        let dir = dir.to_owned();
        Ok(Disk { dir, node, id })
    }

    /// Number of the safekeeper that the directory belongs to.
    pub fn node(&self) -> u64 {
        self.node
    }

    /// Identity of the directory.
    pub fn id(&self) -> DiskId {
        self.id
    }

    fn held(&self, (tenant, timeline): (TenantId, TimelineId)) -> PathBuf {
        let of_tenant = self.dir.join(HELD).join(tenant.to_string());
        of_tenant.join(timeline.to_string())
    }

    /// How often this disk has been given the log; 0 for never.
    fn number(&self, log: (TenantId, TimelineId)) -> Result<u32, DiskError> {
        let path = self.held(log);
        match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(|_| DiskError::Damaged {
                path: path.display().to_string(),
                why: format!("{text:?} is no number"),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(at("read", &path)(error)),
        }
    }

    fn member(&self, incarnation: u32) -> MemberId {
        MemberId {
            node: self.node,
            disk: self.id,
            incarnation,
        }
    }

    /// A name for a log that is about to be made here, never used before. Blocks.
    pub fn next_member(&self, log: (TenantId, TimelineId)) -> Result<MemberId, DiskError> {
        let number = self.number(log)? + 1;
        self.remember(log, number)?;
        Ok(self.member(number))
    }

    fn remember(&self, log: (TenantId, TimelineId), number: u32) -> Result<(), DiskError> {
        let path = self.held(log);
        let parent = path.parent().unwrap_or(&self.dir);
        let made = !parent.exists();
        fs::create_dir_all(parent).map_err(at("create", parent))?;
        replace(&path, |_| Ok(number.to_string().into_bytes()))?;
        if made {
            let all = self.dir.join(HELD);
            sync_dir(&all)
                .and_then(|()| sync_dir(&self.dir))
                .map_err(at("fsync", &all))?;
        }
        Ok(())
    }

    /// Gives the log in `dir` a member's name on this disk, unless it has one. The control file is changed, and has to be stored, when it was
    /// written before logs had identities, or when the log was copied here. Returns whether it was changed. Blocks.
    pub fn claim(&self, dir: &Path, control: &mut Control) -> Result<bool, DiskError> {
        let log = (control.identity.tenant, control.identity.timeline);
        let origin = Origin::of(dir).map_err(at("read", dir))?;
        if control.member == MemberId::UNKNOWN {
            let number = self.number(log)?.max(1);
            self.remember(log, number)?;
            control.member = self.member(number);
            control.durable.member = control.member;
            control.origin = Some(origin);
            return Ok(true);
        }
        let here = (control.member.node, control.member.disk) == (self.node, self.id);
        if here && control.origin == Some(origin) {
            return Ok(false);
        }
        let member = self.next_member(log)?;
        tracing::error!(
            tenant = %log.0, timeline = %log.1, was = %control.member, now = %member,
            "this log is a copy, or was put back from one: it does not vote until it is added as a learner. Keep it: it may hold what no other has"
        );
        (control.member, control.origin) = (member, Some(origin));
        Ok(true)
    }
}

/// The file names its own inode and birth, which are known once it exists and stay when it is renamed.
fn store(dir: &Path, node: u64, id: DiskId, former: Vec<String>) -> Result<(), DiskError> {
    replace(&dir.join(FILE), |temporary| {
        let stored = Stored {
            node,
            disk: id.to_string(),
            origin: Origin::of(temporary)?,
            former,
        };
        Ok(serde_json::to_vec_pretty(&stored).expect("plain structs serialise into memory"))
    })
}

/// The file as a whole or not at all; `content` is given the new file before anything is in it.
fn replace(
    path: &Path,
    content: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
) -> Result<(), DiskError> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary).map_err(at("create", &temporary))?;
    let bytes = content(&temporary).map_err(at("read", &temporary))?;
    file.write_all(&bytes)
        .and_then(|()| file.sync_all())
        .map_err(at("write", &temporary))?;
    fs::rename(&temporary, path).map_err(at("replace", path))?;
    sync_dir(path.parent().unwrap_or(path)).map_err(at("fsync the directory of", path))
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
