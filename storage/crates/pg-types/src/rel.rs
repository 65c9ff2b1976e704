//! Addresses of relation forks and SLRUs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A fork of a relation, numbered as Postgres's `ForkNumber`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum ForkNumber {
    Main = 0,
    Fsm = 1,
    VisibilityMap = 2,
    Init = 3,
}

impl ForkNumber {
    pub const ALL: [ForkNumber; 4] = [
        ForkNumber::Main,
        ForkNumber::Fsm,
        ForkNumber::VisibilityMap,
        ForkNumber::Init,
    ];

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
    pub spc: u32,
    pub db: u32,
    pub rel: u32,
    pub fork: ForkNumber,
}

impl RelTag {
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
    Clog = 0,
    MultixactOffsets = 1,
    MultixactMembers = 2,
    CommitTs = 3,
}

impl SlruKind {
    pub const ALL: [SlruKind; 4] = [
        SlruKind::Clog,
        SlruKind::MultixactOffsets,
        SlruKind::MultixactMembers,
        SlruKind::CommitTs,
    ];

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
