//! The thread that looks at the others.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use prometheus::{GaugeVec, IntCounterVec, register_gauge_vec, register_int_counter_vec};

use crate::measure::{Course, Reading};
use crate::seat::{LIMIT, MARK, NAME_BITS, NONE, Seat, TICK, VARIABLE};

static STALLS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let counter = register_int_counter_vec!(
        "weir_worker_stalls_total",
        "Polls of a task that kept an async worker for longer than 20 ms",
        &["task"]
    );
    counter.expect("metric registered once")
});
static LONGEST: LazyLock<GaugeVec> = LazyLock::new(|| {
    let gauge = register_gauge_vec!(
        "weir_worker_longest_stall_seconds",
        "The longest that one poll of a task has kept an async worker, of those above 20 ms",
        &["task"]
    );
    gauge.expect("metric registered once")
});
static WAITS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let counter = register_int_counter_vec!(
        "weir_worker_memory_waits_total",
        "Polls of a task that waited for the process's memory map or for memory for longer than 20 ms, no stalls",
        &["task"]
    );
    counter.expect("metric registered once")
});
static LONGEST_WAIT: LazyLock<GaugeVec> = LazyLock::new(|| {
    let gauge = register_gauge_vec!(
        "weir_worker_longest_memory_wait_seconds",
        "The longest that one poll of a task has waited for memory, of those above 20 ms",
        &["task"]
    );
    gauge.expect("metric registered once")
});

static NAMES: RwLock<Vec<&'static str>> = RwLock::new(Vec::new());
static SEATS: Mutex<Vec<Arc<Seat>>> = Mutex::new(Vec::new());
static WATCHER: Once = Once::new();

/// A program that stalls are to end ends at so many polls of one task beyond its limit, or at one beyond so many limits.
///
/// One poll that seems to have run for long may have done nothing: a hypervisor that fetches memory of its guest, or
/// has too few processors, halts one for tens of milliseconds, and the guest's kernel counts them as time in which the
/// thread ran. A lock's holder can be halted the same way, and so can whoever answers for a disk.
pub const CERTAIN: u32 = 3;

/// Logs say so much of stalls at most: one a period; the metrics have all.
const LOG_PERIOD: Duration = Duration::from_secs(1);

/// The number of a name, counted from 0.
pub(crate) fn number_of(name: &'static str) -> u16 {
    let place = |names: &[&'static str]| {
        let found = names.iter().position(|known| std::ptr::eq(*known, name));
        found.or_else(|| names.iter().position(|known| *known == name))
    };
    let known = place(&NAMES.read().unwrap_or_else(PoisonError::into_inner));
    let number = known.unwrap_or_else(|| {
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        place(&names).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        })
    });
    u16::try_from(number).expect("as many names as the source has")
}

fn name_of(poll: u64) -> &'static str {
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    names[(poll & ((1 << NAME_BITS) - 1)) as usize]
}

/// Beyond what a poll ends the program, by what the variable says; `None` for what it cannot say.
fn ends_at(value: &str) -> Option<Option<Duration>> {
    match value.split_once('=') {
        None if value.is_empty() => Some(None),
        None => (value == "abort").then_some(Some(LIMIT)),
        Some(("abort", milliseconds)) => {
            let limit = Duration::from_millis(milliseconds.parse().ok()?);
            (limit >= LIMIT).then_some(Some(limit))
        }
        Some(_) => None,
    }
}

/// A thread has its first watched poll. The first of all starts the thread that watches.
pub(crate) fn seated(seat: Arc<Seat>) {
    SEATS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(seat);
    WATCHER.call_once(|| {
        let value = std::env::var(VARIABLE).unwrap_or_default();
        let ends_at = ends_at(&value).unwrap_or_else(|| {
            panic!("{VARIABLE}={value:?} is not known; abort is, and abort=MILLISECONDS from 20 on")
        });
        let watch = move || Watcher::default().run(ends_at.map(Ends::new));
        let started = thread::Builder::new().name("stalls".into()).spawn(watch);
        if let Err(error) = started {
            assert!(ends_at.is_none(), "no thread to look for stalls: {error}");
            tracing::warn!(%error, "stalls of async workers are not counted");
        }
    });
}

/// A thread ends.
pub(crate) fn left(seat: &Arc<Seat>) {
    let mut seats = SEATS.lock().unwrap_or_else(PoisonError::into_inner);
    seats.retain(|other| !Arc::ptr_eq(other, seat));
}

/// A poll that was seen, by the thread that it is on.
struct Seen {
    poll: u64,
    course: Course,
    /// Whether it is counted already, as a stall and as a wait for memory.
    counted: bool,
    wait_counted: bool,
    /// Whether it is counted by [`Ends`].
    beyond: bool,
}

/// A poll that has kept its thread beyond [`LIMIT`].
struct Stall {
    task: &'static str,
    text: String,
    kept: Duration,
    /// Whether it has just become one.
    is_new: bool,
}

/// Whether stalls end the program, and which.
struct Ends {
    limit: Duration,
    /// How many polls of a task were beyond the limit.
    beyond: HashMap<&'static str, u32>,
}

impl Ends {
    fn new(limit: Duration) -> Ends {
        Ends {
            limit,
            beyond: HashMap::new(),
        }
    }

    /// Whether the program ends now. `seen`: whether this poll was beyond the limit at an earlier look.
    fn at(&mut self, stall: &Stall, seen: &mut bool) -> bool {
        if stall.kept <= self.limit {
            return false;
        }
        let count = self.beyond.entry(stall.task).or_default();
        *count += u32::from(!std::mem::replace(seen, true));
        *count >= CERTAIN || stall.kept > self.limit * CERTAIN
    }
}

#[derive(Default)]
struct Watcher {
    seen: HashMap<u32, Seen>,
    logged: Option<Instant>,
}

impl Watcher {
    fn run(mut self, mut ends: Option<Ends>) {
        loop {
            thread::sleep(TICK);
            let seats = SEATS.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let now: HashMap<u32, u64> = seats
                .iter()
                .map(|seat| (seat.thread, seat.poll.load(Ordering::Relaxed)))
                .collect();
            self.seen
                .retain(|thread, seen| now.get(thread) == Some(&seen.poll));
            for seat in &seats {
                let poll = now[&seat.thread];
                if poll == NONE {
                    continue;
                }
                let Some(reading) = Reading::of(seat.thread) else {
                    continue;
                };
                // Else what was read can be of a later poll.
                if seat.poll.load(Ordering::Relaxed) == poll
                    && let Some(stall) = self.judge(seat.thread, poll, &reading)
                {
                    if stall.is_new {
                        self.say(&stall.text);
                    }
                    let seen = self.seen.get_mut(&seat.thread).expect("judged just now");
                    if ends
                        .as_mut()
                        .is_some_and(|ends| ends.at(&stall, &mut seen.beyond))
                    {
                        eprintln!("{MARK} {}", stall.text);
                        std::process::abort();
                    }
                }
            }
        }
    }

    /// Counts what a poll has become, once; the stall, if it is one.
    fn judge(&mut self, thread: u32, poll: u64, now: &Reading) -> Option<Stall> {
        let seen = self.seen.entry(thread).or_insert_with(|| Seen {
            poll,
            course: Course::new(*now),
            counted: false,
            wait_counted: false,
            beyond: false,
        });
        let kept = seen.course.kept(now);
        let waited = seen.course.waited_for_memory();
        let task = name_of(poll);
        if waited > LIMIT {
            raise(&LONGEST_WAIT, task, waited);
            if !std::mem::replace(&mut seen.wait_counted, true) {
                WAITS.with_label_values(&[task]).inc();
            }
        }
        if kept <= LIMIT {
            return None;
        }
        raise(&LONGEST, task, kept);
        let is_new = !std::mem::replace(&mut seen.counted, true);
        if is_new {
            STALLS.with_label_values(&[task]).inc();
        }
        let place = std::fs::read_to_string(format!("/proc/self/task/{thread}/wchan"));
        let place = place.unwrap_or_default();
        let text = format!(
            "task {task} has kept its thread {thread} for {} ms: {}; the kernel has it in {place:?}",
            kept.as_millis(),
            seen.course.in_words()
        );
        Some(Stall {
            task,
            text,
            kept,
            is_new,
        })
    }

    fn say(&mut self, stall: &str) {
        let now = Instant::now();
        let due = self
            .logged
            .is_none_or(|before| now.saturating_duration_since(before) >= LOG_PERIOD);
        if due {
            self.logged = Some(now);
            tracing::warn!("{stall}");
        }
    }
}

/// The longest so far.
fn raise(gauge: &GaugeVec, task: &str, to: Duration) {
    let longest = gauge.with_label_values(&[task]);
    longest.set(longest.get().max(to.as_secs_f64()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(task: &'static str, kept: u64) -> Stall {
        Stall {
            task,
            text: String::new(),
            kept: Duration::from_millis(kept),
            is_new: true,
        }
    }

    #[test]
    fn a_program_ends_at_what_only_the_task_can_have_done() {
        let fresh = || Ends::new(LIMIT);
        assert!(fresh().at(&stall("a", 61), &mut false), "very long");
        let mut ends = fresh();
        for task in ["a", "b", "a", "b"] {
            assert!(!ends.at(&stall(task, 60), &mut false), "{task}");
        }
        assert!(!ends.at(&stall("a", 20), &mut false), "within the limit");
        assert!(ends.at(&stall("a", 21), &mut false), "again and again");
    }

    #[test]
    fn looks_at_one_poll_are_one_stall() {
        let (mut ends, mut seen) = (Ends::new(LIMIT), false);
        for kept in [15, 21, 26, 31, 36] {
            assert!(!ends.at(&stall("a", kept), &mut seen), "{kept} ms");
        }
        assert!(!ends.at(&stall("a", 21), &mut false), "a second one");
        assert!(ends.at(&stall("a", 21), &mut false), "a third one");
    }

    #[test]
    fn the_variable_says_beyond_what_a_program_ends() {
        let milliseconds = Duration::from_millis;
        assert_eq!(ends_at(""), Some(None));
        assert_eq!(ends_at("abort"), Some(Some(LIMIT)));
        assert_eq!(ends_at("abort=60"), Some(Some(milliseconds(60))));
        // A limit below that of a stall would never be looked at.
        for senseless in [
            "abort=",
            "abort=19",
            "abort=-20",
            "abort=2s",
            "aborts",
            "20",
            "warn=20",
        ] {
            assert_eq!(ends_at(senseless), None, "{senseless}");
        }
    }
}
