//! Commits that Postgres went on with although no majority had confirmed them, counted from its log.
//!
//! A session that waits for the majority has its commit in the local WAL. Postgres ends the wait when the session
//! is canceled or terminated, makes the rows visible, and writes a warning; there is no other trace of it. The
//! log's language and its lowest level are held where that warning is written as it is known here
//! ([`crate::postgres::Files`]).
//!
//! The same reading finds how many pages a start has loaded ahead of need ([`super::prewarm`]).
//!
//! The log is Postgres's and is only ever appended to while it runs. Whoever may log can write the same words,
//! so that the count is never too low, but can be too high.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::live::Live;
use super::{Agent, prewarm};

/// Bytes taken from the log at a time.
const PIECE: u64 = 1 << 20;
/// Of a line that has not ended so much is kept: the warning is shorter, whatever stands before it.
const LONGEST_LINE: usize = 16 << 10;
const CANCELED: &[u8] = b"WARNING:  canceling wait for synchronous replication due to user request";
const TERMINATED: &[u8] =
    b"WARNING:  canceling the wait for synchronous replication and terminating connection";

/// Commits that were not confirmed by a majority when their session stopped waiting, by what ended the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unconfirmed {
    /// A cancel: the client was told success, with a warning, and the rows are visible.
    pub canceled: u64,
    /// The session was terminated: the client was told nothing, the rows are visible.
    pub terminated: u64,
    /// All of Postgres was stopped: the client was told nothing, nobody has seen the rows.
    pub stopped: u64,
}

impl std::ops::AddAssign for Unconfirmed {
    fn add_assign(&mut self, more: Unconfirmed) {
        self.canceled += more.canceled;
        self.terminated += more.terminated;
        self.stopped += more.stopped;
    }
}

impl Agent {
    /// Counts what the log tells since the last call, at most so many megabytes of it.
    pub(super) async fn count_released(&self, pieces: u32) {
        let log = self.log.clone();
        match tokio::task::spawn_blocking(move || log.lock().read(pieces)).await {
            Ok(Ok(found)) => self.found(found),
            Ok(Err(error)) => tracing::debug!(%error, "cannot read the log of Postgres"),
            Err(error) => tracing::error!(%error, "reading the log of Postgres panicked"),
        }
    }

    fn found(&self, Found { released, loaded }: Found) {
        if loaded.is_some() {
            self.prewarmed(loaded);
        }
        if released != Unconfirmed::default() {
            tracing::warn!(
                canceled = released.canceled,
                terminated = released.terminated,
                "commits became visible before a majority had them"
            );
            self.add_unconfirmed(released);
        }
    }

    /// Takes note of how many commits wait for the majority.
    pub(super) fn see_waiting(&self, live: &Live, waiting: u64) {
        live.waiting.store(waiting, Ordering::Relaxed);
        self.metrics.commits_waiting.set(waiting as i64);
        self.set(|status| status.commits_waiting = Some(waiting));
    }

    /// Postgres was ended as a whole: those that waited at the last look were never told anything.
    pub(super) fn count_stopped(&self, live: &Live) {
        let stopped = live.waiting.swap(0, Ordering::Relaxed);
        self.metrics.commits_waiting.set(0);
        self.set(|status| status.commits_waiting = None);
        if stopped > 0 {
            tracing::warn!(
                stopped,
                "commits waited for a majority when Postgres was stopped"
            );
            self.add_unconfirmed(Unconfirmed {
                stopped,
                ..Unconfirmed::default()
            });
        }
    }

    fn add_unconfirmed(&self, found: Unconfirmed) {
        self.metrics.commits_canceled.inc_by(found.canceled);
        self.metrics.commits_terminated.inc_by(found.terminated);
        self.metrics.commits_stopped.inc_by(found.stopped);
        self.set(|status| status.commits_unconfirmed += found);
    }
}

/// What the log told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Commits that were let go.
    pub released: Unconfirmed,
    /// Pages that a start has loaded ahead of need, once it says so.
    pub loaded: Option<u64>,
}

/// Reads on in Postgres's log.
pub(super) struct LogWatch {
    path: PathBuf,
    at: u64,
    /// The begin of a line that has not ended yet.
    begun: Vec<u8>,
}

impl LogWatch {
    /// Begins at the end of what is there; a log that is not there yet begins later.
    pub fn new(path: &Path) -> LogWatch {
        LogWatch {
            path: path.to_owned(),
            at: std::fs::metadata(path).map_or(0, |meta| meta.len()),
            begun: Vec::new(),
        }
    }

    /// What has been logged since the last call; at most `pieces` of a megabyte, the rest the next time. Fails
    /// when the log can't be read, and goes on from there when it can. Blocks for as long as the disk does.
    pub fn read(&mut self, pieces: u32) -> std::io::Result<Found> {
        let mut found = Found::default();
        let mut file = File::open(&self.path)?;
        // A start cuts a long log.
        if file.metadata()?.len() < self.at {
            (self.at, self.begun) = (0, Vec::new());
        }
        for _ in 0..pieces {
            file.seek(SeekFrom::Start(self.at))?;
            let mut piece = Vec::new();
            let read = (&mut file).take(PIECE).read_to_end(&mut piece)?;
            self.at += read as u64;
            self.take(&piece, &mut found);
            if (read as u64) < PIECE {
                break;
            }
        }
        Ok(found)
    }

    fn take(&mut self, piece: &[u8], found: &mut Found) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let room = LONGEST_LINE.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                count(&self.begun, found);
                self.begun.clear();
            }
        }
    }
}

fn count(line: &[u8], found: &mut Found) {
    // Continued lines begin with a tab: they are text of a client's choice.
    if line.starts_with(b"\t") {
        return;
    }
    found.released.canceled += u64::from(contains(line, CANCELED));
    found.released.terminated += u64::from(contains(line, TERMINATED));
    found.loaded = prewarm::loaded_by(line).or(found.loaded);
}

fn contains(line: &[u8], what: &[u8]) -> bool {
    line.windows(what.len()).any(|window| window == what)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const BEFORE: &str = "2026-01-01 00:00:00.000 UTC [7] app@appdb ";

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    fn append(path: &Path, text: &str) {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn each_warning_is_counted_once_however_the_log_grows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("postgres.log");
        append(&path, &format!("{BEFORE}{}\n", text(CANCELED)));
        let mut log = LogWatch::new(&path);
        assert_eq!(log.read(1).unwrap(), Found::default());
        let (first, second) = text(CANCELED).split_at(20);
        append(
            &path,
            &format!("{BEFORE}{}\n{BEFORE}{first}", text(TERMINATED)),
        );
        assert_eq!(log.read(1).unwrap().released.terminated, 1);
        append(
            &path,
            &format!("{second}\n{BEFORE}DETAIL:  whatever\n\t{first}{second}\n"),
        );
        let found = log.read(1).unwrap().released;
        assert_eq!((found.canceled, found.terminated), (1, 0));
        // Cut and begun anew, as a start does with a long log.
        std::fs::write(&path, format!("{BEFORE}{first}{second}\n")).unwrap();
        assert_eq!(log.read(1).unwrap().released.canceled, 1);
    }

    #[test]
    fn a_line_of_many_megabytes_takes_no_memory_and_hides_nothing_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("postgres.log");
        let mut log = LogWatch::new(&path);
        assert!(log.read(1).is_err(), "there is no log yet");
        append(&path, &"x".repeat(3 << 20));
        append(&path, &format!("\n{BEFORE}{}\n", text(CANCELED)));
        assert_eq!(log.read(1).unwrap().released.canceled, 0);
        assert!(log.begun.len() <= LONGEST_LINE);
        assert_eq!(log.read(8).unwrap().released.canceled, 1);
    }
}
