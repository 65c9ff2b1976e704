//! Every kind of record stock Postgres can write, by the name `pg_waldump` prints, and what proves its redo.

use pg_types::PgMajor;
use pg_types::wal::{info, rmgr};
use wal_decode::DecodedRecord;

/// What the effect of a record kind can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// Each block against the image the record carries, and the page's file at the end.
    Image,
    /// No image is logged. The pages it changes (SLRU pages, those of a relation created, copied, cut or
    /// dropped) are compared with the cluster's files at the end.
    Files,
    /// The record changes no page. Understood and followed, nothing to compare here; what the timeline's state
    /// takes from it is compared with `pg_control`.
    NoPage,
    /// The record is a page image and restoring it is all there is; the file at the end shows the result.
    Restored,
}

impl Proof {
    /// The word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Proof::Image => "image",
            Proof::Files => "files",
            Proof::NoPage => "no page",
            Proof::Restored => "restored",
        }
    }
}

/// One kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Resource manager id, `xl_rmid`.
    pub rmid: u8,
    /// The bits of `xl_info` that tell the kind: the upper four, without the top one where that means something else.
    pub op: u8,
    /// The name without the resource manager's, such as `INSERT`.
    pub name: &'static str,
    /// What proves that redo of this kind is right.
    pub proof: Proof,
}

/// One resource manager's kinds in 15; the position is `xl_info >> 4`, an empty name is a number not in use.
struct Manager {
    rmid: u8,
    proof: Proof,
    ops: &'static [&'static str],
}

const MANAGERS: &[Manager] = &[
    Manager {
        rmid: rmgr::XLOG,
        proof: Proof::NoPage,
        ops: &[
            "CHECKPOINT_SHUTDOWN",
            "CHECKPOINT_ONLINE",
            "NOOP",
            "NEXTOID",
            "SWITCH",
            "BACKUP_END",
            "PARAMETER_CHANGE",
            "RESTORE_POINT",
            "FPW_CHANGE",
            "END_OF_RECOVERY",
            "FPI_FOR_HINT",
            "FPI",
            "",
            "OVERWRITE_CONTRECORD",
        ],
    },
    Manager {
        rmid: rmgr::XACT,
        proof: Proof::Files,
        ops: &[
            "COMMIT",
            "PREPARE",
            "ABORT",
            "COMMIT_PREPARED",
            "ABORT_PREPARED",
            "ASSIGNMENT",
            "INVALIDATION",
        ],
    },
    Manager {
        rmid: rmgr::SMGR,
        proof: Proof::Files,
        ops: &["", "CREATE", "TRUNCATE"],
    },
    Manager {
        rmid: rmgr::CLOG,
        proof: Proof::Files,
        ops: &["ZEROPAGE", "TRUNCATE"],
    },
    Manager {
        rmid: rmgr::DBASE,
        proof: Proof::Files,
        ops: &["CREATE_FILE_COPY", "CREATE_WAL_LOG", "DROP"],
    },
    Manager {
        rmid: rmgr::TBLSPC,
        proof: Proof::NoPage,
        ops: &["CREATE", "DROP"],
    },
    Manager {
        rmid: rmgr::MULTIXACT,
        proof: Proof::Files,
        ops: &["ZERO_OFF_PAGE", "ZERO_MEM_PAGE", "CREATE_ID", "TRUNCATE_ID"],
    },
    Manager {
        rmid: rmgr::RELMAP,
        proof: Proof::Files,
        ops: &["UPDATE"],
    },
    Manager {
        rmid: rmgr::STANDBY,
        proof: Proof::NoPage,
        ops: &["LOCK", "RUNNING_XACTS", "INVALIDATIONS"],
    },
    Manager {
        rmid: rmgr::HEAP2,
        proof: Proof::Image,
        ops: &[
            "REWRITE",
            "PRUNE",
            "VACUUM",
            "FREEZE_PAGE",
            "VISIBLE",
            "MULTI_INSERT",
            "LOCK_UPDATED",
            "NEW_CID",
        ],
    },
    Manager {
        rmid: rmgr::HEAP,
        proof: Proof::Image,
        ops: &[
            "INSERT",
            "DELETE",
            "UPDATE",
            "TRUNCATE",
            "HOT_UPDATE",
            "HEAP_CONFIRM",
            "LOCK",
            "INPLACE",
        ],
    },
    Manager {
        rmid: rmgr::BTREE,
        proof: Proof::Image,
        ops: &[
            "INSERT_LEAF",
            "INSERT_UPPER",
            "INSERT_META",
            "SPLIT_L",
            "SPLIT_R",
            "INSERT_POST",
            "DEDUP",
            "DELETE",
            "UNLINK_PAGE",
            "UNLINK_PAGE_META",
            "NEWROOT",
            "MARK_PAGE_HALFDEAD",
            "VACUUM",
            "REUSE_PAGE",
            "META_CLEANUP",
        ],
    },
    Manager {
        rmid: rmgr::HASH,
        proof: Proof::Image,
        ops: &[
            "INIT_META_PAGE",
            "INIT_BITMAP_PAGE",
            "INSERT",
            "ADD_OVFL_PAGE",
            "SPLIT_ALLOCATE_PAGE",
            "SPLIT_PAGE",
            "SPLIT_COMPLETE",
            "MOVE_PAGE_CONTENTS",
            "SQUEEZE_PAGE",
            "DELETE",
            "SPLIT_CLEANUP",
            "UPDATE_META_PAGE",
            "VACUUM_ONE_PAGE",
        ],
    },
    Manager {
        rmid: rmgr::GIN,
        proof: Proof::Image,
        ops: &[
            "",
            "CREATE_PTREE",
            "INSERT",
            "SPLIT",
            "VACUUM_PAGE",
            "DELETE_PAGE",
            "UPDATE_META_PAGE",
            "INSERT_LISTPAGE",
            "DELETE_LISTPAGE",
            "VACUUM_DATA_LEAF_PAGE",
        ],
    },
    Manager {
        rmid: rmgr::GIST,
        proof: Proof::Image,
        ops: &[
            "PAGE_UPDATE",
            "DELETE",
            "PAGE_REUSE",
            "PAGE_SPLIT",
            "",
            "",
            "PAGE_DELETE",
            "ASSIGN_LSN",
        ],
    },
    Manager {
        rmid: rmgr::SEQ,
        proof: Proof::Image,
        ops: &["LOG"],
    },
    Manager {
        rmid: rmgr::SPGIST,
        proof: Proof::Image,
        ops: &[
            "",
            "ADD_LEAF",
            "MOVE_LEAFS",
            "ADD_NODE",
            "SPLIT_TUPLE",
            "PICKSPLIT",
            "VACUUM_LEAF",
            "VACUUM_ROOT",
            "VACUUM_REDIRECT",
        ],
    },
    Manager {
        rmid: rmgr::BRIN,
        proof: Proof::Image,
        ops: &[
            "CREATE_INDEX",
            "INSERT",
            "UPDATE",
            "SAMEPAGE_UPDATE",
            "REVMAP_EXTEND",
            "DESUMMARIZE",
        ],
    },
    Manager {
        rmid: rmgr::COMMIT_TS,
        proof: Proof::Files,
        ops: &["ZEROPAGE", "TRUNCATE"],
    },
    Manager {
        rmid: rmgr::REPLORIGIN,
        proof: Proof::NoPage,
        ops: &["SET", "DROP"],
    },
    Manager {
        rmid: rmgr::GENERIC,
        proof: Proof::Image,
        ops: &["Generic"],
    },
    Manager {
        rmid: rmgr::LOGICALMSG,
        proof: Proof::NoPage,
        ops: &["MESSAGE"],
    },
];

/// Kinds that differ from the rest of their resource manager.
const EXCEPTIONS: &[(u8, u8, Proof)] = &[
    (rmgr::XLOG, info::xlog::FPI, Proof::Restored),
    (rmgr::XLOG, info::xlog::FPI_FOR_HINT, Proof::Restored),
    // Postgres always logs these pages whole.
    (rmgr::HASH, info::hash::SPLIT_PAGE, Proof::Restored),
    (rmgr::GIN, info::gin::SPLIT, Proof::Restored),
    (rmgr::GIN, info::gin::VACUUM_PAGE, Proof::Restored),
    // For logical decoding alone; the mapping file of a rewrite is a logical slot's business.
    (rmgr::HEAP2, info::heap2::REWRITE, Proof::NoPage),
    (rmgr::HEAP2, info::heap2::NEW_CID, Proof::NoPage),
    (rmgr::HEAP, info::heap::TRUNCATE, Proof::NoPage),
    // Told to standbys, for the sake of their queries.
    (rmgr::BTREE, info::btree::REUSE_PAGE, Proof::NoPage),
    (rmgr::GIST, info::gist::PAGE_REUSE, Proof::NoPage),
    (rmgr::GIST, info::gist::ASSIGN_LSN, Proof::NoPage),
    (rmgr::XACT, info::xact::ASSIGNMENT, Proof::NoPage),
    (rmgr::XACT, info::xact::INVALIDATIONS, Proof::NoPage),
];

/// Kinds that are new in 17, or have a new meaning.
const AS_OF_17: &[(u8, u8, &str)] = &[
    (rmgr::XLOG, info::xlog::CHECKPOINT_REDO, "CHECKPOINT_REDO"),
    (rmgr::HEAP2, info::heap2::PRUNE_ON_ACCESS, "PRUNE_ON_ACCESS"),
    (
        rmgr::HEAP2,
        info::heap2::PRUNE_VACUUM_SCAN,
        "PRUNE_VACUUM_SCAN",
    ),
    (
        rmgr::HEAP2,
        info::heap2::PRUNE_VACUUM_CLEANUP,
        "PRUNE_VACUUM_CLEANUP",
    ),
];

/// The name of a kind in this major, empty when it has none.
fn name(major: PgMajor, manager: &Manager, op: u8) -> &'static str {
    let newer = AS_OF_17
        .iter()
        .find(|(rmid, of, _)| major >= PgMajor::V17 && (*rmid, *of) == (manager.rmid, op));
    match newer {
        Some((_, _, name)) => name,
        None => manager.ops.get(usize::from(op >> 4)).unwrap_or(&""),
    }
}

/// Every kind there is in this major, in order.
pub fn kinds(major: PgMajor) -> impl Iterator<Item = Kind> {
    MANAGERS.iter().flat_map(move |manager| {
        (0..16u8)
            .map(move |number| (number << 4, name(major, manager, number << 4)))
            .filter(|(_, name)| !name.is_empty())
            .map(|(op, name)| {
                let proof = EXCEPTIONS
                    .iter()
                    .find(|(rmid, of, _)| (*rmid, *of) == (manager.rmid, op))
                    .map_or(manager.proof, |(_, _, proof)| *proof);
                Kind {
                    rmid: manager.rmid,
                    op,
                    name,
                    proof,
                }
            })
    })
}

/// The bits of `xl_info` that tell the kind; heap records, BRIN records and transaction ends use the top
/// bit for something else.
pub(super) fn op_bits(rec: &DecodedRecord<'_>) -> u8 {
    match rec.rmid {
        rmgr::HEAP | rmgr::HEAP2 | rmgr::BRIN => rec.info & info::heap::OP_MASK,
        rmgr::XACT => rec.info & info::xact::OP_MASK,
        _ => rec.op(),
    }
}

/// The record kind, such as `Heap/INSERT`.
pub fn op_name(major: PgMajor, rmid: u8, op: u8) -> String {
    match kinds(major).find(|kind| (kind.rmid, kind.op) == (rmid, op)) {
        Some(kind) => format!("{}/{}", rmgr::name(rmid), kind.name),
        None => format!("{}/{op:#04x}", rmgr::name(rmid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_constants() {
        assert_eq!(
            op_name(PgMajor::V15, rmgr::BTREE, info::btree::META_CLEANUP),
            "Btree/META_CLEANUP"
        );
        assert_eq!(
            op_name(PgMajor::V15, rmgr::HASH, info::hash::DELETE),
            "Hash/DELETE"
        );
        assert_eq!(
            op_name(PgMajor::V15, rmgr::HEAP2, info::heap2::NEW_CID),
            "Heap2/NEW_CID"
        );
        assert_eq!(
            op_name(PgMajor::V15, rmgr::XLOG, info::xlog::OVERWRITE_CONTRECORD),
            "XLOG/OVERWRITE_CONTRECORD"
        );
        assert_eq!(
            op_name(PgMajor::V15, rmgr::GIST, info::gist::ASSIGN_LSN),
            "Gist/ASSIGN_LSN"
        );
        assert_eq!(op_name(PgMajor::V15, rmgr::GIN, 0), "Gin/0x00");
        let heap2 = |major| op_name(major, rmgr::HEAP2, 0x20);
        assert_eq!(heap2(PgMajor::V15), "Heap2/VACUUM");
        assert_eq!(heap2(PgMajor::V18), "Heap2/PRUNE_VACUUM_SCAN");
        let redo = |major| op_name(major, rmgr::XLOG, info::xlog::CHECKPOINT_REDO);
        assert_eq!(redo(PgMajor::V15), "XLOG/0xe0");
        assert_eq!(redo(PgMajor::V17), "XLOG/CHECKPOINT_REDO");
    }

    #[test]
    fn every_built_in_resource_manager_has_its_kinds() {
        for (major, rmid) in PgMajor::ALL
            .into_iter()
            .flat_map(|major| (0..rmgr::COUNT as u8).map(move |rmid| (major, rmid)))
        {
            assert!(
                kinds(major).any(|kind| kind.rmid == rmid),
                "{} in {major:?}",
                rmgr::name(rmid)
            );
        }
    }
}
