//! The storage keyspace: one key is one page or one metadata value.
//!
//! A key is ordered by `(kind, a, b, c, d, e)`; the kind comes first so that metadata of one sort is
//! contiguous and the blocks of one relation fork are contiguous and in block order.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::rel::{ForkNumber, RelTag, SlruKind};

/// What a key addresses. The numbers are part of the layer file format: never reuse one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum KeyKind {
    /// An 8 KiB relation page.
    RelBlock = 1,
    /// An 8 KiB SLRU page; `e` is the page number within the whole SLRU.
    SlruBlock = 2,
    /// Size of a relation fork in blocks, `u32`; a tombstone when the fork does not exist.
    RelSize = 16,
    /// The truncations of a relation fork that can hide older page versions (see `pageserver`).
    RelFloor = 17,
    /// Pages in one SLRU segment, `u32`; `e` is the segment number; a tombstone once truncated away.
    SlruSegment = 18,
    /// `PG_VERSION` presence of a database directory: `a` tablespace, `b` database.
    Database = 19,
    /// A 512- or 524-byte `pg_filenode.map`: `a` tablespace, `b` database (0 for the shared map).
    RelMap = 20,
    /// State file of a prepared transaction, or the first piece of a longer one: `a` epoch (0 before Postgres 17),
    /// `e` xid.
    TwoPhase = 21,
    /// A further piece of the state file of a prepared transaction: `a` epoch, `b` number of the piece, from 1 on,
    /// `e` xid.
    TwoPhasePiece = 22,
    /// The one `TimelineState` value: counters, checkpoint fields, full-page-writes state.
    TimelineState = 32,
    /// The `pg_control` template the timeline was created from.
    ControlFile = 33,
    /// A value that means nothing to storage: `e` is its number. Only tests store any.
    Aux = 34,
}

impl KeyKind {
    /// Every kind, in key order.
    pub const ALL: [KeyKind; 12] = [
        KeyKind::RelBlock,
        KeyKind::SlruBlock,
        KeyKind::RelSize,
        KeyKind::RelFloor,
        KeyKind::SlruSegment,
        KeyKind::Database,
        KeyKind::RelMap,
        KeyKind::TwoPhase,
        KeyKind::TwoPhasePiece,
        KeyKind::TimelineState,
        KeyKind::ControlFile,
        KeyKind::Aux,
    ];

    /// The kind with this number; `None` if there is none.
    pub fn from_u8(value: u8) -> Option<KeyKind> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == value)
    }
}

/// An address in the keyspace; see [`KeyKind`] for what the fields hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Key {
    /// What the key addresses, and so what the other fields hold.
    pub kind: KeyKind,
    /// Tablespace, or the SLRU kind.
    pub a: u32,
    /// Database.
    pub b: u32,
    /// Relfilenode.
    pub c: u32,
    /// Fork number.
    pub d: u8,
    /// Block, page, segment or other number.
    pub e: u32,
}

/// All fields in three words: ingest hashes each key several times.
impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.c) << 32 | u64::from(self.e));
        state.write_u64(u64::from(self.a) << 32 | u64::from(self.b));
        // Apart, or both would be read as one number: a key that was just made has them in memory as two bytes, and the
        // processor waits until they can be read together.
        state.write_u32((self.kind as u32) << 16 | u32::from(self.d));
    }
}

/// Bytes of a key in its order-preserving binary form.
pub const KEY_BYTES: usize = 18;

impl Key {
    #[inline]
    fn new(kind: KeyKind, a: u32, b: u32, c: u32, d: u8, e: u32) -> Key {
        Key {
            kind,
            a,
            b,
            c,
            d,
            e,
        }
    }

    /// One page of a relation fork; `blkno` counts from the fork's first block, across segment files.
    #[inline]
    pub fn rel_block(rel: RelTag, blkno: u32) -> Key {
        Key::new(
            KeyKind::RelBlock,
            rel.spc,
            rel.db,
            rel.rel,
            rel.fork as u8,
            blkno,
        )
    }

    /// The size of a relation fork.
    pub fn rel_size(rel: RelTag) -> Key {
        Key::new(
            KeyKind::RelSize,
            rel.spc,
            rel.db,
            rel.rel,
            rel.fork as u8,
            0,
        )
    }

    /// The truncations of a relation fork.
    pub fn rel_floor(rel: RelTag) -> Key {
        Key::new(
            KeyKind::RelFloor,
            rel.spc,
            rel.db,
            rel.rel,
            rel.fork as u8,
            0,
        )
    }

    /// One page of an SLRU; `pageno` counts from page 0 of the whole SLRU.
    #[inline]
    pub fn slru_block(kind: SlruKind, pageno: u32) -> Key {
        Key::new(KeyKind::SlruBlock, kind as u32, 0, 0, 0, pageno)
    }

    /// The size of one SLRU segment.
    pub fn slru_segment(kind: SlruKind, segno: u32) -> Key {
        Key::new(KeyKind::SlruSegment, kind as u32, 0, 0, 0, segno)
    }

    /// The directory of a database in one tablespace.
    pub fn database(spc: u32, db: u32) -> Key {
        Key::new(KeyKind::Database, spc, db, 0, 0, 0)
    }

    /// The `pg_filenode.map` of a database; `db` is 0 for the shared one.
    pub fn relmap(spc: u32, db: u32) -> Key {
        Key::new(KeyKind::RelMap, spc, db, 0, 0, 0)
    }

    /// The state file of a prepared transaction, or its first piece. The epoch is 0.
    pub fn two_phase(xid: u32) -> Key {
        Key::new(KeyKind::TwoPhase, 0, 0, 0, 0, xid)
    }

    /// A further piece, from 1 on, of the state file of a prepared transaction. The epoch is 0.
    pub fn two_phase_piece(xid: u32, number: u32) -> Key {
        Key::new(KeyKind::TwoPhasePiece, 0, number, 0, 0, xid)
    }

    /// The timeline's state, of which there is one.
    pub fn timeline_state() -> Key {
        Key::new(KeyKind::TimelineState, 0, 0, 0, 0, 0)
    }

    /// The timeline's `pg_control` template, of which there is one.
    pub fn control_file() -> Key {
        Key::new(KeyKind::ControlFile, 0, 0, 0, 0, 0)
    }

    /// The value with this number among those of [`KeyKind::Aux`].
    pub fn aux(number: u32) -> Key {
        Key::new(KeyKind::Aux, 0, 0, 0, 0, number)
    }

    /// The relation fork of a `RelBlock`, `RelSize` or `RelFloor` key.
    #[inline]
    pub fn rel(&self) -> Option<RelTag> {
        matches!(
            self.kind,
            KeyKind::RelBlock | KeyKind::RelSize | KeyKind::RelFloor
        )
        .then_some(())?;
        Some(RelTag {
            spc: self.a,
            db: self.b,
            rel: self.c,
            fork: ForkNumber::from_u8(self.d)?,
        })
    }

    /// The SLRU of a `SlruBlock` or `SlruSegment` key.
    pub fn slru(&self) -> Option<SlruKind> {
        matches!(self.kind, KeyKind::SlruBlock | KeyKind::SlruSegment).then_some(())?;
        SlruKind::from_u8(u8::try_from(self.a).ok()?)
    }

    /// Whether values of this key are 8 KiB pages, subject to redo and image generation. In key order all pages come
    /// before everything else.
    #[inline]
    pub fn is_page(&self) -> bool {
        matches!(self.kind, KeyKind::RelBlock | KeyKind::SlruBlock)
    }

    /// Big-endian form whose byte order is the key order.
    pub fn to_bytes(&self) -> [u8; KEY_BYTES] {
        let mut out = [0; KEY_BYTES];
        out[0] = self.kind as u8;
        out[1..5].copy_from_slice(&self.a.to_be_bytes());
        out[5..9].copy_from_slice(&self.b.to_be_bytes());
        out[9..13].copy_from_slice(&self.c.to_be_bytes());
        out[13] = self.d;
        out[14..18].copy_from_slice(&self.e.to_be_bytes());
        out
    }

    /// `None` when the kind byte is unknown.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Option<Key> {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Some(Key {
            kind: KeyKind::from_u8(bytes[0])?,
            a: word(1),
            b: word(5),
            c: word(9),
            d: bytes[13],
            e: word(14),
        })
    }

    /// The smallest key of a kind, for range scans.
    pub fn min_of(kind: KeyKind) -> Key {
        Key::new(kind, 0, 0, 0, 0, 0)
    }

    /// The largest key of a kind, for range scans (inclusive).
    pub fn max_of(kind: KeyKind) -> Key {
        Key::new(kind, u32::MAX, u32::MAX, u32::MAX, u8::MAX, u32::MAX)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.rel(), self.slru()) {
            (KeyKind::RelBlock, Some(rel), _) => write!(f, "rel {rel} block {}", self.e),
            (KeyKind::RelSize, Some(rel), _) => write!(f, "size of rel {rel}"),
            (KeyKind::RelFloor, Some(rel), _) => write!(f, "truncations of rel {rel}"),
            (KeyKind::SlruBlock, _, Some(slru)) => {
                write!(f, "{} page {}", slru.directory(), self.e)
            }
            (KeyKind::SlruSegment, _, Some(slru)) => {
                write!(f, "{} segment {:04X}", slru.directory(), self.e)
            }
            _ => write!(
                f,
                "{:?} {}/{}/{}/{}/{}",
                self.kind, self.a, self.b, self.c, self.d, self.e
            ),
        }
    }
}

/// A range of keys, both ends inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct KeyRange {
    /// The smallest key of the range.
    pub first: Key,
    /// The largest key of the range, itself part of it.
    pub last: Key,
}

impl KeyRange {
    /// Whether the key lies in the range.
    pub fn contains(&self, key: &Key) -> bool {
        self.first <= *key && *key <= self.last
    }

    /// Whether any key lies in both ranges.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Every key there is.
    pub fn all() -> KeyRange {
        let [first, .., last] = KeyKind::ALL;
        KeyRange {
            first: Key::min_of(first),
            last: Key::max_of(last),
        }
    }

    /// All blocks of one relation fork.
    pub fn rel_blocks(rel: RelTag) -> KeyRange {
        KeyRange {
            first: Key::rel_block(rel, 0),
            last: Key::rel_block(rel, u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_form_keeps_order_and_round_trips() {
        let rel = RelTag {
            spc: 1663,
            db: 5,
            rel: 16384,
            fork: ForkNumber::Main,
        };
        let mut keys = [
            Key::rel_block(rel, 256),
            Key::rel_block(rel, 2),
            Key::rel_block(rel.with_fork(ForkNumber::VisibilityMap), 0),
            Key::slru_block(SlruKind::Clog, 7),
            Key::timeline_state(),
            Key::rel_size(rel),
        ];
        keys.sort();
        assert!(
            keys.windows(2)
                .all(|pair| pair[0].to_bytes() < pair[1].to_bytes())
        );
        assert!(
            keys.iter()
                .all(|key| Key::from_bytes(&key.to_bytes()) == Some(*key))
        );
        assert!(
            KeyKind::ALL.is_sorted_by_key(|kind| !Key::min_of(*kind).is_page()),
            "pages come first"
        );
        assert!(keys.iter().all(|key| KeyRange::all().contains(key)));
    }
}
