//! What is known of damage to the log, and how a whole segment takes the place of a damaged one.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use consensus::TermHistory;
use pg_types::{Lsn, WAL_SEGMENT_BYTES};
use wire::wal::{Failure, FailureKind};

use super::{State, Timeline, failure};
use crate::control::Identity;
use crate::damage::{Damage, Damages};
use crate::replaced::{Beside, PutError};
use crate::scan::Fault;
use crate::verify::Range;
use crate::{metrics, recovery};

/// Which bytes of the log are good, as far as anyone has looked.
#[derive(Default)]
pub(super) struct Health {
    damages: Damages,
    verified: Option<Verified>,
}

/// The last look at all of a log.
#[derive(Clone, Copy, Debug)]
pub struct Verified {
    /// Up to where the log was looked at.
    pub to: Lsn,
    /// When the look ended.
    pub at: SystemTime,
}

/// What a log is while somebody looks at it, or mends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RepairView {
    /// A record boundary; nothing before it is needed.
    pub horizon: Lsn,
    /// Commit LSN of the log.
    pub commit: Lsn,
    /// Last record boundary that is fsynced.
    pub flush: Lsn,
    /// Terms that wrote the log, and the one that was announced last.
    pub history: TermHistory,
}

/// A segment of which everything up to `end` was taken from elsewhere, or proven, and is committed.
pub struct Mended {
    /// The new file, beside the log.
    pub beside: Beside,
    /// Number of the segment.
    pub number: u64,
    /// The segment's end, or a record boundary in it.
    pub end: Lsn,
}

/// Why a mended segment did not take its place.
#[derive(Debug, thiserror::Error)]
pub enum MendError {
    /// The segment was trimmed or cut off meanwhile. Nothing is left to do.
    #[error("the segment is not needed any more")]
    Gone,
    /// The log's own WAL behind the mended part does not read as WAL. May be tried again when that WAL is committed.
    #[error(
        "what this safekeeper alone has behind {from} in the same segment cannot be taken over: {why}; it is tried again when that is committed"
    )]
    Tail {
        /// End of the mended part.
        from: Lsn,
        /// For people: what is wrong behind it.
        why: String,
    },
    /// The file system failed. Unless the timeline has stopped, the damaged segment is still in place.
    #[error("cannot put a segment in place in {dir}: {source}")]
    Io {
        /// Directory of the timeline.
        dir: String,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The timeline has stopped.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Timeline {
    /// All damage that is known, in order.
    pub fn damages(&self) -> Vec<Damage> {
        self.health.lock().damages.all().to_vec()
    }

    /// Whether something in `[from, to)` is.
    pub fn is_damaged(&self, from: Lsn, to: Lsn) -> bool {
        self.health.lock().damages.readable(from, to) != Ok(to)
    }

    /// The last look at all of the log; `None` before the first one since the start.
    pub fn verified(&self) -> Option<Verified> {
        self.health.lock().verified
    }

    /// Notes that a reader found damaged WAL here: all of the log is checked soon.
    pub fn suspect(&self, why: &dyn std::fmt::Display) {
        let Identity {
            tenant, timeline, ..
        } = self.identity;
        tracing::warn!(%tenant, %timeline, "WAL here is not as it should be, it is looked at now: {why}");
        self.is_suspected.store(true, Ordering::Relaxed);
        self.suspected.notify_one();
    }

    /// Wakes the task that repairs: what is known of damage has changed.
    pub fn wake_care(&self) {
        self.suspected.notify_one();
    }

    /// Whether nobody has begun to look since [`Timeline::suspect`].
    pub fn is_suspected(&self) -> bool {
        self.is_suspected.load(Ordering::Relaxed)
    }

    /// Waits until the log is suspected.
    pub async fn suspicion(&self) {
        self.suspected.notified().await;
    }

    /// The task that takes the suspicion checks the log from now on.
    pub fn take_suspicion(&self) -> bool {
        self.is_suspected.swap(false, Ordering::Relaxed)
    }

    /// `None` of a timeline that has stopped.
    pub fn repair_view(&self) -> Option<RepairView> {
        let state = self.state();
        if state.stopped.is_some() {
            return None;
        }
        let position = state.acceptor.position();
        Some(RepairView {
            horizon: position.remote_consistent_lsn,
            commit: position.commit_lsn,
            flush: position.flush_lsn,
            history: position.history,
        })
    }

    /// Takes in what a look at `range` has found, which began when the log was as in `view`. `is_all`: it was a look at the
    /// whole log.
    pub fn looked_at(&self, range: Range, view: &RepairView, faults: &[Fault], is_all: bool) {
        let Some(now) = self.repair_view() else {
            return;
        };
        // What is committed stays. The rest may have been cut off, and written again, under the look.
        let is_same = now.history == view.history && now.flush >= range.to;
        let to = if is_same {
            range.to
        } else {
            range.to.min(now.commit)
        };
        let from = range.from.max(now.horizon);
        let mut health = self.health.lock();
        health.damages.forget_below(now.horizon);
        let at = SystemTime::now();
        let fresh = match from < to {
            true => health.damages.looked_at(from, to, faults, at),
            false => Vec::new(),
        };
        if is_all {
            health.verified = Some(Verified { to, at });
        }
        self.report_damage(&health.damages);
        drop(health);
        let Identity {
            tenant, timeline, ..
        } = self.identity;
        for Damage { from, to, why, .. } in fresh {
            tracing::error!(
                %tenant, %timeline, %from, %to, dir = %self.dir.display(),
                "WAL is damaged: {why}. It is not served, and fetched from another safekeeper where one has it; keep this directory"
            );
        }
    }

    /// Notes why damage in `[from, to)` was not repaired, for whoever asks.
    pub fn not_repaired(&self, from: Lsn, to: Lsn, why: &str) {
        self.health.lock().damages.not_repaired(from, to, why);
    }

    pub(super) fn forget_damage_below(&self, horizon: Lsn) {
        let mut health = self.health.lock();
        if !health.damages.is_empty() {
            health.damages.forget_below(horizon);
            self.report_damage(&health.damages);
        }
    }

    fn report_damage(&self, damages: &Damages) {
        let ids = [
            self.identity.tenant.to_string(),
            self.identity.timeline.to_string(),
        ];
        metrics::DAMAGED_BYTES
            .with_label_values(&[&ids[0], &ids[1]])
            .set(damages.bytes() as i64);
    }

    /// Refused where the byte at this position is damaged.
    pub fn is_servable(&self, at: Lsn) -> Result<(), Failure> {
        self.servable(at, Lsn(at.0.saturating_add(1))).map(|_| ())
    }

    /// How much of `[at, to)` may be served; refused where that begins with damage.
    pub(super) fn servable(&self, at: Lsn, to: Lsn) -> Result<Lsn, Failure> {
        let health = self.health.lock();
        health.damages.readable(at, to).map_err(|damage| {
            let Damage { from, to, why, .. } = damage;
            failure(
                FailureKind::Internal,
                format!("WAL from {from} to {to} is damaged on this safekeeper ({why}); another one has it"),
            )
        })
    }

    /// Puts a mended segment in the place of the damaged one, with what the log holds in it behind the mended part. Gives
    /// the name under which the damaged file is kept. Appends wait meanwhile, and for as long as a few fsyncs. Blocks.
    pub fn install_mended(&self, mended: Mended) -> Result<Option<PathBuf>, MendError> {
        let Mended {
            beside,
            number,
            end,
        } = mended;
        // Most of it, before anyone has to wait.
        beside.sync().map_err(io(&self.dir))?;
        let _promises = self.promises.lock();
        let _one_at_a_time = self.fsync.lock();
        let mut state = self.state();
        let state = self.running(&mut state)?;
        let segment_end = Lsn((number + 1) * WAL_SEGMENT_BYTES);
        if state.acceptor.durable().remote_consistent_lsn >= segment_end
            || !state.segments.has(number)
        {
            return Err(MendError::Gone);
        }
        assert!(
            end <= state.acceptor.commit_lsn() && end <= segment_end,
            "a segment was mended to {end}, committed is {}",
            state.acceptor.commit_lsn()
        );
        let log_end = state.acceptor.end_lsn().min(segment_end);
        if end < log_end {
            self.copy_tail(state, &beside, end, log_end)?;
        }
        let replaced = match beside.put(&mut || Ok(())) {
            Ok(replaced) => replaced,
            Err(PutError { source, is_decided }) => {
                if is_decided {
                    // What is open may be another file than the name stands for.
                    self.stop(state, "put a mended segment in place", &source);
                }
                return Err(io(&self.dir)(source));
            }
        };
        state.segments.replace(number, replaced.file);
        Ok(replaced.evidence)
    }

    /// What is behind the mended part is this safekeeper's own: acknowledged, and perhaps not committed. It goes into the
    /// new file only as far as it reads as WAL.
    fn copy_tail(
        &self,
        state: &mut State,
        beside: &Beside,
        from: Lsn,
        to: Lsn,
    ) -> Result<(), MendError> {
        let tail = |why: String| MendError::Tail { from, why };
        let mut bytes = vec![0; (to.0 - from.0) as usize];
        let read = state.segments.read(from, &mut bytes);
        let length = read.map_err(|error| tail(error.to_string()))?;
        assert_eq!(
            length,
            bytes.len(),
            "a tail of {from}..{to} was read in part"
        );
        let mut decoder = recovery::decoder(&self.identity, from);
        let mut decode = || {
            let mut records = decoder.feed(from, &bytes)?;
            while records.next_record()?.is_some() {}
            Ok(())
        };
        decode().map_err(|error: wal_decode::WalError| tail(error.to_string()))?;
        beside
            .write(&bytes, from.0 % WAL_SEGMENT_BYTES)
            .map_err(io(&self.dir))
    }
}

fn io(dir: &Path) -> impl FnOnce(std::io::Error) -> MendError {
    let dir = dir.display().to_string();
    move |source| MendError::Io { dir, source }
}
