//! A pageserver with nothing in memory, for a client in a process of its own.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context, Result};
use pg_types::{ForkNumber, RelTag};
use serde_json::{Value, json};

use crate::engine::{CpuTime, Engine, Memory};

#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    objects: PathBuf,
    /// File number of a relation in the `postgres` database.
    #[arg(long)]
    relation: u32,
}

/// Serves until its input ends. Says where, and how large the relation is, in a line of its own.
pub async fn run(arguments: Arguments) -> Result<Value> {
    let engine = Engine::open(&arguments.objects, Memory::default(), None).await?;
    let at = engine.timeline.last_record_lsn();
    let rel = RelTag {
        spc: pg_types::rel::DEFAULT_TABLESPACE,
        db: 5,
        rel: arguments.relation,
        fork: ForkNumber::Main,
    };
    let blocks = engine.timeline.reads().rel_size(rel, at).await?;
    engine.chill()?;
    let timeline = &engine.timeline;
    let place = json!({
        "address": engine.address,
        "tenant": timeline.tenant(),
        "timeline": timeline.id(),
        "lsn": at,
        "blocks": blocks.context("no such relation")?,
    });
    println!("{place}");
    std::io::stdout().flush()?;
    let before = CpuTime::now();
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    let spent = CpuTime::now().all - before.all;
    engine.close().await;
    Ok(json!({"cpu_seconds": spent}))
}
