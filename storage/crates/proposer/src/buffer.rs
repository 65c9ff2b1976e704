//! WAL in memory between Postgres and the safekeepers.

use std::collections::VecDeque;

use bytes::Bytes;
use pg_types::Lsn;

/// Consecutive pieces of WAL.
#[derive(Debug)]
pub struct WalBuffer {
    pieces: VecDeque<(Lsn, Bytes)>,
    end: Lsn,
}

impl WalBuffer {
    pub fn new(start: Lsn) -> WalBuffer {
        WalBuffer {
            pieces: VecDeque::new(),
            end: start,
        }
    }

    /// First byte held; `end` when empty.
    pub fn start(&self) -> Lsn {
        self.pieces.front().map_or(self.end, |(lsn, _)| *lsn)
    }

    pub fn end(&self) -> Lsn {
        self.end
    }

    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            let at = self.end;
            self.end = at + bytes.len() as u64;
            self.pieces.push_back((at, bytes));
        }
    }

    /// The bytes from `at` to the end of the piece that holds it, `limit` at most. `None` before the start or
    /// at the end.
    pub fn piece(&self, at: Lsn, limit: usize) -> Option<Bytes> {
        let index = self
            .pieces
            .partition_point(|(lsn, _)| *lsn <= at)
            .checked_sub(1)?;
        let (lsn, bytes) = &self.pieces[index];
        let skip = usize::try_from(at.0 - lsn.0)
            .ok()
            .filter(|skip| *skip < bytes.len())?;
        Some(bytes.slice(skip..bytes.len().min(skip.saturating_add(limit))))
    }

    /// Lets go of whole pieces before `lsn`.
    pub fn trim(&mut self, lsn: Lsn) {
        while let Some((at, bytes)) = self.pieces.front()
            && *at + bytes.len() as u64 <= lsn
        {
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_held_is_found_and_no_other() {
        let mut buffer = WalBuffer::new(Lsn(100));
        buffer.push(Bytes::from_static(b"abc"));
        buffer.push(Bytes::from_static(b"defgh"));
        assert_eq!(buffer.piece(Lsn(99), 10), None);
        assert_eq!(buffer.piece(Lsn(101), 10).as_deref(), Some(&b"bc"[..]));
        assert_eq!(buffer.piece(Lsn(103), 2).as_deref(), Some(&b"de"[..]));
        assert_eq!(buffer.piece(Lsn(108), 10), None);
        buffer.trim(Lsn(104));
        assert_eq!((buffer.start(), buffer.end()), (Lsn(103), Lsn(108)));
        buffer.trim(Lsn(108));
        assert_eq!((buffer.start(), buffer.end()), (Lsn(108), Lsn(108)));
    }
}
