//! Records kept by the pages they change until they are applied, as in a pageserver's open layer.
//!
//! All lie in chunks of one stretch of memory, which is used again and again: keeping a record is one copy to where
//! the one before of the same pages ended. Read in that order later, the processor has them at hand, where it would
//! wait for each one from its place in the WAL.

use anyhow::Result;
use pg_types::Lsn;

/// Bytes that a group takes at once.
const CHUNK: usize = 32 << 10;

/// Pages whose records are kept together: so many that they fit into the processor's own cache.
const GROUP: u32 = 64;

/// What stands before a record: slot, length and block, end.
const HEAD: usize = 16;

/// No chunk.
const NONE: u32 = u32::MAX;

/// A record to redo on a block's page.
pub struct ReplayRecord<'a> {
    pub slot: u32,
    pub block: u8,
    pub end_lsn: Lsn,
    pub record: &'a [u8],
}

/// Chunks of some pages.
#[derive(Clone, Copy)]
struct Group {
    first: u32,
    last: u32,
    /// Bytes that the last chunk has left.
    left: u32,
}

const EMPTY: Group = Group {
    first: NONE,
    last: NONE,
    left: 0,
};

/// Bytes filled, and the chunk behind.
type Chunk = (u32, u32);

pub struct Gathered {
    memory: Vec<u8>,
    chunks: Vec<Chunk>,
    groups: Vec<Group>,
}

impl Gathered {
    /// With this much memory to begin with, which the kernel has given already.
    pub fn new(bytes: usize) -> Gathered {
        Gathered {
            memory: vec![1; bytes],
            chunks: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Keeps a record behind all others of its page; not one that is longer than a chunk.
    pub fn keep(&mut self, kept: &ReplayRecord<'_>) -> bool {
        let needed = HEAD + kept.record.len();
        if needed > CHUNK {
            return false;
        }
        let number = (kept.slot / GROUP) as usize;
        if number >= self.groups.len() {
            self.groups.resize(number + 1, EMPTY);
        }
        if (self.groups[number].left as usize) < needed {
            self.next_chunk(number);
        }
        let group = &mut self.groups[number];
        let at = (group.last as usize + 1) * CHUNK - group.left as usize;
        group.left -= needed as u32;
        let (head, body) = self.memory[at..at + needed].split_at_mut(HEAD);
        let length = kept.record.len() as u32 | u32::from(kept.block) << 24;
        head[..4].copy_from_slice(&kept.slot.to_le_bytes());
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[8..].copy_from_slice(&kept.end_lsn.0.to_le_bytes());
        body.copy_from_slice(kept.record);
        true
    }

    #[cold]
    fn next_chunk(&mut self, number: usize) {
        let group = &mut self.groups[number];
        let chunk = self.chunks.len() as u32;
        self.chunks.push((0, NONE));
        if self.chunks.len() * CHUNK > self.memory.len() {
            self.memory.resize(self.memory.len() * 2 + CHUNK, 0);
        }
        if group.first == NONE {
            group.first = chunk;
        } else {
            self.chunks[group.last as usize] = (CHUNK as u32 - group.left, chunk);
        }
        (group.last, group.left) = (chunk, CHUNK as u32);
    }

    /// Hands out all records, for each page in the order they were kept; nothing is kept afterwards.
    pub fn drain(&mut self, mut each: impl FnMut(ReplayRecord<'_>) -> Result<()>) -> Result<()> {
        for group in &mut self.groups {
            let group = std::mem::replace(group, EMPTY);
            let mut number = group.first;
            if number != NONE {
                self.chunks[group.last as usize] = (CHUNK as u32 - group.left, NONE);
            }
            while number != NONE {
                let (filled, next) = self.chunks[number as usize];
                let mut bytes = &self.memory[number as usize * CHUNK..][..filled as usize];
                while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
                    let [slot, length, low, high] =
                        [0, 4, 8, 12].map(|at| pg_types::bytes_le::at_u32(head, at));
                    let (record, rest) = rest.split_at((length & 0xFF_FFFF) as usize);
                    bytes = rest;
                    each(ReplayRecord {
                        slot,
                        block: (length >> 24) as u8,
                        end_lsn: Lsn(u64::from(high) << 32 | u64::from(low)),
                        record,
                    })?;
                }
                number = next;
            }
        }
        self.chunks.clear();
        Ok(())
    }
}
