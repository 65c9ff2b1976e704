//! The small files a compute needs to start at an LSN, and those it ships when it suspends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use pg_types::v15::ControlFile;
use pg_types::{Key, KeyKind, Lsn, Term};
use serde::Serialize;
use wal_decode::TimelineState;

use super::{Timeline, reads, two_phase};
use crate::error::{Error, Result};
use crate::timeline_index::StartPoint;

/// Bytes of a piece of a bundle, at most.
const PIECE: usize = 1 << 20;
/// How long a start waits for the object store to take its term before it is told why it waits.
const TERM_PATIENCE: Duration = Duration::from_secs(10);

/// `weir/start.json` of the bundle.
#[derive(Serialize)]
struct Start {
    lsn: Lsn,
    prev_record_lsn: Lsn,
    system_identifier: String,
    pg_version: u32,
    timeline_state: TimelineState,
}

impl Timeline {
    /// The bundle for a start at `lsn` with `term`, as a tar in pieces of at most [`PIECE`] bytes. From here on older
    /// terms are refused, also after a restart.
    ///
    /// Fails with `Fenced` for a term that is not the newest, with `PreconditionFailed` for a new term that begins
    /// below what is ingested, with `Timeout` or `Stopped` when `lsn` is not ingested in time, and with `Internal`
    /// when the object store does not take the term or a file can't be read.
    pub async fn bundle(&self, lsn: Lsn, term: Term) -> Result<Vec<Bytes>> {
        self.check_term(term)?;
        self.resolve_position(lsn, Some(lsn)).await?;
        self.check_history(lsn, term)?;
        self.take_term(term, lsn).await?;
        let mut files = self.small_files(lsn).await?;
        if let Some(aux) = self.aux_at(lsn).await? {
            files.push(("weir/aux.tar".to_owned(), aux));
        }
        // A newer compute may have come meanwhile.
        self.check_term(term)?;
        stalls::off_worker(|| archive(files))
    }

    /// A new term begins where everything committed before it ends, and only committed WAL is ingested. A start below
    /// that comes from a log that has lost acknowledged WAL: it would write a second history over the first.
    fn check_history(&self, lsn: Lsn, term: Term) -> Result<()> {
        let (max_term, ingested) = (self.max_term(), self.last_record_lsn());
        if term <= max_term || ingested <= lsn {
            return Ok(());
        }
        tracing::error!(tenant = %self.tenant(), timeline = %self.id(), %term, %lsn, %max_term, %ingested, "a start below what is ingested was refused");
        Err(Error::PreconditionFailed(format!(
            "a compute with term {term} wants to start timeline {} at {lsn}, but everything up to {ingested} was committed and ingested before, under terms up to {max_term}: the safekeepers that elected it lack acknowledged WAL. Nothing was changed here. Bring the safekeepers back that hold WAL up to {ingested}, and keep every directory of this timeline: it may hold the last copy",
            self.id()
        )))
    }

    /// Accepts a term and stores it, and where it begins, before anything is answered under it.
    async fn take_term(&self, term: Term, lsn: Lsn) -> Result<()> {
        self.raise_term(term);
        crash::point!("term.raised");
        // Another request may be storing the same term: this one must not overtake it.
        if self.index.durable_term() < term {
            self.retention().hold_start();
            let start = StartPoint { term, lsn };
            let stored = tokio::time::timeout(TERM_PATIENCE, self.index.store_start(start)).await;
            stored.unwrap_or_else(|_| Err(self.term_is_not_stored(term)))?;
        }
        crash::point!("term.stored");
        self.check_term(term)
    }

    fn term_is_not_stored(&self, term: Term) -> Error {
        let trouble = self.index.trouble();
        let reason =
            trouble.map_or_else(|| "it does not answer".to_owned(), |trouble| trouble.reason);
        Error::Internal(anyhow::anyhow!(
            "no compute can start while the object store does not take term {term} of timeline {}: {reason}; retry",
            self.id()
        ))
    }

    async fn small_files(&self, lsn: Lsn) -> Result<Vec<(String, Bytes)>> {
        let state = self.state_at(lsn).await?;
        let control = self
            .reads
            .value(Key::control_file(), lsn)
            .await?
            .with_context(|| format!("timeline {} has no control file at {lsn}", self.id()))?;
        let catalog_version = ControlFile::parse(&control)
            .context("read the stored control file")?
            .catalog_version();
        let start = Start {
            lsn,
            prev_record_lsn: state.prev_record_lsn,
            system_identifier: self.manifest().system_identifier.to_string(),
            pg_version: self.pg_version(),
            timeline_state: state,
        };
        let json = serde_json::to_vec_pretty(&start).context("encode start.json")?;
        let mut files = vec![
            ("weir/start.json".to_owned(), Bytes::from(json)),
            ("weir/pg_control".to_owned(), control),
        ];
        let directory = |key: &Key| match key.a {
            GLOBAL_TABLESPACE => "global".to_owned(),
            DEFAULT_TABLESPACE => format!("base/{}", key.b),
            spc => format!(
                "pg_tblspc/{spc}/PG_{}_{catalog_version}/{}",
                self.pg_version(),
                key.b
            ),
        };
        for (key, content) in self.reads.scan(reads::whole(KeyKind::RelMap), lsn).await? {
            files.push((format!("{}/pg_filenode.map", directory(&key)), content));
        }
        for (key, content) in self
            .reads
            .scan(reads::whole(KeyKind::Database), lsn)
            .await?
        {
            files.push((format!("{}/PG_VERSION", directory(&key)), content));
        }
        for (xid, content) in two_phase::states(&self.reads, lsn).await? {
            files.push((format!("pg_twophase/{xid:08X}"), content));
        }
        Ok(files)
    }

    /// The archive a compute shipped when it was suspended at exactly this LSN.
    pub(super) async fn aux_at(&self, lsn: Lsn) -> Result<Option<Bytes>> {
        let mut ancestor: Option<Arc<Timeline>> = None;
        loop {
            let timeline = ancestor.as_deref().unwrap_or(self);
            if let Some(aux) = timeline.index.aux().filter(|aux| aux.lsn == lsn) {
                return Ok(Some(timeline.index.load_aux(&aux).await?));
            }
            // A branch cut exactly where its ancestor was suspended starts with the same files.
            match timeline.ancestor() {
                Some((next, branch_lsn)) if branch_lsn == lsn => ancestor = Some(next),
                _ => return Ok(None),
            }
        }
    }

    /// Keeps an archive shipped at suspend, in place of an older one; durable on return. Fails with `Fenced`, with
    /// `Conflict` when files of a later LSN are stored, with `BadRequest` for what is not a tar of plain files and
    /// directories below its root, and when the object store does not take it.
    pub async fn put_aux(&self, lsn: Lsn, term: Term, tar: Bytes) -> Result<()> {
        self.check_term(term)?;
        if let Some(aux) = self.index.aux()
            && aux.lsn > lsn
        {
            return Err(Error::Conflict(format!(
                "newer auxiliary files, of LSN {}, are stored already",
                aux.lsn
            )));
        }
        stalls::off_worker(|| check_archive(&tar))?;
        self.index.store_aux(lsn, tar).await?;
        Ok(())
    }
}

/// A tar of the files, each of which is let go of when it is in the tar.
fn archive(files: Vec<(String, Bytes)>) -> Result<Vec<Bytes>> {
    let mut builder = tar::Builder::new(InPieces::default());
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_entry_type(tar::EntryType::Regular);
        builder
            .append_data(&mut header, &path, &content[..])
            .with_context(|| format!("archive {path}"))?;
    }
    let written = builder.into_inner().context("finish the archive")?;
    Ok(written.0.into_iter().map(Bytes::from).collect())
}

/// Bytes in pieces that are sent and given back one by one: states of prepared transactions may have gigabytes, and
/// to give back so much memory at once would keep a worker.
#[derive(Default)]
struct InPieces(Vec<Vec<u8>>);

impl std::io::Write for InPieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let has_room = |last: &&mut Vec<u8>| last.len() < PIECE;
        if self.0.last_mut().filter(has_room).is_none() {
            self.0.push(Vec::new());
        }
        let Some(last) = self.0.last_mut() else {
            return Ok(0);
        };
        let (now, _) = bytes.split_at(bytes.len().min(PIECE - last.len()));
        last.extend_from_slice(now);
        Ok(now.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A compute unpacks the archive next time, so it must be whole and stay below its directory.
fn check_archive(bytes: &[u8]) -> Result<()> {
    let bad = |what: String| Error::BadRequest(format!("auxiliary files: {what}"));
    let mut archive = tar::Archive::new(bytes);
    let entries = archive
        .entries()
        .map_err(|error| bad(format!("not a tar: {error}")))?;
    for entry in entries {
        let mut entry = entry.map_err(|error| bad(format!("not a tar: {error}")))?;
        let path = entry
            .path()
            .map_err(|error| bad(format!("a path is unusable: {error}")))?
            .into_owned();
        let inside = path
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        let plain = matches!(
            entry.header().entry_type(),
            tar::EntryType::Regular | tar::EntryType::Directory
        );
        if !inside || !plain {
            return Err(bad(format!(
                "{} is not a plain file below the data directory",
                path.display()
            )));
        }
        std::io::copy(&mut entry, &mut std::io::sink())
            .map_err(|error| bad(format!("cut short: {error}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Promise: files around the length of a piece are given back as they were, in pieces that are no longer.
    #[test]
    fn an_archive_is_whole_whatever_the_lengths_of_its_files() {
        let lengths = [0, 1, 511, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 77];
        let files: Vec<(String, Bytes)> = (lengths.iter())
            .map(|length| (0..*length).map(move |at| (at * 31 + length) as u8))
            .map(|content| Bytes::from(content.collect::<Vec<u8>>()))
            .enumerate()
            .map(|(number, content)| (format!("pg_twophase/{number:08X}"), content))
            .collect();
        let pieces = archive(files.clone()).expect("archived");
        assert!(
            pieces
                .iter()
                .all(|piece| (1..=PIECE).contains(&piece.len()))
        );
        let tar = pieces.concat();
        let mut read = tar::Archive::new(&tar[..]);
        let found = read.entries().expect("a tar").map(|entry| {
            let mut entry = entry.expect("whole");
            let path = entry.path().expect("a path").display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("whole");
            (path, Bytes::from(content))
        });
        assert!(found.collect::<Vec<_>>() == files);
    }
}
