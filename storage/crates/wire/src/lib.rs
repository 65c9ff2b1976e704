//! The protocols between Weir's programs: messages and their encoding, no I/O.
//!
//! Every message travels as one frame: a 4-byte big-endian length, then the body. Limits are checked
//! before anything is allocated.
//!
//! With the feature `codec`, [`wal::codec`] and [`page::codec`] cut a stream into such frames.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "codec")]
mod codec;
pub mod first;
pub mod page;
pub mod page_frames;
pub mod wal;
