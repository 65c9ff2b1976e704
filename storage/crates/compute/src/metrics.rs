//! What a compute measures beside its proposer, in the default Prometheus registry. A compute that starts again
//! within its process goes on counting.

use std::sync::LazyLock;

use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    register_gauge_vec, register_histogram_vec, register_int_counter_vec, register_int_gauge_vec,
};

use crate::spec::Spec;

const LABELS: [&str; 3] = ["compute_id", "tenant_id", "timeline_id"];

macro_rules! family {
    ($name:ident: $type:ty = $register:ident!($metric:expr, $help:expr $(, $more:expr)*)) => {
        static $name: LazyLock<$type> = LazyLock::new(|| {
            $register!($metric, $help, &[&LABELS[..], &[$($more),*]].concat()).expect("registered once")
        });
    };
}

family!(UP: IntGaugeVec = register_int_gauge_vec!("weir_compute_up", "1 while the compute runs and takes connections"));
family!(FPW: IntGaugeVec = register_int_gauge_vec!("weir_compute_full_page_writes", "1 while Postgres logs page images"));
family!(POSTGRES: IntGaugeVec = register_int_gauge_vec!("weir_compute_postgres_info", "1 for the minor of Postgres that runs, or ran last", "version"));
family!(RESTARTS: IntCounterVec = register_int_counter_vec!("weir_compute_restarts_total", "New starts after a crash or a lost quorum"));
family!(START: GaugeVec = register_gauge_vec!("weir_compute_start_seconds", "Duration of the last start", "part"));
family!(COMMITS_UNCONFIRMED: IntCounterVec = register_int_counter_vec!("weir_compute_commits_unconfirmed_total", "Commits that no majority had confirmed when their session stopped waiting", "cause"));
family!(COMMITS_WAITING: IntGaugeVec = register_int_gauge_vec!("weir_compute_commits_waiting", "Sessions whose commit waits for a majority of the safekeepers"));
family!(CONNECTIONS: IntGaugeVec = register_int_gauge_vec!("weir_compute_connections", "Client connections"));
family!(FETCHED: IntCounterVec = register_int_counter_vec!("weir_compute_volume_pages_fetched_total", "Pages fetched from storage"));
family!(FETCHED_BYTES: IntCounterVec = register_int_counter_vec!("weir_compute_volume_bytes_fetched_total", "Bytes of pages fetched from storage"));
family!(READ_AHEAD: IntCounterVec = register_int_counter_vec!("weir_compute_volume_pages_read_ahead_total", "Pages fetched before anybody asked for them"));
family!(READ_AHEAD_USED: IntCounterVec = register_int_counter_vec!("weir_compute_volume_read_ahead_used_total", "Pages read ahead that were read since"));
family!(READ_AHEAD_UNUSED: IntCounterVec = register_int_counter_vec!("weir_compute_volume_read_ahead_unused_total", "Pages read ahead that were overwritten, cut off or dropped before they were read"));
family!(READS_BEHIND: IntCounterVec = register_int_counter_vec!("weir_compute_volume_reads_behind_total", "Reads ahead of need that had to wait for storage and stood behind those of sessions"));
family!(WRITES: IntCounterVec = register_int_counter_vec!("weir_compute_volume_writes_total", "Writes to the volume"));
family!(WRITTEN_BYTES: IntCounterVec = register_int_counter_vec!("weir_compute_volume_bytes_written_total", "Bytes written to the volume"));
family!(WRITE_BACK: IntGaugeVec = register_int_gauge_vec!("weir_compute_volume_write_back", "1 while the kernel hands writes to the volume over later, 0 while each goes through"));
family!(CLEAN_BYTES: IntGaugeVec = register_int_gauge_vec!("weir_compute_volume_clean_bytes", "Pages on the local disk as storage has them, which can be given back"));
family!(EVICTED: IntCounterVec = register_int_counter_vec!("weir_compute_volume_pages_evicted_total", "Pages given back to keep within the budget of local disk"));
family!(NOT_KEPT: IntCounterVec = register_int_counter_vec!("weir_compute_volume_pages_not_kept_total", "Pages fetched and read that the local disk did not take"));
family!(FAILED: IntCounterVec = register_int_counter_vec!("weir_compute_volume_failed_operations_total", "File operations that failed for Postgres"));
family!(THROTTLE: GaugeVec = register_gauge_vec!("weir_compute_volume_throttle_seconds", "How long each write is held back"));
family!(WAL_RATE_LIMIT: IntGaugeVec = register_int_gauge_vec!("weir_compute_wal_rate_limit_bytes_per_second", "WAL the compute may write a second; 0 for no limit"));
family!(REFUSING: IntGaugeVec = register_int_gauge_vec!("weir_compute_writes_refused", "1 while writes are refused"));
family!(PREWARMED: IntCounterVec = register_int_counter_vec!("weir_compute_prewarmed_pages_total", "Pages of the last suspend that starts loaded into shared buffers"));
family!(PREWARM: GaugeVec = register_gauge_vec!("weir_compute_prewarm_seconds", "From the start of Postgres until pages of the last suspend were loaded, of the last start that loaded any"));
family!(PREWARM_WITHHELD: GaugeVec = register_gauge_vec!("weir_compute_prewarm_withheld_seconds", "For how long after the last start pages of the last suspend were not loaded, because sessions came first"));
family!(PREWARM_IGNORED: IntCounterVec = register_int_counter_vec!("weir_compute_prewarm_lists_ignored_total", "Lists of pages to load that could not be used"));
family!(AUDITS: IntCounterVec = register_int_counter_vec!("weir_compute_audit_reads_total", "Pages read back from storage by what the comparison said", "result"));
family!(RECONNECTS: IntCounterVec = register_int_counter_vec!("weir_compute_page_connections_total", "Connections opened to the pageserver"));

static PAGE_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    // From 20 us to 60 s, about 25 % apart.
    let buckets = (0..68).map(|step| 0.000_02 * 1.25_f64.powi(step)).collect();
    histogram(
        "weir_compute_page_read_seconds",
        "Time from asking the pageserver for pages until they are here",
        buckets,
    )
});

static CHAIN_LENGTH: LazyLock<HistogramVec> = LazyLock::new(|| {
    let buckets = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096,
    ];
    histogram(
        "weir_compute_page_chain_length",
        "Deltas the pageserver applied to make a page",
        buckets.map(f64::from).to_vec(),
    )
});

fn histogram(name: &str, help: &str, buckets: Vec<f64>) -> HistogramVec {
    register_histogram_vec!(
        name,
        help,
        &["compute_id", "tenant_id", "timeline_id", "purpose"],
        buckets
    )
    .expect("registered once")
}

/// How pages come from storage for one purpose.
#[derive(Clone)]
pub struct Reads {
    /// From asking the pageserver until the pages are here, seconds; one observation a request.
    pub seconds: Histogram,
    /// Deltas that the pageserver applied to make a page; one observation a page.
    pub chain_length: Histogram,
}

/// The metrics of this process's compute.
#[derive(Clone)]
pub struct Metrics {
    /// `weir_compute_up`.
    pub up: IntGauge,
    /// `weir_compute_full_page_writes`.
    pub full_page_writes: IntGauge,
    /// `weir_compute_restarts_total`.
    pub restarts: IntCounter,
    /// `weir_compute_connections`.
    pub connections: IntGauge,
    /// `weir_compute_commits_unconfirmed_total{cause="canceled"}`.
    pub commits_canceled: IntCounter,
    /// `weir_compute_commits_unconfirmed_total{cause="terminated"}`.
    pub commits_terminated: IntCounter,
    /// `weir_compute_commits_unconfirmed_total{cause="stopped"}`.
    pub commits_stopped: IntCounter,
    /// `weir_compute_commits_waiting`.
    pub commits_waiting: IntGauge,
    /// `weir_compute_volume_pages_fetched_total`.
    pub pages_fetched: IntCounter,
    /// `weir_compute_volume_bytes_fetched_total`.
    pub bytes_fetched: IntCounter,
    /// `weir_compute_volume_pages_read_ahead_total`.
    pub read_ahead: IntCounter,
    /// `weir_compute_volume_read_ahead_used_total`.
    pub read_ahead_used: IntCounter,
    /// `weir_compute_volume_read_ahead_unused_total`.
    pub read_ahead_unused: IntCounter,
    /// `weir_compute_volume_reads_behind_total`.
    pub reads_behind: IntCounter,
    /// `weir_compute_volume_writes_total`.
    pub writes: IntCounter,
    /// `weir_compute_volume_bytes_written_total`.
    pub bytes_written: IntCounter,
    /// `weir_compute_volume_write_back`.
    pub write_back: IntGauge,
    /// `weir_compute_volume_clean_bytes`.
    pub clean_bytes: IntGauge,
    /// `weir_compute_volume_pages_evicted_total`.
    pub evicted: IntCounter,
    /// `weir_compute_volume_pages_not_kept_total`.
    pub not_kept: IntCounter,
    /// `weir_compute_volume_failed_operations_total`.
    pub failed_operations: IntCounter,
    /// `weir_compute_volume_throttle_seconds`.
    pub throttle_seconds: prometheus::Gauge,
    /// `weir_compute_writes_refused`.
    pub writes_refused: IntGauge,
    /// `weir_compute_wal_rate_limit_bytes_per_second`.
    pub wal_rate_limit: IntGauge,
    /// `weir_compute_prewarmed_pages_total`.
    pub prewarmed_pages: IntCounter,
    /// `weir_compute_prewarm_seconds`.
    pub prewarm_seconds: prometheus::Gauge,
    /// `weir_compute_prewarm_withheld_seconds`.
    pub prewarm_withheld_seconds: prometheus::Gauge,
    /// `weir_compute_prewarm_lists_ignored_total`.
    pub prewarm_ignored: IntCounter,
    /// `weir_compute_audit_reads_total{result="equal"}`.
    pub audit_equal: IntCounter,
    /// `weir_compute_audit_reads_total{result="newer"}`.
    pub audit_newer: IntCounter,
    /// `weir_compute_audit_reads_total{result="mismatch"}`.
    pub audit_mismatch: IntCounter,
    /// `weir_compute_page_connections_total`.
    pub page_connections: IntCounter,
    /// Pages that the volume did not have: `purpose="miss"`.
    pub misses: Reads,
    /// Pages that were read back: `purpose="audit"`.
    pub audits: Reads,
    labels: [String; 3],
}

impl Metrics {
    /// The metrics with the labels of this spec's compute. The families register once, in the default registry.
    pub fn new(spec: &Spec) -> Metrics {
        let labels = [
            spec.compute_id.clone(),
            spec.tenant_id.to_string(),
            spec.timeline_id.to_string(),
        ];
        let [a, b, c] = labels.each_ref().map(String::as_str);
        let plain = [a, b, c];
        let reads = |purpose| Reads {
            seconds: PAGE_SECONDS.with_label_values(&[a, b, c, purpose]),
            chain_length: CHAIN_LENGTH.with_label_values(&[a, b, c, purpose]),
        };
        Metrics {
            up: UP.with_label_values(&plain),
            full_page_writes: FPW.with_label_values(&plain),
            restarts: RESTARTS.with_label_values(&plain),
            connections: CONNECTIONS.with_label_values(&plain),
            commits_canceled: COMMITS_UNCONFIRMED.with_label_values(&[a, b, c, "canceled"]),
            commits_terminated: COMMITS_UNCONFIRMED.with_label_values(&[a, b, c, "terminated"]),
            commits_stopped: COMMITS_UNCONFIRMED.with_label_values(&[a, b, c, "stopped"]),
            commits_waiting: COMMITS_WAITING.with_label_values(&plain),
            pages_fetched: FETCHED.with_label_values(&plain),
            bytes_fetched: FETCHED_BYTES.with_label_values(&plain),
            read_ahead: READ_AHEAD.with_label_values(&plain),
            read_ahead_used: READ_AHEAD_USED.with_label_values(&plain),
            read_ahead_unused: READ_AHEAD_UNUSED.with_label_values(&plain),
            reads_behind: READS_BEHIND.with_label_values(&plain),
            writes: WRITES.with_label_values(&plain),
            bytes_written: WRITTEN_BYTES.with_label_values(&plain),
            write_back: WRITE_BACK.with_label_values(&plain),
            clean_bytes: CLEAN_BYTES.with_label_values(&plain),
            evicted: EVICTED.with_label_values(&plain),
            not_kept: NOT_KEPT.with_label_values(&plain),
            failed_operations: FAILED.with_label_values(&plain),
            throttle_seconds: THROTTLE.with_label_values(&plain),
            wal_rate_limit: WAL_RATE_LIMIT.with_label_values(&plain),
            writes_refused: REFUSING.with_label_values(&plain),
            prewarmed_pages: PREWARMED.with_label_values(&plain),
            prewarm_seconds: PREWARM.with_label_values(&plain),
            prewarm_withheld_seconds: PREWARM_WITHHELD.with_label_values(&plain),
            prewarm_ignored: PREWARM_IGNORED.with_label_values(&plain),
            audit_equal: AUDITS.with_label_values(&[a, b, c, "equal"]),
            audit_newer: AUDITS.with_label_values(&[a, b, c, "newer"]),
            audit_mismatch: AUDITS.with_label_values(&[a, b, c, "mismatch"]),
            page_connections: RECONNECTS.with_label_values(&plain),
            misses: reads("miss"),
            audits: reads("audit"),
            labels,
        }
    }

    /// The minor that runs from now on.
    pub fn postgres_version(&self, version: &str) {
        let [a, b, c] = self.labels.each_ref().map(String::as_str);
        POSTGRES.reset();
        POSTGRES.with_label_values(&[a, b, c, version]).set(1);
    }

    /// Duration of one part of a start.
    pub fn start_seconds(&self, part: &str, seconds: f64) {
        let [a, b, c] = self.labels.each_ref().map(String::as_str);
        START.with_label_values(&[a, b, c, part]).set(seconds);
    }
}
