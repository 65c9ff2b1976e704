//! Sources of a layer's bytes, and the checks that raw bytes pass before they are used.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use pg_types::{Key, Lsn};
use zstd::bulk::Decompressor;

use crate::error::LayerError;
use crate::format::{INDEX_ENTRY_BYTES, IndexEntry, Input, Section};

/// Where a layer's bytes are: a file, memory, a remote object.
pub trait BlockSource {
    /// Exactly `len` bytes from `offset`; an error if the source ends before, and [`io::ErrorKind::InvalidData`] if
    /// what is there shows that it is damaged.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Length of the file in bytes.
    fn size(&self) -> u64;
}

impl BlockSource for Bytes {
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let start = usize::try_from(offset)
            .ok()
            .filter(|start| *start <= self.len());
        let range = start.and_then(|start| {
            Some(start..start.checked_add(len).filter(|end| *end <= self.len())?)
        });
        range
            .map(|range| self.slice(range))
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }
}

impl<S: BlockSource + ?Sized> BlockSource for Arc<S> {
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        (**self).read_at(offset, len)
    }

    fn size(&self) -> u64 {
        (**self).size()
    }
}

/// One frame, with the thread's own context: to make one takes as long as to decompress a block.
fn decompress(stored: &[u8], capacity: usize) -> io::Result<Vec<u8>> {
    thread_local! {
        static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(Decompressor::new()?),
        };
        context.decompress(stored, capacity)
    })
}

pub(crate) fn read_raw(
    name: &str,
    source: &impl BlockSource,
    offset: u64,
    len: usize,
) -> Result<Bytes, LayerError> {
    source
        .read_at(offset, len)
        .map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => LayerError::corrupt(name, source.to_string()),
            _ => LayerError::Io {
                layer: name.to_owned(),
                source,
            },
        })
}

/// Reads a stretch of the file, checks it against its CRC and decompresses it if it is compressed.
pub(crate) fn read_section(
    name: &str,
    source: &impl BlockSource,
    section: Section,
    limit: usize,
    compressed: bool,
) -> Result<Bytes, LayerError> {
    let corrupt =
        |reason: &str| LayerError::corrupt(name, format!("{reason} at offset {}", section.offset));
    let inside = section
        .offset
        .checked_add(u64::from(section.stored))
        .is_some_and(|end| end <= source.size());
    if !inside || section.raw as usize > limit {
        return Err(corrupt("section out of bounds"));
    }
    let stored = read_raw(name, source, section.offset, section.stored as usize)?;
    if crc32c::crc32c(&stored) != section.crc {
        return Err(corrupt("checksum does not match"));
    }
    if !compressed {
        return Ok(stored);
    }
    let raw =
        decompress(&stored, section.raw as usize).map_err(|_| corrupt("decompression failed"))?;
    if raw.len() != section.raw as usize {
        return Err(corrupt("decompressed length does not match"));
    }
    Ok(Bytes::from(raw))
}

/// Every slot decodes, slots are in order, and blocks lie inside the file.
pub(crate) fn check_index(index: &[u8], size: u64) -> Result<(), &'static str> {
    if index.is_empty() || !index.len().is_multiple_of(INDEX_ENTRY_BYTES) {
        return Err("block index is malformed");
    }
    let mut previous: Option<(Key, Lsn)> = None;
    for slot in index.chunks_exact(INDEX_ENTRY_BYTES) {
        let entry =
            IndexEntry::decode(&mut Input(slot)).ok_or("block index holds an unknown key")?;
        let order = (entry.key, entry.lsn);
        if previous.is_some_and(|previous| previous > order) {
            return Err("block index is out of order");
        }
        if entry
            .offset
            .checked_add(u64::from(entry.stored))
            .is_none_or(|end| end > size)
        {
            return Err("block index points outside the file");
        }
        previous = Some(order);
    }
    Ok(())
}
