//! Takes records: interprets each one, gathers what it changes, and publishes the changes of many records together.
//!
//! A record is checked, interpreted and given back as a whole, and a user can have Postgres write one that takes a
//! second for that: the commit of millions of subtransactions. What is done with records from [`LONG_RECORD`] on
//! leaves the async worker ([`stalls::off_worker`]), in its order among the others; a shorter one takes a few
//! milliseconds at most, and costs no more than to look at its length.

use bytes::Bytes;
use pg_types::wal::rmgr;
use wal_decode::{DecodedRecord, MetaChange, RawRecord, Records, TimelineState, WalError};

use super::super::history::encode_state;
use super::apply;
use super::directory::Directory;
use super::encode::EncodeError;
use super::gather::Gathered;
use super::{Ended, Ingest, IngestState, LONG_RECORD};

/// Ingests every record that is whole. Those before one that cannot be ingested are published all the same.
pub(super) async fn drain(ingest: &Ingest, mut records: Records<'_>) -> Result<(), Ended> {
    let mut known = ingest.known.lock().await;
    // What an attempt before this one left there belongs to nothing.
    known.collector.writer.clear();
    known.directory.bound();
    let mut gathered = Gathered::new(ingest);
    let taken = take_all(ingest, &mut known, &mut gathered, &mut records).await;
    let published = gathered.publish(ingest, &mut known.collector.writer);
    let published = published.map_err(Ended::from);
    let is_long = records.bytes_spent() >= LONG_RECORD;
    stalls::off_worker_if(is_long, move || drop(records));
    if let Err(ended) = taken.and(published) {
        // The next attempt asks storage, whatever was thought to be published.
        known.directory = Directory::default();
        return Err(ended);
    }
    ingest.layers.pace_ingest().await?;
    // While there is WAL to catch up with, nothing here waits: reads on this thread get their turn.
    tokio::task::yield_now().await;
    Ok(())
}

async fn take_all(
    ingest: &Ingest,
    known: &mut IngestState,
    gathered: &mut Gathered,
    records: &mut Records<'_>,
) -> Result<(), Ended> {
    loop {
        let next = if records.bytes_awaited() < LONG_RECORD {
            records.next_record()
        } else {
            next_of_long(records)
        };
        let record = match next {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Ended::Bad(error.to_string())),
        };
        let taken = if record.bytes.len() < LONG_RECORD {
            take_record(ingest, known, gathered, &record)
        } else {
            stalls::off_worker(|| take_record(ingest, known, gathered, &record))
        };
        if let Some(unsettled) = taken? {
            gather_from_storage(ingest, known, gathered, *unsettled).await?;
        }
        if gathered.is_enough() {
            gathered.publish(ingest, &mut known.collector.writer)?;
            ingest.layers.pace_ingest().await?;
            // Nothing that is gathered waits for it, and one piece of WAL can have much to gather.
            tokio::task::yield_now().await;
        }
    }
}

/// The next record where a long one goes on, which is moved to more memory as it grows, and checked at its end.
#[cold]
fn next_of_long<'r>(records: &'r mut Records<'_>) -> Result<Option<RawRecord<'r>>, WalError> {
    stalls::off_worker(move || records.next_record())
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
    ingest: &Ingest,
    known: &mut IngestState,
    gathered: &mut Gathered,
    raw: &RawRecord<'_>,
) -> Result<Option<Box<Unsettled>>, Box<Ended>> {
    // Read where it is used: to hand it over whole would take longer than to read it.
    let taken = wal_decode::decode_for(raw.start_lsn, raw.end_lsn, raw.bytes, |record| {
        take_decoded(ingest, known, gathered, raw, record)
    });
    taken.map_err(|error| refused(raw, &error))?
}

fn take_decoded(
    ingest: &Ingest,
    known: &mut IngestState,
    gathered: &mut Gathered,
    raw: &RawRecord<'_>,
    record: &DecodedRecord<'_>,
) -> Result<Option<Box<Unsettled>>, Box<Ended>> {
    let IngestState {
        directory,
        collector,
    } = known;
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
        gathered.record_taken(ingest, &collector.writer);
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
    gathered.record_taken(ingest, &collector.writer);
    Ok(None)
}

/// Gathers a record with what storage says of what was there before it.
async fn gather_from_storage(
    ingest: &Ingest,
    known: &mut IngestState,
    gathered: &mut Gathered,
    unsettled: Unsettled,
) -> Result<(), Ended> {
    let IngestState {
        directory,
        collector,
    } = known;
    let Unsettled { state, stored } = unsettled;
    let lsn = state.last_record_lsn;
    // The records gathered before this one are published first: this record reads from storage what they wrote, and
    // readers need not wait for the read.
    let changes = collector.take_changes();
    gathered.publish(ingest, &mut collector.writer)?;
    let before = ingest.position.last_record_lsn();
    let mut batch = apply::Batch::new(ingest, directory, before, lsn);
    batch.add(changes).await?;
    let (values, update) = batch.finish()?;
    gathered.add(lsn, values, update.growth);
    directory.update(update);
    gathered.pass_to(state, stored);
    gathered.record_taken(ingest, &collector.writer);
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
