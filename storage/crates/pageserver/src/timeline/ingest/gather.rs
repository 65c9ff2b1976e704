//! Records gathered one after the other and published together.
//!
//! Taking locks, updating counters and waking the waiters of an LSN cost as much for one record as for hundreds, so
//! ingest pays for them once per piece of WAL. A record is gathered when the record itself, the state and the
//! directory, both as of the last record gathered, say all that it changes. Any other record waits until those before
//! it are published (`apply`).
//!
//! Invariants:
//! - Ingest does not wait for anything while records are gathered, so that readers soon see the WAL that has come.
//! - Every record gathered is counted towards its pages' chains before it is published, never after.
//! - The directory is ahead of what is published by exactly the records gathered.
//!
//! A crash loses the gathered records, and the WAL brings them again.

use std::sync::Arc;

use bytes::Bytes;
use layers::{Put, Value};
use pg_types::slru::segment_of;
use pg_types::{BLCKSZ, ForkNumber, Key, Lsn, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};
use smallvec::SmallVec;
use wal_decode::{MetaChange, PageStep, Sink, TimelineState};

use super::Ingest;
use super::directory::Directory;
use super::encode::{DeltaWriter, EncodeError, EncodedValue};
use crate::config::TenantConfig;
use crate::error::Result;
use crate::import::encode_u32;

/// Gathered values of so many bytes are published.
const ENOUGH_BYTES: usize = 128 << 10;
/// Values that take milliseconds to publish.
const MANY_VALUES: usize = 8 << 10;
/// So many values are counted together: the processor looks for several pages' counts at once then. Far fewer than an
/// overlong chain has.
const COUNTED_AT_ONCE: usize = 32;
/// What a value counts beside its bytes.
const VALUE_OVERHEAD: usize = 64;

/// What one record changes, each value encoded by a writer, or by itself.
pub struct Changes<V = EncodedValue> {
    pub meta: SmallVec<[MetaChange; 1]>,
    pub pages: SmallVec<[PageValue<V>; 4]>,
}

impl<V> Default for Changes<V> {
    fn default() -> Changes<V> {
        Changes {
            meta: SmallVec::new(),
            pages: SmallVec::new(),
        }
    }
}

impl Changes {
    pub fn clear(&mut self) {
        self.meta.clear();
        self.pages.clear();
    }
}

/// A page's new version.
pub struct PageValue<V> {
    pub key: Key,
    pub value: V,
    /// Whether the change only clears bits on a visibility map page, and so means nothing for a page that does not exist.
    pub clears_map: bool,
}

/// Collects what a record changes, encoded as layers hold it.
#[derive(Default)]
pub struct ChangeCollector {
    pub writer: DeltaWriter,
    pub changes: Changes,
}

impl ChangeCollector {
    /// What the record changes, with values that need no writer.
    pub fn take_changes(&mut self) -> Changes<Value> {
        let Changes { meta, pages } = std::mem::take(&mut self.changes);
        let own = |page: PageValue<EncodedValue>| PageValue {
            key: page.key,
            value: self.writer.own(page.value),
            clears_map: page.clears_map,
        };
        Changes {
            meta,
            pages: pages.into_iter().map(own).collect(),
        }
    }
}

impl Sink for ChangeCollector {
    type Error = EncodeError;

    fn meta(&mut self, change: MetaChange) -> Result<(), EncodeError> {
        self.changes.meta.push(change);
        Ok(())
    }

    fn page(&mut self, key: Key, step: PageStep<'_, '_>) -> Result<(), EncodeError> {
        self.changes.pages.push(PageValue {
            key,
            value: self.writer.encode(&key, &step)?,
            clears_map: matches!(
                step,
                PageStep::VisibilityMapClear { .. } | PageStep::VisibilityMapTruncate { .. }
            ),
        });
        Ok(())
    }
}

/// The records gathered since the last publication, as the versions and counts that they make.
pub struct Gathered {
    /// As of the last record gathered.
    pub state: TimelineState,
    config: Arc<TenantConfig>,
    values: Vec<(Key, Lsn, EncodedValue)>,
    /// How many of them are counted towards their pages' chains.
    counted: usize,
    bytes: usize,
    records: u64,
    /// By how many bytes all main forks together have grown.
    growth: i64,
    /// Whether a page's chain has become so long that ingest has to wait for its image.
    overlong: bool,
}

impl Gathered {
    /// Nothing, behind the last record published.
    pub fn new(ingest: &Ingest) -> Gathered {
        Gathered {
            state: ingest.position.state(),
            config: ingest.identity.config(),
            values: Vec::new(),
            counted: 0,
            bytes: 0,
            records: 0,
            growth: 0,
            overlong: false,
        }
    }

    /// Takes a record that ends at `lsn` and changes pages only, if the directory knows all it needs; false when it
    /// does not, and nothing is taken.
    pub fn take(&mut self, directory: &mut Directory, changes: &mut Changes, lsn: Lsn) -> bool {
        if !changes.meta.is_empty() {
            return false;
        }
        if changes.pages.iter().all(|page| directory.has(&page.key)) {
            for page in changes.pages.drain(..) {
                self.push(page.key, lsn, page.value);
            }
            return true;
        }
        let Some(grown) = Grown::find(directory, changes) else {
            return false;
        };
        for page in changes.pages.drain(..) {
            if !page.clears_map || grown.exists(directory, &page.key) {
                self.push(page.key, lsn, page.value);
            }
        }
        for (rel, blocks) in grown.sizes {
            let value = Value::Meta(encode_u32(blocks));
            self.push(Key::rel_size(rel), lsn, value.into());
            let before = directory.sizes.insert(rel, Some(blocks)).flatten();
            if rel.fork == ForkNumber::Main {
                let added = i64::from(blocks) - i64::from(before.unwrap_or(0));
                self.growth += added * BLCKSZ as i64;
            }
        }
        for (segment, pages) in grown.segments {
            let value = Value::Meta(encode_u32(pages));
            let key = Key::slru_segment(segment.0, segment.1);
            self.push(key, lsn, value.into());
            directory.segments.insert(segment, pages);
        }
        true
    }

    /// Adds the values of a record that was worked out by itself.
    pub fn add(&mut self, lsn: Lsn, values: Vec<(Key, Value)>, growth: i64) {
        for (key, value) in values {
            self.push(key, lsn, value.into());
        }
        self.growth += growth;
    }

    fn push(&mut self, key: Key, lsn: Lsn, value: EncodedValue) {
        self.bytes += VALUE_OVERHEAD + value.bytes();
        self.values.push((key, lsn, value));
    }

    /// The state behind the record that is being taken, and the form in which it is stored if it is to be.
    pub fn pass_to(&mut self, state: TimelineState, stored: Option<Bytes>) {
        self.state = state;
        if let Some(stored) = stored {
            let value = Value::Meta(stored);
            self.push(Key::timeline_state(), state.last_record_lsn, value.into());
        }
    }

    /// Ends a record, which the state is behind now.
    pub fn record_taken(&mut self, ingest: &Ingest, writer: &DeltaWriter) {
        self.records += 1;
        if self.values.len() - self.counted >= COUNTED_AT_ONCE {
            self.count(ingest, writer);
        }
    }

    fn count(&mut self, ingest: &Ingest, writer: &DeltaWriter) {
        let rule = self.config.image_rule(self.state.full_page_writes);
        let values = lent(&self.values[self.counted..], writer);
        self.overlong |= ingest.images.ingested(values, rule);
        self.counted = self.values.len();
    }

    /// Whether it is time to publish.
    pub fn is_enough(&self) -> bool {
        self.overlong || self.bytes >= ENOUGH_BYTES
    }

    /// Makes all of it visible. What `writer` has encoded for it is copied and forgotten.
    pub fn publish(&mut self, ingest: &Ingest, writer: &mut DeltaWriter) -> Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        // So many are of a single record, which readers see as a whole.
        let is_long = self.values.len() >= MANY_VALUES;
        stalls::off_worker_if(is_long, || self.hand_over(ingest, writer))?;
        ingest.identity.metrics.wal_records.inc_by(self.records);
        self.config = ingest.identity.config();
        (self.counted, self.bytes, self.records) = (0, 0, 0);
        (self.growth, self.overlong) = (0, false);
        Ok(())
    }

    fn hand_over(&mut self, ingest: &Ingest, writer: &mut DeltaWriter) -> Result<()> {
        self.count(ingest, writer);
        ingest
            .layers
            .publish(self.state, lent(&self.values, writer), self.growth)?;
        self.values.clear();
        writer.clear();
        Ok(())
    }
}

fn lent<'a>(
    values: &'a [(Key, Lsn, EncodedValue)],
    writer: &'a DeltaWriter,
) -> impl Iterator<Item = (Key, Lsn, Put<'a>)> {
    let lend =
        |(key, lsn, encoded): &'a (Key, Lsn, EncodedValue)| (*key, *lsn, writer.lend(encoded));
    values.iter().map(lend)
}

/// Relations and segments that a record makes longer.
#[derive(Default)]
struct Grown {
    sizes: SmallVec<[(RelTag, u32); 2]>,
    segments: SmallVec<[((SlruKind, u32), u32); 1]>,
}

impl Grown {
    /// `None` when the directory does not know all that the changes take.
    fn find(directory: &Directory, changes: &Changes) -> Option<Grown> {
        let mut grown = Grown::default();
        for page in &changes.pages {
            let key = &page.key;
            if let Some(rel) = key.rel() {
                let held = grown.sizes.iter_mut().find(|(other, _)| *other == rel);
                let size = directory.sizes.get(&rel)?;
                let size = held.as_ref().map(|(_, blocks)| *blocks).or(*size);
                if page.clears_map || size.is_some_and(|blocks| key.e < blocks) {
                    continue;
                }
                let blocks = key.e.checked_add(1)?;
                match held {
                    Some(held) => held.1 = blocks,
                    None => grown.sizes.push((rel, blocks)),
                }
            } else if let Some(kind) = key.slru() {
                let segment = (kind, segment_of(key.e));
                let needed = key.e % SLRU_PAGES_PER_SEGMENT + 1;
                let pages = directory.segments.get(&segment)?;
                let held = grown.segments.iter_mut().find(|(it, _)| *it == segment);
                match held {
                    Some(held) => held.1 = needed.max(held.1),
                    None if *pages < needed => grown.segments.push((segment, needed)),
                    None => {}
                }
            }
        }
        Some(grown)
    }

    /// Whether a relation's page is there, behind the record.
    fn exists(&self, directory: &Directory, key: &Key) -> bool {
        let Some(rel) = key.rel() else { return true };
        let grown = self.sizes.iter().find(|(other, _)| *other == rel);
        let grown = grown.map(|(_, blocks)| *blocks);
        let blocks = grown.or(directory.sizes.get(&rel).copied().flatten());
        blocks.is_some_and(|blocks| key.e < blocks)
    }
}
