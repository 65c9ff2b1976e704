//! Offloading: finished WAL goes to the object store, so that it outlives the disks of the safekeepers.
//!
//! Each log has a task. What is committed and makes up a whole segment is uploaded by one of the voters; the others find
//! it there, or upload it after a while. The end of a log goes as well once nothing was committed for a time, and what it
//! is followed by takes its place. A log can be made from what is there ([`filling`]).
//!
//! Invariants:
//! - nothing is uploaded that is not committed, or whose records do not check out: each byte of a piece is checked as it
//!   was read for this upload, also what was read, checked and uploaded before as part of a shorter piece;
//! - nothing is deleted but what the pageserver has had durable for a day ([`Options::keep`]), and what is part of a
//!   longer piece that is there;
//! - `offloaded_lsn` says nothing that this process has not seen: pieces up to it are in the store, equal to the log's;
//! - what is put there while the timeline is deleted, or once it was, goes again, by proof that it was deleted on
//!   purpose: WAL of a timeline whose index is lost may be the last copy, and stays;
//! - appends and votes never wait for any of this: no lock is held across a request, and few requests are made at once.
//!
//! A crash forgets how far offloading was. The next start goes through what is not durable as pages again, and finds in
//! the store what is there.

pub mod choice;
pub mod filling;
pub mod segment;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blob::{BlobError, Store, TimelineStore, WalHeader, WalName, WalPut};
use bytes::Bytes;
use pg_types::Lsn;
use tokio::sync::Semaphore;
use wal_decode::{WalError, WalStreamDecoder};
use wire::wal::Failure;

use self::filling::{FillError, Filled, Wanted};
use crate::metrics;
use crate::recovery;
use crate::timeline::{OffloadView, Timeline};

const PERIOD: Duration = Duration::from_millis(500);
/// Pieces in memory, and on their way, at once.
const PARALLEL: usize = 2;
/// A store that does not answer within it counts as one that failed.
const PATIENCE: Duration = Duration::from_secs(120);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// When the end of a log is offloaded, and when offloaded WAL is deleted.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The end of a log is offloaded when nothing was committed for so long.
    pub idle: Duration,
    /// How long a piece stays at least after the pageserver has it durable as pages.
    pub keep: Duration,
}

/// Where all timelines of a safekeeper offload to.
pub struct Offload {
    store: Store,
    options: Options,
    permits: Semaphore,
    /// Held while a log is filled.
    filling: tokio::sync::Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
enum OffloadError {
    #[error(transparent)]
    Store(#[from] BlobError),
    #[error("the object store did not answer within {} s", PATIENCE.as_secs())]
    Slow,
    #[error("{0}")]
    Log(#[from] Failure),
    #[error(
        "the WAL here is damaged: {0}; another safekeeper offloads this segment, `weir log verify` compares them"
    )]
    Damaged(#[from] WalError),
    #[error(
        "what was offloaded before as {0} reads otherwise now: the WAL here is damaged; another safekeeper offloads this segment"
    )]
    Changed(WalName),
    #[error("the timeline was deleted from the object store")]
    Deleted,
}

impl OffloadError {
    fn outcome(&self) -> &'static str {
        match self {
            OffloadError::Damaged(_) | OffloadError::Changed(_) => "damaged",
            OffloadError::Store(error) if error.is_damage() => "conflict",
            OffloadError::Deleted => "orphaned",
            OffloadError::Store(_) | OffloadError::Slow | OffloadError::Log(_) => "failed",
        }
    }
}

fn count(outcome: &str) {
    metrics::OFFLOADS.with_label_values(&[outcome]).inc();
}

impl Offload {
    /// Offloading to `store`; [`Offload::watch`] does the work for each timeline.
    pub fn new(store: Store, options: Options) -> Offload {
        let permits = Semaphore::new(PARALLEL);
        Offload {
            store,
            options,
            permits,
            filling: tokio::sync::Mutex::default(),
        }
    }

    /// Makes a log from what is in the store. One at a time.
    pub async fn fill(
        &self,
        timeline: &Arc<Timeline>,
        wanted: Wanted,
    ) -> Result<Filled, FillError> {
        let _one_at_a_time = self.filling.lock().await;
        filling::fill(&self.store, timeline, wanted).await
    }

    /// Offloads a timeline until it closes. A panic is counted, said, and followed by a new attempt.
    pub async fn watch(self: Arc<Offload>, timeline: Arc<Timeline>) {
        loop {
            let course = Course::new(self.clone(), timeline.clone());
            let ended = stalls::spawn("offload", course.run()).await;
            match ended {
                Ok(()) => return,
                Err(error) => {
                    count("panicked");
                    tracing::error!(timeline = %timeline.identity.timeline, %error, "offloading broke down, and begins again");
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
            }
        }
    }
}

/// The offloading of one timeline.
struct Course {
    offload: Arc<Offload>,
    timeline: Arc<Timeline>,
    remote: TimelineStore,
    /// Everything before it that is not durable as pages is in the store.
    done: Lsn,
    /// Has taken everything up to `done`.
    decoder: Option<WalStreamDecoder>,
    /// The last piece that is known to be in the store.
    last: Option<WalName>,
    commit_since: (Lsn, Instant),
    /// Since when there is something to offload.
    due_since: Option<Instant>,
    /// What was durable as pages, and when.
    horizons: VecDeque<(Instant, Lsn)>,
    trimmed_to: Lsn,
    /// Whether the timeline was found to be deleted from the store.
    deleted: bool,
}

impl Course {
    fn new(offload: Arc<Offload>, timeline: Arc<Timeline>) -> Course {
        let identity = &timeline.identity;
        Course {
            remote: offload.store.timeline(identity.tenant, identity.timeline),
            offload,
            timeline,
            done: Lsn::INVALID,
            decoder: None,
            last: None,
            commit_since: (Lsn::INVALID, Instant::now()),
            due_since: None,
            horizons: VecDeque::new(),
            trimmed_to: Lsn::INVALID,
            deleted: false,
        }
    }

    async fn run(mut self) {
        let mut pause = PERIOD;
        loop {
            tokio::select! {
                () = self.timeline.closed().cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let timeline = self.timeline.clone();
            let advance = async {
                while self.advance().await? {}
                self.trim().await
            };
            let advanced = tokio::select! {
                () = timeline.closed().cancelled() => return,
                advanced = advance => advanced,
            };
            pause = match advanced {
                Ok(()) => PERIOD,
                Err(error) => {
                    count(error.outcome());
                    let is_damaged = error.outcome() == "damaged";
                    if is_damaged && timeline.damages().is_empty() {
                        timeline.suspect(&error);
                    }
                    let pause = (pause * 2).min(LONGEST_PAUSE);
                    tracing::warn!(timeline = %timeline.identity.timeline, %error, again_in = ?pause, "WAL is not offloaded");
                    pause
                }
            };
        }
    }

    /// Whether there may be more to do at once.
    async fn advance(&mut self) -> Result<bool, OffloadError> {
        let Some(view) = self.timeline.offload_view() else {
            return Ok(false);
        };
        let now = Instant::now();
        let commit = view.positions.commit;
        if self.commit_since.0 != commit {
            self.commit_since = (commit, now);
        }
        let idle = now.duration_since(self.commit_since.1) >= self.offload.options.idle;
        let Some(piece) = segment::next(view.positions, self.done, idle) else {
            self.due_since = None;
            return Ok(false);
        };
        let due_since = *self.due_since.get_or_insert(now);
        let identity = &self.timeline.identity;
        let rank = segment::rank(view.member, &view.configuration, identity.timeline);
        if now.duration_since(due_since) < segment::FALLBACK * rank {
            return Ok(false);
        }
        // Once is enough, also when the tombstone has gone: nothing would delete it a second time.
        if self.deleted && !self.remote.has_index().await? {
            return Err(OffloadError::Deleted);
        }
        let offload = self.offload.clone();
        let _permit = offload.permits.acquire().await.expect("never closed");
        let read = self.read(piece.start, piece.end, view.positions.horizon);
        let Some(content) = read.await? else {
            self.done = Lsn::INVALID;
            return Ok(true);
        };
        // Had a reset emptied the log meanwhile, these would be no bytes of it.
        if self.timeline.offload_view().is_none_or(|now| {
            now.positions.oldest > piece.start || !continues(&now, &view, piece.end)
        }) {
            self.decoder = None;
            self.done = Lsn::INVALID;
            return Ok(false);
        }
        let header = self.header(&view, piece.start, piece.end, &content);
        tokio::time::timeout(PATIENCE, self.upload(&header, content))
            .await
            .map_err(|_| OffloadError::Slow)??;
        self.last = Some(header.name());
        self.done = piece.end;
        self.timeline.set_offloaded(self.done);
        Ok(true)
    }

    /// The piece, with every record checked that is not durable as pages; `None` when the check has to begin again from
    /// where that is so, since a record crosses into the piece whose beginning was not seen.
    async fn read(
        &mut self,
        begin: Lsn,
        end: Lsn,
        horizon: Lsn,
    ) -> Result<Option<Bytes>, OffloadError> {
        let from = self.done.max(horizon);
        let goes_on = |decoder: &WalStreamDecoder| decoder.fed_to() >= from;
        let mut decoder = match self.decoder.take().filter(goes_on) {
            Some(decoder) => decoder,
            None if from == horizon => recovery::decoder(&self.timeline.identity, from),
            None => return Ok(None),
        };
        let timeline = self.timeline.clone();
        let last = self.last;
        let work = move || {
            let content = timeline.read_piece(begin, end)?;
            let at = decoder.fed_to();
            if begin < at {
                check_again(&timeline, begin, &content, last)?;
            }
            let checked = at.0.saturating_sub(begin.0) as usize;
            let fresh = content.get(checked..).unwrap_or_default();
            let mut records = decoder.feed(at, fresh)?;
            while records.next_record()?.is_some() {}
            drop(records);
            Ok::<_, OffloadError>((content, decoder))
        };
        let (content, decoder) = tokio::task::spawn_blocking(work)
            .await
            .expect("reading does not panic")?;
        self.decoder = Some(decoder);
        Ok(Some(content))
    }

    fn header(&self, view: &OffloadView, begin: Lsn, end: Lsn, content: &Bytes) -> WalHeader {
        let identity = &self.timeline.identity;
        let history = view.history.written_before(end);
        WalHeader {
            tenant: identity.tenant,
            timeline: identity.timeline,
            system_identifier: identity.system_identifier,
            pg_version: identity.pg_version,
            begin,
            end,
            history: history
                .entries()
                .iter()
                .map(|entry| (entry.term, entry.start_lsn))
                .collect(),
            crc: stalls::off_worker(|| crc32c::crc32c(content)),
        }
    }

    async fn upload(&mut self, header: &WalHeader, content: Bytes) -> Result<(), OffloadError> {
        let put = match self.remote.has_wal(header).await? {
            true => WalPut::Present,
            false => match self.remote.put_wal(header, content.clone()).await {
                Err(BlobError::Deleted(_)) => {
                    self.deleted = true;
                    return Err(OffloadError::Deleted);
                }
                put => put?,
            },
        };
        match put {
            WalPut::Present => count("present"),
            WalPut::Written => {
                count("uploaded");
                metrics::OFFLOADED_BYTES.inc_by(content.len() as u64);
                tracing::debug!(timeline = %header.timeline, begin = %header.begin, end = %header.end, "WAL offloaded");
                self.remove_superseded(header.name(), &content).await?;
            }
        }
        self.leave_nothing_of_a_deleted_timeline(header.name())
            .await
    }

    /// A deletion takes the indexes first and the WAL last: while there is an index, it has not yet looked for WAL. After
    /// it there is a tombstone, also for a log that offloads for the first time then.
    async fn leave_nothing_of_a_deleted_timeline(
        &mut self,
        put: WalName,
    ) -> Result<(), OffloadError> {
        self.deleted = !self.remote.has_index().await? && self.remote.is_deleted().await?;
        if !self.deleted {
            return Ok(());
        }
        self.remote.delete_wal(put).await?;
        Err(OffloadError::Deleted)
    }

    /// Deletes what is, byte for byte, the beginning of a piece that is there.
    async fn remove_superseded(&self, by: WalName, content: &Bytes) -> Result<(), OffloadError> {
        for name in self.remote.list_wal().await? {
            let shorter = name.begin == by.begin && name.end < by.end;
            let begins_so = || crc32c::crc32c(&content[..name.length() as usize]) == name.crc;
            if shorter && stalls::off_worker(begins_so) {
                self.remote.delete_wal(name).await?;
                count("superseded");
            }
        }
        Ok(())
    }

    /// Deletes what has been durable as pages for long enough.
    async fn trim(&mut self) -> Result<(), OffloadError> {
        let Some(view) = self.timeline.offload_view() else {
            return Ok(());
        };
        let keep = self.offload.options.keep;
        let now = Instant::now();
        let known = self.horizons.back();
        let apart = (keep / 16).min(Duration::from_secs(600));
        if known.is_none_or(|known| now.duration_since(known.0) >= apart) {
            self.horizons.push_back((now, view.positions.horizon));
        }
        let mut durable = None;
        while let Some((since, horizon)) = self.horizons.front()
            && now.duration_since(*since) >= keep
        {
            durable = Some(*horizon);
            self.horizons.pop_front();
        }
        let Some(durable) = durable.filter(|lsn| *lsn > self.trimmed_to) else {
            return Ok(());
        };
        for name in self.remote.list_wal().await? {
            if name.end <= durable {
                self.remote.delete_wal(name).await?;
                count("deleted");
            }
        }
        self.trimmed_to = durable;
        Ok(())
    }
}

/// Checks what a piece begins with that was checked when it was read before: the disk may have changed it since.
fn check_again(
    timeline: &Timeline,
    begin: Lsn,
    content: &Bytes,
    last: Option<WalName>,
) -> Result<(), OffloadError> {
    if let Some(last) = last.filter(|last| last.begin == begin)
        && let Some(same) = content.get(..last.length() as usize)
        && crc32c::crc32c(same) != last.crc
    {
        return Err(OffloadError::Changed(last));
    }
    let end = begin + content.len() as u64;
    let Some(first) = filling::first_record(begin, content).filter(|first| *first < end) else {
        return Ok(());
    };
    let mut decoder = recovery::decoder(&timeline.identity, first);
    let mut records = decoder.feed(first, &content[(first.0 - begin.0) as usize..])?;
    while records.next_record()?.is_some() {}
    Ok(())
}

/// Whether the log, as it is `now`, holds the same up to `end` as it did.
fn continues(now: &OffloadView, before: &OffloadView, end: Lsn) -> bool {
    now.positions.commit >= end
        && now.history.written_before(end).last() == before.history.written_before(end).last()
}
