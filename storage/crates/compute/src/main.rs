//! `weir-compute`: one compute of one branch. See the library for what it does and docs/interfaces.md for how it
//! is talked to.
//!
//! Exit codes: 0 terminated on request, 1 could not even begin, 3 fenced by a newer compute.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Parser;
use compute::agent::{Agent, Options, Terminate, Verdict, http};
use compute::postgres::{confine, init};
use compute::spec::Spec;
use compute::volume::WriteMode;
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use part_tls::{HttpListener, TlsOptions, names};
use token::TokenOptions;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Instrument as _;

const EXIT_FENCED: u8 = 3;

#[derive(Parser)]
#[command(
    version,
    about = "Runs one Weir compute: stock Postgres on remote storage"
)]
struct Arguments {
    /// What to be; docs/interfaces.md describes the file.
    #[arg(long)]
    spec: PathBuf,
    /// Directory of this compute alone; everything in it is disposable.
    #[arg(long)]
    dir: PathBuf,
    /// The number of a user and a group of the operating system that no other compute has while this one runs: Postgres
    /// runs as them. Only for root. Left out: Postgres runs as pg_user of the spec, or as this program's own user.
    #[arg(long)]
    user: Option<u32>,
    /// A control group, below which Postgres gets one of its own that bounds memory, processor time and processes by the
    /// compute's size, in each hierarchy that has it: /weir is /sys/fs/cgroup/weir. Only for root. Left out: no bounds.
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Where to serve status, configuration and metrics.
    #[arg(long)]
    listen_http: SocketAddr,
    /// Pages to ask storage for ahead of a sequential reader at most, in the background; 0 asks for no more than is
    /// read. It begins with a few and grows as far as the reader reads on.
    #[arg(long, env = "WEIR_READ_AHEAD_PAGES", default_value_t = compute::volume::DEFAULT_READ_AHEAD)]
    read_ahead_pages: u32,
    /// Local disk for pages that came from storage and were not written since, MiB: beyond it those that were not read
    /// lately go, to be fetched again when they are read. Written pages stay whatever this says. 0 is no limit.
    #[arg(long, env = "WEIR_COMPUTE_CACHE_MIB", default_value_t = 0)]
    cache_mib: u64,
    /// Let each page that Postgres writes reach the volume before Postgres goes on. Otherwise the kernel hands pages over
    /// later, many at a time, which makes bulk loads about twice as fast; a branch near its storage quota writes
    /// through anyway.
    #[arg(long, env = "WEIR_WRITE_THROUGH")]
    write_through: bool,
    /// W3C trace context of the operation that starts the compute.
    #[arg(long, env = "TRACEPARENT", default_value = "")]
    traceparent: String,
    #[command(flatten)]
    tokens: TokenOptions,
    #[command(flatten)]
    tls: TlsOptions,
}

fn main() -> ExitCode {
    match init::Task::of_arguments(std::env::args_os()) {
        Some(Ok(task)) => return init::run(&task),
        Some(Err(error)) => {
            eprintln!("weir-compute: {error:#}");
            return ExitCode::FAILURE;
        }
        None => {}
    }
    match begin() {
        Ok(Verdict::Terminated) => ExitCode::SUCCESS,
        Ok(Verdict::Fenced) => ExitCode::from(EXIT_FENCED),
        Err(error) => {
            eprintln!("weir-compute: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn begin() -> anyhow::Result<Verdict> {
    let arguments = Arguments::parse();
    let spec = read_spec(&arguments.spec)?;
    // Before there are threads: a namespace is entered by one thread and inherited by those it starts.
    own_mounts().context("enter a mount namespace")?;
    compute::postgres::adopt_orphans().context("become the parent of orphans")?;
    raise_open_files();
    // The last step that needs all of root.
    let rights = confine::agent();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let verdict = runtime.block_on(serve(arguments, spec, rights));
    // Threads that still wait for something must not keep the process.
    runtime.shutdown_background();
    verdict
}

fn read_spec(path: &Path) -> anyhow::Result<Spec> {
    let text = std::fs::read(path).with_context(|| format!("read the spec {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("the spec {} can't be used", path.display()))
}

/// The volume is mounted where only this process and Postgres see it, and the kernel takes it away with them,
/// however they end. Without root there is no such namespace, and the mount is taken away by the helper that
/// made it.
fn own_mounts() -> nix::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS)?;
    let root = Path::new("/");
    confine::spread(root, MsFlags::MS_PRIVATE)?;
    // With the namespaces of this process's Postgres only: what is unmounted here is to go there too.
    confine::spread(root, MsFlags::MS_SHARED)
}

/// A cache file may be open for each relation; the limit a shell gives is too low for a big schema.
fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        eprintln!("weir-compute: cannot raise the limit of open files: {error}");
    }
}

async fn serve(
    arguments: Arguments,
    spec: Spec,
    rights: Result<(), String>,
) -> anyhow::Result<Verdict> {
    let telemetry = telemetry::init("weir-compute")?;
    telemetry::end_at_panics();
    let options = Options {
        user: arguments.user,
        read_ahead: arguments.read_ahead_pages,
        cache: (arguments.cache_mib > 0).then_some(arguments.cache_mib << 20),
        writes: if arguments.write_through {
            WriteMode::Through
        } else {
            WriteMode::Back
        },
    };
    let gate = arguments.tokens.gate(http::audiences(&spec.compute_id))?;
    let token = arguments.tokens.own()?;
    let tls = arguments.tls.open()?;
    let agent =
        Agent::new(spec, &arguments.dir, options, rights).context("the spec can't be followed")?;
    let agent = Arc::new(agent.showing(token, tls.dialer()).within(arguments.cgroup));
    let listener = tokio::net::TcpListener::bind(arguments.listen_http)
        .await
        .with_context(|| format!("listen on {}", arguments.listen_http))?;
    let listener = HttpListener::new(listener, tls.acceptor(names::TO_AGENT));
    let router = http::protected(agent.clone(), gate);
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    suspend_on_signal(agent.clone())?;
    let span = tracing::info_span!("compute", compute_id = agent.spec().compute_id);
    telemetry::continue_trace(&span, &arguments.traceparent);
    let verdict = agent.run().instrument(span).await;
    server.abort();
    tokio::task::spawn_blocking(move || telemetry.shutdown())
        .await
        .ok();
    Ok(verdict)
}

fn suspend_on_signal(agent: Arc<Agent>) -> anyhow::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind).context("handle signals")?;
        let agent = agent.clone();
        tokio::spawn(async move {
            let mut mode = Terminate::Suspend;
            while signals.recv().await.is_some() {
                tracing::info!(?mode, "asked to end by a signal");
                agent.terminate(mode);
                // Whoever asks twice is in a hurry.
                mode = Terminate::Immediate;
            }
        });
    }
    Ok(())
}
