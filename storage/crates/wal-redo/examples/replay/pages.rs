//! Pages in memory: those of the cluster as it was, and those replay has touched.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use anyhow::Result;
use pg_types::{BLCKSZ, ForkNumber, Key, RelTag};
use wal_decode::MetaChange;
use wal_redo::Page;

use crate::Start;
use crate::files;

/// Keys come from our own WAL, so that a fast hash will do.
#[derive(Default)]
pub struct KeyHasher(u64);

impl KeyHasher {
    fn mix(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_isize(&mut self, value: isize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        // The table takes the upper bits for one thing and the lower for another.
        self.0 ^ self.0 >> 32
    }
}

/// As a server's buffers over its files: a page is copied from the file when it is first changed.
struct Slot {
    file: Option<Box<Page>>,
    buffer: Option<u32>,
}

/// Buffers beyond those for every page there was at the start.
const SPARE_BUFFERS: usize = 16 << 10;

/// No slot.
const NONE: u32 = u32::MAX;

/// Every page by its key; a slot's number never changes.
#[derive(Default)]
pub struct Pages {
    /// Of each relation fork or SLRU, by block: the number of its slot, or `NONE`. The key's block is 0.
    forks: HashMap<Key, Vec<u32>, BuildHasherDefault<KeyHasher>>,
    slots: Vec<Slot>,
    /// Memory that the kernel has given already: its cost is not redo's.
    buffers: Vec<Page>,
    used: usize,
}

impl Pages {
    pub fn load(start: &Start) -> Result<Pages> {
        let mut pages = Pages::default();
        files::for_each_page(&start.data, |key, page| {
            let number = pages.number(key);
            pages.slots[number as usize].file = Some(Box::new(*page));
        })?;
        pages.buffers = vec![[1; BLCKSZ]; pages.slots.len() + SPARE_BUFFERS];
        Ok(pages)
    }

    /// The slot of a page, made when there is none.
    pub fn number(&mut self, key: Key) -> u32 {
        let blocks = self.forks.entry(Key { e: 0, ..key }).or_default();
        let at = key.e as usize;
        if at >= blocks.len() {
            blocks.resize(at + 1, NONE);
        }
        if blocks[at] == NONE {
            blocks[at] = self.slots.len() as u32;
            self.slots.push(Slot {
                file: None,
                buffer: None,
            });
        }
        blocks[at]
    }

    /// The page to change; one that never was is of zeroes.
    pub fn slot(&mut self, number: u32) -> &mut Page {
        let slot = &mut self.slots[number as usize];
        let buffer = match slot.buffer {
            Some(buffer) => buffer as usize,
            None => {
                let buffer = self.used;
                self.used += 1;
                if buffer == self.buffers.len() {
                    self.buffers.push([0; BLCKSZ]);
                }
                match &slot.file {
                    Some(page) => self.buffers[buffer] = **page,
                    None => self.buffers[buffer].fill(0),
                }
                slot.buffer = Some(buffer as u32);
                buffer
            }
        };
        &mut self.buffers[buffer]
    }

    pub fn get(&mut self, key: Key) -> &mut Page {
        let number = self.number(key);
        self.slot(number)
    }

    pub fn put(&mut self, key: Key, page: &[u8]) {
        self.get(key).copy_from_slice(page);
    }

    pub fn touched(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| slot.buffer.is_some())
            .count()
    }

    pub fn apply(&mut self, change: &MetaChange) {
        match change {
            MetaChange::CreateRel(rel) => self.cut(*rel, 0),
            MetaChange::TruncateRel { rel, blocks } => self.cut(*rel, *blocks),
            MetaChange::DropRels(rels) => {
                for rel in rels {
                    for fork in ForkNumber::ALL {
                        self.cut(rel.with_fork(fork), 0);
                    }
                }
            }
            MetaChange::SlruExtend { kind, pageno } => {
                self.put(Key::slru_block(*kind, *pageno), &[0; BLCKSZ]);
            }
            // What else there is does not occur in the WAL of a TPROC-C run, or leaves pages as they are.
            _ => {}
        }
    }

    fn cut(&mut self, rel: RelTag, blocks: u32) {
        let fork = Key::rel_block(rel, 0);
        let Some(numbers) = self.forks.get(&fork) else {
            return;
        };
        for number in numbers.iter().skip(blocks as usize) {
            if let Some(slot) = self.slots.get_mut(*number as usize) {
                (slot.file, slot.buffer) = (None, None);
            }
        }
    }
}
