//! What the agent says about itself.

use std::time::Instant;

use pg_types::Lsn;
use serde::Serialize;

use super::Unconfirmed;
use super::load::Load;
use super::members::Members;
use super::prewarm::Prewarm;
use super::state::State;
use crate::postgres::cgroups::Bounds;
use crate::postgres::confine::Confinement;

/// Whether Postgres logs page images, and since which record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FullPageWrites {
    /// Whether page images are logged.
    pub enabled: bool,
    /// End of the record that made it so; null when it has been so from the timeline's first day.
    pub lsn: Option<Lsn>,
    /// Start of that record.
    pub record_lsn: Option<Lsn>,
}

/// How long the last start took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StartTiming {
    /// From the start's begin until Postgres answered, milliseconds. Applying the spec comes after that.
    pub total_ms: u64,
    /// From the start's begin until a term was won, milliseconds.
    pub elect_ms: u64,
    /// Getting the small files and the branch's size from the pageserver, milliseconds.
    pub bundle_ms: u64,
    /// From laying out files until Postgres answered, milliseconds: the sum of `layout_ms`, `spawn_ms`, `recover_ms` and
    /// `answer_ms`.
    pub postgres_ms: u64,
    /// Of it, writing files and mounting the volume, milliseconds.
    pub layout_ms: u64,
    /// Of it, until Postgres's program was started within its walls, milliseconds.
    pub spawn_ms: u64,
    /// Of it, until Postgres said that sessions can begin, milliseconds.
    pub recover_ms: u64,
    /// Of it, the first session and its first answer, milliseconds.
    pub answer_ms: u64,
    /// After `total_ms`: making roles, databases and full_page_writes what the spec says, milliseconds.
    pub apply_ms: u64,
    /// After that: a trial of sessions as clients have them, milliseconds; 0 where it does not decide over the start.
    pub trial_ms: u64,
    /// Pages that storage gave until Postgres answered, those read ahead included.
    pub pages_fetched: u64,
    /// Bytes of the fetched pages; a page of zeroes has none.
    pub bytes_fetched: u64,
}

/// A watch that takes the times of steps which follow each other.
pub(super) struct Laps(Instant);

impl Laps {
    /// The first step begins now.
    pub fn begin() -> Laps {
        Laps(Instant::now())
    }

    /// Milliseconds of the step that ends now, rounded; the next one begins.
    pub fn take_ms(&mut self) -> u64 {
        let now = Instant::now();
        let micros = now.duration_since(std::mem::replace(&mut self.0, now));
        u64::try_from((micros.as_micros() + 500) / 1000).unwrap_or(u64::MAX)
    }
}

/// The answer to `GET /status`.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The compute's name in the control plane, from its spec.
    pub compute_id: String,
    /// Where the compute is between its start and its end.
    pub state: State,
    /// Why the compute does not run, or refuses writes, in words; null while all is well.
    pub reason: Option<String>,
    /// The term that was won last; null until one was.
    pub term: Option<u64>,
    /// Where the log ended when the term was won.
    pub start_lsn: Option<Lsn>,
    /// Up to where a majority of the safekeepers has the log on disk; null while no Postgres runs.
    pub commit_lsn: Option<Lsn>,
    /// Up to where the pageserver has ingested the log, as far as is known; null while no Postgres runs.
    pub ingested_lsn: Option<Lsn>,
    /// Whether Postgres logs page images, by the last committed record that says so; null before the first start.
    pub full_page_writes: Option<FullPageWrites>,
    /// When the last run began to serve, in the form of RFC 3339; null before the first.
    pub started_at: Option<String>,
    /// How long the last start took that led to a run; null before the first.
    pub start: Option<StartTiming>,
    /// Loading pages of the last suspend; null before the first start.
    pub prewarm: Option<Prewarm>,
    /// The TCP port that Postgres listens on, from the spec.
    pub port: u16,
    /// Sessions of clients, idle ones included, as Postgres said last in this run; null before.
    pub active_connections: Option<i64>,
    /// How long clients have done nothing, seconds; null while nobody can tell.
    pub idle_seconds: Option<f64>,
    /// Bytes of unlogged relations, which a suspend empties, as of a moment within `idle_seconds`; null while clients do
    /// something or nobody has looked since.
    pub unlogged_bytes: Option<u64>,
    /// Base backups that are being taken over the replication protocol, as Postgres said last in this run; null
    /// before.
    pub base_backups: Option<i64>,
    /// Sessions whose commit waits for a majority of the safekeepers.
    pub commits_waiting: Option<u64>,
    /// Since the agent's process began.
    pub commits_unconfirmed: Unconfirmed,
    /// Runs that served and were followed by another, since the agent's process began.
    pub restarts: u64,
    /// Of the log that this compute writes.
    pub members: Option<Members>,
    /// The minor of the server that runs, as it says itself, such as 15.20.
    pub postgres_version: Option<String>,
    /// What Postgres is kept from; null before the first start.
    pub confinement: Option<Confinement>,
    /// What bounds what Postgres takes of the machine; null before the first start, and where no control group was named.
    pub limits: Option<Bounds>,
    /// How busy Postgres is; null until two samples were taken, and while no Postgres runs.
    pub load: Option<Load>,
    /// The size that the server that runs was given; null while none does.
    pub compute_units: Option<f64>,
    /// What sessions begin with, as the agent gave it to the server that runs.
    pub synchronous_commit: Option<String>,
    /// `tokens`, or `none` of an agent that lets everybody in.
    pub authentication: &'static str,
}

impl Status {
    /// The status of a compute that is starting for the first time.
    pub fn new(compute_id: String, port: u16) -> Status {
        Status {
            compute_id,
            state: State::Starting,
            reason: None,
            term: None,
            start_lsn: None,
            commit_lsn: None,
            ingested_lsn: None,
            full_page_writes: None,
            started_at: None,
            start: None,
            prewarm: None,
            port,
            active_connections: None,
            idle_seconds: None,
            unlogged_bytes: None,
            base_backups: None,
            commits_waiting: None,
            commits_unconfirmed: Unconfirmed::default(),
            restarts: 0,
            members: None,
            postgres_version: None,
            confinement: None,
            limits: None,
            load: None,
            compute_units: None,
            synchronous_commit: None,
            authentication: token::gate::authentication(),
        }
    }
}
