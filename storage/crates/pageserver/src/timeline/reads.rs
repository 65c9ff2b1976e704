//! What can be read of a timeline at an LSN: pages, sizes, listings.
//!
//! Every function takes the LSN it reads at, which the caller has resolved and waited for; nothing here
//! waits for WAL. Sizes and truncations are themselves versioned values, so that an answer is exact for
//! any LSN of the timeline's history.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use pg_types::{ForkNumber, Key, KeyKind, KeyRange, Lsn, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};
use wire::page::PageReply;

use super::identity::Identity;
use super::images::Images;
use crate::error::{Error, Result};
use crate::floor::RelFloor;
use crate::version_store::VersionStore;

/// A list of so many values, or more, is made off the async worker: a user can have millions of relations.
pub(crate) const LONG_LIST: usize = 16 << 10;

/// Reads of pages, sizes and listings at an LSN. This part has no state of its own; it reports to `Images` how long
/// the chains were. Every read fails with `Internal` when a layer can't be read or a version can't be redone or
/// decoded; the message names what.
pub struct Reads {
    identity: Arc<Identity>,
    store: Arc<VersionStore>,
    images: Arc<Images>,
}

impl Reads {
    pub(super) fn new(
        identity: Arc<Identity>,
        store: Arc<VersionStore>,
        images: Arc<Images>,
    ) -> Reads {
        Reads {
            identity,
            store,
            images,
        }
    }

    /// A metadata value; `None` when the key does not exist.
    pub(crate) async fn value(&self, key: Key, at: Lsn) -> Result<Option<Bytes>> {
        Ok(self.values(&[key], at).await?.pop().flatten())
    }

    pub(crate) async fn values(&self, keys: &[Key], at: Lsn) -> Result<Vec<Option<Bytes>>> {
        self.store.values(keys, at).await
    }

    /// The existing metadata values of a range of keys.
    pub(crate) async fn scan(&self, range: KeyRange, at: Lsn) -> Result<Vec<(Key, Bytes)>> {
        let values = self.store.scan(range, at).await?;
        let is_long = values.len() >= LONG_LIST;
        let metadata = |(key, _, value)| match value {
            layers::Value::Meta(bytes) => Some((key, bytes)),
            _ => None,
        };
        let metadata = || values.into_iter().filter_map(metadata).collect();
        Ok(stalls::off_worker_if(is_long, metadata))
    }

    /// Makes pages, hiding versions at or below each key's floor.
    pub(crate) async fn pages(&self, keys: &[(Key, Lsn)], at: Lsn) -> Result<Vec<PageReply>> {
        let pages = self.store.pages(keys, at).await?;
        let pages = pages
            .into_iter()
            .collect::<Result<Vec<_>>>()
            .map_err(|error| self.redo_failed(error, at))?;
        let replayed = keys.iter().zip(&pages);
        let replayed: Vec<(Key, u32)> = replayed
            .map(|((key, _), page)| (*key, page.chain_length))
            .collect();
        self.images.note_reads(&replayed, at);
        Ok(pages
            .into_iter()
            .map(|page| PageReply {
                bytes: page.bytes,
                chain_length: page.chain_length,
            })
            .collect())
    }

    fn redo_failed(&self, error: Error, at: Lsn) -> Error {
        tracing::error!(tenant = %self.identity.tenant, timeline = %self.identity.id, %at, "cannot make a page: {error}");
        Error::Internal(anyhow::anyhow!(
            "{error} (tenant {}, timeline {}, read at {at})",
            self.identity.tenant,
            self.identity.id
        ))
    }

    /// Pages of a fork, in the order asked. Fails with `NotFound` when the fork does not exist at the LSN or has not
    /// all the blocks.
    pub async fn rel_pages(&self, rel: RelTag, blocks: &[u32], at: Lsn) -> Result<Vec<PageReply>> {
        let metadata = self
            .values(&[Key::rel_size(rel), Key::rel_floor(rel)], at)
            .await?;
        let size = match &metadata[0] {
            Some(value) => decode_u32(value)?,
            None => {
                return Err(self
                    .identity
                    .not_found(format!("relation {rel} does not exist at LSN {at}")));
            }
        };
        if let Some(block) = blocks.iter().find(|block| **block >= size) {
            return Err(self.identity.not_found(format!(
                "relation {rel} has {size} blocks at LSN {at}, block {block} was asked for"
            )));
        }
        let floor = decode_floor(metadata[1].as_ref())?;
        let keys: Vec<(Key, Lsn)> = blocks
            .iter()
            .map(|block| (Key::rel_block(rel, *block), floor.of_block(*block)))
            .collect();
        self.pages(&keys, at).await
    }

    /// A page of a relation that can be had at once, without waiting for anything: it was read before, and memory
    /// alone tells that it is the same still.
    pub(crate) fn hot_page(&self, rel: RelTag, block: u32, at: Lsn) -> Option<PageReply> {
        let size = self.store.hot_value(Key::rel_size(rel), at)??;
        decode_u32(&size).ok().filter(|size| block < *size)?;
        let floor = self.store.hot_value(Key::rel_floor(rel), at)?;
        let floor = decode_floor(floor.as_ref()).ok()?;
        let key = Key::rel_block(rel, block);
        let bytes = self.store.hot_page(key, floor.of_block(block), at)?;
        self.images.note_hot_read();
        Some(PageReply {
            bytes,
            chain_length: 0,
        })
    }

    /// A page of an SLRU, `pageno` being counted from the SLRU's begin. Fails with `NotFound` when the page is not
    /// within a segment that exists at the LSN.
    pub async fn slru_page(&self, kind: SlruKind, pageno: u32, at: Lsn) -> Result<PageReply> {
        let segno = pageno / SLRU_PAGES_PER_SEGMENT;
        let pages = match self.value(Key::slru_segment(kind, segno), at).await? {
            Some(value) => decode_u32(&value)?,
            None => 0,
        };
        if pageno % SLRU_PAGES_PER_SEGMENT >= pages {
            return Err(self.identity.not_found(format!(
                "{} has {pages} pages in segment {segno:04X} at LSN {at}, page {pageno} was asked for",
                kind.directory()
            )));
        }
        let mut found = self
            .pages(&[(Key::slru_block(kind, pageno), Lsn::INVALID)], at)
            .await?;
        Ok(found.pop().context("one page was asked for")?)
    }

    /// Size of a fork in blocks; `None` when it does not exist.
    pub async fn rel_size(&self, rel: RelTag, at: Lsn) -> Result<Option<u32>> {
        self.value(Key::rel_size(rel), at)
            .await?
            .as_ref()
            .map(decode_u32)
            .transpose()
    }

    /// The truncations of a fork as of an LSN.
    pub(crate) async fn rel_floor(&self, rel: RelTag, at: Lsn) -> Result<RelFloor> {
        decode_floor(self.value(Key::rel_floor(rel), at).await?.as_ref())
    }

    /// The sizes of several forks, as [`rel_size`](Reads::rel_size) gives them.
    pub(super) async fn rel_sizes_of(&self, rels: &[RelTag], at: Lsn) -> Result<Vec<Option<u32>>> {
        let keys: Vec<Key> = rels.iter().map(|rel| Key::rel_size(*rel)).collect();
        let values = self.values(&keys, at).await?;
        let sizes = values
            .iter()
            .map(|value| value.as_ref().map(decode_u32).transpose());
        sizes.collect()
    }

    /// The truncations of several forks, as [`rel_floor`](Reads::rel_floor) gives them.
    pub(super) async fn rel_floors(&self, rels: &[RelTag], at: Lsn) -> Result<Vec<RelFloor>> {
        let keys: Vec<Key> = rels.iter().map(|rel| Key::rel_floor(*rel)).collect();
        let values = self.values(&keys, at).await?;
        values
            .iter()
            .map(|value| decode_floor(value.as_ref()))
            .collect()
    }

    /// Every fork in the directory of a database (`db`, 0 for shared relations) of a tablespace (`spc`), with its
    /// size in blocks.
    pub async fn list_rels(&self, spc: u32, db: u32, at: Lsn) -> Result<Vec<(RelTag, u32)>> {
        let first = Key::rel_size(RelTag {
            spc,
            db,
            rel: 0,
            fork: ForkNumber::Main,
        });
        let last = Key {
            c: u32::MAX,
            d: u8::MAX,
            e: u32::MAX,
            ..first
        };
        self.rel_sizes(KeyRange { first, last }, at).await
    }

    /// Every fork of the timeline with its size.
    pub(super) async fn all_rels(&self, at: Lsn) -> Result<Vec<(RelTag, u32)>> {
        self.rel_sizes(whole(KeyKind::RelSize), at).await
    }

    async fn rel_sizes(&self, range: KeyRange, at: Lsn) -> Result<Vec<(RelTag, u32)>> {
        let values = self.scan(range, at).await?;
        let sized = |(key, value): (Key, Bytes)| {
            let rel = key
                .rel()
                .with_context(|| format!("{key} is not a relation size"))?;
            Ok((rel, decode_u32(&value)?))
        };
        let is_long = values.len() >= LONG_LIST;
        stalls::off_worker_if(is_long, || values.into_iter().map(sized).collect())
    }

    /// Database directories as `(tablespace, database)`, both by OID.
    pub async fn list_databases(&self, at: Lsn) -> Result<Vec<(u32, u32)>> {
        let values = self.scan(whole(KeyKind::Database), at).await?;
        Ok(values.iter().map(|(key, _)| (key.a, key.b)).collect())
    }

    /// Segments of an SLRU as `(segment number, pages)`.
    pub async fn list_slru_segments(&self, kind: SlruKind, at: Lsn) -> Result<Vec<(u32, u32)>> {
        let range = KeyRange {
            first: Key::slru_segment(kind, 0),
            last: Key::slru_segment(kind, u32::MAX),
        };
        let values = self.scan(range, at).await?;
        values
            .iter()
            .map(|(key, value)| Ok((key.e, decode_u32(value)?)))
            .collect()
    }

    /// Bytes of all main forks.
    pub(super) async fn size_at(&self, at: Lsn) -> Result<u64> {
        let sizes = self.all_rels(at).await?;
        let main = sizes.iter().filter(|(rel, _)| rel.fork == ForkNumber::Main);
        Ok(main
            .map(|(_, blocks)| u64::from(*blocks) * pg_types::BLCKSZ as u64)
            .sum())
    }
}

/// All keys of a kind.
pub(super) fn whole(kind: KeyKind) -> KeyRange {
    KeyRange {
        first: Key::min_of(kind),
        last: Key::max_of(kind),
    }
}

pub(crate) fn decode_u32(value: &Bytes) -> Result<u32> {
    let bytes: [u8; 4] = value[..]
        .try_into()
        .map_err(|_| anyhow::anyhow!("a size of {} bytes", value.len()))?;
    Ok(u32::from_le_bytes(bytes))
}

pub(super) fn decode_floor(value: Option<&Bytes>) -> Result<RelFloor> {
    match value {
        Some(value) => Ok(postcard::from_bytes(value).context("decode a relation's truncations")?),
        None => Ok(RelFloor::default()),
    }
}
