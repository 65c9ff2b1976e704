//! The source of a timeline's committed WAL, as a trait.
//!
//! Ingest sees only this trait, so that WAL comes from safekeepers in operation and from a file in tests. Invariant:
//! a source hands out committed bytes only, so that no byte which a later term may truncate reaches a timeline.

mod safekeeper;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use consensus::TermHistory;
use pg_types::{Lsn, Term};

pub use self::safekeeper::SafekeeperSource;
use crate::term_history::Ingested;

/// A piece of committed WAL, cut anywhere; empty when it only carries news.
#[derive(Clone, Debug)]
pub struct WalChunk {
    /// Where `bytes` begin: where the piece before ended.
    pub start_lsn: Lsn,
    /// The WAL as Postgres wrote it, page headers included.
    pub bytes: Bytes,
    /// How far the WAL is committed, as far as the source knows; the chunk never reaches beyond.
    pub commit_lsn: Lsn,
    /// The highest term the source has seen.
    pub term: Term,
    /// Term history of the log that this piece and those that follow come from; none when it is the history told
    /// before, and always from a source that knows no terms.
    pub history: Option<Arc<TermHistory>>,
}

/// Where a reader stands.
#[derive(Clone, Copy, Default)]
pub struct Standing<'a> {
    /// A record boundary: WAL is wanted from here on.
    pub start: Lsn,
    /// Places to read from only when no other one has WAL behind `start`.
    pub in_vain: &'a [String],
    /// The terms that wrote the WAL before `start`, and WAL behind it that had been read before; `None` when they
    /// were not noted.
    pub ingested: Option<&'a Ingested>,
}

/// What came of an attempt to open a stream.
pub struct Opening {
    /// An error means "try again later".
    pub stream: anyhow::Result<Box<dyn WalStream>>,
    /// Places that keep the WAL of another history than the reader has, and how it differs. None of them is read.
    pub others: Vec<(String, String)>,
    /// The terms that wrote the WAL before `start`, which the source found out because the reader did not know them.
    pub found: Option<Ingested>,
}

/// What the reader tells the source, so that the compute learns about ingest and safekeepers can trim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalFeedback {
    /// End of the last ingested record.
    pub ingested_lsn: Lsn,
    /// Everything before is in the object store, so that the source need not keep it for this reader.
    pub remote_consistent_lsn: Lsn,
}

/// What came of telling every place how far the reader is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// How far WAL is committed as far as any of them knows; invalid when none does.
    pub commit_lsn: Lsn,
    /// Places whose log is the one that was ingested, as far as they have it committed.
    pub agreeing: Vec<String>,
    /// Places that keep the WAL of another history, and how it differs.
    pub others: Vec<(String, String)>,
}

/// Opens streams of one timeline's WAL.
#[async_trait]
pub trait WalSource: Send + Sync + 'static {
    /// Streams from `start`, a record boundary. An error means "try again later".
    async fn open(&self, start: Lsn) -> anyhow::Result<Box<dyn WalStream>>;

    /// Streams from where the reader stands, from a place whose log has the history that the reader has read.
    async fn open_for(&self, standing: Standing<'_>) -> Opening {
        Opening {
            stream: self.open(standing.start).await,
            others: Vec::new(),
            found: None,
        }
    }

    /// Names of the places that keep this WAL at present; none for a source of one place.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }

    /// Tells every place that keeps WAL for this reader, not only the one it streams from, how far it has
    /// come; else the others would keep it for ever. A place that can't be reached now is told next time. One that
    /// keeps another history than was `ingested` is neither told, since what it keeps was not read, nor believed.
    async fn report(&self, feedback: WalFeedback, ingested: Option<&Ingested>) -> Reported {
        let _ = (feedback, ingested);
        Reported::default()
    }
}

/// One stream; dropping it ends it.
#[async_trait]
pub trait WalStream: Send {
    /// The next piece, in order and without a gap. Must be cancel safe. Fails when the stream has ended or can't be
    /// read; the reader then opens another.
    async fn next(&mut self) -> anyhow::Result<WalChunk>;

    /// Tells the source how far the reader is. Fails when the stream has ended; the reader then opens another.
    async fn feedback(&mut self, feedback: WalFeedback) -> anyhow::Result<()>;

    /// Which of the source's places it comes from.
    fn place(&self) -> &str {
        ""
    }
}
