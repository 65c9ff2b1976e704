//! Which versions of a relation fork's blocks are hidden by truncation.
//!
//! A dropped or truncated block leaves its old versions in immutable layers, and a relfilenode can be
//! used again. Nothing rewrites those layers: the fork keeps the list of truncations instead, and a read
//! of block `b` ignores every version at or below the block's *floor*, the newest truncation at or before
//! the read LSN that cut the fork to `b` blocks or fewer. An extension therefore writes nothing for the
//! gap it leaves: within the size and without a visible version, a block is zeroes.
//!
//! Invariant: events are in LSN order and their sizes strictly increase. A truncation hides everything
//! that an earlier one to the same or a larger size hid, so those are removed ("dominated"). The whole list goes once
//! nothing is left that it hides (`timeline::compaction`).

use pg_types::Lsn;
use serde::{Deserialize, Serialize};

/// One truncation: at `lsn` the fork was cut to `blocks` blocks (0 when it was dropped).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncation {
    /// End of the record that cut the fork.
    pub lsn: Lsn,
    /// Blocks that the fork had left.
    pub blocks: u32,
}

/// The value stored under `Key::rel_floor`: the truncations that can still hide something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelFloor {
    events: Vec<Truncation>,
}

impl RelFloor {
    /// Records a truncation later than all recorded ones.
    pub fn truncate(&mut self, lsn: Lsn, blocks: u32) {
        debug_assert!(self.events.last().is_none_or(|last| last.lsn <= lsn));
        self.events.retain(|event| event.blocks < blocks);
        self.events.push(Truncation { lsn, blocks });
    }

    /// The first block of which it hides anything; `None` when it hides nothing.
    pub fn first_block(&self) -> Option<u32> {
        self.events.first().map(|event| event.blocks)
    }

    /// The newest truncation; [`Lsn::INVALID`] without any.
    pub fn newest(&self) -> Lsn {
        self.events.last().map_or(Lsn::INVALID, |event| event.lsn)
    }

    /// Versions of `block` at or below this LSN are invisible; `Lsn::INVALID` when none is.
    pub fn of_block(&self, block: u32) -> Lsn {
        let hiding = self.events.iter().rev().find(|event| event.blocks <= block);
        hiding.map_or(Lsn::INVALID, |event| event.lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_truncation_that_reaches_a_block_hides_its_versions() {
        let mut floor = RelFloor::default();
        assert_eq!(floor.of_block(0), Lsn::INVALID);
        floor.truncate(Lsn(100), 10);
        floor.truncate(Lsn(200), 50);
        assert_eq!(floor.of_block(9), Lsn::INVALID);
        assert_eq!(floor.of_block(10), Lsn(100));
        assert_eq!(floor.of_block(49), Lsn(100));
        assert_eq!(floor.of_block(50), Lsn(200));
        floor.truncate(Lsn(300), 0);
        assert_eq!(floor.of_block(0), Lsn(300));
        assert_eq!(floor.of_block(u32::MAX), Lsn(300));
        floor.truncate(Lsn(400), 20);
        assert_eq!((floor.first_block(), floor.newest()), (Some(0), Lsn(400)));
        floor.truncate(Lsn(500), 0);
        assert_eq!(
            floor.events.len(),
            1,
            "a drop dominates every earlier truncation"
        );
    }

    /// Promise: removing dominated events never changes an answer.
    #[test]
    fn the_staircase_answers_as_the_full_history_does() {
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..200 {
            let mut floor = RelFloor::default();
            let mut history = Vec::new();
            for step in 1..=20_u64 {
                let blocks = (random() % 12) as u32;
                floor.truncate(Lsn(step * 8), blocks);
                history.push((Lsn(step * 8), blocks));
                for block in 0..14 {
                    let expected = history
                        .iter()
                        .rev()
                        .find(|(_, n)| *n <= block)
                        .map_or(Lsn::INVALID, |(l, _)| *l);
                    assert_eq!(floor.of_block(block), expected);
                }
            }
        }
    }
}
