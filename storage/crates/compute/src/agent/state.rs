//! The states of a compute.

use serde::Serialize;

/// Where a compute is between its start and its end, as `GET /status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No Postgres serves yet, after the process began or a run ended; a start is under way or about to be.
    Starting,
    /// Postgres takes connections, and roles and databases of the spec are in place.
    Running,
    /// The compute is ending on request.
    Stopping,
    /// The compute has ended on request; the process is about to exit.
    Stopped,
    /// Since a run served last, five starts have failed by Postgres or by something local. Further ones are tried.
    Failed,
    /// A newer compute owns the timeline; the process is about to exit.
    Fenced,
}
