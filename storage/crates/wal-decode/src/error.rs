//! Why bytes could not be read as WAL, or a record could not be turned into changes.

use pg_types::{Lsn, wal::rmgr};

/// The bytes are not the WAL they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// The piece fed does not begin where the one before ended. Decode anew from the last boundary, with every byte.
    #[error("WAL fed at {found}, expected {expected}: feed every byte once and in order")]
    Gap {
        /// First byte that has not been fed.
        expected: Lsn,
        /// Where the piece begins.
        found: Lsn,
    },
    /// The caller dropped a piece's records before it had taken all. A mistake of the caller; decode anew from the
    /// last boundary.
    #[error("the records behind {lsn} were not taken before more WAL came: take all of a piece")]
    NotTaken {
        /// The piece was consumed up to here.
        lsn: Lsn,
    },
    /// Decoding began where no record ends, or a page continues a record that has ended. Begin at a boundary that is
    /// known to be one.
    #[error("{lsn} is no record boundary: {why}")]
    NotABoundary {
        /// Where decoding began, or the page with which it met the middle of a record.
        lsn: Lsn,
        /// What shows that it is no boundary.
        why: &'static str,
    },
    /// A WAL page's header is not the one due: damage, or WAL of another cluster or major version. The bytes may be
    /// right in another copy.
    #[error("bad WAL page header at {lsn}: {why}")]
    PageHeader {
        /// Start of the page.
        lsn: Lsn,
        /// What is wrong with the header, in words.
        why: String,
    },
    /// A length of 0 where a record is due. Usually no fault: the segment's file is not written any further.
    #[error("no record at {lsn}: the WAL is zero there")]
    Zero {
        /// Where the record would begin.
        lsn: Lsn,
    },
    /// A record's headers make no sense: its length, its resource manager, its link to the record before, its blocks.
    /// The bytes may be right in another copy.
    #[error("bad record at {lsn}: {why}")]
    Record {
        /// Start of the record.
        lsn: Lsn,
        /// What is wrong with the record, in words.
        why: String,
    },
    /// A record's bytes are not those that were written. They may be right in another copy.
    #[error(
        "record at {lsn} is damaged: its checksum is {stored:08x}, its content gives {computed:08x}"
    )]
    Checksum {
        /// Start of the record.
        lsn: Lsn,
        /// `xl_crc` of the record's header.
        stored: u32,
        /// CRC-32C of the bytes that were read.
        computed: u32,
    },
    /// The page's header has `XLP_FIRST_IS_OVERWRITE_CONTRECORD`. Such WAL is not taken, whichever copy it is.
    #[error(
        "the page at {lsn} overwrites a record that broke off: this WAL went through a crash recovery in place, which Weir never does"
    )]
    OverwrittenRecord {
        /// Start of the page.
        lsn: Lsn,
    },
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
    /// Resource manager id, `xl_rmid`.
    pub rmid: u8,
    /// `xl_info & 0xF0`.
    pub op: u8,
    /// What is not known, in words.
    pub why: &'static str,
}

/// Why a record could not be turned into changes. Either way the timeline must stop before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterpretError {
    /// The record is right, but Weir has no redo for it. A version of Weir that has one can go on from here.
    #[error(transparent)]
    Unknown(#[from] UnknownRecord),
    /// The record's body is not what its kind has, although its checksum is right.
    #[error("record {} op {op:#04x} at {lsn} is malformed: {why}", rmgr::name(*rmid))]
    Malformed {
        /// Start of the record.
        lsn: Lsn,
        /// Resource manager id, `xl_rmid`.
        rmid: u8,
        /// `xl_info & 0xF0`.
        op: u8,
        /// What is wrong with the body, in words.
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
