//! Which piece of a log is next to be offloaded, and which member does it first.

use std::ops::Range;
use std::time::Duration;

use consensus::{Configuration, MemberId};
use pg_types::{Lsn, TimelineId, WAL_SEGMENT_BYTES};

use crate::positions::Positions;

/// How much later each further voter uploads what those before it have not.
pub const FALLBACK: Duration = Duration::from_secs(10);

/// The bytes to offload next when everything up to `done` is: to the end of a segment, or of a log that is idle. Nothing
/// that is not committed, and nothing that is durable as pages.
pub fn next(positions: Positions, done: Lsn, idle: bool) -> Option<Range<Lsn>> {
    let from = done.max(positions.horizon);
    let segment = Lsn(from.0 - from.0 % WAL_SEGMENT_BYTES);
    let finished = segment + WAL_SEGMENT_BYTES;
    let begin = segment.max(positions.oldest);
    if finished <= positions.commit {
        return Some(begin..finished);
    }
    (idle && positions.commit > from).then_some(begin..positions.commit)
}

/// How many voters upload before this one: another order for each timeline, the same on every member.
pub fn rank(member: MemberId, configuration: &Configuration, timeline: TimelineId) -> u32 {
    let mut voters: Vec<MemberId> = configuration.voters().collect();
    voters.sort();
    let Some(place) = voters.iter().position(|voter| *voter == member) else {
        // The log does not name its members yet.
        return (member.node.saturating_sub(1) % 8) as u32;
    };
    let first = usize::from(timeline.0[15]) % voters.len();
    ((place + voters.len() - first) % voters.len()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_types::DiskId;

    const S: u64 = WAL_SEGMENT_BYTES;

    fn at(oldest: u64, horizon: u64, commit: u64) -> Positions {
        Positions {
            oldest: Lsn(oldest),
            horizon: Lsn(horizon),
            commit: Lsn(commit),
        }
    }

    #[test]
    fn only_finished_and_committed_segments_are_offloaded_while_the_log_grows() {
        let cases = [
            (at(S + 100, S + 100, 2 * S - 8), 0, None),
            (at(S + 100, S + 100, 2 * S), 0, Some(S + 100..2 * S)),
            (at(S + 100, S + 100, 3 * S + 8), 2 * S, Some(2 * S..3 * S)),
            (at(S + 100, S + 100, 3 * S + 8), 3 * S, None),
            // What is durable as pages is left out.
            (at(S, 3 * S + 5, 5 * S), 2 * S, Some(3 * S..4 * S)),
            // After an idle end of a log, its segment comes as a whole.
            (at(S, S, 3 * S), 2 * S + 800, Some(2 * S..3 * S)),
        ];
        for (positions, done, expected) in cases {
            let expected = expected.map(|range| Lsn(range.start)..Lsn(range.end));
            assert_eq!(
                next(positions, Lsn(done), false),
                expected,
                "{positions:?} {done}"
            );
        }
    }

    #[test]
    fn the_end_of_an_idle_log_is_offloaded_once() {
        let positions = at(S + 100, S + 100, 2 * S + 800);
        let expected = Some(Lsn(2 * S)..Lsn(2 * S + 800));
        assert_eq!(next(positions, Lsn(2 * S), true), expected);
        assert_eq!(next(positions, Lsn(2 * S + 800), true), None);
        assert_eq!(next(at(S, S + 8, S + 8), Lsn(0), true), None);
    }

    #[test]
    fn every_voter_has_a_rank_of_its_own() {
        let id = |node: u64| MemberId {
            node,
            disk: DiskId([node as u8; 16]),
            incarnation: 1,
        };
        let three = Configuration::founding(&[id(1), id(2), id(3)]).expect("distinct");
        for timeline in 0..7 {
            let ranks = |of: &Configuration| {
                let rank = |node| rank(id(node), of, TimelineId([timeline; 16]));
                let mut ranks = [1, 2, 3].map(rank);
                ranks.sort_unstable();
                ranks
            };
            assert_eq!(ranks(&three), [0, 1, 2]);
            assert_eq!(ranks(&Configuration::default()), [0, 1, 2]);
        }
    }
}
