//! One timeline on this safekeeper: the acceptor over its files.
//!
//! Three locks, always taken in this order: `promises` (the control file), `fsync` (one at a time), `state`
//! (memory and page cache). The first two are held across disk waits, so what takes them must be on a thread
//! that may block; `state` is only held across one while an election cuts the log.

#[cfg(test)]
pub(crate) mod alone;
mod filling;
mod offloading;
mod reading;
mod repairing;
mod reporting;
mod room;
mod writing;

pub use filling::{FillView, Gathered, InstallError};
pub use offloading::OffloadView;
pub use reading::Committed;
use repairing::Health;
pub use repairing::{MendError, Mended, RepairView, Verified};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consensus::{
    Acceptor, AppendReply, Configuration, Durable, LogPosition, MemberId, Refusal, Role,
};
use parking_lot::{Mutex, MutexGuard};
use pg_types::{Lsn, WAL_SEGMENT_BYTES};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wal_decode::WalStreamDecoder;
use wire::wal::{Failure, FailureKind, Room};

use crate::control::{self, Control, Identity};
use crate::damage::Damage;
use crate::disk::Disk;
use crate::open_error::OpenError;
use crate::origin::Origin;
use crate::room::Space;
use crate::segments::Segments;
use crate::{filled, metrics, recovery, replaced};

/// A wait for the state that is no reason to have another thread take over.
const SOON: Duration = Duration::from_micros(500);

/// What connections of a timeline wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Where the log is.
    pub reply: AppendReply,
    /// Highest position that a reader has ingested since the start; `INVALID` before one has said so.
    pub ingested_lsn: Lsn,
    /// Position below which no reader needs the WAL any more.
    pub remote_consistent_lsn: Lsn,
    /// How much more WAL is taken; `None` for no limit.
    pub room: Option<Room>,
}

/// Why a timeline does nothing any more.
#[derive(Clone, Debug)]
pub struct Stop {
    /// For people: what failed, and what to do.
    pub reason: String,
    /// When the timeline stopped.
    pub since: Instant,
    /// Opening it again from disk may help (a full disk that has room again).
    pub retryable: bool,
}

/// Why a timeline did not do what a proposer asked.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// A rule of consensus forbids it; the timeline goes on.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The timeline has stopped, another connection writes it, or the WAL is damaged.
    #[error(transparent)]
    Failed(#[from] Failure),
}

struct State {
    acceptor: Acceptor,
    /// Follows the log to its end and finds the record boundaries; `None` after it met bytes that are no WAL.
    decoder: Option<WalStreamDecoder>,
    segments: Segments,
    readers: BTreeMap<String, Lsn>,
    ingested_lsn: Lsn,
    /// The connection whose appends are taken.
    writer: u64,
    stopped: Option<Stop>,
}

/// An open timeline: acceptor, files, and what its connections and tasks share.
pub struct Timeline {
    /// What the timeline is.
    pub identity: Identity,
    dir: PathBuf,
    /// The control file as it is on disk.
    promises: Mutex<Control>,
    fsync: Mutex<()>,
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
    connections: AtomicU64,
    /// See [`Timeline::offloaded_lsn`]; 0 for none.
    offloaded: AtomicU64,
    /// Taken for moments, and with nothing else behind it.
    health: Mutex<Health>,
    suspected: Notify,
    is_suspected: AtomicBool,
    space: Arc<Space>,
    closed: CancellationToken,
}

/// A timeline as the HTTP API shows it.
#[derive(Clone, Debug)]
pub struct Status {
    /// What the timeline is.
    pub identity: Identity,
    /// Where the log is, and what it has promised.
    pub position: LogPosition,
    /// First byte of WAL that is still here.
    pub oldest_lsn: Lsn,
    /// Everything between what is durable as pages and here is in the object store.
    pub offloaded_lsn: Option<Lsn>,
    /// Damage that is known and not repaired, in order.
    pub damage: Vec<Damage>,
    /// The last look at all of the log; `None` before the first one since the start.
    pub verified: Option<Verified>,
    /// Of this log in the newest configuration it knows.
    pub role: Option<Role>,
    /// Why the timeline does nothing any more; `None` while it works.
    pub stopped: Option<String>,
}

fn stopped(reason: &str) -> Failure {
    Failure {
        kind: FailureKind::Stopped,
        message: reason.to_owned(),
    }
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure {
        kind,
        message: message.into(),
    }
}

impl Timeline {
    /// Writes a new timeline into the empty directory `dir`.
    pub fn create(
        dir: &Path,
        identity: Identity,
        member: MemberId,
        configuration: Configuration,
    ) -> Result<(), OpenError> {
        recovery::major(identity.pg_version)?;
        let origin = Origin::of(dir).map_err(|source| OpenError::Io {
            dir: dir.display().to_string(),
            source,
        })?;
        let control = Control {
            identity,
            member,
            origin: Some(origin),
            durable: Durable::new(member, identity.start_lsn, configuration),
            readers: BTreeMap::new(),
        };
        Ok(control::store(dir, &control)?)
    }

    /// Opens what is on disk. Blocks.
    pub fn open(dir: &Path, disk: &Disk) -> Result<Timeline, OpenError> {
        let mut control = filled::finish(dir)
            .and_then(|()| replaced::clear(dir))
            .map_err(|source| OpenError::Io {
                dir: dir.display().to_string(),
                source,
            })
            .and_then(|()| Ok(control::load(dir)?))?;
        if disk.claim(dir, &mut control)? {
            control::store(dir, &control)?;
        }
        let recovered = recovery::recover(dir, &control)?;
        let acceptor = Acceptor::new(control.member, control.durable.clone(), recovered.end);
        let progress = Progress {
            reply: acceptor.append_reply(),
            ingested_lsn: Lsn::INVALID,
            remote_consistent_lsn: control.durable.remote_consistent_lsn,
            room: None,
        };
        let state = State {
            acceptor,
            decoder: Some(recovered.decoder),
            segments: recovered.segments,
            readers: control.readers.clone(),
            ingested_lsn: Lsn::INVALID,
            writer: 0,
            stopped: None,
        };
        let opened = Timeline {
            identity: control.identity,
            dir: dir.to_owned(),
            promises: Mutex::new(control),
            fsync: Mutex::new(()),
            state: Mutex::new(state),
            progress: watch::Sender::new(progress),
            connections: AtomicU64::new(0),
            offloaded: AtomicU64::new(0),
            health: Mutex::default(),
            suspected: Notify::new(),
            is_suspected: AtomicBool::new(false),
            space: Arc::default(),
            closed: CancellationToken::new(),
        };
        if !recovered.lost.is_empty() {
            opened.suspect(&format!("files are missing: {}", recovered.lost.join(", ")));
        }
        Ok(opened)
    }

    /// Directory of the timeline's files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Cancelled when the timeline is stopped or deleted; its connections end.
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// What connections wait for, followed as it changes.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// A number for a connection, to tell the one whose appends count.
    pub fn connect(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Waits for the state; on an async worker, long only after other tasks have been taken over, because an election
    /// holds the state while it waits for the disk.
    fn state(&self) -> MutexGuard<'_, State> {
        let soon = self.state.try_lock_for(SOON);
        soon.unwrap_or_else(|| stalls::off_worker(|| self.state.lock()))
    }

    /// The timeline as it is now.
    pub fn status(&self) -> Status {
        let state = self.state();
        Status {
            identity: self.identity,
            position: state.acceptor.position(),
            oldest_lsn: self.oldest(&state),
            offloaded_lsn: self.offloaded_lsn(),
            damage: self.damages(),
            verified: self.verified(),
            role: state.acceptor.role(),
            stopped: state.stopped.as_ref().map(|stop| stop.reason.clone()),
        }
    }

    /// Why the timeline does nothing any more; `None` while it works.
    pub fn stop_state(&self) -> Option<Stop> {
        self.state().stopped.clone()
    }

    fn oldest(&self, state: &State) -> Lsn {
        let begin = state.segments.first().unwrap_or(state.acceptor.flush_lsn());
        begin
            .max(self.identity.start_lsn)
            .max(self.reset_point(state))
    }

    /// After a reset the log begins within a segment; before it there are zeroes.
    fn reset_point(&self, state: &State) -> Lsn {
        let horizon = state.acceptor.durable().remote_consistent_lsn;
        let same_segment = state.segments.first().is_none_or(|first| {
            first.segment_number(WAL_SEGMENT_BYTES) == horizon.segment_number(WAL_SEGMENT_BYTES)
        });
        if same_segment { horizon } else { Lsn::INVALID }
    }

    fn running<'a>(&self, state: &'a mut State) -> Result<&'a mut State, Failure> {
        match &state.stopped {
            Some(stop) => Err(stopped(&stop.reason)),
            None => Ok(state),
        }
    }

    /// Ends everything on this timeline because it is going away.
    pub fn close(&self, reason: &str) {
        let stop = Stop {
            reason: reason.to_owned(),
            since: Instant::now(),
            retryable: false,
        };
        self.state().stopped = Some(stop);
        self.closed.cancel();
        self.retire();
    }

    /// Waits until nothing of a stopped timeline writes to its directory any more, and nothing will: whoever
    /// still wants to finds it stopped. An old control file must not replace one that its successor stores. Blocks.
    pub fn quiesce(&self) {
        drop((self.promises.lock(), self.fsync.lock()));
    }

    fn disk_failed(&self, doing: &str, error: &dyn std::fmt::Display) -> Failure {
        self.stop(&mut self.state(), doing, error)
    }

    /// Nothing more is acknowledged on this timeline until it is opened again.
    fn stop(&self, state: &mut State, doing: &str, error: &dyn std::fmt::Display) -> Failure {
        let dir = self.dir.display();
        let reason = format!(
            "cannot {doing} in {dir}: {error}; free or repair the disk, it is tried again on the next connection"
        );
        let Identity {
            tenant, timeline, ..
        } = self.identity;
        tracing::error!(%tenant, %timeline, reason, "timeline stopped");
        let failure = stopped(&reason);
        state.stopped.get_or_insert(Stop {
            reason,
            since: Instant::now(),
            retryable: true,
        });
        self.closed.cancel();
        failure
    }

    fn publish(&self, state: &State) {
        let progress = Progress {
            reply: state.acceptor.append_reply(),
            ingested_lsn: state.ingested_lsn,
            remote_consistent_lsn: state.acceptor.durable().remote_consistent_lsn,
            room: self.room(state),
        };
        self.progress.send_if_modified(|current| {
            // WAL that is only in memory is of no use to anybody yet.
            current.reply.write_lsn = progress.reply.write_lsn;
            std::mem::replace(current, progress) != progress
        });
    }

    fn store(&self, stored: &mut Control, control: Control) -> Result<(), Failure> {
        if *stored == control {
            return Ok(());
        }
        control::store(&self.dir, &control)
            .map_err(|error| self.disk_failed("store the control file", &error))?;
        *stored = control;
        Ok(())
    }

    /// The control file to store in place of `stored`, with another state.
    fn control(
        &self,
        stored: &Control,
        durable: Durable,
        readers: BTreeMap<String, Lsn>,
    ) -> Control {
        Control {
            identity: self.identity,
            member: stored.member,
            origin: stored.origin,
            durable,
            readers,
        }
    }

    /// Fsyncs what is written. Blocks.
    pub fn flush(&self) -> Result<(), Failure> {
        let _one_at_a_time = self.fsync.lock();
        let (ticket, job) = {
            let mut state = self.state();
            let state = self.running(&mut state)?;
            let Some(ticket) = state.acceptor.begin_flush() else {
                return Ok(());
            };
            (ticket, state.segments.sync_job())
        };
        let timer = metrics::FSYNC_SECONDS.start_timer();
        job.run()
            .map_err(|error| self.disk_failed("fsync WAL", &error))?;
        timer.observe_duration();
        let mut state = self.state();
        state.acceptor.flushed(ticket);
        self.publish(&state);
        Ok(())
    }

    /// Stores the commit LSN and the readers' positions if they moved, then trims. Blocks.
    pub fn maintain(&self) -> Result<(), Failure> {
        let mut promises = self.promises.lock();
        let (control, horizon) = {
            let mut state = self.state();
            let state = self.running(&mut state)?;
            if let Some(horizon) = state.readers.values().min() {
                state.acceptor.raise_horizon(*horizon);
            }
            self.publish(state);
            let durable = state.acceptor.snapshot();
            let horizon = durable.remote_consistent_lsn;
            (
                self.control(&promises, durable, state.readers.clone()),
                horizon,
            )
        };
        self.store(&mut promises, control)?;
        let removed = {
            let mut state = self.state();
            let state = self.running(&mut state)?;
            let removed = state
                .segments
                .remove_below(horizon)
                .map_err(|error| self.stop(state, "remove old WAL", &error))?;
            self.publish(state);
            removed
        };
        metrics::TRIMMED_SEGMENTS.inc_by(removed);
        self.forget_damage_below(horizon);
        self.report();
        Ok(())
    }
}
