//! Ingest, end to end: from the bytes a safekeeper would send to durable level-0 layers.
//!
//! The WAL comes in pieces from files that lie in the kernel's cache. Each stretch of it is told to be committed at
//! once, so that nothing but the pageserver sets the pace; it ends when the index in the object store reaches its
//! last record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use pageserver::config::TenantConfigPatch;
use pageserver::timeline::Timeline;
use parking_lot::Mutex;
use pg_types::Lsn;
use serde_json::{Value, json};

use crate::engine::{CpuTime, Input, Memory, metric};
use crate::steady::warm_layers;

pub const TIMEOUT: Duration = Duration::from_secs(3600);
const SAMPLE: Duration = Duration::from_millis(10);

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Ends of the stretches, each a record boundary, in order.
    #[arg(long, required = true, num_args = 1..)]
    upto: Vec<Lsn>,
    #[arg(long)]
    image_threshold: Option<u32>,
    #[arg(long)]
    image_threshold_pushdown: Option<u32>,
    /// Level-0 layers that start a compaction; a number that is never reached leaves compaction out.
    #[arg(long)]
    compaction_threshold: Option<u32>,
    /// MiB of versions in memory that are flushed: with fewer, a short stretch has as many layers as a long one.
    #[arg(long)]
    checkpoint_distance_mib: Option<u64>,
    /// MiB of layers in memory that are filled and dropped before each stretch: a pageserver that runs has their
    /// memory at hand.
    #[arg(long, default_value_t = 0)]
    warm_mib: u64,
}

/// Counters as of one moment.
pub struct Reading {
    at: Instant,
    cpu: CpuTime,
    lsn: Lsn,
    flushed: f64,
    compacted: f64,
    images: f64,
    braked_ms: f64,
}

impl Reading {
    pub fn take(lsn: Lsn) -> Reading {
        Reading {
            at: Instant::now(),
            cpu: CpuTime::now(),
            lsn,
            flushed: metric("weir_pageserver_flushed_bytes_total", None),
            compacted: metric(
                "weir_pageserver_compaction_bytes_total",
                Some(("direction", "written")),
            ),
            images: metric("weir_pageserver_image_bytes_total", None),
            braked_ms: metric("weir_pageserver_ingest_braked_milliseconds_total", None),
        }
    }

    pub fn seconds_since(&self, before: &Reading) -> f64 {
        (self.at - before.at).as_secs_f64()
    }

    pub fn cpu_since(&self, before: &Reading) -> f64 {
        self.cpu.all - before.cpu.all
    }

    pub fn since(&self, before: &Reading) -> Value {
        let wal_bytes = self.lsn.0 - before.lsn.0;
        json!({
            "wal_bytes": wal_bytes,
            "seconds": self.seconds_since(before),
            "cpu_seconds": self.cpu_since(before),
            "kernel_seconds": self.cpu.kernel - before.cpu.kernel,
            "flushed_bytes": self.flushed - before.flushed,
            "compacted_bytes": self.compacted - before.compacted,
            "image_bytes": self.images - before.images,
            "braked_ms": self.braked_ms - before.braked_ms,
        })
    }
}

/// How many level-0 layers there are, seen again and again until it is dropped.
pub struct L0Watch {
    seen: Arc<Mutex<Vec<(Lsn, i64)>>>,
    over: Arc<AtomicBool>,
}

impl L0Watch {
    pub fn new(timeline: Arc<Timeline>) -> L0Watch {
        let (seen, over) = (Arc::<Mutex<Vec<_>>>::default(), Arc::default());
        let watch = L0Watch { seen, over };
        let (seen, ended) = (watch.seen.clone(), watch.over.clone());
        tokio::spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                note(
                    &mut seen.lock(),
                    timeline.last_record_lsn(),
                    timeline.metrics().l0_layers.get(),
                );
                tokio::time::sleep(SAMPLE).await;
            }
        });
        watch
    }

    pub fn most(&self) -> i64 {
        let counts = self.seen.lock();
        counts.iter().map(|(_, count)| *count).max().unwrap_or(0)
    }

    /// Each change: how far ingest was, and how many there were from then on.
    pub fn changes(&self) -> Vec<(Lsn, i64)> {
        self.seen.lock().clone()
    }
}

/// Keeps a count that is another than the last.
fn note(seen: &mut Vec<(Lsn, i64)>, at: Lsn, count: i64) {
    if seen.last().is_none_or(|(_, last)| *last != count) {
        seen.push((at, count));
    }
}

impl Drop for L0Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let (engine, wal) = arguments.input.open(Memory::default()).await?;
    let timeline = engine.timeline.clone();
    let tenant = engine.manager.tenant(timeline.tenant())?;
    let patch = TenantConfigPatch {
        image_threshold: arguments.image_threshold,
        image_threshold_pushdown: arguments.image_threshold_pushdown,
        compaction_threshold: arguments.compaction_threshold,
        checkpoint_distance_bytes: arguments.checkpoint_distance_mib.map(|mib| mib << 20),
        ..TenantConfigPatch::default()
    };
    engine.manager.configure(&tenant, &patch).await?;
    let mut stretches = Vec::new();
    for upto in arguments.upto {
        warm_layers(arguments.warm_mib)?;
        let watch = L0Watch::new(timeline.clone());
        let before = Reading::take(timeline.last_record_lsn());
        wal.limit.send_replace(upto);
        timeline.wait_lsn(upto, TIMEOUT).await?;
        timeline.checkpoint().await?;
        let durable = Reading::take(timeline.last_record_lsn());
        let mut stretch = durable.since(&before);
        wait_until_quiet(&timeline).await?;
        let quiet = Reading::take(timeline.last_record_lsn());
        stretch["until_quiet"] = quiet.since(&before);
        stretch["l0_max"] = json!(watch.most());
        let status = timeline.status().await;
        stretch["stored_bytes"] = json!(status.layers.bytes);
        stretch["data_bytes"] = json!(status.current_logical_size);
        stretches.push(stretch);
    }
    let chains = serde_json::to_value(timeline.chains())?;
    engine.close().await;
    Ok(json!({"stretches": stretches, "chains": chains}))
}

/// Until images are made and level 0 is compacted as far as it will be.
pub async fn wait_until_quiet(timeline: &Arc<Timeline>) -> Result<()> {
    let mut same = 0;
    let mut last = None;
    while same < 50 {
        let now = (
            timeline.chains().pending_images,
            metric("weir_pageserver_compaction_bytes_total", None) as u64,
            metric("weir_pageserver_image_bytes_total", None) as u64,
        );
        same = if last == Some(now) && now.0 == 0 {
            same + 1
        } else {
            0
        };
        last = Some(now);
        tokio::time::sleep(SAMPLE * 2).await;
    }
    // Images made meanwhile are in memory.
    timeline.checkpoint().await?;
    Ok(())
}
