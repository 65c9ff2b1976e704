//! A sample of the pages a compute has written, for reading them back from storage.

use parking_lot::Mutex;
use pg_types::{BLCKSZ, ForkNumber, RelTag};
use rand::RngExt as _;

/// Pages remembered at a time.
const SLOTS: usize = 4096;

/// Recently written blocks of main forks. Each written page takes a slot chosen by chance, so that the sample leans
/// towards the pages that are written most.
#[derive(Debug, Default)]
pub struct WrittenPages {
    slots: Mutex<Vec<(RelTag, u32)>>,
}

impl WrittenPages {
    /// Notes the whole pages among `length` bytes written at `offset` of the file that begins with `first_block`.
    pub(super) fn note(&self, rel: RelTag, first_block: u32, offset: u64, length: usize) {
        if rel.fork != ForkNumber::Main {
            return;
        }
        let page = BLCKSZ as u64;
        let whole = offset.div_ceil(page)..(offset + length as u64) / page;
        if whole.is_empty() {
            return;
        }
        let mut slots = self.slots.lock();
        for block in whole {
            let Ok(block) = u32::try_from(block) else {
                return;
            };
            let page = (rel, first_block.saturating_add(block));
            if slots.len() < SLOTS {
                slots.push(page);
            } else {
                let slot = rand::rng().random_range(0..SLOTS);
                slots[slot] = page;
            }
        }
    }

    /// One page by chance; `None` while nothing was written.
    pub fn sample(&self) -> Option<(RelTag, u32)> {
        let slots = self.slots.lock();
        if slots.is_empty() {
            return None;
        }
        Some(slots[rand::rng().random_range(0..slots.len())])
    }

    /// Forgets a page that turned out to be gone.
    pub fn forget(&self, page: (RelTag, u32)) {
        self.slots.lock().retain(|other| *other != page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_whole_page_of_a_write_is_noted() {
        let rel = RelTag {
            spc: 1663,
            db: 5,
            rel: 20_000,
            fork: ForkNumber::Main,
        };
        let page = BLCKSZ as u64;
        let noted = |offset: u64, length: usize| {
            let written = WrittenPages::default();
            written.note(rel, 100, offset, length);
            let mut blocks: Vec<u32> = written.slots.lock().iter().map(|slot| slot.1).collect();
            blocks.sort_unstable();
            blocks
        };
        assert_eq!(noted(2 * page, BLCKSZ), [102]);
        assert_eq!(noted(2 * page, 3 * BLCKSZ), [102, 103, 104]);
        // Pages that are written in part only may be anything in storage.
        assert_eq!(noted(2 * page + 4096, 2 * BLCKSZ), [103]);
        assert_eq!(noted(2 * page, 4096), Vec::<u32>::new());
    }
}
