//! Applies a record for which ingest has to read from storage: the record, the state and the directory alone do not
//! say what it changes. Storage is read as of the record before, which must be published.
//!
//! All versions of a record are gathered first and appended together, then `last_record_lsn` moves: a reader sees all
//! of a record or nothing. Where a record makes more than [`AHEAD_BYTES`] of values, such as a copied database, a large
//! prepared transaction, or thousands of dropped relations, they are appended ahead of the rest of their record, so that
//! memory and layers stay as small as for many records. Only values that need nothing before them go ahead, because a
//! record that fails half-way is applied anew, and may put them twice. The
//! directory (sizes, truncations, SLRU segments) is cached here as of the last record and filled from storage when an
//! entry is first needed.
//!
//! A record that changes much takes turns with what else its thread carries: it gives way after each part of the
//! change, which no reader sees before the record is whole. What is known of a part's forks is forgotten with the
//! part: a table of all forks of a record grows, and is handed over and dropped, in steps as long as the record.
//!
//! A failed record leaves the caches right as of the record before: the caches learn only when the batch is handed
//! over, and what they have forgotten before that is asked of storage again. A crash loses nothing that the WAL does
//! not bring again.

mod databases;

use std::collections::HashMap;
use std::ops::Range;

use anyhow::Context;
use layers::Value;
use pg_types::slru::{segment_of, truncation_removes};
use pg_types::{ForkNumber, Key, Lsn, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};
use wal_decode::MetaChange;

use super::super::two_phase;
use super::directory::{Directory, DirectoryUpdate, Segments, Sizes};
use super::gather::{Changes, PageValue};
use super::{Ingest, LONG_RECORD};
use crate::error::Result;
use crate::floor::RelFloor;
use crate::import::encode_u32;

/// Relations that are dropped at once, or copied, before others have their turn: milliseconds of work.
const RELATIONS_AT_ONCE: usize = 256;
/// Pages that are added before others have their turn: far less than a millisecond of work.
const PAGES_AT_ONCE: usize = 1024;
/// Values of so many bytes are appended ahead of the rest of their record. Thousands of small values, which take
/// milliseconds to append.
const AHEAD_BYTES: usize = 512 << 10;
/// What a value counts beside its bytes.
const VALUE_OVERHEAD: usize = 64;

/// The versions one record writes, and the directory changes that come with them.
pub struct Batch<'a> {
    ingest: &'a Ingest,
    directory: &'a mut Directory,
    /// State before the record is read at this LSN.
    before: Lsn,
    lsn: Lsn,
    values: Vec<(Key, Value)>,
    /// Of the values, those of meta changes that are not appended ahead yet.
    bytes: usize,
    sizes: Sizes,
    floors: HashMap<RelTag, RelFloor>,
    segments: Segments,
    /// What the sizes whose values are made change of the logical size.
    growth: i64,
    fetched: Directory,
    fetched_floors: HashMap<RelTag, RelFloor>,
}

impl<'a> Batch<'a> {
    /// Starts the batch of the record that ends at `lsn`, after everything up to `before`.
    pub fn new(
        ingest: &'a Ingest,
        directory: &'a mut Directory,
        before: Lsn,
        lsn: Lsn,
    ) -> Batch<'a> {
        Batch {
            ingest,
            directory,
            before,
            lsn,
            values: Vec::new(),
            bytes: 0,
            sizes: Sizes::default(),
            floors: HashMap::new(),
            segments: Segments::default(),
            growth: 0,
            fetched: Directory::default(),
            fetched_floors: HashMap::new(),
        }
    }

    /// Ends the batch: the values, sizes and truncations as versions, and what the directory must learn.
    pub fn finish(mut self) -> Result<(Vec<(Key, Value)>, DirectoryUpdate)> {
        let written = self.finish_forks()?;
        for ((kind, segno), pages) in &self.segments {
            let value = if *pages == 0 {
                Value::Tombstone
            } else {
                Value::Meta(encode_u32(*pages))
            };
            self.values.push((Key::slru_segment(*kind, *segno), value));
        }
        // What was only read is remembered too; what was written wins.
        let Directory {
            sizes: mut known_sizes,
            segments: mut known_segments,
            ..
        } = self.fetched;
        known_sizes.extend(written);
        known_segments.extend(self.segments);
        let update = DirectoryUpdate {
            growth: self.growth,
            sizes: known_sizes,
            segments: known_segments,
        };
        Ok((self.values, update))
    }

    /// Makes values of the sizes and truncations so far, and returns those sizes. The record changes none of these
    /// forks again.
    fn finish_forks(&mut self) -> Result<Sizes> {
        self.growth += self.size_change();
        let sizes = std::mem::take(&mut self.sizes);
        for (rel, size) in &sizes {
            let value = size.map_or(Value::Tombstone, |blocks| Value::Meta(encode_u32(blocks)));
            self.put(Key::rel_size(*rel), value);
        }
        for (rel, floor) in std::mem::take(&mut self.floors) {
            let bytes = postcard::to_stdvec(&floor).context("encode a relation's truncations")?;
            self.put(Key::rel_floor(rel), Value::Meta(bytes.into()));
        }
        Ok(sizes)
    }

    /// Finishes the forks so far, one part of very many, and lets others have their turn. Nothing is known of these
    /// forks from here on, so that the record must not name one of them again.
    async fn finish_part(&mut self, forks: impl IntoIterator<Item = RelTag>) -> Result<()> {
        self.finish_forks()?;
        for rel in forks {
            self.fetched.sizes.remove(&rel);
            self.directory.forget(&rel);
        }
        self.go_ahead().await
    }

    /// Adds a value that needs nothing before it.
    fn put(&mut self, key: Key, value: Value) {
        self.bytes += VALUE_OVERHEAD + value.payload().len();
        self.values.push((key, value));
    }

    /// Gives way to other tasks, and appends what there is when it has become much. No page was added yet.
    async fn go_ahead(&mut self) -> Result<()> {
        tokio::task::yield_now().await;
        if self.bytes < AHEAD_BYTES {
            return Ok(());
        }
        self.bytes = 0;
        let lsn = self.lsn;
        let values = std::mem::take(&mut self.values).into_iter();
        let values = values.map(|(key, value)| (key, lsn, value)).collect();
        self.ingest.layers.append_ahead(values).await
    }

    /// What the sizes whose values are not made change of the logical size, bytes. No size is written without reading the one before it,
    /// except of the forks of a database that is being made.
    fn size_change(&self) -> i64 {
        let bytes = |size: Option<&Option<u32>>| {
            i64::from(size.copied().flatten().unwrap_or(0)) * pg_types::BLCKSZ as i64
        };
        let main = (self.sizes.iter()).filter(|(rel, _)| rel.fork == ForkNumber::Main);
        main.map(|(rel, size)| {
            let known = [&self.directory.sizes, &self.fetched.sizes];
            let before = known.iter().find_map(|sizes| sizes.get(rel));
            bytes(Some(size)) - bytes(before)
        })
        .sum()
    }

    async fn size(&mut self, rel: RelTag) -> Result<Option<u32>> {
        for known in [&self.sizes, &self.directory.sizes, &self.fetched.sizes] {
            if let Some(size) = known.get(&rel) {
                return Ok(*size);
            }
        }
        let size = self.ingest.reads.rel_size(rel, self.before).await?;
        self.fetched.sizes.insert(rel, size);
        Ok(size)
    }

    /// Hides all versions so far of blocks from `blocks` on.
    async fn truncate_floor(&mut self, rel: RelTag, blocks: u32) -> Result<()> {
        let mut floor = match self.floors.remove(&rel) {
            Some(floor) => floor,
            None => match self.fetched_floors.remove(&rel) {
                Some(floor) => floor,
                None => self.ingest.reads.rel_floor(rel, self.before).await?,
            },
        };
        floor.truncate(self.lsn, blocks);
        self.floors.insert(rel, floor);
        Ok(())
    }

    /// Forgets the chains of blocks that this record takes away. A record that fails half-way is applied anew, so
    /// that no page of them comes back.
    async fn forget(&self, rel: RelTag, blocks: Range<u32>) {
        let images = &self.ingest.images;
        images.forget_blocks(rel, blocks, self.lsn).await;
    }

    /// Removes a segment, and forgets its pages' chains like `forget`.
    fn remove_segment(&mut self, kind: SlruKind, segno: u32) {
        self.segments.insert((kind, segno), 0);
        self.ingest.images.forget_segment(kind, segno, self.lsn);
    }

    async fn segment_pages(&mut self, kind: SlruKind, segno: u32) -> Result<u32> {
        let id = (kind, segno);
        for known in [
            &self.segments,
            &self.directory.segments,
            &self.fetched.segments,
        ] {
            if let Some(pages) = known.get(&id) {
                return Ok(*pages);
            }
        }
        let value = self
            .ingest
            .reads
            .value(Key::slru_segment(kind, segno), self.before)
            .await?;
        let pages = value
            .as_ref()
            .map(crate::timeline::decode_u32)
            .transpose()?
            .unwrap_or(0);
        self.fetched.segments.insert(id, pages);
        Ok(pages)
    }

    /// Makes sure the SLRU page is within its segment.
    async fn extend_slru(&mut self, kind: SlruKind, pageno: u32) -> Result<()> {
        let segno = segment_of(pageno);
        let needed = pageno % SLRU_PAGES_PER_SEGMENT + 1;
        if self.segment_pages(kind, segno).await? < needed {
            self.segments.insert((kind, segno), needed);
        }
        Ok(())
    }

    /// Adds all that the record changes.
    pub async fn add(&mut self, changes: Changes<Value>) -> Result<()> {
        for change in changes.meta {
            self.meta(change).await?;
        }
        for (number, page) in changes.pages.into_iter().enumerate() {
            self.page(page).await?;
            if (number + 1) % PAGES_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Adds a page's new version, extending its relation when the page lies behind the end.
    async fn page(&mut self, page: PageValue<Value>) -> Result<()> {
        let key = page.key;
        if let Some(rel) = key.rel() {
            let size = self.size(rel).await?;
            if size.is_none_or(|blocks| key.e >= blocks) {
                if page.clears_map {
                    // Clearing bits of a map page that does not exist changes nothing, and must not make
                    // it: the compute's file is not extended either.
                    return Ok(());
                }
                let blocks = key
                    .e
                    .checked_add(1)
                    .context("a relation cannot have 2^32 blocks")?;
                self.sizes.insert(rel, Some(blocks));
            }
        } else if let Some(kind) = key.slru() {
            self.extend_slru(kind, key.e).await?;
        }
        self.values.push((key, page.value));
        Ok(())
    }

    async fn meta(&mut self, change: MetaChange) -> Result<()> {
        match change {
            MetaChange::CreateRel(rel) => {
                if self.size(rel).await?.is_none() {
                    self.sizes.insert(rel, Some(0));
                }
            }
            MetaChange::TruncateRel { rel, blocks } => {
                if let Some(size) = self.size(rel).await?
                    && size > blocks
                {
                    self.sizes.insert(rel, Some(blocks));
                    self.truncate_floor(rel, blocks).await?;
                    self.forget(rel, blocks..size).await;
                }
            }
            MetaChange::DropRels(rels) => {
                for rels in rels.chunks(RELATIONS_AT_ONCE) {
                    let forks = |rel: &RelTag| ForkNumber::ALL.map(|fork| rel.with_fork(fork));
                    let forks: Vec<RelTag> = rels.iter().flat_map(forks).collect();
                    self.drop_forks(&forks).await?;
                }
            }
            MetaChange::CopyDatabase { source, target } => {
                self.copy_database(source, target).await?
            }
            MetaChange::CreateDatabase { spc, db } => self.create_database(spc, db),
            MetaChange::DropDatabase { spc, db } => self.drop_database(spc, db).await?,
            // Refused before it comes to this, see `not_served`.
            MetaChange::CreateTablespace { .. } | MetaChange::DropTablespace { .. } => {}
            MetaChange::RelMap { spc, db, content } => {
                self.values
                    .push((Key::relmap(spc, db), Value::Meta(content)));
            }
            MetaChange::TwoPhaseCreate { xid, content } => {
                for (key, value) in two_phase::pieces(xid, &content) {
                    self.put(key, value);
                    self.go_ahead().await?;
                }
                let is_long = content.len() >= LONG_RECORD;
                stalls::off_worker_if(is_long, move || drop(content));
            }
            MetaChange::TwoPhaseRemove { xid } => {
                let removal = two_phase::removal(&self.ingest.reads, xid, self.before);
                self.values.extend(removal.await?);
            }
            MetaChange::SlruExtend { kind, pageno } => self.extend_slru(kind, pageno).await?,
            MetaChange::SlruTruncate { kind, cutoff_page } => {
                for (segno, _) in self
                    .ingest
                    .reads
                    .list_slru_segments(kind, self.before)
                    .await?
                {
                    if truncation_removes(kind, segno, cutoff_page) {
                        self.remove_segment(kind, segno);
                    }
                }
            }
            MetaChange::SlruDropSegments { kind, first, last } => {
                for (segno, _) in self
                    .ingest
                    .reads
                    .list_slru_segments(kind, self.before)
                    .await?
                {
                    if in_circular_range(first, last, segno) {
                        self.remove_segment(kind, segno);
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops those forks that exist. All that is read for that is read at once.
    async fn drop_forks(&mut self, forks: &[RelTag]) -> Result<()> {
        let is_unknown = |rel: &&RelTag| {
            let known = [&self.sizes, &self.directory.sizes];
            !known.iter().any(|sizes| sizes.contains_key(rel))
        };
        let unknown: Vec<RelTag> = forks.iter().filter(is_unknown).copied().collect();
        let sizes = self
            .ingest
            .reads
            .rel_sizes_of(&unknown, self.before)
            .await?;
        self.fetched.sizes.extend(unknown.into_iter().zip(sizes));
        let mut existing = Vec::with_capacity(forks.len());
        for rel in forks {
            if let Some(blocks) = self.size(*rel).await? {
                existing.push(*rel);
                self.forget(*rel, 0..blocks).await;
            }
        }
        let floors = self.ingest.reads.rel_floors(&existing, self.before).await?;
        self.fetched_floors
            .extend(existing.iter().copied().zip(floors));
        for rel in existing {
            self.sizes.insert(rel, None);
            self.truncate_floor(rel, 0).await?;
        }
        self.finish_part(forks.iter().copied()).await
    }
}

/// Whether `segno` is from `first` to `last`, going up and around.
fn in_circular_range(first: u32, last: u32, segno: u32) -> bool {
    if first <= last {
        (first..=last).contains(&segno)
    } else {
        segno >= first || segno <= last
    }
}
