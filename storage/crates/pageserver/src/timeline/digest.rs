//! A digest of everything a timeline holds at an LSN: proof that all of it can be read, and a way to compare.
//!
//! Versions never change, so the digest at an LSN is the same for ever, on any pageserver that serves the timeline.

use bytes::Bytes;
use pg_types::{BLCKSZ, Lsn, SLRU_PAGES_PER_SEGMENT, SlruKind};

use super::Timeline;
use crate::api::Digest;
use crate::error::Result;

/// Pages made at a time.
const BATCH: usize = 128;
static ZEROES: [u8; BLCKSZ] = [0; BLCKSZ];

/// CRC-32C over names, sizes and pages, in the order of the listings.
#[derive(Default)]
struct Sum {
    crc32c: u32,
    pages: u64,
}

impl Sum {
    fn name(&mut self, name: &str) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, name.as_bytes());
    }

    fn page(&mut self, bytes: &Bytes) {
        let bytes = if bytes.is_empty() {
            &ZEROES
        } else {
            &bytes[..]
        };
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        self.pages += 1;
    }
}

impl Timeline {
    /// Reads every page of every relation and SLRU as of `at`, the newest LSN if it is `None`; waits for it to be
    /// ingested. Fails with the error of the first page that cannot be read, and as [`Timeline::resolve_position`]
    /// does.
    pub async fn digest(&self, at: Option<Lsn>) -> Result<Digest> {
        let at = self.resolve_position(Lsn::INVALID, at).await?;
        let mut sum = Sum::default();
        let mut relations = 0;
        for (spc, db) in self.reads.list_databases(at).await? {
            for (rel, size) in self.reads.list_rels(spc, db, at).await? {
                sum.name(&format!("{rel} {size}"));
                relations += 1;
                let blocks: Vec<u32> = (0..size).collect();
                for blocks in blocks.chunks(BATCH) {
                    let pages = self.reads.rel_pages(rel, blocks, at).await?;
                    pages.iter().for_each(|page| sum.page(&page.bytes));
                }
                // Of a million empty relations nothing is read, and of SLRUs what is at hand.
                tokio::task::yield_now().await;
            }
        }
        for kind in SlruKind::ALL {
            for (segment, size) in self.reads.list_slru_segments(kind, at).await? {
                sum.name(&format!("{} {segment} {size}", kind.directory()));
                for page in 0..size {
                    let pageno = segment * SLRU_PAGES_PER_SEGMENT + page;
                    sum.page(&self.reads.slru_page(kind, pageno, at).await?.bytes);
                }
                tokio::task::yield_now().await;
            }
        }
        // Meanwhile history may have been trimmed.
        self.check_readable(at)?;
        Ok(Digest {
            lsn: at,
            relations,
            pages: sum.pages,
            crc32c: format!("{:08x}", sum.crc32c),
        })
    }
}
