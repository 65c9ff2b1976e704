//! The postmaster as a child that cannot outlive its agent.
//!
//! The kernel sends SIGQUIT (immediate shutdown) to what the agent started when the thread that started it ends, so
//! that is started by a thread that does nothing but wait for it. Where the agent is root, what it starts is the init
//! of a PID namespace ([`super::init`]), with which all in it ends. Elsewhere it is the postmaster, and sessions that
//! a dead postmaster leaves behind become the agent's own children (it is a subreaper) and are killed.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch;

use super::cgroups::{Bounds, Group};
use super::confine::{self, Confinement, Measure};
use super::init::{self, Init};
use super::limits::Limits;
use super::orphans::{children_of, kill_orphans};
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
    /// Of the postmaster, or of its init, which passes signals on.
    pid: Pid,
    exit: watch::Receiver<Option<Exit>>,
    group: Option<Arc<Group>>,
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

    /// Whether these limits hold as far as they can, and so nothing is left to do for [`PostmasterHandle::resize`].
    pub fn is_within(&self, limits: &Limits) -> bool {
        self.group.as_ref().is_none_or(|group| group.has(limits))
    }

    /// Bounds what this Postgres takes of the machine by other limits; what does from then on, `None` where it has no
    /// control group. Blocks as [`Group::resize`] does.
    pub fn resize(&self, limits: Limits) -> Option<Bounds> {
        let group = self.group.as_ref()?;
        group.resize(limits);
        Some(group.bounds())
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
    /// Starts `postgres` on a data directory, its output appended to `log`, in a control group if one was made for it.
    /// `port`: the one that its configuration says, the only one that it can listen at.
    pub fn start(
        program: &Path,
        data: &Path,
        log: &Path,
        user: &OsUser,
        port: u16,
        group: Option<Group>,
    ) -> anyhow::Result<Postmaster> {
        let output = open_log(log)?;
        let log_start = output.metadata().context("inspect the log")?.len();
        let task = init::Task {
            program: program.to_owned(),
            data: data.to_owned(),
            uid: user.uid,
            gid: user.gid,
            groups: group.as_ref().map(Group::directories).unwrap_or_default(),
        };
        let user = user.clone();
        let (started, pid) = std::sync::mpsc::channel();
        let (exited, exit) = watch::channel(None);
        std::thread::Builder::new()
            .name("postmaster".into())
            .spawn(move || {
                let (running, walls) = match Running::start(&task, &user, port, output) {
                    Ok(running) => running,
                    Err(error) => return drop(started.send(Err(error))),
                };
                drop(started.send(Ok((running.pid(), walls))));
                match running.wait() {
                    Ok(status) => drop(exited.send(Some(Exit { status }))),
                    Err(error) => tracing::error!(%error, "cannot wait for Postgres"),
                }
            })
            .context("start a thread for Postgres")?;
        let received = pid
            .recv()
            .context("the thread for Postgres ended early")
            .flatten();
        if let (Err(_), Some(group)) = (&received, &group) {
            group.remove();
        }
        let (pid, walls) = received?;
        if let Some(group) = &group {
            group.entered(walls.outside);
        }
        Ok(Postmaster {
            handle: PostmasterHandle {
                pid: Pid::from_raw(pid as i32),
                exit,
                group: group.map(Arc::new),
            },
            log: log.to_owned(),
            log_start,
            confinement: walls.confinement,
        })
    }

    /// What this Postgres is kept from.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// What bounds what it takes of the machine; `None` where nobody has named a control group for computes.
    pub fn bounds(&self) -> Option<Bounds> {
        self.handle.group.as_ref().map(|group| group.bounds())
    }

    /// The number, on this machine, of the process that the agent started: the init of Postgres's PID namespace where
    /// there is one ([`Measure::OwnProcesses`]), else the postmaster.
    pub fn pid(&self) -> i32 {
        self.handle.pid.as_raw()
    }

    /// What the postmaster has started, and in a PID namespace orphans as well.
    fn sessions(&self) -> Vec<Pid> {
        let children = children_of(self.pid() as u32);
        if !self.confinement.has(Measure::OwnProcesses) {
            return children;
        }
        children
            .into_iter()
            .flat_map(|child| children_of(child.as_raw() as u32))
            .collect()
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
                for session in self.sessions() {
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
        if let Some(group) = &self.handle.group {
            group.remove();
        }
    }

    /// What went wrong: whether memory was short, and the last lines of its log since its start that say so.
    pub fn complaint(&self) -> String {
        let logged = self.logged_complaint();
        let group = self.handle.group.as_ref();
        match group.and_then(|group| group.out_of_memory()) {
            Some(memory) => format!("{memory}; {logged}"),
            None => logged,
        }
    }

    fn logged_complaint(&self) -> String {
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

/// What a Postgres that was started is kept from.
struct Walls {
    confinement: Confinement,
    /// Control groups that it is not in, with why.
    outside: Vec<(PathBuf, String)>,
}

/// What the agent started, as the thread that waits for it has it.
enum Running {
    Postmaster(Child),
    Init(Init),
}

impl Running {
    /// Moves the calling thread into the namespaces of a Postgres, and starts that.
    fn start(
        task: &init::Task,
        user: &OsUser,
        port: u16,
        output: File,
    ) -> anyhow::Result<(Running, Walls)> {
        let mut confinement = confine::enter(user, port);
        if confinement.has(Measure::OwnProcesses) {
            let (init, shortfall) = Init::start(task, output)?;
            let hidden = shortfall.not_hidden.map_or(Ok(()), Err);
            confinement.note(Measure::HiddenProcesses, hidden);
            let outside = shortfall.outside;
            let walls = Walls {
                confinement,
                outside,
            };
            return Ok((Running::Init(init), walls));
        }
        let mut command = init::postgres_command(&task.program, &task.data);
        let duplicate = output.try_clone();
        command
            .stdout(duplicate.context("duplicate the log's descriptor")?)
            .stderr(output);
        confine::program(&mut command, user);
        command.env("PGDATA", &task.data);
        die_with_parent(&mut command);
        let child = command
            .spawn()
            .with_context(|| format!("start {}", task.program.display()))?;
        let why = "Postgres has no PID namespace, whose init would enter it".to_owned();
        let outside = task.groups.iter().map(|group| (group.clone(), why.clone()));
        let outside = outside.collect();
        let walls = Walls {
            confinement,
            outside,
        };
        Ok((Running::Postmaster(child), walls))
    }

    fn pid(&self) -> u32 {
        match self {
            Running::Postmaster(child) => child.id(),
            Running::Init(init) => init.pid(),
        }
    }

    fn wait(self) -> std::io::Result<ExitStatus> {
        match self {
            Running::Postmaster(mut child) => child.wait(),
            Running::Init(init) => init.wait(),
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
