//! What the pageserver keeps in a timeline's index, and what is said of it.

use blob::RemoteLayer;
use pg_types::{Lsn, Term, TimelineId};
use serde::{Deserialize, Serialize};

use crate::api::CreateTimeline;
use crate::term_history::Ingested;

/// Where a branch leaves its ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AncestorPoint {
    /// The ancestor, a timeline of the same tenant.
    pub timeline_id: TimelineId,
    /// Up to here, inclusive, the branch reads its ancestor; a record boundary.
    pub lsn: Lsn,
}

/// What a timeline is. Only `safekeepers` ever changes, and `ancestor` once, to none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Major version of Postgres.
    pub pg_version: u32,
    /// `system_identifier` of the control file, random for each timeline.
    pub system_identifier: u64,
    /// Where the timeline's own WAL begins.
    pub start_lsn: Lsn,
    /// What it is a branch of; `None` for a cluster of its own and for a detached branch.
    pub ancestor: Option<AncestorPoint>,
    /// The safekeepers from which the timeline gets its WAL, `host:port`.
    pub safekeepers: Vec<String>,
    /// What was asked for, to recognise a repeated request.
    pub request: CreateTimeline,
}

/// Where the auxiliary files of the last suspend are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuxFiles {
    /// The LSN at which the compute was suspended.
    pub lsn: Lsn,
    /// Name of the tenant's document that has them as a tar.
    pub document: String,
}

/// Keeps one LSN readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The LSN that stays readable, a record boundary.
    pub lsn: Lsn,
    /// Seconds of even time (`clock`).
    pub until: u64,
}

/// Where the newest compute of a timeline started. It reads what it has no copy of as of here, and names and sizes of
/// files exactly here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPoint {
    /// The compute's term.
    pub term: Term,
    /// Where the term begins.
    pub lsn: Lsn,
}

/// The pageserver's part of the index: the JSON under `metadata` (`docs/formats.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// What the timeline is.
    pub manifest: Manifest,
    /// The highest term under which a compute was given its bundle.
    pub max_term: Term,
    /// Where the auxiliary files of the last suspend are.
    pub aux: Option<AuxFiles>,
    /// History before it may be gone.
    #[serde(default)]
    pub horizon: Lsn,
    /// LSNs that stay readable below the horizon.
    #[serde(default)]
    pub leases: Vec<Lease>,
    /// `None` once the compute's hold on it has run out and history before it may be gone.
    #[serde(default)]
    pub start: Option<StartPoint>,
    /// What the timeline was a branch of, before it was given everything it read there.
    #[serde(default)]
    pub detached_from: Option<AncestorPoint>,
    /// The terms that wrote the ingested WAL, up to the index's LSN at least; `None` when the index was stored by a
    /// program that did not note them.
    #[serde(default)]
    pub ingested: Option<Ingested>,
}

/// Why uploads do not go on.
pub struct Trouble {
    /// For how long attempts have failed; none once they have stopped for good.
    pub elapsed: Option<std::time::Duration>,
    /// The last error, or why uploads have stopped for good.
    pub reason: String,
}

/// What a branch takes along when it leaves its ancestors.
pub struct Inheritance {
    /// Durable copies of all layers it read through them.
    pub layers: Vec<RemoteLayer>,
    /// Where the history in them begins.
    pub oldest: Lsn,
    /// Leases that the ancestors hold for LSNs of the branch's history.
    pub leases: Vec<Lease>,
}
