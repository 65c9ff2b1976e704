//! The pageserver as a program: parses its command line, opens its timelines, serves until told to stop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use pageserver::clock::MachineTime;
use pageserver::import::PostgresInstall;
use pageserver::manager::{ManagerOptions, Safekeepers, TenantManager};
use pageserver::tool::{self, Tool};
use pageserver::{http, page_service};
use part_tls::{HttpListener, TlsOptions, names};
use token::TokenOptions;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Keeps every version of every page of its timelines and serves any of them. With a command it does not serve but
/// looks at what is stored.
#[derive(Parser, Debug)]
#[command(
    name = "weir-pageserver",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    tool: Option<Tool>,
    #[command(flatten)]
    serve: Args,
}

#[derive(clap::Args, Debug)]
struct Args {
    /// Where computes read pages.
    #[arg(long, default_value = "127.0.0.1:7600")]
    listen_pages: SocketAddr,
    /// Where the management API and the metrics are.
    #[arg(long, default_value = "127.0.0.1:7601")]
    listen_http: SocketAddr,
    /// Local state: templates and cached layers.
    #[arg(long, required = true)]
    data_dir: Option<PathBuf>,
    /// Where layers are kept, such as file:///var/lib/weir/objects or s3://bucket/prefix (endpoint, region and
    /// credentials from AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).
    #[arg(long, required = true)]
    object_store: Option<String>,
    /// Directory of initdb.
    #[arg(
        long,
        env = "WEIR_PG_BIN_DIR",
        default_value = "/usr/lib/postgresql/15/bin"
    )]
    pg_bin_dir: PathBuf,
    /// The user that runs initdb when this program runs as root.
    #[arg(long, env = "WEIR_PG_USER", default_value = "postgres")]
    pg_user: String,
    /// Memory for decompressed blocks of layers, MiB.
    #[arg(long, default_value_t = 256)]
    block_cache_mib: usize,
    /// Memory for pages kept as they were made for a read, MiB; 0 keeps none.
    #[arg(long, default_value_t = 128)]
    page_cache_mib: usize,
    /// Memory for versions that are not in layer files yet, over all timelines, MiB.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(16..))]
    memory_mib: u64,
    /// Memory for new layers, read from it until older ones make room, when the object store is a local directory,
    /// MiB; 0 keeps none.
    #[arg(long, default_value_t = 256)]
    recent_layers_mib: u64,
    /// Local disk for copies of layers when the object store is not a local directory, MiB. A twentieth of the disk
    /// is left free in any case.
    #[arg(long, default_value_t = 16384)]
    layer_cache_mib: u64,
    /// How long the object store remembers that a timeline was deleted, seconds: WAL that a safekeeper puts there until
    /// then goes again.
    #[arg(long, default_value_t = 7 * 86_400)]
    tombstone_seconds: u64,
    /// Keys that unwrap the data keys of tenants whose layers and WAL are encrypted (docs/operate/encryption.md).
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// Every tenant gets a data key, those that have none yet too, and all that is written from now on is encrypted.
    #[arg(long, requires = "key_file")]
    encrypt: bool,
    #[command(flatten)]
    tokens: TokenOptions,
    #[command(flatten)]
    tls: TlsOptions,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    crash::arm_from_environment()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    match cli.tool {
        Some(tool) => runtime.block_on(tool::run(tool)),
        None => runtime.block_on(run(cli.serve)),
    }
}

async fn run(args: Args) -> Result<()> {
    let (data_dir, object_store) = args
        .data_dir
        .zip(args.object_store)
        .context("give --data-dir and --object-store")?;
    let telemetry = telemetry::init("weir-pageserver")?;
    telemetry::end_at_panics();
    raise_open_file_limit();
    let own = args.tokens.own()?;
    let tls = args.tls.open()?;
    let gate = args.tokens.gate(vec![http::access::AUDIENCE.to_owned()])?;
    std::fs::create_dir_all(&data_dir).with_context(|| format!("create {}", data_dir.display()))?;
    // Listen first: a port in use is reported before anything is claimed in the object store.
    let pages = listen(args.listen_pages).await?;
    let api = listen(args.listen_http).await?;
    let objects = open_objects(&object_store, args.key_file.as_deref(), args.encrypt).await?;
    let options = ManagerOptions {
        objects,
        postgres: PostgresInstall {
            bin_dir: args.pg_bin_dir,
            user: args.pg_user,
        },
        block_cache_bytes: args.block_cache_mib << 20,
        page_cache_bytes: args.page_cache_mib << 20,
        memory_bytes: args.memory_mib << 20,
        recent_layers_bytes: args.recent_layers_mib << 20,
        layer_cache_bytes: args.layer_cache_mib << 20,
        tombstones: std::time::Duration::from_secs(args.tombstone_seconds),
        time: Arc::new(MachineTime::new()?),
        wal: Arc::new(Safekeepers {
            reader: reader_name(&object_store),
            token: own,
            dialer: tls.dialer(),
        }),
        data_dir,
    };
    let manager = TenantManager::open(options).await?;
    let cancel = CancellationToken::new();
    let mut page_server = stalls::spawn(
        "page listener",
        page_service::serve_behind(
            gate.clone(),
            tls.acceptor(names::TO_PAGES),
            pages,
            manager.clone(),
            cancel.clone(),
        ),
    );
    let stop_http = cancel.clone().cancelled_owned();
    let api = HttpListener::new(api, tls.acceptor(names::TO_PAGESERVER_API));
    let mut http_server = stalls::spawn(
        "http listener",
        axum::serve(api, http::protected(manager.clone(), gate))
            .with_graceful_shutdown(stop_http)
            .into_future(),
    );
    let preparing = manager.clone();
    stalls::spawn("template", async move {
        if let Err(error) = preparing.prepare_template().await {
            tracing::error!("cannot make the template for new projects: {error}");
        }
    });
    tracing::info!(pages = %args.listen_pages, http = %args.listen_http, "serving");
    tokio::select! {
        signal = wait_for_signal() => signal?,
        // Neither ends by itself: with one of them gone the program would look healthy and serve nobody.
        ended = &mut page_server => bail!("the page service ended: {ended:?}"),
        ended = &mut http_server => bail!("the HTTP server ended: {ended:?}"),
    }
    tracing::info!("stopping");
    cancel.cancel();
    page_server.await.context("page service task")?;
    // Requests that still run get a moment; clients that hold a connection open do not keep us.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(3), http_server).await;
    manager.shutdown().await;
    telemetry.shutdown();
    Ok(())
}

async fn open_objects(address: &str, keys: Option<&Path>, encrypt: bool) -> Result<blob::Store> {
    let objects = blob::Store::from_address(address)
        .context("open the object store")?
        .with_key_file(keys, encrypt)
        .context("open the keys")?;
    let checked = objects.check().await;
    checked.with_context(|| format!("object store {address} can't be used"))?;
    Ok(objects)
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address}; is another process there?"))
}

/// The name under which safekeepers keep WAL for this pageserver. The name belongs to the object store, not to the
/// data directory: a pageserver that continues from the same index continues under the same name, so that no
/// safekeeper keeps WAL for a reader that never comes back.
fn reader_name(object_store: &str) -> String {
    format!("pageserver of {object_store}")
}

/// Every open layer is an open file.
fn raise_open_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

async fn wait_for_signal() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
