//! What a postmaster leaves behind, where no PID namespace ends it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Makes orphans of the postmaster children of this process. Call once.
pub fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Kills and reaps adopted children until none is left, whatever program they run: the user they run as is given to
/// another compute once this one has ended.
pub fn kill_orphans(deadline: Instant) {
    let own = std::process::id();
    loop {
        let orphans = children_of(own);
        if orphans.is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in orphans {
            kill(pid, Signal::SIGKILL).ok();
            waitpid(pid, Some(WaitPidFlag::WNOHANG)).ok();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Children of a process that are Postgres's. Without root the agent has another child, the helper that mounts.
pub fn children_of(parent: u32) -> Vec<Pid> {
    let alone = nix::unistd::geteuid().is_root();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else {
        return Vec::new();
    };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .flat_map(|children| {
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .filter(|pid| {
            alone
                || std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name.starts_with("postgres"))
        })
        .map(Pid::from_raw)
        .collect()
}
