//! One database that grows: its WAL comes piece by piece, so that what was taken in can be deleted, and after each
//! step its figures are taken.
//!
//! Lines on standard input: `take LSN` takes the WAL in up to there, until it is durable, and answers when it is;
//! `settle RELATION` ends a step: waits for the work that ingest left for later, reads pages of the relation, and
//! answers with the step's figures.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use pageserver::timeline::Timeline;
use pg_types::{ForkNumber, Lsn, RelTag};
use serde_json::{Value, json};
use wire::page::{Reply, Request};

use crate::client::BlockingClient;
use crate::common::server::FileWal;
use crate::engine::{Engine, Input, Memory};
use crate::ingest::{L0Watch, Reading, TIMEOUT, wait_until_quiet};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    input: Input,
    /// Pages read after each step.
    #[arg(long, default_value_t = 500)]
    pages: u32,
}

/// What the pieces of one step cost, each from when it came until it was durable.
struct Step {
    begun: Reading,
    seconds: f64,
    cpu_seconds: f64,
    /// Level-0 layers while WAL was taken in, at each change.
    l0: Vec<(Lsn, i64)>,
}

impl Step {
    fn begin(timeline: &Timeline) -> Step {
        Step {
            begun: Reading::take(timeline.last_record_lsn()),
            seconds: 0.0,
            cpu_seconds: 0.0,
            l0: Vec::new(),
        }
    }

    async fn take(&mut self, timeline: &Arc<Timeline>, wal: &FileWal, upto: Lsn) -> Result<()> {
        let watch = L0Watch::new(timeline.clone());
        let before = Reading::take(timeline.last_record_lsn());
        wal.limit.send_replace(upto);
        timeline.wait_lsn(upto, TIMEOUT).await?;
        timeline.checkpoint().await?;
        let after = Reading::take(upto);
        self.seconds += after.seconds_since(&before);
        self.cpu_seconds += after.cpu_since(&before);
        self.l0.extend(watch.changes());
        Ok(())
    }

    async fn figures(&mut self, timeline: &Arc<Timeline>) -> Result<Value> {
        let watch = L0Watch::new(timeline.clone());
        wait_until_quiet(timeline).await?;
        let quiet = Reading::take(timeline.last_record_lsn()).since(&self.begun);
        let status = timeline.status().await;
        Ok(json!({
            "wal_bytes": quiet["wal_bytes"],
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "l0_max": self.l0.iter().map(|(_, count)| *count).max().unwrap_or(0).max(watch.most()),
            "l0": self.l0.iter().map(|(lsn, count)| (lsn.0, *count)).collect::<Vec<_>>(),
            "until_quiet": quiet,
            "stored_bytes": status.layers.bytes,
            "data_bytes": status.current_logical_size,
        }))
    }
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let (engine, wal) = arguments.input.open(Memory::default()).await?;
    let timeline = engine.timeline.clone();
    let (lines, mut more) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let all = std::io::stdin().lock().lines();
        all.map_while(Result::ok)
            .all(|line| lines.send(line).is_ok())
    });
    let mut step = Step::begin(&timeline);
    let mut steps = 0;
    while let Some(line) = more.recv().await {
        let answer = match line.split_once(' ') {
            Some(("take", upto)) => {
                step.take(&timeline, &wal, upto.parse()?).await?;
                json!({})
            }
            Some(("settle", relation)) => {
                let mut figures = step.figures(&timeline).await?;
                figures["getpage_us"] =
                    getpage(&engine, relation.parse()?, arguments.pages, steps).await?;
                steps += 1;
                step = Step::begin(&timeline);
                figures
            }
            _ => bail!("{line}: say `take LSN` or `settle RELATION`"),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    engine.close().await;
    Ok(json!({"steps": steps}))
}

/// Pages spread evenly over the relation, one a request. `warm`: its neighbours have just been read, so that the
/// blocks it is made from are in memory, and it is made for the first time. `hot`: the same page once more.
async fn getpage(engine: &Engine, relation: u32, pages: u32, step: u32) -> Result<Value> {
    let timeline = &engine.timeline;
    let at = timeline.last_record_lsn();
    let rel = RelTag {
        spc: pg_types::rel::DEFAULT_TABLESPACE,
        db: 5,
        rel: relation,
        fork: ForkNumber::Main,
    };
    let blocks = (timeline.reads().rel_size(rel, at).await?).context("no such relation")?;
    let mut client = BlockingClient::connect(engine)?;
    let (mut warm, mut hot) = (Vec::new(), Vec::new());
    let stride = (blocks / pages).max(8);
    // Not the pages that an earlier step read: those are kept.
    let mut block = 1 + step % (stride / 4) * 4;
    while block + 1 < blocks {
        one(&mut client, rel, block - 1, at)?;
        one(&mut client, rel, block + 1, at)?;
        warm.push(one(&mut client, rel, block, at)?);
        hot.push(one(&mut client, rel, block, at)?);
        block += stride;
    }
    Ok(json!({"warm": warm, "hot": hot}))
}

/// Microseconds.
fn one(client: &mut BlockingClient, rel: RelTag, block: u32, at: Lsn) -> Result<f64> {
    let started = Instant::now();
    let blocks = vec![block];
    match client.ask(at, Request::Pages { rel, blocks })? {
        Reply::Pages { .. } => Ok(started.elapsed().as_secs_f64() * 1e6),
        other => bail!("block {block} of {rel}: {other:?}"),
    }
}
