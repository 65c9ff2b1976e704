//! A proposer whose tasks run.

use std::sync::Arc;

use tokio_util::sync::DropGuard;

use crate::core::Shared;
use crate::watch::Watch;

/// Keeps the tasks of a proposer alive.
pub struct Running {
    pub shared: Arc<Shared>,
    pub watch: Watch,
    pub _guard: DropGuard,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("timeline", &self.shared.config.timeline)
            .finish()
    }
}
