//! Use of a volume through its mount, by the very process that serves the mount.
//!
//! The kernel ends a mount's requests when the last descriptor of the FUSE device is closed, and a process that is
//! killed closes its descriptors when the last thread that shares them has ended. A thread that waits for the mount
//! is not ended by a kill: the kernel has it wait for the answer to a request that was handed over (`fs/fuse/dev.c`,
//! `request_wait_answer`), and for pages to be written back when it closes a file. If it shares the device's
//! descriptor, the killed process waits for itself for ever: nobody can reap it, its compute does not come back, and its
//! mount stays. So whatever waits for the mount does it on a thread whose descriptors are its own, and which has
//! none of the device.
//!
//! Invariant: on a thread of [`alone`] no descriptor is open but standard input, output and error, and those that
//! its work opens. A crash leaves nothing.

use std::io;

use nix::libc;

const FIRST_AFTER_STANDARD: u32 = 3;

/// Does `work` on a thread with descriptors of its own, and waits for it. The work must bring none along: it names what
/// it uses by paths, and closes what it opens. For what reads a few files; it costs about a tenth of a millisecond.
///
/// # Errors
/// No thread could be started, or the kernel (before Linux 5.9) does not separate descriptors. A panic of the work is
/// passed on.
pub fn alone<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let thread = std::thread::Builder::new().name("mount".into());
    let started = thread.spawn(move || own_descriptors().map(|()| work()))?;
    started
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Gives the calling thread a table of descriptors of its own, with the standard ones in it.
fn own_descriptors() -> io::Result<()> {
    // SAFETY: the descriptors of all other threads stay open, and this thread has used none yet.
    #[allow(unsafe_code)]
    let separated = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_AFTER_STANDARD,
            u32::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    if separated != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: asks for a flag of a descriptor that may not be open.
    #[allow(unsafe_code)]
    let first = unsafe { libc::fcntl(FIRST_AFTER_STANDARD as i32, libc::F_GETFD) };
    assert_eq!(
        first, -1,
        "a descriptor of the process is open on a thread of its own"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;

    use super::*;

    fn open(descriptor: i32) -> bool {
        PathBuf::from(format!("/proc/thread-self/fd/{descriptor}")).is_symlink()
    }

    #[test]
    fn the_work_sees_no_descriptor_of_the_process_and_leaves_all_open() {
        let file = File::open("/dev/null").unwrap();
        let descriptor = file.as_raw_fd();
        assert!(open(descriptor));
        let (seen, opened) = alone(move || {
            let seen = open(descriptor);
            (seen, File::open("/dev/null").unwrap().as_raw_fd())
        })
        .unwrap();
        assert!(!seen);
        assert_eq!(opened, FIRST_AFTER_STANDARD as i32);
        assert!(open(descriptor));
        assert!(file.metadata().is_ok());
    }

    #[test]
    fn a_panic_of_the_work_is_passed_on() {
        let panics = std::panic::catch_unwind(|| alone(|| panic!("of the work")));
        let panic = panics.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the work"));
    }
}
