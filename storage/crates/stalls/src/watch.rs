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

static NAMES: RwLock<Vec<&'static str>> = RwLock::new(Vec::new());
static SEATS: Mutex<Vec<Arc<Seat>>> = Mutex::new(Vec::new());
static WATCHER: Once = Once::new();

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

/// A thread has its first watched poll. The first of all starts the thread that watches.
pub(crate) fn seated(seat: Arc<Seat>) {
    SEATS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(seat);
    WATCHER.call_once(|| {
        let ends = match std::env::var(VARIABLE).as_deref() {
            Ok("abort") => true,
            Ok("") | Err(_) => false,
            Ok(other) => panic!("{VARIABLE}={other:?} is not known; abort is"),
        };
        let watch = move || Watcher::default().run(ends);
        let started = thread::Builder::new().name("stalls".into()).spawn(watch);
        if let Err(error) = started {
            assert!(!ends, "no thread to look for stalls: {error}");
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
    /// Whether it is counted already.
    counted: bool,
}

#[derive(Default)]
struct Watcher {
    seen: HashMap<u32, Seen>,
    logged: Option<Instant>,
}

impl Watcher {
    fn run(mut self, ends: bool) {
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
                    self.say(&stall);
                    if ends {
                        eprintln!("{MARK} {stall}");
                        std::process::abort();
                    }
                }
            }
        }
    }

    /// What is to be said of a poll, when it has just become a stall.
    fn judge(&mut self, thread: u32, poll: u64, now: &Reading) -> Option<String> {
        let seen = self.seen.entry(thread).or_insert_with(|| Seen {
            poll,
            course: Course::new(*now),
            counted: false,
        });
        let kept = seen.course.kept(now);
        if kept <= LIMIT {
            return None;
        }
        let task = name_of(poll);
        let longest = LONGEST.with_label_values(&[task]);
        longest.set(longest.get().max(kept.as_secs_f64()));
        if std::mem::replace(&mut seen.counted, true) {
            return None;
        }
        STALLS.with_label_values(&[task]).inc();
        let place = std::fs::read_to_string(format!("/proc/self/task/{thread}/wchan"));
        let place = place.unwrap_or_default();
        Some(format!(
            "task {task} has kept its thread {thread} for {} ms: {}; the kernel has it in {place:?}",
            kept.as_millis(),
            seen.course.in_words()
        ))
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
