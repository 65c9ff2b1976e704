//! The scenarios in larger bounds, most of which no search comes to the end of in a minute.

use crate::scenario::{Plan, Scenario};
use crate::scenarios::{
    competition, crashes, lost_disk, outdated_candidate, replacement, restored_disk, takeover,
    two_generations,
};
use crate::step::What;

/// `scenario` where replies are lost, too, and any message may come late.
fn with_bad_network(scenario: Scenario, late: u8) -> Scenario {
    Scenario {
        lost_replies: true,
        late,
        late_kinds: vec![What::Record, What::Reply, What::Change, What::History],
        ..scenario
    }
}

/// `scenario` with a third compute that takes over from the second.
fn with_third_compute(scenario: Scenario) -> Scenario {
    let mut computes = scenario.computes;
    computes.push(Plan::new(&[0, 1, 2], 1, 1));
    Scenario {
        computes,
        highest_term: 3,
        ..scenario
    }
}

/// The scenarios in larger bounds, in the order in which they are searched.
pub fn all() -> Vec<Scenario> {
    let five = Scenario {
        computes: vec![Plan::new(&[0, 1, 2, 3, 4], 1, 1); 2],
        milestones: takeover().milestones.split_off(1),
        ..Scenario::new("a takeover among five", 5, 0)
    };
    let named = |name, scenario| Scenario { name, ..scenario };
    let crash_twice = Scenario {
        crashes: 2,
        records: 2,
        ..with_third_compute(crashes())
    };
    let each_greets = Scenario {
        greets: true,
        ..competition()
    };
    // Perhaps when their candidate asks for another term already.
    let late_votes = Scenario {
        computes: vec![
            Plan::new(&[0, 1, 2], 2, 0).slow(),
            Plan::new(&[0, 1, 2], 1, 1),
        ],
        highest_term: 3,
        late: 1,
        late_kinds: vec![What::Vote],
        milestones: competition().milestones.split_off(1),
        ..Scenario::new("votes come late", 3, 0)
    };
    vec![
        five,
        late_votes,
        named("two computes compete, greetings one by one", each_greets),
        named("three computes", with_third_compute(takeover())),
        named("a bad network", with_bad_network(takeover(), 2)),
        named("two crashes, three computes", crash_twice),
        named(
            "a lost disk, three computes",
            with_third_compute(lost_disk()),
        ),
        named(
            "a restored disk, three computes",
            with_third_compute(restored_disk()),
        ),
        named(
            "a replacement, bad network",
            with_bad_network(replacement(), 1),
        ),
        named(
            "two terms change, bad network",
            with_bad_network(two_generations(), 1),
        ),
        named(
            "outdated, bad network",
            with_bad_network(outdated_candidate(), 1),
        ),
    ]
}
