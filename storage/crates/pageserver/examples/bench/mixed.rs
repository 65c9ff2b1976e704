//! Reads while WAL comes in: what they cost and what is written meanwhile, under several policies of image
//! generation.
//!
//! `settle` makes the state that every arm starts from: the load is taken in, each of its pages has an image. `mixed`
//! has a pageserver for each arm, all in this process, and each takes in the rest in steps (`accesses`), begun with
//! the reads of a simulated compute: those of one arm after those of another, in another order at each step, so that
//! a machine, or a process, that is faster at one time than at another is so for all of them. Before it reads, it
//! waits until the images that are due are made, so that what a read replays does not depend on the machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pageserver::config::{ImageMode, TenantConfigPatch};
use pageserver::timeline::Timeline;
use pg_types::{Lsn, RelTag};
use serde_json::{Value, json};
use wire::page::{Reply, Request};

use crate::accesses::{Shape, Step, schedule};
use crate::client::BlockingClient;
use crate::common::server::FileWal;
use crate::engine::{Engine, Input, Memory, move_background};
use crate::ingest::wait_until_quiet;

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

pub async fn wait_until_settled(arguments: SettleArguments) -> Result<Value> {
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

/// One pageserver: `NAME=OBJECTS`, or `NAME=OBJECTS,THRESHOLD`.
#[derive(Clone, Debug)]
struct Arm {
    name: String,
    objects: PathBuf,
    /// Deltas that make an image; without it the adaptive mode.
    threshold: Option<u32>,
}

impl std::str::FromStr for Arm {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Arm> {
        let (name, rest) = text.split_once('=').context("NAME=OBJECTS[,THRESHOLD]")?;
        let (objects, threshold) = match rest.split_once(',') {
            Some((objects, threshold)) => (objects, Some(threshold.parse()?)),
            None => (rest, None),
        };
        Ok(Arm {
            name: name.to_owned(),
            objects: objects.into(),
            threshold,
        })
    }
}

#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long = "arm", required = true)]
    arms: Vec<Arm>,
    /// The directory of the WAL's segments.
    #[arg(long)]
    wal: PathBuf,
    #[arg(long)]
    from: Lsn,
    #[arg(long)]
    upto: Lsn,
    /// Processors for flushes, compactions and images, where all else is kept on another, so that reads do not wait
    /// for the time slices of those.
    #[arg(long)]
    background: Vec<usize>,
    /// Which arm reads first at the first step.
    #[arg(long, default_value_t = 0)]
    first: usize,
    #[command(flatten)]
    shape: Shape,
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let (from, upto) = (arguments.from, arguments.upto);
    let steps = schedule(&arguments.shape, &arguments.wal, from, upto)?;
    let mut servers = Vec::new();
    for arm in arguments.arms {
        servers.push(Server::start(arm, &arguments.wal, from).await?);
    }
    for (number, step) in steps.iter().enumerate() {
        for server in &servers {
            images_made(server.timeline()).await?;
        }
        if !arguments.background.is_empty() {
            move_background(&arguments.background)?;
        }
        for turn in 0..servers.len() {
            let at = (arguments.first + number + turn) % servers.len();
            servers[at].read(step).await?;
        }
        take_in(&servers, step.upto).await?;
    }
    let mut found = json!({});
    for server in servers {
        wait_until_quiet(server.timeline()).await?;
        let Server { arm, engine, .. } = server;
        let written = engine.timeline.uploaded_bytes() - server.written_before;
        let chains = serde_json::to_value(engine.timeline.chains())?;
        engine.close().await;
        let Reads {
            us,
            pages,
            replayed,
            ..
        } = server.reads;
        found[arm.name] = json!({
            "us": us, "pages": pages, "replayed": replayed, "written_bytes": written, "chains": chains,
        });
    }
    // As the adaptive mode counts, in replayed deltas.
    let model = json!({"request": layers::REQUEST_COST, "page": layers::PAGE_COST});
    Ok(json!({"arms": found, "model": model}))
}

/// All of them take the WAL in at the same time.
async fn take_in(servers: &[Server], upto: Lsn) -> Result<()> {
    for server in servers {
        server.wal.limit.send_replace(upto);
    }
    for server in servers {
        server.timeline().wait_lsn(upto, TIMEOUT).await?;
    }
    Ok(())
}

struct Server {
    arm: Arm,
    engine: Engine,
    wal: FileWal,
    reads: Reads,
    /// Bytes of layers, before anything that counts.
    written_before: u64,
}

impl Server {
    async fn start(arm: Arm, wal: &Path, from: Lsn) -> Result<Server> {
        let memory = Memory {
            page_cache_bytes: PAGE_CACHE_BYTES,
            ..Memory::default()
        };
        let wal = FileWal::new(wal);
        let engine = Engine::open(&arm.objects, memory, Some(&wal)).await?;
        let policy = match arm.threshold {
            Some(threshold) => fixed(threshold),
            None => TenantConfigPatch {
                image_mode: Some(ImageMode::Adaptive),
                ..TenantConfigPatch::default()
            },
        };
        configure(&engine, policy).await?;
        wal.limit.send_replace(from);
        engine.timeline.wait_lsn(from, TIMEOUT).await?;
        Ok(Server {
            reads: Reads::new(BlockingClient::connect(&engine)?),
            written_before: engine.timeline.uploaded_bytes(),
            arm,
            engine,
            wal,
        })
    }

    fn timeline(&self) -> &Arc<Timeline> {
        &self.engine.timeline
    }

    /// What the step's compute reads.
    async fn read(&mut self, step: &Step) -> Result<()> {
        let (reads, timeline) = (&mut self.reads, &self.engine.timeline);
        for (rel, block) in &step.misses {
            reads.read(timeline, *rel, *block, 1).await?;
        }
        if let Some(table) = step.scan {
            let blocks = reads.size(timeline, table).await?;
            for first in (0..blocks).step_by(SCAN_PAGES as usize) {
                reads.read(timeline, table, first, SCAN_PAGES).await?;
            }
        }
        Ok(())
    }
}

fn fixed(threshold: u32) -> TenantConfigPatch {
    TenantConfigPatch {
        image_threshold: Some(threshold),
        image_threshold_pushdown: Some(threshold),
        ..TenantConfigPatch::default()
    }
}

async fn configure(engine: &Engine, policy: TenantConfigPatch) -> Result<()> {
    let tenant = engine.manager.tenant(engine.timeline.tenant())?;
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
        Ok(timeline.reads().rel_size(rel, at).await?.unwrap_or(0))
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
