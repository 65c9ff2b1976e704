//! Counters of the process, in the default Prometheus registry.

use std::sync::LazyLock;

use prometheus::{
    Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, exponential_buckets,
    register_histogram, register_int_counter, register_int_counter_vec, register_int_gauge,
    register_int_gauge_vec,
};

/// Time of one fsync of WAL, its directory included, seconds; buckets double from 50 µs on.
pub static FSYNC_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    let buckets = exponential_buckets(0.000_05, 2.0, 18).expect("valid buckets");
    register_histogram!(
        "weir_safekeeper_fsync_seconds",
        "Time of one WAL fsync",
        buckets
    )
    .expect("registered once")
});
/// WAL that appends brought and that the log did not have yet, bytes.
pub static WAL_BYTES: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_safekeeper_wal_written_bytes_total",
        "WAL taken into the log"
    )
    .expect("registered once")
});
/// WAL sent to readers and to peers, bytes.
pub static SENT_BYTES: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_safekeeper_wal_sent_bytes_total",
        "WAL sent to readers and peers"
    )
    .expect("registered once")
});
/// WAL that a timeline may keep here, bytes; 0 for no limit.
pub static WAL_QUOTA: LazyLock<IntGauge> = LazyLock::new(|| {
    register_int_gauge!(
        "weir_safekeeper_wal_quota_bytes",
        "WAL that each timeline may keep; 0 for no limit"
    )
    .expect("registered once")
});
/// Free bytes of the disk below which timelines that keep much WAL take no more; 0 for none.
pub static DISK_RESERVE: LazyLock<IntGauge> = LazyLock::new(|| {
    register_int_gauge!(
        "weir_safekeeper_disk_reserve_bytes",
        "Free disk kept for timelines that keep little WAL; 0 for none"
    )
    .expect("registered once")
});
/// Free bytes of the disk that holds the data directory.
pub static DISK_FREE: LazyLock<IntGauge> = LazyLock::new(|| {
    register_int_gauge!(
        "weir_safekeeper_disk_free_bytes",
        "Free bytes of the disk that holds the data directory"
    )
    .expect("registered once")
});
/// WAL of a timeline that is here, bytes.
pub static KEPT: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "weir_safekeeper_wal_kept_bytes",
        "WAL of a timeline that is kept, because storage does not have it as pages yet",
        &["tenant_id", "timeline_id"]
    )
    .expect("registered once")
});
/// WAL of a timeline that is taken before the timeline's allowance is used up, bytes; no series without a limit.
pub static ROOM: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "weir_safekeeper_wal_room_bytes",
        "WAL of a timeline that is still taken before its allowance is used up",
        &["tenant_id", "timeline_id"]
    )
    .expect("registered once")
});
/// Appends that were refused because the timeline keeps as much WAL as it may.
pub static REFUSED_APPENDS: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_safekeeper_appends_without_room_total",
        "Appends refused because their timeline keeps as much WAL as it may"
    )
    .expect("registered once")
});
/// Segments removed because what is in them is durable as pages.
pub static TRIMMED_SEGMENTS: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_safekeeper_trimmed_segments_total",
        "WAL segments removed as no longer needed"
    )
    .expect("registered once")
});
/// Timelines that work (`active`), and those that are stopped or could not be opened (`stopped`).
pub static TIMELINES: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "weir_safekeeper_timelines",
        "Timelines by state",
        &["state"]
    )
    .expect("registered once")
});
/// Open connections to the WAL port, by what they are for: `proposer`, `fetch` or `reader`.
pub static CONNECTIONS: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "weir_safekeeper_connections",
        "Open WAL connections by kind",
        &["kind"]
    )
    .expect("registered once")
});
/// Answers to vote requests, by whether the vote is given (`granted` is `true` or `false`).
pub static ELECTIONS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_safekeeper_votes_total",
        "Votes by outcome",
        &["granted"]
    )
    .expect("registered once")
});
/// Computes that were refused because following them would have cut off committed WAL
/// ([`consensus::Refusal::Diverged`]).
pub static DIVERGED: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_safekeeper_diverged_total",
        "Computes refused because their history lacks what is committed here"
    )
    .expect("registered once")
});
/// What offloading has done. Of pieces: `uploaded`, `present`, `superseded`, `deleted`; of attempts that came to
/// nothing: `failed`, `damaged`, `conflict`, `orphaned`, `panicked`.
pub static OFFLOADS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_safekeeper_offloads_total",
        "Pieces of WAL offloaded to the object store, found there, deleted, and attempts that failed, by outcome",
        &["outcome"]
    )
    .expect("registered once")
});
/// WAL uploaded to the object store, bytes.
pub static OFFLOADED_BYTES: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_safekeeper_offloaded_bytes_total",
        "WAL uploaded to the object store"
    )
    .expect("registered once")
});
/// WAL that logs were filled with from the object store, bytes.
pub static FILLED_BYTES: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_safekeeper_filled_bytes_total",
        "WAL taken into logs from the object store"
    )
    .expect("registered once")
});
/// WAL that was read from disk to check it, bytes.
pub static VERIFIED_BYTES: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_safekeeper_verified_bytes_total",
        "WAL on disk that was read to check it"
    )
    .expect("registered once")
});
/// Damaged WAL of a timeline, bytes; 0 once it is repaired, trimmed or found to be good.
pub static DAMAGED_BYTES: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "weir_safekeeper_damaged_bytes",
        "WAL of a timeline in which nothing is proven, and which is not repaired yet",
        &["tenant_id", "timeline_id"]
    )
    .expect("registered once")
});
/// Segments that were `repaired`, damage whose repair has `failed`, and tasks that have `panicked`.
pub static REPAIRS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_safekeeper_repairs_total",
        "Segments replaced from a peer or the object store, and damage left as it is, by outcome",
        &["outcome"]
    )
    .expect("registered once")
});
/// Positions of a timeline, byte positions: `flush`, `commit`, `remote_consistent`, `ingested` and `offloaded`.
pub static POSITION: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "weir_safekeeper_position_bytes",
        "WAL positions of a timeline as byte positions",
        &["tenant_id", "timeline_id", "position"]
    )
    .expect("registered once")
});

/// Counts a connection of a kind while it lives.
pub struct Connection(&'static str);

impl Connection {
    /// Counts one more connection of the kind, until the answer is dropped.
    pub fn open(kind: &'static str) -> Connection {
        CONNECTIONS.with_label_values(&[kind]).inc();
        Connection(kind)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        CONNECTIONS.with_label_values(&[self.0]).dec();
    }
}
