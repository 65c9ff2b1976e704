//! One file of the volume: a sparse local copy of what storage has, and of everything written since.
//!
//! Invariants:
//! - block `b` comes from storage if and only if `b < stored` and it is not in `present`; anything else is
//!   local, and zero where nothing was written;
//! - `stored` only ever falls (truncation), a bit in `written` is only ever set, and what is written is present: a
//!   block that was written or cut off never shows storage's version again, not even when a fetch was under way
//!   meanwhile, for a reader or ahead of one;
//! - only clean blocks are evicted, those that are present and not written: storage gives them again as they were.
//!   `pd_lsn` can't tell whether storage knows a page as it was written, so a written one stays.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use pg_types::BLCKSZ;
use wire::page::MAX_PAGES_PER_REQUEST;

use super::VolumeError;
use super::backing::Backing;
use super::bitmap::Bitmap;
use super::blocks::{Blocks, block_at, blocks_of, partial_blocks};
use super::clean::{CleanPages, FileClean};
use super::origin::Origin;
use super::read_ahead::{REQUEST, ReadAhead};
use super::stats::{Fetched, Stats, Unread};
use crate::source::PageSource;

/// Blocks put into the file at a time; readers of others get their turn in between.
const STORED_AT_A_TIME: usize = 16;

/// A file of the volume: its local blocks, the origin of the others, and the requests for them that are under way.
#[derive(Debug)]
pub struct CachedFile {
    origin: Option<Origin>,
    backing: Backing,
    state: RwLock<Blocks>,
    /// Blocks somebody has asked storage for.
    in_flight: Mutex<HashSet<u32>>,
    arrived: Condvar,
    read_ahead: Mutex<ReadAhead>,
    requests_ahead: AtomicUsize,
    unread: Unread,
    clean: FileClean,
}

/// Blocks that storage gave for one request.
struct Arrived {
    blocks: Vec<u32>,
    pages: Vec<Bytes>,
    /// Whether the file holds them now, as far as storage's version still counts.
    kept: std::io::Result<()>,
}

impl CachedFile {
    /// A file that starts empty and that storage knows nothing of.
    pub fn local(backing: Backing, clean: Arc<CleanPages>, stats: Arc<Stats>) -> CachedFile {
        CachedFile::new(backing, None, clean, stats)
    }

    /// A file of which storage has `blocks` blocks.
    pub fn stored(
        backing: Backing,
        (origin, blocks): (Origin, u32),
        clean: Arc<CleanPages>,
        stats: Arc<Stats>,
    ) -> CachedFile {
        CachedFile::new(backing, Some((origin, blocks)), clean, stats)
    }

    fn new(
        backing: Backing,
        stored: Option<(Origin, u32)>,
        clean: Arc<CleanPages>,
        stats: Arc<Stats>,
    ) -> CachedFile {
        let (origin, blocks) = stored.map_or((None, 0), |(origin, blocks)| (Some(origin), blocks));
        CachedFile {
            origin,
            backing,
            state: RwLock::new(Blocks {
                size: u64::from(blocks) * BLCKSZ as u64,
                stored: blocks,
                present: Bitmap::default(),
                written: Bitmap::default(),
            }),
            in_flight: Mutex::default(),
            arrived: Condvar::new(),
            read_ahead: Mutex::default(),
            requests_ahead: AtomicUsize::new(0),
            unread: Unread::new(stats),
            clean: FileClean::new(clean),
        }
    }

    /// Where blocks that are not here come from; `None` if storage knows none.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Bytes of the file, what is still in storage included.
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

    /// Reads up to the end of the file, fetching what is missing. Blocks that cannot be kept here, because the local disk
    /// is full, are read all the same.
    pub fn read(
        &self,
        source: &dyn PageSource,
        offset: u64,
        length: u64,
    ) -> Result<(Vec<u8>, Fetched), VolumeError> {
        let mut fetched = Fetched::default();
        let mut in_hand: HashMap<u32, Bytes> = HashMap::new();
        loop {
            let wanted = {
                let state = self.state.read();
                let end = (offset.saturating_add(length)).min(state.size);
                if offset >= end {
                    return Ok((Vec::new(), fetched));
                }
                let mut missing = state.missing(block_at(offset)..blocks_of(end));
                missing.retain(|block| !in_hand.contains_key(block));
                match (missing.first(), missing.last()) {
                    (Some(first), Some(last)) => *first..*last + 1,
                    _ => return Ok((self.assemble(&state, offset..end, &in_hand)?, fetched)),
                }
            };
            if let Some(arrived) = self.fetch(source, wanted, &mut fetched)? {
                in_hand.extend(arrived.blocks.into_iter().zip(arrived.pages));
            }
        }
    }

    /// The bytes of a range of which every block is local or in hand. A block in hand that is (again) missing is as
    /// storage gave it: nobody has written it, or it would be present for good.
    fn assemble(
        &self,
        state: &Blocks,
        bytes: Range<u64>,
        in_hand: &HashMap<u32, Bytes>,
    ) -> std::io::Result<Vec<u8>> {
        let blocks = block_at(bytes.start)..blocks_of(bytes.end);
        let mut buffer = vec![0; (bytes.end - bytes.start) as usize];
        self.backing.read(bytes.start, &mut buffer)?;
        for (block, page) in in_hand {
            if !blocks.contains(block) || !state.is_missing(*block) {
                continue;
            }
            let block = u64::from(*block) * BLCKSZ as u64;
            let (from, to) = (bytes.start.max(block), bytes.end.min(block + BLCKSZ as u64));
            let part = &mut buffer[(from - bytes.start) as usize..(to - bytes.start) as usize];
            if page.is_empty() {
                part.fill(0);
            } else {
                part.copy_from_slice(&page[(from - block) as usize..(to - block) as usize]);
            }
        }
        self.unread.read(blocks.clone());
        self.clean.read(blocks);
        Ok(buffer)
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
                        let blocks = block_at(offset)..blocks_of(end).min(state.stored);
                        let were_clean = blocks.filter(|block| state.write(*block)).count();
                        self.clean.gone(were_clean);
                        self.unread.gone(block_at(offset)..blocks_of(end));
                        let growth = end.saturating_sub(state.size);
                        state.size += growth;
                        return Ok((fetched, growth));
                    }
                }
            };
            self.fetch_and_keep(source, missing, &mut fetched)?;
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
                        let stored = state.stored.min(blocks_of(size));
                        self.clean.gone(state.clean(stored..state.stored));
                        state.stored = stored;
                        // Storage's version of a block that is cut in part must not come back whole.
                        if !size.is_multiple_of(BLCKSZ as u64) && last < stored && state.write(last)
                        {
                            self.clean.gone(1);
                        }
                        self.unread.gone(blocks_of(size)..u32::MAX);
                    }
                    state.size = size;
                    return Ok(fetched);
                }
                last
            };
            self.fetch_and_keep(source, partial, &mut fetched)?;
        }
    }

    /// One block that a change of a part of it needs: without room for it here the change fails.
    fn fetch_and_keep(
        &self,
        source: &dyn PageSource,
        block: u32,
        fetched: &mut Fetched,
    ) -> Result<(), VolumeError> {
        match self.fetch(source, block..block + 1, fetched)? {
            Some(arrived) => Ok(arrived.kept?),
            None => Ok(()),
        }
    }

    /// Asks storage for what is missing of `wanted`, as much as goes into a request. `None` when nothing is missing (any
    /// more), or another thread asked for all of it, which has ended then.
    fn fetch(
        &self,
        source: &dyn PageSource,
        wanted: Range<u32>,
        fetched: &mut Fetched,
    ) -> Result<Option<Arrived>, VolumeError> {
        let Some(origin) = self.origin else {
            return Ok(None);
        };
        let blocks = {
            let mut in_flight = self.in_flight.lock();
            let missing = self.state.read().missing(wanted);
            if missing.is_empty() {
                return Ok(None);
            }
            let mut required = missing;
            required.retain(|block| !in_flight.contains(block));
            required.truncate(MAX_PAGES_PER_REQUEST);
            if required.is_empty() {
                // The other fetch ends by its deadline, for good or bad; the caller looks again then.
                self.arrived.wait(&mut in_flight);
                return Ok(None);
            }
            in_flight.extend(&required);
            required
        };
        let claim = Claim {
            file: self,
            blocks: &blocks,
        };
        let pages = origin.fetch(source, &blocks)?;
        fetched.pages += pages.len() as u64;
        fetched.bytes += pages.iter().map(|page| page.len() as u64).sum::<u64>();
        let kept = self.store(&blocks, &pages, false);
        drop(claim);
        if kept.is_err() {
            self.clean.not_kept(pages.len());
        }
        Ok(Some(Arrived {
            blocks,
            pages,
            kept,
        }))
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
        self.claim(ahead.collect())
    }

    /// Claims those of these blocks that are not here and that nobody has asked for; as [`CachedFile::claim_ahead`].
    pub fn claim(&self, mut missing: Vec<u32>) -> Vec<Vec<u32>> {
        if missing.is_empty() {
            return Vec::new();
        }
        let mut in_flight = self.in_flight.lock();
        let state = self.state.read();
        missing.retain(|block| state.is_missing(*block) && !in_flight.contains(block));
        drop(state);
        in_flight.extend(&missing);
        let requests: Vec<_> = (missing.chunks(REQUEST as usize).map(<[u32]>::to_vec)).collect();
        self.requests_ahead
            .fetch_add(requests.len(), Ordering::Relaxed);
        requests
    }

    /// Takes in what came for blocks that were claimed before.
    pub fn store_ahead(&self, blocks: &[u32], pages: &[Bytes]) -> std::io::Result<()> {
        self.store(blocks, pages, true)
    }

    /// Gives one request of [`CachedFile::claim_ahead`] back, whatever came of it, and wakes those that wait for its
    /// blocks.
    pub fn release_ahead(&self, blocks: &[u32]) {
        self.requests_ahead.fetch_sub(1, Ordering::Relaxed);
        drop(Claim { file: self, blocks });
    }

    /// Puts what came where it still counts.
    fn store(&self, blocks: &[u32], pages: &[Bytes], ahead: bool) -> std::io::Result<()> {
        let parts = blocks.chunks(STORED_AT_A_TIME);
        for (blocks, pages) in parts.zip(pages.chunks(STORED_AT_A_TIME)) {
            self.store_some(blocks, pages, ahead)?;
        }
        Ok(())
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
            self.clean.came(run.len());
            for (block, _) in run {
                state.present.insert(*block);
                if ahead {
                    self.unread.arrived(*block);
                }
            }
        }
        Ok(())
    }

    /// Gives the disk at most `most` clean blocks back, first those that nobody has read since this was asked last.
    /// Returns how many.
    pub fn evict(&self, most: usize) -> std::io::Result<usize> {
        let mut state = self.state.write();
        let victims = self
            .clean
            .victims(&state.present, &state.written, state.stored, most);
        let mut evicted = 0;
        for run in victims.chunk_by(|one, next| one + 1 == *next) {
            let (first, blocks) = (run[0], run.len() as u32);
            let size = u64::from(blocks) * BLCKSZ as u64;
            self.backing
                .forget(u64::from(first) * BLCKSZ as u64, size)?;
            let range = first..first + blocks;
            assert_eq!(
                state.written.count(range.clone()),
                0,
                "a written block must not be evicted"
            );
            state.present.remove(range.clone());
            self.unread.gone(range);
            self.clean.evicted(run.len());
            evicted += run.len();
        }
        Ok(evicted)
    }

    /// Closes the cache file if nobody is using it right now; it is opened again when needed.
    pub fn close_idle(&self) {
        self.backing.close_idle();
    }
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
