//! The bytes of a layer's file in memory, as the writer made them: in pieces of one length, of which the last may be
//! shorter.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::region::{REGION, Region};
use crate::source::BlockSource;

/// A layer's file in memory. Cloning is cheap. The memory is given back when the last clone and the last slice of a
/// piece are dropped.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// Each of [`REGION`] bytes but the last.
    pieces: Arc<[Bytes]>,
    size: u64,
}

impl Pieces {
    pub(crate) fn new(pieces: Vec<Bytes>) -> Pieces {
        let size = pieces.iter().map(|piece| piece.len() as u64).sum();
        Pieces {
            pieces: pieces.into(),
            size,
        }
    }

    /// The pieces in order; one behind the other they are the file.
    pub fn iter(&self) -> impl Iterator<Item = Bytes> {
        self.pieces.iter().cloned()
    }

    /// A copy of the file, in one.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::from(self.pieces.concat())
    }
}

impl BlockSource for Pieces {
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (first, begin) = (offset as usize / REGION, offset as usize % REGION);
        if let Some(piece) = self.pieces.get(first)
            && begin + len <= piece.len()
        {
            return Ok(piece.slice(begin..begin + len));
        }
        let mut copied = BytesMut::with_capacity(len);
        let mut begin = begin;
        for piece in self.pieces.iter().skip(first) {
            let part = (len - copied.len()).min(piece.len() - begin);
            copied.extend_from_slice(&piece[begin..begin + part]);
            begin = 0;
        }
        Ok(copied.freeze())
    }

    fn size(&self) -> u64 {
        self.size
    }
}

/// A file in memory: one region behind the other, all but the last of them full. A region begins at a page's border.
#[derive(Default)]
pub struct Regions {
    regions: Vec<Region>,
    large: bool,
}

impl Regions {
    /// `large`: for a file that is likely longer than a region.
    pub fn new(large: bool) -> Regions {
        Regions {
            regions: Vec::new(),
            large,
        }
    }

    /// What was written, cut where the regions end.
    pub fn into_pieces(self) -> Pieces {
        Pieces::new(self.regions.into_iter().map(Bytes::from_owner).collect())
    }
}

impl io::Write for Regions {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.regions.last().is_none_or(|last| last.room() == 0) {
            let is_large = self.large || !self.regions.is_empty();
            self.regions.push(match is_large {
                true => Region::large()?,
                false => Region::small()?,
            });
        }
        let Some(last) = self.regions.last_mut() else {
            return Ok(0);
        };
        let fit = bytes.len().min(last.room());
        last.push(&bytes[..fit]);
        Ok(fit)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Promise: the pieces hold what was written in its order, each full but the last, each at a page's border.
    #[test]
    fn a_file_is_its_pieces() {
        for large in [false, true] {
            let mut file = Regions::new(large);
            let mut expected = Vec::new();
            for number in 0..100_000_u32 {
                file.write_all(&number.to_le_bytes()).unwrap();
                expected.extend_from_slice(&number.to_le_bytes());
            }
            let vast = vec![7; 2 * REGION + 1];
            file.write_all(&vast).unwrap();
            expected.extend_from_slice(&vast);
            let pieces: Vec<Bytes> = file.into_pieces().iter().collect();
            let (last, full) = pieces.split_last().unwrap();
            assert!(full.iter().all(|piece| piece.len() == REGION));
            assert!(!last.is_empty());
            assert!(pieces.iter().all(|piece| piece.as_ptr().addr() % 4096 == 0));
            assert!(pieces.concat() == expected);
        }
        assert_eq!(Regions::default().into_pieces().iter().count(), 0);
    }

    /// Promise: a part of the file is what was written there, wherever the pieces end; beyond the end is an error.
    #[test]
    fn parts_are_what_was_written() {
        let written: Vec<u8> = (0..(2 * REGION + 100) / 4)
            .flat_map(|number| (number as u32).to_le_bytes())
            .collect();
        let mut file = Regions::default();
        file.write_all(&written).unwrap();
        let file = file.into_pieces();
        assert_eq!(file.size(), written.len() as u64);
        assert!(file.to_bytes() == written);
        let ends = [0, 1, 99, 100];
        let places = (0..3).flat_map(|region| ends.map(|end| region * REGION + end));
        let places: Vec<usize> = places
            .chain([REGION - 1, 2 * REGION - 1])
            .chain([written.len()])
            .collect();
        for begin in &places {
            for end in places.iter().filter(|end| *end >= begin) {
                let part = file.read_at(*begin as u64, end - begin).unwrap();
                assert!(part == written[*begin..*end], "{begin}..{end}");
            }
            let beyond = written.len() - begin + 1;
            file.read_at(*begin as u64, beyond).unwrap_err();
        }
        file.read_at(u64::MAX, 1).unwrap_err();
        file.read_at(1, usize::MAX).unwrap_err();
    }
}
