//! Writing a layer file: versions in order in, blocks out, metadata at the end.
//!
//! Invariant: a writer accepts versions only in `(key, lsn, seq)` order, each once; what it has written is
//! a layer only after [`LayerWriter::finish`]. A crash before that leaves a file without a footer, which no
//! reader opens.

use std::io::Write;

use bytes::Bytes;
use pg_types::{Key, KeyRange, Lsn};

use crate::bloom;
use crate::desc::{LayerDesc, LayerKind};
use crate::error::LayerError;
use crate::format::{
    self, END_MAGIC, FORMAT_VERSION, Footer, HEADER_BYTES, IndexEntry, KeyStat, MAX_SECTION_BYTES,
    MAX_VALUE_BYTES, Section,
};
use crate::value::{LsnRange, Value, Version, VersionRef};

/// How to write; the format does not depend on it.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// A block is closed once it holds this many bytes before compression.
    pub block_bytes: usize,
    /// zstd level; negative ones are fast and compress less.
    pub compression: i32,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        // A read decompresses whole blocks: 16 KiB take about 10 us, and hold the chain of most pages.
        WriterOptions {
            block_bytes: 16 << 10,
            compression: 1,
        }
    }
}

impl WriterOptions {
    /// For what comes straight from memory: ingest pays for it, and compaction soon writes it anew. Longer blocks
    /// make up for a part of what a fast level leaves: half again as long as by default, in a third of the time.
    pub fn level_0() -> WriterOptions {
        WriterOptions {
            block_bytes: 32 << 10,
            compression: -10,
        }
    }
}

/// Streams one layer file into `W`.
pub struct LayerWriter<W: Write> {
    out: W,
    kind: LayerKind,
    level: u8,
    options: WriterOptions,
    compressor: zstd::bulk::Compressor<'static>,
    offset: u64,
    checksum: u32,
    block: Vec<u8>,
    /// What a section was compressed to; its memory is used again.
    stored: Vec<u8>,
    /// First key and LSN of the open block.
    block_first: Option<(Key, Lsn)>,
    index: Vec<u8>,
    stats: Vec<u8>,
    stat: Option<KeyStat>,
    hashes: Vec<u64>,
    previous: Option<(Key, Lsn, u16)>,
    first_key: Option<Key>,
    lsns: Option<LsnRange>,
    versions: u64,
}

impl<W: Write> LayerWriter<W> {
    /// A delta layer of level 0 (flushed), 1 or 2 (compacted).
    pub fn delta(out: W, level: u8, options: WriterOptions) -> Result<LayerWriter<W>, LayerError> {
        LayerWriter::new(out, LayerKind::Delta, level, options)
    }

    /// An image layer: one version a key, all at one LSN.
    pub fn image(out: W, options: WriterOptions) -> Result<LayerWriter<W>, LayerError> {
        LayerWriter::new(out, LayerKind::Image, 1, options)
    }

    fn new(
        out: W,
        kind: LayerKind,
        level: u8,
        options: WriterOptions,
    ) -> Result<LayerWriter<W>, LayerError> {
        let compressor =
            zstd::bulk::Compressor::new(options.compression).map_err(LayerError::Write)?;
        let mut writer = LayerWriter {
            out,
            kind,
            level,
            options,
            compressor,
            offset: 0,
            checksum: 0,
            block: Vec::new(),
            stored: Vec::new(),
            block_first: None,
            index: Vec::new(),
            stats: Vec::new(),
            stat: None,
            hashes: Vec::new(),
            previous: None,
            first_key: None,
            lsns: None,
            versions: 0,
        };
        writer.write(&format::header(FORMAT_VERSION, kind, level))?;
        debug_assert_eq!(writer.offset, HEADER_BYTES as u64);
        Ok(writer)
    }

    /// Appends a version. [`LayerError::OutOfOrder`] unless it is behind the one before, and in an image layer of
    /// another key, of the layer's LSN and complete; [`LayerError::TooLarge`] above 16 MiB.
    pub fn push(&mut self, key: &Key, version: &Version) -> Result<(), LayerError> {
        self.push_ref(key, version.as_ref())
    }

    /// Appends a version whose value's bytes are borrowed.
    #[inline]
    pub(crate) fn push_ref(
        &mut self,
        key: &Key,
        version: VersionRef<'_>,
    ) -> Result<(), LayerError> {
        let order = (version.lsn, version.seq);
        let same_key = self.previous.is_some_and(|(previous, ..)| previous == *key);
        let is_next = match self.previous {
            Some((_, lsn, seq)) if same_key => (lsn, seq) < order,
            Some((previous, ..)) => previous < *key,
            None => true,
        };
        let image_rule = self.kind == LayerKind::Delta
            || (!same_key
                && self.lsns.is_none_or(|lsns| lsns.first == version.lsn)
                && version.value.starts_chain());
        if !is_next || !image_rule {
            return Err(LayerError::OutOfOrder {
                key: key.to_string(),
                lsn: version.lsn,
                seq: version.seq,
            });
        }
        let len = version.value.payload().len();
        if len > MAX_VALUE_BYTES {
            return Err(LayerError::TooLarge {
                key: key.to_string(),
                lsn: version.lsn,
                len,
                max: MAX_VALUE_BYTES,
            });
        }
        if self.block.len() >= self.options.block_bytes
            || (!self.block.is_empty() && self.block.len() + len > self.options.block_bytes * 2)
        {
            self.close_block()?;
        }
        let before = self
            .previous
            .filter(|_| same_key && self.block_first.is_some());
        if self.block_first.is_none() {
            self.block_first = Some((*key, version.lsn));
        }
        format::encode_entry(&mut self.block, key, before.map(|(_, lsn, _)| lsn), version);
        self.count(key, same_key, version);
        self.previous = Some((*key, version.lsn, version.seq));
        Ok(())
    }

    fn count(&mut self, key: &Key, same_key: bool, version: VersionRef<'_>) {
        if !same_key {
            self.close_stat();
            self.stat = Some(KeyStat::new(*key));
            self.hashes.push(bloom::hash(key));
            self.first_key.get_or_insert(*key);
        }
        if let Some(stat) = &mut self.stat {
            stat.add(version);
        }
        self.versions += 1;
        self.lsns = Some(LsnRange::including(self.lsns, version.lsn));
    }

    fn close_stat(&mut self) {
        if let Some(stat) = self.stat.take() {
            stat.encode(&mut self.stats);
        }
    }

    /// About how large the file would be if it were finished now.
    pub fn size(&self) -> u64 {
        self.offset
            + self.block.len() as u64 / 2
            + self.index.len() as u64
            + self.stats.len() as u64 / 4
    }

    /// Whether no version was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.versions == 0
    }

    /// Number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.hashes.len()
    }

    /// The key pushed last.
    pub fn last_key(&self) -> Option<Key> {
        self.previous.map(|(key, ..)| key)
    }

    /// Key and LSN of the version pushed last.
    pub(crate) fn last_version(&self) -> Option<(Key, Lsn)> {
        self.previous.map(|(key, lsn, _)| (key, lsn))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LayerError> {
        self.out.write_all(bytes).map_err(LayerError::Write)?;
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn close_block(&mut self) -> Result<(), LayerError> {
        let Some((key, lsn)) = self.block_first.take() else {
            return Ok(());
        };
        let block = std::mem::take(&mut self.block);
        let section = self.compressed(&block)?;
        let Section {
            offset,
            stored,
            raw,
            crc,
        } = section;
        IndexEntry {
            key,
            lsn,
            offset,
            stored,
            raw,
            crc,
        }
        .encode(&mut self.index);
        self.block = block;
        self.block.clear();
        Ok(())
    }

    /// Writes bytes as one zstd frame, or as they are if that is not shorter.
    fn compressed(&mut self, raw: &[u8]) -> Result<Section, LayerError> {
        let mut stored = std::mem::take(&mut self.stored);
        stored.clear();
        stored.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        let compressed = self.compressor.compress_to_buffer(raw, &mut stored);
        compressed.map_err(LayerError::Write)?;
        let shorter = if stored.len() < raw.len() {
            &stored
        } else {
            raw
        };
        let section = self.section(shorter, raw.len());
        self.stored = stored;
        section
    }

    fn section(&mut self, stored: &[u8], raw: usize) -> Result<Section, LayerError> {
        let too_long = || std::io::Error::other("section of a layer exceeds its size limit");
        if raw > MAX_SECTION_BYTES || stored.len() > MAX_SECTION_BYTES {
            return Err(LayerError::Write(too_long()));
        }
        let section = Section {
            offset: self.offset,
            stored: stored.len() as u32,
            raw: raw as u32,
            crc: crc32c::crc32c(stored),
        };
        self.write(stored)?;
        Ok(section)
    }

    /// Writes the metadata and gives back the description and the sink, not flushed or synced.
    pub fn finish(mut self) -> Result<(LayerDesc, W), LayerError> {
        let ends = self.first_key.zip(self.last_key()).zip(self.lsns);
        let ((first, last), lsns) = ends.ok_or(LayerError::Empty)?;
        self.close_block()?;
        self.close_stat();
        let index = std::mem::take(&mut self.index);
        let index = self.compressed(&index)?;
        let stats = std::mem::take(&mut self.stats);
        let key_table = self.compressed(&stats)?;
        let filter = bloom::build(&self.hashes);
        let bloom = self.section(&filter, filter.len())?;
        let footer = Footer {
            version: FORMAT_VERSION,
            kind: self.kind,
            level: self.level,
            keys: KeyRange { first, last },
            lsns,
            versions: self.versions,
            key_count: self.hashes.len() as u64,
            index,
            key_table,
            bloom,
        };
        self.write(&footer.encode())?;
        let checksum = self.checksum;
        self.write(&checksum.to_le_bytes())?;
        self.write(&END_MAGIC)?;
        let desc = LayerDesc {
            kind: self.kind,
            level: self.level,
            keys: footer.keys,
            lsns,
            checksum,
            size: self.offset,
        };
        Ok((desc, self.out))
    }
}

/// An image layer in memory from values at one LSN, in key order.
pub fn image_layer(
    lsn: Lsn,
    values: impl IntoIterator<Item = (Key, Value)>,
    options: &WriterOptions,
) -> Result<(LayerDesc, Bytes), LayerError> {
    let mut writer = LayerWriter::image(Vec::new(), options.clone())?;
    for (key, value) in values {
        writer.push(
            &key,
            &Version {
                lsn,
                seq: Version::GENERATED,
                value,
            },
        )?;
    }
    let (desc, file) = writer.finish()?;
    Ok((desc, Bytes::from(file)))
}
