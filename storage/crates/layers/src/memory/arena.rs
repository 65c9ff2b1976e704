//! Storage for the entries of a layer in memory: entries lie in the order in which they came, each with its value
//! behind it, so that what is read together lies together and no entry needs an allocation of its own.
//!
//! Memory is taken in chunks ([`Region`]), which are never moved, and given back all at once. An entry is identified
//! by where it begins. A long value is not copied into a chunk: it stays in the memory it came in.
//!
//! Invariants: an entry lies within one chunk, at a multiple of eight bytes; once written, only its link to the next
//! older version changes. A crash loses the arena with its layer.

use bytes::{Bytes, BytesMut};
use pg_types::Lsn;

use crate::error::LayerError;
use crate::region::{REGION, Region};
use crate::value::{Put, Value, ValueRef, Version, VersionRef};

/// Entries begin at multiples of it, and are numbered in it.
const UNIT: usize = 8;
/// A longer value is not copied.
const LONGEST_COPIED: usize = 4 << 10;
/// Bytes for copies that are taken at once: as many as an allocator has at hand.
const COPIED_AT_ONCE: usize = 1000;
/// Bytes of an entry before its value, and where among them its link is.
const HEAD: usize = 24;
const OLDER: usize = 12;

/// Bytes that come from memory at once, and how many times so many of an entry are fetched ahead: longer ones are
/// read front to back, which the processor sees.
const CACHE_LINE: usize = 64;
const LINES: usize = 3;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

const IMAGE: u8 = 0;
const ZERO: u8 = 1;
const DELTA: u8 = 2;
const FIRST_DELTA: u8 = 3;
const META: u8 = 4;
const TOMBSTONE: u8 = 5;
/// The value is a number: of one that was not copied.
const APART: u8 = 0x80;

/// What is kept of a version beside its value.
#[derive(Clone, Copy)]
struct Head {
    lsn: Lsn,
    place: u32,
    older: u32,
    length: u32,
    seq: u16,
    tag: u8,
}

impl Head {
    fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.lsn.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.place.to_le_bytes());
        bytes[OLDER..OLDER + 4].copy_from_slice(&self.older.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.seq.to_le_bytes());
        bytes[22] = self.tag;
        bytes
    }

    fn from_bytes(bytes: &[u8; HEAD]) -> Head {
        Head {
            lsn: Lsn(u64::from_le_bytes(field(bytes, 0))),
            place: u32::from_le_bytes(field(bytes, 8)),
            older: u32::from_le_bytes(field(bytes, OLDER)),
            length: u32::from_le_bytes(field(bytes, 16)),
            seq: u16::from_le_bytes(field(bytes, 20)),
            tag: bytes[22],
        }
    }

    /// Bytes from this entry's begin to the next one's.
    fn stride(&self) -> usize {
        (HEAD + self.length as usize).next_multiple_of(UNIT)
    }
}

fn field<const BYTES: usize>(head: &[u8; HEAD], at: usize) -> [u8; BYTES] {
    let mut field = [0; BYTES];
    field.copy_from_slice(&head[at..at + BYTES]);
    field
}

/// A version, as it lies here.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    arena: &'a Arena,
    head: Head,
    /// The value, or its number.
    bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    pub fn lsn(&self) -> Lsn {
        self.head.lsn
    }

    pub fn seq(&self) -> u16 {
        self.head.seq
    }

    pub fn order(&self) -> (Lsn, u16) {
        (self.head.lsn, self.head.seq)
    }

    /// The place of its key.
    pub fn place(&self) -> u32 {
        self.head.place
    }

    /// The version before it of the same key.
    pub fn older(&self) -> u32 {
        self.head.older
    }

    /// As it lies here.
    pub fn as_ref(&self) -> VersionRef<'a> {
        let bytes = match self.apart() {
            Some(bytes) => bytes,
            None => self.bytes,
        };
        let value = match self.head.tag & !APART {
            IMAGE => ValueRef::Image(bytes),
            ZERO => ValueRef::Zero,
            DELTA | FIRST_DELTA => ValueRef::Delta {
                bytes,
                starts_chain: self.head.tag & !APART == FIRST_DELTA,
            },
            META => ValueRef::Meta(bytes),
            _ => ValueRef::Tombstone,
        };
        VersionRef {
            lsn: self.head.lsn,
            seq: self.head.seq,
            value,
        }
    }

    /// With a value of its own.
    pub fn version(&self, copies: &mut Copies) -> Version {
        let VersionRef { lsn, seq, value } = self.as_ref();
        let mut owned = |bytes: &[u8]| match self.apart() {
            Some(shared) => shared.clone(),
            None => copies.copy(bytes),
        };
        let value = match value {
            ValueRef::Image(bytes) => Value::Image(owned(bytes)),
            ValueRef::Zero => Value::Zero,
            ValueRef::Delta {
                bytes,
                starts_chain,
            } => Value::Delta {
                bytes: owned(bytes),
                starts_chain,
            },
            // It is kept for later reads, and must not pin what else its read found.
            ValueRef::Meta(bytes) => Value::Meta(match self.apart() {
                Some(shared) => shared.clone(),
                None => Bytes::copy_from_slice(bytes),
            }),
            ValueRef::Tombstone => Value::Tombstone,
        };
        Version { lsn, seq, value }
    }

    /// The value, if it was not copied.
    fn apart(&self) -> Option<&'a Bytes> {
        if self.head.tag & APART == 0 {
            return None;
        }
        let number = u32::from_le_bytes(*self.bytes.first_chunk()?);
        self.arena.apart.get(number as usize)
    }
}

/// Memory for the versions of pages that one read takes with it: a chain's deltas are many and short, and to take
/// memory for each of them would cost more than to find it. They are gone once they are applied.
#[derive(Default)]
pub(super) struct Copies(BytesMut);

impl Copies {
    fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if self.0.capacity() < bytes.len() {
            self.0 = BytesMut::with_capacity(bytes.len().max(COPIED_AT_ONCE));
        }
        self.0.extend_from_slice(bytes);
        self.0.split().freeze()
    }
}

/// How far an arena has got.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    chunks: usize,
    /// Of the last chunk.
    written: usize,
    apart: usize,
    entries: u64,
}

/// The entries of one layer in memory, with their values.
#[derive(Default)]
pub(super) struct Arena {
    chunks: Vec<Region>,
    /// Values that were not copied.
    apart: Vec<Bytes>,
    entries: u64,
}

impl Arena {
    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How far it has got, to be cut to later.
    pub fn mark(&self) -> Mark {
        Mark {
            chunks: self.chunks.len(),
            written: self.chunks.last().map_or(0, |last| last.len()),
            apart: self.apart.len(),
            entries: self.entries,
        }
    }

    /// Forgets every entry that came after the mark.
    pub fn cut(&mut self, mark: Mark) {
        self.chunks.truncate(mark.chunks);
        if let Some(last) = self.chunks.last_mut() {
            last.cut(mark.written);
        }
        self.apart.truncate(mark.apart);
        self.entries = mark.entries;
    }

    /// Bytes that an entry with this value takes.
    #[inline]
    pub fn cost(value: Put<'_>) -> u64 {
        let length = value.as_ref().payload().len();
        let bytes = match length > LONGEST_COPIED {
            true => HEAD + UNIT + length,
            false => (HEAD + length).next_multiple_of(UNIT),
        };
        bytes as u64
    }

    /// Adds an entry behind all others; where it begins. Refused when there are more than can be numbered, 32 GiB.
    #[inline]
    pub fn push(
        &mut self,
        place: u32,
        older: u32,
        order: (Lsn, u16),
        value: Put<'_>,
    ) -> Result<u32, LayerError> {
        let kept = value.as_ref();
        let tag = match kept {
            ValueRef::Image(_) => IMAGE,
            ValueRef::Zero => ZERO,
            ValueRef::Delta {
                starts_chain: false,
                ..
            } => DELTA,
            ValueRef::Delta {
                starts_chain: true, ..
            } => FIRST_DELTA,
            ValueRef::Meta(_) => META,
            ValueRef::Tombstone => TOMBSTONE,
        };
        let payload = kept.payload();
        if payload.len() <= LONGEST_COPIED {
            return self.put(place, older, order, tag, payload);
        }
        let number = number(self.apart.len())?;
        let at = self.put(place, older, order, tag | APART, &number.to_le_bytes())?;
        self.apart.push(value.to_bytes());
        Ok(at)
    }

    fn put(
        &mut self,
        place: u32,
        older: u32,
        (lsn, seq): (Lsn, u16),
        tag: u8,
        bytes: &[u8],
    ) -> Result<u32, LayerError> {
        let head = Head {
            lsn,
            place,
            older,
            length: bytes.len() as u32,
            seq,
            tag,
        };
        let stride = head.stride();
        let is_full = |chunk: &Region| chunk.room() < stride;
        if self.chunks.last().is_none_or(is_full) {
            // The first chunk is of small pages, so that an almost empty layer costs little memory.
            let chunk = match self.chunks.is_empty() {
                true => Region::small(),
                false => Region::large(),
            };
            self.chunks.push(chunk.map_err(LayerError::Write)?);
        }
        let before = self.chunks.len() - 1;
        let chunk = &mut self.chunks[before];
        let at = number((before * REGION + chunk.len()) / UNIT)?;
        chunk.push(&head.to_bytes());
        chunk.push(bytes);
        chunk.push(&[0; UNIT][..stride - HEAD - bytes.len()]);
        self.entries += 1;
        Ok(at)
    }

    /// The entry that begins there; none at [`NONE`].
    pub fn get(&self, at: u32) -> Option<Entry<'_>> {
        let at = at as usize * UNIT;
        self.read(self.chunks.get(at / REGION)?, at % REGION)
    }

    fn read<'a>(&'a self, chunk: &'a [u8], offset: usize) -> Option<Entry<'a>> {
        let (head, rest) = chunk.get(offset..)?.split_first_chunk()?;
        let head = Head::from_bytes(head);
        Some(Entry {
            arena: self,
            head,
            bytes: rest.get(..head.length as usize)?,
        })
    }

    /// Makes `older` the version before the one that begins at `at`.
    pub fn link(&mut self, at: u32, older: u32) {
        let at = at as usize * UNIT;
        let link = at % REGION + OLDER;
        if let Some(link) = self
            .chunks
            .get_mut(at / REGION)
            .and_then(|chunk| chunk.written_mut().get_mut(link..link + 4))
        {
            link.copy_from_slice(&older.to_le_bytes());
        }
    }

    /// All entries in the order in which they came, with where they begin.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Entry<'_>)> {
        self.chunks
            .iter()
            .enumerate()
            .flat_map(move |(number, chunk)| {
                let mut offset = 0;
                std::iter::from_fn(move || {
                    let entry = self.read(chunk, offset)?;
                    let at = (number * REGION + offset) / UNIT;
                    offset += entry.head.stride();
                    Some((at as u32, entry))
                })
            })
    }

    /// Has the processor fetch what is about to be read.
    pub fn look_at(&self, entries: &[u32]) {
        let mut seen = 0;
        for at in entries {
            let at = *at as usize * UNIT;
            let chunk = self
                .chunks
                .get(at / REGION)
                .map_or(&[][..], |chunk| &chunk[..]);
            for line in 0..LINES {
                seen ^= chunk.get(at % REGION + line * CACHE_LINE).unwrap_or(&0);
            }
        }
        std::hint::black_box(seen);
    }
}

/// A place or number as it is kept.
pub(super) fn number(index: usize) -> Result<u32, LayerError> {
    let fits = u32::try_from(index).ok().filter(|number| *number != NONE);
    fits.ok_or_else(|| {
        LayerError::Write(std::io::Error::other(
            "a layer in memory has more versions than it can count",
        ))
    })
}

#[cfg(test)]
mod tests;
