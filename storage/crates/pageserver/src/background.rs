//! Threads for work that no request waits for: flushes, compactions, page images.
//!
//! They have a runtime of their own, whose threads the kernel runs behind all others of this process (nice). On a
//! machine whose cores are all busy a read would else wait for the time slices of a merge, milliseconds for what takes
//! tens of microseconds; behind it on the same worker, for as long as one batch of images takes. The difference is a
//! weight, not an order: background work still gets a share when everything else is busy, and what it holds (the
//! append lock, a lock of the counts) is not held for ever. When it falls behind nevertheless, ingest waits for it as
//! for a slow disk.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};

/// How much nicer than the rest: a tenth of the weight, when both want the same core.
const NICER: i32 = 10;
/// The nicest there is.
const NICEST: i32 = 19;

/// See the module head. Dropped, it ends its tasks without waiting for them.
pub struct Background {
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts the threads, behind the one that calls this. Fails when the system has none to give.
    pub fn start() -> io::Result<Background> {
        // Not relative to whoever starts one of them: that may be another of them.
        let niceness = (getpriority_process(None)? + NICER).min(NICEST);
        let runtime = Builder::new_multi_thread()
            .thread_name("background")
            .on_thread_start(move || {
                // On Linux that is the thread's alone. In a sandbox that forbids it, background work is as urgent as
                // reads: slower, not wrong.
                if let Err(error) = setpriority_process(None, niceness) {
                    tracing::debug!("background work runs at the priority of reads: {error}");
                }
            })
            .enable_all()
            .build()?;
        Ok(Background {
            runtime: Some(runtime),
        })
    }

    /// Where tasks are spawned; what they have run by `spawn_blocking` runs on these threads too.
    pub fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("until it is dropped").handle()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Whoever drops it may be a task itself, which must not wait for others.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn its_tasks_and_their_blocking_work_run_behind_the_callers() {
        let niceness = || getpriority_process(None).unwrap();
        let mine = niceness();
        let background = Background::start().unwrap();
        let theirs = background.handle().spawn(async move {
            let blocking = tokio::task::spawn_blocking(niceness);
            (niceness(), blocking.await.unwrap())
        });
        let expected = (mine + NICER).min(NICEST);
        assert_eq!(theirs.await.unwrap(), (expected, expected));
        assert_eq!(niceness(), mine, "only they");
    }
}
