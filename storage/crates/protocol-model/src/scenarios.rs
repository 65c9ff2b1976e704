//! The scenarios: each a few events of one kind, in every order.

use consensus::{Change, Configuration};

use crate::Bug;

use crate::log::member;
use crate::properties::milestones;
use crate::scenario::{Plan, Scenario, founding};
use crate::step::What;

const ALL: [usize; 3] = [0, 1, 2];
const FOUR: [usize; 4] = [0, 1, 2, 3];

/// Two computes compete for three safekeepers, votes come one by one or are lost, and one compute may try twice.
pub fn competition() -> Scenario {
    Scenario {
        computes: vec![Plan::new(&ALL, 2, 1).slow(), Plan::new(&ALL, 1, 1).slow()],
        highest_term: 3,
        milestones: vec![milestones::SECOND_TERM_COMMITS, milestones::SECOND_ATTEMPT],
        records: 2,
        ..Scenario::new("two computes compete", 3, 0)
    }
}

/// A compute is slow, another takes over, and a record that the first one had sent arrives late.
pub fn takeover() -> Scenario {
    Scenario {
        computes: vec![Plan::new(&ALL, 1, 2), Plan::new(&ALL, 1, 1)],
        records: 2,
        late: 1,
        late_kinds: vec![What::Record],
        milestones: vec![
            milestones::SECOND_TERM_COMMITS,
            milestones::RECORD_IS_CUT,
            milestones::OLD_TERM_WRITES_ON,
        ],
        ..Scenario::new("an old compute goes on beside a newer one", 3, 0)
    }
}

/// Replies are lost, or reach a compute when another has taken over.
pub fn late_replies() -> Scenario {
    Scenario {
        computes: vec![Plan::new(&ALL, 1, 1), Plan::new(&ALL, 1, 1)],
        lost_replies: true,
        late: 1,
        late_kinds: vec![What::Reply, What::History],
        milestones: vec![milestones::RECORD_IS_CUT],
        ..Scenario::new("replies come late", 3, 0)
    }
}

/// Safekeepers crash at any moment, between a write and its fsync and between the cut of a log and its history, too.
pub fn crashes() -> Scenario {
    Scenario {
        computes: vec![Plan::new(&ALL, 1, 1), Plan::new(&ALL, 1, 1)],
        slow_fsync: true,
        crashes: 1,
        crashing: ALL.to_vec(),
        milestones: vec![milestones::RECORD_IS_CUT],
        ..Scenario::new("safekeepers crash", 3, 0)
    }
}

/// One safekeeper loses its disk, and the control plane founds the log there once more.
pub fn lost_disk() -> Scenario {
    Scenario {
        computes: vec![Plan::new(&ALL, 1, 1), Plan::new(&ALL, 1, 1)],
        records: 2,
        lost_disks: 1,
        losing: ALL.to_vec(),
        milestones: vec![milestones::NEW_DISK],
        ..Scenario::new("a disk is lost", 3, 0)
    }
}

/// One safekeeper is put back on a copy of its disk.
pub fn restored_disk() -> Scenario {
    Scenario {
        computes: vec![Plan::new(&ALL, 1, 1), Plan::new(&ALL, 1, 1)],
        records: 2,
        copies: 1,
        copying: ALL.to_vec(),
        milestones: vec![milestones::NEW_DISK],
        ..Scenario::new("an old copy of a disk is put back", 3, 0)
    }
}

/// The spare becomes a learner, while another compute takes over.
pub fn learner() -> Scenario {
    let plan = || Plan::new(&FOUR, 1, 1);
    Scenario {
        computes: vec![plan().changing(&[Change::AddLearner(member(3, 1))]), plan()],
        alike: false,
        milestones: vec![milestones::RECORD_IS_CUT],
        ..Scenario::new("a learner is added", 3, 1)
    }
}

/// The spare takes the place of a member, while another compute takes over.
pub fn replacement() -> Scenario {
    let changes = [
        Change::AddLearner(member(3, 1)),
        Change::Promote(member(3, 1)),
        Change::Remove(member(0, 1)),
    ];
    let plan = |writes| Plan::new(&FOUR, 1, writes);
    Scenario {
        computes: vec![plan(1).changing(&changes), plan(0)],
        alike: false,
        records: 1,
        milestones: vec![milestones::REPLACED],
        ..Scenario::new("a member is replaced", 3, 1)
    }
}

fn removals(nodes: &[usize]) -> Vec<Change> {
    let remove = |node: &usize| Change::Remove(member(*node, 1));
    nodes.iter().map(remove).collect()
}

/// Two computes change the members, each in its term, and one safekeeper crashes.
pub fn two_generations() -> Scenario {
    Scenario {
        computes: vec![
            Plan::new(&ALL, 1, 1).changing(&removals(&[2, 1])),
            Plan::new(&ALL, 1, 1).changing(&removals(&[0])),
        ],
        records: 2,
        alike: false,
        crashes: 1,
        crashing: vec![1],
        milestones: vec![milestones::CHANGED_BY_TWO],
        ..Scenario::new("two terms change the members", 3, 0)
    }
}

/// Replies are lost or come late while a member is removed and another compute takes over.
pub fn late_replies_in_a_change() -> Scenario {
    Scenario {
        computes: vec![
            Plan::new(&ALL, 1, 1).changing(&removals(&[2])),
            Plan::new(&ALL, 1, 0),
        ],
        alike: false,
        lost_replies: true,
        late: 1,
        late_kinds: vec![What::Reply, What::Change],
        milestones: vec![milestones::CHANGED_AND_TAKEN_OVER],
        ..Scenario::new("replies come late in a change", 3, 0)
    }
}

/// A safekeeper loses its disk, and is made a member again as what it is now.
pub fn renewed_member() -> Scenario {
    let changes = [
        Change::Remove(member(1, 1)),
        Change::AddLearner(member(1, 2)),
        Change::Promote(member(1, 2)),
    ];
    Scenario {
        computes: vec![
            Plan::new(&ALL, 1, 1).changing(&changes),
            Plan::new(&ALL, 1, 0),
        ],
        alike: false,
        lost_disks: 1,
        losing: vec![1],
        milestones: vec![milestones::RENEWED],
        ..Scenario::new("a lost disk is replaced by a new member", 3, 0)
    }
}

/// A log that does not name its members begins to do so, while another compute takes over.
pub fn first_list() -> Scenario {
    let list = Change::List(ALL.map(|node| member(node, 1)).to_vec());
    let plan = || Plan::new(&ALL, 1, 1).changing(std::slice::from_ref(&list));
    Scenario {
        begins: vec![Configuration::default(); 3],
        computes: vec![plan(), plan()],
        records: 2,
        milestones: vec![milestones::LISTED],
        ..Scenario::new("a log begins to name its members", 3, 0)
    }
}

/// A compute asks for votes under a configuration that is changed twice meanwhile.
pub fn outdated_candidate() -> Scenario {
    Scenario {
        computes: vec![
            Plan::new(&ALL, 1, 1).changing(&removals(&[2, 1])),
            Plan::new(&ALL, 1, 0).slow(),
        ],
        alike: false,
        milestones: vec![milestones::LOST_FOR_A_CHANGE],
        ..Scenario::new("an outdated candidate", 3, 0)
    }
}

/// The control plane has founded the log twice: the second time with a safekeeper in place of another one, and before the
/// members knew. One compute has the second list of addresses.
pub fn two_foundings() -> Scenario {
    let mut scenario = Scenario {
        computes: vec![
            Plan::new(&[1, 2, 3], 1, 1),
            Plan::new(&[0, 1, 2], 2, 1).slow(),
        ],
        highest_term: 3,
        records: 2,
        alike: false,
        milestones: vec![milestones::SECOND_TERM_COMMITS, milestones::SECOND_FOUNDING],
        ..Scenario::new("a log is founded twice", 3, 1)
    };
    scenario.begins = vec![founding(&[1, 2, 3]); 4];
    scenario.begins[0] = founding(&[0, 1, 2]);
    scenario
}

/// Small enough to be exhausted in every run of the tests.
pub fn small() -> Vec<Scenario> {
    vec![
        competition(),
        takeover(),
        late_replies(),
        crashes(),
        lost_disk(),
        restored_disk(),
        learner(),
        replacement(),
        two_generations(),
        outdated_candidate(),
        late_replies_in_a_change(),
        renewed_member(),
        first_list(),
        two_foundings(),
    ]
}

/// A scenario in which a planted bug shows.
pub fn of_bug(bug: Bug) -> Scenario {
    // Enough for mistakes that need nothing to be late, and quicker.
    let on_time = |scenario: Scenario| Scenario {
        late: 0,
        lost_replies: false,
        ..scenario
    };
    match bug {
        Bug::AckBeforeMajority
        | Bug::AcceptOldTerm
        | Bug::CountOtherTerms
        | Bug::CountBeforeAdoption
        | Bug::CutBelowCommit => on_time(takeover()),
        Bug::AckBeforeFsync | Bug::VoteNotStored | Bug::HistoryBeforeCut => crashes(),
        Bug::EmptyMemberVotes => lost_disk(),
        Bug::RestoredDiskVotes => restored_disk(),
        Bug::LearnerVotes => learner(),
        Bug::TwoGenerations | Bug::ConfigurationNotStored => two_generations(),
        Bug::VoteUnderOlder => on_time(outdated_candidate()),
    }
}
