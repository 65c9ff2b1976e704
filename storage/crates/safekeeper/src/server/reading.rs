//! Readers: committed WAL as it comes, each piece after the history it is of.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consensus::TermHistory;
use futures::StreamExt as _;
use part_tls::WriteHalf;
use pg_types::Lsn;
use wal_decode::{WalError, WalStreamDecoder};
use wire::wal::{
    self, Failure, FailureKind, Feedback, ReadReply, StreamFrame, StreamRequest, WalFrame,
};

use super::{FRAME_WAL_BYTES, Frames, send, send_wal};
use crate::metrics::Connection;
use crate::recovery;
use crate::timeline::{Committed, Timeline};

/// The version of readers that are not told the log's history.
pub(super) const WITHOUT_HISTORY: u16 = 2;

const HEARTBEAT_PERIOD: Duration = Duration::from_secs(1);
/// A reader that has all WAL gets the next of it after this long, with that of all commits until then: it costs the
/// reader and this program a few wake-ups, and commits on the same machine would wait for them.
const GATHER_PERIOD: Duration = Duration::from_millis(10);

/// `counts`: whether it matters how far the reader says it is.
pub(super) async fn read(
    timeline: Arc<Timeline>,
    mut frames: Frames,
    mut writer: WriteHalf,
    request: StreamRequest,
    counts: bool,
) -> anyhow::Result<()> {
    let _open = Connection::open("reader");
    let status = timeline.status();
    let (position, oldest_lsn) = (status.position, status.oldest_lsn);
    if request.start_lsn < oldest_lsn {
        let message = format!(
            "WAL at {} was trimmed, the oldest here is at {oldest_lsn}",
            request.start_lsn
        );
        let kind = FailureKind::Trimmed;
        return send(&mut writer, &ReadReply::Refused(Failure { kind, message })).await;
    }
    // Said before anything else, so that the reader goes to one that has it.
    if let Err(failure) = timeline.is_servable(request.start_lsn) {
        return send(&mut writer, &ReadReply::Refused(failure)).await;
    }
    if request.holds_wal {
        timeline.register_reader(&request.reader);
    }
    let (commit_lsn, term, history) = (position.commit_lsn, position.term, position.history);
    let told = (request.version != WITHOUT_HISTORY).then(|| Arc::new(history.clone()));
    let reply = match told {
        Some(_) => ReadReply::Follows {
            commit_lsn,
            oldest_lsn,
            history,
        },
        None => ReadReply::Ok {
            commit_lsn,
            oldest_lsn,
            term,
        },
    };
    send(&mut writer, &reply).await?;
    // A connection that asks for no WAL only leaves a position; there is one every few seconds.
    if request.start_lsn < Lsn::MAX {
        tracing::info!(reader = request.reader, start_lsn = %request.start_lsn, timeline = %timeline.identity.timeline, "reader follows");
    }
    let feedback = async {
        while let Some(frame) = frames.next().await.transpose()? {
            let feedback = wal::decode::<Feedback>(&frame)?;
            if counts {
                timeline.feedback(&request.reader, request.holds_wal, feedback);
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        ended = feedback => ended,
        ended = stream_wal(&timeline, &mut writer, request.start_lsn, told) => ended,
        () = timeline.closed().cancelled() => Ok(()),
    }
}

/// `told` is the history that the reader was told last; none for one that is told none.
async fn stream_wal(
    timeline: &Arc<Timeline>,
    writer: &mut WriteHalf,
    start_lsn: Lsn,
    mut told: Option<Arc<TermHistory>>,
) -> anyhow::Result<()> {
    let mut progress = timeline.progress();
    let mut heartbeat = tokio::time::interval(HEARTBEAT_PERIOD);
    heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut at = start_lsn;
    let mut announced = Lsn::INVALID;
    let mut check = Check::new(timeline, start_lsn);
    loop {
        let commit = progress.borrow_and_update().reply.commit_lsn;
        let mut due = false;
        if commit <= at && commit == announced {
            tokio::select! {
                changed = progress.changed() => changed?,
                _ = heartbeat.tick() => due = true,
            }
        }
        let Committed {
            bytes,
            commit_lsn,
            term,
            history,
        } = next_wal(timeline, at, told.as_ref()).await?;
        if let Some(history) = history {
            send(writer, &StreamFrame::History(history.clone())).await?;
            told = Some(Arc::new(history));
        }
        if bytes.is_empty() && commit_lsn == announced && !due {
            continue;
        }
        let frame = WalFrame {
            start_lsn: at,
            commit_lsn,
            term,
            sent_at_us: now_us(),
        };
        (at, announced) = (at + bytes.len() as u64, commit_lsn);
        let sent = bytes.clone();
        match told {
            Some(_) => send_wal(writer, &StreamFrame::Wal(frame), bytes).await?,
            None => send_wal(writer, &frame, bytes).await?,
        }
        check = check.and_then(|check| check.sent(timeline, frame.start_lsn, &sent));
        if sent.len() < FRAME_WAL_BYTES / 4 {
            tokio::time::sleep(GATHER_PERIOD).await;
        }
    }
}

/// Looks at what a reader is sent from disk, until it has caught up; what comes then was checked when it arrived. The reader
/// checks it as well, and goes elsewhere where it is damaged, so it is sent first: this is how the safekeeper learns of it.
struct Check {
    decoder: WalStreamDecoder,
    to: Lsn,
}

impl Check {
    fn new(timeline: &Timeline, from: Lsn) -> Option<Check> {
        let to = timeline.progress().borrow().reply.commit_lsn;
        let decoder = recovery::decoder(&timeline.identity, from);
        (from < to).then_some(Check { decoder, to })
    }

    /// `None` when there is nothing more to look at.
    fn sent(mut self, timeline: &Timeline, at: Lsn, wal: &[u8]) -> Option<Check> {
        let mut take = || {
            let mut records = self.decoder.feed(at, wal)?;
            while records.next_record()?.is_some() {}
            Ok(())
        };
        match take() {
            Ok(()) => (self.decoder.fed_to() < self.to).then_some(self),
            // It has asked for WAL from the midst of a record on.
            Err(WalError::NotABoundary { .. }) => None,
            Err(error) => {
                timeline.suspect(&error);
                None
            }
        }
    }
}

/// Fresh WAL is in the page cache and read at once; a reader far behind must not block the others.
async fn next_wal(
    timeline: &Arc<Timeline>,
    at: Lsn,
    told: Option<&Arc<TermHistory>>,
) -> anyhow::Result<Committed> {
    const NEAR_BYTES: u64 = 8 << 20;
    let commit = timeline.progress().borrow().reply.commit_lsn;
    if commit
        .checked_sub(at)
        .is_none_or(|behind| behind < NEAR_BYTES)
    {
        let told = told.map(|told| &**told);
        return Ok(timeline.read_committed(at, FRAME_WAL_BYTES, told)?);
    }
    let (reader, told) = (timeline.clone(), told.cloned());
    let read = move || reader.read_committed(at, FRAME_WAL_BYTES, told.as_deref());
    Ok(tokio::task::spawn_blocking(read).await??)
}

fn now_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64)
}
