//! What tells a file or directory from its copies.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;
use std::{fs, io};

use serde::{Deserialize, Serialize};

/// What tells a file or directory from every copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    inode: u64,
    /// Nanoseconds since the Unix epoch; `None` where the file system does not say.
    born_ns: Option<u64>,
}

impl Origin {
    /// Origin of the file or directory at `path`. Blocks.
    pub fn of(path: &Path) -> io::Result<Origin> {
        let metadata = fs::metadata(path)?;
        let born = metadata.created().ok();
        let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Ok(Origin {
            inode: metadata.ino(),
            born_ns: born.map(|born| born.as_nanos() as u64),
        })
    }
}
