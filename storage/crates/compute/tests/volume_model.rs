//! Promise: whatever is done to a volume, it reads as a file system that held storage's files from the start;
//! what was cut off, removed or overwritten never shows storage's version again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use compute::source::{PageSource, SourceError};
use compute::volume::{Volume, VolumeError};
use pg_types::{BLCKSZ, ForkNumber, RelTag, SlruKind};
use proptest::prelude::*;

const DB: u32 = 5;
/// Relations and their sizes in storage.
const STORED: [(u32, u32); 4] = [(100, 0), (101, 1), (102, 7), (103, 150)];
/// Names used: the stored ones, one that only exists when created, and one that is no relation's.
const NAMES: [&str; 6] = ["100", "101", "102", "103", "200", "pg_internal.init"];

#[derive(Default)]
struct Storage {
    pages: AtomicU64,
}

fn page(rel: u32, block: u32) -> Vec<u8> {
    let mut page = vec![0; BLCKSZ];
    if block % 5 != 4 {
        for (i, byte) in page.iter_mut().enumerate() {
            *byte = (rel as usize * 31 + block as usize * 7 + i) as u8 | 1;
        }
    }
    page
}

impl PageSource for Storage {
    fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(vec![(1663, DB)])
    }

    fn relations(&self, spc: u32, db: u32) -> Result<Vec<(RelTag, u32)>, SourceError> {
        let fork = ForkNumber::Main;
        let all = STORED
            .iter()
            .map(|&(rel, blocks)| (RelTag { spc, db, rel, fork }, blocks));
        Ok(all.filter(|_| db == DB).collect())
    }

    fn slru_segments(&self, _kind: SlruKind) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(vec![(0, 3)])
    }

    fn pages(&self, rel: RelTag, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        self.pages.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        let size = STORED
            .iter()
            .find(|(stored, _)| *stored == rel.rel)
            .unwrap()
            .1;
        blocks
            .iter()
            .map(|&block| match block {
                _ if block >= size => Err(SourceError::NotFound(format!("block {block} of {rel}"))),
                _ if block % 5 == 4 => Ok(Bytes::new()),
                _ => Ok(page(rel.rel, block).into()),
            })
            .collect()
    }

    fn slru_pages(&self, _kind: SlruKind, pages: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        Ok(pages
            .iter()
            .map(|page| Bytes::from(vec![*page as u8 + 1; BLCKSZ]))
            .collect())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Read {
        file: usize,
        offset: u64,
        length: u64,
    },
    Scan {
        file: usize,
        from: u64,
        blocks: u64,
    },
    Write {
        file: usize,
        offset: u64,
        length: usize,
        fill: u8,
    },
    Truncate {
        file: usize,
        size: u64,
    },
    Unlink {
        file: usize,
    },
    Create {
        file: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    List,
}

fn position() -> impl Strategy<Value = u64> {
    let block = BLCKSZ as u64;
    prop_oneof![
        (0..160u64).prop_map(move |n| n * block),
        (0..8u64).prop_map(move |n| n * block),
        0..160 * block
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let file = 0..NAMES.len();
    prop_oneof![
        4 => (file.clone(), position(), 1..200_000u64).prop_map(|(file, offset, length)| Op::Read { file, offset, length }),
        2 => (file.clone(), 0..150u64, 2..80u64).prop_map(|(file, from, blocks)| Op::Scan { file, from, blocks }),
        3 => (file.clone(), position(), any::<u8>()).prop_map(|(file, offset, fill)| Op::Write { file, offset, length: BLCKSZ, fill }),
        2 => (file.clone(), position(), 1..40_000usize, any::<u8>())
            .prop_map(|(file, offset, length, fill)| Op::Write { file, offset, length, fill }),
        2 => (file.clone(), position()).prop_map(|(file, size)| Op::Truncate { file, size }),
        1 => file.clone().prop_map(|file| Op::Unlink { file }),
        1 => file.clone().prop_map(|file| Op::Create { file }),
        1 => (file.clone(), file).prop_map(|(from, to)| Op::Rename { from, to }),
        1 => Just(Op::List),
    ]
}

/// A file system that was given everything at the start.
struct Model {
    files: BTreeMap<String, Vec<u8>>,
}

impl Model {
    fn new() -> Model {
        let content =
            |(rel, blocks): (u32, u32)| (0..blocks).flat_map(|block| page(rel, block)).collect();
        let mut files: BTreeMap<String, Vec<u8>> = STORED
            .into_iter()
            .map(|stored| (stored.0.to_string(), content(stored)))
            .collect();
        files.insert("PG_VERSION".to_owned(), b"15\n".to_vec());
        Model { files }
    }
}

fn volume(cache: &std::path::Path) -> Volume {
    let volume = Volume::new(Arc::new(Storage::default()), cache.to_owned(), 16).unwrap();
    volume
        .put_file(&format!("base/{DB}/PG_VERSION"), b"15\n")
        .unwrap();
    volume
}

fn apply(volume: &Volume, model: &mut Model, op: &Op) -> Result<(), TestCaseError> {
    let directory = volume.find(&format!("base/{DB}")).unwrap().ino;
    let both = |name: &str| volume.lookup(directory, name);
    match *op {
        Op::Read {
            file,
            offset,
            length,
        } => match (both(NAMES[file]), model.files.get(NAMES[file])) {
            (Ok(node), Some(content)) => {
                let from = (offset as usize).min(content.len());
                let to = (offset + length).min(content.len() as u64) as usize;
                let read = volume.read(&node, offset, length).unwrap();
                prop_assert!(
                    read == content[from..to.max(from)],
                    "read {} at {offset}+{length}",
                    NAMES[file]
                );
            }
            (Err(VolumeError::NotFound), None) => {}
            (node, expected) => {
                prop_assert!(false, "{:?} but {}", node.map(|_| ()), expected.is_some())
            }
        },
        // Page by page: whatever is done next meets pages that are on their way ahead of this reader.
        Op::Scan { file, from, blocks } => {
            let length = BLCKSZ as u64;
            for block in from..from + blocks {
                let offset = block * length;
                apply(
                    volume,
                    model,
                    &Op::Read {
                        file,
                        offset,
                        length,
                    },
                )?;
            }
        }
        Op::Write {
            file,
            offset,
            length,
            fill,
        } => {
            if let (Ok(node), Some(content)) = (both(NAMES[file]), model.files.get_mut(NAMES[file]))
            {
                volume.write(&node, offset, &vec![fill; length]).unwrap();
                let end = offset as usize + length;
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].fill(fill);
            }
        }
        Op::Truncate { file, size } => {
            if let (Ok(node), Some(content)) = (both(NAMES[file]), model.files.get_mut(NAMES[file]))
            {
                volume.truncate(&node, size).unwrap();
                content.resize(size as usize, 0);
            }
        }
        Op::Unlink { file } => {
            let removed = volume.unlink(directory, NAMES[file]);
            prop_assert_eq!(removed.is_ok(), model.files.remove(NAMES[file]).is_some());
        }
        Op::Create { file } => {
            let created = volume.create(directory, NAMES[file], 0o600);
            prop_assert_eq!(created.is_err(), model.files.contains_key(NAMES[file]));
            model.files.entry(NAMES[file].to_owned()).or_default();
        }
        Op::Rename { from, to } => {
            let renamed = volume.rename(directory, NAMES[from], directory, NAMES[to]);
            prop_assert_eq!(renamed.is_ok(), model.files.contains_key(NAMES[from]));
            if let Some(content) = model.files.remove(NAMES[from]) {
                model.files.insert(NAMES[to].to_owned(), content);
            }
        }
        Op::List => {
            let mut names: Vec<String> = volume
                .entries(directory)
                .unwrap()
                .into_iter()
                .map(|(_, name, _)| name)
                .collect();
            names.sort();
            prop_assert_eq!(names, model.files.keys().cloned().collect::<Vec<_>>());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_volume_is_a_file_system_that_had_everything_from_the_start(
        budget in prop::option::of(0..40u64),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let cache = tempfile::tempdir().unwrap();
        let volume = volume(cache.path());
        volume.clean().set_budget(budget.map(|pages| pages * BLCKSZ as u64));
        let mut model = Model::new();
        for op in &ops {
            apply(&volume, &mut model, op)?;
        }
        for file in 0..NAMES.len() {
            apply(&volume, &mut model, &Op::Read { file, offset: 0, length: 4 << 20 })?;
        }
        apply(&volume, &mut model, &Op::List)?;
    }
}

#[test]
fn a_dropped_database_is_gone_and_a_new_one_starts_empty() {
    let cache = tempfile::tempdir().unwrap();
    let volume = volume(cache.path());
    let base = volume.find("base").unwrap().ino;
    assert!(matches!(
        volume.rmdir(base, "5"),
        Err(VolumeError::NotEmpty)
    ));
    let directory = volume.find("base/5").unwrap().ino;
    for (_, name, _) in volume.entries(directory).unwrap() {
        volume.unlink(directory, &name).unwrap();
    }
    volume.rmdir(base, "5").unwrap();
    assert!(matches!(volume.find("base/5"), Err(VolumeError::NotFound)));
    assert!(volume.entries(base).unwrap().is_empty());
    volume.mkdir(base, "5", 0o700).unwrap();
    assert!(
        volume
            .entries(volume.find("base/5").unwrap().ino)
            .unwrap()
            .is_empty()
    );
    assert!(matches!(
        volume.find("base/5/102"),
        Err(VolumeError::NotFound)
    ));
}

#[test]
fn an_open_file_outlives_its_name() {
    let cache = tempfile::tempdir().unwrap();
    let volume = volume(cache.path());
    // A page being put into the file ahead of its reader would keep the cache file for that moment.
    volume.set_read_ahead(0);
    let directory = volume.find("base/5").unwrap().ino;
    let ino = {
        let node = volume.find("base/5/102").unwrap();
        volume.looked_up(node.ino);
        volume.write(&node, 0, &[9; BLCKSZ]).unwrap();
        node.ino
    };
    volume.unlink(directory, "102").unwrap();
    volume.create(directory, "102", 0o600).unwrap();
    let node = volume.node(ino).unwrap();
    assert_eq!(volume.read(&node, 0, 8).unwrap(), [9; 8]);
    assert_eq!(
        volume.read(&node, BLCKSZ as u64, BLCKSZ as u64).unwrap(),
        page(102, 1)
    );
    drop(node);
    volume.forget(ino, 1);
    assert!(matches!(volume.node(ino), Err(VolumeError::NotFound)));
    assert_eq!(
        std::fs::read_dir(cache.path())
            .unwrap()
            .filter(|f| { f.as_ref().unwrap().file_name() == *ino.to_string() })
            .count(),
        0,
        "its cache file is gone"
    );
}

#[test]
fn readers_and_writers_of_one_file_see_writes_and_never_lose_them() {
    let cache = tempfile::tempdir().unwrap();
    let volume = volume(cache.path());
    let node = volume.find("base/5/103").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (volume, node) = (&volume, &node);
            scope.spawn(move || {
                for block in (writer..150).step_by(2) {
                    volume
                        .write(node, block * BLCKSZ as u64, &[200; BLCKSZ])
                        .unwrap();
                    let read = volume
                        .read(node, block * BLCKSZ as u64, BLCKSZ as u64)
                        .unwrap();
                    assert!(
                        read.iter().all(|byte| *byte == 200),
                        "block {block} lost its write"
                    );
                }
            });
        }
        for _ in 0..2 {
            let (volume, node) = (&volume, &node);
            scope.spawn(move || {
                for block in 0..150u32 {
                    let read = volume
                        .read(node, u64::from(block) * BLCKSZ as u64, BLCKSZ as u64)
                        .unwrap();
                    assert!(read == page(103, block) || read.iter().all(|byte| *byte == 200));
                }
            });
        }
    });
    assert!(
        volume
            .read(&node, 0, 150 * BLCKSZ as u64)
            .unwrap()
            .iter()
            .all(|byte| *byte == 200)
    );
}
