//! The postmaster as a child that cannot outlive its agent.
//!
//! The kernel sends SIGQUIT (immediate shutdown) to the postmaster when the thread that started it ends, so it
//! is started by a thread that does nothing but wait for it. Backends that a dead postmaster leaves behind
//! become the agent's own children (it is a subreaper) and are killed.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::sync::watch;

use super::confine::{self, Confinement};
use super::user::OsUser;

/// How long an immediate shutdown may take before the rest is killed.
const QUIT_PATIENCE: Duration = Duration::from_secs(5);
/// A log longer than this is cut at a start.
const MAX_LOG_BYTES: u64 = 64 << 20;

/// How a postmaster ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// What the kernel says of the end; of the raw value -1 when nobody could wait for the process.
    pub status: ExitStatus,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => write!(f, "{}", self.status),
        }
    }
}

/// Whether Postgres would start with a configuration file in a data directory; says what is wrong if not. Blocks.
pub fn check_configuration(
    program: &Path,
    data: &Path,
    file: &str,
    user: &OsUser,
) -> Result<(), String> {
    let mut command = Command::new(program);
    command
        .arg("-D")
        .arg(data)
        .args(["-C", "max_connections"])
        .arg("-c")
        .arg(format!("config_file={}", data.join(file).display()))
        .current_dir("/")
        .stdin(Stdio::null());
    confine::program(&mut command, user);
    let output = command
        .output()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = text.lines().find_map(|line| {
        line.split_once("LOG:")
            .map(|(_, what)| what.trim().to_owned())
    });
    Err(told.unwrap_or_else(|| text.trim().to_owned()))
}

/// What signals a Postgres, from any thread and without its owner. Nothing is asked of one that has ended.
#[derive(Clone)]
pub struct PostmasterHandle {
    pid: Pid,
    exit: watch::Receiver<Option<Exit>>,
}

impl PostmasterHandle {
    /// Process id of the postmaster.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Makes Postgres read its configuration again, whether or not anybody can connect to it. Postgres does it soon.
    pub fn reload(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Asks for an immediate shutdown: every session ends without another answer.
    pub fn quit(&self) {
        self.signal(Signal::SIGQUIT);
    }

    /// Whether the postmaster has ended. Sessions may still be there until [`Postmaster::kill`].
    pub fn has_exited(&self) -> bool {
        self.exit.borrow().is_some() || self.exit.has_changed().is_err()
    }

    fn signal(&self, signal: Signal) {
        if !self.has_exited()
            && let Err(error) = kill(self.pid, signal)
        {
            tracing::warn!(%error, %signal, "cannot signal Postgres");
        }
    }
}

/// A running Postgres. Dropping it stops it at once.
pub struct Postmaster {
    handle: PostmasterHandle,
    log: PathBuf,
    log_start: u64,
    confinement: Confinement,
}

impl Postmaster {
    /// Starts `postgres` on a data directory, its output appended to `log`.
    pub fn start(
        program: &Path,
        data: &Path,
        log: &Path,
        user: &OsUser,
    ) -> anyhow::Result<Postmaster> {
        let output = open_log(log)?;
        let log_start = output.metadata().context("inspect the log")?.len();
        let mut command = Command::new(program);
        command
            .arg("-D")
            .arg(data)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(
                output
                    .try_clone()
                    .context("duplicate the log's descriptor")?,
            )
            .stderr(output)
            .process_group(0);
        confine::program(&mut command, user);
        command.env("PGDATA", data);
        die_with_parent(&mut command);
        let user = user.clone();
        let (started, pid) = std::sync::mpsc::channel();
        let (exited, exit) = watch::channel(None);
        std::thread::Builder::new()
            .name("postmaster".into())
            .spawn(move || {
                let confinement = confine::enter(&user);
                let mut child = match command.spawn() {
                    Ok(child) => child,
                    Err(error) => return drop(started.send(Err(error))),
                };
                drop(started.send(Ok((child.id(), confinement))));
                match child.wait() {
                    Ok(status) => drop(exited.send(Some(Exit { status }))),
                    Err(error) => tracing::error!(%error, "cannot wait for Postgres"),
                }
            })
            .context("start a thread for Postgres")?;
        let (pid, confinement) = pid
            .recv()
            .context("the thread for Postgres ended early")?
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Postmaster {
            handle: PostmasterHandle {
                pid: Pid::from_raw(pid as i32),
                exit,
            },
            log: log.to_owned(),
            log_start,
            confinement,
        })
    }

    /// What this Postgres is kept from.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Process id of the postmaster.
    pub fn pid(&self) -> i32 {
        self.handle.pid.as_raw()
    }

    /// What signals this Postgres where its owner cannot be asked.
    pub fn handle(&self) -> PostmasterHandle {
        self.handle.clone()
    }

    /// Resolves when the postmaster has ended.
    pub async fn exited(&self) -> Exit {
        let mut exit = self.handle.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or(Exit {
                status: ExitStatus::from_raw(-1),
            }),
            Err(_) => Exit {
                status: ExitStatus::from_raw(-1),
            },
        }
    }

    /// [`PostmasterHandle::has_exited`].
    pub fn has_exited(&self) -> bool {
        self.handle.has_exited()
    }

    /// Asks for a fast shutdown: sessions end, a shutdown checkpoint is written and streamed.
    pub fn stop_fast(&self) {
        self.handle.signal(Signal::SIGINT);
    }

    /// [`PostmasterHandle::quit`].
    pub fn quit(&self) {
        self.handle.quit();
    }

    /// Ends it now, with everything it left behind. Blocks for a few seconds at most.
    pub fn kill(&self) {
        self.handle.signal(Signal::SIGQUIT);
        let deadline = Instant::now() + QUIT_PATIENCE;
        while !self.has_exited() {
            if Instant::now() > deadline {
                tracing::warn!("Postgres does not quit: killing it");
                // The postmaster last: a session that sees it die lets its waiting commit go before it ends itself.
                for session in children_of(self.handle.pid.as_raw() as u32) {
                    kill(session, Signal::SIGKILL).ok();
                }
                self.handle.signal(Signal::SIGKILL);
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let deadline = Instant::now() + QUIT_PATIENCE;
        while !self.has_exited() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_orphans(Instant::now() + QUIT_PATIENCE);
    }

    /// The last lines of what it logged since its start that say what went wrong.
    pub fn complaint(&self) -> String {
        let mut text = String::new();
        let read = File::open(&self.log).and_then(|mut file| {
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(
                self.log_start.max(end.saturating_sub(16 << 10)),
            ))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            text = String::from_utf8_lossy(&bytes).into_owned();
            Ok(())
        });
        if let Err(error) = read {
            return format!("its log {} can't be read: {error}", self.log.display());
        }
        let bad = |line: &&str| {
            [
                "FATAL:",
                "invalid value for parameter",
                "unrecognized configuration parameter",
                "PANIC:",
                "ERROR:",
                "could not",
                "LOG:  server process",
            ]
            .iter()
            .any(|mark| line.contains(mark))
        };
        let lines: Vec<&str> = text.lines().filter(bad).collect();
        let last = &lines[lines.len().saturating_sub(3)..];
        if last.is_empty() {
            format!("see {}", self.log.display())
        } else {
            last.join("; ")
        }
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        self.kill();
    }
}

fn open_log(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open the log {}", path.display()))?;
    if file.metadata().is_ok_and(|meta| meta.len() > MAX_LOG_BYTES) {
        file.set_len(0)
            .with_context(|| format!("cut the log {}", path.display()))?;
    }
    Ok(file)
}

fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let hook = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGQUIT)?;
        // The agent may have died before the line above took effect.
        if nix::unistd::getppid().as_raw() as u32 != parent {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec and makes two system calls, without allocating, locking
    // or touching memory of other threads.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(hook);
    }
}

/// Makes orphans of the postmaster children of this process. Call once.
pub fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Kills and reaps adopted children until none is left, whatever program they run: the user they run as is given to
/// another compute once this one has ended.
fn kill_orphans(deadline: Instant) {
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
fn children_of(parent: u32) -> Vec<Pid> {
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
