//! Looking at a log as it is on disk, with what `weir-log verify` looks at one with ([`crate::scan`]).
//!
//! Files are opened by their names, not taken from those that appends have open: one that was removed under a running
//! process is missing to a look. What is no longer being written is read past the page cache, which would show what
//! was written and not what the disk has made of it, and is not left there.
//!
//! Nothing is changed, and no lock is held: commits and readers go on meanwhile.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use pg_types::{Lsn, WAL_SEGMENT_BYTES};

use crate::control::Identity;
use crate::recovery;
use crate::scan::{Fault, Means, Wal, read_or_zero, scan};
use crate::{metrics, segments};

/// The part of a log to look at; both are record boundaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First byte of the part.
    pub from: Lsn,
    /// End of the part, exclusive.
    pub to: Lsn,
}

/// What holds a look back. Blocks in `read`.
pub trait Pace {
    /// So many bytes were read. `false` ends the look, whose result means nothing then.
    fn read(&mut self, bytes: usize) -> bool;
}

/// As fast as the disk gives it.
pub struct AtOnce;

impl Pace for AtOnce {
    fn read(&mut self, _: usize) -> bool {
        true
    }
}

/// How long to wait after so many bytes to keep within a rate.
pub fn pause_after(bytes: usize, bytes_per_second: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64)
}

/// The segments of a log up to a position, behind which there is nothing.
struct View<'p> {
    dir: PathBuf,
    to: Lsn,
    open: Option<(u64, File)>,
    pace: &'p mut dyn Pace,
    is_over: bool,
}

impl View<'_> {
    fn file(&mut self, number: u64) -> io::Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            self.close();
            let file = File::open(self.dir.join(segments::name_of(number)))?;
            self.open = Some((number, file));
            self.drop_cached();
        }
        match &self.open {
            Some((_, file)) => Ok(file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Advice: where the kernel does not take it, the look is of less worth and right all the same.
    fn drop_cached(&self) {
        let last = self.to.0 / WAL_SEGMENT_BYTES;
        if let Some((number, file)) = &self.open
            && number + 1 < last
        {
            let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
    }

    fn close(&mut self) {
        self.drop_cached();
        self.open = None;
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

impl Wal for View<'_> {
    /// Each one that has to be there is there: that it is not is found when it is read.
    fn segment_from(&self, number: u64) -> Option<u64> {
        (number * WAL_SEGMENT_BYTES < self.to.0 && !self.is_over).then_some(number)
    }

    fn read(&mut self, at: Lsn, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_over {
            return Err(io::Error::other("the look was given up"));
        }
        let offset = at.0 % WAL_SEGMENT_BYTES;
        let length = buffer.len().min((WAL_SEGMENT_BYTES - offset) as usize);
        let (wanted, _) = buffer.split_at_mut(length);
        let held = (self.to.0.saturating_sub(at.0) as usize).min(length);
        let (held, behind) = wanted.split_at_mut(held);
        behind.fill(0);
        if !held.is_empty() {
            read_or_zero(self.file(at.0 / WAL_SEGMENT_BYTES)?, offset, held)?;
            metrics::VERIFIED_BYTES.inc_by(held.len() as u64);
            self.is_over = !self.pace.read(held.len());
        }
        Ok(length)
    }
}

/// What of `range` is not proven; `None` when the look was given up. Blocks.
pub fn verify(
    dir: &Path,
    identity: &Identity,
    range: Range,
    pace: &mut dyn Pace,
) -> Option<Vec<Fault>> {
    if range.from >= range.to {
        return Some(Vec::new());
    }
    let mut view = View {
        dir: dir.to_owned(),
        to: range.to,
        open: None,
        pace,
        is_over: false,
    };
    let mut means = Means {
        major: recovery::major(identity.pg_version).unwrap_or_default(),
        system_identifier: Some(identity.system_identifier),
        progress: &mut |_| {},
        pause: &|| {},
    };
    let found = scan(&mut view, Some(range.from), range.to, &mut means);
    (!view.is_over).then_some(found.faults)
}
