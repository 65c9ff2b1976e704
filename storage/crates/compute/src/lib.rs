//! The compute: stock Postgres on remote storage, with the agent that makes it possible.
//!
//! From below: [`start`] lays out the local files of a start, [`pages`] talks to the pageserver, [`volume`]
//! is the lazily filled file system below Postgres, [`settings`] are those that a customer may choose, [`size`] says
//! what a size makes of others, [`prewarm`] is the list of pages that a start loads ahead of need, [`postgres`]
//! runs and configures the server, [`agent`] ties them together from election to suspend and serves the HTTP interface.
//!
//! Everything local is disposable: a crash at any moment leaves files that the next start deletes, and no
//! mount (the agent has its own mount namespace). What was acknowledged is on the safekeepers.

#![warn(missing_docs)]

pub mod agent;
pub mod bundle;
mod metrics;
pub mod pages;
pub mod postgres;
pub mod prewarm;
pub mod settings;
pub mod size;
pub mod source;
pub mod spec;
pub mod start;
pub mod volume;
