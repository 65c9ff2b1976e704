//! Why a timeline's log cannot be opened.

use pg_types::{Lsn, UnknownMajor};

use crate::control::ControlError;
use crate::disk::DiskError;

/// Why the files of a timeline cannot be made, or opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The control file cannot be read or written.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The log's name on this disk cannot be found out or stored.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file system failed.
    #[error("cannot read the WAL in {dir}: {source}")]
    Io {
        /// Directory of the timeline.
        dir: String,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The segment that the stored commit LSN lies in is missing, and with it where the log ended. The timeline opens
    /// again once the file is back.
    #[error(
        "WAL before {commit} was acknowledged but its file is missing in {dir}; put the file back, and keep this directory: what is left may be the last copy. The timeline's other safekeepers go on without this one"
    )]
    Missing {
        /// Directory of the timeline.
        dir: String,
        /// Stored commit LSN: everything before it was acknowledged.
        commit: Lsn,
    },
    /// The timeline is of a major version of Postgres whose WAL this program does not know.
    #[error(transparent)]
    Version(#[from] UnknownMajor),
}
