//! From the WAL byte stream to whole records, without a copy: a record is lent to the caller from the piece of WAL it
//! lies in. Only a record that a page boundary or the end of a piece cuts through is put together, in a buffer that
//! the next such record uses again.
//!
//! A logical message longer than [`MESSAGE_KEPT`] is lent cut to its first bytes: nobody reads such a message from the
//! WAL, and a user can have Postgres write one of gigabytes. All of its bytes are checked. Who needs less of other
//! records says so: [`WalStreamDecoder::for_statistics`], [`WalStreamDecoder::for_borders`]. For what is cut, memory is
//! bounded, and a piece of WAL takes time for the bytes of the piece, whatever length a record has. A record that is
//! kept whole takes time for all of it when its last byte comes, and again when its memory is given back.
//!
//! Invariants: a record is lent once, only when every byte of it has arrived and its checksum and its link to the
//! record before are right; [`WalStreamDecoder::boundary`] is always the end of the last record lent (or where
//! decoding began). After an error the decoder returns that error for ever: nothing behind a fault can be trusted.
//! The caller takes all records of a piece before it feeds the next piece; records left behind put the decoder at
//! fault with [`WalError::NotTaken`].

use pg_types::bytes_le::at_u64;
use pg_types::wal::{
    LONG_PAGE_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader, WalPageHeader,
    XLP_FIRST_IS_CONTRECORD, XLP_FIRST_IS_OVERWRITE_CONTRECORD, XLP_LONG_HEADER, info, record_crc,
    rmgr, stored_crc,
};
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
use smallvec::SmallVec;

use crate::error::WalError;

mod records;

pub use records::Records;

/// Where a record's header has the resource manager.
const RMID: usize = 17;
/// Far beyond any WAL; keeps position arithmetic from overflowing on nonsense.
const MAX_START: Lsn = Lsn(1 << 62);

/// What is kept of a longer record that is cut, bytes from its header on. Longer than a page, so that only a record that
/// is put together is cut.
pub const MESSAGE_KEPT: usize = 64 << 10;

/// Resource managers whose records have no blocks, so that where they are cut there is main data.
pub(crate) const CAN_BE_CUT: [u8; 2] = [rmgr::LOGICALMSG, rmgr::XACT];

/// Which records are cut if they are put together and longer than [`MESSAGE_KEPT`].
#[derive(Clone, Copy)]
enum Cuts {
    Messages,
    /// And those of transactions.
    Transactions,
    All,
}

/// A whole record without page headers; `end_lsn` is MAXALIGNed, and the end of the segment for
/// `XLOG_SWITCH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// First byte of the record.
    pub start_lsn: Lsn,
    /// Where the next record may begin; the version of pages that the record makes.
    pub end_lsn: Lsn,
    /// The record from its header on, in one piece and without padding. Of a longer logical message, or whatever else
    /// the decoder was to cut, the first [`MESSAGE_KEPT`] bytes.
    pub bytes: &'a [u8],
}

impl RawRecord<'_> {
    /// The record's header; `None` only if the bytes are too short to be one, which no record lent by [`Records`] is.
    pub fn header(&self) -> Option<RecordHeader> {
        RecordHeader::parse(self.bytes)
    }
}

/// A record that has begun and is not whole.
#[derive(Clone, Copy)]
struct Partial {
    start: Lsn,
    total: usize,
}

/// The bytes of a record that are checked and not kept; they follow those that are kept.
#[derive(Clone, Copy, Default)]
struct LeftOut {
    bytes: usize,
    /// CRC-32C of the record from the end of its header to the last of these bytes.
    crc: u32,
}

/// Finds records in a byte stream fed in pieces of any size.
pub struct WalStreamDecoder {
    major: PgMajor,
    /// Everything before is consumed.
    position: Lsn,
    boundary: Lsn,
    /// Start of the last record lent.
    last_record: Option<Lsn>,
    partial: Option<Partial>,
    /// What there is of the partial record, except what is left out.
    assembled: Vec<u8>,
    /// What is left out of the partial record.
    left_out: LeftOut,
    /// The bytes from `position` on of a page header, or of a record's length, that the last piece broke off in.
    cut: SmallVec<[u8; LONG_PAGE_HEADER_BYTES]>,
    /// Nothing before this position holds records: padding, and what is behind an `XLOG_SWITCH`.
    skip_to: Lsn,
    system_identifier: Option<u64>,
    cuts: Cuts,
    fault: Option<WalError>,
}

impl WalStreamDecoder {
    /// Decodes from `start`, the end of a record or (equally) where the next one begins.
    pub fn new(start: Lsn, major: PgMajor) -> WalStreamDecoder {
        let fault = (start > MAX_START).then_some(WalError::NotABoundary {
            lsn: start,
            why: "no WAL gets so far",
        });
        WalStreamDecoder {
            major,
            position: start,
            boundary: start,
            last_record: None,
            partial: None,
            assembled: Vec::new(),
            left_out: LeftOut::default(),
            cut: SmallVec::new(),
            // A record may end at any byte: the next one begins behind the padding.
            skip_to: if fault.is_none() {
                start.align()
            } else {
                start
            },
            system_identifier: None,
            cuts: Cuts::Messages,
            fault,
        }
    }

    /// Refuses segments of another cluster.
    pub fn with_system_identifier(mut self, system_identifier: u64) -> WalStreamDecoder {
        self.system_identifier = Some(system_identifier);
        self
    }

    /// Cuts the records of transactions as well: a commit may name a hundred million subtransactions. All that such a
    /// record says can be decoded, but its main data.
    pub fn for_statistics(mut self) -> WalStreamDecoder {
        self.cuts = Cuts::Transactions;
        self
    }

    /// Looks for where records end, and lends no more of any record that is put together than its first
    /// [`MESSAGE_KEPT`] bytes: enough for its header, and not to be decoded.
    pub fn for_borders(mut self) -> WalStreamDecoder {
        self.cuts = Cuts::All;
        self
    }

    /// Where the record before `start` began, when known: the first record must link to it.
    pub fn with_prev_record(mut self, prev_record: Lsn) -> WalStreamDecoder {
        self.last_record = prev_record.is_valid().then_some(prev_record);
        self
    }

    /// End of the last record lent.
    pub fn boundary(&self) -> Lsn {
        self.boundary
    }

    /// Start of the last record lent.
    pub fn last_record(&self) -> Option<Lsn> {
        self.last_record
    }

    /// Bytes of memory that the record which has begun will take once all of it has come; 0 when none has begun.
    pub fn bytes_awaited(&self) -> usize {
        let partial = self.partial.as_ref();
        partial.map_or(0, |partial| self.kept_of(partial))
    }

    /// Bytes of memory held for records that are put together.
    pub fn held_bytes(&self) -> usize {
        self.assembled.capacity()
    }

    /// How many bytes of the record are kept, as far as is known.
    fn kept_of(&self, partial: &Partial) -> usize {
        let rmid = self.assembled.get(RMID);
        let is_cut = match self.cuts {
            Cuts::Messages => rmid == Some(&rmgr::LOGICALMSG),
            Cuts::Transactions => rmid.is_some_and(|rmid| CAN_BE_CUT.contains(rmid)),
            Cuts::All => true,
        };
        match is_cut {
            true => partial.total.min(MESSAGE_KEPT),
            false => partial.total,
        }
    }

    /// How many bytes of the partial record have come.
    fn come(&self) -> usize {
        self.assembled.len() + self.left_out.bytes
    }

    /// The position the next byte fed must have.
    pub fn fed_to(&self) -> Lsn {
        self.position + self.cut.len() as u64
    }

    /// The records that end in this piece of WAL, which must begin where the piece before ended. All of them have to
    /// be taken before the next piece is fed.
    pub fn feed<'d>(&'d mut self, lsn: Lsn, wal: &'d [u8]) -> Result<Records<'d>, WalError> {
        self.check_fault()?;
        let expected = self.fed_to();
        if lsn != expected {
            return Err(self.fail(WalError::Gap {
                expected,
                found: lsn,
            }));
        }
        Ok(Records::new(self, wal))
    }

    fn check_fault(&self) -> Result<(), WalError> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }

    #[cold]
    fn fail(&mut self, error: WalError) -> WalError {
        self.fault = Some(error.clone());
        error
    }

    /// Checks a page header at the position.
    fn check_page_header(&self, bytes: &[u8]) -> Result<(), WalError> {
        let at = self.position;
        let bad = |why: String| WalError::PageHeader { lsn: at, why };
        let long_expected = at.0.is_multiple_of(WAL_SEGMENT_BYTES);
        let magic = self.major.facts().wal_page_magic;
        // The flags decide how much `parse` reads, so they are checked before it sees other bytes.
        let flags = u16::from_le_bytes([bytes[2], bytes[3]]);
        let found_magic = u16::from_le_bytes([bytes[0], bytes[1]]);
        if found_magic != magic {
            return Err(bad(wrong_magic(found_magic, self.major)));
        }
        if (flags & XLP_LONG_HEADER != 0) != long_expected {
            return Err(bad(format!(
                "flags {flags:#06x} do not fit a page at this position"
            )));
        }
        let header = WalPageHeader::parse(bytes).ok_or_else(|| bad("cut short".into()))?;
        if header.page_addr != at {
            return Err(bad(format!("it belongs at {}", header.page_addr)));
        }
        if let Some(long) = header.long {
            if long.segment_bytes as u64 != WAL_SEGMENT_BYTES
                || long.page_bytes as u64 != XLOG_BLCKSZ
            {
                return Err(bad(format!(
                    "segments of {} and pages of {}",
                    long.segment_bytes, long.page_bytes
                )));
            }
            if self
                .system_identifier
                .is_some_and(|expected| expected != long.system_identifier)
            {
                return Err(bad(format!(
                    "it belongs to system {}",
                    long.system_identifier
                )));
            }
        }
        if flags & XLP_FIRST_IS_OVERWRITE_CONTRECORD != 0 {
            return Err(WalError::OverwrittenRecord { lsn: at });
        }
        let continues = flags & XLP_FIRST_IS_CONTRECORD != 0;
        match &self.partial {
            Some(partial) => {
                let missing = partial.total - self.come();
                if !continues || header.rem_len as usize != missing {
                    let found = if continues { header.rem_len } else { 0 };
                    return Err(bad(format!(
                        "the record at {} lacks {missing} bytes, the page continues one that lacks {found}",
                        partial.start
                    )));
                }
                Ok(())
            }
            None if continues => Err(WalError::NotABoundary {
                lsn: at,
                why: "its page continues an earlier record",
            }),
            None => Ok(()),
        }
    }

    /// Checks what a header says before the record is whole, so that damage shows early. `bytes` begin with it.
    #[inline]
    fn check_header(&self, start: Lsn, bytes: &[u8]) -> Result<(), WalError> {
        let Some(bytes) = bytes.get(..RECORD_HEADER_BYTES) else {
            return Ok(());
        };
        let (prev, rmid) = (Lsn(at_u64(bytes, 8)), bytes[17]);
        let is_known = usize::from(rmid) < rmgr::COUNT || rmid >= rmgr::FIRST_CUSTOM;
        if is_known && prev < start && self.last_record == Some(prev) {
            return Ok(());
        }
        self.check_odd_header(start, bytes)
    }

    #[cold]
    fn check_odd_header(&self, start: Lsn, bytes: &[u8]) -> Result<(), WalError> {
        let bad = |why: String| WalError::Record { lsn: start, why };
        let Some(header) = RecordHeader::parse(bytes) else {
            return Ok(());
        };
        let is_known = usize::from(header.rmid) < rmgr::COUNT || header.rmid >= rmgr::FIRST_CUSTOM;
        if !is_known {
            return Err(bad(format!(
                "resource manager {} does not exist",
                header.rmid
            )));
        }
        if header.prev >= start {
            return Err(bad(format!("it follows a record at {}", header.prev)));
        }
        let starts_a_compute =
            header.rmid == rmgr::XLOG && header.info & 0xF0 == info::xlog::CHECKPOINT_SHUTDOWN;
        match self.last_record {
            // A compute that started where the record before was unknown wrote a link of 0.
            Some(last)
                if header.prev != last && !(header.prev == Lsn::INVALID && starts_a_compute) =>
            {
                Err(bad(format!(
                    "it follows a record at {}, the last one was at {last}",
                    header.prev
                )))
            }
            _ => Ok(()),
        }
    }

    /// A whole record began at `start` and goes to the position, padding not counted.
    fn finish(&mut self, start: Lsn, switches: bool) {
        let mut end = self.position.align();
        if switches {
            end = Lsn(end.0.div_ceil(WAL_SEGMENT_BYTES) * WAL_SEGMENT_BYTES);
        }
        self.skip_to = end;
        self.passed(start, end);
    }

    /// A whole record lies between these.
    #[inline]
    fn passed(&mut self, start: Lsn, end: Lsn) {
        self.boundary = end;
        self.last_record = Some(start);
    }
}

/// Whether the checksum of a whole record is right.
#[inline]
fn check_sum(start: Lsn, record: &[u8]) -> Result<(), WalError> {
    let (stored, computed) = (stored_crc(record), record_crc(record));
    if stored == computed {
        return Ok(());
    }
    Err(WalError::Checksum {
        lsn: start,
        stored,
        computed,
    })
}

/// Says whose WAL it is, where another known version's was given.
#[cold]
fn wrong_magic(found: u16, major: PgMajor) -> String {
    let facts = major.facts();
    let of = |other: &PgMajor| other.facts().wal_page_magic == found;
    let whose = match PgMajor::ALL.iter().find(|other| of(other)) {
        Some(other) => format!(", which Postgres {} writes,", other.facts().number),
        None => String::new(),
    };
    format!(
        "magic {found:#06x}{whose} instead of {:#06x} of Postgres {}",
        facts.wal_page_magic, facts.number
    )
}

/// Whether a whole record is `XLOG_SWITCH`, after which its segment holds nothing.
#[inline]
fn is_switch(record: &[u8]) -> bool {
    matches!(record.get(16..18), Some([info, rmgr::XLOG]) if info & 0xF0 == info::xlog::SWITCH)
}

/// Where the last whole record ends and starts in `bytes`, which begin at the record boundary `start`.
/// What follows it may break off anywhere, or be zero as in a segment file not yet written to its end.
pub fn last_record_boundary(
    start: Lsn,
    bytes: &[u8],
    major: PgMajor,
) -> Result<(Lsn, Option<Lsn>), WalError> {
    let mut decoder = WalStreamDecoder::new(start, major);
    let mut records = decoder.feed(start, bytes)?;
    loop {
        match records.next_record() {
            Ok(Some(_)) => {}
            Ok(None) | Err(WalError::Zero { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    drop(records);
    Ok((decoder.boundary(), decoder.last_record()))
}
