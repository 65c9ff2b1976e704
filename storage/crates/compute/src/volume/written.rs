//! A sample of the pages a compute has written, for reading them back from storage.

use parking_lot::Mutex;
use pg_types::{BLCKSZ, ForkNumber, RelTag};
use rand::RngExt as _;

/// Pages remembered at a time.
const SLOTS: usize = 4096;

/// Recently written blocks of main forks. Each write takes a slot chosen by chance, so that the sample leans
/// towards the pages that are written most.
#[derive(Debug, Default)]
pub struct WrittenPages {
    slots: Mutex<Vec<(RelTag, u32)>>,
}

impl WrittenPages {
    pub(super) fn note(&self, rel: RelTag, first_block: u32, offset: u64, length: usize) {
        if rel.fork != ForkNumber::Main || length < BLCKSZ {
            return;
        }
        let Ok(block) = u32::try_from(offset / BLCKSZ as u64) else {
            return;
        };
        let page = (rel, first_block.saturating_add(block));
        let mut slots = self.slots.lock();
        if slots.len() < SLOTS {
            slots.push(page);
        } else {
            let slot = rand::rng().random_range(0..SLOTS);
            slots[slot] = page;
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
