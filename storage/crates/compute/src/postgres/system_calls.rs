//! Which system calls Postgres and the programs that it starts may make.
//!
//! Two filters of the kernel's (seccomp), which everything inherits that Postgres starts and nothing takes off again.
//! The first allows what Postgres, its contrib modules, the C library, LLVM, a shell and ordinary tools need; a call
//! that it does not name fails with ENOSYS, as on a kernel without that call, so that libraries take the older way
//! that they have for such kernels. The second refuses with EPERM what reaches other processes, the kernel's
//! configuration or much of the kernel's code, so that whoever reads an error message sees a refusal. Where both
//! answer, the kernel takes the answer of the filter that was added last, which is the second.
//!
//! Postgres is asked and asks nobody, so that no connection can be made: not by `connect`, which is refused, not by
//! sending with the first packet, and not without one by datagrams. Where Weir has a firewall of its own, this is it.
//!
//! Calls of another instruction set (32-bit calls on a 64-bit processor) end the process that makes them: numbers
//! mean other calls there. Calls of the x32 kind have numbers that no list has.
//!
//! Arguments are compared by their lower 32 bits, where the kernel reads no more of them: with all 64, a caller would
//! pass by setting a bit that the kernel ignores. What a call has in memory cannot be seen, so that `clone3` is not
//! allowed.

use std::io;
use std::sync::OnceLock;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Allowed on each processor.
#[rustfmt::skip]
const ALLOWED: &[i64] = &[
    // Files that are open.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_lseek, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_fcntl, libc::SYS_flock,
    libc::SYS_ioctl, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_sync, libc::SYS_syncfs,
    libc::SYS_sync_file_range, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fadvise64, libc::SYS_readahead,
    libc::SYS_copy_file_range, libc::SYS_sendfile, libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fchmod,
    libc::SYS_fchown, libc::SYS_getdents64, libc::SYS_fgetxattr, libc::SYS_flistxattr,
    // Files by their names.
    libc::SYS_openat, libc::SYS_openat2, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_statfs, libc::SYS_faccessat,
    libc::SYS_faccessat2, libc::SYS_truncate, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_getcwd, libc::SYS_mkdirat,
    libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_unlinkat,
    libc::SYS_readlinkat, libc::SYS_fchmodat, libc::SYS_fchownat, libc::SYS_utimensat, libc::SYS_umask,
    libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_listxattr, libc::SYS_llistxattr,
    libc::SYS_inotify_init1, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch,
    // Waiting.
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_ppoll,
    libc::SYS_pselect6, libc::SYS_eventfd2, libc::SYS_signalfd4, libc::SYS_timerfd_create, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    // Memory.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk,
    libc::SYS_msync, libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_mlockall,
    libc::SYS_munlockall, libc::SYS_membarrier, libc::SYS_get_mempolicy, libc::SYS_shmget, libc::SYS_shmat,
    libc::SYS_shmdt, libc::SYS_shmctl, libc::SYS_semget, libc::SYS_semop, libc::SYS_semtimedop, libc::SYS_semctl,
    // Processes, threads and signals.
    libc::SYS_clone, libc::SYS_execve, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid,
    libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getppid, libc::SYS_getpgid, libc::SYS_setpgid, libc::SYS_getsid,
    libc::SYS_setsid, libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo, libc::SYS_sigaltstack,
    libc::SYS_restart_syscall, libc::SYS_futex, libc::SYS_futex_waitv, libc::SYS_set_tid_address,
    libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_prctl, libc::SYS_personality,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity, libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler, libc::SYS_sched_getattr, libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min, libc::SYS_getpriority, libc::SYS_setpriority, libc::SYS_ioprio_get,
    libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_prlimit64, libc::SYS_getrusage, libc::SYS_times,
    libc::SYS_getcpu,
    // Who one is. No right can be gained by them.
    libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getgroups,
    libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setreuid,
    libc::SYS_setregid, libc::SYS_setresuid, libc::SYS_setresgid, libc::SYS_setfsuid, libc::SYS_setfsgid,
    libc::SYS_setgroups, libc::SYS_capget, libc::SYS_capset,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_getitimer, libc::SYS_setitimer, libc::SYS_timer_create,
    libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun, libc::SYS_timer_delete,
    // The machine.
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom,
    // Network.
    libc::SYS_socket, libc::SYS_socketpair, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept,
    libc::SYS_accept4, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt, libc::SYS_setsockopt,
    libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg,
    libc::SYS_recvmmsg, libc::SYS_shutdown,
];

/// Older forms of calls above, which newer processors do not have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_mkdir,
    libc::SYS_rmdir, libc::SYS_rename, libc::SYS_link, libc::SYS_symlink, libc::SYS_unlink, libc::SYS_readlink,
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
    libc::SYS_getdents, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_create,
    libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_signalfd, libc::SYS_inotify_init, libc::SYS_fork,
    libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_pause, libc::SYS_alarm, libc::SYS_time, libc::SYS_arch_prctl,
    libc::SYS_fchmodat2,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[];

/// Refused on each processor, whatever the arguments.
#[rustfmt::skip]
const REFUSED: &[i64] = &[
    // Other processes' memory, files and threads.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_process_madvise,
    libc::SYS_process_mrelease, libc::SYS_kcmp, libc::SYS_pidfd_getfd, libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Namespaces and mounts.
    libc::SYS_unshare, libc::SYS_setns, libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot,
    libc::SYS_open_tree, libc::SYS_move_mount, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount,
    libc::SYS_fspick, libc::SYS_mount_setattr,
    // Files without their names, and what watches all files.
    libc::SYS_open_by_handle_at, libc::SYS_name_to_handle_at, libc::SYS_fanotify_init, libc::SYS_fanotify_mark,
    // Who is asked and asks nobody connects to nobody: to no port, and to no Unix socket.
    libc::SYS_connect,
    // Code and events in the kernel.
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_init_module,
    libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_kexec_load, libc::SYS_seccomp,
    // Rings of calls that no filter sees.
    libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register,
    // Keys, which no namespace keeps apart.
    libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl,
    // The machine.
    libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_settimeofday, libc::SYS_clock_settime,
    libc::SYS_clock_adjtime, libc::SYS_adjtimex, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_quotactl_fd,
    libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_syslog, libc::SYS_vhangup, libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// Flags of `clone` that make a namespace. The flag for a namespace of time can be given to `clone3` only.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// Kinds of sockets that Postgres has; others reach the kernel's configuration, all traffic, or code that few use.
const FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
/// Calls that send, and the argument with their flags. With this flag the first of them connects.
const SENDING: [(i64, u8); 3] = [
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
];
const CONNECTS: u64 = libc::MSG_FASTOPEN as u64;
/// Types of sockets that are none of a stream's, the first of which is a datagram's and the last `SOCK_PACKET`.
const OTHER_TYPES: [u64; 6] = [2, 3, 4, 5, 6, 10];
/// Flags may stand above the type of a socket.
const TYPE_MASK: u64 = 0xf;
/// What puts characters into a terminal's input, or code of the kernel's between a terminal and its readers.
const TERMINALS: [libc::Ioctl; 3] = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD];
/// An argument of `personality` that only asks.
const PERSONALITY_ASKED: u64 = 0xffff_ffff;

/// The two filters, ready to be entered.
#[derive(Debug)]
pub struct Filters {
    allowing: BpfProgram,
    refusing: BpfProgram,
}

impl Filters {
    fn new() -> Result<Filters, String> {
        let said = |error: seccompiler::BackendError| format!("no filter can be made: {error}");
        let target = TargetArch::try_from(std::env::consts::ARCH).map_err(said)?;
        let filter = |rules, otherwise, matching| -> Result<BpfProgram, String> {
            let filter = SeccompFilter::new(rules, otherwise, matching, target).map_err(said)?;
            BpfProgram::try_from(filter).map_err(said)
        };
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
        // By that call the second filter is added, which refuses it from then on.
        let allowed = allowed().chain([libc::SYS_seccomp]);
        let allowed = allowed.map(|call| (call, Vec::new())).collect();
        let by_arguments = by_arguments().map_err(said)?;
        let all_refused = refused_always().map(|call| (call, Vec::new()));
        Ok(Filters {
            allowing: filter(allowed, unknown, SeccompAction::Allow)?,
            refusing: filter(
                all_refused.chain(by_arguments).collect(),
                SeccompAction::Allow,
                refused,
            )?,
        })
    }

    /// Puts the calling thread, and all that it starts from now on, under the filters; it gains no rights by programs
    /// either (`no_new_privs`). Makes four system calls, and neither allocates nor locks.
    pub fn enter(&self) -> io::Result<()> {
        for program in [&self.allowing, &self.refusing] {
            apply_filter(program).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
                _ => io::Error::from_raw_os_error(libc::EINVAL),
            })?;
        }
        Ok(())
    }
}

/// Numbers of the calls that are allowed, some of them with some arguments only.
pub fn allowed() -> impl Iterator<Item = i64> {
    ALLOWED.iter().chain(ALLOWED_HERE).copied()
}

/// Numbers of the calls that are refused whatever the arguments.
pub fn refused_always() -> impl Iterator<Item = i64> {
    REFUSED.iter().chain(REFUSED_HERE).copied()
}

/// The filters, if the kernel takes them, or why it does not. A thread that ends with it tries them, once a process.
pub fn filters() -> Result<&'static Filters, String> {
    static TRIED: OnceLock<Result<Filters, String>> = OnceLock::new();
    let tried = TRIED.get_or_init(|| {
        let filters = Filters::new()?;
        let entered = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, || filters.enter())?;
            thread
                .join()
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        });
        match entered {
            Ok(()) => Ok(filters),
            Err(error) => Err(format!("the kernel refuses it: {error}")),
        }
    });
    tried.as_ref().map_err(String::clone)
}

type Rules = Vec<(i64, Vec<SeccompRule>)>;

/// What is refused of calls that are allowed otherwise. One rule that holds is enough.
fn by_arguments() -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let rules = |cases: Vec<Vec<Case>>| cases.into_iter().map(rule).collect::<Result<Vec<_>, _>>();

    let namespaces = NAMESPACES.map(|flag| vec![(0, MaskedEq(flag as u64), flag as u64)]);
    let other_family = FAMILIES.map(|family| (0, Ne, family as u64)).to_vec();
    let other_types = OTHER_TYPES.map(|kind| vec![(1, MaskedEq(TYPE_MASK), kind)]);
    let protocols = [0, libc::IPPROTO_TCP];
    let other_protocol = protocols.map(|protocol| (2, Ne, protocol as u64)).to_vec();
    let sockets = [other_family, other_protocol]
        .into_iter()
        .chain(other_types);
    let sending = SENDING.into_iter().map(|(call, flags)| {
        let connecting = rules(vec![vec![(flags, MaskedEq(CONNECTS), CONNECTS)]])?;
        Ok((call, connecting))
    });
    let pairs = vec![vec![(0, Ne, libc::AF_UNIX as u64)]];
    let terminals = TERMINALS.map(|request| vec![(1, Eq, request)]);
    let personality = vec![vec![(0, Ne, PERSONALITY_ASKED), (0, Ne, 0)]];
    let mut all = vec![
        (libc::SYS_clone, rules(namespaces.to_vec())?),
        (libc::SYS_socket, rules(sockets.collect())?),
        (libc::SYS_socketpair, rules(pairs)?),
        (libc::SYS_ioctl, rules(terminals.to_vec())?),
        (libc::SYS_personality, rules(personality)?),
    ];
    all.extend(sending.collect::<Result<Rules, _>>()?);
    Ok(all)
}

/// Number of the argument, how it is compared, and with what.
type Case = (u8, SeccompCmpOp, u64);

/// Holds if all of the cases do.
fn rule(cases: Vec<Case>) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = cases.into_iter().map(|(argument, how, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}
