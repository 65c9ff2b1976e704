//! What the kernel knows of a thread: for how long it ran, for how long it waited for a processor, and what it waits for.
//!
//! From `/proc/self/task/*/schedstat`. Where the kernel keeps none there, nothing can be said, and no poll is judged.
//! From `/proc/self/task/*/syscall` it is known of a thread that nothing interrupts whether it waits for memory: for the
//! lock of the process's memory map, which every thread takes that maps memory, gives memory back or is made. Where the
//! kernel keeps none there, such a wait counts as one for a disk.

use std::ffi::c_long;
use std::fs;
use std::num::NonZero;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::seat::TICK;

/// The number by which the kernel knows this thread; 0 where it does not say.
pub(crate) fn this_thread() -> u32 {
    let link = fs::read_link("/proc/thread-self").ok();
    let name = link.as_deref().and_then(|path| path.file_name()?.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// A look that comes later after the one before is late: the thread that looks had no processor meanwhile, and others may
/// have had none either.
const LATE: Duration = TICK.saturating_mul(3);

/// System calls that change the memory map, and so wait for its lock.
const MAPPING: [c_long; 7] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_clone3,
];
/// The kernel's functions in which a thread waits for the memory map wherever it came from: a system call that writes to
/// memory which has no page yet waits there as well.
const MAPPING_PLACES: [&str; 2] = ["lock_mm_and_find_vma", "lock_vma_under_rcu"];
/// What stands in the place of a system call's number when a thread waits outside of any: in a page fault.
const PAGE_FAULT: c_long = -1;

/// What a thread was in when it was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// On a processor, or waiting for one.
    Runs,
    /// In a wait that nothing interrupts, as for a disk.
    Disk,
    /// In a wait that nothing interrupts, for the memory map or for a page of memory.
    Memory,
    /// In any other wait, as for a lock.
    Sleeps,
}

/// What a thread has done so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Before the others were read.
    pub at: Instant,
    pub state: State,
    pub ran: Duration,
    /// For a processor, while it could have run. The kernel adds to it once a wait has ended.
    pub queued: Duration,
    /// Whether more threads of the machine could run than it has processors: who holds a lock may then wait for one.
    pub crowded: bool,
}

impl Reading {
    /// `None` for a thread that has ended, and where the kernel does not say.
    pub(crate) fn of(thread: u32) -> Option<Reading> {
        // In this order, what is found can only be too little: a thread that sleeps now has no wait for a processor
        // that began before, and has not ended and been added.
        let at = Instant::now();
        let state = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
        let times = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        let state = match letter(&state)? {
            'R' => State::Runs,
            'D' => waits_for(thread)?,
            _ => State::Sleeps,
        };
        let mut times = times.split_ascii_whitespace().map(str::parse);
        let mut next = || Some(Duration::from_nanos(times.next()?.ok()?));
        Some(Reading {
            at,
            state,
            ran: next()?,
            queued: next()?,
            crowded: runnable().is_none_or(|count| count > *PROCESSORS),
        })
    }
}

/// The state of a thread, as its `stat` has it. Its name stands before it in brackets, and can have any characters.
fn letter(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// What a thread is in that was in a wait which nothing interrupts; `None` for one that has ended.
fn waits_for(thread: u32) -> Option<State> {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/self/task/{thread}/{name}")).unwrap_or_default()
    };
    let state = uninterrupted(&read("syscall"), &read("wchan"));
    if let Some(state) = state {
        return Some(state);
    }
    // The kernel says nothing of system calls, or the thread has gone on.
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    match letter(&stat)? {
        'D' => Some(State::Disk),
        _ => Some(State::Runs),
    }
}

/// What a thread waits for, by its `syscall`: the number of the call that it is in and the call's arguments, or a word
/// when it runs, and by its `wchan`: the kernel's function that it waits in. `None` when they say nothing of a wait.
fn uninterrupted(syscall: &str, place: &str) -> Option<State> {
    if MAPPING_PLACES.contains(&place) {
        return Some(State::Memory);
    }
    let number: c_long = syscall.split_ascii_whitespace().next()?.parse().ok()?;
    // Nothing here maps files, so that a fault is never a read that somebody asked for.
    if number == PAGE_FAULT || MAPPING.contains(&number) {
        return Some(State::Memory);
    }
    Some(State::Disk)
}

static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, NonZero::get));

/// How many threads of the machine run or could, the one that asks included.
fn runnable() -> Option<usize> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// What one poll has done to its thread so far, from the first look at it on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    first: Reading,
    /// When it was looked at last.
    looked: Instant,
    ran: Duration,
    /// All sleep that is known. It can be told from a wait for a processor only while the thread sleeps.
    asleep: Duration,
    /// Of it, that which counts.
    slept: Duration,
    /// Of that which counts, what was for a disk.
    for_disk: Duration,
    /// Of all, that for memory, which does not count.
    for_memory: Duration,
    /// Whether the machine was crowded since sleep was measured last.
    crowded: bool,
}

impl Course {
    pub(crate) fn new(first: Reading) -> Course {
        Course {
            first,
            looked: first.at,
            ran: Duration::ZERO,
            asleep: Duration::ZERO,
            slept: Duration::ZERO,
            for_disk: Duration::ZERO,
            for_memory: Duration::ZERO,
            crowded: first.crowded,
        }
    }

    /// How long the poll has kept the thread, by what is known now. A sleep counts when it is for a disk, and any other
    /// one while every thread of the machine had a processor: else the thread that it waits for may have had none. What
    /// is seen of a sleep is believed of the time since the look before, and after a late look of less.
    pub(crate) fn kept(&mut self, now: &Reading) -> Duration {
        let all = now.at.saturating_duration_since(self.first.at);
        let since = now.at.saturating_duration_since(self.looked);
        self.looked = now.at;
        // The kernel adds to what a running thread ran at its clock's ticks: some of it can be of before the poll.
        self.ran = now.ran.saturating_sub(self.first.ran).min(all);
        self.crowded |= now.crowded || since > LATE;
        if now.state != State::Runs {
            let queued = now.queued.saturating_sub(self.first.queued);
            let asleep = all.saturating_sub(self.ran).saturating_sub(queued);
            let more = asleep.saturating_sub(self.asleep).min(since);
            match now.state {
                State::Memory => self.for_memory += more,
                State::Disk => {
                    self.slept += more.min(LATE);
                    self.for_disk += more.min(LATE);
                }
                State::Sleeps if !self.crowded => self.slept += more,
                State::Sleeps | State::Runs => {}
            }
            self.asleep = self.asleep.max(asleep);
            self.crowded = now.crowded;
        }
        (self.ran + self.slept).min(all)
    }

    /// How long the poll has waited for memory beside that, by what is known now.
    pub(crate) fn waited_for_memory(&self) -> Duration {
        self.for_memory
    }

    /// What the poll did with the time, in words.
    pub(crate) fn in_words(&self) -> String {
        format!(
            "{} ms in which it ran, {} ms in which it slept, {} of them for a disk; beside that it waited {} ms for memory",
            self.ran.as_millis(),
            self.slept.as_millis(),
            self.for_disk.as_millis(),
            self.for_memory.as_millis()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(start: Instant, at: u64, state: State, ran: u64, queued: u64) -> Reading {
        Reading {
            at: start + Duration::from_millis(at),
            state,
            ran: Duration::from_millis(ran),
            queued: Duration::from_millis(queued),
            crowded: false,
        }
    }

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_wait_for_a_processor_counts_for_nothing_also_while_it_lasts() {
        let start = Instant::now();
        let mut course = Course::new(reading(start, 0, State::Runs, 100, 7));
        // It waits since it was first looked at, and the kernel has not added that yet.
        for at in [15, 30, 45, 50] {
            let waiting = course.kept(&reading(start, at, State::Runs, 100, 7));
            assert_eq!(waiting, milliseconds(0));
        }
        let ran = course.kept(&reading(start, 53, State::Runs, 103, 57));
        assert_eq!(ran, milliseconds(3));
        let asleep = course.kept(&reading(start, 60, State::Sleeps, 104, 57));
        assert_eq!(asleep, milliseconds(10), "4 ran, 6 slept");
    }

    #[test]
    fn sleep_is_remembered_while_the_thread_runs_again() {
        let start = Instant::now();
        let mut course = Course::new(reading(start, 0, State::Sleeps, 0, 0));
        let asleep = course.kept(&reading(start, 15, State::Sleeps, 0, 0));
        assert_eq!(asleep, milliseconds(15));
        let later = course.kept(&reading(start, 22, State::Runs, 6, 0));
        assert_eq!(later, milliseconds(21));
        assert!(course.in_words().contains("6 ms in which it ran, 15 ms"));
    }

    #[test]
    fn on_a_crowded_machine_a_sleep_counts_for_a_disk_and_not_for_a_lock() {
        let start = Instant::now();
        let crowded = |reading: Reading| Reading {
            crowded: true,
            ..reading
        };
        let mut course = Course::new(reading(start, 0, State::Sleeps, 0, 0));
        let lock = course.kept(&crowded(reading(start, 30, State::Sleeps, 0, 0)));
        assert_eq!(lock, milliseconds(0));
        let disk = course.kept(&crowded(reading(start, 40, State::Disk, 0, 0)));
        assert_eq!(disk, milliseconds(10), "of before nothing is made up for");
        // It was crowded at the last look: only from the next one on is it known not to be.
        let after = course.kept(&reading(start, 45, State::Sleeps, 0, 0));
        assert_eq!(after, milliseconds(10));
        let alone = course.kept(&reading(start, 60, State::Sleeps, 0, 0));
        assert_eq!(alone, milliseconds(25));
        assert!(
            course
                .in_words()
                .contains("25 ms in which it slept, 10 of them for a disk")
        );
    }

    #[test]
    fn a_wait_for_memory_is_no_stall_and_is_known() {
        let start = Instant::now();
        let mut course = Course::new(reading(start, 0, State::Memory, 0, 0));
        for at in (5..=40).step_by(5) {
            let waits = course.kept(&reading(start, at, State::Memory, 0, 0));
            assert_eq!(waits, milliseconds(0));
        }
        assert_eq!(course.waited_for_memory(), milliseconds(40));
        let disk = course.kept(&reading(start, 45, State::Disk, 0, 0));
        assert_eq!(disk, milliseconds(5), "only what came after");
        assert_eq!(course.waited_for_memory(), milliseconds(40));
    }

    /// Else a wait for memory that is over would count once the thread is seen in any other one.
    #[test]
    fn a_sleep_counts_from_the_look_before_on() {
        let start = Instant::now();
        let mut course = Course::new(reading(start, 0, State::Memory, 0, 0));
        course.kept(&reading(start, 5, State::Memory, 0, 0));
        // It has slept until 29, in what nobody has seen.
        course.kept(&reading(start, 30, State::Runs, 1, 0));
        let disk = course.kept(&reading(start, 35, State::Disk, 1, 0));
        assert_eq!(disk, milliseconds(6), "1 ran, 5 slept");
    }

    #[test]
    fn a_late_look_says_little_of_the_time_before() {
        let start = Instant::now();
        let late = |state| {
            let mut course = Course::new(reading(start, 0, state, 0, 0));
            course.kept(&reading(start, 100, state, 0, 0))
        };
        assert_eq!(late(State::Disk), LATE);
        assert_eq!(late(State::Sleeps), milliseconds(0));
        // Who looks late again and again sees a disk that keeps a thread all the same.
        let mut course = Course::new(reading(start, 0, State::Disk, 0, 0));
        course.kept(&reading(start, 100, State::Disk, 0, 0));
        let kept = course.kept(&reading(start, 200, State::Disk, 0, 0));
        assert_eq!(kept, 2 * LATE);
    }

    #[test]
    fn what_a_thread_waits_for_is_known_by_the_call_that_it_is_in() {
        let within = |call: c_long, place: &str| {
            uninterrupted(&format!("{call} 0x3 0x7fd37f37b000 0x7ffe 0x7fd3"), place)
        };
        let of = |call: c_long| within(call, "folio_wait_bit_common");
        for call in [libc::SYS_mprotect, libc::SYS_munmap, PAGE_FAULT] {
            assert_eq!(of(call), Some(State::Memory), "{call}");
        }
        for call in [libc::SYS_pread64, libc::SYS_fsync, libc::SYS_openat] {
            assert_eq!(of(call), Some(State::Disk), "{call}");
        }
        // The page that a file is read into may have to be made first.
        let fault = within(libc::SYS_pread64, "lock_mm_and_find_vma");
        assert_eq!(fault, Some(State::Memory));
        assert_eq!(uninterrupted("running", "0"), None);
        assert_eq!(uninterrupted("", ""), None);
        assert_eq!(letter("7 (a) b) D 1 2"), Some('D'));
    }

    #[test]
    fn a_reading_of_this_thread_knows_that_it_runs() {
        let before = Reading::of(this_thread()).unwrap();
        let started = Instant::now();
        while started.elapsed() < milliseconds(300) {
            std::hint::spin_loop();
        }
        let after = Reading::of(this_thread()).unwrap();
        assert_eq!(after.state, State::Runs);
        assert!(after.ran > before.ran);
        assert!(runnable().is_some_and(|count| count > 0));
    }
}
