//! A safekeeper that is stopped for a while, as one on a machine that hangs: its connections stay open, and nothing
//! answers.

use std::marker::PhantomData;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::SafekeeperProcess;

/// Goes on when this is dropped, or told to [`thaw`](Frozen::thaw). Borrows the process, so that nobody kills it
/// meanwhile and the process id stays its own.
pub struct Frozen<'a> {
    pid: Pid,
    process: PhantomData<&'a SafekeeperProcess>,
}

impl SafekeeperProcess {
    /// SIGSTOP; returns when no thread of it runs any more.
    pub fn freeze(&self) -> Frozen<'_> {
        let child = self.child.as_ref().expect("it runs");
        let pid = Pid::from_raw(child.id() as i32);
        kill(pid, Signal::SIGSTOP).expect("stop a child of ours");
        let frozen = Frozen {
            pid,
            process: PhantomData,
        };
        // Reports the stop and leaves an exit to be reaped by whoever kills the process.
        waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT).expect("it stops");
        frozen
    }
}

impl Frozen<'_> {
    /// SIGCONT.
    pub fn thaw(self) {}
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // An error would be that the process is gone.
        let _ = kill(self.pid, Signal::SIGCONT);
    }
}
