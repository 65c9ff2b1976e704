//! Promise: a sequential reader finds its pages already here, a random one costs nothing more than it reads, and a
//! page that comes ahead of its reader never takes the place of what was written, cut off or removed meanwhile.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use compute::source::{PageSource, SourceError};
use compute::volume::Volume;
use compute::volume::tree::Node;
use parking_lot::{Condvar, Mutex};
use pg_types::{BLCKSZ, ForkNumber, RelTag, SlruKind};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

const BLOCKS: u32 = 2_000;
const REL: u32 = 100;

/// A relation whose pages say which they are, and a gate before some of them.
#[derive(Default)]
struct Storage {
    asked: Mutex<Vec<Vec<u32>>>,
    /// Requests for any of these wait.
    held: Mutex<BTreeSet<u32>>,
    opened: Condvar,
    /// Requests for any of these fail.
    gone: Mutex<BTreeSet<u32>>,
}

impl Storage {
    fn hold(&self, blocks: std::ops::Range<u32>) {
        self.held.lock().extend(blocks);
    }

    fn open(&self) {
        self.held.lock().clear();
        self.opened.notify_all();
    }

    fn pages_asked(&self) -> usize {
        self.asked.lock().iter().map(Vec::len).sum()
    }
}

fn page(block: u32) -> Vec<u8> {
    vec![(block % 251) as u8 + 1; BLCKSZ]
}

impl PageSource for Storage {
    fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(vec![(1663, 5)])
    }

    fn relations(&self, spc: u32, db: u32) -> Result<Vec<(RelTag, u32)>, SourceError> {
        let fork = ForkNumber::Main;
        let rel = RelTag {
            spc,
            db,
            rel: REL,
            fork,
        };
        Ok(if db == 5 {
            vec![(rel, BLOCKS)]
        } else {
            Vec::new()
        })
    }

    fn slru_segments(&self, _kind: SlruKind) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(Vec::new())
    }

    fn pages(&self, _rel: RelTag, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        self.asked.lock().push(blocks.to_vec());
        let mut held = self.held.lock();
        while blocks.iter().any(|block| held.contains(block)) {
            self.opened.wait(&mut held);
        }
        drop(held);
        let gone = self.gone.lock();
        match blocks.iter().find(|block| gone.contains(block)) {
            Some(block) => Err(SourceError::NotFound(format!("block {block}"))),
            None => Ok(blocks.iter().map(|block| page(*block).into()).collect()),
        }
    }

    fn slru_pages(&self, _kind: SlruKind, _pages: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        Err(SourceError::NotFound("no SLRU here".into()))
    }
}

fn volume(cache: &Path) -> (Arc<Storage>, Volume, Arc<Node>) {
    let storage = Arc::new(Storage::default());
    let volume = Volume::new(storage.clone(), cache.to_owned(), 16).unwrap();
    let node = volume.find("base/5/100").unwrap();
    (storage, volume, node)
}

fn read(volume: &Volume, node: &Arc<Node>, block: u32) -> Vec<u8> {
    let offset = u64::from(block) * BLCKSZ as u64;
    volume.read(node, offset, BLCKSZ as u64).unwrap()
}

fn size(blocks: u32) -> u64 {
    u64::from(blocks) * BLCKSZ as u64
}

#[test]
fn a_scan_gets_its_pages_in_large_requests_each_page_once() {
    let cache = tempfile::tempdir().unwrap();
    let (storage, volume, node) = volume(cache.path());
    for block in 0..BLOCKS {
        assert_eq!(read(&volume, &node, block), page(block), "block {block}");
    }
    let asked = storage.asked.lock();
    let all: BTreeSet<u32> = asked.iter().flatten().copied().collect();
    assert_eq!(
        asked.iter().map(Vec::len).sum::<usize>(),
        all.len(),
        "a page was asked for twice"
    );
    assert_eq!(all.len(), BLOCKS as usize);
    assert!(
        asked.iter().any(|request| request.len() >= 100),
        "no request was large"
    );
    let stats = volume.stats();
    let (ahead, used) = (&stats.pages_read_ahead, &stats.read_ahead_used);
    assert!(ahead.load(Ordering::Relaxed) > 0);
    assert_eq!(
        ahead.load(Ordering::Relaxed),
        used.load(Ordering::Relaxed),
        "all were read"
    );
}

#[test]
fn a_random_reader_is_given_what_it_reads_and_nothing_else() {
    let cache = tempfile::tempdir().unwrap();
    let (storage, volume, node) = volume(cache.path());
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    // Every third block, in any order: never one after another.
    let mut blocks: Vec<u32> = (0..BLOCKS).step_by(3).collect();
    blocks.shuffle(&mut random);
    for block in &blocks {
        assert_eq!(read(&volume, &node, *block), page(*block));
    }
    // Those that are here, again and again.
    for _ in 0..5_000 {
        let block = blocks[random.random_range(0..blocks.len())];
        assert_eq!(read(&volume, &node, block), page(block));
    }
    assert_eq!(storage.pages_asked(), blocks.len());
    assert_eq!(volume.stats().pages_read_ahead.load(Ordering::Relaxed), 0);
}

#[test]
fn without_a_window_only_what_is_read_is_fetched() {
    let cache = tempfile::tempdir().unwrap();
    let (storage, volume, node) = volume(cache.path());
    volume.set_read_ahead(0);
    for block in 0..100 {
        read(&volume, &node, block);
    }
    assert_eq!(
        *storage.asked.lock(),
        (0..100).map(|block| vec![block]).collect::<Vec<_>>()
    );
}

#[test]
fn what_changes_while_it_is_on_its_way_ahead_stays_changed() {
    let cache = tempfile::tempdir().unwrap();
    let (storage, volume, node) = volume(cache.path());
    storage.hold(2..1_000);
    read(&volume, &node, 0);
    // The reader is sequential from here on, and is not made to wait for what it has not asked for.
    read(&volume, &node, 1);
    assert_eq!(
        read(&volume, &node, 1_500),
        page(1_500),
        "another miss is served meanwhile"
    );
    volume.write(&node, size(5), &[200; BLCKSZ]).unwrap();
    assert_eq!(
        read(&volume, &node, 5),
        [200; BLCKSZ],
        "a write waits for nothing"
    );
    volume.truncate(&node, size(10)).unwrap();
    volume.write(&node, size(14), &[201; BLCKSZ]).unwrap();
    storage.open();
    assert_eq!(read(&volume, &node, 4), page(4));
    assert_eq!(read(&volume, &node, 5), [200; BLCKSZ]);
    // The whole request has come by now: block 4 was part of it.
    assert_eq!(read(&volume, &node, 12), [0; BLCKSZ], "cut off, then a gap");
    assert_eq!(read(&volume, &node, 14), [201; BLCKSZ]);
    drop(node);
    let everything = volume.get_file("base/5/100").unwrap();
    let expected: Vec<u8> = (0..15)
        .flat_map(|block| match block {
            5 => vec![200; BLCKSZ],
            10..14 => vec![0; BLCKSZ],
            14 => vec![201; BLCKSZ],
            _ => page(block),
        })
        .collect();
    assert!(everything == expected);
}

#[test]
fn a_file_dropped_and_made_anew_gets_no_page_of_the_old_one() {
    let cache = tempfile::tempdir().unwrap();
    let (storage, volume, node) = volume(cache.path());
    let directory = volume.find("base/5").unwrap().ino;
    storage.hold(2..BLOCKS);
    read(&volume, &node, 0);
    read(&volume, &node, 1);
    volume.unlink(directory, "100").unwrap();
    drop(node);
    let anew = volume.create(directory, "100", 0o600).unwrap();
    volume.truncate(&anew, size(20)).unwrap();
    storage.open();
    // Dropping the volume waits for the request.
    assert!(
        volume
            .get_file("base/5/100")
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    drop(anew);
    drop(volume);
    assert_eq!(
        std::fs::read_dir(cache.path()).unwrap().count(),
        0,
        "no cache file is left"
    );
}

#[test]
fn a_request_ahead_that_fails_costs_its_reader_nothing() {
    let cache = tempfile::tempdir().unwrap();
    let (storage, volume, node) = volume(cache.path());
    // As when a truncation has reached storage and not yet this file.
    storage.gone.lock().extend(300..BLOCKS);
    for block in 0..300 {
        assert_eq!(read(&volume, &node, block), page(block), "block {block}");
    }
    assert!(volume.read(&node, size(300), BLCKSZ as u64).is_err());
    // It does not last: nothing is still waited for.
    storage.gone.lock().clear();
    for block in 300..BLOCKS {
        assert_eq!(read(&volume, &node, block), page(block), "block {block}");
    }
}

#[test]
fn pages_ahead_that_nobody_will_read_are_counted() {
    let cache = tempfile::tempdir().unwrap();
    let (_storage, volume, node) = volume(cache.path());
    // The third block comes with a request of many more.
    for block in 0..3 {
        read(&volume, &node, block);
    }
    let directory = volume.find("base/5").unwrap().ino;
    volume.write(&node, size(3), &[1; BLCKSZ]).unwrap();
    volume.truncate(&node, size(10)).unwrap();
    volume.unlink(directory, "100").unwrap();
    drop(node);
    let stats = volume.stats().clone();
    // Waits for what is under way.
    drop(volume);
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let (ahead, used) = (
        count(&stats.pages_read_ahead),
        count(&stats.read_ahead_used),
    );
    assert!(ahead > used, "{ahead} came ahead, {used} were read");
    assert_eq!(ahead - used, count(&stats.read_ahead_unused));
}
