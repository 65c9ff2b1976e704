//! The safekeeper: holds the WAL of timelines durably, as one of a quorum.
//!
//! Proposers write to it under a term, pageservers read from it what is committed (`wire::wal`), and the
//! control plane creates and deletes timelines over HTTP. The rules are those of the `consensus` crate; here
//! is what they need of disks and connections.
//!
//! Below the data directory each timeline has its own, `<tenant>/<timeline>/`:
//! - `control`: identity, members, promise, term history, commit LSN, horizon; replaced atomically, checksummed;
//! - `<segment>`: 16 MiB of WAL each, named as Postgres does, sparse where nothing was written yet;
//! - `cut/`: WAL that was cut off the log, kept for a week (`cut_wal`);
//! - `filling/`, `filled/`: WAL from the object store that is about to be the log's (`filled`);
//! - `repairing/`: a segment that is about to replace a damaged one, and `damaged/`: those that were replaced (`replaced`).
//!
//! Beside them lies who the directory is and which logs it was given (`disk`).
//!
//! Invariants:
//! - a promise or a history is on disk before any reply that follows from it leaves;
//! - WAL is reported as flushed only after an fsync that began when it was complete, up to a record boundary;
//! - a log is cut on disk, zeroes behind the cut, before the history that demanded it is stored, and what is cut off
//!   is set aside durably before that;
//! - segments go only when the control file already says that nothing below is needed;
//! - WAL that is known to be damaged is served to nobody, and offloaded nowhere (`damage`, `care`).
//!
//! What a crash leaves: the last control file, and WAL that may end in a torn record. A start finds the end
//! of the last whole record behind the stored commit LSN, writes that tail once more (what only the page
//! cache still had may not be on disk), clears what follows, and goes on from there. A timeline that can't be
//! read or written stops alone, says why, and acknowledges nothing.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod api;
pub mod care;
pub mod control;
pub mod cut_wal;
pub mod damage;
pub mod disk;
pub mod filled;
pub mod metrics;
pub mod offload;
pub mod open_error;
pub mod origin;
pub mod positions;
mod recovery;
pub mod registry;
pub mod repair;
pub mod replaced;
pub mod room;
pub mod scan;
pub mod segments;
pub mod server;
pub mod timeline;
pub mod verify;

pub use registry::Registry;
