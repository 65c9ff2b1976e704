//! Bodies of the management API, as `docs/interfaces.md` describes them.

use pg_types::{Lsn, TenantId, TimelineId};
use serde::{Deserialize, Serialize};

use crate::config::{ImageMode, TenantConfig};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTimeline {
    pub new_timeline_id: TimelineId,
    #[serde(default = "default_pg_version")]
    pub pg_version: u32,
    /// WAL addresses of the safekeepers that hold, or will hold, the timeline's WAL.
    #[serde(default)]
    pub safekeepers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ancestor_timeline_id: Option<TimelineId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ancestor_start_lsn: Option<Lsn>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ancestor_timestamp: Option<String>,
}

fn default_pg_version() -> u32 {
    15
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantInfo {
    pub id: TenantId,
    pub timelines: Vec<TimelineId>,
    pub config: TenantConfig,
    /// Of the description that the control plane has put; null without one.
    #[serde(default)]
    pub about_revision: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimelineStateName {
    /// Ingesting, or ready to.
    Active,
    /// Met a record it cannot redo; serves reads up to the record before.
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullPageWrites {
    pub enabled: bool,
    /// End of the record that made it so; `0/0` when it has been so from the start.
    pub lsn: Lsn,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSummary {
    pub delta: usize,
    pub image: usize,
    /// Bytes in the object store.
    pub bytes: u64,
}

/// Why nothing gets to the object store. Ingest goes on while memory lasts, and safekeepers keep the WAL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadsFailing {
    /// RFC 3339; null when it has stopped for good.
    pub since: Option<String>,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineStatus {
    pub timeline_id: TimelineId,
    pub tenant_id: TenantId,
    pub state: TimelineStateName,
    pub reason: Option<String>,
    pub pg_version: u32,
    /// Decimal, because it does not fit the integers of JSON.
    pub system_identifier: String,
    pub start_lsn: Lsn,
    /// Oldest LSN that can be read and branched from, branch points and leases aside.
    pub oldest_lsn: Lsn,
    pub last_record_lsn: Lsn,
    pub prev_record_lsn: Lsn,
    pub disk_consistent_lsn: Lsn,
    pub remote_consistent_lsn: Lsn,
    pub ancestor_timeline_id: Option<TimelineId>,
    pub ancestor_lsn: Option<Lsn>,
    /// Bytes of all main forks at `last_record_lsn`.
    pub current_logical_size: u64,
    /// WAL bytes of the history the timeline keeps by itself, its ancestors' aside.
    pub history_bytes: u64,
    /// Why history is cut by another time than the wall clock's, or not at all; null: it is not.
    pub history_held: Option<String>,
    /// Where the newest compute started, while that stays readable for it, whatever the history window; null: nothing is.
    pub start_held: Option<Lsn>,
    /// Null while the object store takes what it is given.
    pub uploads_failing: Option<UploadsFailing>,
    pub full_page_writes: FullPageWrites,
    /// The chain length at which any page gets an image, given the mode and the full-page-writes state.
    pub image_threshold: u32,
    pub max_term: u64,
    pub layers: LayerSummary,
    pub safekeepers: Vec<String>,
    /// The safekeepers whose WAL was damaged or of another history when it was last read, since the timeline was
    /// opened here.
    pub sick_safekeepers: Vec<SickSafekeeper>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SickKind {
    /// What it sent was no WAL.
    Damaged,
    /// The safekeeper's log is not the log whose WAL was ingested.
    Diverged,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SickSafekeeper {
    pub safekeeper: String,
    pub kind: SickKind,
    /// The record that follows this position was the first that could not be taken.
    pub lsn: Lsn,
    pub reason: String,
    /// RFC 3339, by the wall clock of the pageserver.
    pub since: String,
}

/// A sick safekeeper and the timeline whose WAL it keeps, in the list over all timelines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SickSafekeeperOfTimeline {
    pub tenant_id: TenantId,
    pub timeline_id: TimelineId,
    #[serde(flatten)]
    pub sick: SickSafekeeper,
}

/// The safekeepers from which a timeline is to get its WAL from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SafekeeperList {
    /// WAL addresses, `host:port`.
    pub safekeepers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LsnKind {
    /// The newest commit at or before the time ends at this LSN.
    Present,
    /// The time is later than the newest commit: this is the newest LSN.
    Future,
    /// The time is earlier than the oldest commit known: this is where the history starts.
    Past,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LsnByTimestamp {
    pub lsn: Lsn,
    pub kind: LsnKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimestampOfLsn {
    /// Time of the newest commit at or before the LSN; null when there is none.
    pub timestamp: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    pub lsn: Lsn,
    pub seconds: u64,
}

/// A compute of a term that began at an LSN runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    pub term: u64,
    pub lsn: Lsn,
}

/// How long what it started from stays readable without another request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartHeld {
    pub seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGiven {
    /// The record boundary at or before the LSN asked for.
    pub lsn: Lsn,
    /// RFC 3339.
    pub valid_until: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DetachState {
    /// Still as it was made.
    #[default]
    Attached,
    Running,
    /// The last attempt has failed; what it copied is used again.
    Failed,
    /// The branch reads of no ancestor any more.
    Detached,
}

/// How far a branch is on its way to independence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachInfo {
    pub state: DetachState,
    /// Why the last attempt failed.
    pub reason: Option<String>,
    /// Of the ancestors, as far as the branch reads them.
    pub layers: usize,
    pub layers_copied: usize,
    pub bytes: u64,
    pub bytes_copied: u64,
}

/// One bar of a histogram: how many had a value of at most `up_to`, and more than the bar before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainBar {
    /// Null for the last bar, which has no upper end.
    pub up_to: Option<u32>,
    pub count: u64,
}

/// Which pages get images before their chains reach the threshold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePolicy {
    /// At so many deltas.
    pub chain: u32,
    /// Pages that gather at most so many deltas for each read; null: all pages.
    pub deltas_per_read: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chains {
    pub mode: ImageMode,
    /// The chain length at which any page gets an image.
    pub threshold: u32,
    /// What the adaptive mode has found cheapest; null in the fixed mode.
    pub policy: Option<ImagePolicy>,
    /// Pages by the deltas they have gathered since their newest image.
    pub pages: Vec<ChainBar>,
    pub longest: u32,
    /// Pages that have reached the threshold and wait for their image.
    pub pending_images: usize,
    /// Reads since the start of the process by the deltas they applied.
    pub reads: Vec<ChainBar>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerInfo {
    pub name: String,
    /// `delta` or `image`.
    pub kind: String,
    pub level: u8,
    pub lsn_start: Lsn,
    pub lsn_end: Lsn,
    pub bytes: u64,
    /// Whether a copy is in the local cache.
    pub resident: bool,
}

/// Everything a timeline holds at an LSN, in one number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    pub lsn: Lsn,
    /// Forks of relations.
    pub relations: u64,
    /// Pages of relations and SLRUs.
    pub pages: u64,
    /// Over names, sizes and pages; 8 hex digits.
    pub crc32c: String,
}
