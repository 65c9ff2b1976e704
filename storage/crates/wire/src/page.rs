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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    pub tenant: TenantId,
    pub timeline: TimelineId,
    /// The compute's term; refused once the pageserver has seen a higher one. 0 for read-only tools.
    pub term: Term,
    /// W3C `traceparent` of the operation that opened the connection, empty if there is none.
    pub traceparent: String,
}

/// Current protocol version.
pub const VERSION: u16 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloReply {
    Ok,
    Refused(ErrorReply),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPosition {
    pub not_modified_since: Lsn,
    pub at: Option<Lsn>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFrame {
    pub id: u64,
    pub position: ReadPosition,
    pub request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Relation pages; answered by `Pages` in the order asked.
    Pages {
        rel: RelTag,
        blocks: Vec<u32>,
    },
    SlruPage {
        kind: SlruKind,
        pageno: u32,
    },
    /// Size of one fork in blocks, or `None` if it does not exist.
    RelSize {
        rel: RelTag,
    },
    /// Every fork below a database directory with its size in blocks; `db` 0 with the global
    /// tablespace lists the shared relations.
    ListRels {
        spc: u32,
        db: u32,
    },
    /// Database directories as `(tablespace, database)`.
    ListDatabases,
    /// Segments of an SLRU as `(segment number, pages)`.
    ListSlruSegments {
        kind: SlruKind,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyFrame {
    pub id: u64,
    pub reply: Result<Reply, ErrorReply>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageReply {
    /// 8192 bytes, or empty for a page of zeroes.
    pub bytes: Bytes,
    /// Deltas that were applied to make the page.
    pub chain_length: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// `as_of` is the LSN the answer was read at.
    Pages {
        as_of: Lsn,
        pages: Vec<PageReply>,
    },
    SlruPage {
        page: PageReply,
    },
    RelSize {
        blocks: Option<u32>,
    },
    Rels {
        rels: Vec<(RelTag, u32)>,
    },
    Databases {
        databases: Vec<(u32, u32)>,
    },
    SlruSegments {
        segments: Vec<(u32, u32)>,
    },
}

/// Why a request failed and what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    pub kind: ErrorKind,
    pub message: String,
}

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
