//! What the members' logs mean together.
//!
//! The highest commit LSN that any member has stored is committed: a majority had everything below it on disk once.
//! A member holds it when its log is proven up to there and is of the same history. Histories say how far two logs are
//! equal ([`consensus::TermHistory::common_point`]); what lies behind may differ, since an election cuts it off.

use pg_types::Lsn;
use serde::Serialize;

use crate::compare::Comparison;
use crate::member::{Member, State};
use crate::part::Part;
use crate::scan::{Proven, Tail};
use crate::voters;

/// What is wrong, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A folder without a control file that can be used.
    Control,
    /// A member without a folder of the timeline, or a voter without a directory.
    Absent,
    /// A directory that can't be read.
    Unreadable,
    /// WAL that a member had said to be committed is not whole there.
    Damaged,
    /// A member has committed what the others' history does not contain.
    Diverged,
    /// Members have other bytes where they must have the same.
    Differs,
    /// Less than a majority of the voters holds what is committed.
    NotHeld,
}

/// One thing that is wrong with a log or with a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What is wrong.
    pub kind: Kind,
    /// Name of the member that it is about; null when it is about several or about none of the directories.
    pub member: Option<String>,
    /// Where it begins; for [`Kind::NotHeld`], the committed LSN. Null when no position belongs to it.
    pub lsn: Option<Lsn>,
    /// The same in a sentence, for people.
    pub text: String,
}

/// How a member stands to what is committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Standing {
    /// Name of the member.
    pub member: String,
    /// Whether everything committed that object storage lacks is proven in its log, under the committed history.
    pub holds_committed: bool,
    /// Up to here its log is equal to the committed one, as their histories have it; null for all of it.
    pub agrees_to: Option<Lsn>,
}

/// What the members hold together, and what is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Judgement {
    /// Below this, object storage has what the WAL made.
    pub needed_from: Lsn,
    /// Highest commit LSN that any member has stored; 0 when no control file can be used.
    pub committed: Lsn,
    /// One for each member, in their order; empty when no control file can be used.
    pub standings: Vec<Standing>,
    /// Whether the members' proven ranges, put together, hold everything committed.
    pub held_together: bool,
    /// Everything that is wrong; empty when nothing is.
    pub findings: Vec<Finding>,
    /// The same in sentences, for people.
    pub verdict: Vec<String>,
}

impl Judgement {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

/// The member that has stored the highest commit LSN.
pub fn authority(members: &[Member]) -> Option<&Member> {
    members
        .iter()
        .filter(|member| member.control.is_some())
        .max_by_key(|member| {
            let durable = member.control.as_ref().map(|control| &control.durable);
            durable.map(|durable| (durable.commit_lsn, durable.history.last().map(|it| it.term)))
        })
}

/// Up to where the log of `member` has to have the bytes of `authority`'s; `Lsn::MAX` for the authority itself.
pub fn agrees_to(member: &Member, authority: &Member) -> Lsn {
    let (Some(own), Some(best)) = (&member.control, &authority.control) else {
        return Lsn::INVALID;
    };
    if member.name == authority.name {
        return Lsn::MAX;
    }
    common_point(member, authority)
        .unwrap_or(Lsn::INVALID)
        .max(own.durable.commit_lsn.min(best.durable.commit_lsn))
}

/// As the histories have it, wherever the logs end.
fn common_point(member: &Member, authority: &Member) -> Option<Lsn> {
    let (own, best) = (member.control.as_ref()?, authority.control.as_ref()?);
    own.durable
        .history
        .common_point(Lsn::MAX, &best.durable.history)
}

/// Where the histories part below what `member` has committed, if they do.
fn diverges_at(member: &Member, authority: &Member) -> Option<Lsn> {
    let (own, best) = (member.control.as_ref()?, authority.control.as_ref()?);
    let begins = |history: &consensus::TermHistory| Some(history.entries().first()?.start_lsn);
    let parts = common_point(member, authority).or_else(|| {
        // No term in common: the other log's terms began where this one had committed under its own.
        begins(&own.durable.history)?;
        begins(&best.durable.history)
    })?;
    (member.name != authority.name && parts < own.durable.commit_lsn).then_some(parts)
}

/// `comparison` is that of the members' bytes, if it was made.
pub fn judge(members: &[Member], comparison: Option<&Comparison>) -> Judgement {
    let controls = || members.iter().filter_map(|member| member.control.as_ref());
    let committed = controls().map(|it| it.durable.commit_lsn).max();
    let needed_from = controls().map(|it| it.durable.remote_consistent_lsn).max();
    let mut judgement = Judgement {
        needed_from: needed_from.unwrap_or_default(),
        committed: committed.unwrap_or_default(),
        standings: Vec::new(),
        held_together: false,
        findings: members
            .iter()
            .flat_map(of_member)
            .chain(unseen_voters(members))
            .collect(),
        verdict: Vec::new(),
    };
    if let Some(authority) = authority(members) {
        judgement.stand(members, authority);
    }
    judgement
        .findings
        .extend(comparison.into_iter().flat_map(of_comparison));
    judgement.write_verdict(members, comparison);
    judgement
}

fn finding(kind: Kind, member: Option<&Member>, lsn: Option<Lsn>, text: String) -> Finding {
    Finding {
        kind,
        member: member.map(|member| member.name.clone()),
        lsn,
        text,
    }
}

/// What is wrong with one member whatever the others hold.
fn of_member(member: &Member) -> Vec<Finding> {
    let name = &member.name;
    let reason = member.reason.as_deref().unwrap_or("no reason is known");
    let kind = match member.state {
        State::Present => None,
        State::Absent if member.part == Some(Part::None) => None,
        State::ControlDamaged => Some(Kind::Control),
        State::Absent => Some(Kind::Absent),
        State::Unreadable => Some(Kind::Unreadable),
    };
    let mut findings: Vec<Finding> = kind
        .map(|kind| {
            let text = match kind {
                Kind::Absent => format!("{name}'s directory lacks this timeline: {reason}"),
                _ => format!("{name} can't be used: {reason}"),
            };
            finding(kind, Some(member), None, text)
        })
        .into_iter()
        .collect();
    let commit = member.control.as_ref().map(|it| it.durable.commit_lsn);
    let faults = member.scan.iter().flat_map(|scan| &scan.faults);
    for fault in faults.filter(|fault| commit.is_none_or(|commit| fault.from < commit)) {
        let text = format!(
            "{name}'s log is not whole from {} to {}: {}",
            fault.from, fault.to, fault.why
        );
        findings.push(finding(Kind::Damaged, Some(member), Some(fault.from), text));
    }
    findings
}

/// Voters whose disk is none of the directories: it was lost, or was not named.
fn unseen_voters(members: &[Member]) -> Vec<Finding> {
    let Some(configuration) = voters::newest(members) else {
        return Vec::new();
    };
    voters::unseen(members, configuration)
        .into_iter()
        .map(|id| {
            let text = format!("none of the directories is that of the voter on {id}");
            finding(Kind::Absent, None, None, text)
        })
        .collect()
}

fn of_comparison(comparison: &Comparison) -> Vec<Finding> {
    let said = |groups: &[Vec<String>]| -> String {
        let groups: Vec<String> = groups.iter().map(|group| names(group)).collect();
        groups.join(" against ")
    };
    comparison
        .differences
        .iter()
        .map(|difference| {
            let text = format!(
                "the bytes of {} differ from {} on, up to {} at most",
                said(&difference.groups),
                difference.from,
                difference.to
            );
            finding(Kind::Differs, None, Some(difference.from), text)
        })
        .collect()
}

impl Judgement {
    fn stand(&mut self, members: &[Member], authority: &Member) {
        let (from, to) = (self.needed_from, self.committed);
        let mut ranges: Vec<(Lsn, Lsn)> = Vec::new();
        for member in members {
            let agrees = agrees_to(member, authority);
            let scan = member.scan.as_ref();
            let holds = member.control.is_some()
                && agrees >= to
                && scan.is_some_and(|scan| scan.end >= to && scan.covers(from, to));
            let proven = scan.map_or(&[][..], |scan: &crate::scan::Scan| &scan.proven[..]);
            ranges.extend(
                proven
                    .iter()
                    .map(|it: &Proven| (it.from, it.to.min(agrees))),
            );
            self.standings.push(Standing {
                member: member.name.clone(),
                holds_committed: holds,
                agrees_to: (agrees != Lsn::MAX).then_some(agrees),
            });
            if let Some(parts) = diverges_at(member, authority) {
                let text = format!(
                    "{} has committed WAL of another history: it and {} part at {parts}. Both are to be kept",
                    member.name, authority.name
                );
                self.findings
                    .push(finding(Kind::Diverged, Some(member), Some(parts), text));
            }
        }
        self.held_together = are_joined(ranges, from, to);
        self.count_holders(members);
    }

    /// Whether a majority of the log's voters holds what is committed; of the directories, where nobody names the voters.
    fn count_holders(&mut self, members: &[Member]) {
        let known = voters::newest(members);
        let votes = |member: &Member| known.is_none() || member.part == Some(Part::Voter);
        let holders = members
            .iter()
            .zip(&self.standings)
            .filter(|(member, standing)| votes(member) && standing.holds_committed)
            .count();
        let (all, noun) = known.map_or((members.len(), "members"), |known| {
            (known.voters().count(), "voters")
        });
        if holders < consensus::majority(all) {
            let count = match holders {
                0 => "none".to_owned(),
                _ => format!("only {holders}"),
            };
            let to = self.committed;
            let text = format!(
                "{count} of {all} {noun} hold what is committed up to {to}, and a majority had it once"
            );
            self.findings
                .push(finding(Kind::NotHeld, None, Some(to), text));
        }
    }

    fn holders(&self) -> Vec<String> {
        let holders = self.standings.iter().filter(|it| it.holds_committed);
        holders.map(|it| it.member.clone()).collect()
    }

    fn write_verdict(&mut self, members: &[Member], comparison: Option<&Comparison>) {
        let (from, to) = (self.needed_from, self.committed);
        let holders = self.holders();
        let mut verdict = Vec::new();
        if self.standings.is_empty() {
            verdict.push(
                "No member has a control file that can be read, so nobody knows what is committed."
                    .to_owned(),
            );
        } else if holders.is_empty() {
            let together = if self.held_together {
                "; put together, their logs do"
            } else {
                ", nor do their logs put together"
            };
            verdict.push(format!(
                "No member holds everything committed up to {to} (from {from} on){together}."
            ));
        } else {
            let verb = if holders.len() == 1 { "holds" } else { "hold" };
            verdict.push(format!(
                "{} {verb} everything committed up to {to} (from {from} on).",
                names(&holders)
            ));
        }
        for (member, standing) in members.iter().zip(&self.standings) {
            let is_member = member.part != Some(Part::None);
            if !standing.holds_committed && is_member && member.state == State::Present {
                verdict.push(lacks(member, standing, to));
            }
        }
        verdict.extend(members.iter().filter_map(tail));
        if let Some(comparison) = comparison.filter(|it| it.is_equal() && it.members.len() > 1) {
            verdict.push(format!(
                "The bytes of {} are equal wherever two of them must have the same, from {} to {}.",
                names(&comparison.members),
                comparison.from,
                comparison.to
            ));
        }
        if let Some(more) = comparison.map(|it| it.more).filter(|more| *more > 0) {
            verdict.push(format!("{more} further differences are not listed."));
        }
        if !self.is_sound() {
            verdict.push(
                "Keep every directory as it is: a log that is short or damaged may be the last copy of what it holds."
                    .to_owned(),
            );
        }
        self.verdict = verdict;
    }
}

/// Why a member that is there does not hold what is committed.
fn lacks(member: &Member, standing: &Standing, to: Lsn) -> String {
    let name = &member.name;
    let end = member.scan.as_ref().map_or(Lsn::INVALID, |scan| scan.end);
    match standing.agrees_to {
        Some(agrees) if agrees < to && agrees < end => format!(
            "{name}'s log goes on otherwise from {agrees} on, where the committed one is of a later term."
        ),
        _ if end < to => format!(
            "{name} holds it up to {end} and lacks the {} bytes behind.",
            to.0 - end.0
        ),
        _ => format!("{name} holds it with gaps."),
    }
}

/// What a person may wonder about at the end of a log.
fn tail(member: &Member) -> Option<String> {
    match &member.scan.as_ref()?.tail {
        Tail::Clean => None,
        Tail::Moving => Some(format!("{} is being written to.", member.name)),
        Tail::Torn { from, to, .. } => Some(format!(
            "{}'s log ends at {from}; the {} bytes behind are no whole record, and its next start sets them aside.",
            member.name,
            to.0 - from.0
        )),
    }
}

fn are_joined(mut ranges: Vec<(Lsn, Lsn)>, from: Lsn, to: Lsn) -> bool {
    ranges.sort();
    let mut reached = from;
    for (begin, end) in ranges {
        if begin <= reached {
            reached = reached.max(end);
        }
    }
    reached >= to
}

/// `a, b and c`.
pub fn names(names: &[String]) -> String {
    match names {
        [] => "nobody".to_owned(),
        [one] => one.clone(),
        [front @ .., last] => format!("{} and {last}", front.join(", ")),
    }
}
