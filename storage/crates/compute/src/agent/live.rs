//! A Postgres that runs, as the HTTP interface and the watchers see it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pg_types::{Lsn, Term};
use proposer::ProposerHandle;

use crate::pages::PageClient;
use crate::postgres::{Admin, AdminError, DataDirectory, Postmaster, PostmasterHandle};
use crate::volume::Volume;
use crate::volume::mount::Mounted;

/// Handles to the parts of a run. Holding one keeps no part alive that its run has ended.
pub struct Live {
    /// The term that the run's election won.
    pub term: Term,
    /// Where the run began: the end of the log that the election won.
    pub start_lsn: Lsn,
    /// Carries the WAL of this Postgres to the safekeepers.
    pub proposer: ProposerHandle,
    /// Connections to the page service, in this term.
    pub client: PageClient,
    /// The file system below this Postgres.
    pub volume: Arc<Volume>,
    /// The data directory of this Postgres.
    pub data: DataDirectory,
    /// What signals this Postgres.
    pub postmaster: PostmasterHandle,
    /// Directory of the private socket.
    pub socket: PathBuf,
    /// The port that Postgres listens on, which is also part of the socket's name.
    pub port: u16,
    /// What the pageserver last said it has.
    pub ingested: AtomicU64,
    /// Commits that waited for the majority when somebody last looked.
    pub waiting: AtomicU64,
}

impl Live {
    /// A new session of the superuser in database `postgres`.
    ///
    /// # Errors
    ///
    /// [`AdminError::Connect`] when Postgres gives no session.
    pub async fn admin(&self) -> Result<Admin, AdminError> {
        Admin::connect(&self.socket, self.port, "postgres").await
    }

    /// The LSN up to which the pageserver has ingested the log, by its last answer; the start LSN before the first.
    pub fn ingested(&self) -> Lsn {
        Lsn(self.ingested.load(Ordering::Relaxed))
    }

    /// The LSN up to which a majority of the safekeepers has the log on disk, never below the start LSN.
    pub fn commit_lsn(&self) -> Lsn {
        self.proposer
            .positions()
            .borrow()
            .commit
            .max(self.start_lsn)
    }
}

/// The processes and the mount of a run. Dropping it ends them, in the one order that can't hang: whatever
/// waits for a page is let go before anyone waits for Postgres.
#[derive(Default)]
pub struct Stack {
    /// Postgres, once it was started.
    pub postmaster: Option<Postmaster>,
    /// The connections to the page service, once there are any.
    pub client: Option<PageClient>,
    /// The volume, once it is mounted.
    pub mounted: Option<Mounted>,
}

impl Drop for Stack {
    fn drop(&mut self) {
        if let Some(postmaster) = &self.postmaster {
            postmaster.quit();
        }
        if let Some(mounted) = &self.mounted {
            mounted.volume().close();
        }
        if let Some(client) = &self.client {
            client.close();
        }
        drop(self.postmaster.take());
        drop(self.mounted.take());
    }
}
