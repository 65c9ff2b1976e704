//! Reads while WAL comes in: what they cost and what is written meanwhile, under one policy of image generation.
//!
//! `settle` makes the state that every arm starts from: the load is taken in, each of its pages has an image.
//! `mixed` takes in the rest in steps (`accesses`), each begun with the reads of a simulated compute. Before it reads,
//! it waits until the images that are due are made, so that what a read replays does not depend on the machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pageserver::config::{ImageMode, TenantConfigPatch};
use pageserver::timeline::Timeline;
use pg_types::{Lsn, RelTag};
use serde_json::{Value, json};
use wire::page::{Reply, Request};

use crate::accesses::{Shape, schedule};
use crate::client::BlockingClient;
use crate::engine::{Engine, Input, Memory, move_background};
use crate::ingest::{Reading, wait_until_quiet};

const TIMEOUT: Duration = Duration::from_secs(600);
/// As a scan by a compute arrives: the kernel's read-ahead is 128 KiB.
const SCAN_PAGES: u32 = 16;
/// Layers are as much smaller than a server's as the workload is.
const LAYER_BYTES: u64 = 4 << 20;
const COMPACT_AT: u32 = 4;
/// A small part of the data, as in a server that has more than one tenant.
const PAGE_CACHE_BYTES: usize = 8 << 20;

#[derive(clap::Args)]
pub struct SettleArguments {
    #[command(flatten)]
    input: Input,
    #[arg(long)]
    upto: Lsn,
}

pub async fn settle(arguments: SettleArguments) -> Result<Value> {
    let (engine, wal) = arguments.input.open(Memory::default()).await?;
    configure(&engine, fixed(1024)).await?;
    wal.limit.send_replace(arguments.upto);
    engine.timeline.wait_lsn(arguments.upto, TIMEOUT).await?;
    // What the load leaves to be compacted is not the arms' to pay for.
    let patch = TenantConfigPatch {
        compaction_threshold: Some(2),
        ..fixed(1)
    };
    configure(&engine, patch).await?;
    wait_until_quiet(&engine.timeline).await?;
    engine.close().await;
    Ok(json!({}))
}

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    #[arg(long)]
    from: Lsn,
    #[arg(long)]
    upto: Lsn,
    /// Deltas that make an image; without it the adaptive mode.
    #[arg(long)]
    threshold: Option<u32>,
    /// Processors for flushes, compactions and images, where all else is kept on another, so that reads do not wait for
    /// the time slices of those.
    #[arg(long)]
    background: Vec<usize>,
    #[command(flatten)]
    shape: Shape,
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let steps = schedule(
        &arguments.shape,
        &arguments.input.wal,
        arguments.from,
        arguments.upto,
    )?;
    let memory = Memory {
        page_cache_bytes: PAGE_CACHE_BYTES,
        ..Memory::default()
    };
    let (engine, wal) = arguments.input.open(memory).await?;
    let policy = match arguments.threshold {
        Some(threshold) => fixed(threshold),
        None => TenantConfigPatch {
            image_mode: Some(ImageMode::Adaptive),
            ..TenantConfigPatch::default()
        },
    };
    configure(&engine, policy).await?;
    let timeline = engine.timeline.clone();
    wal.limit.send_replace(arguments.from);
    timeline.wait_lsn(arguments.from, TIMEOUT).await?;
    let mut reads = Reads::new(BlockingClient::connect(&engine)?);
    let begun = Reading::take(arguments.from);
    for step in steps {
        images_made(&timeline).await?;
        if !arguments.background.is_empty() {
            move_background(&arguments.background)?;
        }
        for (rel, block) in step.misses {
            reads.read(&timeline, rel, block, 1).await?;
        }
        if let Some(table) = step.scan {
            let blocks = reads.size(&timeline, table).await?;
            for first in (0..blocks).step_by(SCAN_PAGES as usize) {
                reads.read(&timeline, table, first, SCAN_PAGES).await?;
            }
        }
        wal.limit.send_replace(step.upto);
        timeline.wait_lsn(step.upto, TIMEOUT).await?;
    }
    wait_until_quiet(&timeline).await?;
    let cost = Reading::take(timeline.last_record_lsn()).since(&begun);
    let chains = serde_json::to_value(timeline.chains())?;
    engine.close().await;
    // As the adaptive mode counts, in replayed deltas.
    let model = json!({"request": layers::REQUEST_COST, "page": layers::PAGE_COST});
    Ok(json!({
        "us": reads.us, "pages": reads.pages, "replayed": reads.replayed, "cost": cost, "chains": chains,
        "model": model,
    }))
}

fn fixed(threshold: u32) -> TenantConfigPatch {
    TenantConfigPatch {
        image_threshold: Some(threshold),
        image_threshold_pushdown: Some(threshold),
        ..TenantConfigPatch::default()
    }
}

async fn configure(engine: &Engine, policy: TenantConfigPatch) -> Result<()> {
    let tenant = engine.manager.tenant(engine.timeline.tenant)?;
    let patch = TenantConfigPatch {
        checkpoint_distance_bytes: Some(LAYER_BYTES),
        compaction_threshold: policy.compaction_threshold.or(Some(COMPACT_AT)),
        compaction_target_bytes: Some(LAYER_BYTES),
        ..policy
    };
    engine.manager.configure(&tenant, &patch).await?;
    Ok(())
}

async fn images_made(timeline: &Arc<Timeline>) -> Result<()> {
    let started = Instant::now();
    while timeline.chains().pending_images > 0 {
        if started.elapsed() > TIMEOUT {
            bail!("images that are due are not made");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// One request at a time, over loopback.
struct Reads {
    client: BlockingClient,
    us: Vec<f64>,
    pages: Vec<usize>,
    /// Deltas applied for each request.
    replayed: Vec<u32>,
}

impl Reads {
    fn new(client: BlockingClient) -> Reads {
        Reads {
            client,
            us: Vec::new(),
            pages: Vec::new(),
            replayed: Vec::new(),
        }
    }

    async fn size(&self, timeline: &Arc<Timeline>, rel: RelTag) -> Result<u32> {
        let at = timeline.last_record_lsn();
        Ok(timeline.rel_size(rel, at).await?.unwrap_or(0))
    }

    /// Reads so many pages, those of them that exist.
    async fn read(
        &mut self,
        timeline: &Arc<Timeline>,
        rel: RelTag,
        first: u32,
        pages: u32,
    ) -> Result<()> {
        let end = self.size(timeline, rel).await?.min(first + pages);
        let blocks: Vec<u32> = (first..end).collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let since = timeline.last_record_lsn();
        let started = Instant::now();
        let reply = self.client.ask(since, Request::Pages { rel, blocks });
        let elapsed = started.elapsed();
        let Reply::Pages { pages, .. } = reply.with_context(|| format!("read {rel} {first}"))?
        else {
            bail!("{rel} {first}: the reply to something else");
        };
        self.us.push((elapsed.as_secs_f64() * 1e7).round() / 10.0);
        self.pages.push(pages.len());
        self.replayed
            .push(pages.iter().map(|page| page.chain_length).sum());
        Ok(())
    }
}
