//! From committed WAL to versions.
//!
//! One task per timeline follows a WAL source from `last_record_lsn`, decodes records, turns each into
//! versions and publishes it. Errors of the source mean another attempt; a record that cannot be
//! interpreted stops the timeline before it, with the record named, until a program comes that can. The
//! stop is not stored: after a restart the same record stops the timeline again, or no longer does.

mod apply;
mod safekeeper;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pg_types::wal::rmgr;
use pg_types::{Key, Lsn, PgMajor};
use tokio::sync::watch;
use wal_decode::{MetaChange, RawRecord, Records, WalStreamDecoder};

pub use self::apply::Directory;
pub use self::safekeeper::SafekeeperSource;
use crate::error::{Error, Result};
use crate::timeline::{Timeline, encode_state};
use crate::wal_source::{WalFeedback, WalSource, WalStream};

/// How often positions are reported while they move.
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(50);
/// Pause after a failed attempt, doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// All safekeepers are told, and asked, how far things are this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// WAL that a read waits for, or that another safekeeper has committed, comes within this time, or another
/// safekeeper is tried: the one that is read may have lost touch with the compute while others have not.
const LAGGING: Duration = Duration::from_secs(2);
/// Sources send a heartbeat every second; silence means that the connection is dead.
const SILENCE: Duration = Duration::from_secs(10);

/// What ingest remembers between records.
#[derive(Default)]
pub struct IngestState {
    pub(crate) directory: Directory,
}

/// Why an attempt to follow the source ended.
enum Ended {
    /// Try again.
    Source(anyhow::Error),
    /// The timeline cannot pass this record.
    Stopped(String),
}

/// Follows the source until the timeline stops or shuts down.
pub async fn follow(timeline: Arc<Timeline>, source: Arc<dyn WalSource>) {
    let committed = watch::Sender::new(Lsn::INVALID);
    tokio::select! {
        () = ingest(&timeline, &*source, &committed) => {}
        () = report(&timeline, &*source, &committed, REPORT_INTERVAL) => {}
    }
    // A stopped timeline still lets go of the WAL that it does not need.
    report(&timeline, &*source, &committed, REPORT_INTERVAL).await;
}

/// Tells everyone who keeps WAL how far the timeline is, and learns how far it could be. Does not end.
async fn report(
    timeline: &Timeline,
    source: &dyn WalSource,
    committed: &watch::Sender<Lsn>,
    every: Duration,
) {
    let mut due = tokio::time::interval(every);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let known = source.report(feedback(timeline)).await;
        committed.send_modify(|committed| *committed = known.max(*committed));
    }
}

async fn ingest(timeline: &Arc<Timeline>, source: &dyn WalSource, committed: &watch::Sender<Lsn>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let before = timeline.last_record_lsn();
        match attempt(timeline, source, committed).await {
            Ended::Stopped(reason) => {
                timeline.stop(reason);
                return;
            }
            Ended::Source(error) => {
                tracing::info!(
                    tenant = %timeline.tenant, timeline = %timeline.id, at = %timeline.last_record_lsn(),
                    "WAL stream ended, trying again: {error:#}"
                );
            }
        }
        pause = if timeline.last_record_lsn() > before {
            FIRST_PAUSE
        } else {
            (pause * 2).min(LONGEST_PAUSE)
        };
        tokio::time::sleep(pause).await;
    }
}

async fn attempt(
    timeline: &Arc<Timeline>,
    source: &dyn WalSource,
    committed: &watch::Sender<Lsn>,
) -> Ended {
    let state = timeline.state();
    let start = state.last_record_lsn;
    let mut stream = match source.open(start).await {
        Ok(stream) => stream,
        Err(error) => return Ended::Source(error),
    };
    let mut decoder = WalStreamDecoder::new(start, PgMajor::V15)
        .with_system_identifier(timeline.manifest().system_identifier)
        .with_prev_record(state.prev_record_lsn);
    let mut reported = WalFeedback::default();
    let mut report = tokio::time::interval(FEEDBACK_INTERVAL);
    report.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_heard = tokio::time::Instant::now();
    let mut last_wal = last_heard;
    let mut received = start;
    loop {
        tokio::select! {
            chunk = stream.next() => {
                let chunk = match chunk {
                    Ok(chunk) => chunk,
                    Err(error) => return Ended::Source(error),
                };
                last_heard = tokio::time::Instant::now();
                timeline.raise_term(chunk.term);
                if chunk.bytes.is_empty() {
                    continue;
                }
                received = chunk.start_lsn + chunk.bytes.len() as u64;
                timeline.metrics().wal_bytes.inc_by(chunk.bytes.len() as u64);
                let records = match decoder.feed(chunk.start_lsn, &chunk.bytes) {
                    Ok(records) => records,
                    Err(error) => return Ended::Source(error.into()),
                };
                if let Err(ended) = drain(timeline, records).await {
                    return ended;
                }
                // Not the source's fault if that took long.
                last_heard = tokio::time::Instant::now();
                last_wal = last_heard;
                if let Err(error) = send_feedback(timeline, &mut *stream, &mut reported).await {
                    return Ended::Source(error);
                }
            }
            _ = report.tick() => {
                if last_heard.elapsed() > SILENCE {
                    return Ended::Source(anyhow::anyhow!("nothing heard for {} s", SILENCE.as_secs()));
                }
                if last_wal.elapsed() > LAGGING && timeline.is_wanted_beyond(timeline.last_record_lsn()) {
                    return Ended::Source(anyhow::anyhow!("reads wait for WAL that does not come from here"));
                }
                let elsewhere = *committed.borrow();
                if last_wal.elapsed() > LAGGING && elsewhere > received {
                    return Ended::Source(anyhow::anyhow!(
                        "another safekeeper has WAL up to {elsewhere}, this one sends none behind {received}"
                    ));
                }
                if let Err(error) = send_feedback(timeline, &mut *stream, &mut reported).await {
                    return Ended::Source(error);
                }
            }
        }
    }
}

/// Ingests every record that is whole.
async fn drain(timeline: &Timeline, mut records: Records<'_>) -> Result<(), Ended> {
    let mut ingest = timeline.ingest_state().lock().await;
    loop {
        let record = match records.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Ended::Stopped(format!("the WAL cannot be read: {error}"))),
        };
        ingest_record(timeline, &mut ingest, &record)
            .await
            .map_err(|error| match error {
                // Not the record's fault: a layer could not be fetched, say.
                IngestError::Storage(error) => Ended::Source(anyhow::anyhow!("{error}")),
                IngestError::Record(reason) => Ended::Stopped(reason),
            })?;
        timeline
            .pace_ingest()
            .await
            .map_err(|error| Ended::Source(anyhow::anyhow!("{error}")))?;
    }
}

enum IngestError {
    Storage(Error),
    Record(String),
}

impl From<Error> for IngestError {
    fn from(error: Error) -> IngestError {
        IngestError::Storage(error)
    }
}

/// Turns one record into versions and publishes them.
async fn ingest_record(
    timeline: &Timeline,
    ingest: &mut IngestState,
    raw: &RawRecord<'_>,
) -> Result<(), IngestError> {
    let refuse = |what: &dyn std::fmt::Display, rmid: Option<u8>| {
        let rmgr = rmid.map_or("unknown", rmgr::name);
        IngestError::Record(format!(
            "record at {} ({rmgr}, {} bytes, ends at {}) cannot be ingested: {what}",
            raw.start_lsn,
            raw.bytes.len(),
            raw.end_lsn
        ))
    };
    let record = wal_decode::decode(raw.start_lsn, raw.end_lsn, raw.bytes)
        .map_err(|error| refuse(&error, raw.header().map(|header| header.rmid)))?;
    let mut state = timeline.state();
    let before: Lsn = state.last_record_lsn;
    let changes = wal_decode::interpret(&record, &state)
        .map_err(|error| refuse(&error, Some(record.rmid)))?;
    let observed = state
        .observe(&record)
        .map_err(|error| refuse(&error, Some(record.rmid)))?;

    let mut batch = apply::Batch::new(timeline, &ingest.directory, before, raw.end_lsn);
    for change in changes.meta {
        if let Some(why) = not_served(&change) {
            return Err(refuse(&why, Some(record.rmid)));
        }
        batch.meta(change).await?;
    }
    for (key, change) in changes.pages {
        batch.page(key, change).await?;
    }
    if observed.changed {
        batch.values.push((
            Key::timeline_state(),
            layers::Value::Meta(encode_state(&state)?),
        ));
    }
    let (values, update) = batch.finish()?;
    timeline.publish(state, values, update.growth)?;
    ingest.directory.update(update);
    timeline.metrics().wal_records.inc();
    timeline.metrics().set_last_record_lsn(raw.end_lsn);
    Ok(())
}

/// Why a change that is understood still stops the timeline: a compute could not be started behind it.
fn not_served(change: &MetaChange) -> Option<&'static str> {
    match change {
        MetaChange::CreateTablespace { .. } | MetaChange::DropTablespace { .. } => {
            Some("tablespaces are not supported: computes serve pg_default and pg_global only")
        }
        _ => None,
    }
}

fn feedback(timeline: &Timeline) -> WalFeedback {
    WalFeedback {
        ingested_lsn: timeline.last_record_lsn(),
        remote_consistent_lsn: timeline.remote_consistent_lsn(),
    }
}

async fn send_feedback(
    timeline: &Timeline,
    stream: &mut dyn WalStream,
    reported: &mut WalFeedback,
) -> anyhow::Result<()> {
    let feedback = feedback(timeline);
    if feedback == *reported {
        return Ok(());
    }
    crash::point!("feedback.before");
    stream
        .feedback(feedback)
        .await
        .context("report positions")?;
    crash::point!("feedback.sent");
    *reported = feedback;
    Ok(())
}
