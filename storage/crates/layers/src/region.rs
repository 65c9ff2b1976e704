//! Memory for what is written once, from its begin to its end, and given back as a whole.
//!
//! A layer in memory, and its file on the way to the object store, are hundreds of megabytes that are new each time. Taken
//! four kilobytes at a time, as they are first touched, they would cost ingest a sixth of its processor time; in large
//! pages they cost next to nothing. Where the kernel has none to give, it gives small ones.

use std::io;
use std::ops::Deref;

use memmap2::{Advice, MmapMut, MmapOptions};

/// A large page, as x86-64 and most of ARM have them. Mappings are of this length or a multiple, or have none.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

/// See the module head. Derefs to what was written so far.
pub(crate) struct Region {
    map: MmapMut,
    written: usize,
}

impl Region {
    /// Room for `capacity` bytes, rounded up to whole large pages if they are `large`. What nobody has written to takes
    /// no memory, up to a page.
    pub fn with_capacity(capacity: usize, large: bool) -> io::Result<Region> {
        let capacity = match large {
            true => capacity.next_multiple_of(LARGE_PAGE),
            false => capacity,
        };
        let map = MmapOptions::new().len(capacity.max(1)).map_anon()?;
        if large {
            // A kernel without them is none the worse.
            let _ = map.advise(Advice::HugePage);
        }
        Ok(Region { map, written: 0 })
    }

    /// Bytes that can still be written without taking more memory.
    #[inline]
    pub fn room(&self) -> usize {
        self.map.len() - self.written
    }

    /// Appends all of it, for which there must be [`room`](Region::room).
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.map[self.written..self.written + bytes.len()].copy_from_slice(bytes);
        self.written += bytes.len();
    }

    /// Leaves some bytes out; they are zero.
    #[inline]
    pub fn skip(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.room());
        self.written += bytes;
    }

    /// What was written, to be changed.
    #[inline]
    pub fn written_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.written]
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.map[..self.written]
    }
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Takes more memory when there is no room, and moves there.
impl io::Write for Region {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.room() {
            let capacity = (self.written + bytes.len()).max(self.map.len() * 2);
            let mut larger = Region::with_capacity(capacity, true)?;
            larger.push(self);
            *self = larger;
        }
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_written_stays_whether_there_was_room_or_not() {
        for large in [false, true] {
            let mut region = Region::with_capacity(1000, large).unwrap();
            let mut expected = Vec::new();
            for number in 0..100_000_u32 {
                region.write_all(&number.to_le_bytes()).unwrap();
                expected.extend_from_slice(&number.to_le_bytes());
                if number == 7 {
                    region.skip(5);
                    expected.extend_from_slice(&[0; 5]);
                }
            }
            let vast = vec![7; LARGE_PAGE + 1];
            region.write_all(&vast).unwrap();
            expected.extend_from_slice(&vast);
            assert!(*region == *expected);
            region.written_mut()[3] = 9;
            assert_eq!(region[3], 9);
        }
    }

    #[test]
    fn an_empty_one_is_no_error() {
        let region = Region::with_capacity(0, false).unwrap();
        assert!(region.is_empty());
    }
}
