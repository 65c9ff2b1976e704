//! Which copies of layers go when local disk is full. Pure but for the clock.

use std::sync::atomic::{AtomicU64, Ordering};

/// This part of the file system is left free, whatever the limit says: one part in so many.
const LEFT_FREE: u64 = 20;
/// Evictions go on until this part of the limit is free, one in so many, so that they come in batches.
const HEADROOM: u64 = 10;

/// When a copy was last read, if nobody knows.
pub(crate) const NEVER_USED: u64 = 0;
/// The first look. Looks before it are those of earlier processes, as far as they are remembered (`manager/warm`).
pub(crate) const FIRST_LOOK: u64 = 1 << 32;

/// Looks at the cache so far: a clock that costs a reader one load.
#[derive(Debug)]
pub struct Looks(AtomicU64);

impl Default for Looks {
    fn default() -> Looks {
        Looks(AtomicU64::new(FIRST_LOOK))
    }
}

impl Looks {
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the look at one resident copy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub bytes: u64,
    /// When it was last read, in looks.
    pub used: u64,
}

/// Which copies go, by their place: none while they take at most `limit` bytes, else the longest unused until a
/// tenth of the limit is free.
pub fn plan_eviction(copies: &[Copy], limit: u64) -> Vec<usize> {
    let mut total: u64 = copies.iter().map(|copy| copy.bytes).sum();
    if total <= limit {
        return Vec::new();
    }
    let mut longest_unused: Vec<usize> = (0..copies.len()).collect();
    longest_unused.sort_by_key(|at| copies[*at].used);
    let target = limit - limit / HEADROOM;
    let goes = longest_unused.into_iter().take_while(|at| {
        let is_too_much = total > target;
        total -= copies[*at].bytes;
        is_too_much
    });
    goes.collect()
}

/// Bytes that copies may take: at most `wanted`, and as much less as it takes to leave some of the disk free.
pub fn limit(wanted: u64, resident: u64, free: u64, size: u64) -> u64 {
    wanted.min((resident + free).saturating_sub(size / LEFT_FREE))
}

/// Bytes that can be fetched without an eviction, while copies of `resident` bytes are there: evictions would go on
/// until a tenth of `limit` is free, so a tenth stays free.
pub fn room(limit: u64, resident: u64) -> u64 {
    (limit - limit / HEADROOM).saturating_sub(resident)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_unused_go_until_a_tenth_is_free() {
        let copy = |bytes, used| Copy { bytes, used };
        let copies = [copy(40, 3), copy(30, 1), copy(30, 2), copy(10, 9)];
        assert_eq!(plan_eviction(&copies, 110), [] as [usize; 0]);
        assert_eq!(plan_eviction(&copies, 100), [1]);
        assert_eq!(plan_eviction(&copies, 60), [1, 2]);
        assert_eq!(plan_eviction(&copies, 0), [1, 2, 0, 3]);
    }

    #[test]
    fn what_fits_is_never_evicted_again() {
        assert_eq!(room(100, 0), 90);
        assert_eq!(room(100, 95), 0);
        assert_eq!(room(100, 50), 40);
    }

    #[test]
    fn a_full_disk_counts_more_than_the_limit() {
        assert_eq!(limit(1000, 0, 10_000, 20_000), 1000);
        assert_eq!(limit(1000, 500, 700, 20_000), 200);
        assert_eq!(limit(1000, 500, 100, 20_000), 0);
    }

    proptest! {
        /// What is left fits, nothing that was used later goes while something used earlier stays, and no more
        /// goes than needed.
        #[test]
        fn evictions_fit_and_are_least(
            sizes in prop::collection::vec((1_u64..100, 0_u64..50), 0..40),
            limit in 0_u64..2000,
        ) {
            let copies: Vec<Copy> = sizes.iter().map(|(bytes, used)| Copy { bytes: *bytes, used: *used }).collect();
            let gone = plan_eviction(&copies, limit);
            let total: u64 = copies.iter().map(|copy| copy.bytes).sum();
            let freed: u64 = gone.iter().map(|at| copies[*at].bytes).sum();
            prop_assert!(total - freed <= limit);
            let newest_gone = gone.iter().map(|at| copies[*at].used).max();
            let stays = (0..copies.len()).filter(|at| !gone.contains(at));
            for at in stays {
                prop_assert!(newest_gone.is_none_or(|used| used <= copies[at].used));
            }
            if let Some(last) = gone.last() {
                prop_assert!(total - freed + copies[*last].bytes > limit - limit / HEADROOM);
            }
        }
    }
}
