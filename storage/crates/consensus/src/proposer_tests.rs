//! Which elections may begin a term, and which show that WAL is lost.

use pg_types::DiskId;

use super::*;
use crate::history::TermStart;

fn id(node: u64) -> MemberId {
    MemberId {
        node,
        disk: DiskId([node as u8; 16]),
        incarnation: 1,
    }
}

/// Of a log that names no members.
fn position(term: u64, flush: u64, commit: u64) -> LogPosition {
    let entry = TermStart {
        term: Term(term),
        start_lsn: Lsn(0),
    };
    LogPosition {
        member: id(0),
        configuration: Configuration::default(),
        term: Term(term),
        history: [entry].into_iter().filter(|_| term > 0).collect(),
        flush_lsn: Lsn(flush),
        commit_lsn: Lsn(commit),
        remote_consistent_lsn: Lsn(0),
    }
}

/// The outcome of an election among `voters`, after all of `greetings` were heard.
fn elect(
    proposer: &mut Proposer,
    greetings: &[(usize, LogPosition)],
    voters: &[usize],
) -> VoteOutcome {
    for (member, position) in greetings {
        proposer.greeted(*member, position.clone());
    }
    let request = proposer.campaign().expect("a majority has greeted");
    let mut outcome = VoteOutcome::Pending;
    for voter in voters {
        let (_, greeting) = greetings
            .iter()
            .rfind(|(member, _)| member == voter)
            .expect("greeted");
        let position = LogPosition {
            term: request.term,
            ..greeting.clone()
        };
        outcome = proposer.voted(
            *voter,
            VoteReply {
                granted: true,
                position,
            },
        );
    }
    outcome
}

fn proposer(members: usize) -> Proposer {
    Proposer::new(CandidateId([7; 16]), members)
}

#[test]
fn an_empty_member_and_a_lagging_one_win_nothing_against_a_reader_that_has_more() {
    // 1 and 2 had acknowledged up to 900; 2 lost its disk and is empty, 1 is down, 3 was down before.
    let (empty, lagging) = (position(0, 100, 100), position(1, 400, 400));
    for voters in [[1, 2], [2, 1]] {
        let mut proposer = proposer(3);
        proposer.require(Lsn(900));
        let greetings = [(1, empty.clone()), (2, lagging.clone())];
        let lost = elect(&mut proposer, &greetings, &voters);
        let proof = CommitProof {
            lsn: Lsn(900),
            acceptor: None,
        };
        let expected = LostWal {
            donor: 2,
            end_lsn: Lsn(400),
            proof,
        };
        assert_eq!(lost, VoteOutcome::LostWal(expected));
        assert_eq!(proposer.announcement(), None, "nothing is announced");
    }
}

#[test]
fn a_member_that_has_committed_more_ends_the_start_without_having_voted() {
    for (members, voters) in [(3, vec![1, 2]), (5, vec![1, 2, 3])] {
        let mut greetings = vec![(0, position(1, 900, 900))];
        greetings.extend(voters.iter().map(|voter| (*voter, position(1, 400, 400))));
        let outcome = elect(&mut proposer(members), &greetings, &voters);
        let VoteOutcome::LostWal(lost) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((lost.proof.lsn, lost.proof.acceptor), (Lsn(900), Some(0)));
        assert_eq!(lost.end_lsn, Lsn(400));
    }
}

#[test]
fn a_member_that_comes_back_with_less_cannot_take_back_what_it_had_committed() {
    let greetings = [
        (0, position(1, 900, 900)),
        (0, position(0, 100, 100)),
        (1, position(1, 400, 400)),
    ];
    let outcome = elect(&mut proposer(3), &greetings, &[0, 1]);
    assert!(matches!(outcome, VoteOutcome::LostWal(lost) if lost.proof.lsn == Lsn(900)));
}

#[test]
fn an_election_that_comes_too_late_is_lost_and_has_not_lost_wal() {
    let mut proposer = proposer(3);
    let greetings = [(1, position(1, 400, 400)), (2, position(1, 400, 400))];
    for (member, greeting) in &greetings {
        proposer.greeted(*member, greeting.clone());
    }
    let request = proposer.campaign().expect("a majority has greeted");
    let vote = |member: usize| VoteReply {
        granted: true,
        position: LogPosition {
            term: request.term,
            ..greetings[member - 1].1.clone()
        },
    };
    assert_eq!(proposer.voted(1, vote(1)), VoteOutcome::Pending);
    proposer.greeted(0, position(9, 900, 900));
    let outcome = proposer.voted(2, vote(2));
    assert_eq!(outcome, VoteOutcome::Lost { highest: Term(9) });
}

#[test]
fn wal_that_is_flushed_and_not_yet_known_as_committed_wins() {
    let mut proposer = proposer(3);
    proposer.require(Lsn(700));
    let greetings = [(0, position(1, 900, 800)), (1, position(1, 850, 800))];
    let outcome = elect(&mut proposer, &greetings, &[0, 1]);
    assert!(matches!(outcome, VoteOutcome::Won(election) if election.start_lsn == Lsn(900)));
    assert!(!proposer.contradicted_by(&position(1, 900, 900)));
    assert!(proposer.contradicted_by(&position(1, 950, 901)));
}
