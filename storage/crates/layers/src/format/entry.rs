//! The entries of a block: versions, one behind the other.

use std::cmp::Ordering;

use bytes::Bytes;
use pg_types::key::KEY_BYTES;
use pg_types::{Key, Lsn};

use super::Input;
use crate::value::{Value, ValueRef, Version, VersionRef};

/// Longest entry without its value: tag, key, LSN, seq, length.
const ENTRY_HEAD_BYTES: usize = 1 + KEY_BYTES + 8 + 2 + 4;

const TAG_IMAGE: u8 = 1;
const TAG_ZERO: u8 = 2;
const TAG_DELTA: u8 = 3;
const TAG_META: u8 = 4;
const TAG_TOMBSTONE: u8 = 5;
const TAG_STARTS_CHAIN: u8 = 0x10;
const TAG_SAME_KEY: u8 = 0x80;

/// Appends one version to a block; the key is left out when it is the previous entry's.
pub(crate) fn encode_entry(out: &mut Vec<u8>, key: &Key, same_key: bool, version: VersionRef<'_>) {
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
    // Put together first: one growth of the block for all that is short.
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
    let payload = version.value.payload();
    if !matches!(version.value, ValueRef::Zero | ValueRef::Tombstone) {
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
    /// LSN and place in its record of the entry before; `None` where the walk began.
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
        let value = match self.tag & !TAG_SAME_KEY {
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
            order: None,
        }
    }

    /// From an entry in the middle of the block, which begins at `at` and is of this key.
    pub fn starting(block: &'a Bytes, at: usize, key: Key) -> BlockEntries<'a> {
        BlockEntries {
            block,
            at,
            key: Some(key),
            order: None,
        }
    }

    /// Where the next entry begins.
    pub fn position(&self) -> usize {
        self.at
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
        let lsn = Lsn(input.u64().ok_or("entry is cut off")?);
        let seq = input.u16().ok_or("entry is cut off")?;
        if !is_later_key && self.order.is_some_and(|order| order >= (lsn, seq)) {
            return Err("entries are out of order");
        }
        let length = match tag & !(TAG_SAME_KEY | TAG_STARTS_CHAIN) {
            TAG_ZERO | TAG_TOMBSTONE => 0,
            _ => input.u32().ok_or("entry is cut off")? as usize,
        };
        let start = self.block.len() - input.0.len();
        if length > input.0.len() {
            return Err("value is cut off");
        }
        self.at = start + length;
        self.key = Some(key);
        self.order = Some((lsn, seq));
        Ok(Some(RawEntry {
            key,
            lsn,
            seq,
            tag,
            payload: start..start + length,
        }))
    }
}
