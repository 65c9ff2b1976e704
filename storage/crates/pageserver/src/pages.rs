//! Values of a timeline: chains gathered in one pass over the layers, then redone, and kept for the next read.
//!
//! A few pages are made where they are asked for. More are cut into parts of neighbouring keys, each gathered and
//! redone on a thread of its own, so that reading layers, decompressing and redo go on side by side, and a long read
//! does not hold up a short one. For a page that an earlier read made, only newer versions are looked for
//! (`page_cache`).

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use layers::{Base, Chain};
use pg_types::{Key, KeyKind, Lsn};

use crate::error::Result;
use crate::page_cache::{Entry, Made};
use crate::redo::{Page, redo};
use crate::version_store::{INLINE_KEYS, Obstacle, ReadRetry, VersionStore};

/// Parts of one read that are worked on at the same time.
const PARTS: usize = 4;
/// A part of fewer keys is not worth a thread.
const SMALLEST_PART: usize = 16;

/// Pages of reads of more keys than this are made and not kept, unless an earlier version was.
const MOST_KEPT: usize = 32;

/// A key to be read, and what an earlier read says about it.
#[derive(Clone)]
struct Wanted {
    key: Key,
    floor: Lsn,
    known: Option<(Arc<Entry>, Lsn)>,
    /// Whether what is found is kept for the next read.
    keep: bool,
}

impl Wanted {
    /// What has to be looked for: what is above the floor, and later than what is known.
    fn unknown(&self) -> (Key, Lsn) {
        let known = self.known.as_ref().map_or(Lsn::INVALID, |(_, upto)| *upto);
        (self.key, self.floor.max(known))
    }

    /// See [`Entry::leads_on`].
    fn leads_on(&self, at: Lsn, gone: Lsn) -> bool {
        let known = self.known.as_ref();
        known.is_none_or(|(_, upto)| Entry::leads_on(*upto, at, gone))
    }
}

impl VersionStore {
    /// Makes pages as of `at`, in the order asked, each from the versions above its floor, without regard to what is
    /// kept. A page that can't be redone is an error of its own.
    pub async fn pages_anew(
        self: &Arc<VersionStore>,
        keys: &[(Key, Lsn)],
        at: Lsn,
    ) -> Result<Vec<Result<Page>>> {
        let wanted = keys.iter().map(|(key, floor)| Wanted {
            key: *key,
            floor: *floor,
            known: None,
            keep: false,
        });
        self.make(wanted.collect(), at).await
    }

    /// Makes pages as of `at` as [`VersionStore::pages_anew`] does, but from the pages that earlier reads made where
    /// there are some. A page's chain length is then the number of deltas that had to be applied now.
    pub async fn pages(
        self: &Arc<VersionStore>,
        keys: &[(Key, Lsn)],
        at: Lsn,
    ) -> Result<Vec<Result<Page>>> {
        // A compute that reads ahead keeps what it gets: a scan would only take the place of what is asked for again.
        let is_scan = keys.len() > MOST_KEPT;
        self.make(self.look_up(keys, at, is_scan), at).await
    }

    /// Metadata values as of `at`; `None` for a key that does not exist.
    pub async fn values(&self, keys: &[Key], at: Lsn) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<(Key, Lsn)> = keys.iter().map(|key| (*key, Lsn::INVALID)).collect();
        let is_known = |wanted: &Wanted| wanted.known.as_ref().is_some_and(|(_, upto)| *upto >= at);
        let (wanted, chains) = loop {
            let wanted = self.look_up(&keys, at, false);
            let unknown: Vec<(Key, Lsn)> = wanted
                .iter()
                .filter(|wanted| !is_known(wanted))
                .map(Wanted::unknown)
                .collect();
            let chains = match unknown.is_empty() {
                true => Vec::new(),
                false => self.chains(&unknown, at).await?,
            };
            // A tombstone may have gone between the two looks.
            let gone = self.gone_upto();
            if wanted.iter().all(|wanted| wanted.leads_on(at, gone)) {
                break (wanted, chains);
            }
        };
        let mut chains = chains.into_iter();
        let value = |wanted: &Wanted| {
            let chain = match is_known(wanted) {
                true => Chain::default(),
                false => chains.next().unwrap_or_default(),
            };
            self.value_of(wanted, &chain, at)
        };
        Ok(wanted.iter().map(value).collect())
    }

    /// A page that can be had at once: it is kept, and nothing but memory has to be asked whether it still holds.
    pub fn hot_page(&self, key: Key, floor: Lsn, at: Lsn) -> Option<Bytes> {
        match &self.hot(key, floor, at)?.value {
            Made::Page(bytes) => Some(bytes.clone()),
            Made::Meta(_) => None,
        }
    }

    /// The same of a metadata value.
    pub fn hot_value(&self, key: Key, at: Lsn) -> Option<Option<Bytes>> {
        match &self.hot(key, Lsn::INVALID, at)?.value {
            Made::Meta(value) => Some(value.clone()),
            Made::Page(_) => None,
        }
    }

    fn hot(&self, key: Key, floor: Lsn, at: Lsn) -> Option<Arc<Entry>> {
        let entry = self.kept().get(self.number(), key)?;
        let upto = entry.known_upto(floor, at)?;
        if upto < at {
            // In this order: a map in which a drop is missing is seen only after `gone_here` says so. What the ancestors
            // have is at or before what is known here.
            if !self.is_unchanged(key, upto, at) || !Entry::leads_on(upto, at, self.gone_here()) {
                return None;
            }
            entry.extend(at);
        }
        Some(entry)
    }

    fn look_up(&self, keys: &[(Key, Lsn)], at: Lsn, is_scan: bool) -> Vec<Wanted> {
        // After the floors were read: where a floor is missing because it went, `gone` says so.
        let gone = self.gone_upto();
        let look_up = |(key, floor): &(Key, Lsn)| {
            if !is_only_of_wal(key) {
                return Wanted {
                    key: *key,
                    floor: *floor,
                    known: None,
                    keep: false,
                };
            }
            let entry = self.kept().get(self.number(), *key);
            // A read of the past must not take the place of what later reads can use.
            let keep = match &entry {
                Some(entry) => !entry.is_later_than(at),
                None => !is_scan,
            };
            let known = entry.and_then(|entry| {
                let upto = entry.known_upto(*floor, at)?;
                Entry::leads_on(upto, at, gone).then_some((entry, upto))
            });
            Wanted {
                key: *key,
                floor: *floor,
                known,
                keep,
            }
        };
        keys.iter().map(look_up).collect()
    }

    async fn make(
        self: &Arc<VersionStore>,
        wanted: Vec<Wanted>,
        at: Lsn,
    ) -> Result<Vec<Result<Page>>> {
        if wanted.len() <= INLINE_KEYS {
            let unknown: Vec<_> = wanted.iter().map(Wanted::unknown).collect();
            let chains = self.chains(&unknown, at).await?;
            return Ok(self.redo_all(&wanted, chains, at));
        }
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|place| wanted[*place].key);
        let size = wanted.len().div_ceil(PARTS).max(SMALLEST_PART);
        let mut parts = Vec::new();
        for places in order.chunks(size) {
            let part = places.iter().map(|place| wanted[*place].clone());
            parts.push(self.part(part.collect(), at));
        }
        let parts = futures::future::try_join_all(parts).await?;
        let mut found: Vec<(usize, Result<Page>)> =
            order.into_iter().zip(parts.into_iter().flatten()).collect();
        found.sort_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, page)| page).collect())
    }

    async fn part(
        self: &Arc<VersionStore>,
        wanted: Arc<[Wanted]>,
        at: Lsn,
    ) -> Result<Vec<Result<Page>>> {
        let mut retry = ReadRetry::default();
        loop {
            let (store, wanted) = (self.clone(), wanted.clone());
            let made = tokio::task::spawn_blocking(move || -> Result<_, Obstacle> {
                let unknown: Vec<_> = wanted.iter().map(Wanted::unknown).collect();
                let chains = store.try_chains(&unknown, at)?;
                Ok(store.redo_all(&wanted, chains, at))
            });
            match made.await.context("read task")? {
                Ok(pages) => return Ok(pages),
                Err(obstacle) => self.mend(obstacle, &mut retry).await?,
            }
        }
    }

    fn redo_all(&self, wanted: &[Wanted], chains: Vec<Chain>, at: Lsn) -> Vec<Result<Page>> {
        let pairs = wanted.iter().zip(chains);
        pairs
            .map(|(wanted, chain)| self.redo_one(wanted, chain, at))
            .collect()
    }

    fn redo_one(&self, wanted: &Wanted, mut chain: Chain, at: Lsn) -> Result<Page> {
        if let Some((entry, upto)) = &wanted.known
            && let Made::Page(page) = &entry.value
            && !chain.is_complete()
        {
            if chain.is_empty() {
                entry.extend(at);
                return Ok(Page {
                    bytes: page.clone(),
                    chain_length: 0,
                });
            }
            let base = match page.is_empty() {
                true => Base::Zero,
                false => Base::Image(page.clone()),
            };
            chain.base = Some((*upto, base));
        }
        let mut page = redo(wanted.key, &chain)?;
        if wanted.keep {
            if page.chain_length == 0 {
                // A page that shares a block's memory would keep all of it.
                page.bytes = Bytes::copy_from_slice(&page.bytes);
            }
            let made = Made::Page(page.bytes.clone());
            let entry = Entry::new(made, chain.lsn(), wanted.floor, at);
            self.kept().insert(self.number(), wanted.key, entry);
        }
        Ok(page)
    }

    fn value_of(&self, wanted: &Wanted, chain: &Chain, at: Lsn) -> Option<Bytes> {
        if let Some((entry, _)) = &wanted.known
            && let Made::Meta(value) = &entry.value
            && chain.is_empty()
        {
            entry.extend(at);
            return value.clone();
        }
        let value = chain.meta().cloned();
        if wanted.keep {
            let made = Made::Meta(value.clone());
            let entry = Entry::new(made, chain.lsn(), wanted.floor, at);
            self.kept().insert(self.number(), wanted.key, entry);
        }
        value
    }
}

/// Whether all versions of the key come from WAL, or equal what comes from it, so that none can appear at an LSN that
/// was read before. Files shipped at suspend, for one, are put at the newest LSN while it is the newest.
fn is_only_of_wal(key: &Key) -> bool {
    matches!(
        key.kind,
        KeyKind::RelBlock
            | KeyKind::SlruBlock
            | KeyKind::RelSize
            | KeyKind::RelFloor
            | KeyKind::SlruSegment
    )
}
