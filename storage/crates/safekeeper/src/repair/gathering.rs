//! WAL from elsewhere, record by record, until it holds a whole segment that differs from the one here.

use std::fs::File;
use std::path::PathBuf;

use pg_types::{Lsn, WAL_SEGMENT_BYTES};
use wal_decode::{WalError, WalStreamDecoder};

use crate::recovery;
use crate::scan::read_or_zero;
use crate::segments;
use crate::timeline::{RepairView, Timeline};
use crate::verify::Range;

/// A segment as it has to be, from its first byte on: to its end, or to the commit LSN.
pub struct Segment {
    pub number: u64,
    pub bytes: Vec<u8>,
}

impl Segment {
    fn begin(&self) -> Lsn {
        Lsn(self.number * WAL_SEGMENT_BYTES)
    }

    fn end(&self) -> Lsn {
        self.begin() + self.bytes.len() as u64
    }
}

pub struct Gathering {
    dir: PathBuf,
    horizon: Lsn,
    from: Lsn,
    /// Nothing behind it is looked for.
    to: Lsn,
    commit: Lsn,
    decoder: WalStreamDecoder,
    /// The one that is being gathered; its bytes end where the next one's from elsewhere belong.
    current: Segment,
    /// The first one that differs.
    found: Option<Segment>,
}

#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    #[error("its WAL is damaged as well: {0}")]
    Damaged(#[from] WalError),
    #[error("cannot read what is before the damage in {file}: {source}")]
    Before {
        file: String,
        source: std::io::Error,
    },
}

impl Gathering {
    /// `range` begins at a record boundary, and is committed.
    pub fn begin(timeline: &Timeline, view: &RepairView, range: Range) -> Gathering {
        assert!(
            view.horizon <= range.from && range.from < range.to && range.to <= view.commit,
            "asked to repair {range:?}, the log has {}..{}",
            view.horizon,
            view.commit
        );
        Gathering {
            dir: timeline.dir().to_owned(),
            horizon: view.horizon,
            from: range.from,
            to: range.to,
            commit: view.commit,
            decoder: recovery::decoder(&timeline.identity, range.from),
            current: Segment {
                number: range.from.0 / WAL_SEGMENT_BYTES,
                bytes: Vec::new(),
            },
            found: None,
        }
    }

    /// The position of the next byte that is needed.
    pub fn next(&self) -> Lsn {
        self.decoder.fed_to()
    }

    /// Nothing behind it is ever needed.
    pub fn commit(&self) -> Lsn {
        self.commit
    }

    /// The record boundary up to which all of it is proven.
    pub fn checked_to(&self) -> Lsn {
        self.decoder.boundary().min(self.commit)
    }

    /// `None` when nothing differs.
    pub fn into_segment(self) -> Option<Segment> {
        self.found
    }

    /// Whether that is enough. Takes no more than it needs of `wal`, which begins where the last piece ended. Blocks.
    pub fn feed(&mut self, wal: &[u8]) -> Result<bool, GatherError> {
        let mut rest = wal;
        loop {
            if self.is_enough() || rest.is_empty() {
                return Ok(self.is_enough());
            }
            let at = self.next();
            let segment_end = Lsn((at.0 / WAL_SEGMENT_BYTES + 1) * WAL_SEGMENT_BYTES);
            let end = segment_end.min(self.commit);
            let (piece, behind) = rest.split_at(rest.len().min((end.0 - at.0) as usize));
            rest = behind;
            let mut records = self.decoder.feed(at, piece)?;
            while records.next_record()?.is_some() {}
            drop(records);
            if self.found.is_none() {
                self.gather(at, piece, end)?;
            }
        }
    }

    fn is_enough(&self) -> bool {
        if self.next() >= self.commit {
            return true;
        }
        match &self.found {
            // Up to the end of the record that crosses the end of the segment.
            Some(segment) => self.decoder.boundary() >= segment.end(),
            // Each segment with something of the damage was compared.
            None => self.current.begin() >= self.to,
        }
    }

    fn gather(&mut self, at: Lsn, piece: &[u8], end: Lsn) -> Result<(), GatherError> {
        if self.current.bytes.is_empty() && at == self.from {
            self.current.bytes = self.before()?;
        }
        assert_eq!(self.current.end(), at, "bytes of a segment do not join");
        self.current.bytes.extend_from_slice(piece);
        if self.current.end() < end {
            return Ok(());
        }
        let number = self.current.number + 1;
        let bytes = Vec::new();
        let whole = std::mem::replace(&mut self.current, Segment { number, bytes });
        if !self.is_here(&whole) {
            self.found = Some(whole);
        }
        Ok(())
    }

    /// What the first segment has before the damage. Before the horizon nothing is needed: what can't be read there becomes
    /// zero.
    fn before(&self) -> Result<Vec<u8>, GatherError> {
        let begin = self.current.begin();
        let mut bytes = vec![0; (self.from.0 - begin.0) as usize];
        let path = self.dir.join(segments::name_of(self.current.number));
        let needed = self.horizon.max(begin).0 - begin.0;
        let needed = (needed as usize).min(bytes.len());
        let (unneeded, own) = bytes.split_at_mut(needed);
        if own.is_empty() {
            let file = File::open(path);
            if file
                .and_then(|file| read_or_zero(&file, 0, unneeded))
                .is_err()
            {
                unneeded.fill(0);
            }
            return Ok(bytes);
        }
        let mut read = || {
            let file = File::open(&path)?;
            read_or_zero(&file, needed as u64, own)?;
            if read_or_zero(&file, 0, unneeded).is_err() {
                unneeded.fill(0);
            }
            Ok(())
        };
        let file = path.display().to_string();
        read().map_err(|source| GatherError::Before { file, source })?;
        Ok(bytes)
    }

    /// Whether the file here has the same bytes, from the damage on.
    fn is_here(&self, segment: &Segment) -> bool {
        let from = self.from.max(segment.begin()).0 - segment.begin().0;
        let wanted = &segment.bytes[from as usize..];
        let mut here = vec![0; wanted.len()];
        let path = self.dir.join(segments::name_of(segment.number));
        let read = File::open(path).and_then(|file| {
            let length = file.metadata()?.len();
            read_or_zero(&file, from, &mut here)?;
            Ok(length)
        });
        read.is_ok_and(|length| length == WAL_SEGMENT_BYTES) && here == wanted
    }
}
