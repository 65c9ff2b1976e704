//! The pageserver's errors, sorted by what the caller can do about them.

use pg_types::{Lsn, Term};
use wire::page::{ErrorKind, ErrorReply};

/// An error that a caller of the pageserver sees. Messages say what happened, to what, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for is not there: a tenant, a timeline, a relation or block, or an LSN before the history. HTTP
    /// 404.
    #[error("{0}")]
    NotFound(String),
    /// The request is malformed, out of range, or does not fit what it is about. HTTP 400.
    #[error("{0}")]
    BadRequest(String),
    /// The request comes from a compute that a newer one has taken the timeline from. The older compute must stop.
    /// HTTP 409.
    #[error(
        "term {term} is fenced: a compute with term {max_term} owns the timeline; stop this compute"
    )]
    Fenced {
        /// Term of the request.
        term: Term,
        /// The highest term of any compute of the timeline.
        max_term: Term,
    },
    /// The request contradicts what is stored: a timeline of that id that was made differently, newer files, another
    /// LSN of the same term, no ancestor to leave. HTTP 409.
    #[error("{0}")]
    Conflict(String),
    /// The state of the tenant or timeline forbids what was asked for, such as branches of what is to be deleted; the
    /// text says what would have to change first. HTTP 412.
    #[error("{0}")]
    PreconditionFailed(String),
    /// The LSN that a request needs was not ingested within the time given. HTTP 503.
    #[error(
        "timed out after {waited_ms} ms waiting for LSN {wanted} (ingested up to {reached}); retry"
    )]
    Timeout {
        /// The LSN that the request needs.
        wanted: Lsn,
        /// End of the last record that was ingested when the time was over.
        reached: Lsn,
        /// How long the request has waited, milliseconds.
        waited_ms: u64,
    },
    /// Ingest has stopped at WAL that it cannot ingest, before the LSN that a request needs; the text is the reason.
    /// HTTP 503.
    #[error("{0}")]
    Stopped(String),
    /// The pageserver is going down or the timeline is being deleted. HTTP 503.
    #[error("{0}")]
    ShuttingDown(String),
    /// The pageserver, its disk or the object store failed. The message has all causes, the outermost first. HTTP
    /// 500.
    #[error("{0:#}")]
    Internal(anyhow::Error),
}

/// What a function returns whose caller can be a client of the pageserver.
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
