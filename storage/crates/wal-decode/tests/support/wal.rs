//! Reading the WAL a stopped cluster left.

use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES};
use wal_decode::{WalError, WalStreamDecoder};

use super::Cluster;

/// A record that outlives its WAL.
pub struct OwnedRecord {
    pub start_lsn: Lsn,
    pub end_lsn: Lsn,
    pub bytes: Vec<u8>,
}

/// All records from `start` to the end of the cluster's WAL.
pub fn read_wal(cluster: &Cluster, start: Lsn) -> Vec<OwnedRecord> {
    let control = cluster.control();
    let mut decoder = WalStreamDecoder::new(start, PgMajor::V15)
        .with_system_identifier(control.system_identifier());
    let mut records = Vec::new();
    let mut at = start;
    loop {
        let segment = Lsn(at.0 / WAL_SEGMENT_BYTES * WAL_SEGMENT_BYTES);
        let file = cluster.read(format!(
            "pg_wal/{}",
            segment.segment_file_name(WAL_SEGMENT_BYTES)
        ));
        for piece in file[(at.0 - segment.0) as usize..].chunks(100_003) {
            let mut found = decoder
                .feed(decoder.fed_to(), piece)
                .expect("feed in order");
            loop {
                match found.next_record() {
                    Ok(Some(record)) => records.push(OwnedRecord {
                        start_lsn: record.start_lsn,
                        end_lsn: record.end_lsn,
                        bytes: record.bytes.to_vec(),
                    }),
                    Ok(None) => break,
                    Err(WalError::Zero { lsn }) => {
                        assert_eq!(lsn, pg_types::wal::next_record_start(found.boundary()));
                        return records;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        at = segment + WAL_SEGMENT_BYTES;
        if decoder.last_record() == Some(control.checkpoint()) {
            return records;
        }
    }
}
