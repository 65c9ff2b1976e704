//! What Postgres and what the agent itself are kept from, so that whoever gains Postgres's rights gains one compute's.
//!
//! Postgres runs as a user that is this compute's alone where the agent was given one, with a cleared environment, and
//! can gain no right by running a program; of system calls it has those that it needs ([`super::system_calls`]), by
//! which it connects to nobody, and of ports it has its own ([`super::ports`]).
//! Where the agent is root, Postgres is in namespaces of its own besides: shared memory and message queues of others
//! cannot be named, and of processes it sees its own, which all end with the first of them ([`super::init`]). What
//! the kernel refuses of it is said, and Postgres starts without.
//!
//! The mounts of Postgres follow the agent's (they are its slaves), so that the volume goes for both at once.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{Mode, umask};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::Serialize;

use super::ports;
use super::system_calls;
use super::user::OsUser;

/// What the agent passes on of its environment: by what `weir down` finds processes of an installation; and a clock of
/// a test's, which is a library. The worker starts no agent with a library.
const PASSED: [&str; 4] = ["WEIR_HOME", "WEIR_SERVICE", "LD_PRELOAD", "WEIR_TEST_CLOCK"];
/// Where Postgres finds the programs that it starts by name.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What others can do to files that the agent or Postgres makes without saying a mode: nothing.
const UMASK: Mode = Mode::from_bits_truncate(0o077);

/// Rights of root that the agent keeps. To mount and to enter namespaces; to start Postgres as another user and to
/// signal it; to give that user files, and to reach what the user owns.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::DAC_OVERRIDE);

/// Something that keeps Postgres from what is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// No other compute has this one's user while it runs.
    OwnUser,
    /// System V shared memory, semaphores and message queues of others have no names here.
    OwnIpc,
    /// Mounts of others do not appear, and what is mounted here does not appear elsewhere.
    OwnMounts,
    /// `/dev/shm` is empty but for what this Postgres makes.
    OwnSharedMemory,
    /// Processes have numbers of their own here, by which no others can be named, and end with the first of them.
    OwnProcesses,
    /// `/proc` shows processes of Postgres's user alone.
    HiddenProcesses,
    /// The kernel answers no system calls but those that Postgres needs.
    FewSystemCalls,
    /// No other TCP port than the compute's can be listened at.
    OwnPort,
    /// The agent has no more of root's rights than it needs.
    FewRightsOfRoot,
}

/// A measure that is not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The measure.
    pub measure: Measure,
    /// Why it is not in force.
    pub reason: String,
}

/// What Postgres is kept from. In force in any case: a short environment, no rights gained by programs
/// (`no_new_privs`), no core dumps, and files that nobody else can read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// The number of the operating system's user that Postgres runs as.
    pub uid: u32,
    /// Measures that are in force.
    pub in_force: Vec<Measure>,
    /// Those that are not.
    pub missing: Vec<Missing>,
}

impl Confinement {
    /// Nothing in force yet for Postgres run as `user`.
    pub fn new(user: &OsUser) -> Confinement {
        Confinement {
            uid: user.uid,
            in_force: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Takes notice of how a measure went.
    pub fn note(&mut self, measure: Measure, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.in_force.push(measure),
            Err(reason) => self.missing.push(Missing { measure, reason }),
        }
    }

    /// Whether a measure is in force.
    pub fn has(&self, measure: Measure) -> bool {
        self.in_force.contains(&measure)
    }

    /// The same of a measure that mounts: where Postgres has no mounts of its own, the agent would have them as well.
    fn note_of_mounts(&mut self, measure: Measure, attempt: impl FnOnce() -> Result<(), String>) {
        let outcome = match self.has(Measure::OwnMounts) {
            true => attempt(),
            false => Err("there are no mounts of Postgres's own".to_owned()),
        };
        self.note(measure, outcome);
    }

    /// Those of another with these.
    pub fn and(mut self, other: &Confinement) -> Confinement {
        self.in_force.extend(&other.in_force);
        self.missing.extend(other.missing.iter().cloned());
        self
    }
}

/// Has the agent's process keep what it was given to itself, and drops what it does not need of root. To be called
/// before there are threads. Says why the rights of root could not be dropped; without root there are none.
pub fn agent() -> Result<(), String> {
    umask(UMASK);
    keep_descriptors();
    // A core has pages of the database in it, and the verifiers of its roles.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).ok();
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    drop_rights().map_err(|error| format!("the kernel refuses to take rights away: {error}"))
}

/// Programs that the agent starts inherit no descriptor, whoever left it open: the one with the lock of its user among
/// them, which says that the agent lives.
fn keep_descriptors() {
    // SAFETY: marks descriptors; none is closed, and no memory is touched.
    #[allow(unsafe_code)]
    let marked = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_close_range,
            3u32,
            u32::MAX,
            nix::libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if marked != 0 {
        let error = Errno::last();
        eprintln!("weir-compute: programs that are started inherit open files: {error}");
    }
}

fn drop_rights() -> Result<(), rustix::io::Errno> {
    let now = rustix::thread::capabilities(None)?;
    // The bounding set is what a program could get back. A right that the kernel does not know is not there.
    for right in (CapabilitySet::all() - KEPT).iter() {
        match rustix::thread::remove_capability_from_bounding_set(right) {
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    keep_rights(now.permitted & KEPT)
}

/// Leaves the calling thread, of root's rights, only that to signal processes of others.
pub fn keep_right_to_signal() -> Result<(), rustix::io::Errno> {
    keep_rights(CapabilitySet::KILL)
}

fn keep_rights(kept: CapabilitySet) -> Result<(), rustix::io::Errno> {
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// Gives a program what Postgres may have of the agent's environment.
pub fn environment(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C.UTF-8");
    for name in PASSED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// Has a program of Postgres's run as `user`, with a short environment, no way to more rights, and few system calls.
pub fn program(command: &mut Command, user: &OsUser) {
    environment(command);
    if nix::unistd::geteuid().is_root() {
        command.uid(user.uid).gid(user.gid);
    }
    let hook = || {
        nix::sys::prctl::set_no_new_privs()?;
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        umask(UMASK);
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec and makes three system calls, without allocating, locking or touching
    // memory of other threads.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(hook);
    }
    if let Ok(filters) = system_calls::filters() {
        // SAFETY: as above, with four system calls on memory that lives as long as the process.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || filters.enter());
        }
    }
}

/// Moves the calling thread into namespaces of its own, which programs that it starts inherit. The thread must start
/// one program, and do nothing else afterwards. `port`: where Postgres listens. Nothing here fails: what is not to be
/// had is said in the answer. Of a thread whose program has a PID namespace ([`Measure::OwnProcesses`]), that program
/// is to hide processes.
pub fn enter(user: &OsUser, port: u16) -> Confinement {
    let mut found = Confinement::new(user);
    found.note(Measure::FewSystemCalls, system_calls::filters().map(drop));
    found.note(Measure::OwnPort, ports::listen_only_at(port));
    if !nix::unistd::geteuid().is_root() {
        for measure in [
            Measure::OwnIpc,
            Measure::OwnMounts,
            Measure::OwnSharedMemory,
            Measure::OwnProcesses,
            Measure::HiddenProcesses,
        ] {
            found.note(measure, Err("the agent does not run as root".to_owned()));
        }
        return found;
    }
    found.note(Measure::OwnIpc, said(unshare(CloneFlags::CLONE_NEWIPC)));
    found.note(Measure::OwnMounts, said(own_mounts()));
    found.note_of_mounts(Measure::OwnSharedMemory, || said(own_shared_memory()));
    // Last: a thread that has given its children a namespace can start no other thread. Without mounts of Postgres's
    // own, its processes would find those of this namespace in `/proc` by numbers of another one.
    found.note_of_mounts(Measure::OwnProcesses, || {
        said(unshare(CloneFlags::CLONE_NEWPID))
    });
    if !found.has(Measure::OwnProcesses) {
        found.note_of_mounts(Measure::HiddenProcesses, hide_processes);
    }
    found
}

fn said(outcome: nix::Result<()>) -> Result<(), String> {
    outcome.map_err(|error| format!("the kernel refuses it: {error}"))
}

/// A copy of the agent's mounts that follows them: what the agent unmounts goes here too.
fn own_mounts() -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    spread(Path::new("/"), MsFlags::MS_SLAVE)
}

fn own_shared_memory() -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("shm"),
        "/dev/shm",
        Some("tmpfs"),
        flags,
        Some("mode=1777"),
    )
}

/// Has `/proc` show processes of the calling one's PID namespace, and to each user that user's alone; or says why
/// not.
pub fn hide_processes() -> Result<(), String> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let (proc, hidden) = (Some("proc"), Some("hidepid=2"));
    said(mount(proc, "/proc", proc, flags, hidden))
}

/// How mounts below a path spread to other namespaces.
pub fn spread(path: &Path, how: MsFlags) -> nix::Result<()> {
    let none = None::<&str>;
    mount(none, path, none, MsFlags::MS_REC | how, none)
}
