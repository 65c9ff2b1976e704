//! Synthesis of the few records that Weir writes itself, and of WAL pages around records.

use bytes::Bytes;
use pg_types::v15::CheckPoint;
use pg_types::wal::{
    RECORD_HEADER_BYTES, RecordHeader, WalPageHeader, info, next_record_start, page_header_bytes,
    rmgr,
};
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};

use crate::record::{push_main_data_header, seal};

/// A record without block references.
pub fn plain_record(rmid: u8, info: u8, xid: u32, prev: Lsn, main_data: &[u8]) -> Bytes {
    let header = RecordHeader {
        total_len: 0,
        xid,
        prev,
        info,
        rmid,
        crc: 0,
    };
    let mut out = Vec::with_capacity(RECORD_HEADER_BYTES + 5 + main_data.len());
    out.extend_from_slice(&header.to_bytes());
    push_main_data_header(&mut out, main_data.len());
    out.extend_from_slice(main_data);
    seal(&mut out);
    Bytes::from(out)
}

/// The record with which Postgres believes to have been cleanly stopped.
pub fn shutdown_checkpoint(checkpoint: &CheckPoint, prev: Lsn) -> Bytes {
    plain_record(
        rmgr::XLOG,
        info::xlog::CHECKPOINT_SHUTDOWN,
        0,
        prev,
        &checkpoint.to_bytes(),
    )
}

/// Lays records out as WAL, page headers and padding included.
#[derive(Clone, Debug)]
pub struct WalWriter {
    major: PgMajor,
    tli: u32,
    system_identifier: u64,
    start: Lsn,
    bytes: Vec<u8>,
}

impl WalWriter {
    /// Writes from `start`: the end of a record, or where the next one begins.
    pub fn new(start: Lsn, major: PgMajor, tli: u32, system_identifier: u64) -> WalWriter {
        WalWriter {
            major,
            tli,
            system_identifier,
            start,
            bytes: Vec::new(),
        }
    }

    /// Where the next byte goes.
    pub fn position(&self) -> Lsn {
        self.start + self.bytes.len() as u64
    }

    /// Everything written, from `start`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn page_header(&mut self, rem_len: usize) {
        let header = WalPageHeader::new(
            self.major,
            self.position(),
            self.tli,
            rem_len as u32,
            self.system_identifier,
        );
        header.write_to(&mut self.bytes);
    }

    /// Where the next record will begin.
    pub fn next_start(&self) -> Lsn {
        next_record_start(self.position())
    }

    /// Appends a record; returns where it starts and its MAXALIGNed end.
    pub fn append(&mut self, record: &[u8]) -> (Lsn, Lsn) {
        let padding = (self.position().align().0 - self.position().0) as usize;
        self.bytes.resize(self.bytes.len() + padding, 0);
        if self.position().0.is_multiple_of(XLOG_BLCKSZ) {
            self.page_header(0);
        }
        let start = self.position();
        let mut rest = record;
        loop {
            let page_left = (XLOG_BLCKSZ - self.position().0 % XLOG_BLCKSZ) as usize;
            let (now, later) = rest.split_at(rest.len().min(page_left));
            self.bytes.extend_from_slice(now);
            if later.is_empty() {
                break;
            }
            rest = later;
            self.page_header(rest.len());
        }
        let padding = (self.position().align().0 - self.position().0) as usize;
        self.bytes.resize(self.bytes.len() + padding, 0);
        (start, self.position())
    }

    /// Fills up to the segment's end with zeroes, as after an `XLOG_SWITCH` record.
    pub fn fill_segment(&mut self) {
        let end = self.position().0.div_ceil(WAL_SEGMENT_BYTES) * WAL_SEGMENT_BYTES;
        let missing = (end - self.position().0) as usize;
        self.bytes.resize(self.bytes.len() + missing, 0);
    }
}

/// A whole WAL segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// First position of the segment.
    pub start: Lsn,
    /// The leading bytes of the file; the file is zero from there to [`WAL_SEGMENT_BYTES`].
    pub head: Vec<u8>,
}

/// The segment files that hold nothing but `record`, starting at `next_record_start(at)`: the first with
/// zeroes between its header and the page of the record, a second one when the record crosses into it.
/// Returns the record's start and end too.
///
/// Postgres reads a clean start's checkpoint from such files: it looks at the long header at the segment's
/// start and at the page headers of the record's own pages, nothing between.
pub fn start_segments(
    record: &[u8],
    at: Lsn,
    major: PgMajor,
    tli: u32,
    system_identifier: u64,
) -> (Lsn, Lsn, Vec<SegmentFile>) {
    let record_start = next_record_start(at);
    let segment = Lsn(record_start.0 / WAL_SEGMENT_BYTES * WAL_SEGMENT_BYTES);
    let page = Lsn(record_start.0 / XLOG_BLCKSZ * XLOG_BLCKSZ);
    let mut wal = Vec::new();
    WalPageHeader::new(major, segment, tli, 0, system_identifier).write_to(&mut wal);
    if page != segment {
        wal.resize((page.0 - segment.0) as usize, 0);
        WalPageHeader::new(major, page, tli, 0, system_identifier).write_to(&mut wal);
    }
    wal.resize((record_start.0 - segment.0) as usize, 0);
    debug_assert!(record_start.0 - page.0 >= page_header_bytes(page) as u64);
    let mut writer = WalWriter::new(record_start, major, tli, system_identifier);
    let (start, end) = writer.append(record);
    wal.extend_from_slice(writer.bytes());
    let files = wal
        .chunks(WAL_SEGMENT_BYTES as usize)
        .enumerate()
        .map(|(i, head)| SegmentFile {
            start: segment + i as u64 * WAL_SEGMENT_BYTES,
            head: head.to_vec(),
        })
        .collect();
    (start, end, files)
}
