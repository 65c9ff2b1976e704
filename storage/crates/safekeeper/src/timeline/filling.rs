//! Taking WAL from the object store as the log.

use std::path::{Path, PathBuf};

use consensus::{AdoptionRefusal, Role, TermHistory};
use pg_types::{Lsn, Term, WAL_SEGMENT_BYTES};
use wal_decode::WalStreamDecoder;
use wire::wal::{Failure, FailureKind};

use super::{Timeline, failure};
use crate::segments::Segments;
use crate::{control, filled};

/// A log that may be filled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FillView {
    /// End of the log: all of it is fsynced.
    pub end: Lsn,
    /// Whether the log may begin later than it does, since it holds nothing and does not count.
    pub may_skip: bool,
    /// Whether the log is a voter's.
    pub votes: bool,
    /// Why it takes nothing.
    pub refusal: Option<AdoptionRefusal>,
    /// Bytes that it holds of the segment in which it ends.
    pub held: std::ops::Range<Lsn>,
}

/// What was gathered beside the log.
pub struct Gathered {
    /// Terms that wrote the WAL up to `end`.
    pub history: TermHistory,
    /// Where the log was continued.
    pub from: Lsn,
    /// A record boundary, up to which all of it is committed.
    pub end: Lsn,
    /// Start of the record that ends at `end`; `None` when it is not known.
    pub last_record: Option<Lsn>,
}

/// Why gathered WAL did not become the log.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The log does not take this WAL.
    #[error(transparent)]
    Refused(#[from] AdoptionRefusal),
    /// The log was written meanwhile; the field is where it ends. The caller may begin anew.
    #[error("the log has changed meanwhile: it ends at {0}; ask again")]
    Changed(Lsn),
    /// The timeline has stopped, or does so because of its disk.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Timeline {
    /// Blocks.
    pub fn fill_view(&self) -> Result<FillView, Failure> {
        self.flush()?;
        let mut state = self.state();
        let state = self.running(&mut state)?;
        let end = state.acceptor.end_lsn();
        if state.acceptor.flush_lsn() != end {
            return Err(failure(
                FailureKind::BadRequest,
                "a compute writes this log now; it brings it up to date",
            ));
        }
        let votes = state.acceptor.role() == Some(Role::Voter);
        let segment = Lsn(end.0 - end.0 % WAL_SEGMENT_BYTES);
        Ok(FillView {
            end,
            may_skip: !votes && end == state.acceptor.durable().remote_consistent_lsn,
            votes,
            refusal: state.acceptor.may_adopt().err(),
            held: segment.max(self.oldest(state)).min(end)..end,
        })
    }

    /// Lets a log that was founded, and has taken part in nothing, vote for no term up to `term`. Blocks.
    pub fn forbid(&self, term: Term) -> Result<(), InstallError> {
        let mut promises = self.promises.lock();
        let mut state = self.state();
        let state = self.running(&mut state)?;
        if let Some(durable) = state.acceptor.forbid(term)? {
            let control = self.control(&promises, durable.clone(), state.readers.clone());
            self.store_locked(&mut promises, state, control)?;
            state.acceptor.install(durable);
            self.publish(state);
        }
        Ok(())
    }

    /// Where WAL from the object store is gathered. Blocks.
    pub fn gather(&self) -> std::io::Result<PathBuf> {
        filled::begin(&self.dir)
    }

    /// Makes what was gathered in `directory` the log, unless that has changed since. Blocks.
    pub fn install_gathered(
        &self,
        directory: &Path,
        gathered: &Gathered,
    ) -> Result<(), InstallError> {
        self.flush()?;
        let mut promises = self.promises.lock();
        let mut state = self.state();
        let state = self.running(&mut state)?;
        let Gathered {
            history, from, end, ..
        } = gathered;
        let Some(filling) = state.acceptor.adopt(history, *from, *end)? else {
            return Err(InstallError::Changed(state.acceptor.end_lsn()));
        };
        if filling.from != *from || state.acceptor.flush_lsn() != state.acceptor.end_lsn() {
            return Err(InstallError::Changed(state.acceptor.end_lsn()));
        }
        let control = self.control(&promises, filling.state.clone(), state.readers.clone());
        control::store(directory, &control)
            .map_err(|error| self.stop(state, "store the control file", &error))?;
        filled::decide(&self.dir)
            .map_err(|error| self.stop(state, "put WAL from the object store in place", &error))?;
        // What was open is no longer what is there.
        state.segments = Segments::open(&self.dir)
            .map_err(|error| self.stop(state, "open the WAL from the object store", &error))?;
        *promises = control;
        state.acceptor.install_adopted(filling.state);
        let decoder = crate::recovery::decoder(&self.identity, *end);
        state.decoder = Some(match gathered.last_record {
            Some(last) => WalStreamDecoder::with_prev_record(decoder, last),
            None => decoder,
        });
        self.publish(state);
        Ok(())
    }
}
