//! What the compute started from stays readable: storage is told again and again that the compute runs.
//!
//! The volume asks for names and sizes of files as they were at the start when somebody first looks. Storage keeps that
//! state for two minutes behind the last of these requests, whatever its history window.

use std::time::Duration;

use super::live::Live;
use super::storage::StorageError;
use super::{Agent, End};

/// A small part of the time for which storage keeps the start.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// After a request that failed.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Storage has let go of the start (`precondition_failed`).
const GONE: u16 = 412;

/// Ends when a newer compute has come, or when what this one started from is gone after storage had not heard of it for
/// long: it has to start anew, from where the log ends now.
pub async fn start(agent: &Agent, live: &Live) -> End {
    let timeline = match agent.timeline_client() {
        Ok(timeline) => timeline,
        Err(end) => return end,
    };
    loop {
        let pause = match timeline.hold_start(live.start_lsn, live.term).await {
            Ok(()) => {
                tracing::debug!(start_lsn = %live.start_lsn, "the start is held");
                RENEW_EVERY
            }
            Err(StorageError::Fenced(reason)) => return End::Fenced(reason),
            Err(StorageError::Refused {
                status: GONE,
                message,
                ..
            }) => {
                return End::Lost(format!(
                    "storage has let go of {}: {message}",
                    live.start_lsn
                ));
            }
            // It is away, or older than this request: what is asked of it waits, or is within its history window.
            Err(error) => {
                tracing::debug!("cannot hold the start: {error}");
                RETRY_EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}
