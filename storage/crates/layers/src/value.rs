//! Values, their versions, and ranges of LSNs.

use std::fmt;

use bytes::Bytes;
use pg_types::Lsn;

/// What a key holds from one LSN on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A complete page.
    Image(Bytes),
    /// A page of zeroes.
    Zero,
    /// A step from the page's previous version, in an encoding that only the caller's redo knows. `starts_chain` when
    /// it initialises the page and so needs no previous version.
    Delta {
        /// The step.
        bytes: Bytes,
        /// Whether the step needs no previous version.
        starts_chain: bool,
    },
    /// A complete metadata value.
    Meta(Bytes),
    /// The key does not exist (any more).
    Tombstone,
}

impl Value {
    /// Whether nothing older than this value matters to a reader.
    pub fn starts_chain(&self) -> bool {
        self.as_ref().starts_chain()
    }

    /// Whether the value is a step and not complete by itself.
    pub fn is_delta(&self) -> bool {
        self.as_ref().is_delta()
    }

    /// The bytes the value owns; empty for `Zero` and `Tombstone`.
    pub fn payload(&self) -> &[u8] {
        self.as_ref().payload()
    }

    pub(crate) fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Image(bytes) => ValueRef::Image(bytes),
            Value::Zero => ValueRef::Zero,
            Value::Delta {
                bytes,
                starts_chain,
            } => ValueRef::Delta {
                bytes,
                starts_chain: *starts_chain,
            },
            Value::Meta(bytes) => ValueRef::Meta(bytes),
            Value::Tombstone => ValueRef::Tombstone,
        }
    }
}

/// A [`Value`] with borrowed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueRef<'a> {
    Image(&'a [u8]),
    Zero,
    Delta { bytes: &'a [u8], starts_chain: bool },
    Meta(&'a [u8]),
    Tombstone,
}

impl<'a> ValueRef<'a> {
    #[inline]
    pub fn starts_chain(&self) -> bool {
        match self {
            ValueRef::Delta { starts_chain, .. } => *starts_chain,
            _ => true,
        }
    }

    pub fn is_delta(&self) -> bool {
        matches!(self, ValueRef::Delta { .. })
    }

    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        match self {
            ValueRef::Image(bytes) | ValueRef::Meta(bytes) | ValueRef::Delta { bytes, .. } => bytes,
            ValueRef::Zero | ValueRef::Tombstone => &[],
        }
    }
}

/// A value to be put into memory, where a short one is copied anyway.
#[derive(Clone, Copy, Debug)]
pub enum Put<'a> {
    /// A value, whose longer bytes are shared and not copied.
    Value(&'a Value),
    /// A [`Value::Delta`] with borrowed bytes.
    Delta {
        /// The step.
        bytes: &'a [u8],
        /// Whether the step needs no previous version.
        starts_chain: bool,
    },
}

impl<'a> From<&'a Value> for Put<'a> {
    fn from(value: &'a Value) -> Put<'a> {
        Put::Value(value)
    }
}

impl<'a> Put<'a> {
    #[inline]
    pub(crate) fn as_ref(&self) -> ValueRef<'a> {
        match *self {
            Put::Value(value) => value.as_ref(),
            Put::Delta {
                bytes,
                starts_chain,
            } => ValueRef::Delta {
                bytes,
                starts_chain,
            },
        }
    }

    /// With bytes of its own.
    pub fn to_value(self) -> Value {
        match self {
            Put::Value(value) => value.clone(),
            Put::Delta { starts_chain, .. } => Value::Delta {
                bytes: self.to_bytes(),
                starts_chain,
            },
        }
    }

    /// The value's bytes alone, none of one that has none.
    pub(crate) fn to_bytes(self) -> Bytes {
        match self {
            Put::Value(Value::Image(bytes) | Value::Meta(bytes) | Value::Delta { bytes, .. }) => {
                bytes.clone()
            }
            Put::Value(Value::Zero | Value::Tombstone) => Bytes::new(),
            Put::Delta { bytes, .. } => Bytes::copy_from_slice(bytes),
        }
    }
}

/// One version of a key; ordered within the key by `(lsn, seq)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// LSN from which on a read sees the version.
    pub lsn: Lsn,
    /// Position among the versions of the key at this LSN.
    pub seq: u16,
    /// What the key holds from then on.
    pub value: Value,
}

impl Version {
    /// `seq` of an image the storage made itself: above everything the WAL put at that LSN.
    pub const GENERATED: u16 = u16::MAX;

    /// What orders the versions of one key.
    pub fn order(&self) -> (Lsn, u16) {
        (self.lsn, self.seq)
    }

    pub(crate) fn as_ref(&self) -> VersionRef<'_> {
        VersionRef {
            lsn: self.lsn,
            seq: self.seq,
            value: self.value.as_ref(),
        }
    }
}

/// A [`Version`] whose value has borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionRef<'a> {
    pub lsn: Lsn,
    pub seq: u16,
    pub value: ValueRef<'a>,
}

/// A range of LSNs, both ends inclusive: what a layer holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LsnRange {
    /// The first LSN in the range.
    pub first: Lsn,
    /// The last LSN in the range.
    pub last: Lsn,
}

impl LsnRange {
    /// The smallest range with this LSN in it, and all of `held`.
    pub(crate) fn including(held: Option<LsnRange>, lsn: Lsn) -> LsnRange {
        LsnRange {
            first: held.map_or(lsn, |held| held.first.min(lsn)),
            last: held.map_or(lsn, |held| held.last.max(lsn)),
        }
    }

    /// Whether the LSN is in the range; both ends are.
    pub fn contains(&self, lsn: Lsn) -> bool {
        self.first <= lsn && lsn <= self.last
    }

    /// Whether an LSN is in both ranges.
    pub fn overlaps(&self, other: &LsnRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Debug for LsnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

/// The versions a read may see: later than `floor`, up to and including `upto`.
///
/// `floor` is the LSN at which older versions stopped being visible (a truncated or dropped relation);
/// [`Lsn::INVALID`] when all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// LSN of the last change that is not visible; [`Lsn::INVALID`] where all are.
    pub floor: Lsn,
    /// LSN of the last change that is visible.
    pub upto: Lsn,
}

impl Window {
    /// Everything up to and including `lsn`.
    pub fn upto(lsn: Lsn) -> Window {
        Window {
            floor: Lsn::INVALID,
            upto: lsn,
        }
    }

    /// Whether a version at this LSN is visible.
    pub fn contains(&self, lsn: Lsn) -> bool {
        self.floor < lsn && lsn <= self.upto
    }

    /// Whether no version can be visible.
    pub fn is_empty(&self) -> bool {
        self.floor >= self.upto
    }

    /// Whether a layer with these LSNs can hold a version in the window.
    pub fn overlaps(&self, lsns: &LsnRange) -> bool {
        lsns.first <= self.upto && self.floor < lsns.last
    }
}
