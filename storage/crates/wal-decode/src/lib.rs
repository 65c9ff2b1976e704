//! WAL as Postgres writes it, decoded: byte stream -> records -> per-key changes.
//!
//! Pure: bytes in, values out. The parsers face bytes that another program wrote; nothing here panics
//! on any input, and anything unknown is an error that names the record and its LSN.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod change;
pub mod error;
pub mod image;
pub mod interpret;
mod malformed;
pub mod packed;
pub mod parallel;
pub mod record;
pub mod relations;
pub mod state;
pub mod stats;
pub mod stream;
pub mod synth;
pub mod xact;

pub use change::{MetaChange, PageChange, PageDelta};
pub use error::{ImageError, InterpretError, UnknownRecord, WalError};
pub use image::{restore_image, restore_into};
pub use interpret::{
    Interpreted, MapClears, PageStep, Sink, interpret, interpret_into, is_only_named, map_clears,
    restore_image_page,
};
pub use packed::{WrongPage, pack, packed_operation, unpack};
pub use record::{
    BlockImage, BlockRef, DecodedRecord, Summary, decode, decode_for, strip_images, stripped,
    summarize, unlink,
};
pub use relations::{RelationBytes, RelationId, WalByRelation};
pub use state::{Observed, TimelineState};
pub use stats::WalStats;
pub use stream::{MESSAGE_KEPT, RawRecord, Records, WalStreamDecoder, last_record_boundary};
