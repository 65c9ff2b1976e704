//! The numbers that say what a WAL record is: resource managers and the record kinds Weir acts on.

/// Resource manager ids, stable since Postgres 9.5 but for new ones at the end.
pub mod rmgr {
    pub const XLOG: u8 = 0;
    pub const XACT: u8 = 1;
    pub const SMGR: u8 = 2;
    pub const CLOG: u8 = 3;
    pub const DBASE: u8 = 4;
    pub const TBLSPC: u8 = 5;
    pub const MULTIXACT: u8 = 6;
    pub const RELMAP: u8 = 7;
    pub const STANDBY: u8 = 8;
    pub const HEAP2: u8 = 9;
    pub const HEAP: u8 = 10;
    pub const BTREE: u8 = 11;
    pub const HASH: u8 = 12;
    pub const GIN: u8 = 13;
    pub const GIST: u8 = 14;
    pub const SEQ: u8 = 15;
    pub const SPGIST: u8 = 16;
    pub const BRIN: u8 = 17;
    pub const COMMIT_TS: u8 = 18;
    pub const REPLORIGIN: u8 = 19;
    pub const GENERIC: u8 = 20;
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
}

/// Record kinds (`xl_info & 0xF0`) by resource manager.
pub mod info {
    pub mod xlog {
        pub const CHECKPOINT_SHUTDOWN: u8 = 0x00;
        pub const CHECKPOINT_ONLINE: u8 = 0x10;
        pub const NOOP: u8 = 0x20;
        pub const NEXTOID: u8 = 0x30;
        pub const SWITCH: u8 = 0x40;
        pub const BACKUP_END: u8 = 0x50;
        pub const PARAMETER_CHANGE: u8 = 0x60;
        pub const RESTORE_POINT: u8 = 0x70;
        pub const FPW_CHANGE: u8 = 0x80;
        pub const END_OF_RECOVERY: u8 = 0x90;
        pub const FPI_FOR_HINT: u8 = 0xA0;
        pub const FPI: u8 = 0xB0;
        pub const OVERWRITE_CONTRECORD: u8 = 0xD0;
        /// As of Postgres 17.
        pub const CHECKPOINT_REDO: u8 = 0xE0;
    }

    pub mod xact {
        pub const OP_MASK: u8 = 0x70;
        pub const COMMIT: u8 = 0x00;
        pub const PREPARE: u8 = 0x10;
        pub const ABORT: u8 = 0x20;
        pub const COMMIT_PREPARED: u8 = 0x30;
        pub const ABORT_PREPARED: u8 = 0x40;
        pub const ASSIGNMENT: u8 = 0x50;
        pub const INVALIDATIONS: u8 = 0x60;
        /// The record has a `xinfo` word.
        pub const HAS_INFO: u8 = 0x80;

        pub const XINFO_HAS_DBINFO: u32 = 1 << 0;
        pub const XINFO_HAS_SUBXACTS: u32 = 1 << 1;
        pub const XINFO_HAS_RELFILENODES: u32 = 1 << 2;
        pub const XINFO_HAS_INVALS: u32 = 1 << 3;
        pub const XINFO_HAS_TWOPHASE: u32 = 1 << 4;
        pub const XINFO_HAS_ORIGIN: u32 = 1 << 5;
        pub const XINFO_HAS_AE_LOCKS: u32 = 1 << 6;
        pub const XINFO_HAS_GID: u32 = 1 << 7;
        pub const XINFO_HAS_DROPPED_STATS: u32 = 1 << 8;
    }

    pub mod smgr {
        pub const CREATE: u8 = 0x10;
        pub const TRUNCATE: u8 = 0x20;
        pub const TRUNCATE_HEAP: u32 = 0x01;
        pub const TRUNCATE_VM: u32 = 0x02;
        pub const TRUNCATE_FSM: u32 = 0x04;
    }

    pub mod clog {
        pub const ZEROPAGE: u8 = 0x00;
        pub const TRUNCATE: u8 = 0x10;
    }

    /// As of Postgres 15, which split database creation in two.
    pub mod dbase {
        pub const CREATE_FILE_COPY: u8 = 0x00;
        pub const CREATE_WAL_LOG: u8 = 0x10;
        pub const DROP: u8 = 0x20;
    }

    pub mod tblspc {
        pub const CREATE: u8 = 0x00;
        pub const DROP: u8 = 0x10;
    }

    pub mod multixact {
        pub const ZERO_OFF_PAGE: u8 = 0x00;
        pub const ZERO_MEM_PAGE: u8 = 0x10;
        pub const CREATE_ID: u8 = 0x20;
        pub const TRUNCATE_ID: u8 = 0x30;
    }

    pub mod relmap {
        pub const UPDATE: u8 = 0x00;
    }

    pub mod standby {
        pub const LOCK: u8 = 0x00;
        pub const RUNNING_XACTS: u8 = 0x10;
        pub const INVALIDATIONS: u8 = 0x20;
    }

    pub mod heap {
        pub const OP_MASK: u8 = 0x70;
        pub const INSERT: u8 = 0x00;
        pub const DELETE: u8 = 0x10;
        pub const UPDATE: u8 = 0x20;
        pub const TRUNCATE: u8 = 0x30;
        pub const HOT_UPDATE: u8 = 0x40;
        pub const CONFIRM: u8 = 0x50;
        pub const LOCK: u8 = 0x60;
        pub const INPLACE: u8 = 0x70;
        /// The record also initialises its page.
        pub const INIT_PAGE: u8 = 0x80;
    }

    pub mod heap2 {
        pub const REWRITE: u8 = 0x00;
        pub const PRUNE: u8 = 0x10;
        pub const VACUUM: u8 = 0x20;
        pub const FREEZE_PAGE: u8 = 0x30;
        /// As of Postgres 17, which has none of the three above.
        pub const PRUNE_ON_ACCESS: u8 = 0x10;
        pub const PRUNE_VACUUM_SCAN: u8 = 0x20;
        pub const PRUNE_VACUUM_CLEANUP: u8 = 0x30;
        pub const VISIBLE: u8 = 0x40;
        pub const MULTI_INSERT: u8 = 0x50;
        pub const LOCK_UPDATED: u8 = 0x60;
        pub const NEW_CID: u8 = 0x70;
    }

    pub mod btree {
        pub const INSERT_LEAF: u8 = 0x00;
        pub const INSERT_UPPER: u8 = 0x10;
        pub const INSERT_META: u8 = 0x20;
        pub const SPLIT_L: u8 = 0x30;
        pub const SPLIT_R: u8 = 0x40;
        pub const INSERT_POST: u8 = 0x50;
        pub const DEDUP: u8 = 0x60;
        pub const DELETE: u8 = 0x70;
        pub const UNLINK_PAGE: u8 = 0x80;
        pub const UNLINK_PAGE_META: u8 = 0x90;
        pub const NEWROOT: u8 = 0xA0;
        pub const MARK_PAGE_HALFDEAD: u8 = 0xB0;
        pub const VACUUM: u8 = 0xC0;
        pub const REUSE_PAGE: u8 = 0xD0;
        pub const META_CLEANUP: u8 = 0xE0;
    }

    pub mod hash {
        pub const INIT_META_PAGE: u8 = 0x00;
        pub const INIT_BITMAP_PAGE: u8 = 0x10;
        pub const INSERT: u8 = 0x20;
        pub const ADD_OVFL_PAGE: u8 = 0x30;
        pub const SPLIT_ALLOCATE_PAGE: u8 = 0x40;
        pub const SPLIT_PAGE: u8 = 0x50;
        pub const SPLIT_COMPLETE: u8 = 0x60;
        pub const MOVE_PAGE_CONTENTS: u8 = 0x70;
        pub const SQUEEZE_PAGE: u8 = 0x80;
        pub const DELETE: u8 = 0x90;
        pub const SPLIT_CLEANUP: u8 = 0xA0;
        pub const UPDATE_META_PAGE: u8 = 0xB0;
        pub const VACUUM_ONE_PAGE: u8 = 0xC0;
    }

    pub mod gin {
        pub const CREATE_PTREE: u8 = 0x10;
        pub const INSERT: u8 = 0x20;
        pub const SPLIT: u8 = 0x30;
        pub const VACUUM_PAGE: u8 = 0x40;
        pub const DELETE_PAGE: u8 = 0x50;
        pub const UPDATE_META_PAGE: u8 = 0x60;
        pub const INSERT_LISTPAGE: u8 = 0x70;
        pub const DELETE_LISTPAGE: u8 = 0x80;
        pub const VACUUM_DATA_LEAF_PAGE: u8 = 0x90;
    }

    pub mod gist {
        pub const PAGE_UPDATE: u8 = 0x00;
        pub const DELETE: u8 = 0x10;
        pub const PAGE_REUSE: u8 = 0x20;
        pub const PAGE_SPLIT: u8 = 0x30;
        pub const PAGE_DELETE: u8 = 0x60;
        pub const ASSIGN_LSN: u8 = 0x70;
    }

    pub mod spgist {
        pub const ADD_LEAF: u8 = 0x10;
        pub const MOVE_LEAFS: u8 = 0x20;
        pub const ADD_NODE: u8 = 0x30;
        pub const SPLIT_TUPLE: u8 = 0x40;
        pub const PICKSPLIT: u8 = 0x50;
        pub const VACUUM_LEAF: u8 = 0x60;
        pub const VACUUM_ROOT: u8 = 0x70;
        pub const VACUUM_REDIRECT: u8 = 0x80;
    }

    pub mod brin {
        pub const OP_MASK: u8 = 0x70;
        pub const CREATE_INDEX: u8 = 0x00;
        pub const INSERT: u8 = 0x10;
        pub const UPDATE: u8 = 0x20;
        pub const SAMEPAGE_UPDATE: u8 = 0x30;
        pub const REVMAP_EXTEND: u8 = 0x40;
        pub const DESUMMARIZE: u8 = 0x50;
        /// The record also initialises its first page.
        pub const INIT_PAGE: u8 = 0x80;
    }

    pub mod seq {
        pub const LOG: u8 = 0x00;
    }

    pub mod commit_ts {
        pub const ZEROPAGE: u8 = 0x00;
        pub const TRUNCATE: u8 = 0x10;
    }

    pub mod replorigin {
        pub const SET: u8 = 0x00;
        pub const DROP: u8 = 0x10;
    }

    pub mod logicalmsg {
        pub const MESSAGE: u8 = 0x00;
    }
}
