//! The layer file format: the bytes of every part. `docs/formats.md` describes it for other programs; a change here needs
//! a new [`FORMAT_VERSION`] and an entry there.
//!
//! Numbers are little-endian, keys are in their order-preserving 18-byte form.
//!
//! ```text
//! header | data blocks | block index | key table | bloom filter | footer
//! ```

mod entry;

use pg_types::key::KEY_BYTES;
use pg_types::{Key, KeyRange, Lsn};

use crate::desc::LayerKind;
use crate::value::{LsnRange, VersionRef};

pub(crate) use entry::{BlockEntries, RawEntry, encode_entry};

/// Version of the format written; readers refuse later ones.
pub const FORMAT_VERSION: u16 = 3;
/// From this version on a section may be stored as it is, and entries may be short. What is read differs in the first
/// only: an older file has no short entries. From version 3 on there are pieces of prepared transactions
/// (`KeyKind::TwoPhasePiece`), without which a reader would take the first piece for the whole; an older file has none.
const PLAIN_SINCE: u16 = 2;

pub(crate) const MAGIC: [u8; 8] = *b"WEIRLAYR";
pub(crate) const END_MAGIC: [u8; 8] = *b"RYALRIEW";
pub(crate) const HEADER_BYTES: usize = 16;
/// One block index entry: first key, first LSN, offset, stored length, raw length, CRC.
pub(crate) const INDEX_ENTRY_BYTES: usize = KEY_BYTES + 8 + 8 + 4 + 4 + 4;
/// One key table entry: key, start LSN, last LSN, deltas since start, deltas.
pub(crate) const KEY_STAT_BYTES: usize = KEY_BYTES + 8 + 8 + 4 + 4;
/// Largest value a layer takes.
pub(crate) const MAX_VALUE_BYTES: usize = 16 << 20;
/// Largest block before compression: a value and what is beside it.
pub(crate) const MAX_RAW_BLOCK_BYTES: usize = MAX_VALUE_BYTES + (1 << 20);
/// Largest metadata section (index, key table, bloom filter), before compression.
pub(crate) const MAX_SECTION_BYTES: usize = 256 << 20;

/// Keys from which on a layer takes no further one where it can end: half of what its key table has room for, so that
/// the record that reaches this number still fits.
pub const MANY_KEYS: usize = MAX_SECTION_BYTES / KEY_STAT_BYTES / 2;

/// What a delta layer knows about one key, so that chain lengths are known without reading values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStat {
    /// The key.
    pub key: Key,
    /// LSN of the newest version in the layer that starts a chain; [`Lsn::INVALID`] if none does.
    pub start_lsn: Lsn,
    /// LSN of the newest version in the layer.
    pub last_lsn: Lsn,
    /// Deltas above the newest start, all deltas if there is none. A start that is itself a delta counts.
    pub deltas: u32,
    /// All deltas of the key in the layer.
    pub total_deltas: u32,
}

impl KeyStat {
    pub(crate) fn new(key: Key) -> KeyStat {
        KeyStat {
            key,
            start_lsn: Lsn::INVALID,
            last_lsn: Lsn::INVALID,
            deltas: 0,
            total_deltas: 0,
        }
    }

    pub(crate) fn add(&mut self, version: VersionRef<'_>) {
        self.last_lsn = version.lsn;
        if version.value.starts_chain() {
            self.start_lsn = version.lsn;
            self.deltas = 0;
        }
        if version.value.is_delta() {
            self.deltas += 1;
            self.total_deltas += 1;
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.to_bytes());
        out.extend_from_slice(&self.start_lsn.0.to_le_bytes());
        out.extend_from_slice(&self.last_lsn.0.to_le_bytes());
        out.extend_from_slice(&self.deltas.to_le_bytes());
        out.extend_from_slice(&self.total_deltas.to_le_bytes());
    }

    pub(crate) fn decode(input: &mut Input<'_>) -> Option<KeyStat> {
        Some(KeyStat {
            key: input.key()?,
            start_lsn: Lsn(input.u64()?),
            last_lsn: Lsn(input.u64()?),
            deltas: input.u32()?,
            total_deltas: input.u32()?,
        })
    }
}

/// Where a section lies and how to check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub offset: u64,
    pub stored: u32,
    /// Length after decompression; equal to `stored` for what is not compressed, and for nothing else.
    pub raw: u32,
    /// CRC32C of the stored bytes.
    pub crc: u32,
}

impl Section {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        out.extend_from_slice(&self.raw.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn decode(input: &mut Input<'_>) -> Option<Section> {
        Some(Section {
            offset: input.u64()?,
            stored: input.u32()?,
            raw: input.u32()?,
            crc: input.u32()?,
        })
    }
}

pub(crate) fn header(version: u16, kind: LayerKind, level: u8) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..10].copy_from_slice(&version.to_le_bytes());
    out[10] = kind_code(kind);
    out[11] = level;
    out
}

fn kind_code(kind: LayerKind) -> u8 {
    match kind {
        LayerKind::Delta => 1,
        LayerKind::Image => 2,
    }
}

/// Fixed-size end of the file: found from the end, so that a writer can stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub version: u16,
    pub kind: LayerKind,
    pub level: u8,
    pub keys: KeyRange,
    pub lsns: LsnRange,
    pub versions: u64,
    pub key_count: u64,
    pub index: Section,
    pub key_table: Section,
    pub bloom: Section,
}

/// Fields, CRC of the fields, CRC of the file, end magic.
pub(crate) const FOOTER_BYTES: usize = FOOTER_FIELD_BYTES + 4 + 4 + 8;
const FOOTER_FIELD_BYTES: usize = 4 + 2 * KEY_BYTES + 2 * 8 + 2 * 8 + 3 * 20;
/// Bytes at the end that the file's checksum does not cover: itself and the end magic.
pub(crate) const UNCOVERED_BYTES: u64 = 12;

impl Footer {
    /// The fields and their CRC; the file's checksum and the end magic follow.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.push(kind_code(self.kind));
        out.push(self.level);
        out.extend_from_slice(&self.keys.first.to_bytes());
        out.extend_from_slice(&self.keys.last.to_bytes());
        for number in [
            self.lsns.first.0,
            self.lsns.last.0,
            self.versions,
            self.key_count,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for section in [self.index, self.key_table, self.bloom] {
            section.encode(&mut out);
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// The footer and the file's checksum, or what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<(Footer, u32), String> {
        if bytes.len() != FOOTER_BYTES {
            return Err(format!(
                "footer has {} bytes, expected {FOOTER_BYTES}",
                bytes.len()
            ));
        }
        if bytes[FOOTER_BYTES - 8..] != END_MAGIC {
            return Err("end magic is missing: the file is torn or not a layer".to_owned());
        }
        let (fields, tail) = bytes.split_at(FOOTER_FIELD_BYTES);
        let mut tail = Input(tail);
        let (crc, checksum) = tail.u32().zip(tail.u32()).ok_or("footer is too short")?;
        if crc32c::crc32c(fields) != crc {
            return Err("footer checksum does not match".to_owned());
        }
        let mut input = Input(fields);
        let version = input.u16().ok_or("footer is too short")?;
        if !(1..=FORMAT_VERSION).contains(&version) {
            return Err(format!(
                "format version is {version}, this program reads 1 to {FORMAT_VERSION}"
            ));
        }
        let footer = Footer::decode_fields(version, &mut input)
            .ok_or("footer holds an unknown kind or key")?;
        if footer.keys.first > footer.keys.last || footer.lsns.first > footer.lsns.last {
            return Err("footer holds an inverted range".to_owned());
        }
        Ok((footer, checksum))
    }

    /// Whether the section was stored as it is.
    pub fn is_plain(&self, section: &Section) -> bool {
        self.version >= PLAIN_SINCE && section.stored == section.raw
    }

    fn decode_fields(version: u16, input: &mut Input<'_>) -> Option<Footer> {
        Some(Footer {
            version,
            kind: match input.u8()? {
                1 => LayerKind::Delta,
                2 => LayerKind::Image,
                _ => return None,
            },
            level: input.u8()?,
            keys: KeyRange {
                first: input.key()?,
                last: input.key()?,
            },
            lsns: LsnRange {
                first: Lsn(input.u64()?),
                last: Lsn(input.u64()?),
            },
            versions: input.u64()?,
            key_count: input.u64()?,
            index: Section::decode(input)?,
            key_table: Section::decode(input)?,
            bloom: Section::decode(input)?,
        })
    }
}

/// One entry of the block index, decoded from its fixed-size slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub key: Key,
    pub lsn: Lsn,
    pub offset: u64,
    pub stored: u32,
    pub raw: u32,
    pub crc: u32,
}

impl IndexEntry {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.to_bytes());
        out.extend_from_slice(&self.lsn.0.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        out.extend_from_slice(&self.raw.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    pub fn decode(input: &mut Input<'_>) -> Option<IndexEntry> {
        Some(IndexEntry {
            key: input.key()?,
            lsn: Lsn(input.u64()?),
            offset: input.u64()?,
            stored: input.u32()?,
            raw: input.u32()?,
            crc: input.u32()?,
        })
    }
}

/// Takes numbers from the front of a slice; `None` once it is too short.
pub(crate) struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub fn key(&mut self) -> Option<Key> {
        Key::from_bytes(&self.take::<KEY_BYTES>()?)
    }
}
