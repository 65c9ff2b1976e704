//! Making the images of a batch of pages.
//!
//! An image goes into the open layer as of a record that is ingested. A page that no longer exists is forgotten; one
//! that cannot be made is forgotten until it is written again, and keeps no other page from its image.

use std::collections::HashMap;

use bytes::Bytes;
use layers::{ImageRule, ImageTask};
use pg_types::{BLCKSZ, Key, Lsn, RelTag};

use super::Images;
use crate::error::Result;
use crate::metrics::ImageReason;
use crate::redo::Page;
use crate::timeline::reads::{decode_floor, decode_u32};

/// Relations whose sizes are read at once: milliseconds of work.
const SIZES_AT_ONCE: usize = 256;

/// While it lives, images may be put as of `at`.
pub(in crate::timeline) struct Making<'a> {
    images: &'a Images,
    pub(in crate::timeline) at: Lsn,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        *self.images.making.lock() = None;
    }
}

impl Images {
    /// Images are about to be made as of the last record. There is one task that makes any.
    pub(in crate::timeline) fn begin_making(&self) -> Making<'_> {
        let mut making = self.making.lock();
        // Under the lock: whoever finds that none is being made knows that the next one is of no earlier record than the
        // last one at that moment.
        let at = self.position.last_record_lsn();
        *making = Some(at);
        Making { images: self, at }
    }

    /// As of which record images are being made, [`Lsn::MAX`] while none are. What is begun later is as of the last record
    /// by then.
    pub(in crate::timeline) fn oldest_in_making(&self) -> Lsn {
        self.making.lock().unwrap_or(Lsn::MAX)
    }

    /// The sizes of relation forks as of the last record; `None` of one that does not exist.
    pub(super) async fn sizes_of(&self, rels: Vec<RelTag>) -> Result<HashMap<RelTag, Option<u32>>> {
        let at = self.position.last_record_lsn();
        let mut sizes = HashMap::with_capacity(rels.len());
        for rels in rels.chunks(SIZES_AT_ONCE) {
            let keys: Vec<Key> = rels.iter().map(|rel| Key::rel_size(*rel)).collect();
            let values = self.store.values(&keys, at).await?;
            for (rel, value) in rels.iter().zip(values) {
                sizes.insert(*rel, value.as_ref().map(decode_u32).transpose()?);
            }
            // A database has thousands.
            tokio::task::yield_now().await;
        }
        Ok(sizes)
    }

    /// Makes images of these pages as of `at`, which is ingested.
    pub(super) async fn make_images(
        &self,
        tasks: &[ImageTask],
        rule: ImageRule,
        at: Lsn,
    ) -> Result<()> {
        let full_page_writes = self.position.full_page_writes();
        let reason = |deltas: u32| match rule {
            ImageRule::Fixed(_) if full_page_writes => ImageReason::Threshold,
            ImageRule::Fixed(_) => ImageReason::Pushdown,
            ImageRule::Adaptive { bound } if deltas < bound => ImageReason::Read,
            ImageRule::Adaptive { .. } => ImageReason::Bound,
        };
        let keys: Vec<Key> = tasks.iter().map(|task| task.key).collect();
        let mut wanted = Vec::with_capacity(tasks.len());
        for (key, floor) in keys.iter().zip(self.visible_floors(&keys, at).await?) {
            match floor {
                Some(floor) => wanted.push((*key, floor)),
                None => self.counts.lock().forget(key, at),
            }
        }
        let pages = self.store.pages_anew(&wanted, at).await?;
        crash::point!("images.made");
        for ((key, _), page) in wanted.into_iter().zip(pages) {
            match page {
                Ok(page) => self.put_image(key, at, &page, reason(page.chain_length))?,
                Err(error) => {
                    // Reads of this page fail as well and say so; the other pages still get their images.
                    tracing::error!(tenant = %self.identity.tenant, timeline = %self.identity.id, %key, %at, "no image: {error}");
                    self.counts.lock().forget(&key, Lsn::MAX);
                }
            }
        }
        Ok(())
    }

    fn put_image(&self, key: Key, at: Lsn, page: &Page, reason: ImageReason) -> Result<()> {
        let made = page.chain_length;
        if made > 0 {
            let bytes = if page.bytes.is_empty() {
                Bytes::from(vec![0; BLCKSZ])
            } else {
                page.bytes.clone()
            };
            self.store.append_image(key, at, bytes)?;
            crash::point!("images.appended");
            self.identity.metrics.observe_image(reason, BLCKSZ);
        }
        self.counts.lock().image_made(&key, at, made);
        Ok(())
    }

    /// The floor of each page's versions; `None` when the page does not exist.
    async fn visible_floors(&self, keys: &[Key], at: Lsn) -> Result<Vec<Option<Lsn>>> {
        let mut rels: Vec<RelTag> = keys.iter().filter_map(Key::rel).collect();
        rels.sort_unstable();
        rels.dedup();
        let directory: Vec<Key> = rels
            .iter()
            .flat_map(|rel| [Key::rel_size(*rel), Key::rel_floor(*rel)])
            .collect();
        let values = self.store.values(&directory, at).await?;
        let mut known = HashMap::with_capacity(rels.len());
        for (rel, value) in rels.into_iter().zip(values.chunks_exact(2)) {
            let blocks = value[0].as_ref().map(decode_u32).transpose()?;
            known.insert(rel, (blocks, decode_floor(value[1].as_ref())?));
        }
        let floor_of = |key: &Key| match key.rel() {
            None => Some(Lsn::INVALID),
            Some(rel) => {
                let (blocks, floor) = known.get(&rel)?;
                blocks.filter(|blocks| key.e < *blocks)?;
                Some(floor.of_block(key.e))
            }
        };
        Ok(keys.iter().map(floor_of).collect())
    }
}
