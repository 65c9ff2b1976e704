//! `weir-safekeeper`: one member of the quorum that holds WAL.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use blob::Store;
use clap::Parser;
use part_tls::{HttpListener, TlsOptions, names};
use safekeeper::Registry;
use safekeeper::care::{self, Care};
use safekeeper::offload::{Offload, Options};
use safekeeper::room::LEAST_QUOTA_BYTES;
use token::TokenOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(
    version,
    about = "Holds the WAL of Weir's timelines durably, as one of a quorum"
)]
struct Args {
    /// Number of this safekeeper, unique in the installation
    #[arg(long)]
    id: u64,
    /// Address for proposers and pageservers
    #[arg(long)]
    listen_wal: SocketAddr,
    /// Address of the management API and the metrics
    #[arg(long)]
    listen_http: SocketAddr,
    /// Where WAL and control files live
    #[arg(long)]
    data_dir: PathBuf,
    /// Where finished WAL goes: file:///directory, mount:///directory or s3://bucket/prefix, the pageserver's
    #[arg(long)]
    object_store: Option<String>,
    /// The end of a log goes there when nothing was committed for so long
    #[arg(long, default_value_t = 60)]
    offload_idle_seconds: u64,
    /// How long WAL stays there after the pageserver has it durable as pages
    #[arg(long, default_value_t = 86_400)]
    offload_keep_seconds: u64,
    /// WAL addresses of the safekeepers that damaged WAL may be fetched from; this one may be among them
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Stored WAL is checked once in so long
    #[arg(long, default_value_t = 86_400)]
    verify_period_seconds: u64,
    /// How much of it is read in a second
    #[arg(long, default_value_t = 4)]
    verify_mib_per_second: u64,
    /// How much is fetched in a second to repair what is damaged
    #[arg(long, default_value_t = 32)]
    repair_mib_per_second: u64,
    /// WAL that a timeline may keep here until storage has it as pages, at least 64; its compute is slowed down within the
    /// last quarter. 0 for no limit
    #[arg(long, default_value_t = 16_384)]
    wal_quota_mib: u64,
    /// Free disk below which timelines that keep much WAL take no more, but no more than a tenth of the disk; half of it
    /// stays free. 0 for none
    #[arg(long, default_value_t = 2_048)]
    disk_reserve_mib: u64,
    /// Keys that unwrap the data keys of tenants whose WAL is encrypted there, the pageserver's
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// Nothing goes there unencrypted: WAL of a tenant that has no data key waits
    #[arg(long, requires = "key_file")]
    encrypt: bool,
    #[command(flatten)]
    tokens: TokenOptions,
    #[command(flatten)]
    tls: TlsOptions,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if (1..LEAST_QUOTA_BYTES >> 20).contains(&args.wal_quota_mib) {
        anyhow::bail!(
            "--wal-quota-mib {} is less than a timeline needs that keeps up; give {} or more, or 0 for no limit",
            args.wal_quota_mib,
            LEAST_QUOTA_BYTES >> 20
        );
    }
    let telemetry = telemetry::init("weir-safekeeper")?;
    telemetry::end_at_panics();
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(run(args));
    // A slow look at a log is not waited for.
    runtime.shutdown_background();
    telemetry.shutdown();
    outcome
}

async fn run(args: Args) -> anyhow::Result<()> {
    let gate = args
        .tokens
        .gate(vec![safekeeper::api::AUDIENCE.to_owned()])?;
    let tls = args.tls.open()?;
    let dir = args.data_dir.clone();
    let mut registry = tokio::task::spawn_blocking(move || Registry::open(&dir, args.id)).await??;
    let mut store = None;
    if let Some(address) = &args.object_store {
        let options = Options {
            idle: Duration::from_secs(args.offload_idle_seconds),
            keep: Duration::from_secs(args.offload_keep_seconds),
        };
        // Not reached or checked here: a store that is down must not keep a safekeeper from serving.
        let opened = || {
            let store = Store::from_address(address).context("--object-store")?;
            let keyed = store.with_key_file(args.key_file.as_deref(), args.encrypt);
            keyed.context("--key-file")
        };
        registry = registry.offloading_to(Offload::new(opened()?, options));
        store = Some(opened()?);
    }
    registry = registry.limited_to(args.wal_quota_mib << 20, args.disk_reserve_mib << 20);
    let care = Care::new(args.id, looking_after(&args), store)
        .showing(args.tokens.own()?)
        .dialing_by(tls.dialer());
    registry = registry.cared_for_by(care);
    let registry = Arc::new(registry);
    registry.start();
    let wal = TcpListener::bind(args.listen_wal)
        .await
        .with_context(|| format!("cannot listen on {} for WAL", args.listen_wal))?;
    let http = TcpListener::bind(args.listen_http)
        .await
        .with_context(|| format!("cannot listen on {} for HTTP", args.listen_http))?;
    tracing::info!(id = args.id, wal = %wal.local_addr()?, http = %http.local_addr()?, data_dir = %args.data_dir.display(), "safekeeper serves");
    let wal = stalls::spawn(
        "wal listener",
        safekeeper::server::serve(
            wal,
            tls.acceptor(names::TO_WAL),
            registry.clone(),
            args.id,
            gate.clone(),
        ),
    );
    let mut terminate = signal(SignalKind::terminate())?;
    let router = safekeeper::api::protected(registry, gate);
    let http = HttpListener::new(http, tls.acceptor(names::TO_SAFEKEEPER_API));
    // WAL that was acknowledged is on disk: there is nothing to finish before the process goes.
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    tokio::select! {
        served = axum::serve(http, router) => served.context("the HTTP server ended")?,
        ended = wal => ended.context("the WAL server ended")?,
        () = stop => {}
    }
    tracing::info!("safekeeper stops");
    Ok(())
}

fn looking_after(args: &Args) -> care::Options {
    care::Options {
        period: Duration::from_secs(args.verify_period_seconds.max(1)),
        bytes_per_second: args.verify_mib_per_second.max(1) << 20,
        repair_bytes_per_second: args.repair_mib_per_second.max(1) << 20,
        peers: args.peers.clone(),
    }
}

/// Each timeline takes some file descriptors, more than the usual soft limit allows in sum.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
