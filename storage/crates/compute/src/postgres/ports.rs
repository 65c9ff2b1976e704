//! Postgres and the programs that it starts listen at one port, by Landlock.
//!
//! That they connect to nobody is the work of the filters of system calls ([`super::system_calls`]), which cannot see
//! at which port a listener is made. Landlock can, without privileges and without a cost per message. It refuses
//! connections by TCP as well. As for every process under Landlock, memory and environment of processes outside, the
//! agent's among them, are closed. Files are not looked at: there are users and modes for them.
//!
//! A socket that listens without an address gets a port that the kernel chooses, and Landlock is not asked.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// The version of Landlock that knows ports.
const KNOWS_PORTS: libc::c_long = 4;
/// Asks for the version in place of a set of rules.
const VERSION: libc::c_ulong = 1;
/// What is handled, so that it is refused unless a rule allows it.
const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 2;
/// The kind of a rule about a port.
const OF_A_PORT: libc::c_ulong = 2;

/// The beginning of `struct landlock_ruleset_attr`, which is all of it in the first version that knows ports.
#[repr(C)]
struct Handled {
    files: u64,
    ports: u64,
}

/// `struct landlock_net_port_attr`.
#[repr(C)]
struct Port {
    allowed: u64,
    number: u64,
}

/// Has the calling thread, and all that it starts from now on, listen at no TCP port but this one; it gains no rights
/// by programs either (`no_new_privs`). Says why not where the kernel does not do it.
pub fn listen_only_at(port: u16) -> Result<(), String> {
    let version = version().map_err(|error| format!("the kernel has no Landlock: {error}"))?;
    if version < KNOWS_PORTS {
        return Err(format!(
            "the kernel's Landlock is of version {version}; ports are known from {KNOWS_PORTS} on (Linux 6.7)"
        ));
    }
    let refused = |what: &str, error: Errno| format!("the kernel refuses it: {what}: {error}");
    nix::sys::prctl::set_no_new_privs().map_err(|error| refused("no_new_privs", error))?;
    let rules = rules().map_err(|error| refused("landlock_create_ruleset", error))?;
    allow(&rules, port).map_err(|error| refused("landlock_add_rule", error))?;
    enter(&rules).map_err(|error| refused("landlock_restrict_self", error))
}

fn version() -> Result<libc::c_long, Errno> {
    // SAFETY: with this flag the call takes no address and no size.
    #[allow(unsafe_code)]
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<Handled>(),
            0usize,
            VERSION,
        )
    })
}

fn rules() -> Result<OwnedFd, Errno> {
    let handled = Handled {
        files: 0,
        ports: BIND_TCP | CONNECT_TCP,
    };
    // SAFETY: the kernel reads one `Handled`, which lives until the call has returned.
    #[allow(unsafe_code)]
    let number = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled,
            size_of::<Handled>(),
            0 as libc::c_ulong,
        )
    })?;
    // SAFETY: the kernel has just made the descriptor, and nobody else has it.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

fn allow(rules: &OwnedFd, port: u16) -> Result<(), Errno> {
    let own = Port {
        allowed: BIND_TCP,
        number: port.into(),
    };
    // SAFETY: the kernel reads one `Port`, which lives until the call has returned.
    #[allow(unsafe_code)]
    let added = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            OF_A_PORT,
            &raw const own,
            0 as libc::c_ulong,
        )
    });
    added.map(drop)
}

fn enter(rules: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: the call takes no address.
    #[allow(unsafe_code)]
    let entered = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_landlock_restrict_self,
            rules.as_raw_fd(),
            0 as libc::c_ulong,
        )
    });
    entered.map(drop)
}
