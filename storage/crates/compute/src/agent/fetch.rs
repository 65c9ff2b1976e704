//! What a start asks the pageserver for, and how long it waits for it.

use std::time::{Duration, Instant};

use pg_types::Lsn;
use proposer::{Elected, Fatal};

use super::End;
use super::storage::{StorageError, TimelineClient};
use crate::bundle::Bundle;

/// How long an answer may take in all, restarts of the pageserver included.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// A client error will not get better by asking again, "not yet" and "not here" may.
fn is_hopeless(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::Refused {
            status: 400 | 404 | 412,
            ..
        } | StorageError::Bundle(_)
    )
}

/// How far the pageserver has ingested the timeline: all of that is committed. Without this a start could take a log
/// that lost acknowledged WAL for the whole one.
pub(super) async fn fetch_ingested(
    timeline: &TimelineClient,
    waiting: impl Fn(String),
) -> Result<Lsn, End> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match timeline.status().await {
            Ok(status) => return Ok(status.last_record_lsn),
            Err(error) => error,
        };
        if is_hopeless(&error) || Instant::now() > deadline {
            return Err(error.into());
        }
        tracing::info!("waiting for the pageserver: {error}");
        waiting(format!("waiting for the pageserver: {error}"));
        tokio::time::sleep(PAUSE).await;
    }
}

/// The small files at the LSN that the election won, for as long as the term is this compute's. `waiting` hears why
/// each attempt failed.
pub(super) async fn fetch_bundle(
    timeline: &TimelineClient,
    elected: &Elected,
    waiting: impl Fn(String),
) -> Result<Bundle, End> {
    let deadline = Instant::now() + PATIENCE;
    let mut fatal = elected.fatal();
    loop {
        let fetched = tokio::select! {
            fetched = timeline.bundle(elected.start_lsn, elected.term) => fetched,
            failed = fatal.wait_for(Option::is_some) => {
                let failed = failed.ok().and_then(|fatal| fatal.clone());
                let reason = failed.as_ref().map_or_else(String::new, ToString::to_string);
                return Err(match failed {
                    Some(Fatal::Fenced { .. }) => End::Fenced(reason),
                    _ => End::Storage(reason),
                });
            }
        };
        let error = match fetched {
            Ok(bundle) => return Ok(bundle),
            Err(StorageError::Fenced(reason)) => return Err(End::Fenced(reason)),
            Err(error) => error,
        };
        if is_hopeless(&error) || Instant::now() > deadline {
            return Err(error.into());
        }
        tracing::info!("waiting for the bundle: {error}");
        waiting(format!("waiting for the bundle: {error}"));
        tokio::time::sleep(PAUSE).await;
    }
}
