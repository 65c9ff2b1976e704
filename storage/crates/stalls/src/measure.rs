//! What the kernel knows of a thread: for how long it ran, and for how long it waited for a processor.
//!
//! From `/proc/self/task/*/schedstat`. Where the kernel keeps none there, nothing can be said, and no poll is judged.

use std::fs;
use std::num::NonZero;
use std::sync::LazyLock;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// The number by which the kernel knows this thread; 0 where it does not say.
pub(crate) fn this_thread() -> u32 {
    let link = fs::read_link("/proc/thread-self").ok();
    let name = link.as_deref().and_then(|path| path.file_name()?.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}

/// What a thread was in when it was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// On a processor, or waiting for one.
    Runs,
    /// In a wait that nothing interrupts, as for a disk.
    Disk,
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
        // The name of the thread stands in brackets, and can have any characters.
        let state = match state.rsplit_once(") ")?.1.chars().next()? {
            'R' => State::Runs,
            'D' => State::Disk,
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
    ran: Duration,
    /// All sleep that is known. It can be told from a wait for a processor only while the thread sleeps.
    asleep: Duration,
    /// Of it, that which counts.
    slept: Duration,
    /// Whether the machine was crowded since sleep was measured last.
    crowded: bool,
}

impl Course {
    pub(crate) fn new(first: Reading) -> Course {
        Course {
            first,
            ran: Duration::ZERO,
            asleep: Duration::ZERO,
            slept: Duration::ZERO,
            crowded: first.crowded,
        }
    }

    /// How long the poll has kept the thread, by what is known now. A sleep counts when it is for a disk, and any other
    /// one while every thread of the machine had a processor: else the thread that it waits for may have had none.
    pub(crate) fn kept(&mut self, now: &Reading) -> Duration {
        let all = now.at.saturating_duration_since(self.first.at);
        // The kernel adds to what a running thread ran at its clock's ticks: some of it can be of before the poll.
        self.ran = now.ran.saturating_sub(self.first.ran).min(all);
        self.crowded |= now.crowded;
        if now.state != State::Runs {
            let queued = now.queued.saturating_sub(self.first.queued);
            let asleep = all.saturating_sub(self.ran).saturating_sub(queued);
            if now.state == State::Disk || !self.crowded {
                self.slept += asleep.saturating_sub(self.asleep);
            }
            self.asleep = self.asleep.max(asleep);
            self.crowded = now.crowded;
        }
        (self.ran + self.slept).min(all)
    }

    /// What the poll did with the time, in words.
    pub(crate) fn in_words(&self) -> String {
        format!(
            "{} ms in which it ran, {} ms in which it slept",
            self.ran.as_millis(),
            self.slept.as_millis()
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
        let waiting = course.kept(&reading(start, 50, State::Runs, 100, 7));
        assert_eq!(waiting, milliseconds(0));
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
