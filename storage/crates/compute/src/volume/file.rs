//! One file of the volume: a sparse local copy of what storage has, and of everything written since.
//!
//! Invariants:
//! - block `b` comes from storage if and only if `b < stored` and it is not in `present`; anything else is
//!   local, and zero where nothing was written;
//! - `stored` only ever falls (truncation), a bit in `present` is only ever set: a block that was written or
//!   cut off never shows storage's version again, not even when a fetch was under way meanwhile, for a reader or
//!   ahead of one;
//! - nothing is evicted: `pd_lsn` can't tell whether storage knows a page as it was written.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use pg_types::{BLCKSZ, RelTag, SlruKind};
use wire::page::MAX_PAGES_PER_REQUEST;

use super::VolumeError;
use super::backing::Backing;
use super::bitmap::Bitmap;
use super::read_ahead::{REQUEST, ReadAhead};
use super::stats::{Fetched, Stats, Unread};
use crate::source::{PageSource, SourceError};

/// Blocks put into the file at a time; readers of others get their turn in between.
const STORED_AT_A_TIME: usize = 16;

/// Where a file's missing blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Blocks of a relation fork from `first_block` on.
    Relation { rel: RelTag, first_block: u32 },
    /// Pages of an SLRU from `first_page` on.
    Slru { kind: SlruKind, first_page: u32 },
}

impl Origin {
    /// Pages in the order asked; none is anything but 8192 bytes, or empty for zeroes.
    pub fn fetch(self, source: &dyn PageSource, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        let (what, pages) = match self {
            Origin::Relation { rel, first_block } => {
                let numbers: Vec<u32> = blocks.iter().map(|block| first_block + block).collect();
                (rel.to_string(), source.pages(rel, &numbers)?)
            }
            Origin::Slru { kind, first_page } => {
                let numbers: Vec<u32> = blocks.iter().map(|block| first_page + block).collect();
                (
                    kind.directory().to_owned(),
                    source.slru_pages(kind, &numbers)?,
                )
            }
        };
        let usable = pages.len() == blocks.len()
            && pages
                .iter()
                .all(|page| page.is_empty() || page.len() == BLCKSZ);
        if !usable {
            return Err(SourceError::Failed(format!(
                "storage answered {} pages of {what} with something else",
                blocks.len()
            )));
        }
        Ok(pages)
    }
}

#[derive(Debug)]
struct State {
    /// Bytes.
    size: u64,
    /// Blocks below this are storage's until they are present.
    stored: u32,
    present: Bitmap,
}

impl State {
    fn is_missing(&self, block: u32) -> bool {
        block < self.stored && !self.present.contains(block)
    }

    fn missing(&self, blocks: Range<u32>) -> Vec<u32> {
        (blocks.start..blocks.end.min(self.stored))
            .filter(|block| !self.present.contains(*block))
            .collect()
    }
}

#[derive(Debug)]
pub struct CachedFile {
    origin: Option<Origin>,
    backing: Backing,
    state: RwLock<State>,
    /// Blocks somebody has asked storage for.
    in_flight: Mutex<HashSet<u32>>,
    arrived: Condvar,
    read_ahead: Mutex<ReadAhead>,
    requests_ahead: AtomicUsize,
    unread: Unread,
}

fn blocks_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(BLCKSZ as u64)).unwrap_or(u32::MAX)
}

fn block_at(offset: u64) -> u32 {
    u32::try_from(offset / BLCKSZ as u64).unwrap_or(u32::MAX)
}

impl CachedFile {
    /// A file that starts empty and that storage knows nothing of.
    pub fn local(backing: Backing, stats: Arc<Stats>) -> CachedFile {
        CachedFile::new(backing, None, 0, stats)
    }

    /// A file of which storage has `blocks` blocks.
    pub fn stored(backing: Backing, origin: Origin, blocks: u32, stats: Arc<Stats>) -> CachedFile {
        CachedFile::new(backing, Some(origin), blocks, stats)
    }

    fn new(backing: Backing, origin: Option<Origin>, blocks: u32, stats: Arc<Stats>) -> CachedFile {
        CachedFile {
            origin,
            backing,
            state: RwLock::new(State {
                size: u64::from(blocks) * BLCKSZ as u64,
                stored: blocks,
                present: Bitmap::default(),
            }),
            in_flight: Mutex::default(),
            arrived: Condvar::new(),
            read_ahead: Mutex::default(),
            requests_ahead: AtomicUsize::new(0),
            unread: Unread::new(stats),
        }
    }

    /// Where blocks that are not here come from; `None` if storage knows none.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    pub fn size(&self) -> u64 {
        self.state.read().size
    }

    /// Whether a read of this range needs nothing from storage.
    pub fn is_local(&self, offset: u64, length: u64) -> bool {
        let state = self.state.read();
        let end = (offset + length).min(state.size);
        (block_at(offset)..blocks_of(end)).all(|block| !state.is_missing(block))
    }

    /// Whether a write of this range needs nothing from storage: it replaces whole blocks or local ones.
    pub fn is_write_local(&self, offset: u64, length: u64) -> bool {
        let state = self.state.read();
        partial_blocks(offset, length).all(|block| !state.is_missing(block))
    }

    /// Whether a cut to `size` needs nothing from storage.
    pub fn is_truncate_local(&self, size: u64) -> bool {
        size.is_multiple_of(BLCKSZ as u64) || !self.state.read().is_missing(block_at(size))
    }

    /// Reads up to the end of the file, fetching what is missing.
    pub fn read(
        &self,
        source: &dyn PageSource,
        offset: u64,
        length: u64,
    ) -> Result<(Vec<u8>, Fetched), VolumeError> {
        let mut fetched = Fetched::default();
        loop {
            {
                let state = self.state.read();
                let end = (offset.saturating_add(length)).min(state.size);
                if offset >= end {
                    return Ok((Vec::new(), fetched));
                }
                if (block_at(offset)..blocks_of(end)).all(|block| !state.is_missing(block)) {
                    let mut buffer = vec![0; (end - offset) as usize];
                    self.backing.read(offset, &mut buffer)?;
                    self.unread.read(block_at(offset)..blocks_of(end));
                    return Ok((buffer, fetched));
                }
            }
            let blocks = block_at(offset)..blocks_of(offset.saturating_add(length));
            self.fetch(source, blocks, &mut fetched)?;
        }
    }

    /// Writes, extending the file if need be; a gap reads as zeroes. Returns what was fetched, and by how many bytes
    /// this write made the file larger.
    pub fn write(
        &self,
        source: &dyn PageSource,
        offset: u64,
        data: &[u8],
    ) -> Result<(Fetched, u64), VolumeError> {
        let length = data.len() as u64;
        let end = offset
            .checked_add(length)
            .filter(|end| end / (BLCKSZ as u64) < u64::from(u32::MAX))
            .ok_or(VolumeError::Invalid("write far behind any file's end"))?;
        let mut fetched = Fetched::default();
        loop {
            let missing = {
                let mut state = self.state.write();
                match partial_blocks(offset, length).find(|block| state.is_missing(*block)) {
                    Some(block) => block,
                    None => {
                        self.backing.write(offset, data)?;
                        for block in block_at(offset)..blocks_of(end).min(state.stored) {
                            state.present.insert(block);
                        }
                        self.unread.gone(block_at(offset)..blocks_of(end));
                        let growth = end.saturating_sub(state.size);
                        state.size += growth;
                        return Ok((fetched, growth));
                    }
                }
            };
            self.fetch(source, missing..missing + 1, &mut fetched)?;
        }
    }

    /// Cuts or extends to `size`; what is cut off never comes back.
    pub fn truncate(&self, source: &dyn PageSource, size: u64) -> Result<Fetched, VolumeError> {
        let mut fetched = Fetched::default();
        loop {
            let partial = {
                let mut state = self.state.write();
                let last = block_at(size);
                if size >= state.size
                    || size.is_multiple_of(BLCKSZ as u64)
                    || !state.is_missing(last)
                {
                    if size < state.size {
                        self.backing.truncate(size)?;
                        state.stored = state.stored.min(blocks_of(size));
                        self.unread.gone(blocks_of(size)..u32::MAX);
                    }
                    state.size = size;
                    return Ok(fetched);
                }
                last
            };
            self.fetch(source, partial..partial + 1, &mut fetched)?;
        }
    }

    /// Makes sure that `wanted` is here, or on its way by another thread and then waited for.
    fn fetch(
        &self,
        source: &dyn PageSource,
        wanted: Range<u32>,
        fetched: &mut Fetched,
    ) -> Result<(), VolumeError> {
        let Some(origin) = self.origin else {
            return Ok(());
        };
        let required = {
            let mut in_flight = self.in_flight.lock();
            let missing = self.state.read().missing(wanted);
            if missing.is_empty() {
                return Ok(());
            }
            let mut required = missing;
            required.retain(|block| !in_flight.contains(block));
            required.truncate(MAX_PAGES_PER_REQUEST);
            if required.is_empty() {
                // The other fetch ends by its deadline, for good or bad; the caller looks again then.
                self.arrived.wait(&mut in_flight);
                return Ok(());
            }
            in_flight.extend(&required);
            required
        };
        let claim = Claim {
            file: self,
            blocks: &required,
        };
        let pages = origin.fetch(source, &required)?;
        let here = self.store(&required, &pages, false)?;
        drop(claim);
        fetched.pages += here.pages;
        fetched.bytes += here.bytes;
        Ok(())
    }

    /// Read-ahead requests of this file that are under way.
    pub fn requests_ahead(&self) -> usize {
        self.requests_ahead.load(Ordering::Relaxed)
    }

    /// Notes a read and claims what to ask storage for behind it, at most `most` blocks, a request each. What is
    /// claimed must be given back by [`CachedFile::release_ahead`].
    pub fn claim_ahead(&self, offset: u64, length: u64, window: u32, most: u32) -> Vec<Vec<u32>> {
        let stored = self.state.read().stored;
        let read = block_at(offset)..blocks_of(offset.saturating_add(length)).min(stored);
        if read.is_empty() {
            return Vec::new();
        }
        let ahead = self.read_ahead.lock().read(&read, stored, window, most);
        if ahead.is_empty() {
            return Vec::new();
        }
        let mut in_flight = self.in_flight.lock();
        let mut missing = self.state.read().missing(ahead);
        missing.retain(|block| !in_flight.contains(block));
        in_flight.extend(&missing);
        let requests: Vec<_> = (missing.chunks(REQUEST as usize).map(<[u32]>::to_vec)).collect();
        self.requests_ahead
            .fetch_add(requests.len(), Ordering::Relaxed);
        requests
    }

    /// Takes in what came for blocks that were claimed before.
    pub fn store_ahead(&self, blocks: &[u32], pages: &[Bytes]) -> Result<Fetched, VolumeError> {
        self.store(blocks, pages, true)
    }

    pub fn release_ahead(&self, blocks: &[u32]) {
        self.requests_ahead.fetch_sub(1, Ordering::Relaxed);
        drop(Claim { file: self, blocks });
    }

    /// Puts what came where it still counts.
    fn store(&self, blocks: &[u32], pages: &[Bytes], ahead: bool) -> Result<Fetched, VolumeError> {
        let parts = blocks.chunks(STORED_AT_A_TIME);
        for (blocks, pages) in parts.zip(pages.chunks(STORED_AT_A_TIME)) {
            self.store_some(blocks, pages, ahead)?;
        }
        Ok(Fetched {
            pages: pages.len() as u64,
            bytes: pages.iter().map(|page| page.len() as u64).sum(),
        })
    }

    fn store_some(&self, blocks: &[u32], pages: &[Bytes], ahead: bool) -> std::io::Result<()> {
        let mut state = self.state.write();
        let still: Vec<(u32, &Bytes)> = (blocks.iter().copied().zip(pages))
            .filter(|(block, _)| state.is_missing(*block))
            .collect();
        // Neighbours go out in one write; a page of zeroes is a hole and needs none.
        let together = |one: &(u32, &Bytes), next: &(u32, &Bytes)| {
            one.0.checked_add(1) == Some(next.0) && one.1.is_empty() == next.1.is_empty()
        };
        for run in still.chunk_by(together) {
            let (first, page) = run[0];
            if !page.is_empty() {
                let pages: Vec<&[u8]> = run.iter().map(|(_, page)| &page[..]).collect();
                self.backing
                    .write_all(u64::from(first) * BLCKSZ as u64, &pages)?;
            }
            for (block, _) in run {
                state.present.insert(*block);
                if ahead {
                    self.unread.arrived(*block);
                }
            }
        }
        Ok(())
    }

    pub fn close_idle(&self) {
        self.backing.close_idle();
    }
}

/// Blocks that a write at `offset` covers only in part.
fn partial_blocks(offset: u64, length: u64) -> impl Iterator<Item = u32> {
    let end = offset + length;
    let block = BLCKSZ as u64;
    let first = (length > 0 && !offset.is_multiple_of(block)).then(|| block_at(offset));
    let last = (length > 0 && !end.is_multiple_of(block)).then(|| block_at(end));
    first
        .into_iter()
        .chain(last.filter(|last| Some(*last) != first))
}

/// Blocks this thread fetches; letting go of them wakes whoever waits.
struct Claim<'a> {
    file: &'a CachedFile,
    blocks: &'a [u32],
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.file.in_flight.lock();
        for block in self.blocks {
            in_flight.remove(block);
        }
        drop(in_flight);
        self.file.arrived.notify_all();
    }
}
