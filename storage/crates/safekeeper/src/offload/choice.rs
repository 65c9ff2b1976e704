//! Which of the pieces in the store make up one log.

use blob::WalName;
use consensus::TermHistory;
use pg_types::Lsn;

/// Pieces that join, in order. They may overlap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Where the log is continued; what the first piece has before is not needed.
    pub from: Lsn,
    /// The pieces by their beginnings; none where nothing in the store continues the log.
    pub pieces: Vec<WalName>,
}

/// Why the pieces in the store make up no log. Nothing was taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChoiceError {
    /// Two pieces of the same range and term have different content. An operator moves the wrong one away.
    #[error(
        "the object store has two versions of the same WAL, {0} and {1}: two histories of this timeline used one term. Find out which of them is right, and move the other away"
    )]
    Ambiguous(WalName, WalName),
    /// A gap between pieces, in front of what was asked for. A log that may begin later begins behind it instead.
    #[error(
        "the object store has no WAL from {at} to {next}, and more behind it; begin the log where the pageserver is, or say up_to {at} to go without"
    )]
    Gap {
        /// End of the pieces before the gap; where the log ends, if there are none.
        at: Lsn,
        /// LSN of the first byte behind the gap.
        next: Lsn,
    },
}

/// The piece that says which history counts: of the highest term, the one that goes furthest. Whoever wins a term has
/// everything that is committed.
pub fn newest(names: &[WalName]) -> Option<WalName> {
    let furthest = |name: &&WalName| (name.term, name.end, std::cmp::Reverse(name.begin));
    names.iter().max_by_key(furthest).copied()
}

/// The pieces of the log with this history that bring it from `from` to `up_to`, or to the end of what there is. With
/// `may_skip` the log may begin later when there is a gap.
pub fn choose(
    names: &[WalName],
    history: &TermHistory,
    from: Lsn,
    up_to: Lsn,
    may_skip: bool,
) -> Result<Chain, ChoiceError> {
    let belongs = |name: &&WalName| {
        let wrote = history.written_before(name.end).last();
        wrote.is_some_and(|wrote| wrote.term == name.term) && name.begin < up_to && name.end > from
    };
    let mut ours: Vec<WalName> = names.iter().filter(belongs).copied().collect();
    ours.sort();
    let same = |pair: &&[WalName]| {
        let (one, other) = (pair[0], pair[1]);
        (one.begin, one.end, one.term) == (other.begin, other.end, other.term)
    };
    if let Some(pair) = ours.windows(2).find(same) {
        return Err(ChoiceError::Ambiguous(pair[0], pair[1]));
    }
    let mut chain = cover(&ours, from);
    let reached = chain.last().map_or(from, |last| last.end);
    let behind = |name: &&WalName| name.begin > reached;
    let Some(next) = ours.iter().find(behind) else {
        return Ok(Chain {
            from,
            pieces: chain,
        });
    };
    if !may_skip {
        let (at, next) = (reached, next.begin);
        return Err(ChoiceError::Gap { at, next });
    }
    let from = last_run(&ours, next.begin);
    chain = cover(&ours, from);
    Ok(Chain {
        from,
        pieces: chain,
    })
}

/// From `from` on as far as pieces join, each the one that goes furthest. `sorted` by their beginnings.
fn cover(sorted: &[WalName], from: Lsn) -> Vec<WalName> {
    let (mut chain, mut at) = (Vec::new(), from);
    loop {
        let joins = sorted
            .iter()
            .filter(|name| name.begin <= at && name.end > at);
        let Some(best) = joins.max_by_key(|name| name.end) else {
            return chain;
        };
        at = best.end;
        chain.push(*best);
    }
}

/// Where the pieces begin behind the last gap. `sorted` by their beginnings.
fn last_run(sorted: &[WalName], first: Lsn) -> Lsn {
    let (mut run, mut end) = (first, first);
    for name in sorted.iter().filter(|name| name.begin >= first) {
        if name.begin > end {
            run = name.begin;
        }
        end = end.max(name.end);
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use consensus::TermStart;
    use pg_types::{Term, WAL_SEGMENT_BYTES as S};

    fn piece(begin: u64, end: u64, term: u64) -> WalName {
        WalName {
            begin: Lsn(begin),
            end: Lsn(end),
            term: Term(term),
            crc: 0,
        }
    }

    fn history(entries: &[(u64, u64)]) -> TermHistory {
        let entry = |(term, start): &(u64, u64)| TermStart {
            term: Term(*term),
            start_lsn: Lsn(*start),
        };
        entries.iter().map(entry).collect()
    }

    fn chosen(
        names: &[WalName],
        terms: &[(u64, u64)],
        from: u64,
        may_skip: bool,
    ) -> Option<(u64, Vec<WalName>)> {
        let chain = choose(names, &history(terms), Lsn(from), Lsn::MAX, may_skip).ok()?;
        Some((chain.from.0, chain.pieces))
    }

    /// Promise: pieces of another history are left out, wherever it left the one that counts.
    #[test]
    fn one_history_is_chosen() {
        let ours = [piece(0, S, 1), piece(S, 2 * S, 3), piece(2 * S, 3 * S, 3)];
        let others = [
            piece(S, 2 * S, 2),
            piece(2 * S, 3 * S, 2),
            piece(3 * S, 4 * S, 2),
        ];
        let all = [&ours[..], &others].concat();
        assert_eq!(newest(&all), Some(ours[2]));
        let terms = [(1, 0), (3, S + 500)];
        assert_eq!(chosen(&all, &terms, 100, false), Some((100, ours.to_vec())));
        assert_eq!(
            chosen(&all, &terms, S, false),
            Some((S, ours[1..].to_vec()))
        );
        assert_eq!(chosen(&all, &terms, 3 * S, false), Some((3 * S, vec![])));
    }

    #[test]
    fn the_longest_of_overlapping_pieces_counts() {
        let (short, long, other) = (
            piece(S, S + 80, 1),
            piece(S, 2 * S, 1),
            piece(S + 40, 2 * S, 1),
        );
        let names = [piece(0, S, 1), short, other, long];
        let (_, pieces) = chosen(&names, &[(1, 0)], 0, false).expect("no gap");
        assert_eq!(pieces, [names[0], long]);
        let (_, pieces) = chosen(&names[..3], &[(1, 0)], 0, false).expect("no gap");
        assert_eq!(pieces, [names[0], short, other]);
    }

    #[test]
    fn a_gap_is_refused_or_left_behind() {
        let names = [
            piece(0, S, 1),
            piece(2 * S, 3 * S, 1),
            piece(4 * S, 5 * S, 1),
            piece(5 * S, 5 * S + 8, 1),
        ];
        let terms = history(&[(1, 0)]);
        let gap = choose(&names, &terms, Lsn(0), Lsn::MAX, false);
        let (at, next) = (Lsn(S), Lsn(2 * S));
        assert_eq!(gap, Err(ChoiceError::Gap { at, next }));
        let whole = choose(&names, &terms, Lsn(0), at, false).expect("up to the gap");
        assert_eq!(whole.pieces, names[..1]);
        assert_eq!(
            chosen(&names, &[(1, 0)], 0, true),
            Some((4 * S, names[2..].to_vec()))
        );
    }

    #[test]
    fn two_versions_of_one_piece_are_refused() {
        let other = WalName {
            crc: 1,
            ..piece(0, S, 1)
        };
        let both = [piece(0, S, 1), other];
        let refused = choose(&both, &history(&[(1, 0)]), Lsn(0), Lsn::MAX, true);
        assert!(
            matches!(refused, Err(ChoiceError::Ambiguous(..))),
            "{refused:?}"
        );
    }
}
