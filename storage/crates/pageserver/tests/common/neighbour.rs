//! Another tenant, who reads all the while, and the tasks that kept an async worker from this or anyone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pageserver::timeline::Timeline;
use pg_types::rel::DEFAULT_TABLESPACE;
use pg_types::{ForkNumber, RelTag};
use tokio_util::sync::CancellationToken;

/// `pg_proc` of `template1`, which a fresh cluster has with its bootstrap number.
const PG_PROC: RelTag = RelTag {
    spc: DEFAULT_TABLESPACE,
    db: 1,
    rel: 1255,
    fork: ForkNumber::Main,
};
/// Between two reads.
const PAUSE: Duration = Duration::from_millis(2);

/// Reads of a neighbour's page, one after the other, on the async workers that all tasks of the process share.
pub struct Reading {
    ends: CancellationToken,
    task: tokio::task::JoinHandle<(u64, Duration)>,
}

impl Reading {
    /// Begins to read as of the timeline's last record.
    pub fn begin(timeline: &Arc<Timeline>) -> Reading {
        let ends = CancellationToken::new();
        let (timeline, until) = (timeline.clone(), ends.clone());
        let read = async move {
            let (mut count, mut slowest) = (0, Duration::ZERO);
            while !until.is_cancelled() {
                let (started, at) = (Instant::now(), timeline.last_record_lsn());
                let page = timeline.reads().rel_pages(PG_PROC, &[0], at).await;
                assert_eq!(page.expect("a page").len(), 1);
                slowest = slowest.max(started.elapsed());
                count += 1;
                tokio::time::sleep(PAUSE).await;
            }
            (count, slowest)
        };
        Reading {
            ends,
            task: stalls::spawn("neighbour", read),
        }
    }

    /// Ends the reads. Fails when there were none, and when tasks of this process have kept an async worker as would
    /// end a program in which stalls do ([`stalls::CERTAIN`]).
    pub async fn end_unmoved(self) {
        self.ends.cancel();
        let (count, slowest) = self.task.await.expect("no panic");
        println!("{count} reads of a neighbour, the slowest took {slowest:?}");
        assert!(count > 0);
        let counts = of_tasks("weir_worker_stalls_total");
        let longest = of_tasks("weir_worker_longest_stall_seconds");
        println!("stalls {counts:?}, the longest {longest:?}");
        let certain = f64::from(stalls::CERTAIN);
        assert!(counts.values().all(|count| *count < certain));
        let most = certain * stalls::LIMIT.as_secs_f64();
        assert!(longest.values().all(|longest| *longest <= most));
    }
}

/// A metric of each task of this process that has it.
fn of_tasks(name: &str) -> BTreeMap<String, f64> {
    let families = prometheus::gather();
    let of_name = families.iter().filter(|family| family.name() == name);
    let series = of_name.flat_map(|family| family.get_metric());
    let task = |series: &prometheus::proto::Metric| {
        let labels = series.get_label().iter();
        let task = labels.map(|label| label.value().to_owned()).collect();
        let value = series.get_gauge().get_value() + series.get_counter().get_value();
        (task, value)
    };
    series.map(task).collect()
}
