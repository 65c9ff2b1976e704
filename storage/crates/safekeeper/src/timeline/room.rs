//! How much more WAL a timeline takes.

use std::sync::Arc;

use pg_types::Lsn;
use wire::wal::{Failure, FailureKind, Room, RoomCause};

use super::{State, Timeline, failure};
use crate::metrics;
use crate::room::Space;

/// WAL beyond the limit that is taken all the same, bytes: it was on its way when the disk became short.
const UNDER_WAY_BYTES: u64 = 1 << 20;

impl Timeline {
    /// The same, and its WAL keeps to the allowance that `space` gives each timeline.
    pub fn within(mut self, space: Arc<Space>) -> Timeline {
        self.space = space;
        self.publish(&self.state());
        self
    }

    pub(super) fn room(&self, state: &State) -> Option<Room> {
        self.space.room(self.oldest(state))
    }

    /// Fails when WAL up to `end` is more than the timeline may keep. What the newest term began with was written
    /// before, and may have been acknowledged: it is taken in any case.
    pub(super) fn check_room(&self, state: &State, end: Lsn) -> Result<(), Failure> {
        let Some(room) = self.room(state) else {
            return Ok(());
        };
        let recovered = state.acceptor.durable().history.last();
        let recovered = recovered.map_or(Lsn::INVALID, |last| last.start_lsn);
        if end <= recovered.max(room.limit_lsn + UNDER_WAY_BYTES) {
            return Ok(());
        }
        metrics::REFUSED_APPENDS.inc();
        let kept = self.kept(state) >> 20;
        let why = match room.cause {
            RoomCause::Quota => "that is its quota (--wal-quota-mib)",
            RoomCause::Disk => "the disk is short of space (--disk-reserve-mib)",
        };
        Err(failure(
            FailureKind::Stopped,
            format!(
                "no room for more WAL of this timeline: {kept} MiB are kept until storage has them as pages, and {why}. Bring the pageserver or its object store back; WAL is taken again once some is trimmed"
            ),
        ))
    }

    /// WAL that is here, bytes.
    pub(super) fn kept(&self, state: &State) -> u64 {
        let oldest = self.oldest(state);
        state.acceptor.end_lsn().0.saturating_sub(oldest.0)
    }

    pub(super) fn report_room(&self, tenant: &str, timeline: &str) {
        let state = self.state();
        metrics::KEPT
            .with_label_values(&[tenant, timeline])
            .set(self.kept(&state) as i64);
        if let Some(room) = self.room(&state) {
            metrics::ROOM
                .with_label_values(&[tenant, timeline])
                .set(room.left(state.acceptor.end_lsn()) as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use consensus::{
        AppendHeader, CandidateId, Configuration, ElectedRequest, Generation, TermHistory,
        VoteRequest,
    };
    use pg_types::wal::{info, rmgr};
    use pg_types::{PgMajor, Term};
    use wal_decode::synth::{WalWriter, plain_record};
    use wire::wal::Feedback;

    use super::*;
    use crate::timeline::TimelineError;
    use crate::timeline::alone::{self, START, SYSTEM_IDENTIFIER};

    const MIB: u64 = 1 << 20;
    const QUOTA: u64 = 4 * MIB;

    /// A log that is its only member, and what its compute has written.
    struct Log {
        timeline: Timeline,
        configuration: Configuration,
        history: TermHistory,
        wal: WalWriter,
        /// Where `wal` begins.
        begin: Lsn,
        /// The last record that was taken.
        last: Lsn,
        connection: u64,
    }

    impl Log {
        fn begin(place: &Path) -> Log {
            let (timeline, configuration) = alone::create(place);
            let space = Arc::new(Space::default());
            space.limit(QUOTA, 0);
            Log {
                timeline: timeline.within(space),
                configuration,
                history: TermHistory::default(),
                wal: WalWriter::new(START, PgMajor::V15, 1, SYSTEM_IDENTIFIER),
                begin: START,
                last: Lsn::INVALID,
                connection: 0,
            }
        }

        /// A compute wins a term, which begins where the log ends.
        fn elect(&mut self, term: u64) {
            let term = Term(term);
            self.connection = self.timeline.connect();
            let request = VoteRequest {
                term,
                candidate: CandidateId([term.0 as u8; 16]),
                configuration: self.configuration.clone(),
            };
            let vote = self.timeline.vote(&request).expect("a vote");
            assert!(vote.granted, "{vote:?}");
            self.configuration = self.configuration.confirmed(term);
            self.history = self.history.continued_by(term, vote.position.flush_lsn);
            let announced = ElectedRequest {
                history: self.history.clone(),
                configuration: self.configuration.clone(),
            };
            self.timeline
                .elected(self.connection, &announced)
                .expect("elected");
        }

        /// One record of about 8 KiB, fsynced and committed; its end.
        fn write(&mut self, term: u64) -> Result<Lsn, TimelineError> {
            let from = self.wal.position();
            let record = plain_record(rmgr::XLOG, info::xlog::NOOP, 0, self.last, &[7; 8000]);
            let (start, end) = self.wal.append(&record);
            self.append(term, from, end)?;
            self.last = start;
            Ok(end)
        }

        fn append(&self, term: u64, from: Lsn, to: Lsn) -> Result<(), TimelineError> {
            let header = AppendHeader {
                term: Term(term),
                generation: self.generation(),
                begin_lsn: from,
                end_lsn: to,
                commit_lsn: to,
            };
            let at = |lsn: Lsn| (lsn.0 - self.begin.0) as usize;
            let wal = &self.wal.bytes()[at(from)..at(to)];
            self.timeline.append(self.connection, &header, wal)?;
            Ok(self.timeline.flush()?)
        }

        /// What was refused never was.
        fn cut_to(&mut self, end: Lsn) {
            self.wal = WalWriter::new(end, PgMajor::V15, 1, 7);
            self.begin = end;
        }

        fn generation(&self) -> Generation {
            self.configuration.generation
        }

        fn fill(&mut self, term: u64) -> Failure {
            loop {
                match self.write(term) {
                    Ok(_) => {}
                    Err(TimelineError::Failed(failure)) => return failure,
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    /// Promise: WAL beyond the quota is refused with the reason, which stops neither the log nor elections, and WAL is
    /// taken again once some is trimmed.
    #[test]
    fn a_full_quota_refuses_wal_and_nothing_else() {
        let place = tempfile::tempdir().expect("temporary directory");
        let mut log = Log::begin(place.path());
        log.elect(1);
        let refused = log.fill(1);
        assert_eq!(refused.kind, FailureKind::Stopped);
        assert!(refused.message.contains("its quota"), "{refused}");
        assert!(log.timeline.stop_state().is_none());
        let flushed = log.timeline.status().position.flush_lsn;
        let kept = flushed.0 - START.0;
        assert!((QUOTA..=QUOTA + UNDER_WAY_BYTES).contains(&kept), "{kept}");

        // The next compute begins where the log ends.
        log.elect(2);
        let position = log.timeline.status().position;
        assert_eq!(
            position.flush_lsn, flushed,
            "nothing that was taken is lost"
        );

        let feedback = Feedback {
            ingested_lsn: flushed,
            remote_consistent_lsn: flushed,
        };
        log.timeline.feedback("pageserver", true, feedback);
        log.timeline.maintain().expect("trimmed");
        let room = log.timeline.progress().borrow().room.expect("a quota");
        assert!(room.left(flushed) > QUOTA - MIB, "{room:?}");
        log.cut_to(flushed);
        log.write(2).expect("there is room again");
    }
}
