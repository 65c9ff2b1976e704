//! Where a log ends after a start.

use std::path::Path;
use std::time::SystemTime;

use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES};
use wal_decode::WalStreamDecoder;

use crate::control::{self, Control, Identity};
use crate::cut_wal;
use crate::open_error::OpenError;
use crate::segments::Segments;

const CHUNK_BYTES: usize = 1 << 20;

pub struct Recovered {
    pub segments: Segments,
    /// End of the last whole record; everything before it is durable, everything behind is zero.
    pub end: Lsn,
    /// Continues at `end`.
    pub decoder: WalStreamDecoder,
    /// Names of the files before the stored commit LSN that are missing.
    pub lost: Vec<String>,
}

pub fn major(pg_version: u32) -> Result<PgMajor, OpenError> {
    match pg_version {
        15 => Ok(PgMajor::V15),
        other => Err(OpenError::Version(other)),
    }
}

/// A decoder that begins at the record boundary `at`. The version was checked when the timeline was opened.
pub fn decoder(identity: &Identity, at: Lsn) -> WalStreamDecoder {
    let major = major(identity.pg_version).unwrap_or_default();
    WalStreamDecoder::new(at, major).with_system_identifier(identity.system_identifier)
}

/// Finds the end of the log and makes it firm. Blocks.
pub fn recover(dir: &Path, control: &Control) -> Result<Recovered, OpenError> {
    major(control.identity.pg_version)?;
    let io = |source| OpenError::Io {
        dir: dir.display().to_string(),
        source,
    };
    let mut segments = Segments::open(dir).map_err(io)?;
    let commit = control.durable.commit_lsn;
    let begin = control.durable.remote_consistent_lsn;
    let lost = segments.lacking(begin, commit);
    // With the last one goes what is behind the stored commit LSN and was acknowledged as well: nobody can tell how far that
    // went, so this log must not say where it ends. Any other one leaves the end known, and is fetched from a peer.
    if lost.last() == Some(&(commit.0 / WAL_SEGMENT_BYTES)) {
        return Err(OpenError::Missing {
            dir: dir.display().to_string(),
            commit,
        });
    }
    segments.expect(begin, commit);
    // Left over from a reset or a trim that was cut short.
    segments.remove_below(begin).map_err(io)?;
    let mut scan = decoder(&control.identity, commit);
    let damage = scan_from(&mut scan, &mut segments, commit).map_err(io)?;
    let end = scan.boundary();
    if let Some(damage) = damage {
        tracing::info!(timeline = %control.identity.timeline, %commit, %end, %damage, "log ends here");
    }
    rewrite(&mut segments, commit, end).map_err(io)?;
    if has_bytes_behind(&mut segments, end).map_err(io)? {
        let kept = cut_wal::set_aside(dir, &mut segments, end).map_err(io)?;
        segments.cut(end).map_err(io)?;
        tracing::info!(timeline = %control.identity.timeline, %end, ?kept, "what follows the last whole record was cut off");
    }
    for path in cut_wal::prune(dir, SystemTime::now()).map_err(io)? {
        tracing::info!(timeline = %control.identity.timeline, path = %path.display(), "WAL set aside long ago was removed");
    }
    segments.sync_job().run().map_err(io)?;
    // A crash may have come between the creation of a segment and the fsync of its directory.
    control::sync_dir(dir).map_err(io)?;
    let next = decoder(&control.identity, end)
        .with_prev_record(scan.last_record().unwrap_or(Lsn::INVALID));
    Ok(Recovered {
        segments,
        end,
        decoder: next,
        lost: lost.into_iter().map(crate::segments::name_of).collect(),
    })
}

/// Decodes until there is no whole record any more; what stopped it, unless the WAL simply ends.
fn scan_from(
    decoder: &mut WalStreamDecoder,
    segments: &mut Segments,
    from: Lsn,
) -> std::io::Result<Option<wal_decode::WalError>> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = from;
    while segments.cover(at, at + 1) {
        let length = segments.read(at, &mut buffer)?;
        let mut take = || {
            let mut records = decoder.feed(at, &buffer[..length])?;
            while records.next_record()?.is_some() {}
            Ok(())
        };
        match take() {
            Ok(()) => at = at + length as u64,
            Err(wal_decode::WalError::Zero { .. }) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}

/// Writes `[from, to)` over itself: bytes that a failed fsync left in the page cache only would pass for
/// durable otherwise.
fn rewrite(segments: &mut Segments, from: Lsn, to: Lsn) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = from;
    while at < to {
        let length = ((to.0 - at.0) as usize).min(CHUNK_BYTES);
        let length = segments.read(at, &mut buffer[..length])?;
        segments.write(at, &buffer[..length])?;
        at = at + length as u64;
    }
    Ok(())
}

fn has_bytes_behind(segments: &mut Segments, end: Lsn) -> std::io::Result<bool> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = end;
    while segments.cover(at, at + 1) {
        let length = segments.read(at, &mut buffer)?;
        if buffer[..length].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        at = at + length as u64;
    }
    Ok(segments.has_from(at))
}
