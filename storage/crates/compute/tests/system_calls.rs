//! Promise: under the filters of system calls, the kernel refuses what reaches others or much of its own code,
//! whatever bits a caller sets beside those that count, and what Postgres needs goes on.
//!
//! A filter is a thread's: each test enters the filters in a thread of its own.

#![cfg(target_arch = "x86_64")]

use std::process::Command;

use compute::postgres::system_calls::{allowed, filters, refused_always};
use nix::errno::Errno;
use nix::libc;

/// A bit that the kernel does not read of arguments of 32 bits.
const IGNORED: i64 = 1 << 40;
/// Numbers of the x32 calls.
const X32: i64 = 0x4000_0000;
/// Kinds of sockets that there are.
const FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Runs `what` in a thread that is under the filters.
fn filtered<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    let filters = filters().expect("this kernel has filters of system calls");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            filters.enter().unwrap();
            what()
        });
        thread.join().unwrap()
    })
}

/// The error of a system call with these arguments; `None` if it succeeds.
fn call(number: i64, arguments: [i64; 4]) -> Option<Errno> {
    let [a, b, c, d] = arguments;
    // SAFETY: callers pass no addresses but null and no descriptors but -1, so that no memory is read or written.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::syscall(number, a, b, c, d, 0i64, 0i64) };
    (answer == -1).then(Errno::last)
}

fn under_filters(number: i64, arguments: [i64; 4]) -> Option<Errno> {
    filtered(|| call(number, arguments))
}

#[test]
fn each_refused_call_says_that_it_is_not_permitted() {
    let wrong = filtered(|| {
        refused_always()
            .map(|number| (number, call(number, [-1, 0, 0, 0])))
            .filter(|(_, error)| *error != Some(Errno::EPERM))
            .collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "answered otherwise: {wrong:?}");
}

/// Without the filters the same calls fail for other reasons, or succeed: the test above is about the filters.
#[test]
fn without_filters_the_same_calls_are_answered_otherwise() {
    for number in [
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_seccomp,
        libc::SYS_name_to_handle_at,
    ] {
        let answer = call(number, [-1, 0, 0, 0]);
        assert_ne!(answer, Some(Errno::EPERM), "call {number}");
    }
}

#[test]
fn nothing_is_both_allowed_and_refused() {
    let refused: Vec<i64> = refused_always().collect();
    let both: Vec<i64> = allowed()
        .filter(|number| refused.contains(number))
        .collect();
    assert!(both.is_empty(), "{both:?}");
}

#[test]
fn a_process_makes_no_namespace_by_clone() {
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ] {
        // CLONE_SIGHAND without CLONE_VM is invalid: should the filters let it pass, no process comes of it.
        let flags = i64::from(flag | libc::CLONE_SIGHAND);
        for flags in [flags, flags | IGNORED] {
            let number = libc::SYS_clone;
            assert_eq!(call(number, [flags, 0, 0, 0]), Some(Errno::EINVAL));
            assert_eq!(
                under_filters(number, [flags, 0, 0, 0]),
                Some(Errno::EPERM),
                "{flags:x}"
            );
        }
    }
    let clone3 = under_filters(libc::SYS_clone3, [0, 0, 0, 0]);
    assert_eq!(clone3, Some(Errno::ENOSYS), "its flags are in memory");
}

fn socket(family: i64, kind: i64, protocol: i64) -> Option<Errno> {
    call(libc::SYS_socket, [family, kind, protocol, 0])
}

#[test]
fn sockets_are_of_three_families_and_carry_streams() {
    let usual = i64::from(libc::SOCK_STREAM | libc::SOCK_CLOEXEC);
    let inet = i64::from(libc::AF_INET);
    filtered(|| {
        for family in 0..64 {
            let ours = FAMILIES.contains(&(family as i32));
            for family in [family, family | IGNORED] {
                let refused = socket(family, usual, 0) == Some(Errno::EPERM);
                assert_eq!(refused, !ours, "family {family:x}");
            }
        }
        for family in FAMILIES.map(i64::from) {
            for kind in [2, 3, 4, 5, 6, 10] {
                for kind in [kind, kind | i64::from(libc::SOCK_NONBLOCK), kind | IGNORED] {
                    let answer = socket(family, kind, 0);
                    assert_eq!(answer, Some(Errno::EPERM), "{family}, type {kind:x}");
                }
            }
        }
        // ICMP, UDP, DCCP, SCTP, UDP-Lite, MPTCP: code that the kernel may load for the asking.
        for protocol in [1, 17, 33, 132, 136, 262, 132 | IGNORED] {
            let answer = socket(inet, usual, protocol);
            assert_eq!(answer, Some(Errno::EPERM), "protocol {protocol:x}");
        }
        assert_eq!(socket(inet, usual, 0), None);
        assert_eq!(socket(inet, usual, 6), None);
        assert_eq!(socket(libc::AF_UNIX.into(), usual, 0), None);
        let pair = call(libc::SYS_socketpair, [inet, usual, 0, 0]);
        assert_eq!(pair, Some(Errno::EPERM));
    });
}

#[test]
fn no_data_goes_out_with_the_first_packet_of_a_connection() {
    let flag = i64::from(libc::MSG_FASTOPEN);
    for (number, position) in [
        (libc::SYS_sendto, 3),
        (libc::SYS_sendmsg, 2),
        (libc::SYS_sendmmsg, 3),
    ] {
        for flags in [flag, flag | i64::from(libc::MSG_NOSIGNAL), flag | IGNORED] {
            let mut arguments = [-1, 0, 0, 0];
            arguments[position] = flags;
            assert_eq!(call(number, arguments), Some(Errno::EBADF));
            let answer = under_filters(number, arguments);
            assert_eq!(answer, Some(Errno::EPERM), "call {number}, {flags:x}");
        }
        let usual = under_filters(number, [-1, 0, 0, 0]);
        assert_eq!(usual, Some(Errno::EBADF), "call {number}");
    }
}

#[test]
fn nothing_is_put_into_a_terminals_input() {
    for request in [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD] {
        for request in [request as i64, request as i64 | IGNORED] {
            let number = libc::SYS_ioctl;
            assert_eq!(call(number, [-1, request, 0, 0]), Some(Errno::EBADF));
            let answer = under_filters(number, [-1, request, 0, 0]);
            assert_eq!(answer, Some(Errno::EPERM), "{request:x}");
        }
    }
    let other = under_filters(libc::SYS_ioctl, [-1, libc::TCGETS as i64, 0, 0]);
    assert_eq!(other, Some(Errno::EBADF));
}

#[test]
fn the_personality_is_asked_and_not_changed() {
    let number = libc::SYS_personality;
    assert_eq!(under_filters(number, [0xffff_ffff, 0, 0, 0]), None);
    // ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC, PER_LINUX32.
    for persona in [0x004_0000, 0x040_0000, 8, 8 | IGNORED] {
        let answer = under_filters(number, [persona, 0, 0, 0]);
        assert_eq!(answer, Some(Errno::EPERM), "{persona:x}");
    }
}

#[test]
fn calls_of_no_list_do_not_exist() {
    filtered(|| {
        assert_eq!(call(5_000, [0; 4]), Some(Errno::ENOSYS));
        for number in [
            libc::SYS_getpid,
            libc::SYS_ptrace,
            libc::SYS_mount,
            521, // ptrace of the x32 kind
            libc::SYS_bpf,
        ] {
            let answer = call(X32 | number, [0; 4]);
            assert_eq!(answer, Some(Errno::ENOSYS), "x32 call {number}");
        }
    });
}

/// A thread, a program, a pipe, and names: by way of the C library, whatever calls it chooses here.
#[test]
fn threads_programs_and_names_go_on() {
    let said = filtered(|| {
        std::thread::spawn(|| std::thread::current().id())
            .join()
            .unwrap();
        let addresses = std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 80)).unwrap();
        assert!(addresses.count() > 0);
        let script =
            "printf 'b\\na\\n' | sort | tr -d '\\n'; ls -l / >/dev/null && id -u >/dev/null";
        Command::new("/bin/sh").args(["-c", script]).output()
    });
    let said = said.unwrap();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(said.stdout, b"ab");
}

/// How many filters a program is under that this thread starts.
fn filters_of_programs() -> u32 {
    let script = "grep ^Seccomp_filters: /proc/self/status";
    let output = Command::new("/bin/sh").args(["-c", script]).output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    said.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn programs_inherit_the_filters() {
    let outside = filters_of_programs();
    assert_eq!(filtered(filters_of_programs), outside + 2);
}
