//! Promise: pages that came from storage and were not written take no more local disk than their budget, whatever is
//! read; what was written is never given back; and a read is answered even when the local disk takes nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use compute::source::{PageSource, SourceError};
use compute::volume::tree::Node;
use compute::volume::{Volume, VolumeError};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use pg_types::{BLCKSZ, ForkNumber, RelTag, SlruKind};

/// Blocks of each of storage's relations.
const BLOCKS: u32 = 2560;
const RELATIONS: [u32; 2] = [100, 101];
/// Pages; a tenth of one relation.
const BUDGET: u64 = 256;
const PAGE: u64 = BLCKSZ as u64;

#[derive(Default)]
struct Storage {
    pages: AtomicU64,
}

fn page(rel: u32, block: u32) -> Vec<u8> {
    let mut page = vec![(block % 251) as u8 + 1; BLCKSZ];
    page[..4].copy_from_slice(&rel.to_le_bytes());
    page[4..8].copy_from_slice(&block.to_le_bytes());
    page
}

impl PageSource for Storage {
    fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(vec![(1663, 5)])
    }

    fn relations(&self, spc: u32, db: u32) -> Result<Vec<(RelTag, u32)>, SourceError> {
        let fork = ForkNumber::Main;
        let all = RELATIONS.map(|rel| (RelTag { spc, db, rel, fork }, BLOCKS));
        Ok(all.into_iter().filter(|_| db == 5).collect())
    }

    fn slru_segments(&self, _kind: SlruKind) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(Vec::new())
    }

    fn pages(&self, rel: RelTag, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        self.pages.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        Ok(blocks
            .iter()
            .map(|block| page(rel.rel, *block).into())
            .collect())
    }

    fn slru_pages(&self, _kind: SlruKind, pages: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        Ok(vec![Bytes::new(); pages.len()])
    }
}

fn volume(cache: &Path) -> (Arc<Volume>, Arc<Storage>) {
    let storage = Arc::new(Storage::default());
    let volume = Volume::new(storage.clone(), cache.to_owned(), 64).unwrap();
    // What is read ahead comes in the background; without it each test knows what is here.
    volume.set_read_ahead(0);
    (Arc::new(volume), storage)
}

fn relation(volume: &Volume, number: u32) -> Arc<Node> {
    volume.find(&format!("base/5/{number}")).unwrap()
}

fn read(volume: &Volume, node: &Arc<Node>, block: u32) -> Vec<u8> {
    volume.read(node, u64::from(block) * PAGE, PAGE).unwrap()
}

/// Bytes that the files of a directory take on the disk.
fn disk(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().blocks() * 512)
        .sum()
}

#[test]
fn a_scan_of_ten_times_the_budget_takes_no_more_disk_than_that() {
    let cache = tempfile::tempdir().unwrap();
    let (volume, _) = volume(cache.path());
    volume.clean().set_budget(Some(BUDGET * PAGE));
    let node = relation(&volume, 100);
    for round in 0..2 {
        for block in 0..BLOCKS {
            assert!(
                read(&volume, &node, block) == page(100, block),
                "block {block}"
            );
            assert!(
                volume.clean().count() <= BUDGET,
                "round {round}, block {block}"
            );
        }
    }
    assert!(disk(cache.path()) <= BUDGET * PAGE + (1 << 20));
    let evicted = volume.stats().pages_evicted.load(Ordering::Relaxed);
    assert!(evicted > u64::from(BLOCKS), "{evicted}");
}

#[test]
fn pages_that_are_read_again_and_again_outlive_a_scan() {
    let cache = tempfile::tempdir().unwrap();
    let (volume, storage) = volume(cache.path());
    volume.clean().set_budget(Some(BUDGET * PAGE));
    let (hot, scanned) = (relation(&volume, 100), relation(&volume, 101));
    let read_hot = || (0..32).for_each(|block| drop(read(&volume, &hot, block)));
    read_hot();
    for block in 0..BLOCKS {
        read(&volume, &scanned, block);
        // Far more often than the hand comes around.
        if block % 4 == 0 {
            read_hot();
        }
    }
    let fetched = storage.pages.load(Ordering::Relaxed);
    let again = fetched - u64::from(BLOCKS) - 32;
    // Of 20,480 reads of pages in use. The clock is no exact least recently used.
    assert!(again < 500, "{again} pages in use were fetched again");
}

#[test]
fn what_was_written_or_cut_in_part_stays_whatever_is_read() {
    let cache = tempfile::tempdir().unwrap();
    let (volume, _) = volume(cache.path());
    volume.clean().set_budget(Some(16 * PAGE));
    let node = relation(&volume, 100);
    let length = BLOCKS - 100;
    for block in (0..length).step_by(3) {
        volume
            .write(&node, u64::from(block) * PAGE, &[9; BLCKSZ])
            .unwrap();
    }
    // A part of a page, and a page whose end is cut off and grown again.
    volume.write(&node, PAGE + 100, &[8; 100]).unwrap();
    let cut = u64::from(length) * PAGE + 1000;
    volume.truncate(&node, cut).unwrap();
    volume.truncate(&node, cut + 4 * PAGE).unwrap();
    let other = relation(&volume, 101);
    for block in 0..BLOCKS {
        read(&volume, &other, block);
    }
    for block in 0..length {
        let mut expected = page(100, block);
        if block % 3 == 0 {
            expected = vec![9; BLCKSZ];
        } else if block == 1 {
            expected[100..200].fill(8);
        }
        assert!(read(&volume, &node, block) == expected, "block {block}");
    }
    let mut last = page(100, length);
    last[1000..].fill(0);
    assert!(read(&volume, &node, length) == last);
    assert!(
        read(&volume, &node, length + 1)
            .iter()
            .all(|byte| *byte == 0)
    );
    assert!(volume.clean().count() <= 16);
}

#[test]
fn readers_and_writers_under_a_tiny_budget_see_what_was_written() {
    let cache = tempfile::tempdir().unwrap();
    let (volume, _) = volume(cache.path());
    volume.clean().set_budget(Some(8 * PAGE));
    let node = relation(&volume, 100);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (volume, node) = (&volume, &node);
            scope.spawn(move || {
                for block in (writer..400).step_by(2) {
                    volume
                        .write(node, u64::from(block) * PAGE, &[200; BLCKSZ])
                        .unwrap();
                    assert!(read(volume, node, block).iter().all(|byte| *byte == 200));
                }
            });
        }
        for reader in 0..4 {
            let (volume, node) = (&volume, &node);
            scope.spawn(move || {
                for n in 0..800 {
                    let block = (n * 7 + reader * 100) % 800;
                    let read = read(volume, node, block);
                    assert!(read == page(100, block) || read.iter().all(|byte| *byte == 200));
                }
            });
        }
    });
    for block in 0..400 {
        assert!(
            read(&volume, &node, block).iter().all(|byte| *byte == 200),
            "block {block}"
        );
    }
    assert!(volume.clean().count() <= 8);
}

#[test]
fn dropped_relations_take_no_part_of_the_budget() {
    let cache = tempfile::tempdir().unwrap();
    let (volume, _) = volume(cache.path());
    {
        let node = relation(&volume, 100);
        (0..100).for_each(|block| drop(read(&volume, &node, block)));
    }
    assert_eq!(volume.clean().count(), 100);
    let directory = volume.find("base/5").unwrap().ino;
    volume.unlink(directory, "100").unwrap();
    assert_eq!(volume.clean().count(), 0);
}

struct SmallDisk<'a>(&'a Path);

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        umount2(self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn a_read_is_answered_when_the_local_disk_is_full() {
    let cache = tempfile::tempdir().unwrap();
    let size = Some("size=256k");
    mount(
        Some("tmpfs"),
        cache.path(),
        Some("tmpfs"),
        MsFlags::empty(),
        size,
    )
    .unwrap();
    let _disk = SmallDisk(cache.path());
    let (volume, _) = volume(cache.path());
    let node = relation(&volume, 100);
    for block in 0..200 {
        assert!(
            read(&volume, &node, block) == page(100, block),
            "block {block}"
        );
    }
    // Several at once, of which the disk has some.
    let all = volume.read(&node, 0, 200 * PAGE).unwrap();
    for (block, bytes) in (0..).zip(all.chunks(BLCKSZ)) {
        assert!(bytes == page(100, block), "block {block}");
    }
    assert!(volume.stats().pages_not_kept.load(Ordering::Relaxed) > 100);
    // A write has to be kept.
    let refused = (0..200).find_map(|block| {
        let written = volume.write(&node, (1000 + block) * PAGE, &[1; BLCKSZ]);
        written.err()
    });
    assert!(matches!(refused, Some(VolumeError::Io(_))));
    assert!(read(&volume, &node, 150) == page(100, 150));
}
