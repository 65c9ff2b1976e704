//! What readers and peers ask of a timeline.

use bytes::{Bytes, BytesMut};
use consensus::TermHistory;
use pg_types::{Lsn, Term, WAL_SEGMENT_BYTES};
use wire::wal::{Failure, FailureKind, Feedback};

use super::{Timeline, failure};

/// A piece of committed WAL, and what was known when it was read.
pub struct Committed {
    /// WAL from the position that was asked for on; may end within a record.
    pub bytes: Bytes,
    /// Commit LSN when the WAL was read.
    pub commit_lsn: Lsn,
    /// That wrote what was committed last.
    pub term: Term,
    /// The log's, when it is another than the reader knows.
    pub history: Option<TermHistory>,
}

impl Timeline {
    /// A reader that holds WAL exists; what it does not have yet stays.
    pub fn register_reader(&self, reader: &str) {
        let mut state = self.state();
        let horizon = state.acceptor.durable().remote_consistent_lsn;
        state.readers.entry(reader.to_owned()).or_insert(horizon);
    }

    /// Takes in how far a reader is. With `holds_wal`, what the reader does not have durable stays here.
    pub fn feedback(&self, reader: &str, holds_wal: bool, feedback: Feedback) {
        let mut state = self.state();
        state.ingested_lsn = state.ingested_lsn.max(feedback.ingested_lsn);
        if holds_wal {
            let known = state.readers.entry(reader.to_owned()).or_default();
            *known = feedback.remote_consistent_lsn.max(*known);
        }
        self.publish(&state);
    }

    /// Committed WAL from `at` on, at most `limit` bytes; none when `at` is the commit LSN or beyond. `told` is the
    /// history that the reader knows; without one it is told none.
    pub fn read_committed(
        &self,
        at: Lsn,
        limit: usize,
        told: Option<&TermHistory>,
    ) -> Result<Committed, Failure> {
        // Of one moment: what is committed is of the history of then, and of every later one.
        let mut committed = {
            let state = self.state();
            let (commit_lsn, history) = (
                state.acceptor.commit_lsn(),
                &state.acceptor.durable().history,
            );
            Committed {
                bytes: Bytes::new(),
                commit_lsn,
                term: history.term_at(commit_lsn),
                history: told
                    .filter(|told| *told != history)
                    .map(|_| history.clone()),
            }
        };
        if at < committed.commit_lsn {
            committed.bytes = self.read(at, committed.commit_lsn, limit)?;
        }
        Ok(committed)
    }

    /// WAL of the log that `term` continued, for a peer that lacks it.
    pub fn read_log(&self, term: Term, at: Lsn, to: Lsn, limit: usize) -> Result<Bytes, Failure> {
        let check = || {
            let state = self.state();
            if !state.acceptor.follows(term) {
                return Err(failure(
                    FailureKind::Superseded,
                    format!("this safekeeper follows term {} now", state.acceptor.term()),
                ));
            }
            if to > state.acceptor.flush_lsn() || at >= to {
                let flush = state.acceptor.flush_lsn();
                return Err(failure(
                    FailureKind::BadRequest,
                    format!("WAL {at}..{to} was asked for, the log here ends at {flush}"),
                ));
            }
            Ok(())
        };
        check()?;
        let wal = self.read(at, to, limit)?;
        // Had a newer term cut the log meanwhile, the bytes could be another term's.
        check()?;
        Ok(wal)
    }

    pub(super) fn read(&self, at: Lsn, to: Lsn, limit: usize) -> Result<Bytes, Failure> {
        let file = {
            let mut state = self.state();
            let state = self.running(&mut state)?;
            let oldest = self.oldest(state);
            if at < oldest {
                let message = format!(
                    "WAL at {at} was trimmed, the oldest here is at {oldest}; object storage holds what it made"
                );
                return Err(failure(FailureKind::Trimmed, message));
            }
            state.segments.file(at.segment_number(WAL_SEGMENT_BYTES))
        };
        let in_segment = WAL_SEGMENT_BYTES - at.segment_offset(WAL_SEGMENT_BYTES);
        let to = self.servable(at, to)?;
        let length = (to.0 - at.0).min(in_segment).min(limit as u64) as usize;
        let mut buffer = BytesMut::zeroed(length);
        file.and_then(|file| {
            stalls::read_exact_at(&file, &mut buffer, at.segment_offset(WAL_SEGMENT_BYTES))
        })
        .map_err(|error| {
            let message = format!("cannot read WAL at {at} in {}: {error}", self.dir.display());
            self.suspect(&message);
            failure(FailureKind::Internal, message)
        })?;
        Ok(buffer.freeze())
    }
}
