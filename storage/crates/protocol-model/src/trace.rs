//! A way through the states as a person reads it: what happened, and what has changed by it.

use std::fmt::Write as _;

use consensus::{Configuration, Durable, MemberId, Role};

use crate::compute::{Compute, Standing};
use crate::log::START;
use crate::model::ProtocolModel;
use crate::safekeeper::Safekeeper;
use crate::state::{Late, State};
use crate::step::Step;

/// `2.1` is the first disk of safekeeper 2.
fn member(id: MemberId) -> String {
    format!("{}.{}", id.node, id.disk.0[0])
}

/// `g2@5[0.1 1.1 (2.1)]`: generation 2, confirmed in term 5, two voters and a learner.
fn configuration(of: &Configuration) -> String {
    let members: Vec<String> = of
        .members()
        .iter()
        .map(|it| match it.role {
            Role::Voter => member(it.id),
            Role::Learner => format!("({})", member(it.id)),
        })
        .collect();
    let generation = of.generation;
    let members = members.join(" ");
    format!("g{}@{}[{members}]", generation.number, generation.term)
}

fn durable(of: &Durable) -> String {
    let voted = of.voted_for.map_or(String::new(), |candidate| {
        format!(" for compute {}", candidate.0[0])
    });
    let history: Vec<String> = of
        .history
        .entries()
        .iter()
        .map(|entry| format!("{}@{}", entry.term, entry.start_lsn.0))
        .collect();
    let (term, shown) = (of.term, configuration(&of.configuration));
    format!("term {term}{voted}, history {history:?}, {shown}")
}

fn safekeeper(of: &Safekeeper) -> String {
    let machine = &of.machine;
    let (flush, commit) = (machine.flush_lsn().0, machine.commit_lsn().0);
    let mut text = format!(
        "{}: {}, log {:?} flush {flush} commit {commit}",
        member(of.id),
        durable(machine.durable()),
        of.log
    );
    if of.stored().term != machine.term() || of.stored().configuration != *of.configuration() {
        let _ = write!(text, "; on disk {}", durable(of.stored()));
    }
    text
}

fn compute(number: usize, of: &Compute) -> String {
    let machine = &of.machine;
    let (term, shown) = (machine.term(), configuration(machine.configuration()));
    match (of.standing, machine.election()) {
        (Standing::Winner, Some(election)) => format!(
            "compute {number}: has won term {term} from {}, log {:?} acknowledged {} {:?}, {shown}",
            election.start_lsn.0,
            of.log,
            of.commit_lsn().0,
            of.committed()
        ),
        (Standing::FoundLoss, _) => {
            format!("compute {number}: its voters lack WAL that is known to be committed")
        }
        _ => format!("compute {number}: candidate for term {term}, {shown}"),
    }
}

fn late(message: &Late) -> String {
    match message {
        Late::Append {
            to, header, wal, ..
        } => format!(
            "append of term {} g{}@{} {:?} at {} commit {} to {to}",
            header.term,
            header.generation.number,
            header.generation.term,
            wal,
            header.begin_lsn.0,
            header.commit_lsn.0
        ),
        Late::Appended {
            from,
            reply,
            compute,
            ..
        } => format!(
            "reply of {from} to compute {compute}: term {} g{}@{} flush {}",
            reply.term, reply.generation.number, reply.generation.term, reply.flush_lsn.0
        ),
        Late::Elected { to, request, .. } => format!(
            "announcement to {to}: {:?} {}",
            request.history.last(),
            configuration(&request.configuration)
        ),
        Late::Configure { to, request, .. } => format!(
            "change to {to}: term {} {}",
            request.term,
            configuration(&request.configuration)
        ),
        Late::Voted {
            from,
            compute,
            reply,
            ..
        } => format!(
            "vote of {from} to compute {compute}: {} in term {}",
            if reply.granted { "yes" } else { "no" },
            reply.position.term
        ),
    }
}

fn step(model: &ProtocolModel, before: &State, step: &Step) -> String {
    match step {
        Step::Arrive { message } => format!("arrives late: {}", late(&before.late[*message])),
        Step::Change { compute, change } => {
            let change = &model.scenario.computes[*compute].changes[*change];
            format!("compute {compute} changes the members: {change:?}")
        }
        Step::Elect { compute, voters } => {
            let vote = |node: &usize| voters & 1 << node != 0;
            let voters: Vec<usize> = (0..before.safekeepers.len()).filter(vote).collect();
            format!("compute {compute} asks {voters:?} for votes")
        }
        Step::Campaign { compute, greeters } => {
            let greet = |node: &usize| greeters & 1 << node != 0;
            let greeters: Vec<usize> = (0..before.safekeepers.len()).filter(greet).collect();
            format!("compute {compute} is greeted by {greeters:?} and asks for votes")
        }
        _ => format!("{step:?}"),
    }
}

/// The states of a path and the steps between them: a line for each step, then one for each part that it changed.
pub fn trace(model: &ProtocolModel, path: Vec<(State, Option<Step>)>) -> String {
    let mut lines = Vec::new();
    let describe = |state: &State| -> Vec<String> {
        let safekeepers = state.safekeepers.iter().map(|it| safekeeper(it));
        let computes = state.computes.iter().enumerate();
        let computes = computes.map(|(number, it)| compute(number, it));
        safekeepers.chain(computes).collect()
    };
    for (number, pair) in path.windows(2).enumerate() {
        let [(before, Some(happened)), (after, _)] = pair else {
            continue;
        };
        lines.push(format!(
            "{:>4} {}",
            number + 1,
            step(model, before, happened)
        ));
        let changed = describe(before).into_iter().zip(describe(after));
        let changed = changed.filter(|(old, new)| old != new);
        lines.extend(changed.map(|(_, new)| format!("       {new}")));
        if let Some(failure) = &after.failure {
            lines.push(format!("       {failure}"));
        }
    }
    format!("     (logs begin at {})\n{}", START.0, lines.join("\n"))
}
