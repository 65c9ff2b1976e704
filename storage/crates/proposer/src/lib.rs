//! The proposer: gets a compute the right to write, carries its WAL from Postgres to the safekeepers, and tells
//! Postgres what is safe.
//!
//! [`elect`] wins a term, finds L, brings a majority up to it and makes it known as committed.
//! [`Elected::stream`] then speaks physical replication to the compute's own Postgres, as its one synchronous
//! standby, from L on. Each safekeeper has a task of its own, so that a slow or dead one holds up nobody and is
//! supplied later, from memory or from a peer. All tasks of a proposer run on one thread (`reactor`). The WAL of
//! commits that come while others are under way travels together (`batch`).
//!
//! Invariants:
//! - Postgres is told `flush` only up to the commit LSN, which only `consensus` moves;
//! - WAL leaves memory only when it is committed, so a lagging safekeeper always finds it at a peer;
//! - once a higher term is seen, or no majority has renewed the read lease for the configured time, the proposer
//!   reports [`Fatal`], acknowledges nothing more, and its compute must stop; it stops Postgres itself, first, when the
//!   lease has run out (`lease`, `watch`);
//! - a term is announced only when its log holds everything that the pageserver has ingested and that any
//!   safekeeper heard of has committed; one that shows otherwise later ends the proposer ([`Fatal::Diverged`]).
//!
//! Nothing here is durable. A crash loses WAL that no majority holds, which nobody was told is safe.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
mod buffer;
mod connection;
mod core;
mod elect;
mod evidence;
mod follow;
mod lease;
mod member;
mod members;
mod metrics;
mod moment;
mod pace;
mod peers;
mod reactor;
mod relations;
mod replication;
mod room;
mod running;
mod stream;
mod supply;
mod tries;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use part_tls::Dialer;
use pg_types::{Lsn, TenantId, Term, TimelineId};
use token::OwnToken;

pub use consensus::{Configuration, Member};
pub use elect::{ElectError, Elected, elect};
pub use members::{MemberChange, MemberError};
pub use pace::WalPace;
pub use relations::RelationLedger;
pub use stream::ProposerHandle;
pub use watch::Stop;
pub use wire::wal::{Room, RoomCause};

/// The timeline to write to, and the safekeepers that hold its log.
#[derive(Clone, Debug)]
pub struct ProposerConfig {
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline that is written.
    pub timeline: TimelineId,
    /// WAL addresses of safekeepers, `host:port`. Who counts is what the log says; only where it names no members yet
    /// does their number decide what a majority is.
    pub safekeepers: Vec<String>,
    /// How long one attempt to connect to a safekeeper may take.
    pub connect_timeout: Duration,
    /// For the whole election, retries included.
    pub election_timeout: Duration,
    /// Length of the read lease: the proposer stops Postgres and gives up when no majority has vouched for a moment
    /// within this time.
    pub quorum_timeout: Duration,
    /// WAL kept in memory for safekeepers that lag; what is not committed is kept beyond it, and then no more
    /// is taken from Postgres.
    pub buffer_bytes: usize,
    /// The log is committed at least up to here, whatever the safekeepers hold: the pageserver has ingested it. An
    /// election on less fails.
    pub ingested_lsn: Lsn,
    /// For the labels of the metrics.
    pub compute_id: String,
    /// Where WAL is counted by relation; the owner keeps it from run to run.
    pub relations: Arc<RelationLedger>,
    /// The rate that WAL is held to; the owner changes it while the proposer runs.
    pub pace: Arc<WalPace>,
    /// What safekeepers are shown when a connection opens.
    pub token: OwnToken,
    /// How they are connected to.
    pub dialer: Dialer,
}

impl ProposerConfig {
    /// A configuration with times of 2 s, 20 s and 10 s, 64 MiB of buffer, nothing ingested, and a new ledger.
    pub fn new(
        tenant: TenantId,
        timeline: TimelineId,
        safekeepers: Vec<String>,
        compute_id: impl Into<String>,
    ) -> ProposerConfig {
        ProposerConfig {
            tenant,
            timeline,
            safekeepers,
            connect_timeout: Duration::from_secs(2),
            election_timeout: Duration::from_secs(20),
            quorum_timeout: Duration::from_secs(10),
            buffer_bytes: 64 << 20,
            ingested_lsn: Lsn::INVALID,
            compute_id: compute_id.into(),
            relations: Arc::default(),
            pace: Arc::default(),
            token: OwnToken::default(),
            dialer: Dialer::default(),
        }
    }
}

/// Where to find the compute's Postgres.
#[derive(Clone, Debug)]
pub struct PgConn {
    /// Directory of Postgres's Unix socket.
    pub socket_dir: PathBuf,
    /// Port that Postgres was started with; part of the socket's name.
    pub port: u16,
    /// A role with REPLICATION that the local socket trusts.
    pub user: String,
    /// Physical slot, created when it does not exist.
    pub slot: String,
}

/// How far the WAL has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Positions {
    /// Last byte received from Postgres.
    pub received: Lsn,
    /// End of the last whole record received.
    pub record_end: Lsn,
    /// In memory on a majority.
    pub written: Lsn,
    /// Fsynced on a majority.
    pub commit: Lsn,
    /// Ingested by the pageserver.
    pub applied: Lsn,
    /// In object storage, with its index.
    pub remote_consistent: Lsn,
    /// How much more WAL a majority of the safekeepers takes; `None` for no limit.
    pub room: Option<Room>,
}

/// An XLOG_FPW_CHANGE record in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FpwChange {
    /// Whether full page writes are on from this record on.
    pub enabled: bool,
    /// LSN of the record's first byte.
    pub record_lsn: Lsn,
    /// End of the record, exclusive.
    pub end_lsn: Lsn,
    /// Whether the record is committed.
    pub committed: bool,
}

/// Why the compute has to stop.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Fatal {
    /// A safekeeper has promised itself to a higher term, or stored a configuration of one.
    #[error("a newer compute has taken over this timeline with term {by}; this one must stop")]
    Fenced {
        /// The higher term.
        by: Term,
    },
    /// No majority of the voters has renewed the read lease for longer than [`ProposerConfig::quorum_timeout`].
    #[error(
        "no majority of the safekeepers has answered for {seconds:.1} s ({detail}); stopping, because a newer compute could already be running"
    )]
    NoQuorum {
        /// Since the last moment that a majority has vouched for, seconds.
        seconds: f64,
        /// For people: the last error of each safekeeper that has one.
        detail: String,
    },
    /// Postgres belongs to another cluster, its WAL cannot be decoded, or the proposer was shut down.
    #[error("the WAL cannot be carried on: {detail}")]
    Stopped {
        /// For people: what happened.
        detail: String,
    },
    /// An election was won on less than what is known to be committed. Nothing was announced.
    #[error(
        "acknowledged WAL is missing: {detail}. This compute has changed nothing in any log and must not write. Bring the safekeepers back that hold the missing WAL, and keep every directory of this timeline, also on safekeepers that look older or damaged: it may hold the last copy"
    )]
    LostWal {
        /// For people: whose log is the best, and who knows of more.
        detail: String,
    },
    /// A safekeeper has committed what this term's log does not hold, or would have to cut off committed WAL to
    /// follow it.
    #[error(
        "the log has two histories: {detail}. This compute must not write any more. Keep every directory of this timeline on every safekeeper: the one that has committed more may hold the last copy of what was acknowledged"
    )]
    Diverged {
        /// For people: which safekeeper, and where the logs part.
        detail: String,
    },
}
