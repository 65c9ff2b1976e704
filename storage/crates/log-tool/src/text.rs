//! A report for people.

use std::fmt::{self, Display, Formatter, Write as _};

use consensus::{Generation, Role};
use pg_types::Lsn;
use safekeeper::control::Control;
use serde_json::Value;

use crate::member::{Cut, Member, Segment, SegmentState, State};
use crate::part::Part;
use crate::report::Report;
use crate::scan::{Scan, Tail};

/// Entries of a term history that are shown; the newest matter.
const TERMS: usize = 8;
/// Fields of the promises that have a line of their own.
const KNOWN: [&str; 7] = [
    "term",
    "voted_for",
    "history",
    "commit_lsn",
    "remote_consistent_lsn",
    "member",
    "configuration",
];

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "timeline {} of tenant {}", self.timeline, self.tenant)?;
        for member in &self.members {
            writeln!(f)?;
            write_member(f, member)?;
        }
        writeln!(f, "\nVERDICT")?;
        for finding in &self.judgement.findings {
            writeln!(f, "  ! {}", finding.text)?;
        }
        for sentence in &self.judgement.verdict {
            writeln!(f, "  {sentence}")?;
        }
        if self.changed_meanwhile {
            writeln!(f, "  The logs were changed at every look: look again.")?;
        }
        if self.comparison.is_none() {
            writeln!(f, "  Bytes were not compared; `verify` does.")?;
        }
        Ok(())
    }
}

fn write_member(f: &mut Formatter<'_>, member: &Member) -> fmt::Result {
    writeln!(f, "{}  {}", member.name, member.dir.display())?;
    let mut line = |name: &str, text: &str| writeln!(f, "  {name:<14}{text}");
    if member.state == State::Absent && member.part == Some(Part::None) {
        line("STATE", "is no member of this log")?;
    } else if member.state != State::Present {
        let state = match member.state {
            State::Absent => "lacks this timeline",
            State::Unreadable => "cannot be read",
            _ => "has no control file that can be used",
        };
        let reason = member.reason.as_deref().unwrap_or_default();
        line("STATE", &format!("{state}: {reason}"))?;
    }
    for path in &member.beside {
        line("beside it", &path.display().to_string())?;
    }
    if member.control.is_some() {
        write_promises(f, member)?;
    }
    if let Some(scan) = &member.scan {
        write_scan(f, scan)?;
    }
    write_segments(f, &member.segments)?;
    member.cut.iter().try_for_each(|cut| write_cut(f, cut))
}

fn write_promises(f: &mut Formatter<'_>, member: &Member) -> fmt::Result {
    let Some(control) = &member.control else {
        return Ok(());
    };
    let durable = &control.durable;
    let voted_for = match member.durable.get("voted_for") {
        Some(Value::String(candidate)) => format!(", voted for {candidate}"),
        _ => ", voted for nobody in it".to_owned(),
    };
    writeln!(f, "  {:<14}{}{voted_for}", "term", durable.term)?;
    let entries = durable.history.entries();
    let mut terms = String::new();
    if entries.len() > TERMS {
        terms.push_str("... ");
    }
    for entry in &entries[entries.len().saturating_sub(TERMS)..] {
        write!(terms, "{} from {}, ", entry.term, entry.start_lsn)?;
    }
    let terms = terms.trim_end_matches(", ");
    let terms = if terms.is_empty() {
        "none wrote"
    } else {
        terms
    };
    writeln!(f, "  {:<14}{terms}", "term history")?;
    writeln!(
        f,
        "  {:<14}{} to {} as stored; begins at {}",
        "committed", durable.remote_consistent_lsn, durable.commit_lsn, control.identity.start_lsn
    )?;
    for (name, lsn) in &member.readers {
        writeln!(f, "  {:<14}{name} has all up to {lsn} elsewhere", "reader")?;
    }
    write_membership(f, control)?;
    let others = member.durable.iter();
    for (name, value) in others.filter(|(name, _)| !KNOWN.contains(&name.as_str())) {
        writeln!(f, "  {:<14}{value}", name.replace('_', " "))?;
    }
    Ok(())
}

/// The member whose log this is, and the members that the log names.
fn write_membership(f: &mut Formatter<'_>, control: &Control) -> fmt::Result {
    let (durable, known) = (&control.durable, &control.durable.configuration);
    let role = match known.role_of(control.member) {
        Some(Role::Voter) => "voter",
        Some(Role::Learner) if known.generation == Generation::ZERO => "waits to be made a learner",
        Some(Role::Learner) => "learner",
        None if known.is_unlisted() && control.member == durable.member => "voter",
        None => "no member",
    };
    writeln!(f, "  {:<14}{}, {role}", "member", control.member)?;
    if control.member != durable.member {
        writeln!(
            f,
            "  {:<14}this is a copy of the log of {}",
            "", durable.member
        )?;
    }
    if known.is_unlisted() {
        return writeln!(f, "  {:<14}not named by this log yet", "members");
    }
    writeln!(f, "  {:<14}generation {}", "members", known.generation)?;
    known
        .members()
        .iter()
        .try_for_each(|member| writeln!(f, "  {:<14}{}, {}", "", member.id, member.role))
}

fn write_scan(f: &mut Formatter<'_>, scan: &Scan) -> fmt::Result {
    writeln!(f, "  {:<14}{}", "flushed to", scan.end)?;
    for proven in &scan.proven {
        writeln!(
            f,
            "  {:<14}{} to {}: {} records, {}; {} of padding and page headers are under no checksum",
            "complete",
            proven.from,
            proven.to,
            proven.records,
            bytes(proven.to.0 - proven.from.0),
            bytes(proven.uncovered)
        )?;
    }
    for fault in &scan.faults {
        writeln!(
            f,
            "  {:<14}{} to {}: {}",
            "NOT WHOLE", fault.from, fault.to, fault.why
        )?;
    }
    match &scan.tail {
        Tail::Clean => Ok(()),
        Tail::Moving => writeln!(f, "  {:<14}a safekeeper writes to it", "tail"),
        Tail::Torn { from, to, why } => {
            writeln!(
                f,
                "  {:<14}{from} to {to} is no whole record: {why}",
                "tail"
            )
        }
    }
}

/// Segments in a row that are in the same state share a line.
fn write_segments(f: &mut Formatter<'_>, segments: &[Segment]) -> fmt::Result {
    let is_same =
        |a: &Segment, b: &Segment| a.state == b.state && a.bytes == b.bytes && a.reason == b.reason;
    for run in segments.chunk_by(is_same) {
        let [first, ..] = run else { continue };
        let state = match first.state {
            SegmentState::Complete => "complete",
            SegmentState::Last => "complete up to the log's end, which is in it",
            SegmentState::Damaged => "NOT WHOLE",
            SegmentState::Beyond => "outside of the log",
        };
        let size = match (&first.reason, first.bytes) {
            (Some(reason), _) => reason.clone(),
            (None, size) => bytes(size.unwrap_or_default()),
        };
        let names = match run {
            [.., last] if run.len() > 1 => {
                format!("{} to {} ({})", first.name, last.name, run.len())
            }
            _ => first.name.clone(),
        };
        writeln!(f, "  {:<14}{names}  {size}  {state}", "segment")?;
    }
    Ok(())
}

fn write_cut(f: &mut Formatter<'_>, cut: &Cut) -> fmt::Result {
    let text = match (&cut.reason, cut.from, cut.proven_to) {
        (Some(reason), ..) => reason.clone(),
        (None, Some(from), Some(to)) => format!("{from} to {to} is whole"),
        (None, from, _) => format!("no whole record at {}", from.unwrap_or(Lsn::INVALID)),
    };
    let size = cut.bytes.map(bytes).unwrap_or_default();
    writeln!(
        f,
        "  {:<14}{}  {size}  {text}",
        "set aside",
        cut.file.display()
    )
}

/// A number of bytes in the largest unit that leaves at least ten of it, as people read it.
pub fn bytes(count: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| count >> shift >= 10) {
        Some((unit, shift)) => format!("{} {unit}", count >> shift),
        None => format!("{count} bytes"),
    }
}
