//! Reading a layer file.
//!
//! Invariants: opening checks the footer, the block index and the bloom filter and keeps them in memory;
//! every block is checked against its CRC before it is used. Whatever the bytes are, the result is an
//! error that names the layer, never a panic and never an allocation beyond the format's limits.

mod lookup;

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use pg_types::{Key, Lsn};

use crate::bloom;
use crate::cache::BlockCache;
use crate::desc::LayerDesc;
use crate::error::LayerError;
use crate::format::{
    BlockEntries, FOOTER_BYTES, Footer, HEADER_BYTES, INDEX_ENTRY_BYTES, IndexEntry, Input,
    KEY_STAT_BYTES, KeyStat, MAX_RAW_BLOCK_BYTES, MAX_SECTION_BYTES, Section, UNCOVERED_BYTES,
    header,
};
use crate::source::{BlockSource, check_index, read_raw, read_section};
use crate::value::Version;

use crate::block::Block;

/// An open layer file.
pub struct LayerReader<S> {
    name: String,
    source: S,
    footer: Footer,
    checksum: u32,
    /// Decoded on demand from fixed-size slots; every slot was checked when the layer was opened.
    index: Bytes,
    bloom: Bytes,
    cache: Option<(Arc<BlockCache>, u64)>,
}

impl<S: BlockSource> LayerReader<S> {
    /// Opens a layer; `name` is for error messages.
    pub fn open(name: impl Into<String>, source: S) -> Result<LayerReader<S>, LayerError> {
        let name = name.into();
        let corrupt = |reason: String| LayerError::corrupt(&name, reason);
        let size = source.size();
        let least = (HEADER_BYTES + FOOTER_BYTES) as u64;
        if size < least {
            return Err(corrupt(format!(
                "{size} bytes are too few for a layer (at least {least})"
            )));
        }
        let footer = read_raw(&name, &source, size - FOOTER_BYTES as u64, FOOTER_BYTES)?;
        let (footer, checksum) = Footer::decode(&footer).map_err(corrupt)?;
        let expected = header(footer.version, footer.kind, footer.level);
        if read_raw(&name, &source, 0, HEADER_BYTES)?[..] != expected {
            return Err(corrupt("header does not match the footer".to_owned()));
        }
        let read = |section: Section, compressed| {
            read_section(&name, &source, section, MAX_SECTION_BYTES, compressed)
        };
        let index = read(footer.index, !footer.is_plain(&footer.index))?;
        check_index(&index, size).map_err(|reason| corrupt(reason.to_owned()))?;
        let bloom = read(footer.bloom, false)?;
        Ok(LayerReader {
            name,
            source,
            footer,
            checksum,
            index,
            bloom,
            cache: None,
        })
    }

    /// Keeps decompressed blocks in a shared cache.
    pub fn with_cache(mut self, cache: Arc<BlockCache>) -> LayerReader<S> {
        let id = cache.register();
        self.cache = Some((cache, id));
        self
    }

    /// As given when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the file says about itself.
    pub fn desc(&self) -> LayerDesc {
        LayerDesc {
            kind: self.footer.kind,
            level: self.footer.level,
            keys: self.footer.keys,
            lsns: self.footer.lsns,
            checksum: self.checksum,
            size: self.source.size(),
        }
    }

    /// Number of versions.
    pub fn versions(&self) -> u64 {
        self.footer.versions
    }

    /// Number of keys.
    pub fn key_count(&self) -> u64 {
        self.footer.key_count
    }

    /// Bytes of memory the open reader holds, cached blocks not counted.
    pub fn memory_bytes(&self) -> usize {
        self.index.len() + self.bloom.len() + size_of::<LayerReader<S>>()
    }

    /// False only if the layer certainly holds no version of the key.
    pub fn may_contain(&self, key: &Key) -> bool {
        self.footer.keys.contains(key) && bloom::may_contain(&self.bloom, key)
    }

    /// Reads the whole file and compares it with its checksum; for after a download and for scrubbing.
    pub fn verify(&self) -> Result<(), LayerError> {
        let mut left = self.source.size() - UNCOVERED_BYTES;
        let (mut offset, mut crc) = (0, 0);
        while left > 0 {
            let len = left.min(1 << 20) as usize;
            crc = crc32c::crc32c_append(crc, &read_raw(&self.name, &self.source, offset, len)?);
            offset += len as u64;
            left -= len as u64;
        }
        if crc != self.checksum {
            return Err(LayerError::corrupt(
                &self.name,
                "file checksum does not match",
            ));
        }
        Ok(())
    }

    /// Chain lengths of every key in the layer, in key order.
    pub fn key_stats(&self) -> Result<Vec<KeyStat>, LayerError> {
        let table = read_section(
            &self.name,
            &self.source,
            self.footer.key_table,
            MAX_SECTION_BYTES,
            !self.footer.is_plain(&self.footer.key_table),
        )?;
        let decode = |slot: &[u8]| KeyStat::decode(&mut Input(slot));
        let stats: Option<Vec<KeyStat>> = table.chunks_exact(KEY_STAT_BYTES).map(decode).collect();
        let whole = table.len().is_multiple_of(KEY_STAT_BYTES);
        stats
            .filter(|stats| whole && stats.len() as u64 == self.footer.key_count)
            .ok_or_else(|| LayerError::corrupt(&self.name, "key table is malformed"))
    }

    /// Every version in `(key, lsn, seq)` order.
    pub fn iter(&self) -> LayerIter<'_, S> {
        LayerIter {
            reader: self,
            next_block: 0,
            block: Vec::new().into_iter(),
        }
    }

    pub(crate) fn block_count(&self) -> usize {
        self.index.len() / INDEX_ENTRY_BYTES
    }

    /// First key and LSN of a block, as the index has them.
    pub(crate) fn block_start(&self, number: usize) -> Result<(Key, Lsn), LayerError> {
        let entry = self.index_entry(number)?;
        Ok((entry.key, entry.lsn))
    }

    /// All versions of one block.
    pub(crate) fn block_versions(&self, number: usize) -> Result<Vec<(Key, Version)>, LayerError> {
        let mut found = Vec::new();
        let entry = self.index_entry(number)?;
        let everything = |_: &Key, _| ControlFlow::Continue(true);
        let _ = self.walk(number, &entry, None, everything, |key, version| {
            found.push((key, version));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn index_entry(&self, number: usize) -> Result<IndexEntry, LayerError> {
        let slot = self
            .index
            .get(number * INDEX_ENTRY_BYTES..(number + 1) * INDEX_ENTRY_BYTES);
        slot.and_then(|slot| IndexEntry::decode(&mut Input(slot)))
            .ok_or_else(|| {
                LayerError::corrupt(&self.name, format!("block {number} is not in the index"))
            })
    }

    fn block(&self, number: usize, entry: &IndexEntry) -> Result<Arc<Block>, LayerError> {
        let slot = self
            .cache
            .as_ref()
            .map(|(cache, id)| (cache, (*id, number as u32)));
        if let Some(block) = slot.and_then(|(cache, slot)| cache.get(slot)) {
            return Ok(block);
        }
        let section = Section {
            offset: entry.offset,
            stored: entry.stored,
            raw: entry.raw,
            crc: entry.crc,
        };
        let block = read_section(
            &self.name,
            &self.source,
            section,
            MAX_RAW_BLOCK_BYTES,
            !self.footer.is_plain(&section),
        )?;
        let block = Arc::new(Block::new(block));
        if let Some((cache, slot)) = slot {
            cache.insert(slot, block.clone());
        }
        Ok(block)
    }

    fn corrupt_block(&self, number: usize) -> impl Fn(&str) -> LayerError {
        move |reason| LayerError::corrupt(&self.name, format!("block {number}: {reason}"))
    }

    /// Calls `visit` with the entries of one block that pass `wanted`, until it breaks. Those at or before `behind`
    /// never pass, so that the walk may begin behind them.
    fn walk(
        &self,
        number: usize,
        entry: &IndexEntry,
        behind: Option<(&Key, Lsn)>,
        wanted: impl Fn(&Key, Lsn) -> ControlFlow<(), bool>,
        mut visit: impl FnMut(Key, Version) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LayerError> {
        let corrupt = self.corrupt_block(number);
        let block = self.block(number, entry)?;
        let mut entries: BlockEntries<'_> = match behind {
            Some((key, lsn)) => block.entries_behind(key, lsn).map_err(&corrupt)?,
            None => block.entries(),
        };
        while let Some(raw) = entries.next_entry().map_err(&corrupt)? {
            match wanted(&raw.key, raw.lsn) {
                ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
                ControlFlow::Continue(false) => continue,
                ControlFlow::Continue(true) => {}
            }
            let version = raw.version(block.bytes()).map_err(&corrupt)?;
            if visit(raw.key, version).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl<S> Drop for LayerReader<S> {
    fn drop(&mut self) {
        if let Some((cache, id)) = &self.cache {
            cache.forget(*id);
        }
    }
}

/// Iterator over all versions of a layer; ends after the first error.
pub struct LayerIter<'a, S> {
    reader: &'a LayerReader<S>,
    next_block: usize,
    block: std::vec::IntoIter<(Key, Version)>,
}

impl<S: BlockSource> Iterator for LayerIter<'_, S> {
    type Item = Result<(Key, Version), LayerError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.block.next() {
                return Some(Ok(found));
            }
            if self.next_block >= self.reader.block_count() {
                return None;
            }
            let number = self.next_block;
            self.next_block += 1;
            match self.reader.block_versions(number) {
                Ok(found) => self.block = found.into_iter(),
                Err(error) => {
                    self.next_block = usize::MAX;
                    return Some(Err(error));
                }
            }
        }
    }
}
