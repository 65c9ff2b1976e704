//! Ingest: makes versions of committed WAL.
//!
//! One task per timeline follows a WAL source from `last_record_lsn`, decodes records, turns them into versions and
//! publishes the versions of many records at a time (`records`, `gather`). After an error of the source, ingest tries again.
//! Bytes that are not WAL are also tried again, from another safekeeper, which may have them whole (`tried`). A
//! record that cannot be interpreted stops the timeline before that record, with the record named, until a program is
//! started that can interpret it. The stop is not stored: after a restart or a crash, the same record either stops
//! the timeline again or is ingested.
//!
//! Ingest is a part of a timeline: it calls the parts that it is given ([`Parts`]), and none of them knows it.

mod apply;
mod directory;
mod encode;
mod gather;
mod records;
mod tried;
mod whose;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pg_types::{Lsn, PgMajor};
use tokio::sync::watch;
use wal_decode::WalStreamDecoder;

use self::directory::Directory;
pub use self::encode::{DeltaWriter, EncodedValue};
use self::gather::ChangeCollector;
use self::tried::Tried;
use super::identity::Identity;
use super::images::Images;
use super::layer_stack::LayerStack;
use super::position::Position;
use super::reads::Reads;
use super::safekeepers::Safekeepers;
use super::terms::Terms;
use crate::api::SickKind;
use crate::error::Error;
use crate::term_history::OtherHistory;
use crate::timeline_index::TimelineIndex;
use crate::wal_source::{WalFeedback, WalSource, WalStream};

/// A record of so many bytes or more, or what belongs to one, is worked on off the async worker. Shorter ones take a
/// few milliseconds at most: 512 KiB name 130,000 subtransactions. Beside the ends of transactions, records are
/// shorter: one with a page image for each of its blocks has 270 KiB.
const LONG_RECORD: usize = 512 << 10;
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
struct IngestState {
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

/// The parts that ingest works on.
pub(super) struct Parts {
    pub identity: Arc<Identity>,
    pub position: Arc<Position>,
    pub index: Arc<TimelineIndex>,
    pub terms: Arc<Terms>,
    pub images: Arc<Images>,
    pub reads: Arc<Reads>,
    pub layers: Arc<LayerStack>,
    pub safekeepers: Arc<Safekeepers>,
}

/// The writing side of a timeline. This part knows those named in [`Parts`].
pub(super) struct Ingest {
    parts: Parts,
    /// Locked while records are ingested: one at a time, in their order.
    known: tokio::sync::Mutex<IngestState>,
}

/// So that ingest names the part that it calls, and no more.
impl Deref for Ingest {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Ingest {
    pub fn new(parts: Parts) -> Ingest {
        Ingest {
            parts,
            known: tokio::sync::Mutex::default(),
        }
    }

    /// Follows the source until the timeline shuts down. An ingest that has stopped tries again when the timeline is
    /// given safekeepers.
    pub async fn follow(&self, source: &dyn WalSource) {
        let committed = watch::Sender::new(Lsn::INVALID);
        // A stopped timeline still lets go of the WAL that it does not need.
        tokio::join!(
            run(self, source, &committed),
            report(self, source, &committed, REPORT_INTERVAL),
        );
    }
}

/// Reports to all safekeepers how far the timeline has been ingested, and learns how far WAL is committed. Does not
/// end.
async fn report(
    ingest: &Ingest,
    source: &dyn WalSource,
    committed: &watch::Sender<Lsn>,
    every: Duration,
) {
    let mut due = tokio::time::interval(every);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let (at, ingested) = (ingest.position.last_record_lsn(), ingest.terms.ingested());
        let reported = source.report(feedback(ingest), ingested.as_ref()).await;
        whose::reported(ingest, at, &reported);
        committed.send_replace(reported.commit_lsn);
    }
}

async fn run(ingest: &Ingest, source: &dyn WalSource, committed: &watch::Sender<Lsn>) {
    let mut safekeepers = ingest.safekeepers.list();
    loop {
        let reason = ingest_until_stopped(ingest, source, committed, &mut safekeepers).await;
        ingest.position.stop(reason);
        // Also when they were changed during the last attempt.
        if safekeepers.changed().await.is_err() {
            return;
        }
        ingest.position.resume();
    }
}

/// Why the timeline has to stop.
async fn ingest_until_stopped(
    ingest: &Ingest,
    source: &dyn WalSource,
    committed: &watch::Sender<Lsn>,
    safekeepers: &mut watch::Receiver<Vec<String>>,
) -> String {
    let mut pause = FIRST_PAUSE;
    let mut tried = Tried::default();
    loop {
        safekeepers.mark_unchanged();
        let before = ingest.position.last_record_lsn();
        let ended = attempt(ingest, source, committed, &mut tried).await;
        ingest.images.set_catching_up(false);
        let at = ingest.position.last_record_lsn();
        match ended {
            Ended::Stopped(reason) => return reason,
            Ended::Bad(why) => {
                ingest
                    .safekeepers
                    .found_sick(&tried.reading, SickKind::Damaged, at, &why);
                if let Some(reason) = tried.was_bad(at, &why, source) {
                    return reason;
                }
            }
            // The next attempt compares everyone's history, and finds this one's or another one.
            Ended::Other(other) => {
                ingest.safekeepers.found_sick(
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
                    tenant = %ingest.identity.tenant, timeline = %ingest.identity.id, %at, from = tried.reading,
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
    ingest: &Ingest,
    source: &dyn WalSource,
    committed: &watch::Sender<Lsn>,
    tried: &mut Tried,
) -> Ended {
    let state = ingest.position.state();
    let start = state.last_record_lsn;
    let stream = match whose::open(ingest, source, tried, start).await {
        Ok(stream) => stream,
        Err(ended) => return ended,
    };
    tried.reading = stream.place().to_owned();
    let mut decoder = WalStreamDecoder::new(start, PgMajor::V15)
        .with_system_identifier(ingest.identity.manifest.system_identifier)
        .with_prev_record(state.prev_record_lsn);
    let ended = take_stream(ingest, stream, &mut decoder, committed, &tried.reading).await;
    // It may have most of a record that will come from elsewhere now.
    let is_long = decoder.held_bytes() >= LONG_RECORD;
    stalls::off_worker_if(is_long, move || drop(decoder));
    ended
}

/// Takes WAL from a stream of the safekeeper `reading`, which begins behind the last record, until it ends.
async fn take_stream(
    ingest: &Ingest,
    mut stream: Box<dyn WalStream>,
    decoder: &mut WalStreamDecoder,
    committed: &watch::Sender<Lsn>,
    reading: &str,
) -> Ended {
    let start = decoder.boundary();
    // What the source said last of the log's history, until WAL of it is taken.
    let mut announced = None;
    let mut reported = WalFeedback::default();
    let mut report = tokio::time::interval(FEEDBACK_INTERVAL);
    report.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_heard = tokio::time::Instant::now();
    let mut last_wal = last_heard;
    let mut received = start;
    let mut turn = None;
    loop {
        tokio::select! {
            chunk = stream.next() => {
                let chunk = match chunk {
                    Ok(chunk) => chunk,
                    Err(error) => return Ended::Source(error),
                };
                last_heard = tokio::time::Instant::now();
                if let Err(other) = whose::check(ingest, &mut announced, &chunk, received) {
                    return Ended::Other(other);
                }
                ingest.terms.raise(chunk.term);
                if !chunk.bytes.is_empty() {
                    received = chunk.start_lsn + chunk.bytes.len() as u64;
                }
                let waiting = chunk.commit_lsn.0.saturating_sub(received.0);
                ingest.images.set_catching_up(waiting >= BEHIND_BYTES);
                if chunk.bytes.is_empty() {
                    continue;
                }
                ingest.identity.metrics.wal_bytes.inc_by(chunk.bytes.len() as u64);
                let records = match decoder.feed(chunk.start_lsn, &chunk.bytes) {
                    Ok(records) => records,
                    Err(error) => return Ended::Source(error.into()),
                };
                if let Err(ended) = records::drain(ingest, records).await {
                    return ended;
                }
                whose::taken(ingest, reading, start);
                turn = ingest.layers.large_record_turn(decoder.bytes_awaited(), turn).await;
                // Not the source's fault if that took long.
                last_heard = tokio::time::Instant::now();
                last_wal = last_heard;
                if let Err(error) = send_feedback(ingest, &mut *stream, &mut reported).await {
                    return Ended::Source(error);
                }
            }
            _ = report.tick() => {
                if last_heard.elapsed() > SILENCE {
                    return Ended::Source(anyhow::anyhow!("nothing heard for {} s", SILENCE.as_secs()));
                }
                if last_wal.elapsed() > LAGGING
                    && let Err(lags) = wants_nothing_more(ingest, *committed.borrow(), received)
                {
                    return Ended::Source(lags);
                }
                if let Err(error) = send_feedback(ingest, &mut *stream, &mut reported).await {
                    return Ended::Source(error);
                }
            }
        }
    }
}

/// An error when there is WAL behind `received`, which a safekeeper that sends none does not have.
fn wants_nothing_more(ingest: &Ingest, elsewhere: Lsn, received: Lsn) -> anyhow::Result<()> {
    if ingest
        .position
        .is_wanted_beyond(ingest.position.last_record_lsn())
    {
        anyhow::bail!("reads wait for WAL that does not come from here");
    }
    if elsewhere > received {
        anyhow::bail!(
            "another safekeeper has WAL up to {elsewhere}, this one sends none behind {received}"
        );
    }
    Ok(())
}

fn feedback(ingest: &Ingest) -> WalFeedback {
    WalFeedback {
        ingested_lsn: ingest.position.last_record_lsn(),
        remote_consistent_lsn: ingest.index.consistent_lsn(),
    }
}

async fn send_feedback(
    ingest: &Ingest,
    stream: &mut dyn WalStream,
    reported: &mut WalFeedback,
) -> anyhow::Result<()> {
    let feedback = feedback(ingest);
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
