//! What offloading asks of a timeline.

use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use consensus::{Configuration, MemberId, Role, TermHistory};
use pg_types::Lsn;
use wire::wal::Failure;

use super::Timeline;
use crate::positions::Positions;

/// A log whose WAL may be offloaded.
#[derive(Clone, PartialEq, Debug)]
pub struct OffloadView {
    /// Where the log begins and ends, and what of it is durable as pages.
    pub positions: Positions,
    /// Terms that wrote the log, and the one that was announced last.
    pub history: TermHistory,
    /// The member that the log is.
    pub member: MemberId,
    /// The newest configuration that the log knows.
    pub configuration: Configuration,
}

impl Timeline {
    /// `None` for a log that offloads nothing: one that is stopped, that was sent damaged WAL, or that does not vote,
    /// which may be a copy of files from the past.
    pub fn offload_view(&self) -> Option<OffloadView> {
        let state = self.state();
        let votes = state.acceptor.role() == Some(Role::Voter);
        if state.stopped.is_some() || state.decoder.is_none() || !votes {
            return None;
        }
        let position = state.acceptor.position();
        Some(OffloadView {
            positions: Positions {
                oldest: self.oldest(&state),
                horizon: position.remote_consistent_lsn,
                commit: position.commit_lsn,
            },
            history: position.history,
            member: position.member,
            configuration: position.configuration,
        })
    }

    /// WAL of the log as it is on disk. Blocks.
    pub fn read_piece(&self, begin: Lsn, end: Lsn) -> Result<Bytes, Failure> {
        let mut piece = BytesMut::with_capacity((end.0 - begin.0) as usize);
        while begin + (piece.len() as u64) < end {
            let at = begin + piece.len() as u64;
            piece.extend_from_slice(&self.read(at, end, 1 << 20)?);
        }
        Ok(piece.freeze())
    }

    /// All WAL from the remote-consistent LSN to here is in the object store, as far as this process has seen.
    pub fn set_offloaded(&self, lsn: Lsn) {
        self.offloaded.store(lsn.0, Ordering::Relaxed);
    }

    /// What [`Timeline::set_offloaded`] has said last; `None` before.
    pub fn offloaded_lsn(&self) -> Option<Lsn> {
        let lsn = Lsn(self.offloaded.load(Ordering::Relaxed));
        lsn.is_valid().then_some(lsn)
    }
}
