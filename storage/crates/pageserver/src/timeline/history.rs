//! Positions in a timeline's past: the state at an LSN, record boundaries, times.

use anyhow::Context;
use bytes::Bytes;
use pg_types::{Key, Lsn};
use wal_decode::TimelineState;

use super::Timeline;
use crate::api::{LsnByTimestamp, LsnKind, TimestampOfLsn};
use crate::error::{Error, Result};
use crate::timestamp::PgTimestamp;

/// What most states take. The room is taken once: one is encoded with each record that changes it.
const STATE_BYTES: usize = 512;

/// The stored form of a state, the value under `Key::timeline_state()`: postcard. Fails when the state can't be
/// encoded.
pub fn encode_state(state: &TimelineState) -> Result<Bytes> {
    let encoded = postcard::to_extend(state, Vec::with_capacity(STATE_BYTES));
    Ok(encoded.context("encode the timeline state")?.into())
}

/// The state of a stored form. Fails, with `Internal`, for bytes that [`encode_state`] did not make.
pub fn decode_state(value: &[u8]) -> Result<TimelineState> {
    Ok(postcard::from_bytes(value).context("decode the timeline state")?)
}

impl Timeline {
    /// The newest stored state at or before an LSN. Its own position says since when it holds.
    async fn stored_state(&self, at: Lsn) -> Result<TimelineState> {
        match self.reads.value(Key::timeline_state(), at).await? {
            Some(value) => decode_state(&value),
            None => Err(self
                .identity
                .not_found(format!("no state is known at LSN {at}, before the history"))),
        }
    }

    /// The state at an LSN that has been ingested, positioned exactly there. The start of the record before is 0
    /// where it is not known. Fails with `NotFound` when no state is stored at or before the LSN, and when layers
    /// can't be read.
    pub async fn state_at(&self, at: Lsn) -> Result<TimelineState> {
        let newest = self.state();
        if newest.last_record_lsn == at {
            return Ok(newest);
        }
        let mut state = self.stored_state(at).await?;
        if state.last_record_lsn != at {
            state.last_record_lsn = at;
            state.prev_record_lsn = Lsn::INVALID;
        }
        Ok(state)
    }

    /// The newest known record boundary at or before an LSN; an LSN behind the last record gives that record's end,
    /// and a leased LSN before the history gives itself. Fails with `BadRequest` for any other LSN before the
    /// history, and when layers can't be read.
    pub async fn boundary(&self, lsn: Lsn) -> Result<Lsn> {
        let oldest = self.oldest_lsn();
        if lsn < oldest && self.is_leased(lsn) {
            return Ok(lsn);
        }
        if lsn < oldest {
            return Err(Error::BadRequest(format!(
                "LSN {lsn} is before the history of timeline {}, which starts at {oldest}",
                self.id()
            )));
        }
        let last = self.last_record_lsn();
        if lsn >= last {
            return Ok(last);
        }
        if let Some(boundary) = self.store.newest_lsn(lsn).await? {
            return Ok(boundary);
        }
        match self.ancestor() {
            Some((ancestor, branch_lsn)) => Box::pin(ancestor.boundary(lsn.min(branch_lsn))).await,
            None => Ok(oldest),
        }
    }

    /// The newest position at which no commit is later than the time. Fails with `Timeout` when an ancestor has not
    /// ingested in time what the branch reads of it, and when layers can't be read.
    pub async fn lsn_by_timestamp(&self, timestamp: PgTimestamp) -> Result<LsnByTimestamp> {
        self.wait_for_ancestors(self.config().wait_lsn_timeout())
            .await?;
        let newest = self.state();
        if newest.last_commit_timestamp <= timestamp.0 {
            let kind = if newest.last_commit_timestamp == 0 {
                LsnKind::Past
            } else {
                LsnKind::Future
            };
            return Ok(LsnByTimestamp {
                lsn: newest.last_record_lsn,
                kind,
            });
        }
        // Invariant: the state at `low` has no later commit, the state at `high` has one.
        let (mut low, mut high) = (self.oldest_lsn(), newest.last_record_lsn);
        let mut found = self.stored_state(low).await?;
        if found.last_commit_timestamp > timestamp.0 {
            return Ok(LsnByTimestamp {
                lsn: low,
                kind: LsnKind::Past,
            });
        }
        while high.0 - low.0 > 1 {
            let middle = Lsn(low.0 + (high.0 - low.0) / 2);
            let state = self.stored_state(middle).await?;
            if state.last_commit_timestamp <= timestamp.0 {
                found = state;
                low = middle;
            } else {
                // It has been so since the state was written.
                high = state.last_record_lsn;
            }
        }
        let kind = if found.last_commit_timestamp == 0 {
            LsnKind::Past
        } else {
            LsnKind::Present
        };
        Ok(LsnByTimestamp {
            lsn: found.last_record_lsn,
            kind,
        })
    }

    /// The time of the newest commit that ends at or before an LSN. Fails with `BadRequest` for an LSN that is not
    /// ingested yet, with `NotFound` when no state is stored at or before it, with `Timeout` when an ancestor has not
    /// ingested in time what the branch reads of it, and when layers can't be read.
    pub async fn timestamp_of_lsn(&self, lsn: Lsn) -> Result<TimestampOfLsn> {
        if lsn > self.last_record_lsn() {
            return Err(Error::BadRequest(format!(
                "LSN {lsn} is not ingested yet; timeline {} is at {}",
                self.id(),
                self.last_record_lsn()
            )));
        }
        self.wait_for_ancestors(self.config().wait_lsn_timeout())
            .await?;
        let state = self.stored_state(lsn).await?;
        let known = state.last_commit_timestamp != 0;
        Ok(TimestampOfLsn {
            timestamp: known.then(|| PgTimestamp(state.last_commit_timestamp).to_string()),
        })
    }
}
