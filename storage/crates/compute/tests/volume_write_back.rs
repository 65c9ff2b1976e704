//! Promise: a write that the kernel hands over later is seen by whoever reads through the mount, counts for the quota
//! once, and is never lost in silence: one that fails closes the volume, which says why.
//!
//! Needs /dev/fuse and the right to mount, as a compute does.

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use compute::source::{PageSource, SourceError};
use compute::volume::mount::Mounted;
use compute::volume::{Volume, WriteMode, WriteThroughNeeded};
use pg_types::{BLCKSZ, ForkNumber, RelTag, SlruKind};
use support::Dir;

const PATIENCE: Duration = Duration::from_secs(20);
const DATABASE: u32 = 5;
/// The relation that storage lists; it fails to answer for its pages.
const LISTED: u32 = 100;
/// Blocks of it.
const BLOCKS: u32 = 8;

/// Storage that lists one relation and has lost its pages.
struct Forgetful;

impl PageSource for Forgetful {
    fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(vec![(1663, DATABASE)])
    }

    fn relations(&self, spc: u32, db: u32) -> Result<Vec<(RelTag, u32)>, SourceError> {
        let rel = RelTag {
            spc,
            db,
            rel: LISTED,
            fork: ForkNumber::Main,
        };
        Ok(vec![(rel, BLOCKS)])
    }

    fn slru_segments(&self, _kind: SlruKind) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(Vec::new())
    }

    fn pages(&self, _rel: RelTag, _blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        Err(SourceError::Failed("the pages are lost".into()))
    }

    fn slru_pages(&self, _kind: SlruKind, _pages: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        Err(SourceError::Failed("the pages are lost".into()))
    }
}

struct Bench {
    mounted: Mounted,
    mount: PathBuf,
    _dir: Dir,
}

fn written_back() -> Bench {
    let dir = Dir::new("weir-write-back-");
    let volume = Volume::new(Arc::new(Forgetful), dir.make("cache"), 64).unwrap();
    volume.writes().choose(WriteMode::Back);
    volume.quota().set(Some(1 << 40));
    volume.quota().heard(0);
    let mount = dir.make("volume");
    let mounted = Mounted::new(Arc::new(volume), &mount, 0, 0).unwrap();
    Bench {
        mounted,
        mount,
        _dir: dir,
    }
}

impl Bench {
    fn volume(&self) -> &Volume {
        self.mounted.volume()
    }

    fn relation(&self, number: u32) -> File {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.mount.join(format!("base/{DATABASE}/{number}")))
            .unwrap()
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn pages_are_read_as_written_before_and_after_they_are_handed_over() {
    let bench = written_back();
    assert_eq!(bench.volume().writes().mode(), WriteMode::Back);
    let file = bench.relation(20_000);
    let pages: Vec<Vec<u8>> = (0..600u32)
        .map(|n| vec![(n % 251) as u8 + 1; BLCKSZ])
        .collect();
    for (n, page) in pages.iter().enumerate() {
        file.write_all_at(page, (n * BLCKSZ) as u64).unwrap();
    }
    let stats = bench.volume().stats();
    let requests = stats.writes.load(Ordering::Relaxed);
    assert!(
        requests < 600,
        "{requests} requests for 600 writes: each one went through"
    );
    let read_all = || {
        for (n, page) in pages.iter().enumerate() {
            let mut buffer = vec![0; BLCKSZ];
            file.read_exact_at(&mut buffer, (n * BLCKSZ) as u64)
                .unwrap();
            assert!(buffer == *page, "page {n}");
        }
    };
    read_all();
    // Some pages once more, so that they are handed over twice; the quota must not count them twice.
    file.sync_all().unwrap();
    for n in [3, 599] {
        file.write_all_at(&pages[n], (n * BLCKSZ) as u64).unwrap();
    }
    file.sync_all().unwrap();
    let bytes = (600 * BLCKSZ) as u64;
    assert_eq!(bench.volume().quota().figures().0, Some(bytes));
    assert!(stats.bytes_written.load(Ordering::Relaxed) >= bytes);
    read_all();
    // What lies behind a cut is gone, whatever the kernel still had to hand over.
    file.write_all_at(&pages[5], (599 * BLCKSZ) as u64).unwrap();
    file.set_len((10 * BLCKSZ) as u64).unwrap();
    file.set_len((12 * BLCKSZ) as u64).unwrap();
    let mut buffer = vec![1; 2 * BLCKSZ];
    file.read_exact_at(&mut buffer, (10 * BLCKSZ) as u64)
        .unwrap();
    assert!(buffer.iter().all(|byte| *byte == 0));
    assert_eq!(bench.volume().write_through_needed(), None);
}

#[test]
fn a_write_that_fails_after_it_was_answered_closes_the_volume_and_says_why() {
    let bench = written_back();
    let file = bench.relation(LISTED);
    // Half a block that only storage has: the kernel takes it, and the volume needs the other half when it comes.
    file.write_all_at(&[7; BLCKSZ / 2], 0).unwrap();
    assert!(file.sync_all().is_err());
    eventually("the volume is closed", || bench.volume().is_closed());
    match bench.volume().write_through_needed() {
        Some(WriteThroughNeeded::Lost(why)) => assert!(why.contains("lost"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Nobody sees the block as it was before.
    let mut buffer = [0; BLCKSZ];
    let path = self::path(&bench, LISTED);
    let again =
        File::open(path).and_then(|file| file.read_exact_at(&mut buffer, 4 * BLCKSZ as u64));
    assert!(again.is_err());
}

fn path(bench: &Bench, number: u32) -> PathBuf {
    bench.mount.join(format!("base/{DATABASE}/{number}"))
}

#[test]
fn growth_near_the_quota_asks_for_a_volume_that_is_written_through() {
    let bench = written_back();
    bench.volume().quota().set(Some(300 << 20));
    assert_eq!(bench.volume().write_through_needed(), None);
    let file = bench.relation(20_000);
    let megabyte = vec![1; 1 << 20];
    for n in 0..50u64 {
        file.write_all_at(&megabyte, n << 20).unwrap();
    }
    file.sync_all().unwrap();
    match bench.volume().write_through_needed() {
        Some(WriteThroughNeeded::Quota(near)) => {
            assert_eq!((near.size, near.quota), (Some(50 << 20), 300 << 20));
        }
        other => panic!("{other:?}"),
    }
    // Nothing was refused, and reading goes on.
    assert!(!bench.volume().is_closed());
    bench.volume().quota().set(None);
    assert_eq!(bench.volume().write_through_needed(), None);
}

#[test]
fn writes_that_are_held_back_do_not_hold_back_the_end() {
    let bench = written_back();
    bench.volume().throttle().set(Duration::from_secs(60));
    let file = bench.relation(20_000);
    file.write_all_at(&vec![1; 64 * BLCKSZ], 0).unwrap();
    // Handed over by another thread, which waits for the answer.
    let syncing = file.try_clone().unwrap();
    let thread = std::thread::spawn(move || drop(syncing.sync_all()));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!thread.is_finished(), "the write was not held back");
    let started = Instant::now();
    bench.volume().close();
    thread.join().unwrap();
    drop(file);
    drop(bench);
    assert!(started.elapsed() < PATIENCE);
}
