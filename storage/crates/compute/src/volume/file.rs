//! One file of the volume: a sparse local copy of what storage has, and of everything written since.
//!
//! Invariants:
//! - block `b` comes from storage if and only if `b < stored` and it is not in `present`; anything else is
//!   local, and zero where nothing was written;
//! - `stored` only ever falls (truncation), a bit in `present` is only ever set: a block that was written or
//!   cut off never shows storage's version again, not even when a fetch was under way meanwhile;
//! - nothing is evicted: `pd_lsn` can't tell whether storage knows a page as it was written.

use std::collections::HashSet;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use pg_types::{BLCKSZ, RelTag, SlruKind};
use wire::page::MAX_PAGES_PER_REQUEST;

use super::VolumeError;
use super::backing::Backing;
use super::bitmap::Bitmap;
use crate::source::{PageSource, SourceError};

/// Most blocks a sequential reader gets beyond what it asked for.
const MAX_READ_AHEAD: u32 = 64;
/// First read-ahead of a reader that has turned out to be sequential.
const FIRST_READ_AHEAD: u32 = 16;

/// Where a file's missing blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Blocks of a relation fork from `first_block` on.
    Relation { rel: RelTag, first_block: u32 },
    /// Pages of an SLRU from `first_page` on.
    Slru { kind: SlruKind, first_page: u32 },
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

    fn missing(&self, blocks: std::ops::Range<u32>) -> Vec<u32> {
        (blocks.start..blocks.end.min(self.stored))
            .filter(|block| !self.present.contains(*block))
            .collect()
    }
}

/// Which block a sequential reader would miss next, and how far to read ahead of it.
#[derive(Debug, Default)]
struct ReadAhead {
    next: u32,
    window: u32,
}

#[derive(Debug, Default)]
struct InFlight {
    blocks: HashSet<u32>,
    ahead: ReadAhead,
}

#[derive(Debug)]
pub struct CachedFile {
    origin: Option<Origin>,
    backing: Backing,
    state: RwLock<State>,
    in_flight: Mutex<InFlight>,
    arrived: Condvar,
}

/// What a fetch cost, for the volume's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    pub pages: u64,
    pub bytes: u64,
}

fn blocks_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(BLCKSZ as u64)).unwrap_or(u32::MAX)
}

fn block_at(offset: u64) -> u32 {
    u32::try_from(offset / BLCKSZ as u64).unwrap_or(u32::MAX)
}

impl CachedFile {
    /// A file that starts empty and that storage knows nothing of.
    pub fn local(backing: Backing) -> CachedFile {
        CachedFile::new(backing, None, 0)
    }

    /// A file of which storage has `blocks` blocks.
    pub fn stored(backing: Backing, origin: Origin, blocks: u32) -> CachedFile {
        CachedFile::new(backing, Some(origin), blocks)
    }

    fn new(backing: Backing, origin: Option<Origin>, blocks: u32) -> CachedFile {
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
        }
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
                    return Ok((buffer, fetched));
                }
            }
            let blocks = block_at(offset)..blocks_of(offset.saturating_add(length));
            self.fetch(source, blocks, true, &mut fetched)?;
        }
    }

    /// One block as it is here; `None` when the file does not reach so far or only storage has the block.
    pub fn read_local_block(&self, block: u32) -> Result<Option<Vec<u8>>, VolumeError> {
        let state = self.state.read();
        let offset = u64::from(block) * BLCKSZ as u64;
        if state.is_missing(block) || offset + BLCKSZ as u64 > state.size {
            return Ok(None);
        }
        let mut buffer = vec![0; BLCKSZ];
        self.backing.read(offset, &mut buffer)?;
        Ok(Some(buffer))
    }

    /// Writes, extending the file if need be; a gap reads as zeroes.
    pub fn write(
        &self,
        source: &dyn PageSource,
        offset: u64,
        data: &[u8],
    ) -> Result<Fetched, VolumeError> {
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
                        state.size = state.size.max(end);
                        return Ok(fetched);
                    }
                }
            };
            self.fetch(source, missing..missing + 1, false, &mut fetched)?;
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
                    }
                    state.size = size;
                    return Ok(fetched);
                }
                last
            };
            self.fetch(source, partial..partial + 1, false, &mut fetched)?;
        }
    }

    /// Makes sure that `wanted` is here, or on its way by another thread and then waited for.
    fn fetch(
        &self,
        source: &dyn PageSource,
        wanted: std::ops::Range<u32>,
        read_ahead: bool,
        fetched: &mut Fetched,
    ) -> Result<(), VolumeError> {
        let Some(origin) = self.origin else {
            return Ok(());
        };
        let (required, ahead) = {
            let mut in_flight = self.in_flight.lock();
            let missing = self.state.read().missing(wanted.clone());
            if missing.is_empty() {
                return Ok(());
            }
            let required: Vec<u32> = missing
                .iter()
                .copied()
                .filter(|block| !in_flight.blocks.contains(block))
                .take(MAX_PAGES_PER_REQUEST)
                .collect();
            if required.is_empty() {
                // The other fetch ends by its deadline, for good or bad; the caller looks again then.
                self.arrived.wait(&mut in_flight);
                return Ok(());
            }
            let ahead = if read_ahead {
                self.plan_read_ahead(&mut in_flight, &required, &wanted)
            } else {
                Vec::new()
            };
            in_flight.blocks.extend(required.iter().chain(&ahead));
            (required, ahead)
        };
        let _claim = Claim {
            file: self,
            blocks: required.iter().chain(&ahead).copied().collect(),
        };
        let all: Vec<u32> = required.iter().chain(&ahead).copied().collect();
        let (blocks, pages) = match fetch_from(source, origin, &all) {
            Ok(pages) => (all, pages),
            // Blocks ahead may be going away right now (truncation): only the wanted ones matter.
            Err(SourceError::NotFound(_)) if !ahead.is_empty() => {
                let pages = fetch_from(source, origin, &required)?;
                (required, pages)
            }
            Err(error) => return Err(error.into()),
        };
        fetched.pages += pages.len() as u64;
        fetched.bytes += pages.iter().map(|page| page.len() as u64).sum::<u64>();
        self.store(&blocks, &pages)
    }

    fn plan_read_ahead(
        &self,
        in_flight: &mut InFlight,
        required: &[u32],
        wanted: &std::ops::Range<u32>,
    ) -> Vec<u32> {
        let ahead = &mut in_flight.ahead;
        let sequential = wanted.start <= ahead.next && ahead.next < wanted.end && ahead.next != 0;
        ahead.window = match (sequential, ahead.window) {
            (false, _) => 0,
            (true, 0) => FIRST_READ_AHEAD,
            (true, window) => (window * 2).min(MAX_READ_AHEAD),
        };
        let from = wanted.end;
        let to = from.saturating_add(ahead.window);
        ahead.next = to;
        let room = MAX_PAGES_PER_REQUEST - required.len();
        let mut blocks = self.state.read().missing(from..to);
        blocks.retain(|block| !in_flight.blocks.contains(block));
        blocks.truncate(room);
        blocks
    }

    fn store(&self, blocks: &[u32], pages: &[Bytes]) -> Result<(), VolumeError> {
        let mut state = self.state.write();
        for (&block, page) in blocks.iter().zip(pages) {
            if !state.is_missing(block) {
                continue;
            }
            if !page.is_empty() {
                self.backing.write(u64::from(block) * BLCKSZ as u64, page)?;
            }
            state.present.insert(block);
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

fn fetch_from(
    source: &dyn PageSource,
    origin: Origin,
    blocks: &[u32],
) -> Result<Vec<Bytes>, SourceError> {
    let (what, pages) = match origin {
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

/// Blocks this thread fetches; letting go of them wakes whoever waits.
struct Claim<'a> {
    file: &'a CachedFile,
    blocks: Vec<u32>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.file.in_flight.lock();
        for block in &self.blocks {
            in_flight.blocks.remove(block);
        }
        drop(in_flight);
        self.file.arrived.notify_all();
    }
}
