//! The one thread that a proposer runs on.
//!
//! A commit passes through the tasks that read from Postgres, send to each safekeeper, take each reply and report to
//! Postgres. Tasks of one thread hand a commit on without the kernel. On a runtime of many threads each such hand-over
//! wakes another thread, which cost more than the work itself (docs/adr/0045-the-commit-path.md).
//!
//! The thread ends when its [`CancellationToken`] is cancelled; what still runs on it is then dropped.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// Runs tasks on a thread of their own.
#[derive(Clone, Debug)]
pub struct Reactor {
    handle: Handle,
}

impl Reactor {
    /// Starts the thread. Fails when the system gives no thread, or no file descriptors to wait on.
    pub fn start(closed: CancellationToken) -> io::Result<Reactor> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("proposer".into())
            .spawn(move || {
                runtime.block_on(closed.cancelled());
                // A look-up of a name that hangs must not keep the thread.
                runtime.shutdown_background();
            })?;
        Ok(Reactor { handle })
    }

    /// Begins a task, which ends with the thread if it has not ended before.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}
