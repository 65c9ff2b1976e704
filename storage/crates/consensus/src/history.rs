//! Which term wrote which part of a log.

use pg_types::{Lsn, Term};
use serde::{Deserialize, Serialize};

/// Terms kept when a new one is added. Older ones only matter to an acceptor that has been away for as many
/// elections, and that one falls back to its commit LSN.
const MAX_ENTRIES: usize = 1024;

/// A term and where its WAL begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TermStart {
    /// Number of the term.
    pub term: Term,
    /// LSN of the first byte that the term wrote or will write.
    pub start_lsn: Lsn,
}

/// Terms in the order in which they wrote: terms strictly increase, positions never decrease. The WAL of an
/// entry reaches to the start of the next one, or to the end of the log.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TermHistory(Vec<TermStart>);

impl TermHistory {
    /// The terms with where they begin, the oldest first.
    pub fn entries(&self) -> &[TermStart] {
        &self.0
    }

    /// The newest term; `None` for a log that no term was announced to.
    pub fn last(&self) -> Option<TermStart> {
        self.0.last().copied()
    }

    /// Whether the order that every history keeps holds; false for one that a broken peer sent.
    pub fn is_ordered(&self) -> bool {
        self.0
            .windows(2)
            .all(|pair| pair[0].term < pair[1].term && pair[0].start_lsn <= pair[1].start_lsn)
    }

    /// The term that a log ending at `end` was last extended under; 0 for a log no term has touched. A term
    /// announced to start beyond `end` does not count: nothing of it is here.
    pub fn term_at(&self, end: Lsn) -> Term {
        self.0
            .iter()
            .rev()
            .find(|entry| entry.start_lsn <= end)
            .map_or(Term(0), |entry| entry.term)
    }

    /// The terms that wrote something before `end`.
    pub fn written_before(&self, end: Lsn) -> TermHistory {
        let wrote = |entry: &&TermStart| entry.start_lsn < end;
        self.0.iter().filter(wrote).copied().collect()
    }

    /// This history cut to a log that ends at `start_lsn`, and continued there by `term`.
    pub fn continued_by(&self, term: Term, start_lsn: Lsn) -> TermHistory {
        let mut entries: Vec<TermStart> = self
            .0
            .iter()
            .copied()
            .filter(|entry| entry.start_lsn <= start_lsn)
            .collect();
        entries.push(TermStart { term, start_lsn });
        let surplus = entries.len().saturating_sub(MAX_ENTRIES);
        entries.drain(..surplus);
        TermHistory(entries)
    }

    /// Where the WAL of entry `index` ends in a log that ends at `log_end`.
    fn end_of(&self, index: usize, log_end: Lsn) -> Lsn {
        self.0
            .get(index + 1)
            .map_or(log_end, |next| next.start_lsn.min(log_end))
    }

    /// The highest position up to which a log with this history, ending at `end`, and a log with history
    /// `other` are equal. `None` when they share no term.
    pub fn common_point(&self, end: Lsn, other: &TermHistory) -> Option<Lsn> {
        self.0.iter().enumerate().rev().find_map(|(mine, entry)| {
            let theirs = other
                .0
                .iter()
                .position(|candidate| candidate.term == entry.term)?;
            Some(self.end_of(mine, end).min(other.end_of(theirs, Lsn::MAX)))
        })
    }
}

impl FromIterator<TermStart> for TermHistory {
    fn from_iter<I: IntoIterator<Item = TermStart>>(entries: I) -> TermHistory {
        TermHistory(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(u64, u64)]) -> TermHistory {
        entries
            .iter()
            .map(|(term, lsn)| TermStart {
                term: Term(*term),
                start_lsn: Lsn(*lsn),
            })
            .collect()
    }

    #[test]
    fn logs_agree_up_to_the_end_of_their_last_shared_term() {
        let mine = history(&[(1, 0), (2, 100), (4, 200)]);
        let cases = [
            (
                history(&[(1, 0), (2, 100), (4, 200), (5, 260)]),
                300,
                Some(260),
            ),
            (
                history(&[(1, 0), (2, 100), (4, 200), (5, 260)]),
                250,
                Some(250),
            ),
            (history(&[(1, 0), (2, 100), (3, 150)]), 300, Some(150)),
            (history(&[(1, 0), (3, 50)]), 300, Some(50)),
            (history(&[(1, 0), (5, 500)]), 300, Some(100)),
            (history(&[(9, 0)]), 300, None),
        ];
        for (other, end, expected) in cases {
            assert_eq!(
                mine.common_point(Lsn(end), &other),
                expected.map(Lsn),
                "{other:?} {end}"
            );
        }
    }

    #[test]
    fn a_term_beyond_the_end_of_the_log_does_not_count() {
        let history = history(&[(1, 0), (7, 100)]);
        assert_eq!(history.term_at(Lsn(99)), Term(1));
        assert_eq!(history.term_at(Lsn(100)), Term(7));
        assert_eq!(history.continued_by(Term(8), Lsn(90)).entries().len(), 2);
    }
}
