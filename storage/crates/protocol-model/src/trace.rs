//! A way through the states as a person reads it: what happened, and what has changed by it.

use std::fmt::Write as _;

use consensus::{Change, Configuration, Durable, MemberId, Role};

use crate::compute::{Compute, Standing};
use crate::log::START;
use crate::model::ProtocolModel;
use crate::safekeeper::Safekeeper;
use crate::state::{Late, State};
use crate::step::{Step, What};

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

fn change(of: &Change) -> String {
    match of {
        Change::List(ids) => format!("writes down {ids:?}"),
        Change::AddLearner(id) => format!("adds {} as a learner", member(*id)),
        Change::Promote(id) => format!("makes {} a voter", member(*id)),
        Change::Remove(id) => format!("removes {}", member(*id)),
    }
}

fn numbers(set: u32) -> Vec<u32> {
    (0..32).filter(|node| set & 1 << node != 0).collect()
}

fn tells(what: What, compute: usize, safekeeper: usize) -> String {
    let (c, s) = (compute, safekeeper);
    match what {
        What::Vote => format!("compute {c} asks {s} for its vote, and {s} replies"),
        What::History => format!("compute {c} announces its history to {s}"),
        What::Change => format!("compute {c} tells {s} of the change"),
        What::Record => format!("compute {c} sends the next record to {s}"),
        What::Reply => format!("{s} replies to compute {c}"),
    }
}

fn step(model: &ProtocolModel, before: &State, step: &Step) -> String {
    match *step {
        Step::Greet {
            compute: c,
            safekeeper: s,
        } => format!("{s} greets compute {c}"),
        Step::Campaign { compute, greeters } => {
            let greeters = numbers(greeters);
            format!("compute {compute} is greeted by {greeters:?} and begins to ask for votes")
        }
        Step::Elect { compute, voters } => {
            let voters = numbers(voters);
            format!("compute {compute} asks {voters:?} for votes")
        }
        Step::VoteUnheard {
            compute: c,
            safekeeper: s,
        } => format!("compute {c} asks {s} for its vote, and the reply is lost"),
        Step::Tell {
            what,
            compute,
            safekeeper,
            late,
        } => {
            let late = if late { ", which is on its way" } else { "" };
            tells(what, compute, safekeeper) + late
        }
        Step::Arrive { message } => format!("arrives late: {}", late(&before.late[message])),
        Step::Hear {
            compute: c,
            safekeeper: s,
        } => format!("compute {c} hears what {s} has"),
        Step::DieAdopting {
            compute: c,
            safekeeper: s,
        } => format!("{s} dies while it adopts the history of compute {c}, and starts again"),
        Step::Change {
            compute: c,
            change: number,
        } => {
            let made = change(&model.scenario.computes[c].changes[number]);
            format!("compute {c} {made}")
        }
        Step::Write { compute } => format!("compute {compute} writes a record"),
        Step::Flush { safekeeper } => format!("{safekeeper} has synced what it had begun to"),
        Step::Crash { safekeeper, kept } => {
            let rest = if kept { "is kept" } else { "is gone" };
            format!("{safekeeper} crashes and starts again; what was not synced {rest}")
        }
        Step::LoseDisk { safekeeper } => format!("the disk of {safekeeper} is replaced"),
        Step::CopyDisk { safekeeper } => format!("the disk of {safekeeper} is copied"),
        Step::RestoreDisk { safekeeper } => format!("{safekeeper} is put back on the copy"),
    }
}

/// How to read what follows.
const LEGEND: &str = "     (2.1 is the first disk of safekeeper 2, [1a] a record of term 1 by compute 0; logs begin at";

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
    format!("{LEGEND} {})\n{}", START.0, lines.join("\n"))
}
