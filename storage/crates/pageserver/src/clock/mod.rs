//! The pageserver's clock: a wall clock that jumps must not decide by itself what is deleted.
//!
//! Two things are lost for good once their time is over: history behind the window, and leases. Neither may be lost
//! because a wall clock was set. So time is counted evenly (`course`), by a clock of the machine that cannot be set,
//! and every jump of the wall clock against the even clock is remembered. A lease lasts as long as it was given for,
//! and history is cut by the wall clock as it would read had it not jumped within the window.
//!
//! The count goes on over restarts: it is a document of the object store. A crash loses at most the ten minutes since
//! the count was last stored; on the same boot of the machine it loses nothing, because the even clock ran on.

mod course;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge, register_int_counter, register_int_gauge};

pub use course::{Course, HistoryTime, Reading};

use crate::timestamp::PgTimestamp;

const DOCUMENT: &str = "clock.json";
/// How often the count is stored when nothing happens.
const STORE_EVERY: Duration = Duration::from_secs(600);
/// A store that fails is not asked again sooner.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Of how long ago the metrics tell jumps.
const TOLD_OF: Duration = Duration::from_secs(31 * 86_400);
const MICROS: i64 = 1_000_000;

/// Where readings of the clocks come from.
pub trait TimeSource: Send + Sync + 'static {
    /// One reading of all clocks, taken now. `ticks` never falls while `boot` stays the same; `wall` may jump either
    /// way.
    fn read(&self) -> Reading;
}

/// The clocks of this machine: `CLOCK_BOOTTIME`, the wall clock, and the kernel's id of the boot.
pub struct MachineTime {
    boot: String,
}

impl MachineTime {
    /// The clocks of the machine this process runs on. Fails when the kernel does not say which boot this is
    /// (`/proc/sys/kernel/random/boot_id`).
    pub fn new() -> anyhow::Result<MachineTime> {
        let path = "/proc/sys/kernel/random/boot_id";
        let boot = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
        Ok(MachineTime {
            boot: boot.trim().to_owned(),
        })
    }
}

impl TimeSource for MachineTime {
    fn read(&self) -> Reading {
        // It goes on while the machine sleeps. Linux has had it since 2.6.39.
        let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME");
        let micros = |of: i128| i64::try_from(of).unwrap_or(i64::MAX);
        let wall = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => micros(since.as_micros() as i128),
            Err(before) => -micros(before.duration().as_micros() as i128),
        };
        Reading {
            boot: self.boot.clone(),
            ticks: since_boot.tv_sec() * MICROS + since_boot.tv_nsec() / 1000,
            wall,
        }
    }
}

struct State {
    course: Course,
    /// When to store it next.
    due: Instant,
}

/// Even time and the jumps of the wall clock against it; all timelines of the process share one.
pub struct Clock {
    source: Arc<dyn TimeSource>,
    objects: blob::Store,
    state: Mutex<State>,
}

impl Clock {
    /// Goes on with the count that the object store has. Without one nothing is known of the time before: history is
    /// kept until a window has passed. Fails when the object store can't be read; a count that is damaged is logged
    /// and taken for none, and a count that can't be stored is stored later.
    pub async fn open(
        source: Arc<dyn TimeSource>,
        objects: blob::Store,
    ) -> anyhow::Result<Arc<Clock>> {
        let found = objects.get_shared_document(DOCUMENT).await;
        let before = found.context("read the count of time")?.and_then(|bytes| {
            let read = || -> anyhow::Result<Course> {
                Ok(serde_json::from_slice(blob::unseal(DOCUMENT, &bytes)?)?)
            };
            read()
                .inspect_err(|error| {
                    tracing::error!(
                        "the count of time is lost, history is kept for a window: {error:#}"
                    )
                })
                .ok()
        });
        let reading = source.read();
        let course = match before {
            Some(before) => before.resumed(&reading),
            None => Course::new(&reading),
        };
        let state = State {
            course,
            due: Instant::now(),
        };
        let clock = Arc::new(Clock {
            source,
            objects,
            state: Mutex::new(state),
        });
        clock.keep().await;
        Ok(clock)
    }

    /// The count as of now.
    fn now<T>(&self, ask: impl FnOnce(&Course) -> T) -> T {
        let reading = self.source.read();
        let mut state = self.state.lock();
        if let Some(jump) = state.course.advance(&reading) {
            METRICS.jumps.inc();
            let seconds = jump / MICROS;
            tracing::warn!(
                seconds,
                "the wall clock jumped; history and leases go on by the time before"
            );
            // A crash must not forget it.
            state.due = Instant::now();
        }
        ask(&state.course)
    }

    /// Looks at the clocks, and stores the count when it is time to. To be called every second or so. A failure to
    /// store the count is logged and tried again ten seconds later.
    pub async fn keep(&self) {
        let course = self.now(|course| course.clone());
        let doubt = course.jumped_within(TOLD_OF) / MICROS;
        METRICS.doubt.set(doubt);
        if self.state.lock().due > Instant::now() {
            return;
        }
        let stored = async {
            let json = serde_json::to_vec_pretty(&course).context("encode the count of time")?;
            let put = self
                .objects
                .put_shared_document(DOCUMENT, blob::seal(json).into());
            put.await.context("store the count of time")
        };
        let pause = match stored.await {
            Ok(()) => STORE_EVERY,
            Err(error) => {
                tracing::warn!("{error:#}; it is tried again");
                RETRY_AFTER
            }
        };
        self.state.lock().due = Instant::now() + pause;
    }

    /// Seconds of the even count: what leases are given in. Near those since 1970, apart from jumps.
    pub fn seconds(&self) -> u64 {
        self.now(|course| u64::try_from(course.even() / MICROS).unwrap_or_default())
    }

    /// What the wall clock will show at a second of the even count, if it does not jump again.
    pub fn shown_at(&self, seconds: u64) -> PgTimestamp {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let micros = self.now(|course| course.shown_at(seconds.saturating_mul(MICROS)));
        PgTimestamp::from_unix_micros(micros)
    }

    /// By which time a window of history is to be cut.
    pub fn history_time(&self, window: Duration) -> HistoryTime {
        self.now(|course| course.history_time(window))
    }
}

struct Metrics {
    jumps: IntCounter,
    doubt: IntGauge,
}

static METRICS: std::sync::LazyLock<Metrics> = std::sync::LazyLock::new(|| {
    // Names are constants, so that a failure can only be a programming error.
    let registered = "metric registered once";
    Metrics {
        jumps: register_int_counter!(
            "weir_pageserver_clock_jumps_total",
            "Jumps of the wall clock by more than a second against the clock nobody sets"
        )
        .expect(registered),
        doubt: register_int_gauge!(
            "weir_pageserver_clock_jumped_seconds",
            "Sum of the wall clock's jumps within the last 31 days, those back negative"
        )
        .expect(registered),
    }
});
