//! Why a timeline's log cannot be opened.

use pg_types::Lsn;

use crate::control::ControlError;
use crate::disk::DiskError;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("cannot read the WAL in {dir}: {source}")]
    Io { dir: String, source: std::io::Error },
    #[error(
        "WAL before {commit} was acknowledged but its file is missing in {dir}; put the file back, and keep this directory: what is left may be the last copy. The timeline's other safekeepers go on without this one"
    )]
    Missing { dir: String, commit: Lsn },
    #[error("Postgres {0} is not supported; this safekeeper knows 15")]
    Version(u32),
}
