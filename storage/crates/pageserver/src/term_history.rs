//! Whose WAL a timeline has, and whether a safekeeper's log is the same.
//!
//! A log's history says which term wrote which part of it. Two logs that were written by the same terms up to a position
//! have the same bytes up to there; where the terms differ, at most one of them is the log whose WAL was ingested. All
//! here is pure.

use std::fmt;

use consensus::{TermHistory, TermStart};
use pg_types::{Lsn, Term};

/// As many as a log keeps itself.
const MAX_ENTRIES: usize = 1024;
/// Terms of a history that an error shows.
const SHOWN: usize = 6;

/// A log is not the one whose WAL was ingested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherHistory {
    /// From here on.
    pub at: Lsn,
    text: String,
}

impl fmt::Display for OtherHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Checks that a log with the history `theirs`, committed up to `committed`, has the WAL that `ours` is the history of,
/// as far as it goes and at most up to `ingested`. A log that was founded later, or has forgotten its oldest terms, says
/// nothing of what is before its first term.
pub fn compare(
    ours: &TermHistory,
    ingested: Lsn,
    theirs: &TermHistory,
    committed: Lsn,
) -> Result<(), OtherHistory> {
    let other = |at: Lsn, what: &str| {
        Err(OtherHistory {
            at,
            text: format!(
                "another history: {what}; the WAL ingested up to {ingested} is of the terms {}, the log here, committed up to {committed}, of the terms {}",
                shown(ours, at, ingested),
                shown(theirs, at, committed),
            ),
        })
    };
    if !theirs.is_ordered() {
        return other(Lsn::INVALID, "its terms are not in order");
    }
    let (Some(our_first), Some(their_first)) = (ours.entries().first(), theirs.entries().first())
    else {
        return Ok(());
    };
    let from = our_first.start_lsn.max(their_first.start_lsn);
    let to = ingested.min(committed);
    let (mut left, mut right) = (parts(ours, from, to), parts(theirs, from, to));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ok(()),
            (ours, theirs) if ours == theirs => {}
            (ours, theirs) => {
                let starts = [ours, theirs].into_iter().flatten();
                let at = starts.map(|part| part.start_lsn).min().unwrap_or(from);
                return other(at, &format!("they part at {at}"));
            }
        }
    }
}

/// The same for a log whose WAL behind `ingested` is about to be ingested.
pub fn compare_to_ingest(
    ours: &TermHistory,
    ingested: Lsn,
    theirs: &TermHistory,
) -> Result<(), OtherHistory> {
    let begins = theirs.entries().first().map(|first| first.start_lsn);
    if begins.is_none_or(|begins| begins > ingested) {
        return Err(OtherHistory {
            at: ingested,
            text: format!(
                "another history: the WAL ingested up to {ingested} is of the terms {}, the log here does not say who wrote what follows, its terms are {}",
                shown(ours, ingested, ingested),
                shown(theirs, ingested, Lsn::MAX),
            ),
        });
    }
    compare(ours, ingested, theirs, ingested)
}

/// The history of what is ingested once WAL of `theirs`, which was compared, is ingested as well.
pub fn continued(ours: &TermHistory, theirs: &TermHistory) -> TermHistory {
    let Some(first) = theirs.entries().first() else {
        return ours.clone();
    };
    let before = ours.entries().iter();
    let before = before.filter(|entry| entry.start_lsn < first.start_lsn);
    let all: Vec<TermStart> = before.chain(theirs.entries()).copied().collect();
    let surplus = all.len().saturating_sub(MAX_ENTRIES);
    all.into_iter().skip(surplus).collect()
}

/// What the history says of a log that ends at `end`.
pub fn up_to(history: &TermHistory, end: Lsn) -> TermHistory {
    let entries = history.entries().iter().copied();
    entries.filter(|entry| entry.start_lsn < end).collect()
}

/// The history of what was ingested up to `ingested` by a program that did not note it: what more than half of the
/// safekeepers say that have it committed. `answers` are their commit LSNs and histories.
pub fn of_majority(
    answers: &[(Lsn, &TermHistory)],
    ingested: Lsn,
    safekeepers: usize,
) -> Option<TermHistory> {
    let has_it = |(committed, _): &&(Lsn, &TermHistory)| *committed >= ingested;
    let said: Vec<TermHistory> = answers
        .iter()
        .filter(has_it)
        .map(|(_, history)| up_to(history, ingested))
        .collect();
    let votes = |one: &TermHistory| said.iter().filter(|it| *it == one).count();
    let found = said.iter().find(|one| votes(one) * 2 > safekeepers);
    found.filter(|one| !one.entries().is_empty()).cloned()
}

/// Who wrote what in `[from, to)`, without terms that wrote nothing there.
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
