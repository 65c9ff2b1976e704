//! A cold sequential read of one relation through a mounted volume, as a compute does it: `bench/pageserver.py` runs
//! this against `bench serve` of the pageserver, which says where it is.
//!
//! The volume is empty, and mounted as weir-compute mounts it. The reader reads 8 KiB at a time from the first page to
//! the last, as Postgres scans a table. Prints one line of JSON.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use compute::pages::{ClientConfig, PageClient, Reads, StorageSource};
use compute::volume::mount::Mounted;
use compute::volume::{DEFAULT_READ_AHEAD, Volume};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use parking_lot::{Condvar, Mutex};
use pg_types::{BLCKSZ, Lsn, RELSEG_BLOCKS, TenantId, Term, TimelineId};
use prometheus::{Histogram, HistogramOpts, IntCounter};
use serde_json::json;

#[derive(Parser)]
struct Arguments {
    /// The page service.
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    tenant: TenantId,
    #[arg(long)]
    timeline: TimelineId,
    #[arg(long)]
    lsn: Lsn,
    /// The relation's directory and file, such as `base/5/16384`.
    #[arg(long)]
    file: String,
    #[arg(long)]
    blocks: u32,
    #[arg(long, default_value_t = DEFAULT_READ_AHEAD)]
    read_ahead_pages: u32,
    /// Has the kernel read no more than is asked for either: then each page is a request of its own.
    #[arg(long)]
    page_by_page: bool,
    /// Microseconds each request spends on the way to the page service, as over a network.
    #[arg(long, default_value_t = 0)]
    latency_us: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    own_mounts().context("enter a mount namespace")?;
    let address = match arguments.latency_us {
        0 => arguments.address,
        late => delayed(arguments.address, Duration::from_micros(late))?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    let client = PageClient::new(ClientConfig {
        address: address.to_string(),
        tenant: arguments.tenant,
        timeline: arguments.timeline,
        term: Term(0),
        connections: 4,
        deadline: Duration::from_secs(60),
        traceparent: String::new(),
        opened: IntCounter::new("opened", "connections opened")?,
        token: token::OwnToken::default(),
        dialer: part_tls::Dialer::default(),
    });
    let reads = Reads {
        seconds: Histogram::with_opts(HistogramOpts::new("seconds", "of a request"))?,
        chain_length: Histogram::with_opts(HistogramOpts::new("chain", "of a page"))?,
    };
    let source = StorageSource::new(
        client.clone(),
        arguments.lsn,
        runtime.handle().clone(),
        reads,
    );
    let scratch = tempfile::tempdir()?;
    let (cache, at) = (scratch.path().join("cache"), scratch.path().join("volume"));
    std::fs::create_dir(&cache)?;
    std::fs::create_dir(&at)?;
    let volume = Arc::new(Volume::new(Arc::new(source), cache, 64)?);
    volume.set_read_ahead(arguments.read_ahead_pages);
    let owner = (nix::unistd::getuid(), nix::unistd::getgid());
    let mounted = Mounted::new(volume.clone(), &at, owner.0.as_raw(), owner.1.as_raw())?;
    // Connected, and the directory listed.
    open(&at, &arguments, 0)?;
    let started = Instant::now();
    scan(&at, &arguments)?;
    let seconds = started.elapsed().as_secs_f64();
    let sum = sum(&at, &arguments)?;
    drop(mounted);
    client.close();
    let stats = volume.stats();
    println!(
        "{}",
        json!({
            "seconds": seconds,
            "sum": sum,
            "pages_fetched": stats.pages_fetched.load(Ordering::Relaxed),
            "pages_read_ahead": stats.pages_read_ahead.load(Ordering::Relaxed),
            "read_ahead_used": stats.read_ahead_used.load(Ordering::Relaxed),
        })
    );
    Ok(())
}

/// As weir-compute: nobody else sees the mount, and it goes with this process however it ends.
fn own_mounts() -> nix::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS)?;
    let (none, flags) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    mount(none, "/", none, flags, none)
}

/// Blocks of one file of the relation.
fn segments(blocks: u32) -> impl Iterator<Item = (u32, u32)> {
    let count = blocks.div_ceil(RELSEG_BLOCKS);
    (0..count).map(move |number| (number, RELSEG_BLOCKS.min(blocks - number * RELSEG_BLOCKS)))
}

fn open(at: &Path, arguments: &Arguments, segment: u32) -> Result<File> {
    let name = match segment {
        0 => arguments.file.clone(),
        number => format!("{}.{number}", arguments.file),
    };
    let file = File::open(at.join(&name)).with_context(|| format!("open {name}"))?;
    if arguments.page_by_page {
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)?;
    }
    Ok(file)
}

fn scan(at: &Path, arguments: &Arguments) -> Result<()> {
    let mut page = vec![0; BLCKSZ];
    for (segment, blocks) in segments(arguments.blocks) {
        let file = open(at, arguments, segment)?;
        for block in 0..blocks {
            file.read_exact_at(&mut page, u64::from(block) * BLCKSZ as u64)
                .with_context(|| format!("read block {block} of segment {segment}"))?;
        }
    }
    Ok(())
}

/// Of all that was read, so that whoever compares ways of reading knows that they read the same.
fn sum(at: &Path, arguments: &Arguments) -> Result<u64> {
    let (mut sum, mut buffer) = (0u64, vec![0; 1 << 20]);
    for (segment, _) in segments(arguments.blocks) {
        let mut file = open(at, arguments, segment)?;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            for word in buffer[..read].chunks_exact(8) {
                let word = u64::from_le_bytes(word.try_into()?);
                sum = sum.rotate_left(5).wrapping_add(word);
            }
        }
    }
    Ok(sum)
}

/// A way to `target` on which everything sent takes so much longer; answers come back at once.
fn delayed(target: SocketAddr, delay: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if let Err(error) = TcpStream::connect(target)
                .map_err(anyhow::Error::from)
                .and_then(|server| carry(client, server, delay))
            {
                eprintln!("cannot carry a connection to {target}: {error:#}");
            }
        }
    });
    Ok(address)
}

/// What is on its way, each with when it arrives; `None` at the end.
#[derive(Default)]
struct Way {
    chunks: Mutex<VecDeque<(Instant, Option<Vec<u8>>)>>,
    more: Condvar,
}

fn carry(client: TcpStream, server: TcpStream, delay: Duration) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut answers, mut asker) = (server.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || std::io::copy(&mut answers, &mut asker));
    let way = Arc::new(Way::default());
    let (mut from, entrance) = (client, way.clone());
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = from.read(&mut buffer).unwrap_or(0);
            let chunk = (read > 0).then(|| buffer[..read].to_vec());
            entrance
                .chunks
                .lock()
                .push_back((Instant::now() + delay, chunk));
            entrance.more.notify_one();
            if read == 0 {
                return;
            }
        }
    });
    let mut to = server;
    std::thread::spawn(move || {
        loop {
            let mut chunks = way.chunks.lock();
            let (arrives, chunk) = loop {
                match chunks.pop_front() {
                    Some(next) => break next,
                    None => way.more.wait(&mut chunks),
                }
            };
            drop(chunks);
            std::thread::sleep(arrives.saturating_duration_since(Instant::now()));
            match chunk {
                Some(chunk) if to.write_all(&chunk).is_ok() => {}
                _ => return,
            }
        }
    });
    Ok(())
}
