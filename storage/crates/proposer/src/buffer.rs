//! WAL in memory between Postgres and the safekeepers.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use pg_types::Lsn;

/// Pieces are joined up to this, bytes: the WAL of many commits is one message, and one copy for all safekeepers.
const JOINED_BYTES: usize = 128 << 10;

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

    /// The bytes from `at` to the end of the piece that holds it, `limit` at most, after small pieces that follow it were
    /// joined to it. `None` before the start or at the end.
    pub fn piece(&mut self, at: Lsn, limit: usize) -> Option<Bytes> {
        let index = self
            .pieces
            .partition_point(|(lsn, _)| *lsn <= at)
            .checked_sub(1)?;
        self.join_from(index);
        let (lsn, bytes) = &self.pieces[index];
        let skip = usize::try_from(at.0 - lsn.0)
            .ok()
            .filter(|skip| *skip < bytes.len())?;
        Some(bytes.slice(skip..bytes.len().min(skip.saturating_add(limit))))
    }

    fn join_from(&mut self, first: usize) {
        let (mut last, mut length) = (first, 0);
        while let Some((_, bytes)) = self.pieces.get(last)
            && length + bytes.len() <= JOINED_BYTES
        {
            (last, length) = (last + 1, length + bytes.len());
        }
        if last < first + 2 {
            return;
        }
        let mut joined = BytesMut::with_capacity(length);
        for (_, bytes) in self.pieces.range(first..last) {
            joined.extend_from_slice(bytes);
        }
        self.pieces.drain(first + 1..last);
        self.pieces[first].1 = joined.freeze();
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
        assert_eq!(buffer.piece(Lsn(103), 2).as_deref(), Some(&b"de"[..]));
        assert_eq!(buffer.piece(Lsn(108), 10), None);
        buffer.trim(Lsn(104));
        assert_eq!((buffer.start(), buffer.end()), (Lsn(103), Lsn(108)));
        assert_eq!(buffer.piece(Lsn(104), 10).as_deref(), Some(&b"efgh"[..]));
        buffer.trim(Lsn(108));
        assert_eq!((buffer.start(), buffer.end()), (Lsn(108), Lsn(108)));
    }

    #[test]
    fn small_pieces_are_joined_and_large_ones_are_not() {
        let mut buffer = WalBuffer::new(Lsn(100));
        for piece in [&b"abc"[..], b"de", b"f"] {
            buffer.push(Bytes::copy_from_slice(piece));
        }
        buffer.push(Bytes::from(vec![b'x'; JOINED_BYTES]));
        buffer.push(Bytes::from_static(b"yz"));
        assert_eq!(buffer.piece(Lsn(101), 100).as_deref(), Some(&b"bcdef"[..]));
        assert_eq!(buffer.piece(Lsn(105), 100).as_deref(), Some(&b"f"[..]));
        let large = buffer.piece(Lsn(106), usize::MAX).expect("what was pushed");
        assert_eq!(large.len(), JOINED_BYTES);
        let behind = Lsn(106) + JOINED_BYTES as u64;
        assert_eq!(buffer.piece(behind, 100).as_deref(), Some(&b"yz"[..]));
        assert_eq!((buffer.start(), buffer.end()), (Lsn(100), behind + 2));
    }
}
