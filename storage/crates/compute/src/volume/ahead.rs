//! Carrying out read-ahead: storage is asked in the background for what [`super::read_ahead`] plans, a few requests at
//! a time, while readers go on with what is here.
//!
//! A block that comes this way obeys the rules of one that was missed: it is put into the file only where storage's
//! version still counts, so a write, a truncation or a drop in between wins. A request that fails is forgotten:
//! whoever needs a block of it asks for itself, and meets the error if it lasts.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::VolumeError;
use super::file::CachedFile;
use super::pool::Pool;
use super::read_ahead::REQUEST;
use super::stats::{Fetched, Stats};
use super::tree::Node;
use crate::source::PageSource;

/// Blocks asked for beyond a sequential reader at most, if nothing else is said: 4 MiB.
pub const DEFAULT_READ_AHEAD: u32 = 512;
/// Requests on their way at a time, of all files. Each holds one thread and [`REQUEST`] pages.
const REQUESTS: usize = 8;
/// Those of one file, so that one scan leaves room for others.
const REQUESTS_OF_A_FILE: usize = 4;

/// Read-ahead for all files of a volume.
pub struct Ahead {
    pool: Pool,
    window: AtomicU32,
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<dyn PageSource>,
    stats: Arc<Stats>,
    under_way: AtomicUsize,
    closed: AtomicBool,
}

impl Ahead {
    /// Starts the threads that ask `source`, with a window of [`DEFAULT_READ_AHEAD`] blocks.
    pub fn new(source: Arc<dyn PageSource>, stats: Arc<Stats>) -> std::io::Result<Ahead> {
        Ok(Ahead {
            pool: Pool::new("volume-ahead", REQUESTS)?,
            window: AtomicU32::new(DEFAULT_READ_AHEAD),
            shared: Arc::new(Shared {
                source,
                stats,
                under_way: AtomicUsize::new(0),
                closed: AtomicBool::new(false),
            }),
        })
    }

    /// Most blocks beyond a reader; 0 for no read-ahead.
    pub fn set_window(&self, blocks: u32) {
        self.window.store(blocks, Ordering::Relaxed);
    }

    /// No further requests; those under way end by themselves.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
    }

    /// Asks for these blocks of a file, as far as they are not here and nobody has asked for them, whoever will read them.
    pub fn ask(&self, node: &Arc<Node>, blocks: &[u32]) {
        let Ok(file) = node.file() else { return };
        if self.window.load(Ordering::Relaxed) == 0 || file.origin().is_none() {
            return;
        }
        for blocks in file.claim(blocks.to_vec()) {
            let request = Request::new(Arc::downgrade(node), self.shared.clone(), blocks);
            self.pool.run(move || request.carry_out());
        }
    }

    /// To be called for each read, before it is served: what may be wanted next comes while this one waits.
    pub fn reading(&self, node: &Arc<Node>, offset: u64, length: u64) {
        let window = self.window.load(Ordering::Relaxed);
        let Ok(file) = node.file() else { return };
        if window == 0 || file.origin().is_none() {
            return;
        }
        let free = REQUESTS.saturating_sub(self.shared.under_way.load(Ordering::Relaxed));
        let own = REQUESTS_OF_A_FILE.saturating_sub(file.requests_ahead());
        let most = u32::try_from(free.min(own)).unwrap_or(0) * REQUEST;
        for blocks in file.claim_ahead(offset, length, window, most) {
            let request = Request::new(Arc::downgrade(node), self.shared.clone(), blocks);
            self.pool.run(move || request.carry_out());
        }
    }
}

/// One request, from the moment its blocks are spoken for.
struct Request {
    /// A file that is dropped meanwhile goes at once, with what it holds on the disk.
    node: Weak<Node>,
    shared: Arc<Shared>,
    blocks: Vec<u32>,
}

impl Request {
    fn new(node: Weak<Node>, shared: Arc<Shared>, blocks: Vec<u32>) -> Request {
        shared.under_way.fetch_add(1, Ordering::Relaxed);
        Request {
            node,
            shared,
            blocks,
        }
    }

    fn carry_out(&self) {
        if self.shared.closed.load(Ordering::Acquire) {
            return;
        }
        match self.bring() {
            Ok(fetched) => self.shared.stats.fetched(fetched),
            // A relation that is being cut or dropped right now is no longer there in full.
            Err(error) => tracing::debug!("read-ahead came to nothing: {error}"),
        }
    }

    fn bring(&self) -> Result<Fetched, VolumeError> {
        let origin = self.file_of(CachedFile::origin).flatten();
        let Some(origin) = origin else {
            return Ok(Fetched::default());
        };
        let pages = origin.fetch(&*self.shared.source, &self.blocks)?;
        self.file_of(|file| file.store_ahead(&self.blocks, &pages))
            .unwrap_or(Ok(()))?;
        Ok(Fetched {
            pages: pages.len() as u64,
            bytes: pages.iter().map(|page| page.len() as u64).sum(),
        })
    }

    /// What `look` finds at the file, if it is still there.
    fn file_of<T>(&self, look: impl FnOnce(&CachedFile) -> T) -> Option<T> {
        Some(look(self.node.upgrade()?.file().ok()?))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // However it ended, even if it never ran: others may be waiting for these blocks.
        self.file_of(|file| file.release_ahead(&self.blocks));
        self.shared.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
