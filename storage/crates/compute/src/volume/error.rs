//! Why a file operation failed, and the number Postgres sees for it.

use nix::errno::Errno;

use super::quota::Full;
use crate::source::SourceError;

/// Why an operation on a file or directory failed. [`VolumeError::errno`] is what Postgres is told.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// No file or directory has the name, or the inode is gone.
    #[error("no such file or directory")]
    NotFound,
    /// The name that was to be made is there.
    #[error("it exists")]
    Exists,
    /// A file stands where a directory is needed.
    #[error("not a directory")]
    NotADirectory,
    /// A directory stands where a file is needed.
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries, or storage may list some.
    #[error("directory is not empty")]
    NotEmpty,
    /// The request makes no sense for a volume; the field says why.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The volume is (being) unmounted; nothing may be read or written any more.
    #[error("the volume is closed")]
    Closed,
    /// The branch's storage quota refuses growth. Nothing was written.
    #[error(transparent)]
    Full(#[from] Full),
    /// Storage gave no page or no list of names: what was asked for does not exist there, no answer came in time, or
    /// a newer compute owns the timeline.
    #[error("storage: {0}")]
    Source(#[from] SourceError),
    /// The local disk failed or is full.
    #[error("local cache: {0}")]
    Io(#[from] std::io::Error),
}

impl VolumeError {
    /// What the kernel, and so Postgres, is told: POSIX's number for a name that is or is not there, EINVAL for a
    /// request that makes no sense, ENOSPC beyond the quota, EIO for what storage did not give and from a closed
    /// volume. An error of the local disk keeps ENOSPC, EDQUOT, EMFILE and ENFILE; any other is EIO.
    pub fn errno(&self) -> Errno {
        match self {
            VolumeError::NotFound => Errno::ENOENT,
            VolumeError::Exists => Errno::EEXIST,
            VolumeError::NotADirectory => Errno::ENOTDIR,
            VolumeError::IsADirectory => Errno::EISDIR,
            VolumeError::NotEmpty => Errno::ENOTEMPTY,
            VolumeError::Invalid(_) => Errno::EINVAL,
            VolumeError::Full(_) => Errno::ENOSPC,
            VolumeError::Closed | VolumeError::Source(_) => Errno::EIO,
            // A full disk should read as such; anything else of the cache is an I/O error to Postgres.
            VolumeError::Io(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(errno @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EMFILE | Errno::ENFILE)) => {
                    errno
                }
                _ => Errno::EIO,
            },
        }
    }
}
