//! WAL framing: page headers and record headers. Resource managers and record kinds come from `wal_kinds`.
//!
//! The framing is the same in every supported major but for the page magic, which [`PgMajor::facts`] has.

use crate::bytes_le::{
    at_u16, at_u32, at_u64, get_u16, get_u32, get_u64, put_u16, put_u32, put_u64,
};
use crate::version::PgMajor;
use crate::{Lsn, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};

pub use crate::wal_kinds::{info, rmgr};
pub use record_crc::{record_crc, right_prefix};

/// Bytes of a record header (`SizeOfXLogRecord`).
pub const RECORD_HEADER_BYTES: usize = 24;
/// Bytes of the header of most WAL pages.
pub const SHORT_PAGE_HEADER_BYTES: usize = 24;
/// Bytes of the header of the first page of a segment.
pub const LONG_PAGE_HEADER_BYTES: usize = 40;

/// The page begins with the rest of a record from the page before.
pub const XLP_FIRST_IS_CONTRECORD: u16 = 0x0001;
/// The page has a long header.
pub const XLP_LONG_HEADER: u16 = 0x0002;
/// Backup blocks on the page may be removed (set by Postgres outside of base backups).
pub const XLP_BKP_REMOVABLE: u16 = 0x0004;
/// A record that broke off at a crash is overwritten here.
pub const XLP_FIRST_IS_OVERWRITE_CONTRECORD: u16 = 0x0008;

/// Bytes of the page header at a page start.
#[inline]
pub fn page_header_bytes(page_start: Lsn) -> usize {
    if page_start.0.is_multiple_of(WAL_SEGMENT_BYTES) {
        LONG_PAGE_HEADER_BYTES
    } else {
        SHORT_PAGE_HEADER_BYTES
    }
}

/// Where a record begins that follows a record ending at `end`: MAXALIGNed, and behind the page header
/// when that lands on a page start.
pub fn next_record_start(end: Lsn) -> Lsn {
    let aligned = end.align();
    if aligned.0.is_multiple_of(XLOG_BLCKSZ) {
        aligned + page_header_bytes(aligned) as u64
    } else {
        aligned
    }
}

/// The MAXALIGNed end of a record of `length` bytes that starts at `start`, page headers on its way counted.
pub fn record_end(start: Lsn, length: u64) -> Lsn {
    let (mut at, mut rest) = (start, length);
    loop {
        let page_left = XLOG_BLCKSZ - at.0 % XLOG_BLCKSZ;
        if rest <= page_left {
            return (at + rest).align();
        }
        rest -= page_left;
        at = at + page_left;
        at = at + page_header_bytes(at) as u64;
    }
}

/// A WAL page header; `long` is there on the first page of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalPageHeader {
    /// Tells the major (`xlp_magic`, whose value is `xlog_internal.h: XLOG_PAGE_MAGIC`).
    pub magic: u16,
    /// Flags (`xlp_info`): [`XLP_FIRST_IS_CONTRECORD`] and those after it.
    pub info: u16,
    /// Postgres's own timeline number.
    pub tli: u32,
    /// LSN of the page's first byte (`xlp_pageaddr`).
    pub page_addr: Lsn,
    /// Bytes of the broken-off record that remain, this page's share included.
    pub rem_len: u32,
    /// `None` without [`XLP_LONG_HEADER`].
    pub long: Option<LongPageHeader>,
}

/// What the first page of a segment says in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongPageHeader {
    /// Identifier of the cluster that wrote the page (`xlp_sysid`).
    pub system_identifier: u64,
    /// Bytes of a WAL segment (`xlp_seg_size`).
    pub segment_bytes: u32,
    /// Bytes of a WAL page (`xlp_xlog_blcksz`).
    pub page_bytes: u32,
}

impl WalPageHeader {
    /// The header that the major would write on the page at `page_addr`, with `rem_len` bytes of a record
    /// from the page before.
    pub fn new(
        major: PgMajor,
        page_addr: Lsn,
        tli: u32,
        rem_len: u32,
        system_identifier: u64,
    ) -> WalPageHeader {
        let long = page_addr
            .0
            .is_multiple_of(WAL_SEGMENT_BYTES)
            .then_some(LongPageHeader {
                system_identifier,
                segment_bytes: WAL_SEGMENT_BYTES as u32,
                page_bytes: XLOG_BLCKSZ as u32,
            });
        let mut info = 0;
        if rem_len > 0 {
            info |= XLP_FIRST_IS_CONTRECORD;
        }
        if long.is_some() {
            info |= XLP_LONG_HEADER;
        }
        WalPageHeader {
            magic: major.facts().wal_page_magic,
            info,
            tli,
            page_addr,
            rem_len,
            long,
        }
    }

    /// `None` when the slice is too short for the header its flags announce.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<WalPageHeader> {
        let info = get_u16(bytes, 2)?;
        let long = if info & XLP_LONG_HEADER == 0 {
            None
        } else {
            Some(LongPageHeader {
                system_identifier: get_u64(bytes, 24)?,
                segment_bytes: get_u32(bytes, 32)?,
                page_bytes: get_u32(bytes, 36)?,
            })
        };
        Some(WalPageHeader {
            magic: get_u16(bytes, 0)?,
            info,
            tli: get_u32(bytes, 4)?,
            page_addr: Lsn(get_u64(bytes, 8)?),
            rem_len: get_u32(bytes, 16)?,
            long,
        })
    }

    /// Appends the header's bytes.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; LONG_PAGE_HEADER_BYTES];
        put_u16(&mut bytes, 0, self.magic);
        put_u16(&mut bytes, 2, self.info);
        put_u32(&mut bytes, 4, self.tli);
        put_u64(&mut bytes, 8, self.page_addr.0);
        put_u32(&mut bytes, 16, self.rem_len);
        if let Some(long) = &self.long {
            put_u64(&mut bytes, 24, long.system_identifier);
            put_u32(&mut bytes, 32, long.segment_bytes);
            put_u32(&mut bytes, 36, long.page_bytes);
        }
        let length = if self.long.is_some() {
            LONG_PAGE_HEADER_BYTES
        } else {
            SHORT_PAGE_HEADER_BYTES
        };
        out.extend_from_slice(&bytes[..length]);
    }
}

/// The fixed head of every record (`XLogRecord`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Bytes of the whole record, this header included, padding excluded.
    pub total_len: u32,
    /// Transaction that wrote the record (`xl_xid`); 0 if none did.
    pub xid: u32,
    /// Start of the record before (`xl_prev`).
    pub prev: Lsn,
    /// Kind of the record in the high half, flags in the low one (`xl_info`).
    pub info: u8,
    /// Resource manager (`xl_rmid`), as in [`rmgr`].
    pub rmid: u8,
    /// CRC-32C of what follows the header, then of the header up to here (`xl_crc`).
    pub crc: u32,
}

impl RecordHeader {
    /// `None` when there are fewer than [`RECORD_HEADER_BYTES`] bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<RecordHeader> {
        let bytes = bytes.get(..RECORD_HEADER_BYTES)?;
        Some(RecordHeader {
            total_len: at_u32(bytes, 0),
            xid: at_u32(bytes, 4),
            prev: Lsn(at_u64(bytes, 8)),
            info: bytes[16],
            rmid: bytes[17],
            crc: at_u32(bytes, 20),
        })
    }

    /// The header as it stands in the WAL, with zeroes for padding.
    pub fn to_bytes(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        put_u32(&mut out, 0, self.total_len);
        put_u32(&mut out, 4, self.xid);
        put_u64(&mut out, 8, self.prev.0);
        out[16] = self.info;
        out[17] = self.rmid;
        put_u32(&mut out, 20, self.crc);
        out
    }
}

/// The checksum a whole record does carry. `record` is at least a header long.
#[inline]
pub fn stored_crc(record: &[u8]) -> u32 {
    at_u32(record, RECORD_HEADER_BYTES - 4)
}

/// Whether the magic belongs to the major.
pub fn is_wal_page(major: PgMajor, bytes: &[u8]) -> bool {
    bytes.len() >= 2 && at_u16(bytes, 0) == major.facts().wal_page_magic
}

/// Bits of `xl_info` that belong to the resource manager.
pub const XLR_RMGR_INFO_MASK: u8 = 0xF0;
/// `xl_info`: the images in the record are for consistency checks (`XLR_CHECK_CONSISTENCY`).
pub const XLR_CHECK_CONSISTENCY: u8 = 0x02;

/// Block references are numbered 0 to this.
pub const XLR_MAX_BLOCK_ID: u8 = 32;
/// Header byte: main data with a one-byte length.
pub const XLR_BLOCK_ID_DATA_SHORT: u8 = 255;
/// Header byte: main data with a four-byte length.
pub const XLR_BLOCK_ID_DATA_LONG: u8 = 254;
/// Header byte: replication origin.
pub const XLR_BLOCK_ID_ORIGIN: u8 = 253;
/// Header byte: top-level transaction of a subtransaction.
pub const XLR_BLOCK_ID_TOPLEVEL_XID: u8 = 252;

/// Bits of a block reference's flags that hold the fork number (`xlogrecord.h: BKPBLOCK_FORK_MASK`).
pub const BKPBLOCK_FORK_MASK: u8 = 0x0F;
/// The block reference has an image of the page (`xlogrecord.h: BKPBLOCK_HAS_IMAGE`).
pub const BKPBLOCK_HAS_IMAGE: u8 = 0x10;
/// The block reference has data (`xlogrecord.h: BKPBLOCK_HAS_DATA`).
pub const BKPBLOCK_HAS_DATA: u8 = 0x20;
/// Redo makes the page anew without reading it (`xlogrecord.h: BKPBLOCK_WILL_INIT`).
pub const BKPBLOCK_WILL_INIT: u8 = 0x40;
/// The relation is that of the block reference before, and left out (`xlogrecord.h: BKPBLOCK_SAME_REL`).
pub const BKPBLOCK_SAME_REL: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_start_never_lies_in_a_page_header() {
        assert_eq!(next_record_start(Lsn(0x0100_0001)), Lsn(0x0100_0008));
        assert_eq!(next_record_start(Lsn(0x0100_1FF9)), Lsn(0x0100_2018));
        assert_eq!(next_record_start(Lsn(0x0100_2000)), Lsn(0x0100_2018));
        assert_eq!(next_record_start(Lsn(0x0200_0000)), Lsn(0x0200_0028));
        assert_eq!(next_record_start(Lsn(0x0100_2018)), Lsn(0x0100_2018));
    }

    #[test]
    fn headers_round_trip() {
        for (addr, length) in [(Lsn(0x0300_0000), 40), (Lsn(0x0300_2000), 24)] {
            let header = WalPageHeader::new(PgMajor::V15, addr, 1, 17, 0x1234_5678_9ABC_DEF0);
            let mut bytes = Vec::new();
            header.write_to(&mut bytes);
            assert_eq!(bytes.len(), length);
            assert_eq!(WalPageHeader::parse(&bytes), Some(header));
        }
        let record = RecordHeader {
            total_len: 99,
            xid: 7,
            prev: Lsn(8),
            info: 0x80,
            rmid: 10,
            crc: 5,
        };
        assert_eq!(RecordHeader::parse(&record.to_bytes()), Some(record));
    }
}
