//! Threads for work that no request waits for: flushes, compactions, page images.
//!
//! This work has a runtime of its own, and the kernel runs the runtime's threads behind all other threads of the
//! process (nice). On a machine whose cores are all busy, a read would else wait for the time slices of a merge:
//! milliseconds, where the read itself takes tens of microseconds. On a shared worker thread the read would wait for
//! as long as a whole batch of images takes. The niceness is a weight, not an order: background work still gets a
//! share of the processor when everything else is busy, and so releases the locks that it holds (the append lock, the
//! lock of the chain counts). When background work falls behind nevertheless, ingest waits for it as for a slow disk.
//!
//! Nothing here is stored.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};

/// How much nicer than the rest: a tenth of the weight, when both want the same core.
const NICER: i32 = 10;
/// The nicest there is.
const NICEST: i32 = 19;

/// The runtime of background work. Dropping it ends its tasks without waiting for them.
pub struct Background {
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts the threads, behind the one that calls this. Fails when the system has none to give.
    pub fn start() -> io::Result<Background> {
        // The niceness is computed once, not relative to the thread that starts a new one: that thread may itself be
        // one of these.
        let niceness = (getpriority_process(None)? + NICER).min(NICEST);
        let runtime = Builder::new_multi_thread()
            .thread_name("background")
            .on_thread_start(move || {
                stalls::exempt_this_thread();
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
        // The thread that drops the runtime may run an async task, which must not block on the runtime's end.
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
