//! The terms that wrote a timeline's WAL, and whether a safekeeper's log holds the same WAL.
//!
//! A log's term history says which term wrote which part of the log. Two logs that were written by the same terms up
//! to a position have the same bytes up to that position; where the terms differ, at most one of them is the log
//! whose WAL was ingested. This module is pure.

use std::fmt;

use consensus::{TermHistory, TermStart};
use pg_types::{Lsn, Term};
use serde::{Deserialize, Serialize};

/// As many as a log keeps itself.
const MAX_ENTRIES: usize = 1024;
/// Terms of a history that an error shows.
const SHOWN: usize = 6;

/// A safekeeper's log is not the log whose WAL was ingested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherHistory {
    /// The LSN from which on the other log has the WAL of other terms, or does not say of which terms; `0/0` when its
    /// terms are not in order.
    pub at: Lsn,
    text: String,
}

impl std::error::Error for OtherHistory {}

impl fmt::Display for OtherHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What is known of the WAL that a timeline has ingested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ingested {
    /// Which terms wrote it. An entry at or behind `up_to` says nothing yet.
    pub terms: TermHistory,
    /// End of the WAL whose terms are known; after a crash it can be later than the end of the last ingested record.
    pub up_to: Lsn,
}

impl Ingested {
    /// This history once ingest has come to `lsn`; the terms noted cover the WAL up to `lsn`.
    pub fn reaching(mut self, lsn: Lsn) -> Ingested {
        self.up_to = self.up_to.max(lsn);
        self
    }

    /// The same history without the terms that begin at or behind `up_to`, which say nothing yet.
    pub fn cut(&self) -> Ingested {
        Ingested {
            terms: up_to(&self.terms, self.up_to),
            up_to: self.up_to,
        }
    }

    /// Checks that a log with the history `theirs`, committed up to `committed`, has the WAL that was ingested, as
    /// far as it goes. A log that was founded later, or has forgotten its oldest terms, says nothing of what is
    /// before its first term. Fails where the terms differ, with the LSN from which on they do, and for terms that
    /// are not in order.
    pub fn compare(&self, theirs: &TermHistory, committed: Lsn) -> Result<(), OtherHistory> {
        if !theirs.is_ordered() {
            return Err(self.other(
                Lsn::INVALID,
                theirs,
                committed,
                "its terms are not in order",
            ));
        }
        let firsts = (self.terms.entries().first(), theirs.entries().first());
        let (Some(our_first), Some(their_first)) = firsts else {
            return Ok(());
        };
        let from = our_first.start_lsn.max(their_first.start_lsn);
        let to = self.up_to.min(committed);
        let (mut left, mut right) = (parts(&self.terms, from, to), parts(theirs, from, to));
        loop {
            match (left.next(), right.next()) {
                (None, None) => return Ok(()),
                (ours, theirs) if ours == theirs => {}
                (one, another) => {
                    let starts = [one, another].into_iter().flatten();
                    let at = starts.map(|part| part.start_lsn).min().unwrap_or(from);
                    let what = format!("they part at {at}");
                    return Err(self.other(at, theirs, committed, &what));
                }
            }
        }
    }

    /// Compares as [`Ingested::compare`] does, for a log whose WAL behind `at`, where ingest stands, is about to be
    /// ingested. Fails also when the log does not say which terms wrote that WAL.
    pub fn compare_at(
        &self,
        at: Lsn,
        theirs: &TermHistory,
        committed: Lsn,
    ) -> Result<(), OtherHistory> {
        match begin(theirs) {
            Some(begin) if begin <= at => self.compare(theirs, committed),
            _ => {
                let what = format!("it does not say who wrote what follows {at}");
                Err(self.other(at, theirs, Lsn::MAX, &what))
            }
        }
    }

    /// Notes that WAL of a log which was compared is being ingested. Returns false when the terms of more WAL are
    /// known than the log has committed: the log has to be compared again when it has committed more.
    pub fn follow(&mut self, theirs: &TermHistory, committed: Lsn) -> bool {
        if committed < self.up_to {
            return false;
        }
        let before = self.terms.entries().iter();
        let before = before.filter(|entry| begin(theirs).is_some_and(|it| entry.start_lsn < it));
        let all: Vec<TermStart> = before.chain(theirs.entries()).copied().collect();
        let surplus = all.len().saturating_sub(MAX_ENTRIES);
        self.terms = all.into_iter().skip(surplus).collect();
        true
    }

    fn other(&self, at: Lsn, theirs: &TermHistory, committed: Lsn, what: &str) -> OtherHistory {
        OtherHistory {
            at,
            text: format!(
                "another history: {what}; the WAL ingested up to {} is of the terms {}, the log here is of the terms {}",
                self.up_to,
                shown(&self.terms, at, self.up_to),
                shown(theirs, at, committed),
            ),
        }
    }
}

/// Where the first term of a history begins.
fn begin(history: &TermHistory) -> Option<Lsn> {
    history.entries().first().map(|first| first.start_lsn)
}

/// What the history says of a log that ends at `end`.
fn up_to(history: &TermHistory, end: Lsn) -> TermHistory {
    let entries = history.entries().iter().copied();
    entries.filter(|entry| entry.start_lsn < end).collect()
}

/// The history of the WAL that was ingested up to `at` by a program that did not note it: the history in which more
/// than half of the safekeepers have that WAL committed. `answers` are their commit LSNs and histories.
pub fn of_majority(
    answers: &[(Lsn, &TermHistory)],
    at: Lsn,
    safekeepers: usize,
) -> Option<Ingested> {
    let has_it = |(committed, _): &&(Lsn, &TermHistory)| *committed >= at;
    let said: Vec<TermHistory> = answers
        .iter()
        .filter(has_it)
        .map(|(_, history)| up_to(history, at))
        .collect();
    let votes = |one: &TermHistory| said.iter().filter(|it| *it == one).count();
    let found = said.iter().find(|one| votes(one) * 2 > safekeepers);
    let found = found.filter(|one| !one.entries().is_empty());
    found.map(|terms| Ingested {
        terms: terms.clone(),
        up_to: at,
    })
}

/// The terms that wrote WAL in `[from, to)`, without terms that wrote nothing there.
fn parts(history: &TermHistory, from: Lsn, to: Lsn) -> impl Iterator<Item = TermStart> {
    let entries = history.entries();
    entries
        .iter()
        .enumerate()
        .filter_map(move |(index, entry)| {
            let next = entries.get(index + 1).map_or(to, |next| next.start_lsn);
            let start_lsn = entry.start_lsn.max(from);
            let term: Term = entry.term;
            (start_lsn < next.min(to)).then_some(TermStart { term, start_lsn })
        })
}

/// The terms around `at` of a log that ends at `end`.
fn shown(history: &TermHistory, at: Lsn, end: Lsn) -> String {
    let cut = up_to(history, end);
    let entries = cut.entries();
    let behind = entries.partition_point(|entry| entry.start_lsn <= at);
    let from = behind.saturating_sub(SHOWN / 2);
    let to = entries.len().min(from + SHOWN);
    let one = |entry: &TermStart| format!("{} from {}", entry.term, entry.start_lsn);
    let mut said: Vec<String> = entries[from..to].iter().map(one).collect();
    if from > 0 {
        said.insert(0, "..".to_owned());
    }
    if to < entries.len() {
        said.push("..".to_owned());
    }
    match said.is_empty() {
        true => "(none)".to_owned(),
        false => format!("({})", said.join(", ")),
    }
}

#[cfg(test)]
#[path = "term_history_tests.rs"]
mod tests;
