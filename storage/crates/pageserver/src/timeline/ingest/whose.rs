//! Opens streams of the log whose WAL was ingested, and notes the safekeepers that keep another log.

use std::sync::Arc;

use consensus::TermHistory;
use pg_types::Lsn;

use super::tried::Tried;
use super::{Ended, Ingest};
use crate::api::SickKind;
use crate::term_history::OtherHistory;
use crate::wal_source::{Reported, Standing, WalChunk, WalSource, WalStream};

/// Opens a stream of the log whose WAL was ingested.
pub(super) async fn open(
    ingest: &Ingest,
    source: &dyn WalSource,
    tried: &mut Tried,
    start: Lsn,
) -> Result<Box<dyn WalStream>, Ended> {
    tried.reading.clear();
    let ingested = ingest.terms.ingested();
    let standing = Standing {
        start,
        in_vain: tried.in_vain(start),
        ingested: ingested.as_ref(),
    };
    let opening = source.open_for(standing).await;
    if let Some(found) = opening.found {
        ingest.terms.found(found);
    }
    for (place, why) in &opening.others {
        ingest
            .safekeepers
            .found_sick(place, SickKind::Diverged, start, why);
    }
    if let Some(reason) = tried.are_others(start, opening.others, source) {
        return Err(Ended::Stopped(reason));
    }
    opening.stream.map_err(Ended::Source)
}

/// Notes which safekeepers a report at `at` found to agree with the ingested log, and which keep another log.
pub(super) fn reported(ingest: &Ingest, at: Lsn, reported: &Reported) {
    ingest.safekeepers.found_to_agree(&reported.agreeing);
    let named = ingest.safekeepers.list();
    for (place, why) in &reported.others {
        // The safekeeper may have been removed from the list meanwhile.
        if named.borrow().contains(place) {
            ingest
                .safekeepers
                .found_sick(place, SickKind::Diverged, at, why);
        }
    }
}

/// Notes that WAL of a stream that was opened at `start` on the safekeeper `place` has been ingested.
pub(super) fn taken(ingest: &Ingest, place: &str, start: Lsn) {
    ingest.terms.note();
    ingest.safekeepers.read_well(place, start);
}

/// Checks that a piece is of the log whose WAL was received up to `received`. An announced history is compared as far
/// as the safekeeper's log is committed, and compared again with later pieces until it covers all that is known of
/// the ingested WAL.
pub(super) fn check(
    ingest: &Ingest,
    announced: &mut Option<Arc<TermHistory>>,
    chunk: &WalChunk,
    received: Lsn,
) -> Result<(), OtherHistory> {
    if let Some(history) = &chunk.history {
        *announced = Some(history.clone());
    }
    let Some(history) = announced else {
        return Ok(());
    };
    if chunk.bytes.is_empty() {
        return ingest.terms.compare(received, history, chunk.commit_lsn);
    }
    if ingest.terms.follow(received, history, chunk.commit_lsn)? {
        *announced = None;
    }
    Ok(())
}
