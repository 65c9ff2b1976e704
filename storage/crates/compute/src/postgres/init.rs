//! The first process of a compute's own PID namespace: it starts Postgres, passes signals on, and reaps what loses
//! its parent. The kernel kills everything in the namespace when it ends, and lets nobody enter any more.
//!
//! It is this program again, because the agent cannot be in the namespace itself, and because Postgres as the first
//! process would take an orphan that ends badly for a session of its own that crashed. It stays root, so that nothing
//! of Postgres's user reaches it, with the right to signal processes alone and under the filters of system calls.
//!
//! Its standard input is a pipe to the agent, on which it says how the start went and how Postgres ended, a line
//! each.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, PipeReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, alarm};
use serde::{Deserialize, Serialize};

use super::cgroups;
use super::confine;
use super::system_calls;
use super::user::OsUser;

/// The argument that makes this program an init.
const ARGUMENT: &str = "init";
/// Signals that are for Postgres.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];
/// How long an immediate shutdown may take, seconds. Longer than the agent waits, which ends sessions before
/// Postgres; this is for an agent that was killed.
const QUIT_SECONDS: u32 = 10;

/// What the init says to the agent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    /// Postgres was started.
    Started(Shortfall),
    /// Postgres could not be started, or not be kept; the text says why.
    Failed(String),
    /// Postgres ended; the number is what `wait` says.
    Ended(i32),
}

/// What an init could not do for its Postgres, which it started all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// Why `/proc` shows more than processes of Postgres's user.
    pub not_hidden: Option<String>,
    /// Control groups that it could not enter, with why.
    pub outside: Vec<(PathBuf, String)>,
}

/// A Postgres to be started in a new namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The program `postgres`.
    pub program: PathBuf,
    /// The data directory.
    pub data: PathBuf,
    /// The number of the user that it runs as.
    pub uid: u32,
    /// The number of that user's group.
    pub gid: u32,
    /// Directories of control groups to be in.
    pub groups: Vec<PathBuf>,
}

impl Task {
    /// The task of this process, if it was started to be an init.
    pub fn of_arguments(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Option<anyhow::Result<Task>> {
        let mut arguments = arguments.into_iter().skip(1);
        if arguments.next()? != ARGUMENT {
            return None;
        }
        let rest: Vec<OsString> = arguments.collect();
        Some(Task::parse(&rest))
    }

    fn parse(arguments: &[OsString]) -> anyhow::Result<Task> {
        let [uid, gid, program, data, groups @ ..] = arguments else {
            anyhow::bail!("`init` is for weir-compute itself: UID GID PROGRAM DATA GROUP...");
        };
        let number = |text: &OsString| -> anyhow::Result<u32> {
            let text = text.to_string_lossy();
            text.parse()
                .with_context(|| format!("{text:?} is no number of a user"))
        };
        Ok(Task {
            program: program.into(),
            data: data.into(),
            uid: number(uid)?,
            gid: number(gid)?,
            groups: groups.iter().map(PathBuf::from).collect(),
        })
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![
            ARGUMENT.into(),
            self.uid.to_string().into(),
            self.gid.to_string().into(),
            self.program.clone().into(),
            self.data.clone().into(),
        ];
        words.extend(self.groups.iter().map(OsString::from));
        words
    }
}

/// The init of a Postgres, as the agent sees it.
pub struct Init {
    child: Child,
    said: BufReader<PipeReader>,
}

impl Init {
    /// Starts Postgres by an init, in the PID namespace that children of the calling thread are put into. The thread
    /// must live as long as Postgres: when it ends, Postgres is told to.
    pub fn start(task: &Task, output: File) -> anyhow::Result<(Init, Shortfall)> {
        let (reader, writer) = io::pipe().context("make a pipe")?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("weir-compute")
            .args(task.arguments())
            .current_dir("/")
            .stdin(writer)
            .stdout(
                output
                    .try_clone()
                    .context("duplicate the log's descriptor")?,
            )
            .stderr(output)
            .process_group(0);
        confine::environment(&mut command);
        let child = command.spawn().context("start the init of a namespace")?;
        // The command has the other end of the pipe, which must go for an end of the init to be seen.
        drop(command);
        let mut init = Init {
            child,
            said: BufReader::new(reader),
        };
        match init.next() {
            Some(Said::Started(shortfall)) => Ok((init, shortfall)),
            Some(Said::Failed(why)) => {
                init.child.wait().ok();
                Err(anyhow::anyhow!(why))
            }
            Some(Said::Ended(_)) | None => {
                let status = init.child.wait().context("wait for the init")?;
                anyhow::bail!("the init of the namespace ended with {status}")
            }
        }
    }

    /// The number of the init on this machine.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until Postgres, and everything else in the namespace, has ended; how Postgres did. Of one that was
    /// killed with its init: how the init did.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        let said = self.next();
        let of_init = self.child.wait()?;
        Ok(match said {
            Some(Said::Ended(status)) => ExitStatus::from_raw(status),
            _ => of_init,
        })
    }

    fn next(&mut self) -> Option<Said> {
        let mut line = String::new();
        self.said.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

/// Is the init: ends when Postgres has ended, and everything in the namespace with it.
pub fn run(task: &Task) -> ExitCode {
    // A descriptor that Postgres does not inherit.
    let Ok(pipe) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let mut agent = File::from(pipe);
    let (said, code) = match begin(task, &mut agent).and_then(keep) {
        Ok(status) => (Said::Ended(status), ExitCode::SUCCESS),
        Err(error) => (Said::Failed(format!("{error:#}")), ExitCode::FAILURE),
    };
    match say(&mut agent, &said) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn say(agent: &mut File, said: &Said) -> anyhow::Result<()> {
    let line = serde_json::to_string(said)? + "\n";
    agent
        .write_all(line.as_bytes())
        .context("the agent does not listen")
}

/// Signals that are held back until `keep` takes them, one after the other.
fn signals() -> SigSet {
    let own = [Signal::SIGCHLD, Signal::SIGALRM];
    PASSED_ON.into_iter().chain(own).collect()
}

/// Starts Postgres, and gives up what this process does not need any more.
fn begin(task: &Task, agent: &mut File) -> anyhow::Result<Pid> {
    anyhow::ensure!(
        std::process::id() == 1,
        "`init` is for weir-compute itself, which starts it as the first process of a PID namespace"
    );
    signals().thread_block().context("hold signals back")?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGQUIT).context("ask for the agent's end")?;
    let shortfall = Shortfall {
        not_hidden: confine::hide_processes().err(),
        outside: cgroups::enter(&task.groups),
    };
    let postgres = start_postgres(task)?;
    confine::keep_right_to_signal().context("give up root's rights")?;
    if let Ok(filters) = system_calls::filters() {
        filters.enter().context("enter the filters")?;
    }
    // An agent that died before the signal at its end was asked for does not listen any more.
    say(agent, &Said::Started(shortfall))?;
    Ok(postgres)
}

fn start_postgres(task: &Task) -> anyhow::Result<Pid> {
    let user = OsUser {
        name: task.uid.to_string(),
        uid: task.uid,
        gid: task.gid,
    };
    let mut command = postgres_command(&task.program, &task.data);
    confine::program(&mut command, &user);
    command.env("PGDATA", &task.data);
    // A program begins with the signals held back that its parent held back.
    let hook = || Ok(SigSet::empty().thread_set_mask()?);
    // SAFETY: the hook runs between fork and exec and makes one system call, without allocating, locking or touching
    // memory of other threads.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(hook);
    }
    let child = command
        .spawn()
        .with_context(|| format!("start {}", task.program.display()))?;
    Ok(Pid::from_raw(child.id() as i32))
}

/// The command that runs Postgres on a data directory, in a process group of its own.
pub fn postgres_command(program: &Path, data: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("-D")
        .arg(data)
        .current_dir("/")
        .stdin(Stdio::null())
        .process_group(0);
    command
}

/// Passes signals on and reaps orphans until Postgres has ended, or has not for too long after an immediate shutdown
/// was asked for. What `wait` says of Postgres.
fn keep(postgres: Pid) -> anyhow::Result<i32> {
    let signals = signals();
    loop {
        match signals.wait().context("wait for signals")? {
            Signal::SIGCHLD => {
                if let Some(status) = reap(postgres) {
                    return Ok(status);
                }
            }
            Signal::SIGALRM => return Ok(Signal::SIGKILL as i32),
            signal => {
                kill(postgres, signal).ok();
                if signal == Signal::SIGQUIT {
                    alarm::set(QUIT_SECONDS);
                }
            }
        }
    }
}

/// Reaps whatever has ended. What `wait` says of Postgres, once it is among those.
fn reap(postgres: Pid) -> Option<i32> {
    let mut of_postgres = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == postgres => {
                of_postgres = Some((code & 0xff) << 8);
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == postgres => {
                of_postgres = Some(signal as i32);
            }
            // EINVAL: it ended by a signal without a name.
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::EINVAL) => {}
            Ok(_) | Err(_) => return of_postgres,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Option<anyhow::Result<Task>> {
        Task::of_arguments(words.iter().map(OsString::from))
    }

    #[test]
    fn a_task_survives_its_arguments() {
        let task = Task {
            program: "/usr/lib/a b/postgres".into(),
            data: "/--data".into(),
            uid: 60_706,
            gid: 60_707,
            groups: vec!["/sys/fs/cgroup/weir/ep-a".into()],
        };
        let arguments = [OsString::from("weir-compute")]
            .into_iter()
            .chain(task.arguments());
        assert_eq!(Task::of_arguments(arguments).unwrap().unwrap(), task);
    }

    #[test]
    fn an_agents_arguments_are_no_task_and_wrong_ones_are_refused() {
        assert!(parsed(&["weir-compute", "--spec", "init"]).is_none());
        assert!(parsed(&["weir-compute"]).is_none());
        assert!(
            parsed(&["weir-compute", "init", "1", "1", "p"])
                .unwrap()
                .is_err()
        );
        assert!(
            parsed(&["weir-compute", "init", "-1", "1", "p", "d"])
                .unwrap()
                .is_err()
        );
    }

    #[test]
    fn what_an_init_says_is_one_line_whatever_it_is() {
        for said in [
            Said::Started(Shortfall::default()),
            Said::Started(Shortfall {
                not_hidden: Some("two\nlines".into()),
                outside: vec![("/a\nb".into(), "why".into())],
            }),
            Said::Failed("start /a\nb".into()),
            Said::Ended(9),
        ] {
            let line = serde_json::to_string(&said).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Said>(&line).unwrap(), said);
        }
    }
}
