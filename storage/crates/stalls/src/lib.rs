//! Tasks that keep their thread for too long, while other tasks of that thread wait.
//!
//! An async worker carries many tasks: one that reads a file, waits for a lock or computes for long within one poll holds
//! up ingest and reads of every tenant. Tasks are wrapped with [`watched`] (or spawned with [`spawn`]); a thread of
//! this crate looks every [`TICK`] at the poll that each thread is in, and counts a stall when a poll has kept its thread for
//! longer than [`LIMIT`], in `weir_worker_stalls_total`, with the longest in `weir_worker_longest_stall_seconds`.
//!
//! Only what the poll itself does counts: the time in which the thread ran, and the time in which it slept within the
//! poll, for a disk or for a lock. The time in which the kernel let another thread run instead does not (`measure`), nor
//! does a wait for a lock while the machine has more to run than processors, since whoever holds the lock may wait for
//! one: a busy machine is no stall. Each figure is at least right: what happens before the first look at a poll, and
//! after the last one, is not known.
//!
//! A wait for memory is none of the poll's doing either: threads of one process take turns at its memory map when they map
//! memory, give it back or begin, and an allocator does so in any code. A poll that waits for that longer than [`LIMIT`]
//! is counted in `weir_worker_memory_waits_total`, the longest is in `weir_worker_longest_memory_wait_seconds`, and it is no stall.
//!
//! With `WEIR_WORKER_STALLS=abort`, a stall ends the program by SIGABRT after one line to stderr, which begins with
//! [`MARK`]; with `abort=60`, one of more than 60 ms is meant. The third such poll of one task ends it, or one of three
//! times the limit: a single one may be of a processor that a hypervisor has halted, which its guest takes for work.
//! The programs of `storage/system`'s tests end so.
//!
//! Invariants: a poll costs two stores and no system call. A task is named by a constant, so that the metric has as
//! many series as the source has names. Nothing is stored.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod measure;
mod seat;
mod watch;

pub use seat::{LIMIT, MARK, TICK, VARIABLE};
pub use watch::CERTAIN;

use std::cell::Cell;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::ReadWriteFlags;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

use seat::{NAME_BITS, NONE, Seat};

/// The seat of this thread, taken at its first poll and given back when the thread ends.
struct Taken {
    seat: Arc<Seat>,
    polls: Cell<u64>,
}

impl Taken {
    fn take() -> Taken {
        let seat = Arc::new(Seat::of(measure::this_thread()));
        watch::seated(seat.clone());
        Taken {
            seat,
            polls: Cell::new(0),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        watch::left(&self.seat);
    }
}

thread_local! {
    static TAKEN: Taken = Taken::take();
    static EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Says until it is dropped that this thread is in a poll, or in none, and then what was said before.
struct Within {
    before: u64,
}

impl Within {
    /// A poll of the task with this number.
    fn poll_of(name: u16) -> Within {
        TAKEN.with(|taken| {
            taken.polls.set(taken.polls.get() + 1);
            Within::word(taken, taken.polls.get() << NAME_BITS | u64::from(name))
        })
    }

    /// Time that counts as no poll's.
    fn none() -> Within {
        TAKEN.with(|taken| Within::word(taken, NONE))
    }

    fn word(taken: &Taken, word: u64) -> Within {
        let before = taken.seat.poll.swap(word, Ordering::Relaxed);
        Within { before }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        // A thread that is ending has no seat any more, and nobody who looks at it.
        let _ = TAKEN.try_with(|taken| taken.seat.poll.store(self.before, Ordering::Relaxed));
    }
}

/// The future, with each of its polls watched. `name` says in logs and metrics what the task does.
pub async fn watched<F: Future>(name: &'static str, future: F) -> F::Output {
    let number = watch::number_of(name);
    let mut future = pin!(future);
    poll_fn(move |context| {
        let _within = (!EXEMPT.get()).then(|| Within::poll_of(number));
        future.as_mut().poll(context)
    })
    .await
}

/// Spawns a watched task on the runtime of the caller. Panics outside of one, as tokio's does.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(watched(name, future))
}

/// Runs what blocks or computes for long on this thread, whose other tasks another thread takes over: no stall, however
/// long it takes. That costs tens of microseconds on a worker of a runtime, and nothing anywhere else. A runtime of one
/// thread has no other one, and waits.
pub fn off_worker<T>(work: impl FnOnce() -> T) -> T {
    let is_worker = !EXEMPT.get()
        && Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if !is_worker {
        return work();
    }
    tokio::task::block_in_place(|| {
        let _within = Within::none();
        work()
    })
}

/// [`off_worker`] for what may take long, `false` for what does not: that is done where it is, at no cost.
#[inline]
pub fn off_worker_if<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    match is_long {
        true => off_worker(work),
        false => work(),
    }
}

/// The future, with its first poll off the worker if `is_long`: for one that computes for long, and then waits.
pub async fn begun_off_worker<F: Future>(is_long: bool, future: F) -> F::Output {
    let mut begins = is_long;
    let mut future = pin!(future);
    poll_fn(move |context| {
        let is_long = std::mem::take(&mut begins);
        off_worker_if(is_long, || future.as_mut().poll(context))
    })
    .await
}

/// Says of this thread that its tasks may keep it: it carries nothing that anybody waits for.
pub fn exempt_this_thread() {
    EXEMPT.set(true);
}

/// Fills the buffer from `offset` of the file. What the page cache has is read at once; for the disk, another thread
/// takes over ([`off_worker`]). Fails as [`FileExt::read_exact_at`] does.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut slices = [IoSliceMut::new(buffer)];
    // Where a file system cannot say what it has at hand, it is asked in the ordinary way.
    let at_hand = rustix::io::preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT);
    let at_hand = at_hand.unwrap_or(0);
    if at_hand == buffer.len() {
        return Ok(());
    }
    off_worker(|| file.read_exact_at(&mut buffer[at_hand..], offset + at_hand as u64))
}
