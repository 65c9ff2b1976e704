//! Reads that have not been reported to the chain counts yet.
//!
//! Ingest holds the lock of the chain counts while it counts a batch of records, and weighing one request takes as
//! long as redoing some deltas. So a read only notes how many deltas it replayed. The next holder of the chain counts
//! reports the noted reads before it counts later records, so that every read is weighed as if it had been reported
//! at once. A crash loses the noted reads, which only delays what the counts learn.

use std::sync::atomic::{AtomicU64, Ordering};

use layers::ChainCounts;
use pg_types::{Key, Lsn};
use smallvec::SmallVec;

use super::lock_order::{NOTED_READS, Ranked};

/// So many noted reads are worth a report of their own. Waking the task that reports takes longer than a read, so
/// only one read in this many pays for it.
const ENOUGH: usize = 1024;
/// At most so many reads are noted until the next report; further ones are dropped, because a part of a page's reads
/// is enough to learn how often the page is read.
const MOST: usize = 8 * ENOUGH;

/// Pages of one request, with the deltas that were replayed for each.
type Pages = SmallVec<[(Key, u32); 1]>;

/// Reads noted since the last report to the chain counts.
#[derive(Default)]
pub struct NotedReads {
    /// Each with the LSN it read at.
    requests: Ranked<NOTED_READS, Vec<(Lsn, Pages)>>,
    /// Requests for one page that was as an earlier read had made it.
    without_replay: AtomicU64,
}

impl NotedReads {
    /// Notes the pages of one read at `at`, each with the deltas replayed. Returns whether it is time to report.
    pub fn note(&self, pages: &[(Key, u32)], at: Lsn) -> bool {
        let mut requests = self.requests.lock();
        if requests.len() < MOST {
            requests.push((at, Pages::from_slice(pages)));
        }
        requests.len().is_multiple_of(ENOUGH)
    }

    /// Notes a request for one page that an earlier read had made, so that nothing was replayed.
    pub fn note_without_replay(&self) {
        self.without_replay.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports all noted reads to the chain counts and forgets them.
    pub fn pass_on(&self, counts: &mut ChainCounts) {
        let requests = std::mem::take(&mut *self.requests.lock());
        for (at, pages) in requests {
            counts.read(at, pages);
        }
        match self.without_replay.swap(0, Ordering::Relaxed) {
            0 => {}
            reads => counts.read_without_replay(reads),
        }
    }
}

#[cfg(test)]
mod tests {
    use layers::{ImageRule, Value};

    use super::*;

    fn written(pages: u32, deltas: u64) -> ChainCounts {
        let mut counts = ChainCounts::default();
        counts.set_rule(ImageRule::Adaptive { bound: 512 });
        for lsn in 1..=deltas {
            for page in 0..pages {
                let value = Value::Delta {
                    bytes: vec![0; 1000].into(),
                    starts_chain: lsn == 1,
                };
                counts.ingested(&page_key(page), Lsn(lsn), &value);
            }
        }
        counts
    }

    fn page_key(number: u32) -> Key {
        Key::rel_block(
            pg_types::RelTag {
                spc: 1663,
                db: 5,
                rel: 16384,
                fork: pg_types::ForkNumber::Main,
            },
            number,
        )
    }

    #[test]
    fn what_is_told_later_is_what_would_have_been_told_at_once() {
        let (mut at_once, mut later) = (written(8, 100), written(8, 100));
        let noted = NotedReads::default();
        for number in 0..500_u32 {
            let pages = [number, number + 1].map(|page| (page_key(page % 8), 100));
            at_once.read(Lsn(100), pages);
            noted.note(&pages, Lsn(100));
        }
        assert_ne!(at_once.policy(), later.policy(), "reads make a difference");
        noted.pass_on(&mut later);
        assert_eq!(at_once.policy(), later.policy());
        assert_eq!(at_once.plan(8, false), later.plan(8, false));
        noted.pass_on(&mut later);
        assert_eq!(at_once.policy(), later.policy(), "each is told once");
    }

    #[test]
    fn it_asks_to_be_told_and_keeps_no_more_than_it_may() {
        let noted = NotedReads::default();
        let times =
            (0..MOST as u32 + 10).filter(|number| noted.note(&[(page_key(*number), 1)], Lsn(1)));
        assert_eq!(times.count(), MOST / ENOUGH + 10, "and goes on asking");
        assert_eq!(noted.requests.lock().len(), MOST);
    }
}
