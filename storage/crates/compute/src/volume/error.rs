//! Why a file operation failed, and the number Postgres sees for it.

use nix::errno::Errno;

use super::quota::Full;
use crate::source::SourceError;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("no such file or directory")]
    NotFound,
    #[error("it exists")]
    Exists,
    #[error("not a directory")]
    NotADirectory,
    #[error("is a directory")]
    IsADirectory,
    #[error("directory is not empty")]
    NotEmpty,
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The volume is (being) unmounted; nothing may be read or written any more.
    #[error("the volume is closed")]
    Closed,
    #[error(transparent)]
    Full(#[from] Full),
    #[error("storage: {0}")]
    Source(#[from] SourceError),
    #[error("local cache: {0}")]
    Io(#[from] std::io::Error),
}

impl VolumeError {
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
