//! The pageserver: keeps every version of every page of its timelines and serves any of them.
//!
//! It ingests committed WAL from safekeepers into an open memory layer, flushes that to immutable layer files in the
//! object store, makes page images where chains of deltas grow long, and answers reads at any LSN by redoing the
//! deltas above the newest image, in process. Branches read through their ancestors.
//!
//! Invariants, each kept by the module named:
//! - only committed WAL is ingested, a record at a time, in order (`ingest`, `wal_source`);
//! - a read never returns a wrong page: it waits for its LSN, and what cannot be redone is an error that names key,
//!   LSN and record (`timeline`, `version_store`);
//! - the index names only layers that are durable, and safekeepers trim only what it reaches (`timeline`,
//!   `timeline_index`);
//! - a compute that was fenced by a newer term stays fenced (`timeline`).
//!
//! A crash at any moment leaves the newest durable index; WAL after the index's LSN is ingested again.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod about;
pub mod api;
mod background;
mod chain_histogram;
pub mod clock;
pub mod config;
mod disk;
pub mod error;
mod eviction;
mod floor;
pub mod http;
pub mod import;
mod inventory;
mod key_tool;
mod large_records;
mod layer_cache;
mod layer_file;
pub mod manager;
mod memory;
pub mod metrics;
mod page_cache;
pub mod page_service;
mod pages;
mod recent;
mod redo;
mod schedule;
pub mod term_history;
pub mod timeline;
pub mod timeline_index;
pub mod timestamp;
pub mod tool;
mod version_store;
pub mod wal_source;
