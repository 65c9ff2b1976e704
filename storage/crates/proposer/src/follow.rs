//! What the WAL says on its way through: record boundaries, what it is made of, the FPW switch.

use pg_types::wal::{info, rmgr};
use pg_types::{Lsn, PgMajor};
use wal_decode::{WalByRelation, WalError, WalStats, WalStreamDecoder};

use crate::FpwChange;

pub struct Follower {
    decoder: WalStreamDecoder,
    reached: Lsn,
}

/// What a piece of WAL brought.
pub struct Seen {
    /// The last record boundary that the WAL has reached. Padding, and what follows an XLOG_SWITCH, belongs to
    /// its record but may still be on its way.
    pub record_end: Lsn,
    pub stats: WalStats,
    /// The last change of full page writes.
    pub fpw_change: Option<FpwChange>,
}

#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error(transparent)]
    Wal(#[from] WalError),
}

impl Follower {
    pub fn new(start: Lsn, prev_record: Option<Lsn>, system_identifier: u64) -> Follower {
        let decoder = WalStreamDecoder::new(start, PgMajor::V15)
            .with_system_identifier(system_identifier)
            .with_prev_record(prev_record.unwrap_or_default())
            .for_statistics();
        Follower {
            decoder,
            reached: start,
        }
    }

    /// Looks at the next piece; whom its records were for goes to `relations`.
    pub fn take(
        &mut self,
        at: Lsn,
        wal: &[u8],
        relations: &mut WalByRelation,
    ) -> Result<Seen, FollowError> {
        let end = at + wal.len() as u64;
        let mut records = self.decoder.feed(at, wal)?;
        let mut seen = Seen {
            record_end: self.reached,
            stats: WalStats::default(),
            fpw_change: None,
        };
        loop {
            if records.boundary() <= end {
                self.reached = self.reached.max(records.boundary());
            }
            let Some(record) = records.next_record()? else {
                break;
            };
            let decoded = wal_decode::decode(record.start_lsn, record.end_lsn, record.bytes)?;
            seen.stats.add(&decoded.summary());
            relations.add(&decoded);
            if decoded.rmid == rmgr::XLOG && decoded.op() == info::xlog::FPW_CHANGE {
                seen.fpw_change = Some(FpwChange {
                    enabled: decoded.main_data.first().is_some_and(|flag| *flag != 0),
                    record_lsn: record.start_lsn,
                    end_lsn: record.end_lsn,
                    committed: false,
                });
            }
        }
        seen.record_end = self.reached;
        Ok(seen)
    }
}
