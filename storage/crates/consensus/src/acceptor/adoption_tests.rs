//! Which logs take WAL from the store, and what they are then.

use pg_types::DiskId;

use super::*;
use crate::configuration::{Configuration, MemberId};
use crate::history::TermStart;
use crate::message::{CandidateId, ElectedRequest, VoteRequest};

const START: Lsn = Lsn(1000);

fn id(node: u64) -> MemberId {
    MemberId {
        node,
        disk: DiskId([node as u8; 16]),
        incarnation: 1,
    }
}

fn history(entries: &[(u64, u64)]) -> TermHistory {
    let entry = |(term, start): &(u64, u64)| TermStart {
        term: Term(*term),
        start_lsn: Lsn(*start),
    };
    entries.iter().map(entry).collect()
}

fn founders() -> Configuration {
    Configuration::founding(&[id(1), id(2), id(3)]).expect("three founders")
}

fn founded() -> Acceptor {
    Acceptor::new(id(1), Durable::new(id(1), START, founders()), START)
}

fn waiting() -> Acceptor {
    let durable = Durable::new(id(4), START, Configuration::waiting(id(4)));
    Acceptor::new(id(4), durable, START)
}

fn vote(acceptor: &mut Acceptor, term: u64, configuration: Configuration) -> bool {
    let request = VoteRequest {
        term: Term(term),
        candidate: CandidateId([term as u8; 16]),
        configuration,
    };
    if let Some(promise) = acceptor.vote(&request) {
        acceptor.install(promise);
    }
    acceptor.vote_reply(&request).granted
}

fn fill(acceptor: &mut Acceptor, terms: &[(u64, u64)], begin: u64, end: u64) -> Lsn {
    let filling = acceptor.adopt(&history(terms), Lsn(begin), Lsn(end));
    let filling = filling.expect("adopted").expect("something is new");
    acceptor.install_adopted(filling.state);
    filling.from
}

/// Promise: a founder that was filled votes in no term that the WAL's writers may have won, offers all of it to a later
/// candidate, and lets nobody cut it.
#[test]
fn a_filled_founder_stands_by_what_it_took() {
    let mut acceptor = founded();
    assert_eq!(
        fill(&mut acceptor, &[(1, 1000), (5, 3000)], 900, 4000),
        START
    );
    assert_eq!(
        (acceptor.flush_lsn(), acceptor.commit_lsn()),
        (Lsn(4000), Lsn(4000))
    );
    assert!(!vote(&mut acceptor, 5, founders()));
    assert!(vote(&mut acceptor, 6, founders()));
    let other = ElectedRequest {
        history: history(&[(6, 1000)]),
        configuration: founders().confirmed(Term(6)),
    };
    assert!(acceptor.elected(&other).is_err());
}

/// Promise: who has given a vote, or has WAL that it voted with, is brought up to date by its peers alone.
#[test]
fn a_voter_that_took_part_takes_nothing() {
    let mut acceptor = founded();
    assert!(vote(&mut acceptor, 1, founders()));
    let refused = acceptor.adopt(&history(&[(1, 1000)]), START, Lsn(4000));
    assert_eq!(refused, Err(AdoptionRefusal::Votes));
    assert_eq!(acceptor.forbid(Term(9)), Err(AdoptionRefusal::Votes));
}

/// Promise: a founder takes WAL from where it was founded on, or none; a learner begins where there is some.
#[test]
fn a_gap_is_for_learners_only() {
    let refused = founded().adopt(&history(&[(1, 1000)]), Lsn(2000), Lsn(4000));
    let (end, begin) = (START, Lsn(2000));
    assert_eq!(refused, Err(AdoptionRefusal::Gap { end, begin }));
    let mut learner = waiting();
    assert_eq!(fill(&mut learner, &[(1, 1000)], 2000, 4000), begin);
    assert_eq!(learner.durable().remote_consistent_lsn, begin);
    let refused = learner.adopt(&history(&[(1, 1000)]), Lsn(5000), Lsn(6000));
    assert!(
        matches!(refused, Err(AdoptionRefusal::Gap { .. })),
        "{refused:?}"
    );
    assert_eq!(
        fill(&mut learner, &[(1, 1000), (3, 4500)], 3000, 6000),
        Lsn(4000)
    );
    assert_eq!(learner.durable().remote_consistent_lsn, begin);
    assert_eq!(
        learner.adopt(&history(&[(1, 1000)]), Lsn(3000), Lsn(4000)),
        Ok(None)
    );
}

/// Promise: WAL of another history than the log's is refused, whichever of the two knows later terms.
#[test]
fn two_histories_are_not_mixed() {
    let mut learner = waiting();
    fill(&mut learner, &[(1, 1000), (3, 2000)], 1000, 4000);
    for other in [
        &[(1, 1000), (2, 1500), (9, 4000)][..],
        &[(1, 1000), (2, 2000)],
        &[(9, 1000)],
    ] {
        let refused = learner.adopt(&history(other), Lsn(1000), Lsn(8000));
        assert!(
            matches!(refused, Err(AdoptionRefusal::OtherHistory { .. })),
            "{other:?}: {refused:?}"
        );
    }
}

/// Promise: a learner that was told of a later term keeps that, and takes what comes before it.
#[test]
fn a_learner_keeps_the_history_that_it_was_told() {
    let mut learner = waiting();
    let mut configuration = founders().confirmed(Term(7));
    let added = crate::Change::AddLearner(id(4));
    configuration = configuration
        .changed(Term(7), &added)
        .expect("room for one");
    let told = history(&[(1, 1000), (7, 6000)]);
    let request = ElectedRequest {
        history: told.clone(),
        configuration,
    };
    let adoption = learner.elected(&request).expect("a member");
    learner.truncated(adoption.truncate_to);
    learner.install(adoption.state);
    fill(&mut learner, &[(1, 1000)], 1000, 6000);
    assert_eq!(
        (learner.durable().history.clone(), learner.term()),
        (told, Term(7))
    );
    let beyond = learner.adopt(&history(&[(1, 1000)]), Lsn(1000), Lsn(6100));
    assert!(
        matches!(beyond, Err(AdoptionRefusal::OtherHistory { .. })),
        "{beyond:?}"
    );
}

/// Promise: a founder that is told of terms that were won before votes in later ones only.
#[test]
fn a_founder_votes_in_no_term_it_was_told_of() {
    let mut acceptor = founded();
    let state = acceptor.forbid(Term(9)).expect("untouched").expect("new");
    acceptor.install(state);
    assert_eq!(acceptor.forbid(Term(9)), Ok(None));
    assert!(!vote(&mut acceptor, 9, founders()));
    assert!(vote(&mut acceptor, 10, founders()));
    assert_eq!(acceptor.forbid(Term(11)), Err(AdoptionRefusal::Votes));
}
