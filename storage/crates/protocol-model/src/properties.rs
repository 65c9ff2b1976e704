//! What always holds, and what has to be reached for that to mean anything.

use consensus::Role;
use pg_types::Lsn;
use stateright::Property;

use crate::compute::{Compute, Standing};
use crate::log::Record;
use crate::model::ProtocolModel;
use crate::safekeeper::Safekeeper;
use crate::scenario::Scenario;
use crate::state::State;

/// A state that a scenario is about: one that never reaches it shows nothing.
pub type Milestone = (&'static str, fn(&State) -> bool);

fn winners(state: &State) -> impl Iterator<Item = &Compute> {
    state
        .computes
        .iter()
        .map(|it| &**it)
        .filter(|it| it.has_won())
}

fn pairs<T>(all: &[T]) -> impl Iterator<Item = (&T, &T)> {
    let others = |i: usize| all[i + 1..].iter();
    all.iter()
        .enumerate()
        .flat_map(move |(i, one)| others(i).map(move |other| (one, other)))
}

fn begin_of(winner: &Compute) -> Lsn {
    let election = winner.machine.election();
    election.map_or(Lsn::INVALID, |election| election.start_lsn)
}

/// What a term has acknowledged is in the log with which every later one begins.
pub fn acknowledged_is_kept(_: &ProtocolModel, state: &State) -> bool {
    winners(state).all(|old| {
        let acknowledged = old.committed();
        let later = winners(state).filter(|new| new.machine.term() > old.machine.term());
        later
            .into_iter()
            .all(|new| new.log.up_to(begin_of(new)).starts_with(acknowledged))
    })
}

/// No two computes have won the same term.
pub fn one_winner_for_a_term(_: &ProtocolModel, state: &State) -> bool {
    let all: Vec<&Compute> = winners(state).collect();
    pairs(&all).all(|(a, b)| a.machine.term() != b.machine.term())
}

/// All that believe a position to be committed have the same record there, and a proposer has committed it.
pub fn committed_is_the_same(_: &ProtocolModel, state: &State) -> bool {
    let mut all: Vec<&[Record]> = winners(state).map(Compute::committed).collect();
    let most = all.iter().map(|it| it.len()).max().unwrap_or(0);
    let of = |it: &Safekeeper| it.machine.commit_lsn();
    all.extend(state.safekeepers.iter().map(|it| it.log.up_to(of(it))));
    let known = all.iter().all(|it| it.len() <= most);
    known && pairs(&all).all(|(a, b)| a.starts_with(b) || b.starts_with(a))
}

/// Two logs whose histories share a term are equal up to the smaller end of that term.
pub fn logs_match(_: &ProtocolModel, state: &State) -> bool {
    pairs(&state.safekeepers).all(|(a, b)| {
        let history = |it: &Safekeeper| it.machine.durable().history.clone();
        let shared = history(a).common_point(a.log.end(), &history(b));
        let Some(shared) = shared.map(|lsn| lsn.min(b.log.end())) else {
            return true;
        };
        a.log.up_to(shared) == b.log.up_to(shared)
    })
}

/// A safekeeper that has kept its disk has kept what it acknowledged, so no election finds any of that missing.
pub fn nobody_finds_wal_lost(_: &ProtocolModel, state: &State) -> bool {
    let found = |it: &Compute| it.standing == Standing::FoundLoss;
    !state.computes.iter().any(|it| found(it))
}

/// No assertion has failed, and nothing has gone back that never may.
pub fn nothing_fails(_: &ProtocolModel, state: &State) -> bool {
    state.failure.is_none()
}

/// What holds in each state of every scenario, and the scenario's milestones, at most six.
pub fn all(scenario: &Scenario) -> Vec<Property<ProtocolModel>> {
    let mut all = vec![
        Property::always(
            "what was acknowledged is in every later winner's log",
            acknowledged_is_kept,
        ),
        Property::always("a term has one winner", one_winner_for_a_term),
        Property::always(
            "nobody disagrees about what is committed",
            committed_is_the_same,
        ),
        Property::always("logs that share a term are equal", logs_match),
        Property::always(
            "no election finds acknowledged WAL lost",
            nobody_finds_wal_lost,
        ),
        Property::always("no assertion fails, and nothing goes back", nothing_fails),
    ];
    all.extend(
        scenario
            .milestones
            .iter()
            .enumerate()
            .map(|(i, (name, _))| Property::sometimes(name, MILESTONE[i])),
    );
    all
}

/// The checker takes functions that know nothing but the model, so there is one for each place in the list.
const MILESTONE: [fn(&ProtocolModel, &State) -> bool; 6] = [
    |model, state| (model.scenario.milestones[0].1)(state),
    |model, state| (model.scenario.milestones[1].1)(state),
    |model, state| (model.scenario.milestones[2].1)(state),
    |model, state| (model.scenario.milestones[3].1)(state),
    |model, state| (model.scenario.milestones[4].1)(state),
    |model, state| (model.scenario.milestones[5].1)(state),
];

/// States to be reached.
pub mod milestones {
    use super::*;

    /// Two terms have each committed a record of their own.
    pub const SECOND_TERM_COMMITS: Milestone = ("two terms acknowledge a record each", |state| {
        let own = |it: &&Compute| it.commit_lsn() > begin_of(it);
        winners(state).filter(own).count() >= 2
    });

    /// A later term began before the end of an older winner's log, and has written.
    pub const RECORD_IS_CUT: Milestone =
        ("a winner leaves out what an older term wrote", |state| {
            winners(state).any(|old| {
                let later = |new: &Compute| new.machine.term() > old.machine.term();
                let mut later = winners(state).filter(|new| later(new));
                later.any(|new| begin_of(new) < old.log.end() && new.log.end() > begin_of(new))
            })
        });

    /// A winner has written, and a later term has committed a record of its own.
    pub const OLD_TERM_WRITES_ON: Milestone =
        ("an old winner writes beside a newer one", |state| {
            winners(state).any(|old| {
                let later = |new: &Compute| new.machine.term() > old.machine.term();
                let mut later = winners(state).filter(|new| later(new));
                old.writes > 0 && later.any(|new| new.commit_lsn() > begin_of(new))
            })
        });

    /// As [`SECOND_TERM_COMMITS`], in a state in which a safekeeper has its second disk.
    pub const NEW_DISK: Milestone = (
        "beside a replaced disk, two terms acknowledge a record each",
        |state| {
            let replaced = |it: &Safekeeper| it.id.disk.0[0] == 2;
            let own = |it: &&Compute| it.commit_lsn() > begin_of(it);
            state.safekeepers.iter().any(|it| replaced(it))
                && winners(state).filter(own).count() >= 2
        },
    );

    /// A compute has won with the second vote that it asked for.
    pub const SECOND_ATTEMPT: Milestone = ("a candidate wins at its second attempt", |state| {
        winners(state).any(|it| it.campaigns == 2)
    });

    /// A compute goes by a configuration with safekeeper 0, which only the second founding has.
    pub const SECOND_FOUNDING: Milestone = ("a candidate goes by the second founding", |state| {
        let second = |it: &Compute| {
            let configuration = it.machine.configuration();
            configuration.role_of(crate::log::member(0, 1)).is_some()
        };
        state.computes.iter().any(|it| second(it))
    });

    /// A term that has committed a record of its own has safekeeper 3, a spare, as a voter, and safekeeper 0 no more.
    pub const REPLACED: Milestone = (
        "a member is replaced, and a later term commits without it",
        |state| {
            winners(state).any(|it| {
                let configuration = it.machine.configuration();
                let spare = configuration
                    .members()
                    .iter()
                    .any(|member| member.role == Role::Voter && member.id.node == 3);
                let gone = configuration.role_of(crate::log::member(0, 1)).is_none();
                spare && gone && it.commit_lsn() > begin_of(it)
            })
        },
    );

    /// Two terms have begun changes, and the highest one has committed a record of its own.
    pub const CHANGED_BY_TWO: Milestone = (
        "two terms change the members, and the later commits",
        |state| {
            let mut changing = winners(state).filter(|it| it.changes > 0);
            let last = winners(state).max_by_key(|it| it.machine.term());
            changing.by_ref().count() >= 2 && last.is_some_and(|it| it.commit_lsn() > begin_of(it))
        },
    );

    /// A candidate that has asked for votes knows a configuration that was changed since the log was founded.
    pub const LOST_FOR_A_CHANGE: Milestone = (
        "a candidate sees a newer configuration and loses",
        |state| {
            let candidate = |it: &Compute| {
                let newest = it.machine.configuration().generation.number > 1;
                it.campaigns > 0 && it.standing == Standing::Candidate && newest
            };
            state.computes.iter().any(|it| candidate(it))
        },
    );

    /// The second term goes by a configuration of two members.
    pub const CHANGED_AND_TAKEN_OVER: Milestone = ("a later term has fewer members", |state| {
        let mut later = winners(state).filter(|it| it.machine.term().0 == 2);
        later.any(|it| it.machine.configuration().members().len() == 2)
    });

    /// The second term has safekeeper 1 as a voter, with its second disk.
    pub const RENEWED: Milestone = ("a later term has the new disk as a voter", |state| {
        let renewed = crate::log::member(1, 2);
        let mut later = winners(state).filter(|it| it.machine.term().0 == 2);
        later.any(|it| it.machine.configuration().role_of(renewed) == Some(Role::Voter))
    });

    /// The second term has committed a record of its own, in a log that names its members.
    pub const LISTED: Milestone = (
        "a later term acknowledges a record under the first list",
        |state| {
            let mut later = winners(state).filter(|it| it.machine.term().0 == 2);
            later.any(|it| {
                it.commit_lsn() > begin_of(it) && !it.machine.configuration().is_unlisted()
            })
        },
    );
}
