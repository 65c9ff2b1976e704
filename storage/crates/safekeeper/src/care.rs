//! Who looks at logs, when, and has them repaired.
//!
//! Each log has a task. It looks at all of the log once a period, slowly, and at once where somebody has met WAL that is
//! not as it should be: a read that failed, a record that a reader was sent and that has another checksum than it says, a
//! file that was missing when the log was opened, or whoever asks for it. What is damaged is repaired, and tried again
//! after a while when that does not succeed.
//!
//! Bounds: one log is looked at slowly at a time, and beside it one log at once or repaired; a slow look that becomes urgent
//! goes on at full speed.
//!
//! A crash forgets what is known of damage; the next look finds it again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blob::Store;
use part_tls::Dialer;
use token::OwnToken;
use tokio::sync::Semaphore;

use crate::damage::Damage;
use crate::metrics;
use crate::repair::{self, Sources};
use crate::timeline::{RepairView, Timeline};
use crate::verify::{self, AtOnce, Pace, Range};

const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A slow look waits in steps of this, to notice that it became urgent.
const STEP: Duration = Duration::from_millis(200);

/// How often logs are looked at, how fast, and where repairs come from.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long after a look at a whole log the next one begins.
    pub period: Duration,
    /// Of the looks that nobody waits for.
    pub bytes_per_second: u64,
    /// Of repairs.
    pub repair_bytes_per_second: u64,
    /// `host:port` of the WAL ports of the installation's safekeepers; this one may be among them.
    pub peers: Vec<String>,
}

/// The care of all logs of a safekeeper; each has a task that runs [`Care::watch`].
pub struct Care {
    options: Options,
    sources: Sources,
    slow: Semaphore,
    urgent: Semaphore,
}

/// Of a look that nobody waits for.
struct Slow {
    timeline: Arc<Timeline>,
    bytes_per_second: u64,
}

impl Pace for Slow {
    fn read(&mut self, bytes: usize) -> bool {
        let until = Instant::now() + verify::pause_after(bytes, self.bytes_per_second);
        loop {
            if self.timeline.closed().is_cancelled() {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.timeline.is_suspected() {
                return true;
            }
            std::thread::sleep(left.min(STEP));
        }
    }
}

impl Care {
    /// `node` is the number of this safekeeper, `peers` and `store` where WAL may be taken from.
    pub fn new(node: u64, options: Options, store: Option<Store>) -> Care {
        Care {
            sources: Sources {
                peers: options.peers.clone(),
                store,
                bytes_per_second: options.repair_bytes_per_second,
                name: format!("repair of safekeeper {node}"),
                token: OwnToken::default(),
                dialer: Dialer::default(),
            },
            options,
            slow: Semaphore::new(1),
            urgent: Semaphore::new(1),
        }
    }

    /// Shows this token to the peers.
    pub fn showing(mut self, token: OwnToken) -> Care {
        self.sources.token = token;
        self
    }

    /// Connects to the peers by this dialer.
    pub fn dialing_by(mut self, dialer: Dialer) -> Care {
        self.sources.dialer = dialer;
        self
    }

    /// Takes care of a timeline until it closes. A panic is counted, said, and followed by a new attempt.
    pub async fn watch(self: Arc<Care>, timeline: Arc<Timeline>) {
        loop {
            let run = self.clone().run(timeline.clone());
            match stalls::spawn("care", run).await {
                Ok(()) => return,
                Err(error) => {
                    metrics::REPAIRS.with_label_values(&["panicked"]).inc();
                    tracing::error!(timeline = %timeline.identity.timeline, %error, "looking after a log broke down, and begins again");
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
            }
        }
    }

    async fn run(self: Arc<Care>, timeline: Arc<Timeline>) {
        let closed = timeline.closed().clone();
        let mut due = Instant::now() + self.options.period;
        let (mut pause, mut again) = (FIRST_PAUSE, None::<Instant>);
        loop {
            let next = again.map_or(due, |again| again.min(due));
            tokio::select! {
                () = closed.cancelled() => return,
                () = timeline.suspicion() => {}
                () = tokio::time::sleep_until(next.into()) => {}
            }
            let work = async {
                if timeline.is_suspected() {
                    self.verify_at_once(&timeline).await;
                } else if Instant::now() >= due {
                    self.verify_slowly(&timeline).await;
                }
                self.repair(&timeline).await
            };
            let is_sound = tokio::select! {
                () = closed.cancelled() => return,
                is_sound = work => is_sound,
            };
            if Instant::now() >= due {
                due = Instant::now() + self.options.period;
            }
            (pause, again) = match is_sound {
                true => (FIRST_PAUSE, None),
                false => ((pause * 2).min(LONGEST_PAUSE), Some(Instant::now() + pause)),
            };
        }
    }

    /// Looks at the whole log, and returns when that is done.
    pub async fn verify_at_once(&self, timeline: &Arc<Timeline>) {
        let _one_at_a_time = self.urgent.acquire().await.expect("never closed");
        timeline.take_suspicion();
        verify_log(timeline, None, AtOnce).await;
    }

    async fn verify_slowly(&self, timeline: &Arc<Timeline>) {
        let _one_at_a_time = self.slow.acquire().await.expect("never closed");
        let slow = Slow {
            timeline: timeline.clone(),
            bytes_per_second: self.options.bytes_per_second,
        };
        verify_log(timeline, None, slow).await;
    }

    /// Whether nothing is damaged any more.
    async fn repair(&self, timeline: &Arc<Timeline>) -> bool {
        if timeline.damages().is_empty() {
            return true;
        }
        let _one_at_a_time = self.urgent.acquire().await.expect("never closed");
        for damage in timeline.damages() {
            let Damage { from, to, .. } = damage;
            // Somebody may have put the file right, or the disk may read it this time.
            verify_log(timeline, Some(Range { from, to }), AtOnce).await;
            if !timeline.is_damaged(from, to) {
                continue;
            }
            if let Err(why) = repair::repair(timeline, &damage, &self.sources).await {
                metrics::REPAIRS.with_label_values(&["failed"]).inc();
                timeline.not_repaired(damage.from, damage.to, &why);
                tracing::error!(
                    tenant = %timeline.identity.tenant, timeline = %timeline.identity.timeline,
                    from = %damage.from, to = %damage.to, "damaged WAL is not repaired: {why}"
                );
            }
        }
        timeline.damages().is_empty()
    }
}

/// Looks at a part of the log, or at all of it.
async fn verify_log(
    timeline: &Arc<Timeline>,
    part: Option<Range>,
    mut pace: impl Pace + Send + 'static,
) {
    let timeline = timeline.clone();
    let work = move || {
        let Some(view) = timeline.repair_view() else {
            return;
        };
        let RepairView { horizon, flush, .. } = view;
        let range = Range {
            from: part.map_or(horizon, |part| part.from.max(horizon)),
            to: part.map_or(flush, |part| part.to.min(flush)),
        };
        if let Some(faults) = verify::verify(timeline.dir(), &timeline.identity, range, &mut pace) {
            timeline.looked_at(range, &view, &faults, part.is_none());
        }
    };
    tokio::task::spawn_blocking(work)
        .await
        .expect("a look does not panic");
}
