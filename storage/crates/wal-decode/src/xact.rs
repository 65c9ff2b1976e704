//! Bodies of transaction and multixact records.

use pg_types::bytes_le::{get_i32, get_i64, get_u32};
use pg_types::slru::FIRST_MULTI;
use pg_types::wal::info::xact;
use pg_types::{ForkNumber, PgMajor, RelTag};

use crate::error::InterpretError;
use crate::malformed::malformed;
use crate::record::DecodedRecord;

/// Bytes of a `RelFileNode`.
const REL_BYTES: usize = 12;
/// Bytes of a cache invalidation message.
const INVALIDATION_BYTES: usize = 16;

/// Reads a body front to back.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (now, later) = self.bytes.split_at_checked(length)?;
        self.bytes = later;
        Some(now)
    }

    fn u32(&mut self) -> Option<u32> {
        get_u32(self.take(4)?, 0)
    }

    fn i64(&mut self) -> Option<i64> {
        get_i64(self.take(8)?, 0)
    }

    /// A count, then as many items of `item` bytes.
    fn counted(&mut self, item: usize) -> Option<&'a [u8]> {
        let count = usize::try_from(get_i32(self.take(4)?, 0)?).ok()?;
        self.take(count.checked_mul(item)?)
    }
}

/// The xids in a packed array.
fn xids(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).filter_map(|chunk| get_u32(chunk, 0))
}

/// A commit or abort, prepared or not.
/// Body: `xact.h: xl_xact_commit` or `xl_xact_abort`, then the parts that `xl_xact_xinfo` announces.
#[derive(Clone, Debug)]
pub struct XactEnd<'a> {
    /// Whether the transaction committed; false for an abort.
    pub committed: bool,
    /// The transaction that ended; 0 for one that never got an id.
    pub xid: u32,
    /// Whether the transaction was a prepared one, whose state file goes.
    pub prepared: bool,
    /// Microseconds since 2000-01-01 UTC.
    pub timestamp: i64,
    /// What commit_ts stores: the origin's time for a replicated transaction.
    pub commit_ts: i64,
    /// The replication origin's id, 0 for a transaction of this cluster.
    pub origin: u16,
    subxacts: &'a [u8],
    rels: &'a [u8],
}

impl<'a> XactEnd<'a> {
    /// Parses a record whose kind the caller has found to be commit, abort or one of their prepared forms.
    pub fn parse(
        record: &DecodedRecord<'a>,
        major: PgMajor,
    ) -> Result<XactEnd<'a>, InterpretError> {
        Self::read(record, major).ok_or_else(|| malformed(record, "its body is cut short"))
    }

    fn read(record: &DecodedRecord<'a>, major: PgMajor) -> Option<XactEnd<'a>> {
        let op = record.info & xact::OP_MASK;
        let committed = matches!(op, xact::COMMIT | xact::COMMIT_PREPARED);
        let prepared = matches!(op, xact::COMMIT_PREPARED | xact::ABORT_PREPARED);
        let mut body = Reader {
            bytes: record.main_data,
        };
        let timestamp = body.i64()?;
        let xinfo = if record.info & xact::HAS_INFO != 0 {
            body.u32()?
        } else {
            0
        };
        let has = |flag: u32| xinfo & flag != 0;
        if has(xact::XINFO_HAS_DBINFO) {
            body.take(8)?;
        }
        let subxacts = if has(xact::XINFO_HAS_SUBXACTS) {
            body.counted(4)?
        } else {
            &[]
        };
        let rels = if has(xact::XINFO_HAS_RELFILENODES) {
            body.counted(REL_BYTES)?
        } else {
            &[]
        };
        if has(xact::XINFO_HAS_DROPPED_STATS) {
            body.counted(major.facts().records.dropped_stats_bytes)?;
        }
        if has(xact::XINFO_HAS_INVALS) {
            body.counted(INVALIDATION_BYTES)?;
        }
        let mut xid = record.xid;
        if has(xact::XINFO_HAS_TWOPHASE) {
            let twophase_xid = body.u32()?;
            if prepared {
                xid = twophase_xid;
            }
            if has(xact::XINFO_HAS_GID) {
                let end = body.bytes.iter().position(|byte| *byte == 0)?;
                body.take(end + 1)?;
            }
        } else if prepared {
            return None;
        }
        let mut commit_ts = timestamp;
        if has(xact::XINFO_HAS_ORIGIN) {
            body.take(8)?;
            commit_ts = body.i64()?;
        }
        let origin = record.origin.unwrap_or(0);
        Some(XactEnd {
            committed,
            xid,
            prepared,
            timestamp,
            commit_ts,
            origin,
            subxacts,
            rels,
        })
    }

    /// The transaction, unless it never got an id, and its subtransactions.
    pub fn xids(&self) -> impl Iterator<Item = u32> + '_ {
        (self.xid != 0)
            .then_some(self.xid)
            .into_iter()
            .chain(xids(self.subxacts))
    }

    /// The relations whose files go, all forks; the tag's fork means nothing.
    pub fn dropped_rels(&self) -> impl Iterator<Item = RelTag> + '_ {
        self.rels
            .chunks_exact(REL_BYTES)
            .filter_map(|chunk| rel_tag(chunk, ForkNumber::Main))
    }
}

/// A `RelFileNode` at the start of `bytes`.
pub(crate) fn rel_tag(bytes: &[u8], fork: ForkNumber) -> Option<RelTag> {
    Some(RelTag {
        spc: get_u32(bytes, 0)?,
        db: get_u32(bytes, 4)?,
        rel: get_u32(bytes, 8)?,
        fork,
    })
}

/// A prepared transaction, as its prepare record and its state file have it.
/// Body: `xact.h: xl_xact_prepare`, which `twophase.c` calls `TwoPhaseFileHeader`, then the arrays it counts.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    /// The transaction's id, without its epoch.
    pub xid: u32,
    subxacts: &'a [u8],
}

impl<'a> Prepared<'a> {
    /// Bytes of the fixed part, MAXALIGNed.
    const HEADER_BYTES: usize = 72;
    const MAGIC: u32 = 0x57F9_4534;
    const CRC_BYTES: usize = 4;

    /// Parses a record whose kind the caller has found to be prepare. Malformed if the state's magic is another, its
    /// length is not the one it says, or its subtransactions are cut short.
    pub fn parse(record: &DecodedRecord<'a>) -> Result<Prepared<'a>, InterpretError> {
        Self::read(record.main_data)
            .ok_or_else(|| malformed(record, "its transaction state makes no sense"))
    }

    fn read(body: &'a [u8]) -> Option<Prepared<'a>> {
        let magic = get_u32(body, 0)?;
        let (xid, subxact_count) = (get_u32(body, 8)?, usize::try_from(get_i32(body, 28)?).ok()?);
        let gid_len = usize::from(pg_types::bytes_le::get_u16(body, 54)?);
        // The length that the state says counts the checksum, which only the state's file has.
        let says = get_u32(body, 4)? as usize;
        if magic != Self::MAGIC || says != body.len() + Self::CRC_BYTES {
            return None;
        }
        let from = Self::HEADER_BYTES + gid_len.next_multiple_of(8);
        let subxacts = body.get(from..from.checked_add(subxact_count.checked_mul(4)?)?)?;
        Some(Prepared { xid, subxacts })
    }

    /// The transaction's subtransactions.
    pub fn subxacts(&self) -> impl Iterator<Item = u32> + '_ {
        xids(self.subxacts)
    }
}

/// A new multixact.
/// Body: `multixact.h: xl_multixact_create`.
#[derive(Clone, Debug)]
pub struct MultixactCreate<'a> {
    /// The multixact's id (`mid`).
    pub multi: u32,
    /// Number of its first member.
    pub offset: u32,
    members: &'a [u8],
}

impl<'a> MultixactCreate<'a> {
    const HEADER_BYTES: usize = 12;
    const MEMBER_BYTES: usize = 8;

    /// Parses a record whose kind the caller has found to be the creation of a multixact. Malformed if members are
    /// missing.
    pub fn parse(record: &DecodedRecord<'a>) -> Result<MultixactCreate<'a>, InterpretError> {
        Self::read(record.main_data)
            .ok_or_else(|| malformed(record, "its member list is cut short"))
    }

    fn read(body: &'a [u8]) -> Option<MultixactCreate<'a>> {
        let count = usize::try_from(get_i32(body, 8)?).ok()?;
        let bytes = count.checked_mul(Self::MEMBER_BYTES)?;
        let members = body.get(Self::HEADER_BYTES..)?.get(..bytes)?;
        Some(MultixactCreate {
            multi: get_u32(body, 0)?,
            offset: get_u32(body, 4)?,
            members,
        })
    }

    /// Number of members.
    pub fn member_count(&self) -> u32 {
        (self.members.len() / Self::MEMBER_BYTES) as u32
    }

    /// Member xids with their status.
    pub fn members(&self) -> impl Iterator<Item = (u32, u8)> + '_ {
        self.members
            .chunks_exact(Self::MEMBER_BYTES)
            .filter_map(|chunk| Some((get_u32(chunk, 0)?, get_u32(chunk, 4)? as u8)))
    }

    /// The multixact after this one; 0 is not a valid one.
    pub fn next_multi(&self) -> u32 {
        self.multi.wrapping_add(1).max(FIRST_MULTI)
    }

    /// The member number after this one's last.
    pub fn next_offset(&self) -> u32 {
        self.offset.wrapping_add(self.member_count())
    }
}
