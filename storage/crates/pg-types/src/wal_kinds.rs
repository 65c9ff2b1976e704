//! The numbers that say what a WAL record is: resource managers and the record kinds Weir acts on.

pub mod rmgr;

/// Record kinds (`xl_info & 0xF0`) by resource manager.
pub mod info {
    /// Kinds of `rmgr::XLOG` (catalog/pg_control.h).
    pub mod xlog {
        /// Checkpoint of a clean stop (`pg_control.h: XLOG_CHECKPOINT_SHUTDOWN`).
        pub const CHECKPOINT_SHUTDOWN: u8 = 0x00;
        /// Checkpoint of a running cluster (`pg_control.h: XLOG_CHECKPOINT_ONLINE`).
        pub const CHECKPOINT_ONLINE: u8 = 0x10;
        /// No change (`pg_control.h: XLOG_NOOP`).
        pub const NOOP: u8 = 0x20;
        /// Bound up to which oids may be given out (`pg_control.h: XLOG_NEXTOID`).
        pub const NEXTOID: u8 = 0x30;
        /// The rest of the segment stays unused (`pg_control.h: XLOG_SWITCH`).
        pub const SWITCH: u8 = 0x40;
        /// End of a base backup (`pg_control.h: XLOG_BACKUP_END`).
        pub const BACKUP_END: u8 = 0x50;
        /// Settings that `pg_control` keeps have changed (`pg_control.h: XLOG_PARAMETER_CHANGE`).
        pub const PARAMETER_CHANGE: u8 = 0x60;
        /// A named point to recover to (`pg_control.h: XLOG_RESTORE_POINT`).
        pub const RESTORE_POINT: u8 = 0x70;
        /// `full_page_writes` was turned on or off (`pg_control.h: XLOG_FPW_CHANGE`).
        pub const FPW_CHANGE: u8 = 0x80;
        /// End of recovery without a checkpoint (`pg_control.h: XLOG_END_OF_RECOVERY`).
        pub const END_OF_RECOVERY: u8 = 0x90;
        /// Images of pages of which only hints change (`pg_control.h: XLOG_FPI_FOR_HINT`).
        pub const FPI_FOR_HINT: u8 = 0xA0;
        /// Images of pages and nothing else (`pg_control.h: XLOG_FPI`).
        pub const FPI: u8 = 0xB0;
        /// The record that a crash broke off does not count (`pg_control.h: XLOG_OVERWRITE_CONTRECORD`).
        pub const OVERWRITE_CONTRECORD: u8 = 0xD0;
        /// As of Postgres 17.
        pub const CHECKPOINT_REDO: u8 = 0xE0;
    }

    /// Kinds of `rmgr::XACT`, and flags of ends of transactions (access/xact.h).
    pub mod xact {
        /// Bits of the kind (`xact.h: XLOG_XACT_OPMASK`).
        pub const OP_MASK: u8 = 0x70;
        /// A transaction committed (`xact.h: XLOG_XACT_COMMIT`).
        pub const COMMIT: u8 = 0x00;
        /// A transaction was prepared (`xact.h: XLOG_XACT_PREPARE`).
        pub const PREPARE: u8 = 0x10;
        /// A transaction aborted (`xact.h: XLOG_XACT_ABORT`).
        pub const ABORT: u8 = 0x20;
        /// A prepared transaction committed (`xact.h: XLOG_XACT_COMMIT_PREPARED`).
        pub const COMMIT_PREPARED: u8 = 0x30;
        /// A prepared transaction aborted (`xact.h: XLOG_XACT_ABORT_PREPARED`).
        pub const ABORT_PREPARED: u8 = 0x40;
        /// Subtransactions of a transaction, for standbys (`xact.h: XLOG_XACT_ASSIGNMENT`).
        pub const ASSIGNMENT: u8 = 0x50;
        /// Cache invalidations of a command, for logical decoding (`xact.h: XLOG_XACT_INVALIDATIONS`).
        pub const INVALIDATIONS: u8 = 0x60;
        /// The record has a `xinfo` word.
        pub const HAS_INFO: u8 = 0x80;

        /// Database and tablespace follow (`xact.h: XACT_XINFO_HAS_DBINFO`).
        pub const XINFO_HAS_DBINFO: u32 = 1 << 0;
        /// Subtransactions follow (`xact.h: XACT_XINFO_HAS_SUBXACTS`).
        pub const XINFO_HAS_SUBXACTS: u32 = 1 << 1;
        /// Dropped relations follow (`xact.h: XACT_XINFO_HAS_RELFILENODES`; since 16 `..._RELFILELOCATORS`).
        pub const XINFO_HAS_RELFILENODES: u32 = 1 << 2;
        /// Cache invalidations follow (`xact.h: XACT_XINFO_HAS_INVALS`).
        pub const XINFO_HAS_INVALS: u32 = 1 << 3;
        /// The prepared transaction's xid follows (`xact.h: XACT_XINFO_HAS_TWOPHASE`).
        pub const XINFO_HAS_TWOPHASE: u32 = 1 << 4;
        /// Position and time at the replication origin follow (`xact.h: XACT_XINFO_HAS_ORIGIN`).
        pub const XINFO_HAS_ORIGIN: u32 = 1 << 5;
        /// The transaction held access exclusive locks, which standbys follow (`xact.h: XACT_XINFO_HAS_AE_LOCKS`).
        pub const XINFO_HAS_AE_LOCKS: u32 = 1 << 6;
        /// The prepared transaction's name follows (`xact.h: XACT_XINFO_HAS_GID`).
        pub const XINFO_HAS_GID: u32 = 1 << 7;
        /// Dropped statistics entries follow (`xact.h: XACT_XINFO_HAS_DROPPED_STATS`).
        pub const XINFO_HAS_DROPPED_STATS: u32 = 1 << 8;
    }

    /// Kinds of `rmgr::SMGR`, and the forks of a truncation (catalog/storage_xlog.h).
    pub mod smgr {
        /// A fork was created (`storage_xlog.h: XLOG_SMGR_CREATE`).
        pub const CREATE: u8 = 0x10;
        /// Forks were cut (`storage_xlog.h: XLOG_SMGR_TRUNCATE`).
        pub const TRUNCATE: u8 = 0x20;
        /// The main fork is cut (`storage_xlog.h: SMGR_TRUNCATE_HEAP`).
        pub const TRUNCATE_HEAP: u32 = 0x01;
        /// The visibility map is cut (`storage_xlog.h: SMGR_TRUNCATE_VM`).
        pub const TRUNCATE_VM: u32 = 0x02;
        /// The free space map is cut (`storage_xlog.h: SMGR_TRUNCATE_FSM`).
        pub const TRUNCATE_FSM: u32 = 0x04;
    }

    /// Kinds of `rmgr::CLOG` (access/clog.h).
    pub mod clog {
        /// A page was added (`clog.h: CLOG_ZEROPAGE`).
        pub const ZEROPAGE: u8 = 0x00;
        /// Segments before a page were removed (`clog.h: CLOG_TRUNCATE`).
        pub const TRUNCATE: u8 = 0x10;
    }

    /// As of Postgres 15, which split database creation in two.
    pub mod dbase {
        /// A database's directory was copied (`dbcommands_xlog.h: XLOG_DBASE_CREATE_FILE_COPY`).
        pub const CREATE_FILE_COPY: u8 = 0x00;
        /// A database's directory was made, to be filled (`dbcommands_xlog.h: XLOG_DBASE_CREATE_WAL_LOG`).
        pub const CREATE_WAL_LOG: u8 = 0x10;
        /// A database's directories were removed (`dbcommands_xlog.h: XLOG_DBASE_DROP`).
        pub const DROP: u8 = 0x20;
    }

    /// Kinds of `rmgr::TBLSPC` (commands/tablespace.h).
    pub mod tblspc {
        /// A tablespace was created (`tablespace.h: XLOG_TBLSPC_CREATE`).
        pub const CREATE: u8 = 0x00;
        /// A tablespace was dropped (`tablespace.h: XLOG_TBLSPC_DROP`).
        pub const DROP: u8 = 0x10;
    }

    /// Kinds of `rmgr::MULTIXACT` (access/multixact.h).
    pub mod multixact {
        /// An offsets page was added (`multixact.h: XLOG_MULTIXACT_ZERO_OFF_PAGE`).
        pub const ZERO_OFF_PAGE: u8 = 0x00;
        /// A members page was added (`multixact.h: XLOG_MULTIXACT_ZERO_MEM_PAGE`).
        pub const ZERO_MEM_PAGE: u8 = 0x10;
        /// A multixact was created (`multixact.h: XLOG_MULTIXACT_CREATE_ID`).
        pub const CREATE_ID: u8 = 0x20;
        /// Old multixacts were removed (`multixact.h: XLOG_MULTIXACT_TRUNCATE_ID`).
        pub const TRUNCATE_ID: u8 = 0x30;
    }

    /// Kinds of `rmgr::RELMAP` (utils/relmapper.h).
    pub mod relmap {
        /// A map was replaced as a whole (`relmapper.h: XLOG_RELMAP_UPDATE`).
        pub const UPDATE: u8 = 0x00;
    }

    /// Kinds of `rmgr::STANDBY` (storage/standbydefs.h).
    pub mod standby {
        /// Access exclusive locks were taken (`standbydefs.h: XLOG_STANDBY_LOCK`).
        pub const LOCK: u8 = 0x00;
        /// Transactions that are running (`standbydefs.h: XLOG_RUNNING_XACTS`).
        pub const RUNNING_XACTS: u8 = 0x10;
        /// Cache invalidations of a transaction without xid (`standbydefs.h: XLOG_INVALIDATIONS`).
        pub const INVALIDATIONS: u8 = 0x20;
    }

    /// Kinds of `rmgr::HEAP` (access/heapam_xlog.h).
    pub mod heap {
        /// Bits of the kind (`heapam_xlog.h: XLOG_HEAP_OPMASK`); also of `heap2`.
        pub const OP_MASK: u8 = 0x70;
        /// A tuple was inserted (`heapam_xlog.h: XLOG_HEAP_INSERT`).
        pub const INSERT: u8 = 0x00;
        /// A tuple was deleted (`heapam_xlog.h: XLOG_HEAP_DELETE`).
        pub const DELETE: u8 = 0x10;
        /// A tuple got a new version, on any page (`heapam_xlog.h: XLOG_HEAP_UPDATE`).
        pub const UPDATE: u8 = 0x20;
        /// Tables were truncated, for logical decoding (`heapam_xlog.h: XLOG_HEAP_TRUNCATE`).
        pub const TRUNCATE: u8 = 0x30;
        /// A tuple got a new version on its page, without index entries (`heapam_xlog.h: XLOG_HEAP_HOT_UPDATE`).
        pub const HOT_UPDATE: u8 = 0x40;
        /// A speculatively inserted tuple stays (`heapam_xlog.h: XLOG_HEAP_CONFIRM`).
        pub const CONFIRM: u8 = 0x50;
        /// A tuple was locked (`heapam_xlog.h: XLOG_HEAP_LOCK`).
        pub const LOCK: u8 = 0x60;
        /// A catalog's tuple was overwritten (`heapam_xlog.h: XLOG_HEAP_INPLACE`).
        pub const INPLACE: u8 = 0x70;
        /// The record also initialises its page.
        pub const INIT_PAGE: u8 = 0x80;
    }

    /// Kinds of `rmgr::HEAP2` (access/heapam_xlog.h).
    pub mod heap2 {
        /// Where a rewrite put tuples, for logical decoding (`heapam_xlog.h: XLOG_HEAP2_REWRITE`).
        pub const REWRITE: u8 = 0x00;
        /// A page was pruned, before 17 (`heapam_xlog.h: XLOG_HEAP2_PRUNE`).
        pub const PRUNE: u8 = 0x10;
        /// Dead line pointers became unused, before 17 (`heapam_xlog.h: XLOG_HEAP2_VACUUM`).
        pub const VACUUM: u8 = 0x20;
        /// Tuples were frozen, before 17 (`heapam_xlog.h: XLOG_HEAP2_FREEZE_PAGE`).
        pub const FREEZE_PAGE: u8 = 0x30;
        /// As of Postgres 17, which has none of the three above.
        pub const PRUNE_ON_ACCESS: u8 = 0x10;
        /// As of 17, on vacuum's first pass (`heapam_xlog.h: XLOG_HEAP2_PRUNE_VACUUM_SCAN`).
        pub const PRUNE_VACUUM_SCAN: u8 = 0x20;
        /// As of 17, on vacuum's second pass (`heapam_xlog.h: XLOG_HEAP2_PRUNE_VACUUM_CLEANUP`).
        pub const PRUNE_VACUUM_CLEANUP: u8 = 0x30;
        /// Bits of the visibility map were set (`heapam_xlog.h: XLOG_HEAP2_VISIBLE`).
        pub const VISIBLE: u8 = 0x40;
        /// Several tuples were inserted into a page (`heapam_xlog.h: XLOG_HEAP2_MULTI_INSERT`).
        pub const MULTI_INSERT: u8 = 0x50;
        /// An updated tuple's newer version was locked (`heapam_xlog.h: XLOG_HEAP2_LOCK_UPDATED`).
        pub const LOCK_UPDATED: u8 = 0x60;
        /// Command ids of a catalog's tuple, for logical decoding (`heapam_xlog.h: XLOG_HEAP2_NEW_CID`).
        pub const NEW_CID: u8 = 0x70;
    }

    /// Kinds of `rmgr::BTREE` (access/nbtxlog.h).
    pub mod btree {
        /// Insertion into a leaf page (`nbtxlog.h: XLOG_BTREE_INSERT_LEAF`).
        pub const INSERT_LEAF: u8 = 0x00;
        /// Insertion into an inner page (`nbtxlog.h: XLOG_BTREE_INSERT_UPPER`).
        pub const INSERT_UPPER: u8 = 0x10;
        /// Insertion into an inner page, with a new fast root (`nbtxlog.h: XLOG_BTREE_INSERT_META`).
        pub const INSERT_META: u8 = 0x20;
        /// Split, the new tuple on the left page (`nbtxlog.h: XLOG_BTREE_SPLIT_L`).
        pub const SPLIT_L: u8 = 0x30;
        /// Split, the new tuple on the right page (`nbtxlog.h: XLOG_BTREE_SPLIT_R`).
        pub const SPLIT_R: u8 = 0x40;
        /// Insertion into a leaf page that splits a posting list (`nbtxlog.h: XLOG_BTREE_INSERT_POST`).
        pub const INSERT_POST: u8 = 0x50;
        /// Equal tuples were joined to posting lists (`nbtxlog.h: XLOG_BTREE_DEDUP`).
        pub const DEDUP: u8 = 0x60;
        /// Tuples were deleted outside of vacuum (`nbtxlog.h: XLOG_BTREE_DELETE`).
        pub const DELETE: u8 = 0x70;
        /// A half-dead page was taken out of the tree (`nbtxlog.h: XLOG_BTREE_UNLINK_PAGE`).
        pub const UNLINK_PAGE: u8 = 0x80;
        /// The same, with a new fast root (`nbtxlog.h: XLOG_BTREE_UNLINK_PAGE_META`).
        pub const UNLINK_PAGE_META: u8 = 0x90;
        /// A new root page (`nbtxlog.h: XLOG_BTREE_NEWROOT`).
        pub const NEWROOT: u8 = 0xA0;
        /// A leaf page became half-dead (`nbtxlog.h: XLOG_BTREE_MARK_PAGE_HALFDEAD`).
        pub const MARK_PAGE_HALFDEAD: u8 = 0xB0;
        /// Vacuum deleted tuples (`nbtxlog.h: XLOG_BTREE_VACUUM`).
        pub const VACUUM: u8 = 0xC0;
        /// A deleted page is used again; for standbys (`nbtxlog.h: XLOG_BTREE_REUSE_PAGE`).
        pub const REUSE_PAGE: u8 = 0xD0;
        /// What the meta page says of vacuum (`nbtxlog.h: XLOG_BTREE_META_CLEANUP`).
        pub const META_CLEANUP: u8 = 0xE0;
    }

    /// Kinds of `rmgr::HASH` (access/hash_xlog.h).
    pub mod hash {
        /// A new index's meta page (`hash_xlog.h: XLOG_HASH_INIT_META_PAGE`).
        pub const INIT_META_PAGE: u8 = 0x00;
        /// A new bitmap page (`hash_xlog.h: XLOG_HASH_INIT_BITMAP_PAGE`).
        pub const INIT_BITMAP_PAGE: u8 = 0x10;
        /// A tuple was inserted (`hash_xlog.h: XLOG_HASH_INSERT`).
        pub const INSERT: u8 = 0x20;
        /// A bucket got an overflow page (`hash_xlog.h: XLOG_HASH_ADD_OVFL_PAGE`).
        pub const ADD_OVFL_PAGE: u8 = 0x30;
        /// Begin of a split: the new bucket's first page (`hash_xlog.h: XLOG_HASH_SPLIT_ALLOCATE_PAGE`).
        pub const SPLIT_ALLOCATE_PAGE: u8 = 0x40;
        /// A page of the new bucket was filled (`hash_xlog.h: XLOG_HASH_SPLIT_PAGE`).
        pub const SPLIT_PAGE: u8 = 0x50;
        /// End of a split (`hash_xlog.h: XLOG_HASH_SPLIT_COMPLETE`).
        pub const SPLIT_COMPLETE: u8 = 0x60;
        /// Tuples moved to an earlier page of the bucket (`hash_xlog.h: XLOG_HASH_MOVE_PAGE_CONTENTS`).
        pub const MOVE_PAGE_CONTENTS: u8 = 0x70;
        /// The same, and the emptied page was freed (`hash_xlog.h: XLOG_HASH_SQUEEZE_PAGE`).
        pub const SQUEEZE_PAGE: u8 = 0x80;
        /// Tuples of a page were deleted (`hash_xlog.h: XLOG_HASH_DELETE`).
        pub const DELETE: u8 = 0x90;
        /// The split bucket holds no moved tuples any more (`hash_xlog.h: XLOG_HASH_SPLIT_CLEANUP`).
        pub const SPLIT_CLEANUP: u8 = 0xA0;
        /// Vacuum counted the tuples anew (`hash_xlog.h: XLOG_HASH_UPDATE_META_PAGE`).
        pub const UPDATE_META_PAGE: u8 = 0xB0;
        /// An insertion deleted dead tuples of its page (`hash_xlog.h: XLOG_HASH_VACUUM_ONE_PAGE`).
        pub const VACUUM_ONE_PAGE: u8 = 0xC0;
    }

    /// Kinds of `rmgr::GIN` (access/ginxlog.h).
    pub mod gin {
        /// A new posting tree's root (`ginxlog.h: XLOG_GIN_CREATE_PTREE`).
        pub const CREATE_PTREE: u8 = 0x10;
        /// Insertion into a page of entries or of a posting tree (`ginxlog.h: XLOG_GIN_INSERT`).
        pub const INSERT: u8 = 0x20;
        /// A page was split (`ginxlog.h: XLOG_GIN_SPLIT`).
        pub const SPLIT: u8 = 0x30;
        /// Vacuum changed a page of entries (`ginxlog.h: XLOG_GIN_VACUUM_PAGE`).
        pub const VACUUM_PAGE: u8 = 0x40;
        /// A posting tree's page was deleted (`ginxlog.h: XLOG_GIN_DELETE_PAGE`).
        pub const DELETE_PAGE: u8 = 0x50;
        /// The pending list grew (`ginxlog.h: XLOG_GIN_UPDATE_META_PAGE`).
        pub const UPDATE_META_PAGE: u8 = 0x60;
        /// A new page for the pending list (`ginxlog.h: XLOG_GIN_INSERT_LISTPAGE`).
        pub const INSERT_LISTPAGE: u8 = 0x70;
        /// Pages were taken off the pending list (`ginxlog.h: XLOG_GIN_DELETE_LISTPAGE`).
        pub const DELETE_LISTPAGE: u8 = 0x80;
        /// Vacuum changed a posting tree's leaf page (`ginxlog.h: XLOG_GIN_VACUUM_DATA_LEAF_PAGE`).
        pub const VACUUM_DATA_LEAF_PAGE: u8 = 0x90;
    }

    /// Kinds of `rmgr::GIST` (access/gistxlog.h).
    pub mod gist {
        /// Tuples of a page were deleted and inserted (`gistxlog.h: XLOG_GIST_PAGE_UPDATE`).
        pub const PAGE_UPDATE: u8 = 0x00;
        /// An insertion deleted dead tuples of its page (`gistxlog.h: XLOG_GIST_DELETE`).
        pub const DELETE: u8 = 0x10;
        /// A deleted page is used again; for standbys (`gistxlog.h: XLOG_GIST_PAGE_REUSE`).
        pub const PAGE_REUSE: u8 = 0x20;
        /// A page was split (`gistxlog.h: XLOG_GIST_PAGE_SPLIT`).
        pub const PAGE_SPLIT: u8 = 0x30;
        /// A page was deleted (`gistxlog.h: XLOG_GIST_PAGE_DELETE`).
        pub const PAGE_DELETE: u8 = 0x60;
        /// No change; its position serves as an LSN (`gistxlog.h: XLOG_GIST_ASSIGN_LSN`).
        pub const ASSIGN_LSN: u8 = 0x70;
    }

    /// Kinds of `rmgr::SPGIST` (access/spgxlog.h).
    pub mod spgist {
        /// A leaf tuple was added (`spgxlog.h: XLOG_SPGIST_ADD_LEAF`).
        pub const ADD_LEAF: u8 = 0x10;
        /// Leaf tuples moved to another page (`spgxlog.h: XLOG_SPGIST_MOVE_LEAFS`).
        pub const MOVE_LEAFS: u8 = 0x20;
        /// An inner tuple got a node (`spgxlog.h: XLOG_SPGIST_ADD_NODE`).
        pub const ADD_NODE: u8 = 0x30;
        /// An inner tuple was split into prefix and postfix (`spgxlog.h: XLOG_SPGIST_SPLIT_TUPLE`).
        pub const SPLIT_TUPLE: u8 = 0x40;
        /// Leaf tuples were distributed below a new inner tuple (`spgxlog.h: XLOG_SPGIST_PICKSPLIT`).
        pub const PICKSPLIT: u8 = 0x50;
        /// Vacuum deleted tuples of a leaf page (`spgxlog.h: XLOG_SPGIST_VACUUM_LEAF`).
        pub const VACUUM_LEAF: u8 = 0x60;
        /// Vacuum deleted tuples of a root that is a leaf (`spgxlog.h: XLOG_SPGIST_VACUUM_ROOT`).
        pub const VACUUM_ROOT: u8 = 0x70;
        /// Vacuum made redirects placeholders (`spgxlog.h: XLOG_SPGIST_VACUUM_REDIRECT`).
        pub const VACUUM_REDIRECT: u8 = 0x80;
    }

    /// Kinds of `rmgr::BRIN` (access/brin_xlog.h).
    pub mod brin {
        /// Bits of the kind (`brin_xlog.h: XLOG_BRIN_OPMASK`).
        pub const OP_MASK: u8 = 0x70;
        /// A new index's meta page (`brin_xlog.h: XLOG_BRIN_CREATE_INDEX`).
        pub const CREATE_INDEX: u8 = 0x00;
        /// A range got a summary (`brin_xlog.h: XLOG_BRIN_INSERT`).
        pub const INSERT: u8 = 0x10;
        /// A range got another summary, on another page (`brin_xlog.h: XLOG_BRIN_UPDATE`).
        pub const UPDATE: u8 = 0x20;
        /// A range got another summary, on its page (`brin_xlog.h: XLOG_BRIN_SAMEPAGE_UPDATE`).
        pub const SAMEPAGE_UPDATE: u8 = 0x30;
        /// The range map got a page (`brin_xlog.h: XLOG_BRIN_REVMAP_EXTEND`).
        pub const REVMAP_EXTEND: u8 = 0x40;
        /// A range lost its summary (`brin_xlog.h: XLOG_BRIN_DESUMMARIZE`).
        pub const DESUMMARIZE: u8 = 0x50;
        /// The record also initialises its first page.
        pub const INIT_PAGE: u8 = 0x80;
    }

    /// Kinds of `rmgr::SEQ` (commands/sequence.h).
    pub mod seq {
        /// A sequence's tuple, which makes up its page (`sequence.h: XLOG_SEQ_LOG`).
        pub const LOG: u8 = 0x00;
    }

    /// Kinds of `rmgr::COMMIT_TS` (access/commit_ts.h).
    pub mod commit_ts {
        /// A page was added (`commit_ts.h: COMMIT_TS_ZEROPAGE`).
        pub const ZEROPAGE: u8 = 0x00;
        /// Segments before a page were removed (`commit_ts.h: COMMIT_TS_TRUNCATE`).
        pub const TRUNCATE: u8 = 0x10;
    }

    /// Kinds of `rmgr::REPLORIGIN` (replication/origin.h).
    pub mod replorigin {
        /// How far an origin is (`origin.h: XLOG_REPLORIGIN_SET`).
        pub const SET: u8 = 0x00;
        /// An origin was dropped (`origin.h: XLOG_REPLORIGIN_DROP`).
        pub const DROP: u8 = 0x10;
    }

    /// Kinds of `rmgr::LOGICALMSG` (replication/message.h).
    pub mod logicalmsg {
        /// What `pg_logical_emit_message` was given; no page changes (`message.h: XLOG_LOGICAL_MESSAGE`).
        pub const MESSAGE: u8 = 0x00;
    }
}
