//! A log whose records are one position long and name who wrote them.

use std::fmt;

use consensus::MemberId;
use pg_types::{DiskId, Lsn, Term};

/// Where every timeline begins.
pub const START: Lsn = Lsn(1);

/// The one record that a compute writes at one position in one term: no two computes and no two terms make the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    pub term: u8,
    pub writer: u8,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.term, char::from(b'a' + self.writer))
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Log(Vec<Record>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl Log {
    pub fn end(&self) -> Lsn {
        START + self.0.len() as u64
    }

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

    pub fn slice(&self, from: Lsn, to: Lsn) -> &[Record] {
        &self.0[self.index(from)..self.index(to)]
    }

    pub fn push(&mut self, term: Term, writer: usize) {
        let (term, writer) = (term.0 as u8, writer as u8);
        self.0.push(Record { term, writer });
    }

    pub fn extend(&mut self, records: &[Record]) {
        self.0.extend_from_slice(records);
    }

    pub fn cut(&mut self, to: Lsn) {
        self.0.truncate(self.index(to));
    }

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
