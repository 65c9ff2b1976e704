//! Versions of keys, and where they are kept: the open layer in memory, immutable layer files (delta and image), the
//! map of a timeline's layers, the read path over all of them, and the planning of image generation and compaction.
//!
//! The crate is pure: bytes in, bytes out. It uses no file, clock or task; a layer file is read through
//! [`BlockSource`] and written into any `Write`.
//!
//! Invariants that the whole crate rests on:
//!
//! 1. A version is identified by `(key, lsn, seq)` and never changes. Versions of one key are totally ordered by
//!    `(lsn, seq)`, so *where* a version is stored never decides what a read returns: layers may overlap in keys and
//!    LSNs, and the same version may be met twice (it counts once).
//! 2. The values one WAL record puts on one key keep the order they were put in (`seq` 0, 1, ...), and all lie in one
//!    memory layer: a layer is frozen between records only.
//! 3. An image the storage makes for `(key, L)` contains everything at or before L, so it carries
//!    [`Version::GENERATED`], the highest `seq`: it stands above every delta at L whatever layer they are in.
//! 4. A version that starts a chain (image, zero, metadata, tombstone, a delta that initialises its page) hides every
//!    older version of its key.
//!
//! A crash loses the memory layers, whose content the WAL has. Layer files are immutable and carry checksums of every
//! part. A file that was not finished is refused when it is opened; damage in a block is found when the block is
//! read.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod block;
mod bloom;
mod cache;
mod check;
mod compact;
mod counts;
mod desc;
mod error;
mod format;
mod map;
mod memory;
mod name;
mod pace;
mod pieces;
mod read;
mod reader;
mod region;
mod retain;
mod source;
mod value;
mod vectored;
mod versions;
mod weigh;
mod writer;

pub use cache::BlockCache;
pub use check::LayerContent;
pub use compact::{CompactionPlan, MergeOptions, merge_layers, plan_l0, plan_settling};
pub use counts::{ChainCounts, ImageRule, ImageTask, LONG};
pub use desc::{LayerDesc, LayerKind};
pub use error::LayerError;
pub use format::{FORMAT_VERSION, KeyStat, MANY_KEYS};
pub use map::LayerMap;
pub use memory::MemoryLayer;
pub use name::LayerName;
pub use pace::Brake;
pub use pieces::{Pieces, Regions};
pub use read::{
    Base, Chain, ChainCollector, ChainDelta, RangeScan, View, collect, history, newest_lsn,
};
pub use reader::{LayerIter, LayerReader};
pub use region::{give_back_spare, keep_spare};
pub use retain::{Facts, Retention};
pub use source::BlockSource;
pub use value::{LsnRange, Put, Value, Version, Window};
pub use vectored::{ChainsCollector, collect_all};
pub use versions::{PersistentLayer, VersionSource};
pub use weigh::{PAGE_COST, Policy, REQUEST_COST};
pub use writer::{LayerWriter, WriterOptions, image_layer};
