//! Memory for what is written once, from its begin to its end, and given back as a whole.
//!
//! A layer in memory, and its file on the way to the object store, are hundreds of megabytes that are new each time. Taken
//! four kilobytes at a time, as they are first touched, they would cost ingest a sixth of its processor time; in large
//! pages they cost little. Where the kernel has none to give, it gives small ones. What is given back is kept for a while
//! for the next layer ([`keep_spare`], [`give_back_spare`]): a kernel clears what it gives out, and a virtual machine's host
//! may have to find it first.
//!
//! Invariant: of a region nobody sees more than what was written to it since it was taken, whoever had its memory before.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut, MmapOptions};
use parking_lot::Mutex;

/// A large page, as x86-64 and most of ARM have them. Large regions have a multiple of it.
pub(crate) const LARGE_PAGE: usize = 2 << 20;

/// A large region's memory while nobody uses it.
struct Spare {
    map: MmapMut,
    /// When it was first looked at since then.
    seen: Option<Instant>,
}

static SPARE: Mutex<Vec<Spare>> = Mutex::new(Vec::new());
/// Bytes of them that are kept at most.
static SPARE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// So many bytes of memory that layers gave back are kept for other layers; none before this is called. Of a process, not of
/// a timeline.
pub fn keep_spare(bytes: usize) {
    SPARE_BYTES.store(bytes, Ordering::Relaxed);
}

/// Gives those back to the kernel that were not wanted for so long. To be called again and again, `now` never going back.
pub fn give_back_spare(now: Instant, unwanted_for: Duration) {
    let old = |spare: &mut Spare| {
        let seen = *spare.seen.get_or_insert(now);
        now.saturating_duration_since(seen) >= unwanted_for
    };
    // Given back when nobody waits for the lock: to unmap takes its time.
    let unwanted: Vec<Spare> = SPARE.lock().extract_if(.., old).collect();
    drop(unwanted);
}

/// One that is large enough, and not much larger.
fn take_spare(capacity: usize) -> Option<MmapMut> {
    let mut spare = SPARE.lock();
    let fits = |spare: &Spare| (capacity..=capacity * 2).contains(&spare.map.len());
    let place = spare.iter().rposition(fits)?;
    Some(spare.swap_remove(place).map)
}

fn put_spare(map: MmapMut) {
    let mut spare = SPARE.lock();
    let kept: usize = spare.iter().map(|spare| spare.map.len()).sum();
    if kept + map.len() <= SPARE_BYTES.load(Ordering::Relaxed) {
        spare.push(Spare { map, seen: None });
    }
}

/// For tests that change what is spare, which is the process's: one at a time.
#[cfg(test)]
pub(crate) static TURN: Mutex<()> = Mutex::new(());

/// See the module head. Derefs to what was written so far.
pub(crate) struct Region {
    /// Always there, until it is dropped. May be longer than what was asked for, which nobody is to see.
    map: Option<MmapMut>,
    capacity: usize,
    written: usize,
    large: bool,
}

impl Region {
    /// Room for `capacity` bytes, rounded up to whole large pages if they are `large`. What nobody has written to takes
    /// no memory, up to a page.
    pub fn with_capacity(capacity: usize, large: bool) -> io::Result<Region> {
        let capacity = match large {
            true => capacity.max(1).next_multiple_of(LARGE_PAGE),
            false => capacity.max(1),
        };
        let region = |map| Region {
            map: Some(map),
            capacity,
            written: 0,
            large,
        };
        if !large {
            return Ok(region(MmapOptions::new().len(capacity).map_anon()?));
        }
        if let Some(map) = take_spare(capacity) {
            return Ok(region(map));
        }
        let map = MmapOptions::new().len(capacity).map_anon()?;
        // A kernel without them is none the worse.
        let _ = map.advise(Advice::HugePage);
        Ok(region(map))
    }

    #[inline]
    fn memory(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    #[inline]
    fn memory_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }

    /// Bytes that can still be written without taking more memory: what was asked for and not yet written, whatever
    /// memory there is.
    #[inline]
    pub fn room(&self) -> usize {
        self.capacity - self.written
    }

    /// Appends all of it, for which there must be [`room`](Region::room).
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let (from, to) = (self.written, self.written + bytes.len());
        self.memory_mut()[from..to].copy_from_slice(bytes);
        self.written = to;
    }

    /// What was written, to be changed.
    #[inline]
    pub fn written_mut(&mut self) -> &mut [u8] {
        let written = self.written;
        &mut self.memory_mut()[..written]
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(map) = self.map.take().filter(|_| self.large) {
            put_spare(map);
        }
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory()[..self.written]
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
            let capacity = (self.written + bytes.len()).max(self.capacity * 2);
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
            }
            let vast = vec![7; LARGE_PAGE + 1];
            region.write_all(&vast).unwrap();
            expected.extend_from_slice(&vast);
            assert!(*region == *expected);
            region.written_mut()[3] = 9;
            assert_eq!(region[3], 9);
        }
        assert!(Region::with_capacity(0, false).unwrap().is_empty());
    }

    /// Promise: memory is used again, of the next one's size only, and shows nothing of whoever had it; it is not kept
    /// beyond what may be, nor for long.
    #[test]
    fn memory_is_used_again_for_a_while() {
        let _turn = TURN.lock();
        let lengths = || -> Vec<usize> {
            let spare = SPARE.lock();
            let mut lengths: Vec<usize> = spare.iter().map(|spare| spare.map.len()).collect();
            lengths.sort_unstable();
            lengths
        };
        // Lengths that no other test has.
        let pages = |number: usize| (100 + number) * LARGE_PAGE;
        let is_ours = |length: &usize| *length >= pages(0);
        let ours = || lengths().into_iter().filter(is_ours).collect::<Vec<_>>();
        let region = |length| Region::with_capacity(length, true).unwrap();
        drop(region(pages(0)));
        assert!(ours().is_empty(), "none is kept until it is said how much");

        keep_spare(pages(0) + pages(1) + 50 * LARGE_PAGE);
        let mut regions = [region(pages(0)), region(pages(1)), region(pages(2))];
        regions[0].push(b"secret");
        drop(regions);
        assert_eq!(ours(), [pages(0), pages(1)], "no more than may be kept");
        let mut again = region(pages(0) - 1);
        assert_eq!(
            again.memory().len(),
            pages(1),
            "the one that came last of those that fit"
        );
        assert_eq!(again.room(), pages(0), "but no more than was asked for");
        assert!(again.is_empty());
        again.push(b"x");
        assert_eq!(&*again, b"x");
        drop(again);

        let start = Instant::now();
        let second = Duration::from_secs(1);
        give_back_spare(start, second);
        drop(region(pages(0)));
        give_back_spare(start + second, second);
        assert_eq!(ours().len(), 1, "one was wanted meanwhile");
        give_back_spare(start + 2 * second, second);
        assert!(ours().is_empty());
        keep_spare(0);
    }
}
