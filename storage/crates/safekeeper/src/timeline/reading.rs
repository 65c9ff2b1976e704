//! What readers and peers ask of a timeline.

use std::os::unix::fs::FileExt as _;

use bytes::{Bytes, BytesMut};
use pg_types::{Lsn, Term, WAL_SEGMENT_BYTES};
use wire::wal::{Failure, FailureKind, Feedback};

use super::{Timeline, failure};

impl Timeline {
    /// A reader that holds WAL exists; what it does not have yet stays.
    pub fn register_reader(&self, reader: &str) {
        let mut state = self.state.lock();
        let horizon = state.acceptor.durable().horizon_lsn;
        state.readers.entry(reader.to_owned()).or_insert(horizon);
    }

    pub fn feedback(&self, reader: &str, holds_wal: bool, feedback: Feedback) {
        let mut state = self.state.lock();
        state.ingested_lsn = state.ingested_lsn.max(feedback.ingested_lsn);
        if holds_wal {
            let known = state.readers.entry(reader.to_owned()).or_default();
            *known = feedback.remote_consistent_lsn.max(*known);
        }
        self.publish(&state);
    }

    /// Committed WAL from `at` on, at most `limit` bytes; empty when `at` is the commit LSN or beyond.
    pub fn read_committed(&self, at: Lsn, limit: usize) -> Result<(Bytes, Lsn, Term), Failure> {
        let (commit, term) = {
            let state = self.state.lock();
            (
                state.acceptor.commit_lsn(),
                state
                    .acceptor
                    .durable()
                    .history
                    .term_at(state.acceptor.commit_lsn()),
            )
        };
        if at >= commit {
            return Ok((Bytes::new(), commit, term));
        }
        Ok((self.read(at, commit, limit)?, commit, term))
    }

    /// WAL of the log that `term` continued, for a peer that lacks it.
    pub fn read_log(&self, term: Term, at: Lsn, to: Lsn, limit: usize) -> Result<Bytes, Failure> {
        let check = || {
            let state = self.state.lock();
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
            let mut state = self.state.lock();
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
        let length = (to.0 - at.0).min(in_segment).min(limit as u64) as usize;
        let mut buffer = BytesMut::zeroed(length);
        file.and_then(|file| file.read_exact_at(&mut buffer, at.segment_offset(WAL_SEGMENT_BYTES)))
            .map_err(|error| {
                failure(
                    FailureKind::Internal,
                    format!("cannot read WAL at {at} in {}: {error}", self.dir.display()),
                )
            })?;
        Ok(buffer.freeze())
    }
}
