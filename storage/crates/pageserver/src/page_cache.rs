//! A cache of values as they were made for a read: pages, and the sizes and truncations that every read needs.
//!
//! Invariants:
//! - An entry says: this is the value of its key at every LSN from `since` to `known_upto`, read with this floor.
//!   Both LSNs are facts about immutable versions, so an entry is never wrong and never has to be invalidated; a read
//!   at a later LSN looks only at the versions in between.
//! - Where one of the versions in between may have gone, because what it hid has gone, the entry says nothing about the
//!   later LSN: the versions it was made from may be those.
//! - A value that is read again is kept before a value that was read once, so that a scan does not push out hot
//!   values.
//!
//! Nothing here is stored; after a crash or a restart the cache is empty.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use pg_types::{BLCKSZ, Key, Lsn};
use prometheus::{IntCounter, IntGauge, register_int_counter, register_int_gauge};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// A store's number and a key.
type Slot = (u64, Key);

/// What an entry costs beside its value: itself, and its place in tables that grow by doubling.
const ENTRY_OVERHEAD: u64 = 184;
/// What a value's bytes cost beside themselves: the count of those who share them, and what the allocator rounds up.
/// Most entries are sizes of four bytes, for which this is nearly all.
const BYTES_OVERHEAD: u64 = 60;

/// What a key was found to hold.
#[derive(Clone, Debug)]
pub enum Made {
    /// 8192 bytes, or empty for a page of zeroes.
    Page(Bytes),
    /// `None` when the key does not exist.
    Meta(Option<Bytes>),
}

/// The value of one key as it was made for a read, and the LSNs and the floor for which it is valid.
#[derive(Debug)]
pub struct Entry {
    pub value: Made,
    since: Lsn,
    floor: Lsn,
    known_upto: AtomicU64,
}

impl Entry {
    /// A value that was made from the versions above `floor` as of `at`, the newest of which is of LSN `newest`.
    pub fn new(value: Made, newest: Option<Lsn>, floor: Lsn, at: Lsn) -> Entry {
        Entry {
            value,
            since: newest.unwrap_or_default().max(floor),
            floor,
            known_upto: AtomicU64::new(at.0),
        }
    }

    /// Up to which LSN this is the value, for a read at `at` that sees what is above `floor`; `None` when the entry
    /// says nothing about that read.
    pub fn known_upto(&self, floor: Lsn, at: Lsn) -> Option<Lsn> {
        let is_of_use = floor == self.floor && at >= self.since;
        is_of_use.then(|| Lsn(self.known_upto.load(Ordering::Acquire)))
    }

    /// Whether what is known up to `upto` leads to the value at `at` by what was put in between, versions up to `gone`
    /// being there no more that have hidden others.
    pub fn leads_on(upto: Lsn, at: Lsn, gone: Lsn) -> bool {
        upto >= at || upto >= gone
    }

    /// Whether the value is newer than what a read at `at` sees.
    pub fn is_later_than(&self, at: Lsn) -> bool {
        at < self.since
    }

    /// There is no version behind what was known, up to `at`.
    pub fn extend(&self, at: Lsn) {
        self.known_upto.fetch_max(at.0, Ordering::AcqRel);
    }
}

#[derive(Clone)]
struct EntryBytes;

impl Weighter<Slot, Arc<Entry>> for EntryBytes {
    fn weight(&self, _: &Slot, entry: &Arc<Entry>) -> u64 {
        let bytes = match &entry.value {
            Made::Page(page) => page.len(),
            Made::Meta(value) => value.as_ref().map_or(0, Bytes::len),
        };
        let own = match bytes {
            0 => 0,
            bytes => bytes as u64 + BYTES_OVERHEAD,
        };
        own + ENTRY_OVERHEAD
    }
}

/// Shared by all timelines of the process.
pub struct PageCache {
    entries: Cache<Slot, Arc<Entry>, EntryBytes>,
    next_store: AtomicU64,
}

impl PageCache {
    /// At most about so many bytes; of 0 bytes, it keeps nothing.
    pub fn new(bytes: usize) -> PageCache {
        PageCache {
            entries: Cache::with_weighter((bytes / BLCKSZ).max(16), bytes as u64, EntryBytes),
            next_store: AtomicU64::new(0),
        }
    }

    /// A number for a store, under which it keeps its values.
    pub fn register(&self) -> u64 {
        self.next_store.fetch_add(1, Ordering::Relaxed)
    }

    pub fn get(&self, store: u64, key: Key) -> Option<Arc<Entry>> {
        let found = self.entries.get(&(store, key));
        match &found {
            Some(_) => METRICS.hits.inc(),
            None => METRICS.misses.inc(),
        }
        found
    }

    pub fn insert(&self, store: u64, key: Key, entry: Entry) {
        self.entries.insert((store, key), Arc::new(entry));
        METRICS
            .bytes
            .set(i64::try_from(self.entries.weight()).unwrap_or(i64::MAX));
    }

    /// Lets go of everything a store that is gone has kept.
    pub fn forget(&self, store: u64) {
        self.entries.retain(|(of, _), _| *of != store);
    }
}

struct Metrics {
    hits: IntCounter,
    misses: IntCounter,
    bytes: IntGauge,
}

static METRICS: LazyLock<Metrics> = LazyLock::new(|| {
    // Names are constants, so that a failure can only be a programming error.
    let counter = |name, help| register_int_counter!(name, help).expect("metric registered once");
    Metrics {
        hits: counter(
            "weir_pageserver_page_cache_hits_total",
            "Pages, sizes and truncations that a read found as they had been made before",
        ),
        misses: counter(
            "weir_pageserver_page_cache_misses_total",
            "Pages, sizes and truncations that a read did not find made",
        ),
        bytes: register_int_gauge!(
            "weir_pageserver_page_cache_bytes",
            "Bytes of values kept as they were made"
        )
        .expect("metric registered once"),
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Made {
        Made::Page(Bytes::from(vec![byte; BLCKSZ]))
    }

    #[test]
    fn an_entry_speaks_only_of_what_it_knows() {
        let entry = Entry::new(page(1), Some(Lsn(20)), Lsn(10), Lsn(50));
        assert_eq!(
            entry.known_upto(Lsn(10), Lsn(19)),
            None,
            "older than its newest version"
        );
        assert_eq!(entry.known_upto(Lsn(11), Lsn(60)), None, "cut off since");
        assert_eq!(entry.known_upto(Lsn(10), Lsn(60)), Some(Lsn(50)));
        entry.extend(Lsn(70));
        entry.extend(Lsn(60));
        assert_eq!(entry.known_upto(Lsn(10), Lsn(20)), Some(Lsn(70)));
        // A page that was truncated away and has not been written since.
        let zero = Entry::new(Made::Page(Bytes::new()), None, Lsn(10), Lsn(50));
        assert_eq!(zero.known_upto(Lsn(10), Lsn(9)), None);
        assert_eq!(zero.known_upto(Lsn(10), Lsn(10)), Some(Lsn(50)));
    }

    #[test]
    fn an_entry_says_nothing_beyond_a_drop_that_is_gone_as_well() {
        let (before, dropped, later) = (Lsn(15), Lsn(20), Lsn(100));
        assert!(Entry::leads_on(before, later, Lsn::INVALID));
        assert!(!Entry::leads_on(before, later, dropped));
        assert!(Entry::leads_on(before, before, dropped), "what it knows");
        assert!(Entry::leads_on(dropped, later, dropped));
    }

    /// Promise: the limit is one on memory, also where all of it is sizes of relations that come and go.
    #[test]
    fn small_values_take_no_more_memory_than_the_limit() {
        let limit = 1 << 20;
        let mut cache = None;
        let allocated = allocation_counter::measure(|| {
            let cache = cache.insert(PageCache::new(limit));
            let store = cache.register();
            for number in 0..40_000_u32 {
                let size = Bytes::copy_from_slice(&number.to_le_bytes());
                let made = Made::Meta(Some(size.clone()));
                cache.insert(
                    store,
                    Key::aux(number),
                    Entry::new(made, None, Lsn(0), Lsn(1)),
                );
            }
        });
        // What malloc of glibc adds to each: eight bytes, and what it rounds up to 16, to 32 at least.
        let taken = allocated.bytes_current + 16 * allocated.count_current;
        assert!(taken > limit as i64 / 2, "{taken} bytes: nothing is kept");
        assert!(taken < limit as i64 * 5 / 4, "{taken} bytes of {limit}");
    }

    /// Promise: reading a relation many times the size of the cache leaves the pages that are read all the time.
    #[test]
    fn a_scan_does_not_push_out_the_hot_pages() {
        let fits = 1000_u32;
        let each = BLCKSZ + (BYTES_OVERHEAD + ENTRY_OVERHEAD) as usize;
        let cache = PageCache::new(fits as usize * each);
        let store = cache.register();
        let read = |number: u32| {
            let found = cache.get(store, Key::aux(number)).is_some();
            if !found {
                cache.insert(
                    store,
                    Key::aux(number),
                    Entry::new(page(1), None, Lsn(0), Lsn(1)),
                );
            }
            found
        };
        let hot = fits / 2;
        for _ in 0..4 {
            (0..hot).for_each(|number| {
                read(number);
            });
        }
        (hot..20 * fits).for_each(|number| {
            read(number);
        });
        let kept = (0..hot).filter(|number| read(*number)).count();
        assert!(
            kept >= hot as usize * 9 / 10,
            "{kept} of {hot} pages are left"
        );
        cache.forget(store);
        assert_eq!(cache.entries.len(), 0);
    }
}
