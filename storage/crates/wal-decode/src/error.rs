//! Why bytes could not be read as WAL, or a record could not be turned into changes.

use pg_types::{Lsn, wal::rmgr};

/// The bytes are not the WAL they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    #[error("WAL fed at {found}, expected {expected}: feed every byte once and in order")]
    Gap { expected: Lsn, found: Lsn },
    #[error("the records behind {lsn} were not taken before more WAL came: take all of a piece")]
    NotTaken { lsn: Lsn },
    #[error("{lsn} is no record boundary: {why}")]
    NotABoundary { lsn: Lsn, why: &'static str },
    #[error("bad WAL page header at {lsn}: {why}")]
    PageHeader { lsn: Lsn, why: String },
    #[error("no record at {lsn}: the WAL is zero there")]
    Zero { lsn: Lsn },
    #[error("bad record at {lsn}: {why}")]
    Record { lsn: Lsn, why: String },
    #[error(
        "record at {lsn} is damaged: its checksum is {stored:08x}, its content gives {computed:08x}"
    )]
    Checksum {
        lsn: Lsn,
        stored: u32,
        computed: u32,
    },
    #[error(
        "the page at {lsn} overwrites a record that broke off: this WAL went through a crash recovery in place, which Weir never does"
    )]
    OverwrittenRecord { lsn: Lsn },
}

/// An image in a record could not be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot restore a page image: {0}")]
pub struct ImageError(pub String);

/// A record whose effect on pages is not known. It stops its timeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {} op {op:#04x} at {lsn} is not supported: {why}", rmgr::name(*rmid))]
pub struct UnknownRecord {
    /// Start of the record.
    pub lsn: Lsn,
    pub rmid: u8,
    /// `xl_info & 0xF0`.
    pub op: u8,
    pub why: &'static str,
}

/// Why a record could not be turned into changes. Either way the timeline must stop before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterpretError {
    #[error(transparent)]
    Unknown(#[from] UnknownRecord),
    #[error("record {} op {op:#04x} at {lsn} is malformed: {why}", rmgr::name(*rmid))]
    Malformed {
        lsn: Lsn,
        rmid: u8,
        op: u8,
        why: String,
    },
}

impl InterpretError {
    /// Start of the record.
    pub fn lsn(&self) -> Lsn {
        match self {
            InterpretError::Unknown(unknown) => unknown.lsn,
            InterpretError::Malformed { lsn, .. } => *lsn,
        }
    }
}
