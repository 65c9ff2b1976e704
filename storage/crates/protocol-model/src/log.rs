//! A log whose records are one position long and name who wrote them.

use std::fmt;

use consensus::MemberId;
use pg_types::{DiskId, Lsn, Term};

/// Where every timeline begins.
pub const START: Lsn = Lsn(1);

/// The one record that a compute writes at one position in one term: no two computes and no two terms make the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    /// Term under which the record was written.
    pub term: u8,
    /// Number of the compute that wrote it.
    pub writer: u8,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.term, char::from(b'a' + self.writer))
    }
}

/// Records from [`START`] on.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Log(Vec<Record>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl Log {
    /// Position behind the last record.
    pub fn end(&self) -> Lsn {
        START + self.0.len() as u64
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.0.len() as u64
    }

    fn index(&self, lsn: Lsn) -> usize {
        let index = lsn.0.saturating_sub(START.0) as usize;
        index.min(self.0.len())
    }

    /// The records before `to`, or all where the log is shorter.
    pub fn up_to(&self, to: Lsn) -> &[Record] {
        &self.0[..self.index(to)]
    }

    /// Records from `from` up to `to`, or up to the end of the log.
    pub fn slice(&self, from: Lsn, to: Lsn) -> &[Record] {
        &self.0[self.index(from)..self.index(to)]
    }

    /// Appends the record that compute `writer` makes in `term`.
    pub fn push(&mut self, term: Term, writer: usize) {
        let (term, writer) = (term.0 as u8, writer as u8);
        self.0.push(Record { term, writer });
    }

    /// Appends records that were made elsewhere.
    pub fn extend(&mut self, records: &[Record]) {
        self.0.extend_from_slice(records);
    }

    /// Cuts the log to end at `to`; one that is shorter stays as it is.
    pub fn cut(&mut self, to: Lsn) {
        self.0.truncate(self.index(to));
    }

    /// The log up to `to`, or all of it where it is shorter.
    pub fn prefix(&self, to: Lsn) -> Log {
        Log(self.up_to(to).to_vec())
    }
}

/// Safekeeper `node` with its `disk`-th disk.
pub fn member(node: usize, disk: u8) -> MemberId {
    MemberId {
        node: node as u64,
        disk: DiskId([disk; 16]),
        incarnation: 1,
    }
}
