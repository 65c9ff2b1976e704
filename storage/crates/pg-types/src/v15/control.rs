//! `pg_control`, as Postgres 15 lays it out; 17 and 18 keep all of its fields where they are.

use serde::{Deserialize, Serialize};

use super::{CHECKPOINT_BYTES, CheckPoint};
use crate::bytes_le::{
    at_i32, at_i64, at_u32, at_u64, get_u32, put_i32, put_i64, put_u32, put_u64,
};
use crate::{Lsn, PgMajor};

/// Where 15's checksum stands; it covers the bytes before.
pub const CONTROL_CRC_OFFSET: usize = 288;
/// Bytes of the struct of 15, checksum included.
pub const CONTROL_BYTES: usize = 292;
/// Most bytes before the checksum in any major.
const MAX_CONTENT_BYTES: usize = 292;
/// Bytes of the file, zero after the struct.
pub const CONTROL_FILE_BYTES: usize = 8192;

const SYSTEM_IDENTIFIER: usize = 0;
const VERSION: usize = 8;
const CATALOG_VERSION: usize = 12;
const STATE: usize = 16;
const TIME: usize = 24;
const CHECKPOINT: usize = 32;
const CHECKPOINT_COPY: usize = 40;
const UNLOGGED_LSN: usize = 128;
const MIN_RECOVERY_POINT: usize = 136;
const MIN_RECOVERY_POINT_TLI: usize = 144;
const BACKUP_START: usize = 152;
const BACKUP_END: usize = 160;
const BACKUP_END_REQUIRED: usize = 168;
const WAL_LEVEL: usize = 172;
const WAL_LOG_HINTS: usize = 176;
const MAX_CONNECTIONS: usize = 180;
const MAX_WORKER_PROCESSES: usize = 184;
const MAX_WAL_SENDERS: usize = 188;
const MAX_PREPARED_XACTS: usize = 192;
const MAX_LOCKS_PER_XACT: usize = 196;
const TRACK_COMMIT_TIMESTAMP: usize = 200;
const BLOCK_BYTES: usize = 216;
const WAL_BLOCK_BYTES: usize = 224;
const WAL_SEGMENT_BYTES: usize = 228;
const DATA_CHECKSUM_VERSION: usize = 252;

/// `pg_control` can't be used.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum ControlFileError {
    /// The file has only so many bytes and ends before its checksum; an intact copy is needed.
    #[error("pg_control has {0} bytes; its checksum alone ends later")]
    Short(usize),
    /// The file is another version's, which is seen before the checksum is: parse it as its own major, if known.
    #[error(
        "pg_control is of version {control} with catalog version {catalog}; Postgres {} writes {} and {}",
        major.facts().number, major.facts().control_version, major.facts().catalog_version
    )]
    Version {
        /// `pg_control_version` of the file.
        control: u32,
        /// `catalog_version_no` of the file.
        catalog: u32,
        /// The major that was expected.
        major: PgMajor,
    },
    /// The content is not what Postgres wrote; an intact copy is needed.
    #[error(
        "pg_control is damaged: its checksum is {stored:08x}, its content gives {computed:08x}"
    )]
    Checksum {
        /// The checksum in the file.
        stored: u32,
        /// The CRC-32C of what it covers.
        computed: u32,
    },
    /// A size that Postgres was built or initialised with is not the default. Such a cluster cannot be used.
    #[error(
        "pg_control says {what} is {found}; Weir needs {needed}: initialise the cluster with the default"
    )]
    Build {
        /// Which size it is, as the message words it.
        what: &'static str,
        /// The file's value, in bytes.
        found: u32,
        /// The default, in bytes.
        needed: u32,
    },
}

/// What the cluster was doing (`DBState`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum DbState {
    /// Starting up (`pg_control.h: DB_STARTUP`).
    Startup = 0,
    /// Stopped after a shutdown checkpoint (`pg_control.h: DB_SHUTDOWNED`); starts without recovery.
    ShutDown = 1,
    /// A standby that was stopped (`pg_control.h: DB_SHUTDOWNED_IN_RECOVERY`).
    ShutDownInRecovery = 2,
    /// Writing its shutdown checkpoint (`pg_control.h: DB_SHUTDOWNING`).
    ShuttingDown = 3,
    /// Replaying WAL after a crash (`pg_control.h: DB_IN_CRASH_RECOVERY`).
    InCrashRecovery = 4,
    /// Replaying WAL from an archive or as a standby (`pg_control.h: DB_IN_ARCHIVE_RECOVERY`).
    InArchiveRecovery = 5,
    /// Open for work, or crashed while it was (`pg_control.h: DB_IN_PRODUCTION`).
    InProduction = 6,
}

impl DbState {
    /// The state with this number; `None` if there is none.
    pub fn from_i32(value: i32) -> Option<DbState> {
        [
            DbState::Startup,
            DbState::ShutDown,
            DbState::ShutDownInRecovery,
            DbState::ShuttingDown,
            DbState::InCrashRecovery,
            DbState::InArchiveRecovery,
            DbState::InProduction,
        ]
        .into_iter()
        .find(|state| *state as i32 == value)
    }
}

/// `wal_level` as numbered in `pg_control` and in parameter-change records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i32)]
pub enum WalLevel {
    /// Enough for recovery after a crash only (`xlog.h: WAL_LEVEL_MINIMAL`).
    Minimal = 0,
    /// Enough for standbys and archives (`xlog.h: WAL_LEVEL_REPLICA`).
    Replica = 1,
    /// Enough for logical decoding as well (`xlog.h: WAL_LEVEL_LOGICAL`).
    Logical = 2,
}

/// The settings that Postgres keeps in `pg_control` and reports in `XLOG_PARAMETER_CHANGE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClusterParameters {
    /// The setting `max_connections`.
    pub max_connections: i32,
    /// The setting `max_worker_processes`.
    pub max_worker_processes: i32,
    /// The setting `max_wal_senders`.
    pub max_wal_senders: i32,
    /// The setting `max_prepared_transactions`.
    pub max_prepared_xacts: i32,
    /// The setting `max_locks_per_transaction`.
    pub max_locks_per_xact: i32,
    /// 0 minimal, 1 replica, 2 logical.
    pub wal_level: i32,
    /// The setting `wal_log_hints`.
    pub wal_log_hints: bool,
    /// The setting `track_commit_timestamp`.
    pub track_commit_timestamp: bool,
}

impl ClusterParameters {
    /// The body of an `XLOG_PARAMETER_CHANGE` record; `None` when it is too short.
    pub fn parse_change(body: &[u8]) -> Option<ClusterParameters> {
        let b = body.get(..26)?;
        Some(ClusterParameters {
            max_connections: at_i32(b, 0),
            max_worker_processes: at_i32(b, 4),
            max_wal_senders: at_i32(b, 8),
            max_prepared_xacts: at_i32(b, 12),
            max_locks_per_xact: at_i32(b, 16),
            wal_level: at_i32(b, 20),
            wal_log_hints: b[24] != 0,
            track_commit_timestamp: b[25] != 0,
        })
    }
}

/// A `pg_control`: the bytes of a template with typed access to the fields that Weir reads or changes.
/// Fields nobody here touches (float format, authentication nonce) keep the template's bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlFile {
    major: PgMajor,
    /// Up to the major's checksum, and zero behind.
    bytes: [u8; MAX_CONTENT_BYTES],
}

impl std::fmt::Debug for ControlFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlFile")
            .field("system_identifier", &self.system_identifier())
            .field("state", &self.state())
            .field("checkpoint", &self.checkpoint())
            .field("checkpoint_copy", &self.checkpoint_copy())
            .field("parameters", &self.parameters())
            .finish_non_exhaustive()
    }
}

impl ControlFile {
    /// Reads and checks a `pg_control` of Postgres 15, whole or cut after the struct.
    pub fn parse(file: &[u8]) -> Result<ControlFile, ControlFileError> {
        ControlFile::parse_of(PgMajor::V15, file)
    }

    /// Reads and checks a `pg_control` of this major, whole or cut after the struct.
    pub fn parse_of(major: PgMajor, file: &[u8]) -> Result<ControlFile, ControlFileError> {
        let crc_offset = major.facts().control_crc_offset;
        let short = ControlFileError::Short(file.len());
        let content = file.get(..crc_offset).ok_or(short.clone())?;
        let stored = get_u32(file, crc_offset).ok_or(short)?;
        let mut bytes = [0; MAX_CONTENT_BYTES];
        bytes[..crc_offset].copy_from_slice(content);
        let (control, catalog) = (at_u32(&bytes, VERSION), at_u32(&bytes, CATALOG_VERSION));
        let facts = major.facts();
        if (control, catalog) != (facts.control_version, facts.catalog_version) {
            return Err(ControlFileError::Version {
                control,
                catalog,
                major,
            });
        }
        let computed = crc32c::crc32c(content);
        if stored != computed {
            return Err(ControlFileError::Checksum { stored, computed });
        }
        for (what, at, needed) in [
            ("the block size", BLOCK_BYTES, crate::BLCKSZ as u32),
            (
                "the WAL block size",
                WAL_BLOCK_BYTES,
                crate::XLOG_BLCKSZ as u32,
            ),
            (
                "the WAL segment size",
                WAL_SEGMENT_BYTES,
                crate::WAL_SEGMENT_BYTES as u32,
            ),
        ] {
            let found = at_u32(&bytes, at);
            if found != needed {
                return Err(ControlFileError::Build {
                    what,
                    found,
                    needed,
                });
            }
        }
        Ok(ControlFile { major, bytes })
    }

    /// The file as Postgres reads it: checksum fresh, padded with zeroes to [`CONTROL_FILE_BYTES`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; CONTROL_FILE_BYTES];
        let crc_offset = self.major.facts().control_crc_offset;
        out[..crc_offset].copy_from_slice(&self.bytes[..crc_offset]);
        let crc = crc32c::crc32c(&out[..crc_offset]);
        put_u32(&mut out, crc_offset, crc);
        out
    }

    /// The cluster's identifier, which its WAL carries as well.
    pub fn system_identifier(&self) -> u64 {
        at_u64(&self.bytes, SYSTEM_IDENTIFIER)
    }

    /// Makes this the control file of another cluster.
    pub fn set_system_identifier(&mut self, value: u64) {
        put_u64(&mut self.bytes, SYSTEM_IDENTIFIER, value);
    }

    /// `catalog_version_no`; always that of the major, and part of the names of directories in tablespaces.
    pub fn catalog_version(&self) -> u32 {
        at_u32(&self.bytes, CATALOG_VERSION)
    }

    /// `None` when the number is not one Postgres uses.
    pub fn state(&self) -> Option<DbState> {
        DbState::from_i32(at_i32(&self.bytes, STATE))
    }

    /// Sets what the cluster was doing.
    pub fn set_state(&mut self, state: DbState) {
        put_i32(&mut self.bytes, STATE, state as i32);
    }

    /// Last update, seconds since the Unix epoch.
    pub fn time(&self) -> i64 {
        at_i64(&self.bytes, TIME)
    }

    /// Sets when the file was last updated.
    pub fn set_time(&mut self, unix_seconds: i64) {
        put_i64(&mut self.bytes, TIME, unix_seconds);
    }

    /// Start of the latest checkpoint record.
    pub fn checkpoint(&self) -> Lsn {
        Lsn(at_u64(&self.bytes, CHECKPOINT))
    }

    /// Sets the start of the latest checkpoint record.
    pub fn set_checkpoint(&mut self, lsn: Lsn) {
        put_u64(&mut self.bytes, CHECKPOINT, lsn.0);
    }

    /// The latest checkpoint record's body.
    pub fn checkpoint_copy(&self) -> CheckPoint {
        CheckPoint::parse(&self.bytes[CHECKPOINT_COPY..]).unwrap_or_default()
    }

    /// Sets the latest checkpoint record's body. The `wal_level` that later majors keep in it becomes 0.
    pub fn set_checkpoint_copy(&mut self, checkpoint: &CheckPoint) {
        self.bytes[CHECKPOINT_COPY..CHECKPOINT_COPY + CHECKPOINT_BYTES]
            .copy_from_slice(&checkpoint.to_bytes());
    }

    /// Counter of fake LSNs for unlogged relations.
    pub fn unlogged_lsn(&self) -> Lsn {
        Lsn(at_u64(&self.bytes, UNLOGGED_LSN))
    }

    /// Sets the counter of fake LSNs.
    pub fn set_unlogged_lsn(&mut self, lsn: Lsn) {
        put_u64(&mut self.bytes, UNLOGGED_LSN, lsn.0);
    }

    /// Up to where recovery has to replay at least, and the number of Postgres's own timeline there
    /// (`minRecoveryPoint`, `minRecoveryPointTLI`); zeroes when the cluster is not in archive recovery.
    pub fn min_recovery_point(&self) -> (Lsn, u32) {
        (
            Lsn(at_u64(&self.bytes, MIN_RECOVERY_POINT)),
            at_u32(&self.bytes, MIN_RECOVERY_POINT_TLI),
        )
    }

    /// Start of the base backup that is being recovered from (`backupStartPoint`); 0 if there is none.
    pub fn backup_start(&self) -> Lsn {
        Lsn(at_u64(&self.bytes, BACKUP_START))
    }

    /// Forgets a recovery target and a backup in progress, as a cleanly stopped primary has neither.
    pub fn clear_recovery_points(&mut self) {
        put_u64(&mut self.bytes, MIN_RECOVERY_POINT, 0);
        put_u32(&mut self.bytes, MIN_RECOVERY_POINT_TLI, 0);
        put_u64(&mut self.bytes, BACKUP_START, 0);
        put_u64(&mut self.bytes, BACKUP_END, 0);
        self.bytes[BACKUP_END_REQUIRED] = 0;
    }

    /// The settings that the file keeps.
    pub fn parameters(&self) -> ClusterParameters {
        let b = &self.bytes;
        ClusterParameters {
            max_connections: at_i32(b, MAX_CONNECTIONS),
            max_worker_processes: at_i32(b, MAX_WORKER_PROCESSES),
            max_wal_senders: at_i32(b, MAX_WAL_SENDERS),
            max_prepared_xacts: at_i32(b, MAX_PREPARED_XACTS),
            max_locks_per_xact: at_i32(b, MAX_LOCKS_PER_XACT),
            wal_level: at_i32(b, WAL_LEVEL),
            wal_log_hints: b[WAL_LOG_HINTS] != 0,
            track_commit_timestamp: b[TRACK_COMMIT_TIMESTAMP] != 0,
        }
    }

    /// Sets the settings that the file keeps, all of them.
    pub fn set_parameters(&mut self, parameters: &ClusterParameters) {
        let b = &mut self.bytes;
        put_i32(b, MAX_CONNECTIONS, parameters.max_connections);
        put_i32(b, MAX_WORKER_PROCESSES, parameters.max_worker_processes);
        put_i32(b, MAX_WAL_SENDERS, parameters.max_wal_senders);
        put_i32(b, MAX_PREPARED_XACTS, parameters.max_prepared_xacts);
        put_i32(b, MAX_LOCKS_PER_XACT, parameters.max_locks_per_xact);
        put_i32(b, WAL_LEVEL, parameters.wal_level);
        b[WAL_LOG_HINTS] = u8::from(parameters.wal_log_hints);
        b[TRACK_COMMIT_TIMESTAMP] = u8::from(parameters.track_commit_timestamp);
    }

    /// 0 when data checksums are off, as Weir initialises clusters.
    pub fn data_checksum_version(&self) -> u32 {
        at_u32(&self.bytes, DATA_CHECKSUM_VERSION)
    }

    /// Sets the version of data checksums, 0 for off. Checksums of pages are not changed by it.
    pub fn set_data_checksum_version(&mut self, version: u32) {
        put_u32(&mut self.bytes, DATA_CHECKSUM_VERSION, version);
    }

    /// Makes this the control file of a cluster that was cleanly stopped by `checkpoint`, whose record
    /// starts at `checkpoint.redo`: Postgres then starts there without recovery.
    pub fn stop_at(&mut self, checkpoint: &CheckPoint, parameters: &ClusterParameters) {
        self.set_state(DbState::ShutDown);
        self.set_time(checkpoint.time);
        self.set_checkpoint(checkpoint.redo);
        self.set_checkpoint_copy(checkpoint);
        self.clear_recovery_points();
        self.set_parameters(parameters);
    }
}
