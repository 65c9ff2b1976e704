//! Switching full page writes, live.

use std::time::Duration;

use pg_types::Lsn;
use proposer::FpwChange;
use serde::Serialize;
use tokio::sync::watch;
use wal_decode::TimelineState;

use super::live::Live;
use super::status::FullPageWrites;
use super::{Agent, State};
use crate::postgres::{Admin, AdminError};

/// Bytes of an XLOG_FPW_CHANGE record.
const FPW_RECORD_BYTES: u64 = 27;
/// How long the record may wait for somebody else's commit before it is flushed for its own sake.
const FLUSH_EVERY: Duration = Duration::from_millis(75);

/// The switch as it stands on a majority of the safekeepers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Switched {
    /// Whether full page writes are on.
    pub enabled: bool,
    /// End of the record; null when the state has been so from the timeline's first day.
    pub lsn: Option<Lsn>,
    /// Start of the record; null when the state has been so from the timeline's first day.
    pub record_lsn: Option<Lsn>,
    /// Always true: a switch that is not committed in time is an error.
    pub committed: bool,
}

/// Why full page writes are not known to be switched.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// No Postgres runs in the state of the field; nothing was changed.
    #[error("the compute is {0:?}; full page writes can be switched only while it runs")]
    NotRunning(State),
    /// Postgres could not be asked, or refused a statement. The call may be repeated.
    #[error("Postgres did not take the setting: {0}")]
    Postgres(#[from] AdminError),
    /// The record was not committed within the time that was given, the field. Ask again: the switch may still come.
    #[error("the change was not logged and committed within {} ms; it may still come: ask again", .0.as_millis())]
    Late(Duration),
    /// The run ended before the record was committed. The next run starts with what the WAL says.
    #[error("the compute stopped while the change was under way")]
    Stopped,
}

impl Agent {
    /// Switches full page writes and returns once the record is committed. In that state already: nothing
    /// changes, and the record that made it so is named.
    pub async fn switch_full_page_writes(
        &self,
        enabled: bool,
        timeout: Duration,
    ) -> Result<Switched, SwitchError> {
        let deadline = tokio::time::Instant::now() + timeout;
        let late = || SwitchError::Late(timeout);
        let _one = tokio::time::timeout_at(deadline, self.changing.lock())
            .await
            .map_err(|_| late())?;
        let live = self
            .running()
            .ok_or_else(|| SwitchError::NotRunning(self.status.lock().state))?;
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        let switched = self.switch_on(&live, enabled, left).await?;
        // A new start within this process keeps it.
        self.spec.lock().full_page_writes = enabled;
        Ok(switched)
    }

    /// The caller sees to it that nobody else switches.
    pub(super) async fn switch_on(
        &self,
        live: &Live,
        enabled: bool,
        timeout: Duration,
    ) -> Result<Switched, SwitchError> {
        let work = async {
            let mut changes = live.proposer.last_fpw_change();
            let admin = live.admin().await?;
            let set = admin
                .texts("read full_page_writes", "SHOW full_page_writes")
                .await?;
            let as_wanted = set.first().is_some_and(|value| (value == "on") == enabled);
            let known = self.status.lock().full_page_writes;
            let seen = *changes.borrow_and_update();
            // The proposer's word is newer than the status: it knows records that are not committed yet.
            let logged = seen
                .map(|change| change.enabled)
                .or(known.map(|known| known.enabled));
            if as_wanted && logged == Some(enabled) && seen.is_none() {
                return Ok(Switched {
                    enabled,
                    lsn: known.and_then(|known| known.lsn),
                    record_lsn: known.and_then(|known| known.record_lsn),
                    committed: true,
                });
            }
            if !as_wanted {
                admin
                    .alter_system("full_page_writes", Some(if enabled { "on" } else { "off" }))
                    .await?;
            }
            let change = loop {
                match tokio::time::timeout(FLUSH_EVERY, committed(&mut changes, enabled)).await {
                    Ok(change) => break change.ok_or(SwitchError::Stopped)?,
                    Err(_) => flush(&admin).await?,
                }
            };
            let state = FullPageWrites {
                enabled,
                lsn: Some(change.end_lsn),
                record_lsn: Some(change.record_lsn),
            };
            self.observe_full_page_writes(state);
            Ok(Switched {
                enabled,
                lsn: state.lsn,
                record_lsn: state.record_lsn,
                committed: true,
            })
        };
        tokio::time::timeout(timeout, work)
            .await
            .unwrap_or(Err(SwitchError::Late(timeout)))
    }

    pub(super) fn observe_full_page_writes(&self, state: FullPageWrites) {
        self.metrics.full_page_writes.set(state.enabled.into());
        self.set(|status| status.full_page_writes = Some(state));
    }
}

/// Makes Postgres write out its WAL: nobody waits for an XLOG_FPW_CHANGE record, so on an idle compute it would
/// stay in memory until the next commit or for some seconds. An empty transaction with an id is logged as
/// committed, which wakes the WAL writer.
async fn flush(admin: &Admin) -> Result<(), AdminError> {
    admin
        .run("flush the WAL", "SELECT pg_current_xact_id()")
        .await
}

/// The committed change to `enabled`; `None` when the proposer has ended.
async fn committed(
    changes: &mut watch::Receiver<Option<FpwChange>>,
    enabled: bool,
) -> Option<FpwChange> {
    let done = |change: &Option<FpwChange>| {
        change.is_some_and(|change| change.enabled == enabled && change.committed)
    };
    changes.wait_for(done).await.ok().and_then(|change| *change)
}

/// The state a start finds, by what the WAL before it says.
pub(super) fn at_start(state: &TimelineState) -> FullPageWrites {
    let record_lsn = state
        .full_page_writes_lsn
        .is_valid()
        .then_some(state.full_page_writes_lsn);
    FullPageWrites {
        enabled: state.full_page_writes,
        lsn: record_lsn.map(|start| pg_types::wal::record_end(start, FPW_RECORD_BYTES)),
        record_lsn,
    }
}

#[cfg(test)]
mod tests {
    use pg_types::Lsn;

    use super::*;

    #[test]
    fn the_state_of_full_page_writes_is_told_by_the_record_s_end() {
        let mut state = TimelineState::start_of_nothing(pg_types::PgMajor::V15);
        assert_eq!(
            at_start(&state),
            FullPageWrites {
                enabled: false,
                lsn: None,
                record_lsn: None
            }
        );
        state.full_page_writes_lsn = Lsn(0x100_0100);
        assert_eq!(at_start(&state).lsn, Some(Lsn(0x100_0120)));
    }
}
