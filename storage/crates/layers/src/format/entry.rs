//! Encoding of the entries of a block: versions, one behind the other.

use std::cmp::Ordering;

use bytes::Bytes;
use pg_types::key::KEY_BYTES;
use pg_types::{Key, Lsn};

use super::Input;
use crate::value::{Value, ValueRef, Version, VersionRef};

/// Longest entry without its value: tag, key, LSN, seq, length.
const ENTRY_HEAD_BYTES: usize = 1 + KEY_BYTES + 8 + 2 + 4;
/// Longest short entry without its value: tag, LSN above that of the entry before, length.
const SHORT_HEAD_BYTES: usize = 1 + 4 + 2;

const TAG_IMAGE: u8 = 1;
const TAG_ZERO: u8 = 2;
const TAG_DELTA: u8 = 3;
const TAG_META: u8 = 4;
const TAG_TOMBSTONE: u8 = 5;
const TAG_STARTS_CHAIN: u8 = 0x10;
/// Of the key of the entry before it, with `seq` 0, and near it.
const TAG_SHORT: u8 = 0x40;
const TAG_SAME_KEY: u8 = 0x80;

/// Appends one version to a block; `before` is the LSN of the entry before it, if that has the same key.
#[inline]
pub(crate) fn encode_entry(
    out: &mut Vec<u8>,
    key: &Key,
    before: Option<Lsn>,
    version: VersionRef<'_>,
) {
    let tag = match version.value {
        ValueRef::Image(_) => TAG_IMAGE,
        ValueRef::Zero => TAG_ZERO,
        ValueRef::Delta {
            starts_chain: false,
            ..
        } => TAG_DELTA,
        ValueRef::Delta {
            starts_chain: true, ..
        } => TAG_DELTA | TAG_STARTS_CHAIN,
        ValueRef::Meta(_) => TAG_META,
        ValueRef::Tombstone => TAG_TOMBSTONE,
    };
    let payload = version.value.payload();
    let has_length = !matches!(version.value, ValueRef::Zero | ValueRef::Tombstone);
    // Nearly all there are.
    if let Some(before) = before
        && version.seq == 0
        && has_length
        && let Ok(above) = u32::try_from(version.lsn.0.wrapping_sub(before.0))
        && let Ok(length) = u16::try_from(payload.len())
    {
        let mut head = [0; SHORT_HEAD_BYTES];
        head[0] = tag | TAG_SAME_KEY | TAG_SHORT;
        head[1..5].copy_from_slice(&above.to_le_bytes());
        head[5..].copy_from_slice(&length.to_le_bytes());
        out.reserve(SHORT_HEAD_BYTES + payload.len());
        out.extend_from_slice(&head);
        out.extend_from_slice(payload);
        return;
    }
    // Put together first: one growth of the block for all that is short.
    let same_key = before.is_some();
    let mut head = [0; ENTRY_HEAD_BYTES];
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        head[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    put(&[tag | if same_key { TAG_SAME_KEY } else { 0 }]);
    if !same_key {
        put(&key.to_bytes());
    }
    put(&version.lsn.0.to_le_bytes());
    put(&version.seq.to_le_bytes());
    if has_length {
        put(&(payload.len() as u32).to_le_bytes());
    }
    out.extend_from_slice(&head[..length]);
    out.extend_from_slice(payload);
}

/// Walks the entries of a decompressed block.
pub(crate) struct BlockEntries<'a> {
    block: &'a Bytes,
    at: usize,
    key: Option<Key>,
    /// LSN of the entry before.
    before: Lsn,
    /// LSN of the entry before and its place in its record; `None` where the walk began.
    order: Option<(Lsn, u16)>,
}

/// An entry whose value has not been copied out yet.
pub(crate) struct RawEntry {
    pub key: Key,
    pub lsn: Lsn,
    pub seq: u16,
    tag: u8,
    payload: std::ops::Range<usize>,
}

impl RawEntry {
    /// The value shares the block's memory.
    pub fn version(&self, block: &Bytes) -> Result<Version, &'static str> {
        let bytes = || block.slice(self.payload.clone());
        let value = match self.tag & !(TAG_SAME_KEY | TAG_SHORT) {
            TAG_IMAGE => Value::Image(bytes()),
            TAG_ZERO => Value::Zero,
            TAG_DELTA => Value::Delta {
                bytes: bytes(),
                starts_chain: false,
            },
            tag if tag == TAG_DELTA | TAG_STARTS_CHAIN => Value::Delta {
                bytes: bytes(),
                starts_chain: true,
            },
            TAG_META => Value::Meta(bytes()),
            TAG_TOMBSTONE => Value::Tombstone,
            _ => return Err("entry has an unknown type"),
        };
        Ok(Version {
            lsn: self.lsn,
            seq: self.seq,
            value,
        })
    }
}

impl<'a> BlockEntries<'a> {
    pub fn new(block: &'a Bytes) -> BlockEntries<'a> {
        BlockEntries {
            block,
            at: 0,
            key: None,
            before: Lsn::INVALID,
            order: None,
        }
    }

    /// From an entry in the middle of the block, which begins at `at` and is of this key, behind one at `before`.
    pub fn starting(block: &'a Bytes, at: usize, key: Key, before: Lsn) -> BlockEntries<'a> {
        BlockEntries {
            block,
            at,
            key: Some(key),
            before,
            order: None,
        }
    }

    /// Where the next entry begins.
    pub fn position(&self) -> usize {
        self.at
    }

    /// LSN of the entry before that; [`Lsn::INVALID`] where the block begins.
    pub fn before(&self) -> Lsn {
        self.before
    }

    /// `Ok(None)` at the end of the block, `Err` when the bytes make no sense.
    pub fn next_entry(&mut self) -> Result<Option<RawEntry>, &'static str> {
        let mut input = Input(self.block.get(self.at..).unwrap_or_default());
        if input.0.is_empty() {
            return Ok(None);
        }
        let tag = input.u8().ok_or("entry is cut off")?;
        // Whether it can only be in order: it is of a later key.
        let (key, is_later_key) = if tag & TAG_SAME_KEY != 0 {
            (self.key.ok_or("first entry of a block has no key")?, false)
        } else {
            let key = input.key().ok_or("entry has an unknown key")?;
            match self.key.map(|previous| previous.cmp(&key)) {
                None | Some(Ordering::Less) => (key, true),
                Some(Ordering::Equal) => (key, false),
                Some(Ordering::Greater) => return Err("entries are out of order"),
            }
        };
        let is_short = tag & TAG_SHORT != 0;
        let (lsn, seq) = match is_short {
            true => (self.near(tag, input.u32())?, 0),
            false => {
                let order = input.u64().zip(input.u16());
                let (lsn, seq) = order.ok_or("entry is cut off")?;
                (Lsn(lsn), seq)
            }
        };
        if !is_later_key && self.order.is_some_and(|order| order >= (lsn, seq)) {
            return Err("entries are out of order");
        }
        let length = match tag & !(TAG_SAME_KEY | TAG_SHORT | TAG_STARTS_CHAIN) {
            TAG_ZERO | TAG_TOMBSTONE => Some(0),
            _ if is_short => input.u16().map(usize::from),
            _ => input.u32().map(|length| length as usize),
        };
        let length = length.ok_or("entry is cut off")?;
        let start = self.block.len() - input.0.len();
        if length > input.0.len() {
            return Err("value is cut off");
        }
        self.at = start + length;
        self.key = Some(key);
        (self.before, self.order) = (lsn, Some((lsn, seq)));
        Ok(Some(RawEntry {
            key,
            lsn,
            seq,
            tag,
            payload: start..start + length,
        }))
    }

    /// The LSN of a short entry, which is `above` that of the one before.
    fn near(&self, tag: u8, above: Option<u32>) -> Result<Lsn, &'static str> {
        if tag & TAG_SAME_KEY == 0 {
            return Err("a short entry has a key of its own");
        }
        let above = above.ok_or("entry is cut off")?;
        let lsn = self.before.0.checked_add(u64::from(above));
        lsn.map(Lsn).ok_or("entry is past the last LSN")
    }
}
