//! The whole inspection of one timeline: read every member, compare, judge.

use std::path::PathBuf;

use pg_types::{Lsn, TenantId, TimelineId};
use serde::Serialize;

use crate::compare::{Comparison, Side, compare};
use crate::folder::Segments;
use crate::judge::{self, Judgement, Kind};
use crate::member::{self, Found, Member, Outside, State};
use crate::scan::Tail;
use crate::voters;

/// A safekeeper that trims or cuts its log meanwhile makes the log look wrong: it is inspected again, this often at most.
const INSPECTIONS: u32 = 3;

/// The result of an inspection; as JSON, what `weir-log show` and `weir-log verify` print.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline that was inspected.
    pub timeline: TimelineId,
    /// One for each directory, in the order given.
    pub members: Vec<Member>,
    /// Null when bytes were not compared.
    pub comparison: Option<Comparison>,
    /// What the members hold together; in JSON, its fields stand beside the others.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Whether nothing is wrong ([`Judgement::is_sound`]).
    pub sound: bool,
    /// A safekeeper changed its promises or trimmed its log during every inspection: inspect it again.
    pub changed_meanwhile: bool,
}

/// A member's name and its data directory.
pub type Directory = (String, PathBuf);

/// Inspects one timeline in each directory. `None` when no directory has it.
pub fn inspect(
    directories: &[Directory],
    tenant: TenantId,
    timeline: TimelineId,
    with_bytes: bool,
    outside: &mut Outside<'_>,
) -> Option<Report> {
    let find = || -> Vec<Found> {
        let found = directories.iter();
        found
            .map(|(name, dir)| member::find(name, dir, tenant, timeline))
            .collect()
    };
    for inspection in 1.. {
        let found = find();
        let is_there =
            |it: &Found| matches!(it.member.state, State::Present | State::ControlDamaged);
        if !found.iter().any(is_there) {
            return None;
        }
        let identity = found.iter().find_map(|it| it.member.identity);
        let mut members: Vec<Member> = found
            .into_iter()
            .map(|it| it.read(identity.as_ref(), outside))
            .collect();
        let configuration = voters::newest(&members).cloned();
        for member in &mut members {
            member.part = voters::part(member, configuration.as_ref());
        }
        let comparison = with_bytes.then(|| compare_members(&members, outside));
        let judgement = judge::judge(&members, comparison.as_ref());
        let is_odd = judgement
            .findings
            .iter()
            .any(|it| !matches!(it.kind, Kind::Absent | Kind::Unreadable));
        let changed = is_odd && has_changed(&members, &find());
        if changed && inspection < INSPECTIONS {
            continue;
        }
        return Some(Report {
            tenant,
            timeline,
            sound: judgement.is_sound(),
            members,
            comparison,
            judgement,
            changed_meanwhile: changed,
        });
    }
    None
}

/// Whether a member's log may have been cut, trimmed, made or removed since it was read.
fn has_changed(members: &[Member], now: &[Found]) -> bool {
    members.iter().zip(now).any(|(member, now)| {
        let facts = |member: &Member| {
            let durable = member.control.as_ref().map(|control| &control.durable);
            let durable = durable.map(|it| (it.term, it.history.clone(), it.remote_consistent_lsn));
            (member.state, durable)
        };
        facts(member) != facts(&now.member)
    })
}

fn compare_members(members: &[Member], outside: &mut Outside<'_>) -> Comparison {
    let authority = judge::authority(members);
    let committed = authority
        .and_then(|it| it.control.as_ref())
        .map_or(Lsn::INVALID, |control| control.durable.commit_lsn);
    let mut opened: Vec<(&Member, Segments, Lsn, Lsn)> = Vec::new();
    for member in members {
        let (from, to) = match (authority, &member.control) {
            (Some(authority), Some(control)) => (
                control.durable.remote_consistent_lsn,
                compared_to(member, committed).min(judge::agrees_to(member, authority)),
            ),
            // Without a promise of its own, what is whole of it can still be said to be the same or not.
            _ => {
                let proven = member.scan.iter().flat_map(|scan| &scan.proven);
                let range = proven.map(|it| (it.from, it.to));
                range
                    .reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
                    .map_or((Lsn::INVALID, Lsn::INVALID), |(from, to)| {
                        (from, to.min(committed))
                    })
            }
        };
        if let Ok(wal) = Segments::open(&member.dir) {
            opened.push((member, wal, from, to));
        }
    }
    let mut sides: Vec<Side<'_>> = opened
        .iter_mut()
        .map(|(member, wal, from, to)| Side {
            name: &member.name,
            wal,
            from: *from,
            to: *to,
        })
        .collect();
    compare(&mut sides, &mut |bytes| {
        (outside.progress)("comparing", bytes);
    })
}

/// The end of the bytes that count. What broke off behind the last record is compared as far as it is committed: it is
/// either the beginning of what the others have, or damage.
fn compared_to(member: &Member, committed: Lsn) -> Lsn {
    let Some(scan) = &member.scan else {
        return Lsn::INVALID;
    };
    let last_fault = scan.faults.last().map_or(scan.end, |fault| fault.to);
    let broken_off = match &scan.tail {
        Tail::Torn { to, .. } => *to,
        _ => scan.end,
    };
    let last_proven = scan.proven.last().map_or(scan.end, |proven| proven.to);
    let end = broken_off.max(last_fault).max(last_proven);
    scan.end.max(end.min(committed))
}
