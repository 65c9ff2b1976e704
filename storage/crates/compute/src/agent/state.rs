//! The states of a compute.

use serde::Serialize;

/// Where a compute is between its start and its end, as `GET /status` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    Running,
    Stopping,
    Stopped,
    Failed,
    Fenced,
}
