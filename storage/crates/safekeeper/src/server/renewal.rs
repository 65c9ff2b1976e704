//! Renewals of a compute's read lease: the answer that this safekeeper is still promised to the compute's term.
//!
//! Invariants:
//! - the promise is looked at after the time that the renewal was held was measured: the answer never vouches for a
//!   moment later than the look;
//! - a renewal vouches for its own connection's compute only, and for none once the promise went to a higher term.
//!
//! Nothing here is durable; a crash ends the connection, and the compute's lease runs out unless others renew it.

use std::time::Instant;

use pg_types::Term;
use wire::wal::AcceptorMessage;

use crate::timeline::{Timeline, TimelineError};

/// The renewal that a connection received last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    term: Term,
    /// Microseconds of the proposer's clock, sent back as they came.
    sent_us: u64,
    received: Instant,
}

impl Renewal {
    /// A renewal that has just come.
    pub(super) fn new(term: Term, sent_us: u64) -> Renewal {
        Renewal {
            term,
            sent_us,
            received: Instant::now(),
        }
    }

    /// The answer to a renewal that was read this moment. Fails when the timeline has stopped, or is promised to another
    /// term.
    pub(super) fn answer(&self, timeline: &Timeline) -> Result<AcceptorMessage, TimelineError> {
        self.answer_held(timeline, 0)
    }

    /// One more answer, while newer renewals wait unread behind an fsync.
    pub(super) fn answer_again(
        &self,
        timeline: &Timeline,
    ) -> Result<AcceptorMessage, TimelineError> {
        let held = u64::try_from(self.received.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.answer_held(timeline, held)
    }

    fn answer_held(
        &self,
        timeline: &Timeline,
        held_us: u64,
    ) -> Result<AcceptorMessage, TimelineError> {
        timeline.check_promise(self.term)?;
        Ok(AcceptorMessage::Renewed {
            sent_us: self.sent_us,
            held_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use consensus::{
        CandidateId, Configuration, ElectedRequest, Refusal, TermHistory, VoteRequest,
    };

    use super::*;
    use crate::timeline::alone;

    fn held(answer: &AcceptorMessage) -> u64 {
        match answer {
            AcceptorMessage::Renewed {
                sent_us: 77,
                held_us,
            } => *held_us,
            other => panic!("no renewal: {other:?}"),
        }
    }

    /// Promise: a safekeeper renews for the term that it follows, says how long it has had the question, and renews for
    /// nobody once its vote went to a higher term, whose winner has not even announced itself.
    #[test]
    fn a_safekeeper_vouches_for_its_term_until_it_votes_for_a_higher_one() {
        let place = tempfile::tempdir().expect("temporary directory");
        let (timeline, configuration) = alone::create(place.path());
        let vote = |term: Term, configuration: &Configuration| {
            let request = VoteRequest {
                term,
                candidate: CandidateId([term.0 as u8; 16]),
                configuration: configuration.clone(),
            };
            assert!(timeline.vote(&request).expect("a vote").granted);
        };
        let renewal = Renewal::new(Term(1), 77);
        let early = renewal.answer(&timeline).expect_err("nobody was elected");
        assert!(
            matches!(
                early,
                TimelineError::Refused(Refusal::NotAnnounced(Term(1)))
            ),
            "{early}"
        );

        vote(Term(1), &configuration);
        let confirmed = configuration.confirmed(Term(1));
        let announced = ElectedRequest {
            history: TermHistory::default().continued_by(Term(1), alone::START),
            configuration: confirmed.clone(),
        };
        timeline
            .elected(timeline.connect(), &announced)
            .expect("elected");
        assert_eq!(held(&renewal.answer(&timeline).expect("promised")), 0);
        std::thread::sleep(Duration::from_millis(5));
        let again = held(&renewal.answer_again(&timeline).expect("promised"));
        assert!((5_000..60_000_000).contains(&again), "held for {again} us");

        vote(Term(2), &confirmed);
        let late = renewal
            .answer_again(&timeline)
            .expect_err("promised to another");
        assert!(
            matches!(late, TimelineError::Refused(Refusal::HigherTerm(Term(2)))),
            "{late}"
        );
    }
}
