//! How much of a volume the kernel may hold that has been written and not handed over.
//!
//! A FUSE mount gets one hundredth of the memory that may be dirty on the host, which is 50 MB with 24 GiB and
//! 2 GB with 1 TiB. The first has Postgres wait for the agent during a bulk load, and hands over pages that are
//! written again a moment later; the second is more than the margin that a storage quota is watched with.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a volume that may be dirty in the kernel. Half of the margin that [`super::Quota::near`] keeps.
pub const MAX_DIRTY: u64 = 128 << 20;

/// The kernel's knob for the mount on device number `device`
/// (`Documentation/ABI/testing/sysfs-class-bdi`; Linux 6.2 and later).
fn knob(device: u64) -> PathBuf {
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/max_bytes"))
}

/// Lets `bytes` be dirty of the file system that is mounted at `path`, and no more.
///
/// # Errors
/// Without the right to write below `/sys`, with a kernel that has no such knob, and where `bytes` are more than
/// the host may have dirty in all. The kernel's own limit stays in force then.
pub fn set(path: &Path, bytes: u64) -> io::Result<()> {
    std::fs::write(knob(path.metadata()?.dev()), bytes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knob_is_named_by_both_halves_of_the_device_number() {
        let device = nix::sys::stat::makedev(7, 300);
        assert_eq!(knob(device), Path::new("/sys/class/bdi/7:300/max_bytes"));
    }

    #[test]
    fn a_file_system_without_a_knob_is_an_error() {
        assert!(set(Path::new("/proc/self"), MAX_DIRTY).is_err());
    }
}
