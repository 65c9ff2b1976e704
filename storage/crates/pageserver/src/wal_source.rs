//! Where a timeline's committed WAL comes from.
//!
//! Ingest sees only this trait, so that it can be fed by safekeepers in operation and by a file in tests.
//! A source hands out committed bytes only: what a later term may truncate never reaches a timeline.

use async_trait::async_trait;
use bytes::Bytes;
use pg_types::{Lsn, Term};

/// A piece of committed WAL, cut anywhere; empty when it only carries news.
#[derive(Clone, Debug)]
pub struct WalChunk {
    pub start_lsn: Lsn,
    pub bytes: Bytes,
    /// How far the WAL is committed, as far as the source knows; the chunk never reaches beyond.
    pub commit_lsn: Lsn,
    /// The highest term the source has seen.
    pub term: Term,
}

/// What the reader tells the source, so that the compute learns about ingest and safekeepers can trim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalFeedback {
    pub ingested_lsn: Lsn,
    pub remote_consistent_lsn: Lsn,
}

/// Opens streams of one timeline's WAL.
#[async_trait]
pub trait WalSource: Send + Sync + 'static {
    /// Streams from `start`, a record boundary. An error means "try again later".
    async fn open(&self, start: Lsn) -> anyhow::Result<Box<dyn WalStream>>;

    /// The same, from one of `in_vain` only when no other place has WAL behind `start`.
    async fn open_elsewhere(
        &self,
        start: Lsn,
        in_vain: &[String],
    ) -> anyhow::Result<Box<dyn WalStream>> {
        let _ = in_vain;
        self.open(start).await
    }

    /// Names of the places that keep this WAL at present; none for a source of one place.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }

    /// Tells every place that keeps WAL for this reader, not only the one it streams from, how far it has
    /// come; else the others would keep it for ever. Returns how far WAL is committed as far as any of
    /// them knows. A place that can't be reached now is told next time.
    async fn report(&self, feedback: WalFeedback) -> Lsn {
        let _ = feedback;
        Lsn::INVALID
    }
}

/// One stream; dropping it ends it.
#[async_trait]
pub trait WalStream: Send {
    /// The next piece, in order and without a gap. Must be cancel safe.
    async fn next(&mut self) -> anyhow::Result<WalChunk>;

    async fn feedback(&mut self, feedback: WalFeedback) -> anyhow::Result<()>;

    /// Which of the source's places it comes from.
    fn place(&self) -> &str {
        ""
    }
}
