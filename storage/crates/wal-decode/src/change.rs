//! What a record does, key by key.

use bytes::Bytes;
use pg_types::{Lsn, RelTag, SlruKind};
use serde::{Deserialize, Serialize};

/// A change to one 8 KiB page (relation or SLRU), as the storage keeps it between images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageDelta {
    /// A Postgres record to redo on this page. `record` is the raw record without page images, without the
    /// data of *other* blocks, and with its header adjusted; `end_lsn` is the version it makes.
    Record {
        /// End of the record: the version of the page that the delta makes.
        end_lsn: Lsn,
        /// Whether the record makes the page anew (`BKPBLOCK_WILL_INIT`), so that nothing before it is needed.
        will_init: bool,
        /// A whole record, which [`crate::decode`] reads. Its link and its checksum are 0 ([`crate::unlink`]).
        record: Bytes,
    },
    /// Clear `flags` for one or two heap blocks on a visibility map page (a side effect that heap records
    /// have without naming the map's page). Like Postgres, does not touch the page's LSN.
    VisibilityMapClear {
        /// Block numbers of the heap, not of the map.
        heap_blknos: Vec<u32>,
        /// Bits to clear (`visibilitymapdefs.h: VISIBILITYMAP_ALL_VISIBLE`, `VISIBILITYMAP_ALL_FROZEN`).
        flags: u8,
    },
    /// The heap was cut to `heap_blocks`, which lies on this visibility map page: clear both bits of that
    /// block and of every later one. Does not touch the page's LSN, and means nothing for a map page that
    /// does not exist.
    VisibilityMapTruncate {
        /// Blocks that the heap still has.
        heap_blocks: u32,
    },
    /// Set two-bit transaction status for each xid on this clog page.
    ClogSetStatus {
        /// Transactions and subtransactions, all with their status on this page.
        xids: Vec<u32>,
        /// As `clog.h` numbers them: `TRANSACTION_STATUS_COMMITTED` or `TRANSACTION_STATUS_ABORTED`.
        status: u8,
    },
    /// Store `offset` as the number of the first member of `multi`, for each `(multi, offset)`, on this
    /// multixact offsets page.
    MultixactOffset {
        /// Each multixact with the number of its first member; all on this page.
        entries: Vec<(u32, u32)>,
    },
    /// Store member xids and their status flags from member number `first` on, on this members page.
    MultixactMembers {
        /// Number of the first of these members; the others follow it, and all lie on this page.
        first: u32,
        /// Each member's transaction, and its status (`multixact.h: MultiXactStatus`).
        members: Vec<(u32, u8)>,
    },
    /// Set the commit timestamp of each xid on this commit_ts page.
    CommitTimestamp {
        /// Transactions and subtransactions, all with their entry on this page.
        xids: Vec<u32>,
        /// Microseconds since 2000-01-01 UTC.
        timestamp: i64,
        /// The replication origin's id, 0 for a transaction of this cluster.
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
    /// The step from the page as it was before the record.
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
        /// The fork that is cut.
        rel: RelTag,
        /// Most blocks that the fork has from now on.
        blocks: u32,
    },
    /// Every fork of these relations is gone (`fork` of the tag is not significant). Each comes once.
    DropRels(Vec<RelTag>),
    /// `CREATE DATABASE ... STRATEGY file_copy`: every fork under the source is copied as it is at this LSN.
    CopyDatabase {
        /// Tablespace and database that are copied.
        source: (u32, u32),
        /// Tablespace and database that come into existence.
        target: (u32, u32),
    },
    /// An empty database directory, `(tablespace, database)`.
    CreateDatabase {
        /// The tablespace's oid.
        spc: u32,
        /// The database's oid.
        db: u32,
    },
    /// A database's directory in one tablespace is gone, with every fork below it. A record can have several of them,
    /// one for each tablespace (`dbcommands_xlog.h: xl_dbase_drop_rec`).
    DropDatabase {
        /// The tablespace's oid.
        spc: u32,
        /// The database's oid.
        db: u32,
    },
    /// A tablespace at this path; without a path, in the data directory itself. Postgres reaches either through
    /// `pg_tblspc/<oid>`.
    CreateTablespace {
        /// The tablespace's oid.
        spc: u32,
        /// Empty for a tablespace in the data directory.
        path: String,
    },
    /// The tablespace is gone; nothing lay in it any more (`tablespace.h: xl_tblspc_drop_rec`).
    DropTablespace {
        /// The tablespace's oid.
        spc: u32,
    },
    /// The directory has a new `pg_filenode.map` (`relmapper.h: xl_relmap_update`).
    RelMap {
        /// The tablespace's oid; the global one's for the map of shared relations.
        spc: u32,
        /// The database's oid, 0 for the map of shared relations.
        db: u32,
        /// The whole file, as long as the major version has it.
        content: Bytes,
    },
    /// Contents of the prepared transaction's state file, checksum included.
    TwoPhaseCreate {
        /// The transaction's id, without its epoch.
        xid: u32,
        /// The whole file.
        content: Bytes,
    },
    /// The prepared transaction has ended, and its state file is gone.
    TwoPhaseRemove {
        /// The transaction's id, without its epoch.
        xid: u32,
    },
    /// The SLRU page comes into existence (its zero image is reported as a page change as well).
    SlruExtend {
        /// The SLRU.
        kind: SlruKind,
        /// Number of the page.
        pageno: u32,
    },
    /// Segments wholly before `cutoff_page` are gone, in the SLRU's circular order
    /// ([`pg_types::slru::truncation_removes`]).
    SlruTruncate {
        /// The SLRU.
        kind: SlruKind,
        /// First page that is still needed.
        cutoff_page: u32,
    },
    /// Segments `first` to `last`, both inclusive, are gone (multixact members are truncated so, since
    /// more than half of their numbers can be in use).
    SlruDropSegments {
        /// The SLRU.
        kind: SlruKind,
        /// Number of the first segment that is gone.
        first: u32,
        /// Number of the last segment that is gone.
        last: u32,
    },
}
