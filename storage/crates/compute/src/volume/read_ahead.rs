//! What to ask storage for before anybody reads it: one file's plan. Pure; [`super::ahead`] carries it out.
//!
//! A reader that goes on where an earlier read ended is a stream. From then on blocks ahead of it are asked for, at
//! most two for each block it has read and [`FIRST`] to begin with, and never more than the limit beyond where it is:
//! so the window doubles while it reads on, and a reader that stops or jumps about has cost little. A few streams live
//! side by side, because several backends may scan one table, each in a part of its own.

use std::ops::Range;

/// Blocks asked for when a reader has turned out to be sequential, before it has read more.
pub const FIRST: u32 = 16;
/// Blocks asked for at a time, once the window is that wide.
pub const REQUEST: u32 = 128;
/// How far from a stream a read may begin and still belong to it: the kernel and parallel workers read a little out
/// of order.
const SLACK: u32 = 128;
/// Streams remembered; the one that was read longest ago makes room.
const STREAMS: usize = 16;

/// One reader, or several close together.
#[derive(Debug)]
struct Stream {
    /// Where the furthest read ended.
    at: u32,
    /// Up to where blocks were asked for.
    asked: u32,
    /// Blocks that may be asked for, earned by reading.
    credit: u32,
    /// Whether any read went on where another ended.
    sequential: bool,
    last_read: u64,
}

impl Stream {
    fn continues(&self, read: &Range<u32>) -> bool {
        if self.sequential {
            let near = self.at.saturating_sub(SLACK)..=self.at.saturating_add(SLACK);
            read.end >= *near.start() && read.start <= *near.end().min(&self.asked.max(self.at))
        } else {
            read.start <= self.at && self.at < read.end
        }
    }
}

/// The readers of one file. Blocks are counted from the file's first.
#[derive(Debug, Default)]
pub struct ReadAhead {
    streams: Vec<Stream>,
    reads: u64,
}

impl ReadAhead {
    /// Notes that `read` is wanted, and says which blocks behind it to ask for now: none at or behind `end`, at most
    /// `most`, and never further than `window` blocks from the reader.
    pub fn read(&mut self, read: &Range<u32>, end: u32, window: u32, most: u32) -> Range<u32> {
        self.reads += 1;
        let (now, earned) = (self.reads, 2 * (read.end - read.start).min(window));
        let Some(stream) = self.streams.iter_mut().find(|it| it.continues(read)) else {
            self.begin(Stream {
                at: read.end,
                asked: read.end,
                credit: earned.min(window),
                sequential: false,
                last_read: now,
            });
            return 0..0;
        };
        stream.last_read = now;
        let first = if stream.sequential { 0 } else { FIRST };
        stream.sequential = true;
        stream.credit = (stream.credit + earned + first).min(window);
        stream.at = stream.at.max(read.end);
        stream.asked = stream.asked.max(stream.at);
        let distance = stream.asked - stream.at;
        let left = end.saturating_sub(stream.asked);
        let room = (stream.credit)
            .min(window.saturating_sub(distance))
            .min(left);
        // Not in crumbs: as much again as is under way, or all that is left.
        let worth = distance.clamp(FIRST, REQUEST).min(window / 2).min(left);
        if room.min(most) == 0 || room < worth {
            return 0..0;
        }
        let from = stream.asked;
        stream.asked += room.min(most);
        stream.credit -= room.min(most);
        from..stream.asked
    }

    fn begin(&mut self, stream: Stream) {
        if self.streams.len() < STREAMS {
            return self.streams.push(stream);
        }
        if let Some(oldest) = self.streams.iter_mut().min_by_key(|it| it.last_read) {
            *oldest = stream;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const WINDOW: u32 = 512;
    const END: u32 = 10_000;

    /// Reads block by block; what was asked for in all, each block once.
    fn scan(plan: &mut ReadAhead, blocks: impl Iterator<Item = u32>, end: u32) -> BTreeSet<u32> {
        let mut asked = BTreeSet::new();
        for block in blocks {
            for ahead in plan.read(&(block..block + 1), end, WINDOW, u32::MAX) {
                assert!(ahead > block, "{ahead} was asked for behind {block}");
                asked.insert(ahead);
            }
        }
        asked
    }

    #[test]
    fn a_scan_is_asked_for_ahead_to_the_files_end_and_no_further() {
        let mut plan = ReadAhead::default();
        let asked = scan(&mut plan, 0..END, END);
        assert_eq!(asked, (2..END).collect());
    }

    #[test]
    fn the_window_doubles_with_what_was_read_up_to_its_limit() {
        let mut plan = ReadAhead::default();
        let mut furthest = 0;
        for block in 0..END / 2 {
            let ahead = plan.read(&(block..block + 1), END, WINDOW, u32::MAX);
            furthest = furthest.max(ahead.end);
            let distance = furthest.saturating_sub(block + 1);
            assert!(distance <= WINDOW, "{distance} blocks ahead at {block}");
            if block >= 2 * WINDOW {
                assert!(distance >= WINDOW / 2, "{distance} blocks ahead at {block}");
            }
            if !ahead.is_empty() && block > 4 * WINDOW {
                assert!(ahead.len() as u32 >= REQUEST, "{ahead:?} at {block}");
            }
        }
    }

    #[test]
    fn reads_that_do_not_follow_one_another_ask_for_nothing() {
        let mut plan = ReadAhead::default();
        // Every other block, forwards and backwards: close together, none after another.
        let forwards = (0..END).step_by(2);
        assert_eq!(scan(&mut plan, forwards.clone(), END), BTreeSet::new());
        assert_eq!(scan(&mut plan, forwards.rev(), END), BTreeSet::new());
    }

    #[test]
    fn readers_in_turn_each_get_their_own_window() {
        let mut plan = ReadAhead::default();
        let starts = [0, 2_000, 4_000, 6_000];
        let reads = (0..1_500).flat_map(|step| starts.map(|start| start + step));
        let asked = scan(&mut plan, reads, END);
        for start in starts {
            let own = asked.range(start + 2..start + 1_500).count();
            assert_eq!(own, 1_498, "the reader that began at {start}");
        }
    }

    #[test]
    fn workers_that_take_turns_in_one_scan_keep_one_window() {
        let mut plan = ReadAhead::default();
        // Four workers, each with 32 blocks at a time, side by side.
        let round =
            |first: u32| (0..32).flat_map(move |step| (0..4).map(move |w| first + w * 32 + step));
        let reads = (0..END / 128).flat_map(|turn| round(turn * 128));
        let asked = scan(&mut plan, reads.filter(|block| *block < END), END);
        assert!(
            asked.len() as u32 > END * 9 / 10,
            "{} asked for",
            asked.len()
        );
    }

    #[test]
    fn what_may_not_be_asked_for_now_is_asked_for_later() {
        let mut plan = ReadAhead::default();
        for block in 0..100 {
            assert!(plan.read(&(block..block + 1), END, WINDOW, 0).is_empty());
        }
        let ahead = plan.read(&(100..101), END, WINDOW, 64);
        assert_eq!(ahead, 101..165);
    }

    #[test]
    fn no_window_means_no_read_ahead() {
        let mut plan = ReadAhead::default();
        for block in 0..1000 {
            assert!(plan.read(&(block..block + 1), END, 0, u32::MAX).is_empty());
        }
    }

    proptest! {
        #[test]
        fn never_more_is_asked_for_than_reading_has_earned(
            reads in prop::collection::vec((0..END, 1..64u32), 1..400),
            window in 1..2048u32,
        ) {
            let mut plan = ReadAhead::default();
            let (mut asked, mut read, mut confirmed) = (0u64, 0u64, 0u64);
            let mut before: Option<u32> = None;
            for (block, length) in reads {
                // Half of the reads go on where the one before ended.
                let start = before.filter(|_| block % 2 == 0).unwrap_or(block);
                let range = start..(start + length).min(END);
                if range.is_empty() {
                    continue;
                }
                before = Some(range.end);
                read += u64::from(range.end - range.start);
                confirmed += 1;
                let ahead = plan.read(&range, END, window, u32::MAX);
                prop_assert!(ahead.end <= END);
                prop_assert!(ahead.is_empty() || ahead.start >= range.end);
                asked += ahead.len() as u64;
                prop_assert!(asked <= 2 * read + u64::from(FIRST) * confirmed);
            }
        }
    }
}
