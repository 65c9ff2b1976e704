//! The log's protocol, model-checked: within small bounds *every* order of events is tried, on the real state machines
//! of `consensus`.
//!
//! The `sim` crate runs long random schedules; this one exhausts short ones. A [`scenario::Scenario`] says what may
//! happen (computes, terms, records, changes of members, crashes, lost and restored disks, late messages) and how often;
//! [`step::Step`] is one thing that happens to the real [`consensus::Acceptor`]s and [`consensus::Proposer`]s;
//! [`properties`] are checked in each state that can be reached. `docs/consensus.md` says what is left out and why that
//! hides nothing. [`Bug`]s can be planted around the machines to see that each is found.
//!
//! Invariants:
//! - a state holds everything that can have an influence on what happens later, so that two states with one fingerprint
//!   have the same future (fingerprints have 64 bits: among the 10 million states of a scenario, two that differ share one with a
//!   probability of three in a million);
//! - the same scenario has the same states, in whatever order they are searched.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bug;
pub mod check;
pub mod compute;
pub mod larger;
pub mod log;
mod messages;
pub mod model;
pub mod properties;
pub mod safekeeper;
pub mod scenario;
pub mod scenarios;
pub mod state;
pub mod step;
pub mod trace;

pub use bug::Bug;
pub use check::{Outcome, check};
pub use model::ProtocolModel;
pub use scenario::Scenario;
