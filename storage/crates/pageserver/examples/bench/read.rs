//! What a read costs, over loopback, one page a request and one request at a time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pg_types::{ForkNumber, Lsn, RelTag, SlruKind};
use serde_json::{Value, json};
use wire::page::{Reply, Request};

use crate::client::BlockingClient;
use crate::engine::{Engine, Memory};
use crate::ingest::wait_until_quiet;
use crate::touched;

/// A class of few pages is read so many times as often at most.
const MORE_ROUNDS: usize = 10;

/// One pageserver: `NAME=OBJECTS,PG_WAL,END`.
#[derive(Clone, Debug)]
struct Arm {
    name: String,
    objects: PathBuf,
    wal: PathBuf,
    end: Lsn,
}

impl std::str::FromStr for Arm {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Arm> {
        let (name, rest) = text.split_once('=').context("NAME=OBJECTS,PG_WAL,END")?;
        let parts: Vec<&str> = rest.split(',').collect();
        let [objects, wal, end] = parts[..] else {
            bail!("{text}: give NAME=OBJECTS,PG_WAL,END")
        };
        Ok(Arm {
            name: name.to_owned(),
            objects: objects.into(),
            wal: wal.into(),
            end: end.parse()?,
        })
    }
}

#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long = "arm", required = true)]
    arms: Vec<Arm>,
    /// Where the WAL that matters begins: pages it changes are read.
    #[arg(long)]
    from: Lsn,
    /// Classes of relations by file number, such as `16384=heap`.
    #[arg(long = "class", value_parser = class)]
    classes: Vec<(u32, String)>,
    /// Pages of each class.
    #[arg(long, default_value_t = 300)]
    pages: usize,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// `warm`: from blocks in memory, each page made anew. `cold`: from the disk. `hot`: the same pages again and
    /// again.
    #[arg(long, default_value = "warm")]
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum How {
    Hot,
    Warm,
    Cold,
}

fn class(text: &str) -> Result<(u32, String)> {
    let (rel, class) = text.split_once('=').context("FILE=CLASS")?;
    Ok((rel.parse()?, class.to_owned()))
}

/// A page to read, however it is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Relation(RelTag, u32),
    Clog(u32),
}

impl Wanted {
    fn request(self) -> Request {
        match self {
            Wanted::Relation(rel, block) => Request::Pages {
                rel,
                blocks: vec![block],
            },
            Wanted::Clog(pageno) => Request::SlruPage {
                kind: SlruKind::Clog,
                pageno,
            },
        }
    }
}

/// Reads one page; how long it took and how many deltas were applied.
fn one(client: &mut BlockingClient, since: Lsn, wanted: Wanted) -> Result<(Duration, u32)> {
    let started = Instant::now();
    let reply = client.ask(since, wanted.request());
    let elapsed = started.elapsed();
    let page = match reply.with_context(|| format!("read {wanted:?}"))? {
        Reply::Pages { mut pages, .. } => pages.pop().context("no page")?,
        Reply::SlruPage { page } => page,
        other => bail!("{wanted:?}: {other:?}"),
    };
    Ok((elapsed, page.chain_length))
}

struct Server {
    arm: Arm,
    engine: Engine,
    client: BlockingClient,
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let pages = sample(&arguments).await?;
    let memory = match arguments.how {
        How::Cold => Memory {
            block_cache_bytes: 0,
            page_cache_bytes: 0,
            ..Memory::default()
        },
        // Every page is made anew, as when it is read for the first time.
        How::Warm => Memory {
            page_cache_bytes: 0,
            ..Memory::default()
        },
        How::Hot => Memory::default(),
    };
    let mut servers = Vec::new();
    for arm in &arguments.arms {
        let engine = Engine::open(&arm.objects, memory, None).await?;
        let client = BlockingClient::connect(&engine)?;
        servers.push(Server {
            arm: arm.clone(),
            engine,
            client,
        });
    }
    // What a start does in the background is not what a read costs.
    for server in &servers {
        wait_until_quiet(&server.engine.timeline).await?;
    }
    let mut result = json!({});
    for (class, wanted) in &pages {
        // A class of few pages is read more often: of a hundred reads the slowest says nothing.
        let rounds =
            arguments.rounds * (arguments.pages / wanted.len().max(1)).clamp(1, MORE_ROUNDS);
        let mut found: BTreeMap<String, Vec<Vec<f64>>> = BTreeMap::new();
        let mut chains: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        // The first round fills the caches and is thrown away.
        for round in 0..=rounds {
            for (number, page) in wanted.iter().enumerate() {
                for turn in 0..servers.len() {
                    // Another server comes first each time.
                    let at = (turn + number + round) % servers.len();
                    let server = &mut servers[at];
                    if arguments.how == How::Cold {
                        server.engine.chill()?;
                    }
                    let (elapsed, chain) = one(&mut server.client, server.arm.end, *page)?;
                    let name = &server.arm.name;
                    if round == 0 {
                        found.entry(name.clone()).or_default().push(Vec::new());
                        chains.entry(name.clone()).or_default().push(chain);
                    } else {
                        found.get_mut(name).context("arm")?[number]
                            .push(elapsed.as_secs_f64() * 1e6);
                    }
                }
            }
        }
        result[class] = json!({"us": found, "chain": chains});
    }
    for server in servers {
        server.engine.close().await;
    }
    Ok(result)
}

/// A page, and how many records changed it.
type Changed = ((RelTag, u32), u32);

/// Pages of each class that the WAL changed in every arm, as many as asked for.
async fn sample(arguments: &Arguments) -> Result<BTreeMap<String, Vec<Wanted>>> {
    let mut shared: Option<touched::Touched> = None;
    for arm in &arguments.arms {
        let mut found = touched::read(&arm.wal, arguments.from, arm.end)?;
        if let Some(before) = shared.take() {
            found.retain(|page, count| match before.get(page) {
                Some(other) => {
                    *count = (*count).min(*other);
                    true
                }
                None => false,
            });
        }
        shared = Some(found);
    }
    let shared = shared.context("no arm")?;
    let classes: BTreeMap<u32, &String> = arguments
        .classes
        .iter()
        .map(|(rel, class)| (*rel, class))
        .collect();
    let mut by_class: BTreeMap<String, Vec<Changed>> = BTreeMap::new();
    for ((rel, block), count) in shared {
        let class = match (rel.fork, classes.get(&rel.rel)) {
            (ForkNumber::Main, Some(class)) => (*class).clone(),
            (ForkNumber::VisibilityMap, Some(_)) => "visibility_map".to_owned(),
            _ => continue,
        };
        by_class
            .entry(class)
            .or_default()
            .push(((rel, block), count));
    }
    let mut pages = BTreeMap::new();
    for (class, mut found) in by_class {
        // Those changed most are a class of their own: their chains are the longest.
        found.sort_by_key(|(page, count)| (std::cmp::Reverse(*count), *page));
        let hot = arguments.pages.min(found.len().div_ceil(20));
        let all = |found: &[Changed]| -> Vec<Wanted> {
            found
                .iter()
                .map(|((rel, block), _)| Wanted::Relation(*rel, *block))
                .collect()
        };
        if class != "visibility_map" {
            pages.insert(format!("{class}_most_changed"), all(&found[..hot]));
        }
        // Evenly over all of them.
        let step = (found.len() / arguments.pages).max(1);
        let spread: Vec<_> = found
            .into_iter()
            .step_by(step)
            .take(arguments.pages)
            .collect();
        pages.insert(class, all(&spread));
    }
    pages.insert("clog".to_owned(), clog(arguments).await?);
    Ok(pages)
}

async fn clog(arguments: &Arguments) -> Result<Vec<Wanted>> {
    let arm = &arguments.arms[0];
    let engine = Engine::open(&arm.objects, Memory::default(), None).await?;
    let segments = engine
        .timeline
        .reads()
        .list_slru_segments(SlruKind::Clog, arm.end)
        .await?;
    engine.close().await;
    let pages = segments.iter().flat_map(|(segment, pages)| {
        (0..*pages).map(move |page| segment * pg_types::SLRU_PAGES_PER_SEGMENT + page)
    });
    Ok(pages.map(Wanted::Clog).collect())
}

#[derive(clap::Args)]
pub struct ScanArguments {
    #[arg(long)]
    objects: PathBuf,
    /// File number of a relation in the `postgres` database.
    #[arg(long)]
    relation: u32,
    /// Pages a request, one scan each.
    #[arg(long, num_args = 1.., default_values_t = [1, 16, 128])]
    batch: Vec<u32>,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Reads a relation from its first to its last page, from the disk, so many pages a request.
pub async fn scan(arguments: ScanArguments) -> Result<Value> {
    let rel = RelTag {
        spc: pg_types::rel::DEFAULT_TABLESPACE,
        db: 5,
        rel: arguments.relation,
        fork: ForkNumber::Main,
    };
    let mut seconds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut blocks = 0;
    for _ in 0..arguments.rounds {
        for batch in &arguments.batch {
            let engine = Engine::open(&arguments.objects, Memory::default(), None).await?;
            let at = engine.timeline.last_record_lsn();
            blocks = engine
                .timeline
                .reads()
                .rel_size(rel, at)
                .await?
                .context("no such relation")?;
            engine.chill()?;
            let mut client = BlockingClient::connect(&engine)?;
            let started = Instant::now();
            let mut next = 0;
            while next < blocks {
                let wanted: Vec<u32> = (next..blocks.min(next + batch)).collect();
                next += wanted.len() as u32;
                let request = Request::Pages {
                    rel,
                    blocks: wanted,
                };
                match client.ask(at, request)? {
                    Reply::Pages { .. } => {}
                    other => bail!("{other:?}"),
                }
            }
            seconds
                .entry(*batch)
                .or_default()
                .push(started.elapsed().as_secs_f64());
            engine.close().await;
        }
    }
    Ok(json!({"blocks": blocks, "seconds_by_batch": seconds}))
}
