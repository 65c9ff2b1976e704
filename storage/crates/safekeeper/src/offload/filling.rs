//! Making a log from what is in the object store.
//!
//! The log is that of one history, the one that goes to the highest term; what came of others is left out. Everything is
//! verified before it becomes the log: the checksum of each piece, that the histories of the pieces are one, and each
//! record. A crash on the way leaves the log as it was (`filled`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob::{BlobError, Store, TimelineStore, WalHeader, WalName};
use bytes::Bytes;
use consensus::{AdoptionRefusal, TermHistory, TermStart};
use pg_types::wal::{LONG_PAGE_HEADER_BYTES, WalPageHeader, next_record_start, record_end};
use pg_types::{Lsn, Term, WAL_SEGMENT_BYTES};
use serde::Serialize;
use wal_decode::{WalError, WalStreamDecoder};
use wire::wal::Failure;

use super::choice::{self, Chain, ChoiceError};
use crate::control::Identity;
use crate::segments::Segments;
use crate::timeline::{FillView, Gathered, InstallError, Timeline};
use crate::{metrics, recovery};

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Filled {
    /// Where the log ends now.
    pub filled_to: Lsn,
    /// Pieces taken.
    pub segments: usize,
    /// WAL taken, bytes.
    pub bytes: u64,
}

/// Why a log was not filled. The log is as it was.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// The log takes nothing from the store, whatever is there.
    #[error(transparent)]
    Refused(#[from] AdoptionRefusal),
    /// The pieces in the store make up no log.
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    /// WAL is missing in the store that somebody still needs. The peers of the log have it.
    #[error(
        "the object store lacks WAL before {from}, and the log has to begin at {begin_by} or before: fill it from its peers"
    )]
    TooLate {
        /// LSN of the first byte that the log would have.
        from: Lsn,
        /// [`Wanted::begin_by`].
        begin_by: Lsn,
    },
    /// The log was written, or a piece was deleted, meanwhile. The caller may ask again; the field is the end of the
    /// log.
    #[error("the log has changed meanwhile: it ends at {0}; ask again")]
    Changed(Lsn),
    /// The object store failed. The caller may ask again.
    #[error(transparent)]
    Store(#[from] BlobError),
    /// A piece is gone, of another cluster, of another history, or damaged. An operator looks at it.
    #[error("WAL {name} of the object store cannot be used: {why}; look at it, and move it away")]
    Unusable {
        /// Name of the piece.
        name: WalName,
        /// For people: what is wrong with the piece.
        why: String,
    },
    /// The timeline has stopped, a compute writes it now, or what the log has already cannot be read.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The file system failed while WAL was written beside the log.
    #[error("cannot write WAL from the object store in {dir}: {source}")]
    Io {
        /// Directory that was written to.
        dir: String,
        /// The error of the file system.
        source: std::io::Error,
    },
}

impl From<InstallError> for FillError {
    fn from(error: InstallError) -> FillError {
        match error {
            InstallError::Refused(refusal) => FillError::Refused(refusal),
            InstallError::Changed(end) => FillError::Changed(end),
            InstallError::Failed(failure) => FillError::Failed(failure),
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The log goes no further than the last record boundary up to here.
    pub up_to: Lsn,
    /// A log that may begin behind a gap begins here at the latest: nobody needs what is before.
    pub begin_by: Lsn,
    /// Terms up to this one were won before, whatever the store has. Only for a log that was founded.
    pub min_term: Term,
}

/// Fills a log. Again: nothing is left to do.
pub async fn fill(
    store: &Store,
    timeline: &Arc<Timeline>,
    wanted: Wanted,
) -> Result<Filled, FillError> {
    let identity = timeline.identity;
    let remote = store.timeline(identity.tenant, identity.timeline);
    let view = blocking(timeline, |timeline| Ok(timeline.fill_view()?)).await?;
    let names = remote.list_wal().await?;
    let newest = choice::newest(&names);
    if view.votes && view.refusal.is_none() {
        let won = newest.map_or(Term(0), |newest| newest.term);
        let term = wanted.min_term.max(won);
        blocking(timeline, move |timeline| Ok(timeline.forbid(term)?)).await?;
    }
    let nothing = Filled {
        filled_to: view.end,
        segments: 0,
        bytes: 0,
    };
    let Some(newest) = newest else {
        return Ok(nothing);
    };
    let Some((header, _)) = remote.wal_header(newest).await? else {
        return Err(FillError::Changed(view.end));
    };
    let history = history_of(&header);
    let chain = choice::choose(&names, &history, view.end, wanted.up_to, view.may_skip)?;
    if chain.pieces.is_empty() {
        return Ok(nothing);
    }
    if let Some(refusal) = view.refusal.clone() {
        return Err(refusal.into());
    }
    let mut gathering = Gathering::begin(timeline, &view, &chain, wanted.up_to).await?;
    for name in &chain.pieces {
        gathering = gathering.take(&remote, *name, &history).await?;
        // The first record of a piece begins behind the piece itself.
        let (from, begin_by) = (gathering.from, wanted.begin_by);
        if from > view.end && from > begin_by {
            return Err(FillError::TooLate { from, begin_by });
        }
    }
    gathering.install(timeline, &history, nothing).await
}

pub(crate) fn history_of(header: &WalHeader) -> TermHistory {
    let entry = |(term, start_lsn): &(Term, Lsn)| TermStart {
        term: *term,
        start_lsn: *start_lsn,
    };
    header.history.iter().map(entry).collect()
}

async fn blocking<T: Send + 'static>(
    timeline: &Arc<Timeline>,
    work: impl FnOnce(&Timeline) -> Result<T, FillError> + Send + 'static,
) -> Result<T, FillError> {
    let timeline = timeline.clone();
    tokio::task::spawn_blocking(move || work(&timeline))
        .await
        .expect("filling does not panic")
}

/// The new log, as far as it is together.
struct Gathering {
    identity: Identity,
    directory: PathBuf,
    segments: Segments,
    up_to: Lsn,
    /// `None` while no record has begun behind a gap.
    decoder: Option<WalStreamDecoder>,
    /// Where the log is continued: a record boundary once there is a decoder.
    from: Lsn,
    /// The end of the last whole record.
    end: Lsn,
    pieces: usize,
    bytes: u64,
}

fn io(dir: &Path) -> impl FnOnce(std::io::Error) -> FillError {
    let dir = dir.display().to_string();
    move |source| FillError::Io { dir, source }
}

impl Gathering {
    async fn begin(
        timeline: &Arc<Timeline>,
        view: &FillView,
        chain: &Chain,
        up_to: Lsn,
    ) -> Result<Gathering, FillError> {
        let (held, from) = (view.held.clone(), chain.from);
        let continues = from == view.end;
        let work = move |timeline: &Timeline| {
            let identity = timeline.identity;
            let directory = timeline.gather().map_err(io(timeline.dir()))?;
            let mut segments = Segments::open(&directory).map_err(io(&directory))?;
            if continues && !held.is_empty() {
                let bytes = timeline.read_piece(held.start, held.end)?;
                segments.write(held.start, &bytes).map_err(io(&directory))?;
            }
            Ok(Gathering {
                identity,
                segments,
                directory,
                up_to,
                decoder: continues.then(|| recovery::decoder(&identity, from)),
                from,
                end: from,
                pieces: 0,
                bytes: 0,
            })
        };
        blocking(timeline, work).await
    }

    /// One more piece of the store.
    async fn take(
        self,
        remote: &TimelineStore,
        name: WalName,
        history: &TermHistory,
    ) -> Result<Gathering, FillError> {
        let unusable = |why: &str| FillError::Unusable {
            name,
            why: why.to_owned(),
        };
        let found = remote.get_wal(name).await?;
        let (header, content) = found.ok_or_else(|| unusable("it is gone"))?;
        let identity = (self.identity.system_identifier, self.identity.pg_version);
        if (header.system_identifier, header.pg_version) != identity {
            return Err(unusable("it is of another cluster"));
        }
        let agreed = history_of(&header).common_point(header.end, history);
        if agreed < Some(header.end) {
            return Err(unusable("its terms are not those of the newest piece"));
        }
        let work = move || {
            let mut gathering = self;
            gathering.write(name, &content)?;
            Ok(gathering)
        };
        tokio::task::spawn_blocking(work)
            .await
            .expect("writing does not panic")
    }

    /// Blocks.
    fn write(&mut self, name: WalName, content: &Bytes) -> Result<(), FillError> {
        let damaged = |error: WalError| FillError::Unusable {
            name,
            why: error.to_string(),
        };
        if self.decoder.is_none() {
            let Some(at) = first_record(name.begin, content).filter(|at| *at < name.end) else {
                // A record that began behind the gap's other side goes through the whole segment.
                return Ok(());
            };
            (self.from, self.end) = (at, at);
            self.decoder = Some(recovery::decoder(&self.identity, at));
        }
        let Some(decoder) = self.decoder.as_mut() else {
            return Ok(());
        };
        let at = decoder.fed_to();
        let to = name.end.min(self.up_to);
        if at >= to {
            return Ok(());
        }
        let slice = |lsn: Lsn| (lsn.0 - name.begin.0) as usize;
        let fresh = &content[slice(at)..slice(to)];
        let mut records = decoder.feed(at, fresh).map_err(damaged)?;
        loop {
            // Padding, and what follows an XLOG_SWITCH, belongs to a record but may not be here.
            if records.boundary() <= to {
                self.end = self.end.max(records.boundary());
            }
            if records.next_record().map_err(damaged)?.is_none() {
                break;
            }
        }
        self.segments
            .write(at, fresh)
            .map_err(io(&self.directory))?;
        (self.pieces, self.bytes) = (self.pieces + 1, self.bytes + fresh.len() as u64);
        Ok(())
    }

    async fn install(
        mut self,
        timeline: &Arc<Timeline>,
        history: &TermHistory,
        nothing: Filled,
    ) -> Result<Filled, FillError> {
        if self.end <= self.from {
            return Ok(nothing);
        }
        let gathered = Gathered {
            history: history.written_before(self.end),
            from: self.from,
            end: self.end,
            last_record: self.decoder.as_ref().and_then(|decoder| {
                (decoder.boundary() == self.end)
                    .then(|| decoder.last_record())
                    .flatten()
            }),
        };
        let filled = Filled {
            filled_to: self.end,
            segments: self.pieces,
            bytes: self.bytes,
        };
        let work = move |timeline: &Timeline| {
            self.segments
                .cut(self.end)
                .and_then(|()| self.segments.sync_job().run())
                .map_err(io(&self.directory))?;
            Ok(timeline.install_gathered(&self.directory, &gathered)?)
        };
        blocking(timeline, work).await?;
        metrics::FILLED_BYTES.inc_by(filled.bytes);
        let Identity {
            tenant, timeline, ..
        } = timeline.identity;
        tracing::info!(%tenant, %timeline, to = %filled.filled_to, segments = filled.segments, "log filled from the object store");
        Ok(filled)
    }
}

/// Where the first record of a piece begins, by the header of its first page.
pub(super) fn first_record(begin: Lsn, content: &Bytes) -> Option<Lsn> {
    if !begin.0.is_multiple_of(WAL_SEGMENT_BYTES) {
        // The beginning of a log.
        return Some(begin);
    }
    let header = WalPageHeader::parse(content)?;
    let behind = begin + LONG_PAGE_HEADER_BYTES as u64;
    Some(next_record_start(record_end(
        behind,
        u64::from(header.rem_len),
    )))
}
