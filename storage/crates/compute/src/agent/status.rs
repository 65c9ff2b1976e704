//! What the agent says about itself.

use pg_types::Lsn;
use serde::Serialize;

use super::Unconfirmed;
use super::members::Members;
use super::state::State;

/// Whether Postgres logs page images, and since which record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FullPageWrites {
    pub enabled: bool,
    /// End of the record that made it so; null when it has been so from the timeline's first day.
    pub lsn: Option<Lsn>,
    /// Start of that record.
    pub record_lsn: Option<Lsn>,
}

/// How long the last start took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StartTiming {
    pub total_ms: u64,
    pub elect_ms: u64,
    pub bundle_ms: u64,
    pub postgres_ms: u64,
    pub pages_fetched: u64,
    pub bytes_fetched: u64,
}

/// The answer to `GET /status`.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub compute_id: String,
    pub state: State,
    pub reason: Option<String>,
    pub term: Option<u64>,
    pub start_lsn: Option<Lsn>,
    pub commit_lsn: Option<Lsn>,
    pub ingested_lsn: Option<Lsn>,
    pub full_page_writes: Option<FullPageWrites>,
    pub started_at: Option<String>,
    pub start: Option<StartTiming>,
    pub port: u16,
    pub active_connections: Option<i64>,
    pub base_backups: Option<i64>,
    /// Sessions whose commit waits for a majority of the safekeepers.
    pub commits_waiting: Option<u64>,
    /// Since the agent's process began.
    pub commits_unconfirmed: Unconfirmed,
    pub restarts: u64,
    /// Of the log that this compute writes.
    pub members: Option<Members>,
    /// The minor of the server that runs, as it says itself, such as 15.20.
    pub postgres_version: Option<String>,
    /// What sessions begin with, as the agent gave it to the server that runs.
    pub synchronous_commit: Option<String>,
}

impl Status {
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
            port,
            active_connections: None,
            base_backups: None,
            commits_waiting: None,
            commits_unconfirmed: Unconfirmed::default(),
            restarts: 0,
            members: None,
            postgres_version: None,
            synchronous_commit: None,
        }
    }
}
