//! Resource manager ids, stable since Postgres 9.5 but for new ones at the end.

/// Checkpoints, settings and images of pages (`rmgrlist.h: RM_XLOG_ID`).
pub const XLOG: u8 = 0;
/// Ends of transactions (`rmgrlist.h: RM_XACT_ID`).
pub const XACT: u8 = 1;
/// Creation and truncation of relation files (`rmgrlist.h: RM_SMGR_ID`).
pub const SMGR: u8 = 2;
/// Pages of the clog (`rmgrlist.h: RM_CLOG_ID`).
pub const CLOG: u8 = 3;
/// Databases (`rmgrlist.h: RM_DBASE_ID`).
pub const DBASE: u8 = 4;
/// Tablespaces (`rmgrlist.h: RM_TBLSPC_ID`).
pub const TBLSPC: u8 = 5;
/// Multixacts (`rmgrlist.h: RM_MULTIXACT_ID`).
pub const MULTIXACT: u8 = 6;
/// Relation maps, `pg_filenode.map` (`rmgrlist.h: RM_RELMAP_ID`).
pub const RELMAP: u8 = 7;
/// What standbys and logical decoding need (`rmgrlist.h: RM_STANDBY_ID`).
pub const STANDBY: u8 = 8;
/// Further changes of heap pages (`rmgrlist.h: RM_HEAP2_ID`).
pub const HEAP2: u8 = 9;
/// Changes of heap pages (`rmgrlist.h: RM_HEAP_ID`).
pub const HEAP: u8 = 10;
/// B-tree indexes (`rmgrlist.h: RM_BTREE_ID`).
pub const BTREE: u8 = 11;
/// Hash indexes (`rmgrlist.h: RM_HASH_ID`).
pub const HASH: u8 = 12;
/// GIN indexes (`rmgrlist.h: RM_GIN_ID`).
pub const GIN: u8 = 13;
/// GiST indexes (`rmgrlist.h: RM_GIST_ID`).
pub const GIST: u8 = 14;
/// Sequences (`rmgrlist.h: RM_SEQ_ID`).
pub const SEQ: u8 = 15;
/// SP-GiST indexes (`rmgrlist.h: RM_SPGIST_ID`).
pub const SPGIST: u8 = 16;
/// BRIN indexes (`rmgrlist.h: RM_BRIN_ID`).
pub const BRIN: u8 = 17;
/// Pages of commit timestamps (`rmgrlist.h: RM_COMMIT_TS_ID`).
pub const COMMIT_TS: u8 = 18;
/// Progress of replication origins (`rmgrlist.h: RM_REPLORIGIN_ID`).
pub const REPLORIGIN: u8 = 19;
/// Differences of pages, as some extensions write them (`rmgrlist.h: RM_GENERIC_ID`).
pub const GENERIC: u8 = 20;
/// Messages to logical decoding (`rmgrlist.h: RM_LOGICALMSG_ID`).
pub const LOGICALMSG: u8 = 21;

/// Number of built-in resource managers.
pub const COUNT: usize = 22;
/// Ids from here on belong to extensions.
pub const FIRST_CUSTOM: u8 = 128;

const NAMES: [&str; COUNT] = [
    "XLOG",
    "Transaction",
    "Storage",
    "CLOG",
    "Database",
    "Tablespace",
    "MultiXact",
    "RelMap",
    "Standby",
    "Heap2",
    "Heap",
    "Btree",
    "Hash",
    "Gin",
    "Gist",
    "Sequence",
    "SPGist",
    "BRIN",
    "CommitTs",
    "ReplicationOrigin",
    "Generic",
    "LogicalMessage",
];

/// The name `pg_waldump` prints; `custom` for an extension's.
pub fn name(rmid: u8) -> &'static str {
    match NAMES.get(usize::from(rmid)) {
        Some(name) => name,
        None if rmid >= FIRST_CUSTOM => "custom",
        None => "unassigned",
    }
}
