//! What the proposer measures, in the default Prometheus registry. A compute that starts again within its
//! process goes on counting.

use std::sync::LazyLock;

use pg_types::Lsn;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, register_counter_vec, register_gauge_vec, register_histogram_vec,
    register_int_counter_vec, register_int_gauge_vec,
};
use wal_decode::WalStats;

use crate::ProposerConfig;

const LABELS: [&str; 3] = ["compute_id", "tenant_id", "timeline_id"];

macro_rules! family {
    ($name:ident: $type:ty = $register:ident!($metric:expr, $help:expr $(, $more:expr)*)) => {
        static $name: LazyLock<$type> = LazyLock::new(|| {
            $register!($metric, $help, &[&LABELS[..], &[$($more),*]].concat()).expect("registered once")
        });
    };
}

family!(WAL: IntCounterVec = register_int_counter_vec!("weir_compute_wal_bytes_total", "WAL bytes by what they are", "part", "rmgr"));
family!(IMAGES: IntCounterVec = register_int_counter_vec!("weir_compute_wal_images_total", "Page images in WAL"));
family!(TRANSACTIONS: IntCounterVec = register_int_counter_vec!("weir_compute_transactions_total", "Transactions ended, as the WAL says", "result"));
family!(CHECKPOINTS: IntCounterVec = register_int_counter_vec!("weir_compute_checkpoints_total", "Checkpoints that ended, as the WAL says"));
family!(COMMIT_LSN: IntGaugeVec = register_int_gauge_vec!("weir_compute_commit_lsn_bytes", "Commit LSN as a byte position"));
family!(INGEST_LAG: IntGaugeVec = register_int_gauge_vec!("weir_compute_ingest_lag_bytes", "Committed WAL not yet ingested"));
family!(QUORUM_LAG: IntGaugeVec = register_int_gauge_vec!("weir_compute_quorum_lag_bytes", "WAL received from Postgres and not yet committed"));
family!(PACED: CounterVec = register_counter_vec!("weir_compute_wal_paced_seconds_total", "Time that WAL waited for its turn under the compute's WAL rate limit"));
family!(HELD_BACK: CounterVec = register_counter_vec!("weir_compute_wal_held_back_seconds_total", "Time that WAL waited because the safekeepers run out of room for it"));
family!(ROOM: IntGaugeVec = register_int_gauge_vec!("weir_compute_wal_room_bytes", "WAL that a majority of the safekeepers still takes; no series without a limit"));
family!(LEASE: GaugeVec = register_gauge_vec!("weir_compute_read_lease_remaining_seconds", "Time until the compute stops unless a majority of the safekeepers renews its read lease"));
family!(TERM: IntGaugeVec = register_int_gauge_vec!("weir_compute_term", "Term of the compute"));
family!(SAFEKEEPER_LAG: IntGaugeVec = register_int_gauge_vec!("weir_compute_safekeeper_lag_bytes", "WAL received from Postgres and not yet fsynced by one safekeeper", "safekeeper"));
family!(SAFEKEEPER_UP: IntGaugeVec = register_int_gauge_vec!("weir_compute_safekeeper_connected", "Whether a safekeeper takes WAL from this compute", "safekeeper"));

static COMMIT_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    // From 50 us to 10 s, about 25 % apart where commits normally are.
    let buckets = (0..56)
        .map(|step| 0.000_05 * 1.25_f64.powi(step))
        .take_while(|bound| *bound < 12.0)
        .collect();
    register_histogram_vec!(
        "weir_compute_commit_quorum_seconds",
        "Time from receiving WAL from Postgres until a majority has fsynced it",
        &LABELS,
        buckets
    )
    .expect("registered once")
});

pub struct Metrics {
    labels: [String; 3],
    pub commit_seconds: Histogram,
    commit_lsn: IntGauge,
    ingest_lag: IntGauge,
    quorum_lag: IntGauge,
    pub paced_seconds: Counter,
    pub held_back_seconds: Counter,
    pub term: IntGauge,
    pub lease_seconds: Gauge,
    images: IntCounter,
    commits: IntCounter,
    aborts: IntCounter,
    checkpoints: IntCounter,
}

impl Metrics {
    pub fn new(config: &ProposerConfig) -> Metrics {
        let labels = [
            config.compute_id.clone(),
            config.tenant.to_string(),
            config.timeline.to_string(),
        ];
        let [a, b, c] = labels.each_ref().map(String::as_str);
        let metrics = Metrics {
            commit_seconds: COMMIT_SECONDS.with_label_values(&[a, b, c]),
            commit_lsn: COMMIT_LSN.with_label_values(&[a, b, c]),
            ingest_lag: INGEST_LAG.with_label_values(&[a, b, c]),
            quorum_lag: QUORUM_LAG.with_label_values(&[a, b, c]),
            paced_seconds: PACED.with_label_values(&[a, b, c]),
            held_back_seconds: HELD_BACK.with_label_values(&[a, b, c]),
            lease_seconds: LEASE.with_label_values(&[a, b, c]),
            term: TERM.with_label_values(&[a, b, c]),
            images: IMAGES.with_label_values(&[a, b, c]),
            commits: TRANSACTIONS.with_label_values(&[a, b, c, "commit"]),
            aborts: TRANSACTIONS.with_label_values(&[a, b, c, "abort"]),
            checkpoints: CHECKPOINTS.with_label_values(&[a, b, c]),
            labels,
        };
        // A series that begins with its first event loses that event to `rate()`.
        for part in ["image", "rest"] {
            WAL.with_label_values(&metrics.with(&[part, "Heap"]));
        }
        metrics
    }

    fn with<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.labels
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect()
    }

    /// Adds what was counted since the last call.
    pub fn wal(&self, counted: &WalStats) {
        for (rmgr, stats) in counted.by_rmgr() {
            if stats.image_bytes > 0 {
                WAL.with_label_values(&self.with(&["image", rmgr]))
                    .inc_by(stats.image_bytes);
            }
            WAL.with_label_values(&self.with(&["rest", rmgr]))
                .inc_by(stats.rest_bytes);
            self.images.inc_by(stats.images);
        }
        self.commits.inc_by(counted.commits);
        self.aborts.inc_by(counted.aborts);
        self.checkpoints.inc_by(counted.checkpoints);
    }

    pub fn positions(&self, positions: &crate::Positions) {
        let lag = |ahead: Lsn, behind: Lsn| ahead.checked_sub(behind).unwrap_or(0) as i64;
        self.commit_lsn.set(positions.commit.0 as i64);
        self.quorum_lag
            .set(lag(positions.record_end, positions.commit));
        match positions.room {
            Some(room) => ROOM
                .with_label_values(&self.with(&[]))
                .set(room.left(positions.record_end) as i64),
            // There may never have been a limit.
            None => drop(ROOM.remove_label_values(&self.with(&[]))),
        }
        // Before the first report of the pageserver nothing is known.
        let applied = if positions.applied.is_valid() {
            lag(positions.commit, positions.applied)
        } else {
            0
        };
        self.ingest_lag.set(applied);
    }

    pub fn safekeeper(&self, address: &str, connected: bool, lag: u64) {
        SAFEKEEPER_UP
            .with_label_values(&self.with(&[address]))
            .set(connected.into());
        SAFEKEEPER_LAG
            .with_label_values(&self.with(&[address]))
            .set(lag as i64);
    }
}
