//! Ingest: makes versions of committed WAL.
//!
//! One task per timeline follows a WAL source from `last_record_lsn`, decodes records, turns them into versions and
//! publishes the versions of many records at a time (`gather`). After an error of the source, ingest tries again.
//! Bytes that are not WAL are also tried again, from another safekeeper, which may have them whole (`tried`). A
//! record that cannot be interpreted stops the timeline before that record, with the record named, until a program is
//! started that can interpret it. The stop is not stored: after a restart or a crash, the same record either stops
//! the timeline again or is ingested.
//!
//! Ingest is the writing side of [`Timeline`], in files of its own: it works on all parts of a timeline, which starts it
//! and ends it. The two use each other.

mod apply;
mod directory;
mod encode;
mod gather;
mod safekeeper;
mod tried;
mod whose;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use pg_types::wal::rmgr;
use pg_types::{Lsn, PgMajor};
use tokio::sync::watch;
use wal_decode::{DecodedRecord, MetaChange, RawRecord, Records, TimelineState, WalStreamDecoder};

use self::directory::Directory;
use self::encode::EncodeError;
pub use self::encode::{DeltaWriter, EncodedValue};
use self::gather::{ChangeCollector, Gathered};
pub use self::safekeeper::SafekeeperSource;
use self::tried::Tried;
use crate::api::SickKind;
use crate::error::{Error, Result};
use crate::term_history::OtherHistory;
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
/// WAL that is committed and has not come yet, bytes, from which on ingest counts as catching up.
const BEHIND_BYTES: u64 = 1 << 20;
/// Sources send a heartbeat every second; silence means that the connection is dead.
const SILENCE: Duration = Duration::from_secs(10);

/// What ingest remembers between records.
#[derive(Default)]
pub struct IngestState {
    directory: Directory,
    collector: ChangeCollector,
}

/// Why an attempt to follow the source ended.
enum Ended {
    /// Try again.
    Source(anyhow::Error),
    /// The bytes that came are no WAL: try another place.
    Bad(String),
    /// The bytes that came, or would have, are of another log than what was ingested: try another place.
    Other(OtherHistory),
    /// The timeline cannot pass this record.
    Stopped(String),
}

/// Follows the source until the timeline shuts down. One that has stopped tries again when it is given safekeepers.
pub async fn follow(timeline: Arc<Timeline>, source: Arc<dyn WalSource>) {
    let committed = watch::Sender::new(Lsn::INVALID);
    // A stopped timeline still lets go of the WAL that it does not need.
    tokio::join!(
        ingest(&timeline, &*source, &committed),
        report(&timeline, &*source, &committed, REPORT_INTERVAL),
    );
}

/// Reports to all safekeepers how far the timeline has been ingested, and learns how far WAL is committed. Does not
/// end.
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
        let (at, ingested) = (timeline.last_record_lsn(), timeline.ingested());
        let reported = source.report(feedback(timeline), ingested.as_ref()).await;
        whose::reported(timeline, at, &reported);
        committed.send_replace(reported.commit_lsn);
    }
}

async fn ingest(timeline: &Arc<Timeline>, source: &dyn WalSource, committed: &watch::Sender<Lsn>) {
    let mut safekeepers = timeline.safekeepers().list();
    loop {
        let reason = ingest_until_stopped(timeline, source, committed, &mut safekeepers).await;
        timeline.stop(reason);
        // Also when they were changed during the last attempt.
        if safekeepers.changed().await.is_err() {
            return;
        }
        timeline.resume();
    }
}

/// Why the timeline has to stop.
async fn ingest_until_stopped(
    timeline: &Arc<Timeline>,
    source: &dyn WalSource,
    committed: &watch::Sender<Lsn>,
    safekeepers: &mut watch::Receiver<Vec<String>>,
) -> String {
    let mut pause = FIRST_PAUSE;
    let mut tried = Tried::default();
    loop {
        safekeepers.mark_unchanged();
        let before = timeline.last_record_lsn();
        let ended = attempt(timeline, source, committed, &mut tried).await;
        timeline.set_catching_up(false);
        let at = timeline.last_record_lsn();
        match ended {
            Ended::Stopped(reason) => return reason,
            Ended::Bad(why) => {
                timeline
                    .safekeepers()
                    .found_sick(&tried.reading, SickKind::Damaged, at, &why);
                if let Some(reason) = tried.was_bad(at, &why, source) {
                    return reason;
                }
            }
            // The next attempt compares everyone's history, and finds this one's or another one.
            Ended::Other(other) => {
                timeline.safekeepers().found_sick(
                    &tried.reading,
                    SickKind::Diverged,
                    at,
                    &other.to_string(),
                );
                tried.ended(at);
            }
            Ended::Source(error) => {
                tried.ended(at);
                tracing::info!(
                    tenant = %timeline.tenant(), timeline = %timeline.id(), %at, from = tried.reading,
                    "WAL stream ended, trying again: {error:#}"
                );
            }
        }
        pause = if at > before {
            FIRST_PAUSE
        } else {
            (pause * 2).min(LONGEST_PAUSE)
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // The timeline has the sender: it is there as long as this task.
            _ = safekeepers.changed() => {}
        }
    }
}

async fn attempt(
    timeline: &Arc<Timeline>,
    source: &dyn WalSource,
    committed: &watch::Sender<Lsn>,
    tried: &mut Tried,
) -> Ended {
    let state = timeline.state();
    let start = state.last_record_lsn;
    let mut stream = match whose::open(timeline, source, tried, start).await {
        Ok(stream) => stream,
        Err(ended) => return ended,
    };
    tried.reading = stream.place().to_owned();
    // What the source said last of the log's history, until WAL of it is taken.
    let mut announced = None;
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
                if let Err(other) = whose::check(timeline, &mut announced, &chunk, received) {
                    return Ended::Other(other);
                }
                timeline.raise_term(chunk.term);
                if !chunk.bytes.is_empty() {
                    received = chunk.start_lsn + chunk.bytes.len() as u64;
                }
                let waiting = chunk.commit_lsn.0.saturating_sub(received.0);
                timeline.set_catching_up(waiting >= BEHIND_BYTES);
                if chunk.bytes.is_empty() {
                    continue;
                }
                timeline.metrics().wal_bytes.inc_by(chunk.bytes.len() as u64);
                let records = match decoder.feed(chunk.start_lsn, &chunk.bytes) {
                    Ok(records) => records,
                    Err(error) => return Ended::Source(error.into()),
                };
                if let Err(ended) = drain(timeline, records).await {
                    return ended;
                }
                whose::taken(timeline, &tried.reading, start);
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

/// Ingests every record that is whole. Those before one that cannot be ingested are published all the same.
async fn drain(timeline: &Timeline, mut records: Records<'_>) -> Result<(), Ended> {
    let mut ingest = timeline.ingest_state().lock().await;
    // What an attempt before this one left there belongs to nothing.
    ingest.collector.writer.clear();
    let mut gathered = Gathered::new(timeline);
    let taken = take_all(timeline, &mut ingest, &mut gathered, &mut records).await;
    let published = gathered.publish(timeline, &mut ingest.collector.writer);
    let published = published.map_err(Ended::from);
    if let Err(ended) = taken.and(published) {
        // The next attempt asks storage, whatever was thought to be published.
        ingest.directory = Directory::default();
        return Err(ended);
    }
    Ok(timeline.pace_ingest().await?)
}

async fn take_all(
    timeline: &Timeline,
    ingest: &mut IngestState,
    gathered: &mut Gathered,
    records: &mut Records<'_>,
) -> Result<(), Ended> {
    loop {
        let record = match records.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Ended::Bad(error.to_string())),
        };
        if let Some(unsettled) = take_record(timeline, ingest, gathered, &record)? {
            gather_from_storage(timeline, ingest, gathered, *unsettled).await?;
        }
        if gathered.is_enough() {
            gathered.publish(timeline, &mut ingest.collector.writer)?;
            timeline.pace_ingest().await?;
        }
    }
}

impl From<Box<Ended>> for Ended {
    fn from(ended: Box<Ended>) -> Ended {
        *ended
    }
}

/// Not the record's fault: a layer could not be fetched, say.
impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Source(anyhow::anyhow!("{error}"))
    }
}

/// What is left of a record of which storage has to be asked; its changes are in the collector.
struct Unsettled {
    /// Behind it, and in the form in which it is stored if it is to be.
    state: TimelineState,
    stored: Option<Bytes>,
}

/// Gathers one record, or says what is left to do. The results are small, to be handed over in registers: in memory
/// they would be written in pieces and read as a whole, for which the processor waits.
fn take_record(
    timeline: &Timeline,
    ingest: &mut IngestState,
    gathered: &mut Gathered,
    raw: &RawRecord<'_>,
) -> Result<Option<Box<Unsettled>>, Box<Ended>> {
    // Read where it is used: to hand it over whole would take longer than to read it.
    let taken = wal_decode::decode_for(raw.start_lsn, raw.end_lsn, raw.bytes, |record| {
        take_decoded(timeline, ingest, gathered, raw, record)
    });
    taken.map_err(|error| refused(raw, &error))?
}

fn take_decoded(
    timeline: &Timeline,
    ingest: &mut IngestState,
    gathered: &mut Gathered,
    raw: &RawRecord<'_>,
    record: &DecodedRecord<'_>,
) -> Result<Option<Box<Unsettled>>, Box<Ended>> {
    let IngestState {
        directory,
        collector,
    } = ingest;
    collector.changes.clear();
    match wal_decode::interpret_into(record, &gathered.state, collector) {
        Ok(()) => {}
        Err(EncodeError::Interpret(error)) => return Err(refused(raw, &error)),
        Err(EncodeError::Encode(error)) => return Err(Box::new(error.into())),
    }
    if let Some(why) = collector.changes.meta.iter().find_map(not_served) {
        return Err(refused(raw, &why));
    }
    if gathered.state.is_untouched_by(record)
        && gathered.take(directory, &mut collector.changes, record.end_lsn)
    {
        gathered.state.move_behind(record);
        gathered.record_taken(timeline, &collector.writer);
        return Ok(None);
    }
    let mut state = gathered.state;
    let observed = state.observe(record);
    let changed = observed.map_err(|error| refused(raw, &error))?.changed;
    let stored = changed.then(|| encode_state(&state)).transpose();
    let stored = stored.map_err(|error| Box::new(error.into()))?;
    if !gathered.take(directory, &mut collector.changes, record.end_lsn) {
        return Ok(Some(Box::new(Unsettled { state, stored })));
    }
    gathered.pass_to(state, stored);
    gathered.record_taken(timeline, &collector.writer);
    Ok(None)
}

/// Gathers a record with what storage says of what was there before it.
async fn gather_from_storage(
    timeline: &Timeline,
    ingest: &mut IngestState,
    gathered: &mut Gathered,
    unsettled: Unsettled,
) -> Result<(), Ended> {
    let IngestState {
        directory,
        collector,
    } = ingest;
    let Unsettled { state, stored } = unsettled;
    let lsn = state.last_record_lsn;
    // The records gathered before this one are published first: this record reads from storage what they wrote, and
    // readers need not wait for the read.
    let changes = collector.take_changes();
    gathered.publish(timeline, &mut collector.writer)?;
    let before = timeline.last_record_lsn();
    let mut batch = apply::Batch::new(timeline, directory, before, lsn);
    batch.add(changes).await?;
    let (values, update) = batch.finish()?;
    gathered.add(lsn, values, update.growth);
    directory.update(update);
    gathered.pass_to(state, stored);
    gathered.record_taken(timeline, &collector.writer);
    Ok(())
}

#[cold]
fn refused(raw: &RawRecord<'_>, why: &dyn std::fmt::Display) -> Box<Ended> {
    let header = raw.header();
    let rmgr = header.map_or("unknown", |header| rmgr::name(header.rmid));
    Box::new(Ended::Stopped(format!(
        "record at {} ({rmgr}, {} bytes, ends at {}) cannot be ingested: {why}",
        raw.start_lsn,
        raw.bytes.len(),
        raw.end_lsn
    )))
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
