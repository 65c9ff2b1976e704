//! What an acceptor refuses.

use pg_types::DiskId;

use super::*;
use crate::history::{TermHistory, TermStart};

fn id(node: u64) -> MemberId {
    MemberId {
        node,
        disk: DiskId([node as u8; 16]),
        incarnation: 1,
    }
}

#[test]
fn a_history_that_shares_no_term_and_begins_before_the_commit_is_another_one() {
    let history = |term, start| -> TermHistory {
        let entry = TermStart {
            term: Term(term),
            start_lsn: Lsn(start),
        };
        [entry].into_iter().collect()
    };
    let durable = Durable {
        term: Term(1),
        history: history(1, 100),
        commit_lsn: Lsn(900),
        ..Durable::new(id(1), Lsn(100), Configuration::default())
    };
    let acceptor = Acceptor::new(id(1), durable, Lsn(950));
    // As an empty member announces it that was made anew beside this one.
    let request = ElectedRequest {
        history: history(5, 100),
        configuration: Configuration::default(),
    };
    let refusal = Refusal::Diverged {
        to: Lsn(100),
        commit: Lsn(900),
    };
    assert_eq!(acceptor.elected(&request), Err(refusal));
    // As a member that was away for more terms than a history holds meets it.
    let request = ElectedRequest {
        history: history(500, 2000),
        configuration: Configuration::default(),
    };
    let adoption = acceptor
        .elected(&request)
        .expect("what is committed is shared");
    assert_eq!(adoption.truncate_to, Lsn(900));
}
