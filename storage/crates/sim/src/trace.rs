//! A run as a person reads it: one line for each thing that happened, `time who <- whom what`.

use std::fmt::Write as _;

use consensus::{AppendHeader, AppendReply, Configuration, LogPosition, MemberId, Role};

use crate::network::{ToAcceptor, ToProposer};

/// Collects lines while it is on; off, it costs nothing.
#[derive(Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that collects lines.
    pub fn on() -> Trace {
        Trace {
            lines: Some(Vec::new()),
        }
    }

    /// `line` is only made when the trace is on.
    pub fn note(&mut self, time: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{time:>6} {}", line()));
        }
    }

    /// The lines in their order; none of a trace that is off.
    pub fn lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// `1.0` is the first disk of safekeeper 1.
pub fn member(id: MemberId) -> String {
    format!(
        "{}.{}",
        id.node,
        u16::from_le_bytes([id.disk.0[0], id.disk.0[1]])
    )
}

/// `g2@5[0.0 1.1 (2.7)]`: generation 2, confirmed in term 5, two voters and a learner.
pub fn configuration(of: &Configuration) -> String {
    let mut text = format!("g{}@{}[", of.generation.number, of.generation.term);
    for (i, it) in of.members().iter().enumerate() {
        let (id, gap) = (member(it.id), if i > 0 { " " } else { "" });
        let _ = match it.role {
            Role::Voter => write!(text, "{gap}{id}"),
            Role::Learner => write!(text, "{gap}({id})"),
        };
    }
    text + "]"
}

fn position(of: &LogPosition) -> String {
    let LogPosition {
        term,
        flush_lsn,
        commit_lsn,
        ..
    } = of;
    let (id, shown) = (member(of.member), configuration(&of.configuration));
    format!("{id} term {term} flush {flush_lsn} commit {commit_lsn} {shown}")
}

fn append(header: &AppendHeader) -> String {
    let AppendHeader {
        term,
        begin_lsn,
        end_lsn,
        commit_lsn,
        generation,
    } = header;
    format!(
        "append term {term} g{}@{} {begin_lsn}..{end_lsn} commit {commit_lsn}",
        generation.number, generation.term
    )
}

fn reply(of: &AppendReply) -> String {
    let AppendReply {
        term,
        generation,
        write_lsn,
        flush_lsn,
        commit_lsn,
    } = of;
    format!(
        "has term {term} g{}@{} write {write_lsn} flush {flush_lsn} commit {commit_lsn}",
        generation.number, generation.term
    )
}

/// A message to an acceptor in a few words.
pub fn to_acceptor(message: &ToAcceptor) -> String {
    match message {
        ToAcceptor::Greet => "greet".into(),
        ToAcceptor::Vote(it) => format!(
            "vote? term {} {}",
            it.term,
            configuration(&it.configuration)
        ),
        ToAcceptor::Elected(it) => format!(
            "elected {:?} {}",
            it.history.last(),
            configuration(&it.configuration)
        ),
        ToAcceptor::Configure(it) => {
            format!(
                "configure term {} {}",
                it.term,
                configuration(&it.configuration)
            )
        }
        ToAcceptor::Append(header, _) => append(header),
        ToAcceptor::Reset(it) => format!("reset term {} to {}", it.term, it.to),
        ToAcceptor::Fetch { term, from, to } => format!("fetch term {term} {from}..{to}"),
    }
}

/// A message to a proposer in a few words.
pub fn to_proposer(message: &ToProposer) -> String {
    match message {
        ToProposer::Greeting(it) => format!("greets: {}", position(it)),
        ToProposer::Vote(it) if it.granted => format!("votes: {}", position(&it.position)),
        ToProposer::Vote(it) => format!("denies: {}", position(&it.position)),
        ToProposer::Elected(it) => format!(
            "adopted term {} g{}@{} flush {}",
            it.term, it.generation.number, it.generation.term, it.flush_lsn
        ),
        ToProposer::Append(it) => reply(it),
        ToProposer::Refused(it) => format!("refuses: {it}"),
        ToProposer::Fetched { from, wal } => format!("fetched {from} + {}", wal.len()),
        ToProposer::Trimmed { horizon } => format!("trimmed below {horizon}"),
    }
}
