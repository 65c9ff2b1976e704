//! What can go wrong between here and object storage.

use std::path::PathBuf;

use layers::LayerError;
use pg_types::TimelineId;

use crate::index::Generation;

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("object store: {0}")]
    Store(#[from] object_store::Error),
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("object {path} is damaged: {reason}")]
    Corrupt { path: String, reason: String },
    #[error(
        "object {path} has format version {found}; this program reads up to {known}: use a newer one"
    )]
    TooNew {
        path: String,
        found: u32,
        known: u32,
    },
    /// Another pageserver has claimed the timeline: stop serving it here.
    #[error("generation {ours} of this pageserver is superseded by generation {newest}")]
    Fenced {
        ours: Generation,
        newest: Generation,
    },
    #[error("timeline {0} is deleted or being deleted: nothing may be written to it")]
    Deleted(TimelineId),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("object store address {address:?} is not supported: {reason}")]
    Address { address: String, reason: String },
    /// The queue gave up for good; the reason is the error it met.
    #[error("uploads have stopped: {0}")]
    Stopped(String),
}

impl BlobError {
    /// Whether trying again can help.
    pub fn is_transient(&self) -> bool {
        matches!(self, BlobError::Store(_) | BlobError::File { .. })
    }
}
