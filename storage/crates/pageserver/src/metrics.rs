//! Prometheus metrics of the pageserver, one set of series per timeline, in the default registry.

mod image_reason;

use std::sync::LazyLock;
use std::time::Duration;

use pg_types::{Lsn, TenantId, TimelineId};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    core::Collector,
};

pub use self::image_reason::ImageReason;

/// Chain lengths are counted in these bars; `/chains` reports the same ones.
pub const CHAIN_BARS: [u32; 14] = [0, 1, 2, 4, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024];
const REQUEST_SECONDS: [f64; 14] = [
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0,
];
const WORK_SECONDS: [f64; 8] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0, 60.0];
const TIMELINE: [&str; 2] = ["tenant_id", "timeline_id"];

struct Families {
    requests: HistogramVec,
    request_errors: IntCounterVec,
    chain_length: HistogramVec,
    images: IntCounterVec,
    image_bytes: IntCounterVec,
    images_pending: IntGaugeVec,
    image_lag: IntGaugeVec,
    wal_bytes: IntCounterVec,
    wal_records: IntCounterVec,
    lsn: IntGaugeVec,
    stopped: IntGaugeVec,
    memory_bytes: IntGaugeVec,
    uploading_bytes: IntGaugeVec,
    layers: IntGaugeVec,
    layer_bytes: IntGaugeVec,
    flush: HistogramVec,
    flushed_bytes: IntCounterVec,
    compaction: HistogramVec,
    compacted_bytes: IntCounterVec,
    entries_dropped: IntCounterVec,
    l0_layers: IntGaugeVec,
    braked: IntCounterVec,
    history: IntGaugeVec,
    uploads_failing: IntGaugeVec,
}

fn register<C: Collector + Clone + 'static>(collector: prometheus::Result<C>) -> C {
    // Names and labels are constants, so that a failure can only be a programming error.
    let collector = collector.expect("metric definition");
    prometheus::register(Box::new(collector.clone())).expect("metric registered once");
    collector
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(IntCounterVec::new(
        Opts::new(name, help),
        &[&TIMELINE, labels].concat(),
    ))
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    register(IntGaugeVec::new(
        Opts::new(name, help),
        &[&TIMELINE, labels].concat(),
    ))
}

fn histograms(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    register(HistogramVec::new(options, &[&TIMELINE, labels].concat()))
}

static FAMILIES: LazyLock<Families> = LazyLock::new(|| Families {
    requests: histograms(
        "weir_pageserver_request_seconds",
        "Time from a page service request to its reply, waiting for the LSN included",
        &["request"],
        &REQUEST_SECONDS,
    ),
    request_errors: counters(
        "weir_pageserver_request_errors_total",
        "Page service requests answered with an error",
        &["request"],
    ),
    chain_length: histograms(
        "weir_pageserver_read_chain_length",
        "Deltas applied to make a page that was read",
        &[],
        &CHAIN_BARS.map(f64::from),
    ),
    images: counters(
        "weir_pageserver_images_made_total",
        "Page images made by the storage",
        &["reason"],
    ),
    image_bytes: counters(
        "weir_pageserver_image_bytes_total",
        "Bytes of page images made by the storage",
        &["reason"],
    ),
    images_pending: gauges(
        "weir_pageserver_images_pending",
        "Pages over the threshold that wait for their image",
        &[],
    ),
    image_lag: gauges(
        "weir_pageserver_image_lag_bytes",
        "WAL bytes ingested since the page that waits longest for its image went over the threshold",
        &[],
    ),
    wal_bytes: counters(
        "weir_pageserver_wal_ingested_bytes_total",
        "WAL bytes ingested",
        &[],
    ),
    wal_records: counters(
        "weir_pageserver_wal_ingested_records_total",
        "WAL records ingested",
        &[],
    ),
    lsn: gauges(
        "weir_pageserver_lsn_bytes",
        "WAL positions of the timeline, as byte offsets",
        &["position"],
    ),
    stopped: gauges(
        "weir_pageserver_timeline_stopped",
        "1 when the timeline met a record it cannot redo",
        &[],
    ),
    memory_bytes: gauges(
        "weir_pageserver_memory_layer_bytes",
        "Bytes in layers not yet written",
        &[],
    ),
    uploading_bytes: gauges(
        "weir_pageserver_uploading_layer_bytes",
        "Bytes in layers written and not yet in the object store",
        &[],
    ),
    layers: gauges(
        "weir_pageserver_layers",
        "Layers the index names",
        &["kind"],
    ),
    layer_bytes: gauges(
        "weir_pageserver_layer_bytes",
        "Bytes of the layers the index names",
        &["kind"],
    ),
    flush: histograms(
        "weir_pageserver_flush_seconds",
        "Time to write, upload and index one memory layer",
        &[],
        &WORK_SECONDS,
    ),
    flushed_bytes: counters(
        "weir_pageserver_flushed_bytes_total",
        "Bytes of layers written from memory",
        &[],
    ),
    compaction: histograms(
        "weir_pageserver_compaction_seconds",
        "Time of one compaction",
        &["level"],
        &WORK_SECONDS,
    ),
    compacted_bytes: counters(
        "weir_pageserver_compaction_bytes_total",
        "Bytes of layers read and written by compactions, by the level written",
        &["level", "direction"],
    ),
    entries_dropped: counters(
        "weir_pageserver_entries_dropped_total",
        "Tombstones and truncations of relations that compaction dropped because they hide nothing any more",
        &["entry"],
    ),
    l0_layers: gauges(
        "weir_pageserver_l0_layers",
        "Layers flushed from memory and not yet compacted",
        &[],
    ),
    braked: counters(
        "weir_pageserver_ingest_braked_milliseconds_total",
        "Time that ingest was slowed or held because compaction was behind",
        &[],
    ),
    history: gauges(
        "weir_pageserver_history_bytes",
        "WAL between the oldest LSN that can be read and the newest",
        &[],
    ),
    uploads_failing: gauges(
        "weir_pageserver_uploads_failing_seconds",
        "For how long the object store has taken nothing of the timeline",
        &[],
    ),
});

/// The series of one timeline. Dropping it removes them.
pub struct TimelineMetrics {
    tenant: String,
    timeline: String,
    /// `weir_pageserver_read_chain_length`: deltas applied for each page read; 0 for a page that was kept as made.
    pub chain_length: Histogram,
    /// `weir_pageserver_images_pending`: pages whose chain has reached the threshold.
    pub images_pending: IntGauge,
    /// `weir_pageserver_image_lag_bytes`: WAL ingested since a page became due that has no image yet; 0 when none is
    /// due.
    pub image_lag: IntGauge,
    /// `weir_pageserver_wal_ingested_bytes_total`: bytes of WAL received to be ingested.
    pub wal_bytes: IntCounter,
    /// `weir_pageserver_wal_ingested_records_total`: records whose changes became readable.
    pub wal_records: IntCounter,
    /// `weir_pageserver_timeline_stopped`: 1 while ingest has stopped, else 0.
    pub stopped: IntGauge,
    /// `weir_pageserver_memory_layer_bytes`: bytes of the open layer and the frozen ones.
    pub memory_bytes: IntGauge,
    /// `weir_pageserver_uploading_layer_bytes`: bytes of written layers that the object store lacks.
    pub uploading_bytes: IntGauge,
    /// `weir_pageserver_flush_seconds`: from the begin of writing a memory layer until the index names it.
    pub flush_seconds: Histogram,
    /// `weir_pageserver_flushed_bytes_total`: bytes of the layer files made from memory layers.
    pub flushed_bytes: IntCounter,
    /// `weir_pageserver_l0_layers`: delta layers of level 0.
    pub l0_layers: IntGauge,
    /// `weir_pageserver_ingest_braked_milliseconds_total`: time that ingest was slowed for compaction.
    pub braked_ms: IntCounter,
    pub(crate) uploads_failing: IntGauge,
    history: IntGauge,
    last_record_lsn: IntGauge,
    disk_consistent_lsn: IntGauge,
    remote_consistent_lsn: IntGauge,
}

impl TimelineMetrics {
    /// The series of a timeline in the default registry, added there if they are not in it. Dropping the value
    /// removes the series, also from under another value for the same timeline.
    pub fn new(tenant: TenantId, timeline: TimelineId) -> TimelineMetrics {
        let (tenant, timeline) = (tenant.to_string(), timeline.to_string());
        let families = &*FAMILIES;
        let labels = [tenant.as_str(), timeline.as_str()];
        let position = |name| {
            families
                .lsn
                .with_label_values(&[labels[0], labels[1], name])
        };
        TimelineMetrics {
            chain_length: families.chain_length.with_label_values(&labels),
            images_pending: families.images_pending.with_label_values(&labels),
            image_lag: families.image_lag.with_label_values(&labels),
            wal_bytes: families.wal_bytes.with_label_values(&labels),
            wal_records: families.wal_records.with_label_values(&labels),
            stopped: families.stopped.with_label_values(&labels),
            memory_bytes: families.memory_bytes.with_label_values(&labels),
            uploading_bytes: families.uploading_bytes.with_label_values(&labels),
            flush_seconds: families.flush.with_label_values(&labels),
            flushed_bytes: families.flushed_bytes.with_label_values(&labels),
            l0_layers: families.l0_layers.with_label_values(&labels),
            braked_ms: families.braked.with_label_values(&labels),
            history: families.history.with_label_values(&labels),
            uploads_failing: families.uploads_failing.with_label_values(&labels),
            last_record_lsn: position("last_record"),
            disk_consistent_lsn: position("disk_consistent"),
            remote_consistent_lsn: position("remote_consistent"),
            tenant,
            timeline,
        }
    }

    /// One answer of the page service; `request` is one of [`REQUESTS`], `ok` false for an error.
    pub fn observe_request(&self, request: &str, ok: bool, elapsed: Duration) {
        let labels = [self.tenant.as_str(), self.timeline.as_str(), request];
        FAMILIES
            .requests
            .with_label_values(&labels)
            .observe(elapsed.as_secs_f64());
        if !ok {
            FAMILIES.request_errors.with_label_values(&labels).inc();
        }
    }

    /// One page image that storage has made, of so many bytes.
    pub fn observe_image(&self, reason: ImageReason, bytes: usize) {
        let labels = [self.tenant.as_str(), self.timeline.as_str(), reason.label()];
        FAMILIES.images.with_label_values(&labels).inc();
        FAMILIES
            .image_bytes
            .with_label_values(&labels)
            .inc_by(bytes as u64);
    }

    /// One compaction that wrote layers of `level`, reading and writing so many bytes.
    pub fn observe_compaction(&self, level: u8, seconds: f64, read: u64, written: u64) {
        let level = level.to_string();
        let labels = [self.tenant.as_str(), self.timeline.as_str(), &level];
        FAMILIES
            .compaction
            .with_label_values(&labels)
            .observe(seconds);
        for (direction, bytes) in [("read", read), ("written", written)] {
            let labels = [labels[0], labels[1], labels[2], direction];
            FAMILIES
                .compacted_bytes
                .with_label_values(&labels)
                .inc_by(bytes);
        }
    }

    /// So many entries that hide nothing were dropped; `entry` is one of [`ENTRIES`].
    pub fn observe_dropped(&self, entry: &str, count: usize) {
        let labels = [self.tenant.as_str(), self.timeline.as_str(), entry];
        let dropped = FAMILIES.entries_dropped.with_label_values(&labels);
        dropped.inc_by(count as u64);
    }

    /// From where to where the timeline can be read.
    pub fn set_horizon(&self, last: Lsn, oldest: Lsn) {
        self.history.set(gauge(last.0.saturating_sub(oldest.0)));
    }

    /// Position `last_record`: up to where WAL is ingested.
    pub fn set_last_record_lsn(&self, lsn: Lsn) {
        self.last_record_lsn.set(gauge(lsn.0));
    }

    /// Positions `disk_consistent` and `remote_consistent`: up to where layer files have everything.
    pub fn set_consistent_lsns(&self, disk: Lsn, remote: Lsn) {
        self.disk_consistent_lsn.set(gauge(disk.0));
        self.remote_consistent_lsn.set(gauge(remote.0));
    }

    /// The layers that the layer map has now; `kind` is `delta` or `image`.
    pub fn set_layers(&self, kind: &str, count: usize, bytes: u64) {
        let labels = [self.tenant.as_str(), self.timeline.as_str(), kind];
        FAMILIES
            .layers
            .with_label_values(&labels)
            .set(gauge(count as u64));
        FAMILIES
            .layer_bytes
            .with_label_values(&labels)
            .set(gauge(bytes));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Drop for TimelineMetrics {
    /// A deleted timeline must not be reported for ever. Removing what was never used is no error worth
    /// reporting.
    fn drop(&mut self) {
        let families = &*FAMILIES;
        let labels = [self.tenant.as_str(), self.timeline.as_str()];
        for histogram in [&families.chain_length, &families.flush] {
            let _ = histogram.remove_label_values(&labels);
        }
        for counter in [
            &families.wal_bytes,
            &families.wal_records,
            &families.braked,
            &families.flushed_bytes,
        ] {
            let _ = counter.remove_label_values(&labels);
        }
        for gauge in [
            &families.images_pending,
            &families.image_lag,
            &families.stopped,
            &families.memory_bytes,
            &families.uploading_bytes,
            &families.l0_layers,
            &families.history,
            &families.uploads_failing,
        ] {
            let _ = gauge.remove_label_values(&labels);
        }
        let with = |label| [labels[0], labels[1], label];
        for level in ["1", "2"] {
            let _ = families.compaction.remove_label_values(&with(level));
            for direction in ["read", "written"] {
                let labels = [labels[0], labels[1], level, direction];
                let _ = families.compacted_bytes.remove_label_values(&labels);
            }
        }
        for reason in ImageReason::ALL {
            let _ = families.images.remove_label_values(&with(reason.label()));
            let _ = families
                .image_bytes
                .remove_label_values(&with(reason.label()));
        }
        for entry in ENTRIES {
            let _ = families.entries_dropped.remove_label_values(&with(entry));
        }
        for kind in ["delta", "image"] {
            let _ = families.layers.remove_label_values(&with(kind));
            let _ = families.layer_bytes.remove_label_values(&with(kind));
        }
        for position in ["last_record", "disk_consistent", "remote_consistent"] {
            let _ = families.lsn.remove_label_values(&with(position));
        }
        for request in REQUESTS {
            let _ = families.requests.remove_label_values(&with(request));
            let _ = families.request_errors.remove_label_values(&with(request));
        }
    }
}

/// What compaction drops once it hides nothing: the end of a relation's size or of other metadata, and a relation's
/// truncations.
pub const ENTRIES: [&str; 2] = ["tombstone", "floor"];

/// Names of the page service's requests in metrics.
pub const REQUESTS: [&str; 6] = [
    "pages",
    "slru_page",
    "rel_size",
    "list_rels",
    "list_databases",
    "list_slru_segments",
];
