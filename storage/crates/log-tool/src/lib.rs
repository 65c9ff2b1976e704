//! Looking into the logs of safekeepers with everything else down: what each member of a timeline holds, which of it
//! is provably complete, and whether the members agree.
//!
//! Input are the data directories of safekeepers ([`safekeeper`] describes their files). Control files are read by the
//! safekeeper's own code, records by the decoder that safekeepers and pageservers use.
//!
//! Invariants:
//! - nothing is created, written, cut, renamed, removed or locked, so a safekeeper may run on the directory meanwhile.
//!   What its writing leaves half done at the end of a log is no error, and whoever looks is told that it moved;
//! - what cannot be read or makes no sense is reported with its place, and everything else is looked at all the same;
//! - memory is a few buffers of [`scan::CHUNK_BYTES`] and the longest record, whatever the length of the logs.
//!
//! What is proven: that records lie end to end from a range's begin to its end, each with the checksum of its content
//! and with the position of the record before it. Padding behind records, what follows a switch of segments, and parts
//! of page headers are under no checksum; they are compared between members, and counted as `uncovered`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod compare;
pub mod folder;
pub mod judge;
pub mod member;
pub mod part;
pub mod report;
pub mod text;
pub mod voters;

pub use safekeeper::scan;
