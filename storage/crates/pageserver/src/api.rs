//! Bodies of the management API, as `docs/interfaces.md` describes them.

use pg_types::{Lsn, TenantId, TimelineId};
use serde::{Deserialize, Serialize};

use crate::config::{ImageMode, TenantConfig};

/// Body of `POST /v1/tenant/{tenant}/timeline`: a timeline that begins as a fresh cluster or, with an ancestor, as a
/// branch. A body equal to the one that made a timeline is answered with that timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTimeline {
    /// Id of the new timeline, chosen by the caller, so that a repeated request makes no second timeline.
    pub new_timeline_id: TimelineId,
    /// Major version of Postgres; 15 when absent. A branch has the version of its ancestor.
    #[serde(default = "default_pg_version")]
    pub pg_version: u32,
    /// WAL addresses of the safekeepers that hold, or will hold, the timeline's WAL.
    #[serde(default)]
    pub safekeepers: Vec<String>,
    /// The timeline of the same tenant to branch from; absent for a fresh cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ancestor_timeline_id: Option<TimelineId>,
    /// Where the branch leaves its ancestor, rounded down to a record boundary; an LSN that is not ingested yet is
    /// waited for. Without it and without a time, the branch begins at the newest ingested LSN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ancestor_start_lsn: Option<Lsn>,
    /// The branch begins at the newest LSN at which no commit is later than this time, in RFC 3339. Not together with
    /// `ancestor_start_lsn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ancestor_timestamp: Option<String>,
}

fn default_pg_version() -> u32 {
    15
}

/// A tenant, as `GET /v1/tenant/{tenant}` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantInfo {
    /// Id under which the tenant was created.
    pub id: TenantId,
    /// All timelines of the tenant: those that are open, then those that could not be opened.
    pub timelines: Vec<TimelineId>,
    /// The settings in force.
    pub config: TenantConfig,
    /// Revision of the description that the control plane has put; null without one that can be read.
    #[serde(default)]
    pub about_revision: Option<String>,
}

/// Whether a timeline ingests WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimelineStateName {
    /// Ingesting, or ready to.
    Active,
    /// Met a record it cannot redo; serves reads up to the record before.
    Stopped,
}

/// Whether Postgres logs page images, as of the last ingested record. Follows `XLOG_FPW_CHANGE` records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullPageWrites {
    /// True while Postgres logs an image of each page that it changes first after a checkpoint.
    pub enabled: bool,
    /// End of the record that made it so; `0/0` when it has been so from the start.
    pub lsn: Lsn,
}

/// How many layer files a timeline has itself; those of its ancestors are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSummary {
    /// Number of delta layers.
    pub delta: usize,
    /// Number of image layers.
    pub image: usize,
    /// Bytes of all these layers in the object store.
    pub bytes: u64,
}

/// Why nothing gets to the object store. Ingest goes on while memory lasts, and safekeepers keep the WAL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadsFailing {
    /// Since when attempts have failed, RFC 3339; null once uploads have stopped for good.
    pub since: Option<String>,
    /// The last error of the object store, or why uploads have stopped for good.
    pub reason: String,
}

/// A timeline, as `GET /v1/tenant/{tenant}/timeline/{timeline}` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineStatus {
    /// Id of the timeline, unique within the tenant.
    pub timeline_id: TimelineId,
    /// The tenant whose timeline it is.
    pub tenant_id: TenantId,
    /// Whether WAL is ingested; `reason` says why not.
    pub state: TimelineStateName,
    /// Why ingest has stopped; null while the timeline is active.
    pub reason: Option<String>,
    /// Major version of Postgres, such as 15.
    pub pg_version: u32,
    /// `system_identifier` of the timeline's control file, of its own even for a branch. Decimal, because it does not
    /// fit the integers of JSON.
    pub system_identifier: String,
    /// Where the timeline's own WAL begins: at the branch point, or at the end of the shutdown checkpoint of the
    /// cluster that was imported.
    pub start_lsn: Lsn,
    /// Oldest LSN that can be read and branched from, branch points and leases aside.
    pub oldest_lsn: Lsn,
    /// End of the last ingested record: the newest LSN that can be read.
    pub last_record_lsn: Lsn,
    /// Start of the last ingested record, to which the next one links; `0/0` where it is not known.
    pub prev_record_lsn: Lsn,
    /// As `remote_consistent_lsn`: a layer counts as written once the object store has it.
    pub disk_consistent_lsn: Lsn,
    /// Everything up to here is in layers that the index in the object store names; safekeepers may trim their WAL up
    /// to here.
    pub remote_consistent_lsn: Lsn,
    /// The timeline of which this is a branch; null without one, and once the branch is detached.
    pub ancestor_timeline_id: Option<TimelineId>,
    /// Up to which LSN the branch reads its ancestor; null without an ancestor.
    pub ancestor_lsn: Option<Lsn>,
    /// Bytes of all main forks at `last_record_lsn`; 0 when they could not be counted.
    pub current_logical_size: u64,
    /// WAL bytes of the history the timeline keeps by itself, its ancestors' aside.
    pub history_bytes: u64,
    /// Why history is cut by another time than the wall clock's, or not at all; null while the wall clock decides.
    pub history_held: Option<String>,
    /// Where the newest compute started, while that LSN is held readable for it whatever the history window; null when
    /// no start is held.
    pub start_held: Option<Lsn>,
    /// Why nothing gets to the object store; null while the object store takes what it is given.
    pub uploads_failing: Option<UploadsFailing>,
    /// Whether Postgres logs page images, and since where.
    pub full_page_writes: FullPageWrites,
    /// The chain length at which any page gets an image, given the mode and the full-page-writes state.
    pub image_threshold: u32,
    /// The highest term of any compute that has asked for the files it starts from, or whose WAL was read; lower
    /// terms are fenced. 0 before the first compute.
    pub max_term: u64,
    /// The timeline's own layer files.
    pub layers: LayerSummary,
    /// WAL addresses, `host:port`, of the safekeepers from which the timeline gets its WAL.
    pub safekeepers: Vec<String>,
    /// The safekeepers whose WAL was damaged or of another history when it was last read, since the timeline was
    /// opened here.
    pub sick_safekeepers: Vec<SickSafekeeper>,
}

/// Why the WAL of a safekeeper can't be ingested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SickKind {
    /// What it sent was no WAL.
    Damaged,
    /// The safekeeper's log is not the log whose WAL was ingested.
    Diverged,
}

/// A safekeeper whose WAL could not be ingested when it was last read or asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SickSafekeeper {
    /// WAL address of the safekeeper, `host:port`.
    pub safekeeper: String,
    /// What is the matter with its WAL.
    pub kind: SickKind,
    /// The record that follows this position was the first that could not be taken.
    pub lsn: Lsn,
    /// The error of decoding, or both term histories, for an operator to read.
    pub reason: String,
    /// When this safekeeper was first found sick, whatever the kind was then. RFC 3339, by the wall clock of the
    /// pageserver.
    pub since: String,
}

/// A sick safekeeper and the timeline whose WAL it keeps, in the list over all timelines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SickSafekeeperOfTimeline {
    /// The tenant that the timeline belongs to.
    pub tenant_id: TenantId,
    /// The timeline that can't be ingested from this safekeeper.
    pub timeline_id: TimelineId,
    /// What was found; in JSON its fields stand beside the ids.
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

/// What an LSN that was looked up by time has to do with that time.
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

/// Answer of `GET .../lsn_by_timestamp`: the newest LSN at which no commit is later than the time asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LsnByTimestamp {
    /// The LSN found, or the end of the known history that is nearest to the time; see `kind`.
    pub lsn: Lsn,
    /// Whether the time lies within the known history, behind it or before it.
    pub kind: LsnKind,
}

/// Answer of `GET .../timestamp_of_lsn`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimestampOfLsn {
    /// Time of the newest commit at or before the LSN, RFC 3339; null when there is none.
    pub timestamp: Option<String>,
}

/// Body of `POST .../lease`: keep an LSN readable, whatever the history window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// The LSN to keep; the lease is given for the record boundary at or before it.
    pub lsn: Lsn,
    /// For how long, 1 to 604 800 (a week). Jumps of the wall clock change nothing about it.
    pub seconds: u64,
}

/// Body of `PUT .../start`: the compute of a term that began at an LSN runs, and reads what it started from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    /// Term of the compute, the newest of the timeline; never 0.
    pub term: u64,
    /// Where the term begins: the LSN of the compute's bundle.
    pub lsn: Lsn,
}

/// Answer of `PUT .../start`: how long what the compute started from stays readable without another request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartHeld {
    /// Seconds from this answer on.
    pub seconds: u64,
}

/// Answer of `POST .../lease`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGiven {
    /// The record boundary at or before the LSN asked for.
    pub lsn: Lsn,
    /// What the wall clock shows when the lease ends, if it is not set meanwhile; RFC 3339.
    pub valid_until: String,
}

/// How a branch stands to its ancestors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DetachState {
    /// Still as it was made.
    #[default]
    Attached,
    /// The branch is being given copies of what it reads of its ancestors.
    Running,
    /// The last attempt has failed; what it copied is used again.
    Failed,
    /// The branch reads of no ancestor any more.
    Detached,
}

/// How far a branch is on its way to independence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachInfo {
    /// How the branch stands to its ancestors now.
    pub state: DetachState,
    /// Why the last attempt failed; null when none failed since the pageserver started, and during an attempt.
    pub reason: Option<String>,
    /// Layers of the ancestors, as far as the branch reads them. All four counts are 0 until an attempt of this
    /// process has listed these layers.
    pub layers: usize,
    /// Layers of the ancestors that the branch has durable copies of.
    pub layers_copied: usize,
    /// Bytes of the layers that `layers` counts.
    pub bytes: u64,
    /// Bytes of the layers that `layers_copied` counts, as large as the ancestors have them.
    pub bytes_copied: u64,
}

/// One bar of a histogram: how many had a value of at most `up_to`, and more than the bar before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainBar {
    /// Null for the last bar, which has no upper end.
    pub up_to: Option<u32>,
    /// How many pages, or reads, have a value in this bar.
    pub count: u64,
}

/// Which pages get images before their chains reach the threshold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePolicy {
    /// Deltas at which such a page gets its image.
    pub chain: u32,
    /// Pages that gather at most so many deltas for each read; null: all pages.
    pub deltas_per_read: Option<u32>,
}

/// Answer of `GET .../chains`: how long the chains of deltas are that a read of a page has to apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chains {
    /// How the tenant has it decided that a page gets an image.
    pub mode: ImageMode,
    /// The chain length at which any page gets an image.
    pub threshold: u32,
    /// What the adaptive mode has found cheapest; null in the fixed mode.
    pub policy: Option<ImagePolicy>,
    /// Pages by the deltas they have gathered since their newest image.
    pub pages: Vec<ChainBar>,
    /// Deltas of the longest chain there is now.
    pub longest: u32,
    /// Pages that have reached the threshold and wait for their image.
    pub pending_images: usize,
    /// Reads since the start of the process by the deltas they applied.
    pub reads: Vec<ChainBar>,
}

/// One of a timeline's own layer files, as `GET .../layers` lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerInfo {
    /// The layer's name, which says its keys, LSNs, kind, level and checksum (`docs/formats.md`).
    pub name: String,
    /// `delta` or `image`.
    pub kind: String,
    /// 0 as flushed from memory, 1 compacted or an image layer, 2 compacted before the history horizon.
    pub level: u8,
    /// LSN of the oldest version in the layer.
    pub lsn_start: Lsn,
    /// LSN of the newest version in the layer, inclusive.
    pub lsn_end: Lsn,
    /// Size of the layer's file.
    pub bytes: u64,
    /// Whether the layer can be read without fetching it: always in a local object store, else while a copy is in the
    /// local cache.
    pub resident: bool,
}

/// Everything a timeline holds at an LSN, in one number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// The LSN at which everything was read.
    pub lsn: Lsn,
    /// Number of forks of relations.
    pub relations: u64,
    /// Number of pages of relations and SLRUs.
    pub pages: u64,
    /// Over names, sizes and pages; 8 hex digits.
    pub crc32c: String,
}
