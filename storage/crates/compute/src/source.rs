//! Where a volume gets what it does not have: the interface between the cache and the storage behind it.

use bytes::Bytes;
use pg_types::{RelTag, SlruKind};

/// Why storage did not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceError {
    /// What was asked for does not exist (any more).
    #[error("{0}")]
    NotFound(String),
    /// No answer within the deadline, or one that can't be used.
    #[error("{0}")]
    Failed(String),
    /// A newer compute owns the timeline: nothing more will be answered.
    #[error("fenced: {0}")]
    Fenced(String),
}

/// Storage as a volume sees it: the state at the LSN the compute started from. Calls block, for at most the
/// source's deadline; the lists never change, because everything after the start is the volume's own truth.
pub trait PageSource: Send + Sync + 'static {
    /// Database directories as `(tablespace, database)`.
    fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError>;

    /// Every fork below a database directory with its blocks; database 0 with the global tablespace lists
    /// the shared relations.
    fn relations(&self, spc: u32, db: u32) -> Result<Vec<(RelTag, u32)>, SourceError>;

    /// Segments as `(segment number, pages)`.
    fn slru_segments(&self, kind: SlruKind) -> Result<Vec<(u32, u32)>, SourceError>;

    /// Pages in the order asked, each 8192 bytes, or none for a page of zeroes. At most
    /// [`wire::page::MAX_PAGES_PER_REQUEST`] at a time.
    fn pages(&self, rel: RelTag, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError>;

    /// As [`PageSource::pages`], for an SLRU.
    fn slru_pages(&self, kind: SlruKind, pages: &[u32]) -> Result<Vec<Bytes>, SourceError>;
}
