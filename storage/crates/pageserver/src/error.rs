//! The pageserver's errors, sorted by what the caller can do about them.

use pg_types::{Lsn, Term};
use wire::page::{ErrorKind, ErrorReply};

/// An error that a caller of the pageserver sees. Messages say what happened, to what, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    BadRequest(String),
    #[error(
        "term {term} is fenced: a compute with term {max_term} owns the timeline; stop this compute"
    )]
    Fenced { term: Term, max_term: Term },
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    PreconditionFailed(String),
    #[error(
        "timed out after {waited_ms} ms waiting for LSN {wanted} (ingested up to {reached}); retry"
    )]
    Timeout {
        wanted: Lsn,
        reached: Lsn,
        waited_ms: u64,
    },
    #[error("{0}")]
    Stopped(String),
    /// The pageserver is going down or the timeline is being deleted.
    #[error("{0}")]
    ShuttingDown(String),
    #[error("{0:#}")]
    Internal(anyhow::Error),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Error {
        // An error of ours that travelled through anyhow keeps its kind.
        error.downcast::<Error>().unwrap_or_else(Error::Internal)
    }
}

impl Error {
    /// The stable word clients branch on, and the HTTP status that goes with it.
    pub fn code(&self) -> (&'static str, u16) {
        match self {
            Error::NotFound(_) => ("not_found", 404),
            Error::BadRequest(_) => ("bad_request", 400),
            Error::Fenced { .. } => ("fenced", 409),
            Error::Conflict(_) => ("conflict", 409),
            Error::PreconditionFailed(_) => ("precondition_failed", 412),
            Error::Timeout { .. } => ("timeout", 503),
            Error::Stopped(_) => ("stopped", 503),
            Error::ShuttingDown(_) => ("shutting_down", 503),
            Error::Internal(_) => ("internal", 500),
        }
    }

    /// The error as the page service reports it.
    pub fn to_reply(&self) -> ErrorReply {
        let kind = match self {
            Error::NotFound(_) => ErrorKind::NotFound,
            Error::BadRequest(_) | Error::PreconditionFailed(_) => ErrorKind::BadRequest,
            Error::Fenced { .. } => ErrorKind::Fenced,
            Error::Timeout { .. } => ErrorKind::Timeout,
            Error::Stopped(_) => ErrorKind::Stopped,
            Error::Conflict(_) | Error::ShuttingDown(_) | Error::Internal(_) => ErrorKind::Internal,
        };
        ErrorReply {
            kind,
            message: self.to_string(),
        }
    }
}
