//! A new project's first contents: a fresh cluster from `initdb`, read into storage keys.

pub mod initdb;
pub mod scan;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use pg_types::v15::{ControlFile, DbState};
use pg_types::{Key, PgMajor};
use wal_decode::TimelineState;

pub use initdb::{PostgresInstall, SUPERUSER};
pub use scan::{Scan, encode_u32};

/// A scanned cluster and the position at which a timeline made from it starts.
#[derive(Debug)]
pub struct Import {
    /// Pages, sizes, relation maps and `PG_VERSION` files by key, ascending; pages that are all zeroes are left out.
    pub values: Vec<(Key, Bytes)>,
    /// The cluster's control file, with the system identifier of the template.
    pub control: ControlFile,
    /// As of the end of the shutdown checkpoint record, where the timeline starts.
    pub state: TimelineState,
}

impl Import {
    /// Reads a cleanly stopped cluster of Postgres 15; blocking. Fails when a file can't be read, when the control
    /// file is damaged or a relation is not a whole number of pages, and for a cluster that was not stopped cleanly,
    /// has data checksums or has tablespaces.
    pub fn read(pgdata: &std::path::Path) -> Result<Import> {
        let scan = scan::scan(pgdata)?;
        let control = ControlFile::parse(&scan.control_file)
            .with_context(|| format!("read global/pg_control of {}", pgdata.display()))?;
        ensure!(
            control.state() == Some(DbState::ShutDown),
            "{} was not stopped cleanly ({:?}); only a stopped cluster can be imported",
            pgdata.display(),
            control.state()
        );
        ensure!(
            control.data_checksum_version() == 0,
            "{} has data checksums; Weir keeps its own",
            pgdata.display()
        );
        let state = TimelineState::from_control_file(&control, PgMajor::V15);
        Ok(Import {
            values: scan.values,
            state,
            control,
        })
    }
}
