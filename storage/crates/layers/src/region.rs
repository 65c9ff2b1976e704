//! Memory that is written once, from begin to end, and given back as a whole.
//!
//! A layer in memory, and its file on the way to the object store, are hundreds of megabytes that are new each time.
//! Memory taken in pages of four kilobytes, as each is first touched, would cost ingest a sixth of its processor
//! time; large pages cost little. Where the kernel has no large page, it gives small ones. Memory that is given back
//! is kept for a while for the next layer ([`keep_spare`], [`give_back_spare`]): a kernel clears memory that it gives
//! out, and a virtual machine's host may have to find it first. All regions have one length, so that any spare region
//! serves any new use.
//!
//! Invariants: the reader of a region sees only bytes written since the region was taken, never those of an earlier
//! use of the memory. A region begins at a page's border, which files that are written past the kernel's cache need.

use std::io;
use std::ops::Deref;
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut, MmapOptions};
use parking_lot::Mutex;

/// Bytes of a region: a large page, as x86-64 and most of ARM have them.
pub(crate) const REGION: usize = 2 << 20;

/// The memory of a region that is not in use.
struct Spare {
    map: MmapMut,
    /// When [`Pool::give_back`] first saw the memory spare.
    seen: Option<Instant>,
}

/// Memory of large pages: what is used of it, and what is kept.
pub(crate) struct Pool(Mutex<Held>);

struct Held {
    spare: Vec<Spare>,
    used: usize,
    /// Regions, used or spare, beyond which none is kept.
    most: usize,
}

/// The pool of the process.
static POOL: Pool = Pool::new();

/// Sets the limit up to which memory that layers give back is kept for other layers: spare regions and regions in use
/// together take at most `bytes`. Until this is called no memory is kept. The limit is the process's, not a
/// timeline's.
pub fn keep_spare(bytes: usize) {
    POOL.keep(bytes);
}

/// Gives spare memory back to the kernel once it has not been used for `unwanted_for`. The caller calls this again
/// and again, with `now` never going back.
pub fn give_back_spare(now: Instant, unwanted_for: Duration) {
    POOL.give_back(now, unwanted_for);
}

impl Pool {
    const fn new() -> Pool {
        Pool(Mutex::new(Held {
            spare: Vec::new(),
            used: 0,
            most: 0,
        }))
    }

    fn keep(&self, bytes: usize) {
        self.0.lock().most = bytes / REGION;
    }

    fn give_back(&self, now: Instant, unwanted_for: Duration) {
        let old = |spare: &mut Spare| {
            let seen = *spare.seen.get_or_insert(now);
            now.saturating_duration_since(seen) >= unwanted_for
        };
        // The memory is unmapped after the lock is released, because unmapping takes time.
        let unwanted: Vec<Spare> = self.0.lock().spare.extract_if(.., old).collect();
        drop(unwanted);
    }

    fn take(&'static self) -> io::Result<Region> {
        let spare = {
            let mut held = self.0.lock();
            held.used += 1;
            held.spare.pop()
        };
        let mut region = Region {
            map: None,
            written: 0,
            pool: Some(self),
        };
        region.map = match spare {
            Some(spare) => Some(spare.map),
            None => {
                let map = MmapOptions::new().len(REGION).map_anon()?;
                // A kernel without large pages refuses the advice and gives small pages.
                let _ = map.advise(Advice::HugePage);
                Some(map)
            }
        };
        Ok(region)
    }

    fn put(&self, map: Option<MmapMut>) {
        let mut held = self.0.lock();
        held.used -= 1;
        if held.used + held.spare.len() < held.most {
            held.spare.extend(map.map(|map| Spare { map, seen: None }));
        }
    }
}

/// Memory of [`REGION`] bytes, in a large page or in small pages. Derefs to the bytes written so far.
pub(crate) struct Region {
    /// Always there once it is made, until it is dropped.
    map: Option<MmapMut>,
    written: usize,
    /// The pool that gets the memory back.
    pool: Option<&'static Pool>,
}

impl Region {
    /// A region in a large page, from the process's pool.
    pub fn large() -> io::Result<Region> {
        #[cfg(test)]
        fault::take()?;
        POOL.take()
    }

    /// A region of small pages, which takes only as much memory as is written to it.
    pub fn small() -> io::Result<Region> {
        #[cfg(test)]
        fault::take()?;
        Ok(Region {
            map: Some(MmapOptions::new().len(REGION).map_anon()?),
            written: 0,
            pool: None,
        })
    }

    #[inline]
    fn memory(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    #[inline]
    fn memory_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }

    /// Bytes that can still be written.
    #[inline]
    pub fn room(&self) -> usize {
        REGION - self.written
    }

    /// Appends all of it, for which there must be [`room`](Region::room).
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let (from, to) = (self.written, self.written + bytes.len());
        self.memory_mut()[from..to].copy_from_slice(bytes);
        self.written = to;
    }

    /// Forgets what was written behind the first `written` bytes, of which there are as many.
    pub fn cut(&mut self, written: usize) {
        self.written = self.written.min(written);
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
        if let Some(pool) = self.pool {
            pool.put(self.map.take());
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

/// Has a test's thread get no more memory, as a machine that has none left.
#[cfg(test)]
pub(crate) mod fault {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// From now on so many regions can be taken on this thread.
    pub fn leave(regions: usize) {
        LEFT.set(regions);
    }

    pub fn take() -> io::Result<()> {
        let left = LEFT.get().checked_sub(1);
        let left = left.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        LEFT.set(left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: memory is used again and shows nothing of its earlier use; no more of it is kept than allowed, and
    /// not for long.
    #[test]
    fn memory_is_used_again_for_a_while() {
        let pool: &'static Pool = Box::leak(Box::new(Pool::new()));
        let spare = || pool.0.lock().spare.len();
        let take = || pool.take().unwrap();
        drop(take());
        assert_eq!(spare(), 0, "none is kept until it is said how much");

        pool.keep(3 * REGION);
        let mut regions = [take(), take(), take(), take()];
        for region in &mut regions {
            region.push(b"secret");
        }
        let [first, second, third, fourth] = regions;
        drop(first);
        assert_eq!(spare(), 0, "three are in use, which is all that may be");
        drop(second);
        assert_eq!(spare(), 1);
        drop((third, fourth));
        assert_eq!(spare(), 3);
        let mut again = take();
        assert_eq!((spare(), again.room()), (2, REGION));
        assert!(again.is_empty());
        again.push(b"x");
        assert_eq!(&*again, b"x");
        drop(again);

        let start = Instant::now();
        let second = Duration::from_secs(1);
        pool.give_back(start, second);
        drop(take());
        pool.give_back(start + second, second);
        assert_eq!(spare(), 1, "one was wanted meanwhile");
        pool.give_back(start + 2 * second, second);
        assert_eq!(spare(), 0);
    }
}
