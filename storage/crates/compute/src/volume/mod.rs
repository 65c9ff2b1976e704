//! The file system below Postgres: `base/`, `global/` and the SLRUs, filled from storage as they are read.
//!
//! The core here knows files, blocks and names and has no FUSE in it; [`mount`] puts it in front of a kernel.
//! Storage is asked for the state the compute started from; everything that happened since (writes, new and
//! removed names, truncation) is local and is the truth. See [`mod@file`] and [`tree`] for the invariants.
//! What came from storage and was not written here is a cache with a budget of disk: see module `clean`.
//!
//! A crash leaves cache files that the next start deletes; nothing here is ever read again.

mod ahead;
pub mod backing;
mod behind;
mod bitmap;
mod blocks;
mod clean;
mod content;
mod dirty_limit;
mod error;
pub mod file;
mod filesystem;
mod first_reads;
mod front;
mod listing;
mod local;
pub mod mount;
pub mod names;
mod origin;
mod pool;
mod quota;
mod read_ahead;
mod stats;
mod throttle;
pub mod through_mount;
pub mod tree;
mod write_back;
mod written;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};

pub use ahead::DEFAULT_READ_AHEAD;
pub use behind::Behind;
pub use clean::CleanPages;
pub use error::VolumeError;
pub use first_reads::FirstReads;
pub use quota::{Full, Near, Quota};
pub use stats::Stats;
pub use throttle::Throttle;
pub use write_back::{WriteMode, WriteThroughNeeded, Writes};
pub use written::WrittenPages;

use crate::source::PageSource;
use ahead::Ahead;
use backing::{Backing, OpenFiles};
use file::CachedFile;
use listing::{DirKind, Listing};
use tree::{Content, Node, ROOT, Resolved, Tree};

/// What is known of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: u64,
    /// Whether the node is a directory; any other node is a regular file.
    pub directory: bool,
    /// Bytes of a file, 0 for a directory.
    pub size: u64,
    /// Permission bits.
    pub mode: u16,
    /// When the node was made in this volume, not when the file was made in storage.
    pub created: std::time::SystemTime,
}

/// The data directory of a compute: its files, where each of their pages is, and where pages come from.
pub struct Volume {
    source: Arc<dyn PageSource>,
    cache: PathBuf,
    tree: Tree,
    open_files: Arc<OpenFiles>,
    max_open_files: usize,
    /// One listing is asked for at a time; a directory is listed once.
    listing: Mutex<()>,
    stats: Arc<Stats>,
    clean: Arc<CleanPages>,
    ahead: Ahead,
    throttle: Throttle,
    behind: Arc<Behind>,
    first_reads: FirstReads,
    quota: Quota,
    writes: Writes,
    written: WrittenPages,
    closed: AtomicBool,
}

impl Volume {
    /// A volume over `source` that keeps its files in `cache`, an empty directory of its own. At most about
    /// `max_open_files` of them are open at a time.
    pub fn new(
        source: Arc<dyn PageSource>,
        cache: PathBuf,
        max_open_files: usize,
    ) -> Result<Volume, VolumeError> {
        let stats = Arc::new(Stats::default());
        let volume = Volume {
            ahead: Ahead::new(source.clone(), stats.clone())?,
            source,
            cache,
            tree: Tree::new(DirKind::Plain),
            open_files: Arc::default(),
            max_open_files: max_open_files.max(16),
            listing: Mutex::default(),
            clean: Arc::new(CleanPages::new(stats.clone())),
            stats,
            throttle: Throttle::default(),
            behind: Arc::default(),
            first_reads: FirstReads::default(),
            quota: Quota::default(),
            writes: Writes::default(),
            written: WrittenPages::default(),
            closed: AtomicBool::new(false),
        };
        volume.lay_out()?;
        Ok(volume)
    }

    fn lay_out(&self) -> Result<(), VolumeError> {
        for name in ["base", "global", "pg_multixact"] {
            self.make_root(ROOT, name)?;
        }
        for kind in pg_types::SlruKind::ALL {
            let (parent, name) = match kind.directory().split_once('/') {
                Some((parent, name)) => (self.find(parent)?.ino, name),
                None => (ROOT, kind.directory()),
            };
            self.make_root(parent, name)?;
        }
        Ok(())
    }

    fn make_root(&self, parent: u64, name: &str) -> Result<(), VolumeError> {
        let path = match parent {
            ROOT => name.to_owned(),
            _ => format!("pg_multixact/{name}"),
        };
        let kind = match names::slru_of_path(&path) {
            Some(kind) => DirKind::Slru(kind),
            None if path == "base" => DirKind::Databases,
            None if path == "global" => DirKind::Relations {
                spc: GLOBAL_TABLESPACE,
                db: 0,
            },
            None => DirKind::Plain,
        };
        self.tree.create_directory(parent, name, kind)
    }

    /// What was counted since the volume was made.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The pages held as storage has them, and the disk they may take.
    pub fn clean(&self) -> &CleanPages {
        &self.clean
    }

    /// How long writes are held back.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Which reads stand behind those of sessions.
    pub fn behind(&self) -> &Arc<Behind> {
        &self.behind
    }

    /// What the branch may hold, and holds.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// When writes reach the volume.
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    /// A sample of the pages that were written.
    pub fn written(&self) -> &WrittenPages {
        &self.written
    }

    /// Most blocks to ask storage for beyond a sequential reader; 0 for no more than is read.
    pub fn set_read_ahead(&self, blocks: u32) {
        self.ahead.set_window(blocks);
    }

    /// From here on nothing is read or written: what a dead Postgres still has in its hands must not meet
    /// the files of a new start.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.ahead.close();
        self.throttle.release();
        self.behind.release();
    }

    /// Whether [`Volume::close`] was called, or a write that had been answered was lost.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn check_open(&self) -> Result<(), VolumeError> {
        if self.is_closed() {
            return Err(VolumeError::Closed);
        }
        Ok(())
    }

    // --- names

    /// Whether a lookup in this directory must wait for storage.
    pub fn must_list(&self, ino: u64) -> bool {
        self.tree.listing_needed(ino)
    }

    fn ensure_listed(&self, ino: u64) -> Result<(), VolumeError> {
        if !self.tree.listing_needed(ino) {
            return Ok(());
        }
        let _one = self.listing.lock();
        if !self.tree.listing_needed(ino) {
            return Ok(());
        }
        let listing = match self.tree.node(ino)?.directory()? {
            DirKind::Plain => Listing::Nothing,
            DirKind::Databases => Listing::Databases(
                self.source
                    .databases()?
                    .into_iter()
                    .filter(|(spc, _)| *spc == DEFAULT_TABLESPACE)
                    .map(|(_, db)| db)
                    .collect(),
            ),
            DirKind::Relations { spc, db } => Listing::relations(self.source.relations(spc, db)?),
            DirKind::Slru(kind) => {
                Listing::Slru(self.source.slru_segments(kind)?.into_iter().collect())
            }
        };
        self.tree.set_listing(ino, listing);
        Ok(())
    }

    /// The file or directory of this name in directory `parent`. Waits for storage where [`Volume::must_list`] says
    /// so.
    ///
    /// # Errors
    ///
    /// [`VolumeError::NotFound`] when there is no such name; else `parent` is no directory, the volume is closed, or
    /// storage does not answer.
    pub fn lookup(&self, parent: u64, name: &str) -> Result<Arc<Node>, VolumeError> {
        self.check_open()?;
        if let Ok(Resolved::Node(node)) = self.tree.resolve(parent, name) {
            return Ok(node);
        }
        self.ensure_listed(parent)?;
        self.tree.adopt(parent, name, |ino, origin, blocks| {
            let (clean, stats) = (self.clean.clone(), self.stats.clone());
            CachedFile::stored(self.backing(ino), (origin, blocks), clean, stats)
        })
    }

    fn backing(&self, ino: u64) -> Backing {
        Backing::new(self.cache.join(ino.to_string()), self.open_files.clone())
    }

    /// The file or directory of this inode.
    ///
    /// # Errors
    ///
    /// [`VolumeError::NotFound`] when the node is gone, [`VolumeError::Closed`] when the volume is closed.
    pub fn node(&self, ino: u64) -> Result<Arc<Node>, VolumeError> {
        self.check_open()?;
        self.tree.node(ino)
    }

    /// A path below the root, components separated by `/`.
    pub fn find(&self, path: &str) -> Result<Arc<Node>, VolumeError> {
        let mut node = self.tree.node(ROOT)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            node = self.lookup(node.ino, name)?;
        }
        Ok(node)
    }

    /// Makes an empty file with these permission bits.
    ///
    /// # Errors
    ///
    /// [`VolumeError::Exists`], and those of [`Volume::lookup`].
    pub fn create(&self, parent: u64, name: &str, mode: u16) -> Result<Arc<Node>, VolumeError> {
        self.check_open()?;
        self.ensure_listed(parent)?;
        let make =
            |ino| CachedFile::local(self.backing(ino), self.clean.clone(), self.stats.clone());
        self.tree.create(parent, name, mode, Some(make))
    }

    /// Makes an empty directory with these permission bits. One in `base/` that has the number of a database is
    /// filled by the files that are made in it, never by storage.
    ///
    /// # Errors
    ///
    /// [`VolumeError::Exists`], and those of [`Volume::lookup`].
    pub fn mkdir(&self, parent: u64, name: &str, mode: u16) -> Result<Arc<Node>, VolumeError> {
        self.check_open()?;
        self.ensure_listed(parent)?;
        self.tree
            .create(parent, name, mode, None::<fn(u64) -> CachedFile>)
    }

    /// Takes the name of a file away, and its bytes off the quota. Whoever has the file open goes on using it.
    ///
    /// # Errors
    ///
    /// [`VolumeError::IsADirectory`], and those of [`Volume::lookup`].
    pub fn unlink(&self, parent: u64, name: &str) -> Result<(), VolumeError> {
        self.check_open()?;
        self.ensure_listed(parent)?;
        let held = (self.lookup(parent, name)).map_or(0, |node| content::held(&node));
        self.tree.remove(parent, name, false)?;
        self.quota.shrink(held);
        Ok(())
    }

    /// Takes an empty directory away.
    ///
    /// # Errors
    ///
    /// [`VolumeError::NotEmpty`], [`VolumeError::NotADirectory`], and those of [`Volume::lookup`].
    pub fn rmdir(&self, parent: u64, name: &str) -> Result<(), VolumeError> {
        let node = self.lookup(parent, name)?;
        node.directory()?;
        self.ensure_listed(node.ino)?;
        self.tree.remove(parent, name, true)
    }

    /// Gives a file or directory another name, in place of a file or an empty directory that has it.
    ///
    /// # Errors
    ///
    /// [`VolumeError::NotEmpty`] when a directory with entries has the new name, and those of [`Volume::lookup`].
    pub fn rename(
        &self,
        parent: u64,
        name: &str,
        new_parent: u64,
        new_name: &str,
    ) -> Result<(), VolumeError> {
        self.lookup(parent, name)?;
        self.ensure_listed(new_parent)?;
        if let Ok(Resolved::Node(target)) = self.tree.resolve(new_parent, new_name)
            && target.directory().is_ok()
        {
            self.ensure_listed(target.ino)?;
        }
        self.tree.rename(parent, name, new_parent, new_name)
    }

    /// Inode (0 if it has none yet), name, whether it is a directory.
    pub fn entries(&self, ino: u64) -> Result<Vec<(u64, String, bool)>, VolumeError> {
        self.check_open()?;
        self.ensure_listed(ino)?;
        self.tree.entries(ino)
    }

    /// The kernel was given a reference to an inode, by a lookup or for something it has made.
    pub fn looked_up(&self, ino: u64) {
        self.tree.looked_up(ino);
    }

    /// The kernel gave `count` references back; a node without name and references goes, and its cache file with it.
    pub fn forget(&self, ino: u64, count: u64) {
        self.tree.forget(ino, count);
    }

    /// What the kernel is told of a node.
    pub fn attributes(node: &Node) -> Attributes {
        let (directory, size) = match &node.content {
            Content::Directory(_) => (true, 0),
            Content::File { file, .. } => (false, file.size()),
        };
        Attributes {
            ino: node.ino,
            directory,
            size,
            mode: node.mode,
            created: node.created,
        }
    }

    // --- for the agent

    /// Puts a small local file in place, in directories made as needed. For the time before the mount.
    pub fn put_file(&self, path: &str, content: &[u8]) -> Result<(), VolumeError> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut parent = ROOT;
        for part in directory.split('/').filter(|part| !part.is_empty()) {
            parent = match self.lookup(parent, part) {
                Ok(node) => node.ino,
                Err(VolumeError::NotFound) => self.mkdir(parent, part, 0o700)?.ino,
                Err(error) => return Err(error),
            };
        }
        match self.unlink(parent, name) {
            Ok(()) | Err(VolumeError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let node = self.create(parent, name, 0o600)?;
        self.write(&node, 0, content)
    }

    /// A whole file.
    pub fn get_file(&self, path: &str) -> Result<Vec<u8>, VolumeError> {
        let node = self.find(path)?;
        let size = node.file()?.size();
        self.read(&node, 0, size)
    }

    /// The directory of the cache files.
    pub fn cache_directory(&self) -> &Path {
        &self.cache
    }
}
