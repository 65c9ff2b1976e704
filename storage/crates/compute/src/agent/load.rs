//! How busy Postgres is: what the control plane chooses a compute's size by.
//!
//! Processor time is that of the postmaster and all processes below it, those that have ended included, since their
//! parents keep the time of children they waited for. Memory is what the processes have of their own, and the shared
//! memory of the one that has touched most of it, once.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Agent;
use super::live::Live;
use crate::postgres::{Admin, AdminError};

const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// The kernel counts processor time in hundredths of a second, whatever its own clock is.
const TICKS_PER_SECOND: f64 = 100.0;
/// More processes than this are no Postgres's, and reading on would be no use.
const MAX_PROCESSES: usize = 10_000;
const BUFFERS: &str =
    "SELECT coalesce(sum(blks_hit), 0), coalesce(sum(blks_read), 0) FROM pg_stat_database";

/// Use over the last seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Processors that Postgres's processes used, such as 0.5 for half of one.
    pub processors: f64,
    /// Memory that they have.
    pub memory_bytes: u64,
    /// Pages that sessions found in shared buffers, a second. Postgres counts them once a transaction has ended.
    pub buffer_hits_per_second: f64,
    /// Pages that sessions had to read into shared buffers, a second: many, while they work with more than fits.
    pub buffer_reads_per_second: f64,
}

/// What has been used up to a moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    ticks: u64,
    memory_bytes: u64,
    hits: u64,
    reads: u64,
}

impl Sample {
    fn since(&self, before: &Sample) -> Option<Load> {
        let seconds = (self.at - before.at).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        (seconds > 0.0).then(|| Load {
            processors: rate(self.ticks, before.ticks) / TICKS_PER_SECOND,
            memory_bytes: self.memory_bytes,
            buffer_hits_per_second: rate(self.hits, before.hits),
            buffer_reads_per_second: rate(self.reads, before.reads),
        })
    }
}

/// Takes the samples of one run.
#[derive(Default)]
pub(super) struct Sampler {
    last: Option<Sample>,
    tried: Option<Instant>,
}

impl Sampler {
    /// Keeps `load` of the status up to date, by a sample each five seconds however often it is called.
    pub async fn sample_if_due(&mut self, agent: &Agent, live: &Live, session: &Admin) {
        let now = Instant::now();
        let due = |tried: Instant| now.duration_since(tried) >= SAMPLE_EVERY;
        if !self.tried.is_none_or(due) {
            return;
        }
        self.tried = Some(now);
        let sample = sample(live, session)
            .await
            .inspect_err(|error| tracing::debug!(%error, "cannot look how busy Postgres is"))
            .ok();
        let both = self.last.zip(sample);
        let load = both.and_then(|(then, now)| now.since(&then));
        agent.set(|status| status.load = load);
        self.last = sample;
    }
}

async fn sample(live: &Live, session: &Admin) -> Result<Sample, AdminError> {
    let rows = session.rows("ask for reads of buffers", BUFFERS).await?;
    let number = |column: usize| {
        let value = rows.first()?.get(column)?.as_ref()?;
        value.parse::<u64>().ok()
    };
    let (Some(hits), Some(reads)) = (number(0), number(1)) else {
        return Err(AdminError::Other(
            "Postgres describes reads of buffers in an unknown way".into(),
        ));
    };
    let at = Instant::now();
    let pid = live.postmaster.pid();
    let used = tokio::task::spawn_blocking(move || used_below(pid)).await;
    let (ticks, memory_bytes) = used.unwrap_or_default();
    Ok(Sample {
        at,
        ticks,
        memory_bytes,
        hits,
        reads,
    })
}

/// Ticks of processor time and bytes of memory of a process and all below it. One that ends meanwhile is left out.
fn used_below(pid: i32) -> (u64, u64) {
    let (mut ticks, mut own, mut shared) = (0, 0, 0);
    let mut to_see = vec![pid];
    let mut seen = 0;
    while let Some(pid) = to_see.pop() {
        seen += 1;
        if seen > MAX_PROCESSES {
            break;
        }
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
        let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else {
            continue;
        };
        ticks += ticks_of(&stat).unwrap_or(0);
        own += bytes_of(&status, "RssAnon:");
        shared = bytes_of(&status, "RssShmem:").max(shared);
        let children = read(&format!("task/{pid}/children")).unwrap_or_default();
        to_see.extend(
            children
                .split_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    (ticks, own + shared)
}

/// Of `/proc/PID/stat`: time in user and kernel mode, its own and that of children it waited for.
fn ticks_of(stat: &str) -> Option<u64> {
    // The name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ').skip(11);
    let mut sum = 0;
    for _ in 0..4 {
        sum += words.next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

/// Of `/proc/PID/status`: a figure in kB, as bytes.
fn bytes_of(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_whatever_the_process_is_called() {
        let stat = "7 (a) (b 1 2) S 1 7 7 0 -1 4194560 5 6 7 8 100 20 3 4 20 0 1 0 99";
        assert_eq!(ticks_of(stat), Some(127));
        assert_eq!(ticks_of("7 (a) S 1"), None);
        assert_eq!(
            bytes_of("Name:\tx\nRssAnon:\t  12 kB\n", "RssAnon:"),
            12 << 10
        );
        assert_eq!(bytes_of("Name:\tx\n", "RssAnon:"), 0);
    }

    #[test]
    fn a_process_and_its_children_are_counted_and_none_that_is_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("20")
            .spawn()
            .unwrap();
        let (_, memory) = used_below(std::process::id() as i32);
        let alone = bytes_of(
            &std::fs::read_to_string("/proc/self/status").unwrap(),
            "RssAnon:",
        );
        assert!(memory > 0 && alone > 0);
        assert!(used_below(child.id() as i32).1 > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(used_below(child.id() as i32), (0, 0));
    }

    #[test]
    fn rates_are_of_the_time_between_two_samples_and_never_negative() {
        let at = Instant::now();
        let before = Sample {
            at,
            ticks: 100,
            memory_bytes: 1,
            hits: 50,
            reads: 9,
        };
        let later = Sample {
            at: at + Duration::from_secs(5),
            ticks: 350,
            memory_bytes: 2,
            hits: 100,
            reads: 0,
        };
        let load = later.since(&before).unwrap();
        assert!((load.processors - 0.5).abs() < 1e-9);
        assert_eq!(load.memory_bytes, 2);
        assert!((load.buffer_hits_per_second - 10.0).abs() < 1e-9);
        assert!(load.buffer_reads_per_second.abs() < 1e-9);
        assert_eq!(before.since(&before), None);
    }
}
