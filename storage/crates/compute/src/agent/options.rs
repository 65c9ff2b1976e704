//! Where a compute's files are, and how this process runs computes.

use std::path::{Path, PathBuf};

use crate::volume::WriteMode;

/// Paths below the compute's directory.
#[derive(Clone, Debug)]
pub struct Paths {
    /// `pgdata`, Postgres's data directory.
    pub data: PathBuf,
    /// `volume`, where the volume is mounted.
    pub volume: PathBuf,
    /// `cache`, the directory of the volume's cache files.
    pub cache: PathBuf,
    /// `sock`, the directory of the private socket; only its owner gets in.
    pub socket: PathBuf,
    /// `postgres.log`, to which Postgres appends; the file outlives runs and the process.
    pub log: PathBuf,
    /// The settings that worked last; outlives the process.
    pub good_settings: PathBuf,
}

impl Paths {
    pub(super) fn below(directory: &Path) -> Paths {
        Paths {
            data: directory.join("pgdata"),
            volume: directory.join("volume"),
            cache: directory.join("cache"),
            socket: directory.join("sock"),
            log: directory.join("postgres.log"),
            good_settings: directory.join("settings.good.json"),
        }
    }
}

/// How this process runs computes, whatever the spec says.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Pages asked for ahead of a sequential reader at most.
    pub read_ahead: u32,
    /// Bytes of local disk that pages may take which came from storage and were not written; `None` is no limit.
    pub cache: Option<u64>,
    /// The number of the operating system's user, and of the group, that is this compute's alone; `None`: Postgres runs
    /// as the spec says, or as the agent's own user where the agent is not root.
    pub user: Option<u32>,
    /// When writes reach the volume. `Back` is a wish: a branch near its quota writes through.
    pub writes: WriteMode,
}
