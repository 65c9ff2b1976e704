//! The pageserver as what a volume is filled from.

use std::time::Instant;

use bytes::Bytes;
use pg_types::{Lsn, RelTag, SlruKind};
use tokio::runtime::Handle;
use wire::page::{PageReply, ReadPosition};

use super::PageClient;
use crate::metrics::Reads;
use crate::source::{PageSource, SourceError};

/// Storage as of the LSN the compute started from. To be called from threads outside of the runtime.
pub struct StorageSource {
    client: PageClient,
    start: Lsn,
    runtime: Handle,
    reads: Reads,
}

impl StorageSource {
    /// Storage as of LSN `start`. `runtime` carries the requests and must not be the one that calls, since calls
    /// block. How long pages took, and how many deltas they were made of, goes to `reads`.
    pub fn new(client: PageClient, start: Lsn, runtime: Handle, reads: Reads) -> StorageSource {
        StorageSource {
            client,
            start,
            runtime,
            reads,
        }
    }

    /// Names and sizes are wanted as they were at the start, however far the WAL has come.
    fn exactly(&self) -> ReadPosition {
        ReadPosition {
            not_modified_since: self.start,
            at: Some(self.start),
        }
    }

    /// A page that never was here can't have changed since the start: only this compute writes, and it reads
    /// a page before it changes it. So the newest version will do, which storage finds most cheaply.
    fn newest(&self) -> ReadPosition {
        ReadPosition {
            not_modified_since: self.start,
            at: None,
        }
    }

    fn observe(&self, started: Instant, pages: Vec<PageReply>) -> Vec<Bytes> {
        self.reads.seconds.observe(started.elapsed().as_secs_f64());
        pages
            .into_iter()
            .map(|page| {
                self.reads
                    .chain_length
                    .observe(f64::from(page.chain_length));
                page.bytes
            })
            .collect()
    }
}

impl PageSource for StorageSource {
    fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError> {
        self.runtime.block_on(self.client.databases(self.exactly()))
    }

    fn relations(&self, spc: u32, db: u32) -> Result<Vec<(RelTag, u32)>, SourceError> {
        self.runtime
            .block_on(self.client.relations(self.exactly(), spc, db))
    }

    fn slru_segments(&self, kind: SlruKind) -> Result<Vec<(u32, u32)>, SourceError> {
        self.runtime
            .block_on(self.client.slru_segments(self.exactly(), kind))
    }

    fn pages(&self, rel: RelTag, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        let started = Instant::now();
        let asked = self.client.pages(self.newest(), rel, blocks.to_vec());
        let (_, pages) = self.runtime.block_on(asked)?;
        Ok(self.observe(started, pages))
    }

    fn slru_pages(&self, kind: SlruKind, pages: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        let started = Instant::now();
        let position = self.newest();
        let asked = pages
            .iter()
            .map(|page| self.client.slru_page(position, kind, *page));
        let pages = self
            .runtime
            .block_on(futures::future::try_join_all(asked))?;
        Ok(self.observe(started, pages))
    }
}
