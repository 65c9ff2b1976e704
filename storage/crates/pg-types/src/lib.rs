//! The vocabulary every other crate speaks: WAL positions, tenant and timeline ids, relation, SLRU and
//! page addresses, storage keys, and the on-disk and WAL structs of each supported Postgres major.
//!
//! Pure: no I/O, no clock, no allocation beyond what a value owns. Byte layouts are little-endian as
//! Postgres writes them on the platforms Weir runs on.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod bytes_le;
pub mod facts;
pub mod id;
pub mod key;
pub mod lsn;
pub mod maps;
pub mod page;
pub mod rel;
pub mod slru;
pub mod v15;
pub mod v17;
pub mod v18;
pub mod version;
pub mod wal;
mod wal_kinds;

pub use id::{DiskId, TenantId, Term, TimelineId};
pub use key::{Key, KeyKind, KeyRange};
pub use lsn::Lsn;
pub use rel::{ForkNumber, RelTag, SlruKind};
pub use version::{PgMajor, UnknownMajor};

/// Postgres's page size in bytes (`BLCKSZ`); every supported build uses the default.
pub const BLCKSZ: usize = 8192;
/// Blocks in one relation segment file of 1 GiB (`RELSEG_SIZE`).
pub const RELSEG_BLOCKS: u32 = 131_072;
/// Pages in one SLRU segment file (`SLRU_PAGES_PER_SEGMENT`).
pub const SLRU_PAGES_PER_SEGMENT: u32 = 32;
/// Bytes in one WAL segment; Weir always initialises clusters with the default.
pub const WAL_SEGMENT_BYTES: u64 = 16 << 20;
/// Bytes in one WAL page (`XLOG_BLCKSZ`).
pub const XLOG_BLCKSZ: u64 = 8192;
