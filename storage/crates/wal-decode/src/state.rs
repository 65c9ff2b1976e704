//! What recovery would know at an LSN: the counters and settings a compute needs to start there.
//!
//! Each field says which WAL records move it. [`TimelineState::observe`] follows what Postgres's recovery
//! does with them, so that a start at any record boundary is as if Postgres had recovered to it: a
//! counter that is too low would let Postgres hand out an id twice, or zero live multixact members.

use pg_types::bytes_le::get_u32;
use pg_types::slru::{FIRST_MULTI, FIRST_NORMAL_XID, multi_precedes, xid_precedes};
use pg_types::v15::{CHECKPOINT_BYTES, CheckPoint, ClusterParameters, ControlFile};
use pg_types::wal::{RECORD_HEADER_BYTES, info, record_end, rmgr};
use pg_types::{Lsn, PgMajor};
use serde::{Deserialize, Serialize};

use crate::error::InterpretError;
use crate::malformed::malformed;
use crate::record::DecodedRecord;
use crate::xact::{MultixactCreate, Prepared, XactEnd};

/// Bytes of a checkpoint record: header, header of the main data, main data.
const CHECKPOINT_RECORD_BYTES: u64 = (RECORD_HEADER_BYTES + 2 + CHECKPOINT_BYTES) as u64;

/// What recovery would know at an LSN, the end of the last record observed. "Checkpoint" sources are
/// `XLOG_CHECKPOINT_SHUTDOWN`, which sets the value outright, and `XLOG_CHECKPOINT_ONLINE`, which only moves it
/// forward, because what it says may be older than records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineState {
    /// The version that writes the timeline's WAL; decides how records and checkpoints are read.
    pub major: PgMajor,
    /// Next transaction id with its epoch. Checkpoints; every record's own xid; subtransactions in commit,
    /// abort and prepare records; members of new multixacts; `XLOG_RUNNING_XACTS`.
    pub next_xid: u64,
    /// Shutdown checkpoints and `XLOG_NEXTOID` only: an online checkpoint's value may be older than the
    /// last `XLOG_NEXTOID`, and oids wrap around too often to be compared.
    pub next_oid: u32,
    /// Checkpoints; new multixacts.
    pub next_multi: u32,
    /// Next multixact member number. Checkpoints; new multixacts.
    pub next_multi_offset: u32,
    /// Checkpoints; clog truncation.
    pub oldest_xid: u32,
    /// Database of `oldest_xid`. Same sources.
    pub oldest_xid_db: u32,
    /// Checkpoints; multixact truncation.
    pub oldest_multi: u32,
    /// Database of `oldest_multi`. Same sources.
    pub oldest_multi_db: u32,
    /// 0 while commit timestamps are off. `XLOG_PARAMETER_CHANGE` turning them on or off; truncation of
    /// commit_ts; shutdown checkpoints.
    pub oldest_commit_ts_xid: u32,
    /// 0 while commit timestamps are off. As above, and commits.
    pub newest_commit_ts_xid: u32,
    /// Time of the last checkpoint, seconds since the Unix epoch. Checkpoints.
    pub checkpoint_time: i64,
    /// The settings kept in `pg_control`. `XLOG_PARAMETER_CHANGE`.
    pub parameters: ClusterParameters,
    /// Whether backends log page images. `XLOG_FPW_CHANGE`; shutdown checkpoints.
    pub full_page_writes: bool,
    /// Start of the last `XLOG_FPW_CHANGE` record; 0 when there was none.
    pub full_page_writes_lsn: Lsn,
    /// Time of the newest commit so far, microseconds since 2000-01-01 UTC; 0 before the first. Commit and commit
    /// prepared. Falls only when the clock was set back.
    pub last_commit_timestamp: i64,
    /// Start of the last record, to which the next one links. Every record.
    pub prev_record_lsn: Lsn,
    /// End of the last record. Every record.
    pub last_record_lsn: Lsn,
}

/// What a record did to the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Something besides the position changed, or the record makes an effect visible that a branch may
    /// want to cut behind (commit, abort, checkpoint, sequence).
    pub changed: bool,
}

impl TimelineState {
    /// Before any WAL: every counter 0. Only a base to be filled.
    pub fn start_of_nothing(major: PgMajor) -> TimelineState {
        TimelineState {
            major,
            next_xid: 0,
            next_oid: 0,
            next_multi: 0,
            next_multi_offset: 0,
            oldest_xid: 0,
            oldest_xid_db: 0,
            oldest_multi: 0,
            oldest_multi_db: 0,
            oldest_commit_ts_xid: 0,
            newest_commit_ts_xid: 0,
            checkpoint_time: 0,
            parameters: ClusterParameters::default(),
            full_page_writes: false,
            full_page_writes_lsn: Lsn::INVALID,
            last_commit_timestamp: 0,
            prev_record_lsn: Lsn::INVALID,
            last_record_lsn: Lsn::INVALID,
        }
    }

    /// The state of a cleanly stopped cluster, from its `pg_control`.
    pub fn from_control_file(control: &ControlFile, major: PgMajor) -> TimelineState {
        let mut state = TimelineState::start_of_nothing(major);
        state.observe_shutdown_checkpoint(&control.checkpoint_copy());
        state.parameters = control.parameters();
        state.prev_record_lsn = control.checkpoint();
        state.last_record_lsn = record_end(control.checkpoint(), CHECKPOINT_RECORD_BYTES);
        state
    }

    /// The checkpoint with which a compute starts at `redo`, the start of the checkpoint's record. No
    /// transaction is running there: those open at this point are aborted by construction.
    pub fn checkpoint_at(&self, redo: Lsn, unix_seconds: i64) -> CheckPoint {
        CheckPoint {
            redo,
            this_tli: 1,
            prev_tli: 1,
            full_page_writes: self.full_page_writes,
            next_xid: self.next_xid,
            next_oid: self.next_oid,
            next_multi: self.next_multi,
            next_multi_offset: self.next_multi_offset,
            oldest_xid: self.oldest_xid,
            oldest_xid_db: self.oldest_xid_db,
            oldest_multi: self.oldest_multi,
            oldest_multi_db: self.oldest_multi_db,
            time: unix_seconds,
            oldest_commit_ts_xid: self.oldest_commit_ts_xid,
            newest_commit_ts_xid: self.newest_commit_ts_xid,
            oldest_active_xid: 0,
        }
    }

    /// Takes a record in. To be called once for each record, in order, after [`crate::interpret`].
    pub fn observe(&mut self, record: &DecodedRecord<'_>) -> Result<Observed, InterpretError> {
        let next_xid = self.next_xid;
        self.advance_past_xid(record.xid);
        let mut changed = false;
        if has_share(record) {
            let before = *self;
            self.observe_managers(record)?;
            changed = *self != before;
        }
        let changed = changed || self.next_xid != next_xid || is_landmark(record);
        self.move_behind(record);
        Ok(Observed { changed })
    }

    /// Whether the record changes nothing here but the position, as nearly all do: then
    /// [`move_behind`](TimelineState::move_behind) is all that [`observe`](TimelineState::observe) would do.
    #[inline]
    pub fn is_untouched_by(&self, record: &DecodedRecord<'_>) -> bool {
        !has_share(record) && !is_landmark(record) && self.knows_xid(record.xid)
    }

    /// Moves the position alone.
    #[inline]
    pub fn move_behind(&mut self, record: &DecodedRecord<'_>) {
        self.prev_record_lsn = record.start_lsn;
        self.last_record_lsn = record.end_lsn;
    }

    /// What records do of resource managers that have a share in the state.
    fn observe_managers(&mut self, record: &DecodedRecord<'_>) -> Result<(), InterpretError> {
        // Truncations of SLRUs begin with a page number.
        let behind_page = self.major.facts().records.slru_page_number_bytes;
        match record.rmid {
            rmgr::XLOG => self.observe_xlog(record)?,
            rmgr::XACT => self.observe_xact(record)?,
            rmgr::MULTIXACT => self.observe_multixact(record)?,
            rmgr::CLOG if record.op() == info::clog::TRUNCATE => {
                let (oldest, db) = (word(record, behind_page)?, word(record, behind_page + 4)?);
                if xid_precedes(self.oldest_xid, oldest) {
                    (self.oldest_xid, self.oldest_xid_db) = (oldest, db);
                }
            }
            rmgr::COMMIT_TS if record.op() == info::commit_ts::TRUNCATE => {
                let oldest = word(record, behind_page)?;
                if self.oldest_commit_ts_xid != 0 && xid_precedes(self.oldest_commit_ts_xid, oldest)
                {
                    self.oldest_commit_ts_xid = oldest;
                }
            }
            rmgr::STANDBY if record.op() == info::standby::RUNNING_XACTS => {
                let next = word(record, 12)?;
                if next > FIRST_NORMAL_XID {
                    self.advance_past_xid(next - 1);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn observe_xlog(&mut self, record: &DecodedRecord<'_>) -> Result<(), InterpretError> {
        let short = || malformed(record, "its body is too short");
        match record.op() {
            info::xlog::CHECKPOINT_SHUTDOWN => {
                let checkpoint = CheckPoint::parse(record.main_data).ok_or_else(short)?;
                self.observe_shutdown_checkpoint(&checkpoint);
            }
            info::xlog::CHECKPOINT_ONLINE => {
                let checkpoint = CheckPoint::parse(record.main_data).ok_or_else(short)?;
                self.observe_online_checkpoint(&checkpoint);
            }
            info::xlog::NEXTOID => self.next_oid = word(record, 0)?,
            info::xlog::FPW_CHANGE => {
                self.full_page_writes = *record.main_data.first().ok_or_else(short)? != 0;
                self.full_page_writes_lsn = record.start_lsn;
            }
            info::xlog::PARAMETER_CHANGE => {
                let parameters =
                    ClusterParameters::parse_change(record.main_data).ok_or_else(short)?;
                match (
                    self.parameters.track_commit_timestamp,
                    parameters.track_commit_timestamp,
                ) {
                    (false, true) if self.oldest_commit_ts_xid == 0 => {
                        let next = self.next_xid as u32;
                        (self.oldest_commit_ts_xid, self.newest_commit_ts_xid) = (next, next);
                    }
                    (true, false) => {
                        (self.oldest_commit_ts_xid, self.newest_commit_ts_xid) = (0, 0)
                    }
                    _ => {}
                }
                self.parameters = parameters;
            }
            _ => {}
        }
        Ok(())
    }

    fn observe_shutdown_checkpoint(&mut self, checkpoint: &CheckPoint) {
        self.next_xid = checkpoint.next_xid;
        self.next_oid = checkpoint.next_oid;
        self.next_multi = checkpoint.next_multi;
        self.next_multi_offset = checkpoint.next_multi_offset;
        self.oldest_xid = checkpoint.oldest_xid;
        self.oldest_xid_db = checkpoint.oldest_xid_db;
        self.oldest_multi = checkpoint.oldest_multi;
        self.oldest_multi_db = checkpoint.oldest_multi_db;
        self.oldest_commit_ts_xid = checkpoint.oldest_commit_ts_xid;
        self.newest_commit_ts_xid = checkpoint.newest_commit_ts_xid;
        self.checkpoint_time = checkpoint.time;
        self.full_page_writes = checkpoint.full_page_writes;
    }

    fn observe_online_checkpoint(&mut self, checkpoint: &CheckPoint) {
        self.next_xid = self.next_xid.max(checkpoint.next_xid);
        self.advance_multixact(checkpoint.next_multi, checkpoint.next_multi_offset);
        if xid_precedes(self.oldest_xid, checkpoint.oldest_xid) {
            self.oldest_xid = checkpoint.oldest_xid;
            self.oldest_xid_db = checkpoint.oldest_xid_db;
        }
        if multi_precedes(self.oldest_multi, checkpoint.oldest_multi) {
            self.oldest_multi = checkpoint.oldest_multi;
            self.oldest_multi_db = checkpoint.oldest_multi_db;
        }
        self.checkpoint_time = checkpoint.time;
    }

    fn observe_xact(&mut self, record: &DecodedRecord<'_>) -> Result<(), InterpretError> {
        match record.info & info::xact::OP_MASK {
            info::xact::PREPARE => {
                let prepared = Prepared::parse(record)?;
                prepared
                    .subxacts()
                    .for_each(|xid| self.advance_past_xid(xid));
            }
            info::xact::COMMIT
            | info::xact::ABORT
            | info::xact::COMMIT_PREPARED
            | info::xact::ABORT_PREPARED => {
                let end = XactEnd::parse(record, self.major)?;
                let mut newest = end.xid;
                for xid in end.xids() {
                    self.advance_past_xid(xid);
                    if xid_precedes(newest, xid) {
                        newest = xid;
                    }
                }
                if !end.committed {
                    return Ok(());
                }
                self.last_commit_timestamp = newest_time(self.last_commit_timestamp, end.timestamp);
                // A transaction without an id writes a commit record too, when it dropped files or caches.
                if self.parameters.track_commit_timestamp
                    && end.xid != 0
                    && xid_precedes(self.newest_commit_ts_xid, newest)
                {
                    self.newest_commit_ts_xid = newest;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn observe_multixact(&mut self, record: &DecodedRecord<'_>) -> Result<(), InterpretError> {
        match record.op() {
            info::multixact::CREATE_ID => {
                let create = MultixactCreate::parse(record)?;
                self.advance_multixact(create.next_multi(), create.next_offset());
                create
                    .members()
                    .for_each(|(xid, _)| self.advance_past_xid(xid));
            }
            info::multixact::TRUNCATE_ID => {
                (self.oldest_multi_db, self.oldest_multi) = (word(record, 0)?, word(record, 8)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn advance_multixact(&mut self, next_multi: u32, next_offset: u32) {
        if multi_precedes(self.next_multi, next_multi) {
            self.next_multi = next_multi.max(FIRST_MULTI);
        }
        if multi_precedes(self.next_multi_offset, next_offset) {
            self.next_multi_offset = next_offset;
        }
    }

    /// Whether `xid` was handed out already, or never is.
    fn knows_xid(&self, xid: u32) -> bool {
        xid < FIRST_NORMAL_XID || xid_precedes(xid, self.next_xid as u32)
    }

    /// Makes sure that `xid` was handed out already; a smaller id than the next one's means that ids
    /// wrapped around into the next epoch.
    fn advance_past_xid(&mut self, xid: u32) {
        if self.knows_xid(xid) {
            return;
        }
        let next = self.next_xid as u32;
        let after = xid.wrapping_add(1).max(FIRST_NORMAL_XID);
        let mut epoch = self.next_xid >> 32;
        if xid < next || after < xid {
            epoch += 1;
        }
        self.next_xid = epoch << 32 | u64::from(after);
    }
}

/// Whether the record's resource manager has a share in the state.
fn has_share(record: &DecodedRecord<'_>) -> bool {
    matches!(
        record.rmid,
        rmgr::XLOG | rmgr::XACT | rmgr::MULTIXACT | rmgr::CLOG | rmgr::COMMIT_TS | rmgr::STANDBY
    )
}

/// Records behind which a branch may want to cut although no counter moved.
fn is_landmark(record: &DecodedRecord<'_>) -> bool {
    match record.rmid {
        rmgr::XACT => matches!(
            record.info & info::xact::OP_MASK,
            info::xact::COMMIT
                | info::xact::PREPARE
                | info::xact::ABORT
                | info::xact::COMMIT_PREPARED
                | info::xact::ABORT_PREPARED
        ),
        rmgr::XLOG => !matches!(record.op(), info::xlog::FPI | info::xlog::FPI_FOR_HINT),
        rmgr::SEQ | rmgr::LOGICALMSG => true,
        rmgr::STANDBY => record.op() == info::standby::RUNNING_XACTS,
        _ => false,
    }
}

fn word(record: &DecodedRecord<'_>, at: usize) -> Result<u32, InterpretError> {
    get_u32(record.main_data, at).ok_or_else(|| malformed(record, "its body is too short"))
}

/// A transaction takes its time before its record gets its place in the WAL, so that commits side by side may stand
/// there in another order: the later time holds. A time that is more than this far back, microseconds, means that the
/// clock was set back, and is followed.
const CLOCK_SET_BACK: i64 = 60_000_000;

fn newest_time(newest: i64, next: i64) -> i64 {
    if next < newest && newest - next < CLOCK_SET_BACK {
        newest
    } else {
        next
    }
}

#[cfg(test)]
mod time_tests {
    use super::*;

    #[test]
    fn commits_out_of_order_keep_the_newest_time_and_a_clock_set_back_is_followed() {
        assert_eq!(newest_time(0, 5), 5);
        assert_eq!(newest_time(1_000, 999), 1_000);
        assert_eq!(newest_time(1_000, 1_001), 1_001);
        assert_eq!(
            newest_time(CLOCK_SET_BACK * 2, CLOCK_SET_BACK),
            CLOCK_SET_BACK
        );
    }
}
