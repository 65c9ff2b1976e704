//! Addresses of relation forks and SLRUs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A fork of a relation, numbered as Postgres's `ForkNumber`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum ForkNumber {
    /// The relation's own pages (`relpath.h: MAIN_FORKNUM`).
    Main = 0,
    /// The free space map (`relpath.h: FSM_FORKNUM`).
    Fsm = 1,
    /// The visibility map (`relpath.h: VISIBILITYMAP_FORKNUM`).
    VisibilityMap = 2,
    /// What an unlogged relation is reset to after a crash (`relpath.h: INIT_FORKNUM`).
    Init = 3,
}

impl ForkNumber {
    /// Every fork, in the order of the numbers.
    pub const ALL: [ForkNumber; 4] = [
        ForkNumber::Main,
        ForkNumber::Fsm,
        ForkNumber::VisibilityMap,
        ForkNumber::Init,
    ];

    /// The fork with this number; `None` if there is none.
    #[inline]
    pub fn from_u8(value: u8) -> Option<ForkNumber> {
        Self::ALL.get(usize::from(value)).copied()
    }

    /// The suffix of the fork's file name, without the underscore; empty for the main fork.
    pub fn file_suffix(self) -> &'static str {
        match self {
            ForkNumber::Main => "",
            ForkNumber::Fsm => "fsm",
            ForkNumber::VisibilityMap => "vm",
            ForkNumber::Init => "init",
        }
    }
}

/// One fork of one relation: tablespace, database (0 for shared relations), relfilenode, fork.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RelTag {
    /// The tablespace's oid, such as [`DEFAULT_TABLESPACE`].
    pub spc: u32,
    /// The database's oid; 0 for a shared relation.
    pub db: u32,
    /// The relfilenode; not the relation's oid, since a rewrite of the relation changes it.
    pub rel: u32,
    /// The fork of the relation.
    pub fork: ForkNumber,
}

impl RelTag {
    /// Another fork of the same relation.
    #[inline]
    pub fn with_fork(self, fork: ForkNumber) -> RelTag {
        RelTag { fork, ..self }
    }
}

impl fmt::Display for RelTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.spc, self.db, self.rel)?;
        match self.fork {
            ForkNumber::Main => Ok(()),
            fork => write!(f, "_{}", fork.file_suffix()),
        }
    }
}

/// The SLRUs that survive a restart; `pg_subtrans` and `pg_notify` do not and stay local to a compute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum SlruKind {
    /// Whether each transaction committed, two bits each.
    Clog = 0,
    /// Where the members of each multixact begin, in [`SlruKind::MultixactMembers`].
    MultixactOffsets = 1,
    /// The transactions of each multixact, and how each holds the row.
    MultixactMembers = 2,
    /// When each transaction committed; only written with `track_commit_timestamp` on.
    CommitTs = 3,
}

impl SlruKind {
    /// Every SLRU, in the order of the numbers, which are Weir's own and part of storage keys.
    pub const ALL: [SlruKind; 4] = [
        SlruKind::Clog,
        SlruKind::MultixactOffsets,
        SlruKind::MultixactMembers,
        SlruKind::CommitTs,
    ];

    /// The SLRU with this number; `None` if there is none.
    #[inline]
    pub fn from_u8(value: u8) -> Option<SlruKind> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == value)
    }

    /// Directory below PGDATA.
    pub fn directory(self) -> &'static str {
        match self {
            SlruKind::Clog => "pg_xact",
            SlruKind::MultixactOffsets => "pg_multixact/offsets",
            SlruKind::MultixactMembers => "pg_multixact/members",
            SlruKind::CommitTs => "pg_commit_ts",
        }
    }
}

/// Tablespace oid of `pg_default` (files under `base/`).
pub const DEFAULT_TABLESPACE: u32 = 1663;
/// Tablespace oid of `pg_global` (files under `global/`).
pub const GLOBAL_TABLESPACE: u32 = 1664;
