//! Pages in memory: those of the cluster as it was, and those replay has touched.

use std::collections::HashMap;

use anyhow::Result;
use foldhash::fast::RandomState;
use pg_types::{BLCKSZ, ForkNumber, Key, RelTag};
use wal_decode::MetaChange;
use wal_redo::Page;

use crate::Start;
use crate::files;

/// As a server's buffers over its files: a page is copied from the file when it is first changed.
struct Slot {
    file: Option<Box<Page>>,
    buffer: Option<u32>,
}

/// Buffers beyond those for every page there was at the start.
const SPARE_BUFFERS: usize = 16 << 10;

/// Forks found without a look at the table.
const RECENT: usize = 64;

/// No slot.
const NONE: u32 = u32::MAX;

/// Every page by its key; a slot's number never changes.
pub struct Pages {
    /// Number of each relation fork or SLRU. The key's block is 0.
    forks: HashMap<Key, u32, RandomState>,
    /// Those met last, each where its relation's number leads.
    recent: [Option<(Key, u32)>; RECENT],
    /// Of each fork, by block: the number of its slot, or `NONE`.
    blocks: Vec<Vec<u32>>,
    slots: Vec<Slot>,
    /// Memory that the kernel has given already: its cost is not redo's.
    buffers: Vec<Page>,
    used: usize,
}

impl Pages {
    pub fn load(start: &Start) -> Result<Pages> {
        let mut pages = Pages {
            forks: HashMap::default(),
            recent: [None; RECENT],
            blocks: Vec::new(),
            slots: Vec::new(),
            buffers: Vec::new(),
            used: 0,
        };
        files::for_each_page(&start.data, |key, page| {
            let number = pages.number(key);
            pages.slots[number as usize].file = Some(Box::new(*page));
        })?;
        pages.buffers = vec![[1; BLCKSZ]; pages.slots.len() + SPARE_BUFFERS];
        Ok(pages)
    }

    /// The slot of a page, made when there is none.
    pub fn number(&mut self, key: Key) -> u32 {
        let fork = Key { e: 0, ..key };
        let recent = key.c as usize % RECENT;
        let number = match self.recent[recent] {
            Some((found, number)) if found == fork => number,
            _ => {
                let next = self.blocks.len() as u32;
                let number = *self.forks.entry(fork).or_insert(next);
                if number == next {
                    self.blocks.push(Vec::new());
                }
                self.recent[recent] = Some((fork, number));
                number
            }
        };
        let blocks = &mut self.blocks[number as usize];
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
        let Some(number) = self.forks.get(&fork) else {
            return;
        };
        let numbers = &self.blocks[*number as usize];
        for number in numbers.iter().skip(blocks as usize) {
            if let Some(slot) = self.slots.get_mut(*number as usize) {
                (slot.file, slot.buffer) = (None, None);
            }
        }
    }
}
