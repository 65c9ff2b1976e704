//! What a record does, key by key.

use bytes::Bytes;
use pg_types::{Lsn, RelTag, SlruKind};
use serde::{Deserialize, Serialize};

/// A change to one 8 KiB page (relation or SLRU), as the storage keeps it between images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageDelta {
    /// A Postgres record to redo on this page. `record` is the raw record with the page images it
    /// carries for *other* blocks removed and its header adjusted; `end_lsn` is the version it makes.
    Record {
        end_lsn: Lsn,
        will_init: bool,
        record: Bytes,
    },
    /// Clear `flags` for one or two heap blocks on a visibility map page (a side effect that heap records
    /// have without naming the map's page). Like Postgres, does not touch the page's LSN.
    VisibilityMapClear { heap_blknos: Vec<u32>, flags: u8 },
    /// The heap was cut to `heap_blocks`, which lies on this visibility map page: clear both bits of that
    /// block and of every later one. Does not touch the page's LSN, and means nothing for a map page that
    /// does not exist.
    VisibilityMapTruncate { heap_blocks: u32 },
    /// Set two-bit transaction status for each xid on this clog page.
    ClogSetStatus { xids: Vec<u32>, status: u8 },
    /// Store `offset` as the number of the first member of `multi`, for each `(multi, offset)`, on this
    /// multixact offsets page.
    MultixactOffset { entries: Vec<(u32, u32)> },
    /// Store member xids and their status flags from member number `first` on, on this members page.
    MultixactMembers { first: u32, members: Vec<(u32, u8)> },
    /// Set the commit timestamp of each xid on this commit_ts page.
    CommitTimestamp {
        xids: Vec<u32>,
        timestamp: i64,
        origin: u16,
    },
}

/// The new state of a page, or the step to it. A record has at most one for each key. A delta for a page
/// that does not exist yet applies to a page of zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageChange {
    /// The complete page, 8192 bytes, LSN already set: chains start here.
    Image(Bytes),
    /// All zeroes: chains start here.
    Zero,
    Delta(PageDelta),
}

impl PageChange {
    /// Whether the new page depends on nothing before it.
    pub fn starts_chain(&self) -> bool {
        match self {
            PageChange::Image(_) | PageChange::Zero => true,
            PageChange::Delta(PageDelta::Record { will_init, .. }) => *will_init,
            PageChange::Delta(_) => false,
        }
    }
}

/// A change to what exists rather than to a page's bytes. Applying one can need current state (sizes,
/// directory of a database), which only the pageserver has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaChange {
    /// A relation fork was created, empty.
    CreateRel(RelTag),
    /// The fork has at most `blocks` blocks now; what lay behind is gone at this LSN. Never makes a fork
    /// longer, and means nothing for one that does not exist (maps are cut along with their heap).
    TruncateRel {
        rel: RelTag,
        blocks: u32,
    },
    /// Every fork of these relations is gone (`fork` of the tag is not significant).
    DropRels(Vec<RelTag>),
    /// `CREATE DATABASE ... STRATEGY file_copy`: every fork under the source is copied as it is at this LSN.
    CopyDatabase {
        source: (u32, u32),
        target: (u32, u32),
    },
    /// An empty database directory, `(tablespace, database)`.
    CreateDatabase {
        spc: u32,
        db: u32,
    },
    DropDatabase {
        spc: u32,
        db: u32,
    },
    /// A tablespace at this path; without a path, in the data directory itself. Postgres reaches either through
    /// `pg_tblspc/<oid>`.
    CreateTablespace {
        spc: u32,
        path: String,
    },
    DropTablespace {
        spc: u32,
    },
    RelMap {
        spc: u32,
        db: u32,
        content: Bytes,
    },
    /// Contents of the prepared transaction's state file, checksum included.
    TwoPhaseCreate {
        xid: u32,
        content: Bytes,
    },
    TwoPhaseRemove {
        xid: u32,
    },
    /// The SLRU page comes into existence (its zero image is reported as a page change as well).
    SlruExtend {
        kind: SlruKind,
        pageno: u32,
    },
    /// Segments wholly before `cutoff_page` are gone, in the SLRU's circular order
    /// ([`pg_types::slru::truncation_removes`]).
    SlruTruncate {
        kind: SlruKind,
        cutoff_page: u32,
    },
    /// Segments `first` to `last`, both inclusive, are gone (multixact members are truncated so, since
    /// more than half of their numbers can be in use).
    SlruDropSegments {
        kind: SlruKind,
        first: u32,
        last: u32,
    },
}
