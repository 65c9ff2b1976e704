//! The page service: how a compute reads pages and metadata from a pageserver.
//!
//! A connection starts with one [`Hello`] and one [`HelloReply`]; then requests are pipelined and each
//! reply names the request it answers, so replies may come in any order. Bodies are `postcard`.
//!
//! `at` says as of which LSN an answer must hold; `None` means "the newest you have". In both cases the
//! pageserver first waits until it has ingested `not_modified_since`. A compute that has never had a
//! page locally may ask for the newest version: only it can change the page, and it has not.

use bytes::Bytes;
use pg_types::{Lsn, RelTag, SlruKind, TenantId, Term, TimelineId};
use serde::{Deserialize, Serialize};

/// Largest frame either side accepts, bytes.
pub const MAX_FRAME_BYTES: usize = 16 << 20;
/// Most pages one [`Request::Pages`] may ask for.
pub const MAX_PAGES_PER_REQUEST: usize = 256;

/// Cuts a connection's bytes into the bodies of frames, and puts a length before each body that is sent. A frame of more
/// than [`MAX_FRAME_BYTES`] is an error of kind `InvalidData` on either side, after which the connection is of no use.
#[cfg(feature = "codec")]
pub fn codec() -> tokio_util::codec::LengthDelimitedCodec {
    crate::codec::up_to(MAX_FRAME_BYTES)
}

/// The first frame of a connection: who connects, and for which timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the sender; another one is refused.
    pub version: u16,
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline that the connection is for.
    pub timeline: TimelineId,
    /// The compute's term; refused once the pageserver has seen a higher one. 0 for read-only tools.
    pub term: Term,
    /// W3C `traceparent` of the operation that opened the connection, empty if there is none.
    pub traceparent: String,
}

/// Current protocol version.
pub const VERSION: u16 = 1;

/// The answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    /// Requests may follow.
    Ok,
    /// The connection ends.
    Refused(ErrorReply),
}

/// As of when a read must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPosition {
    /// The pageserver answers once it has ingested this LSN.
    pub not_modified_since: Lsn,
    /// The LSN to read at; the newest one that is ingested if `None`.
    pub at: Option<Lsn>,
}

/// One request of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFrame {
    /// Chosen by the sender, and named by the reply.
    pub id: u64,
    /// As of when the answer must hold.
    pub position: ReadPosition,
    /// What is asked for.
    pub request: Request,
}

/// What can be read. Block numbers count from the fork's first block, pages of an SLRU from its page 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Relation pages; answered by `Pages` in the order asked.
    Pages {
        /// The relation's fork.
        rel: RelTag,
        /// Block numbers, at most [`MAX_PAGES_PER_REQUEST`].
        blocks: Vec<u32>,
    },
    /// One page of an SLRU; answered by `SlruPage`.
    SlruPage {
        /// The SLRU.
        kind: SlruKind,
        /// Number of the page.
        pageno: u32,
    },
    /// Size of one fork in blocks, or `None` if it does not exist.
    RelSize {
        /// The relation's fork.
        rel: RelTag,
    },
    /// Every fork below a database directory with its size in blocks; `db` 0 with the global
    /// tablespace lists the shared relations.
    ListRels {
        /// The tablespace's oid.
        spc: u32,
        /// The database's oid.
        db: u32,
    },
    /// Database directories as `(tablespace, database)`.
    ListDatabases,
    /// Segments of an SLRU as `(segment number, pages)`.
    ListSlruSegments {
        /// The SLRU.
        kind: SlruKind,
    },
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyFrame {
    /// Of the request.
    pub id: u64,
    /// What was asked for, or why it cannot be given.
    pub reply: Result<Reply, ErrorReply>,
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageReply {
    /// 8192 bytes, or empty for a page of zeroes.
    pub bytes: Bytes,
    /// Deltas that were applied to make the page.
    pub chain_length: u32,
}

/// The answers, named as the requests are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// `as_of` is the LSN the answer was read at.
    Pages {
        /// The LSN that all pages are of.
        as_of: Lsn,
        /// The pages, in the order asked.
        pages: Vec<PageReply>,
    },
    /// To [`Request::SlruPage`].
    SlruPage {
        /// The page.
        page: PageReply,
    },
    /// To [`Request::RelSize`].
    RelSize {
        /// Size in blocks; `None` where there is no such fork.
        blocks: Option<u32>,
    },
    /// To [`Request::ListRels`].
    Rels {
        /// Each fork with its size in blocks.
        rels: Vec<(RelTag, u32)>,
    },
    /// To [`Request::ListDatabases`].
    Databases {
        /// Oids of tablespace and database.
        databases: Vec<(u32, u32)>,
    },
    /// To [`Request::ListSlruSegments`].
    SlruSegments {
        /// Number of each segment, and how many pages it has.
        segments: Vec<(u32, u32)>,
    },
}

/// Why a request failed and what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// For programs.
    pub kind: ErrorKind,
    /// For people: what happened to what.
    pub message: String,
}

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// A newer compute owns the timeline; this one must stop.
    Fenced,
    /// No such tenant, timeline, relation or page.
    NotFound,
    /// The LSN asked for was not reached in time; retry.
    Timeout,
    /// The timeline stopped at a record it cannot redo; nothing to retry until a person acts.
    Stopped,
    /// The request is malformed or out of bounds.
    BadRequest,
    /// The pageserver is at fault; retry, then report.
    Internal,
}
