//! The local files with which stock Postgres starts at any record boundary, as if it had been cleanly stopped
//! there: `pg_control`, and WAL that holds one shutdown checkpoint record.
//!
//! Pure. Every counter in the checkpoint comes from [`TimelineState`], which follows WAL as recovery does.

use pg_types::v15::{ControlFile, ControlFileError};
use pg_types::{Lsn, PgMajor};
use wal_decode::TimelineState;
use wal_decode::synth::{SegmentFile, shutdown_checkpoint, start_segments};

/// Postgres's own timeline number; Weir computes never switch it.
const TLI: u32 = 1;

/// Where and as what to start.
#[derive(Clone, Debug)]
pub struct StartPoint {
    /// End of the last committed record; any record boundary will do.
    pub lsn: Lsn,
    /// Start of the record that ends there, 0 when nobody knows it.
    pub prev_record: Lsn,
    /// The cluster's identifier, which the WAL and `pg_control` carry.
    pub system_identifier: u64,
    /// Counters and settings at `lsn`; the checkpoint is made of them.
    pub state: TimelineState,
    /// Time of the checkpoint.
    pub unix_seconds: i64,
}

/// What Postgres needs to find in its data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFiles {
    /// Start of the checkpoint record: behind a page header when the LSN is at a page's start.
    pub checkpoint: Lsn,
    /// End of the shutdown checkpoint's record: the first position that Postgres writes itself.
    pub end: Lsn,
    /// `global/pg_control`.
    pub pg_control: Vec<u8>,
    /// One segment; two when the record crosses a segment's end.
    pub wal: Vec<SegmentFile>,
}

/// Why no start can be laid out.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The template is no intact `pg_control` of Postgres 15 with default sizes.
    #[error("the control file of the bundle can't be used: {0}")]
    Control(#[from] ControlFileError),
    /// The LSN, the field, lies within a record or its padding.
    #[error("{0} is not a record boundary: it is not a multiple of 8")]
    Unaligned(Lsn),
}

/// Lays out a start. `template` is a `pg_control` of the timeline's cluster in any state.
pub fn lay_out(point: &StartPoint, template: &[u8]) -> Result<StartFiles, StartError> {
    if point.lsn.align() != point.lsn {
        return Err(StartError::Unaligned(point.lsn));
    }
    let major: PgMajor = point.state.major;
    let redo = pg_types::wal::next_record_start(point.lsn);
    let checkpoint = point.state.checkpoint_at(redo, point.unix_seconds);
    let record = shutdown_checkpoint(&checkpoint, point.prev_record);
    let (start, end, wal) = start_segments(&record, point.lsn, major, TLI, point.system_identifier);
    debug_assert_eq!(start, redo);
    let mut control = ControlFile::parse(template)?;
    control.set_system_identifier(point.system_identifier);
    control.stop_at(&checkpoint, &point.state.parameters);
    Ok(StartFiles {
        checkpoint: start,
        end,
        pg_control: control.to_bytes(),
        wal,
    })
}

#[cfg(test)]
mod tests {
    use pg_types::{WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
    use proptest::prelude::*;
    use wal_decode::{WalStreamDecoder, decode};

    use super::*;

    const SYSTEM: u64 = 0x6a5b_4c3d_2e1f_0011;

    /// A `pg_control` that passes its own checks, without a cluster.
    fn template() -> Vec<u8> {
        let mut bytes = vec![0; pg_types::v15::CONTROL_FILE_BYTES];
        let facts = PgMajor::V15.facts();
        for (at, value) in [
            (8, facts.control_version),
            (12, facts.catalog_version),
            (216, 8192),
            (224, 8192),
            (228, 16 << 20),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32c(&bytes[..pg_types::v15::CONTROL_CRC_OFFSET]);
        bytes[288..292].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn crc32c(bytes: &[u8]) -> u32 {
        bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg())
            })
        }) ^ !0
    }

    fn state() -> TimelineState {
        TimelineState {
            next_xid: 0x3_0000_1234,
            next_oid: 24_601,
            next_multi: 77,
            next_multi_offset: 4_242,
            oldest_xid: 730,
            oldest_xid_db: 1,
            oldest_multi: 3,
            oldest_multi_db: 5,
            full_page_writes: true,
            ..TimelineState::start_of_nothing(PgMajor::V15)
        }
    }

    /// The stream a reader of the log gets from `lsn` on holds exactly our record, linked to the one before.
    fn check(lsn: Lsn) {
        let point = StartPoint {
            lsn,
            prev_record: Lsn(lsn.0 - 200),
            system_identifier: SYSTEM,
            state: state(),
            unix_seconds: 1_700_000_000,
        };
        let files = lay_out(&point, &template()).unwrap();
        let first = files.wal[0].start;
        let mut stream: Vec<u8> = Vec::new();
        for segment in &files.wal {
            assert_eq!(segment.start, first + stream.len() as u64);
            stream.extend_from_slice(&segment.head);
            if stream.len() < (files.end.0 - first.0) as usize {
                stream.resize(WAL_SEGMENT_BYTES as usize, 0);
            }
        }
        let from = (lsn.0 - first.0) as usize;
        let mut decoder = WalStreamDecoder::new(lsn, PgMajor::V15)
            .with_system_identifier(SYSTEM)
            .with_prev_record(point.prev_record);
        let mut records = decoder
            .feed(lsn, &stream[from..(files.end.0 - first.0) as usize])
            .unwrap();
        let raw = records.next_record().unwrap().expect("the record is whole");
        assert_eq!((raw.start_lsn, raw.end_lsn), (files.checkpoint, files.end));
        assert_eq!(raw.bytes.len(), 114);
        let record = decode(raw.start_lsn, raw.end_lsn, raw.bytes).unwrap();
        let mut seen = TimelineState::start_of_nothing(PgMajor::V15);
        seen.observe(&record).unwrap();
        let expected = TimelineState {
            prev_record_lsn: files.checkpoint,
            last_record_lsn: files.end,
            checkpoint_time: 1_700_000_000,
            ..state()
        };
        assert_eq!(seen, expected, "every counter survives the start");

        let control = ControlFile::parse(&files.pg_control).unwrap();
        assert_eq!(control.checkpoint(), files.checkpoint);
        assert_eq!(control.checkpoint_copy().redo, files.checkpoint);
        assert_eq!(control.system_identifier(), SYSTEM);
        assert_eq!(control.state(), Some(pg_types::v15::DbState::ShutDown));
    }

    #[test]
    fn every_start_around_a_page_end_and_a_segment_end_is_valid_wal() {
        for boundary in [0x0300_4000, 0x0400_0000, 0x1_0000_0000u64] {
            for lsn in (boundary - 256..boundary + 128).step_by(8) {
                // A record never ends inside a page header.
                let in_header = lsn > boundary
                    && lsn < boundary + pg_types::wal::page_header_bytes(Lsn(boundary)) as u64;
                if !in_header {
                    check(Lsn(lsn));
                }
            }
        }
    }

    #[test]
    fn a_record_across_a_segment_end_takes_two_files() {
        let files = |lsn| {
            let point = StartPoint {
                lsn: Lsn(lsn),
                prev_record: Lsn::INVALID,
                system_identifier: SYSTEM,
                state: state(),
                unix_seconds: 0,
            };
            lay_out(&point, &template())
        };
        assert_eq!(files(0x0400_0000 - 120).unwrap().wal.len(), 1);
        assert_eq!(files(0x0400_0000 - 112).unwrap().wal.len(), 2);
        assert_eq!(files(0x0400_0000 - 8).unwrap().wal.len(), 2);
        assert_eq!(files(0x0400_0000).unwrap().wal.len(), 1);
        assert!(matches!(files(0x0400_0004), Err(StartError::Unaligned(_))));
    }

    proptest! {
        #[test]
        fn any_boundary_is_a_valid_start(segment in 1u64..1 << 20, offset in 0u64..WAL_SEGMENT_BYTES / 8) {
            let lsn = segment * WAL_SEGMENT_BYTES + offset * 8;
            let in_page = lsn % XLOG_BLCKSZ;
            prop_assume!(in_page == 0 || in_page >= 40);
            check(Lsn(lsn));
        }
    }
}
