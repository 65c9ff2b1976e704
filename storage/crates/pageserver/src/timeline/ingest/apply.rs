//! Applies a record for which ingest has to read from storage: the record, the state and the directory alone do not
//! say what it changes. Storage is read as of the record before, which must be published.
//!
//! All versions of a record are gathered first and appended together, then `last_record_lsn` moves: a reader sees all
//! of a record or nothing. Only the pages of a copied database are appended ahead of the rest of their record. The
//! directory (sizes, truncations, SLRU segments) is cached here as of the last record and filled from storage when an
//! entry is first needed.
//!
//! A failed record leaves the caches as they were after the record before, because the caches change only when the
//! batch is handed over. A crash loses nothing that the WAL does not bring again.

use std::collections::HashMap;

use anyhow::Context;
use layers::Value;
use pg_types::slru::{segment_of, truncation_removes};
use pg_types::{ForkNumber, Key, Lsn, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};
use wal_decode::MetaChange;

use super::Ingest;
use super::directory::{Directory, DirectoryUpdate, Segments, Sizes};
use super::gather::{Changes, PageValue};
use crate::error::Result;
use crate::floor::RelFloor;
use crate::import::encode_u32;

/// Pages copied per read when a database directory is copied.
const COPY_PAGES: usize = 256;

/// The versions one record writes, and the directory changes that come with them.
pub struct Batch<'a> {
    ingest: &'a Ingest,
    directory: &'a Directory,
    /// State before the record is read at this LSN.
    before: Lsn,
    lsn: Lsn,
    pub values: Vec<(Key, Value)>,
    sizes: Sizes,
    floors: HashMap<RelTag, RelFloor>,
    segments: Segments,
    fetched: Directory,
}

impl<'a> Batch<'a> {
    /// Starts the batch of the record that ends at `lsn`, after everything up to `before`.
    pub fn new(ingest: &'a Ingest, directory: &'a Directory, before: Lsn, lsn: Lsn) -> Batch<'a> {
        Batch {
            ingest,
            directory,
            before,
            lsn,
            values: Vec::new(),
            sizes: Sizes::default(),
            floors: HashMap::new(),
            segments: Segments::default(),
            fetched: Directory::default(),
        }
    }

    /// Ends the batch: the values, sizes and truncations as versions, and what the directory must learn.
    pub fn finish(mut self) -> Result<(Vec<(Key, Value)>, DirectoryUpdate)> {
        let growth = self.growth();
        for (rel, size) in &self.sizes {
            let value = size.map_or(Value::Tombstone, |blocks| Value::Meta(encode_u32(blocks)));
            self.values.push((Key::rel_size(*rel), value));
        }
        for (rel, floor) in &self.floors {
            let bytes = postcard::to_stdvec(floor).context("encode a relation's truncations")?;
            self.values
                .push((Key::rel_floor(*rel), Value::Meta(bytes.into())));
        }
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
        } = self.fetched;
        known_sizes.extend(self.sizes);
        known_segments.extend(self.segments);
        let update = DirectoryUpdate {
            growth,
            sizes: known_sizes,
            segments: known_segments,
        };
        Ok((self.values, update))
    }

    /// What the record changes of the logical size, bytes. No size is written without reading the one before it,
    /// except of the forks of a database that is being made.
    fn growth(&self) -> i64 {
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
            None => self.ingest.reads.rel_floor(rel, self.before).await?,
        };
        floor.truncate(self.lsn, blocks);
        self.floors.insert(rel, floor);
        Ok(())
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
        for page in changes.pages {
            self.page(page).await?;
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
                }
            }
            MetaChange::DropRels(rels) => {
                for rel in rels {
                    for fork in ForkNumber::ALL {
                        self.drop_fork(rel.with_fork(fork)).await?;
                    }
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
                self.values
                    .push((Key::two_phase(xid), Value::Meta(content)));
            }
            MetaChange::TwoPhaseRemove { xid } => {
                self.values.push((Key::two_phase(xid), Value::Tombstone))
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
                        self.segments.insert((kind, segno), 0);
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
                        self.segments.insert((kind, segno), 0);
                    }
                }
            }
        }
        Ok(())
    }

    async fn drop_fork(&mut self, rel: RelTag) -> Result<()> {
        if self.size(rel).await?.is_some() {
            self.sizes.insert(rel, None);
            self.truncate_floor(rel, 0).await?;
        }
        Ok(())
    }

    async fn drop_database(&mut self, spc: u32, db: u32) -> Result<()> {
        for (rel, _) in self.ingest.reads.list_rels(spc, db, self.before).await? {
            self.drop_fork(rel).await?;
        }
        self.values.push((Key::relmap(spc, db), Value::Tombstone));
        self.values.push((Key::database(spc, db), Value::Tombstone));
        Ok(())
    }

    /// The record names only the directories: the copy is made here, of the pages as they are.
    async fn copy_database(&mut self, source: (u32, u32), target: (u32, u32)) -> Result<()> {
        let (spc, db) = target;
        for (rel, blocks) in self
            .ingest
            .reads
            .list_rels(source.0, source.1, self.before)
            .await?
        {
            let copy = RelTag { spc, db, ..rel };
            let numbers: Vec<u32> = (0..blocks).collect();
            for chunk in numbers.chunks(COPY_PAGES) {
                let pages = self.ingest.reads.rel_pages(rel, chunk, self.before).await?;
                let copies = chunk
                    .iter()
                    .zip(pages)
                    .filter(|(_, page)| !page.bytes.is_empty())
                    .map(|(block, page)| {
                        let key = Key::rel_block(copy, *block);
                        (key, self.lsn, Value::Image(page.bytes))
                    })
                    .collect();
                // Not gathered with the rest: a database can be larger than memory.
                self.ingest.layers.append_ahead(copies).await?;
            }
            self.sizes.insert(copy, Some(blocks));
        }
        if let Some(map) = self
            .ingest
            .reads
            .value(Key::relmap(source.0, source.1), self.before)
            .await?
        {
            self.values.push((Key::relmap(spc, db), Value::Meta(map)));
        }
        self.create_database(spc, db);
        Ok(())
    }

    fn create_database(&mut self, spc: u32, db: u32) {
        let version = format!("{}\n", self.ingest.identity.manifest.pg_version);
        self.values
            .push((Key::database(spc, db), Value::Meta(version.into())));
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
