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

/// The major version of that number, such as 15; `OpenError::Version` for one whose WAL nothing here can read.
pub fn major(pg_version: u32) -> Result<PgMajor, OpenError> {
    Ok(PgMajor::from_number(pg_version)?)
}

/// A decoder that begins at the record boundary `at`, and finds the borders of records: what they say is nothing to a
/// safekeeper, and a user can have Postgres write records of gigabytes. The version was checked when the timeline was
/// opened.
pub fn decoder(identity: &Identity, at: Lsn) -> WalStreamDecoder {
    let major = major(identity.pg_version).unwrap_or_default();
    WalStreamDecoder::new(at, major)
        .with_system_identifier(identity.system_identifier)
        .for_borders()
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

#[cfg(test)]
mod tests {
    use consensus::{Configuration, Durable, MemberId};
    use pg_types::wal::{info, rmgr};
    use pg_types::{TenantId, TimelineId};
    use wal_decode::synth::{WalWriter, plain_record};

    use super::*;

    const START: Lsn = Lsn(0x0150_0000);
    const SYSTEM_IDENTIFIER: u64 = 7;

    fn control(pg_version: u32) -> Control {
        let member = MemberId {
            node: 1,
            ..MemberId::UNKNOWN
        };
        let founders = Configuration::founding(&[member]).expect("one member");
        Control {
            identity: Identity {
                tenant: TenantId([1; 16]),
                timeline: TimelineId([2; 16]),
                system_identifier: SYSTEM_IDENTIFIER,
                pg_version,
                start_lsn: START,
            },
            member,
            origin: None,
            durable: Durable::new(member, START, founders),
            readers: Default::default(),
        }
    }

    /// Stores two records of a major version below `dir`; their end.
    fn write_wal(dir: &Path, major: PgMajor) -> Lsn {
        let mut wal = WalWriter::new(START, major, 1, SYSTEM_IDENTIFIER);
        let mut prev = Lsn::INVALID;
        for _ in 0..2 {
            let record = plain_record(rmgr::XLOG, info::xlog::NOOP, 0, prev, b"");
            prev = wal.append(&record).0;
        }
        let mut segments = Segments::open(dir).expect("open");
        segments.write(START, wal.bytes()).expect("write");
        segments.sync_job().run().expect("fsync");
        wal.position()
    }

    #[test]
    fn a_log_of_each_supported_major_is_read_to_the_end_of_its_last_record() {
        for major in PgMajor::ALL {
            let dir = tempfile::tempdir().expect("temporary directory");
            let end = write_wal(dir.path(), major);
            let control = control(major.facts().number);
            let found = recover(dir.path(), &control).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(found.end, end, "{major:?}");
        }
    }

    #[test]
    fn wal_of_another_major_than_the_timeline_is_of_is_no_part_of_its_log() {
        let dir = tempfile::tempdir().expect("temporary directory");
        write_wal(dir.path(), PgMajor::V17);
        let found = recover(dir.path(), &control(15)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.end, START);
    }

    #[test]
    fn a_log_of_any_other_major_is_refused_by_name() {
        for unknown in [0, 14, 16, 19] {
            let dir = tempfile::tempdir().expect("temporary directory");
            let refused = recover(dir.path(), &control(unknown)).err();
            let said = refused.expect("refused").to_string();
            assert!(said.contains(&format!("Postgres {unknown} ")), "{said}");
        }
    }
}
