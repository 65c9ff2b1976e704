//! `weir-proxy`: one address for the Postgres of all endpoints.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use pg_protocol::addresses::Addresses;
use pg_protocol::scram::MockSecret;
use proxy::cancel::Cancels;
use proxy::crowd::{self, Crowd};
use proxy::directory::{ControlPlane, Directory, FileDirectory};
use proxy::memory::Memory;
use proxy::password::Passwords;
use proxy::pool::slots;
use proxy::pooled::pools::{self, Pools};
use proxy::server::{self, Door, Limits};
use proxy::shared::Shared;
use proxy::throttle::Throttle;
use proxy::tls::Certificate;
use proxy::wake::Wakes;
use proxy::watched;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(
    version,
    about = "Takes clients of all endpoints at one address and passes them on to their computes"
)]
struct Args {
    /// Address for clients of Postgres
    #[arg(long)]
    listen: SocketAddr,
    /// Address for load balancers, which begin each connection with a header of the PROXY protocol, version 2, that says
    /// whose it is
    #[arg(long, requires = "trusted_senders")]
    listen_behind: Option<SocketAddr>,
    /// Addresses of those load balancers, as ADDRESS, ADDRESS/BITS or FIRST-LAST; others are refused there
    #[arg(long, value_delimiter = ',', requires = "listen_behind")]
    trusted_senders: Vec<String>,
    /// Address of the health check and the metrics
    #[arg(long)]
    listen_http: SocketAddr,
    /// PEM file with the certificate of all host names, and those between it and its CA; read again when it changes
    #[arg(long)]
    certificate: PathBuf,
    /// PEM file with the certificate's private key; read again when it changes
    #[arg(long)]
    private_key: PathBuf,
    /// Endpoints have the host names NAME.DOMAIN; more than one domain is possible. Without one, clients name the endpoint
    /// in an option or in the user
    #[arg(long, value_delimiter = ',')]
    domain: Vec<String>,
    /// URL of the control plane, which knows endpoints and verifiers and wakes computes
    #[arg(
        long,
        required_unless_present = "directory",
        requires = "control_plane_token"
    )]
    control_plane: Option<String>,
    /// File with the token by which the control plane knows its proxies
    #[arg(long)]
    control_plane_token: Option<PathBuf>,
    /// In place of a control plane: JSON file with the endpoints, their computes and verifiers (docs/interfaces.md); read
    /// again when it changes
    #[arg(long, conflicts_with = "control_plane")]
    directory: Option<PathBuf>,
    /// Program that starts a suspended endpoint's compute, called with its name; ends well once the directory says where it runs
    #[arg(long, requires = "directory")]
    wake_command: Option<PathBuf>,
    /// File with at least 32 random bytes, the same for all proxies: makes users that do not exist look like others
    #[arg(long)]
    mock_secret: PathBuf,
    /// Connections at a time
    #[arg(long, default_value_t = 10_000)]
    max_connections: usize,
    /// Connections to one endpoint at a time, its pooler's among them; without it as many as --max-connections
    #[arg(long)]
    max_endpoint_connections: Option<usize>,
    /// Connections of one role at one endpoint at a time; without it as many as --max-connections
    #[arg(long)]
    max_role_connections: Option<usize>,
    /// How long a client may take to log in
    #[arg(long, default_value_t = 15)]
    login_seconds: u64,
    /// How long a client waits for a compute that starts
    #[arg(long, default_value_t = 30)]
    wake_seconds: u64,
    /// Server connections that pooled clients of one role share in one database
    #[arg(long, default_value_t = 20)]
    pool_size: usize,
    /// Server connections of all pools of one endpoint; fewer than its compute's max_connections
    #[arg(long, default_value_t = 80)]
    pool_database_connections: usize,
    /// How long a pooled client waits for a server connection
    #[arg(long, default_value_t = 60_000)]
    pool_queue_timeout_ms: u64,
    /// A pool's server connection that was idle for so long is closed
    #[arg(long, default_value_t = 60_000)]
    pool_idle_ms: u64,
    /// A pool's server connection that was made so long ago is closed after its transaction
    #[arg(long, default_value_t = 3_600_000)]
    pool_lifetime_ms: u64,
    /// Prepared statements that a pool's server connection keeps
    #[arg(long, default_value_t = 200)]
    pool_statements: usize,
    /// After so long what clients prepare is prepared anew on a pool's server connections: schemas may change unseen
    #[arg(long, default_value_t = 60_000)]
    pool_renewal_ms: u64,
    /// Send DISCARD ALL before a pool's server connection goes to another client
    #[arg(long)]
    pool_discard: bool,
    /// How long the statements of one request by HTTP may run
    #[arg(long, default_value_t = 120)]
    http_seconds: u64,
    /// MiB that requests by HTTP and their answers may hold together
    #[arg(long, default_value_t = 512)]
    http_memory_mib: usize,
    /// How long sessions may finish their transactions when the proxy is to end
    #[arg(long, default_value_t = 30)]
    drain_seconds: u64,
}

const MOST_CONNECTIONS: usize = 1_000_000;
const MOST_POOL_CONNECTIONS: usize = 10_000;
const SECRET_BYTES: usize = 32;
/// What the longest request takes by itself, and what a machine can have.
const MOST_HTTP_MIB_EACH: usize = 320;
const MOST_HTTP_MIB: usize = 1 << 20;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let telemetry = telemetry::init("weir-proxy")?;
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(run(args));
    runtime.shutdown_background();
    telemetry.shutdown();
    outcome
}

async fn run(args: Args) -> anyhow::Result<()> {
    ensure!(
        (MOST_HTTP_MIB_EACH..=MOST_HTTP_MIB).contains(&args.http_memory_mib),
        "--http-memory-mib has to be {MOST_HTTP_MIB_EACH} to {MOST_HTTP_MIB}"
    );
    let crowd = Crowd::new(crowd_limits(&args)?);
    let pools = Pools::new(pool_settings(&args)?);
    let certificate = Arc::new(Certificate::open(&args.certificate, &args.private_key)?);
    if certificate.current().end_point.is_none() {
        tracing::warn!(
            "logins cannot be bound to this certificate: sign it with RSA or ECDSA for channel_binding=require"
        );
    }
    let shared = Arc::new(Shared {
        directory: directory(&args)?,
        certificate: certificate.clone(),
        domains: args
            .domain
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect(),
        mock: mock_secret(&args.mock_secret)?,
        throttle: Throttle::default(),
        wakes: Wakes::default(),
        cancels: Cancels::default(),
        crowd,
        pools: pools.clone(),
        passwords: Passwords::new(processors().div_ceil(2)),
        memory: Memory::new(args.http_memory_mib << 20),
        login_limit: Duration::from_secs(args.login_seconds),
        wake_limit: Duration::from_secs(args.wake_seconds),
        request_limit: Duration::from_secs(args.http_seconds),
    });
    let limits = Limits {
        connections: args.max_connections,
        drain: Duration::from_secs(args.drain_seconds),
    };
    let doors = doors(&args).await?;
    let http = TcpListener::bind(args.listen_http)
        .await
        .with_context(|| format!("cannot listen on {} for HTTP", args.listen_http))?;
    tokio::spawn(watched::watch(
        "the certificate",
        certificate.paths(),
        move || certificate.reload(),
    ));
    tokio::spawn(pools.watch());
    tokio::spawn(async move { axum::serve(http, proxy::http::router()).await });
    for door in &doors {
        let behind = door.senders.is_some();
        tracing::info!(listen = %door.listener.local_addr()?, behind, domains = ?shared.domains, "proxy serves");
    }
    let mut terminate = signal(SignalKind::terminate())?;
    server::serve(doors, shared, limits, async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    })
    .await;
    tracing::info!("proxy stops");
    Ok(())
}

/// Where connections come in: by themselves, and from load balancers.
async fn doors(args: &Args) -> anyhow::Result<Vec<Door>> {
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {} for clients", args.listen))?;
    let mut doors = vec![Door {
        listener,
        senders: None,
    }];
    if let Some(address) = args.listen_behind {
        let texts = args.trusted_senders.iter();
        let senders =
            Addresses::parse(texts.map(|text| text.trim())).context("--trusted-senders")?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address} for load balancers"))?;
        doors.push(Door {
            listener,
            senders: Some(Arc::new(senders)),
        });
    }
    Ok(doors)
}

/// Processors of the machine; 1 where nobody says.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn crowd_limits(args: &Args) -> anyhow::Result<crowd::Limits> {
    let all = args.max_connections;
    let limits = crowd::Limits {
        endpoint: args.max_endpoint_connections.unwrap_or(all),
        role: args.max_role_connections.unwrap_or(all),
    };
    for (name, value) in [
        ("max-connections", all),
        ("max-endpoint-connections", limits.endpoint),
        ("max-role-connections", limits.role),
    ] {
        ensure!(
            (1..=MOST_CONNECTIONS).contains(&value),
            "--{name} has to be 1 to {MOST_CONNECTIONS}"
        );
    }
    Ok(limits)
}

fn pool_settings(args: &Args) -> anyhow::Result<pools::Settings> {
    let possible = 1..=MOST_POOL_CONNECTIONS;
    for (name, value) in [
        ("pool-size", args.pool_size),
        ("pool-database-connections", args.pool_database_connections),
        ("pool-statements", args.pool_statements),
    ] {
        ensure!(
            possible.contains(&value),
            "--{name} has to be 1 to {MOST_POOL_CONNECTIONS}"
        );
    }
    for (name, milliseconds) in [
        ("pool-queue-timeout-ms", args.pool_queue_timeout_ms),
        ("pool-idle-ms", args.pool_idle_ms),
        ("pool-lifetime-ms", args.pool_lifetime_ms),
        ("pool-renewal-ms", args.pool_renewal_ms),
    ] {
        ensure!(milliseconds > 0, "--{name} has to be 1 or more");
    }
    Ok(pools::Settings {
        limits: slots::Limits {
            group: args.pool_size,
            endpoint: args.pool_database_connections,
            idle: Duration::from_millis(args.pool_idle_ms),
            lifetime: Duration::from_millis(args.pool_lifetime_ms),
        },
        queue: Duration::from_millis(args.pool_queue_timeout_ms),
        statements: args.pool_statements,
        renewal: Duration::from_millis(args.pool_renewal_ms),
        discard: args.pool_discard,
    })
}

/// What the proxy asks for endpoints. A file is watched from here on.
fn directory(args: &Args) -> anyhow::Result<Arc<dyn Directory>> {
    if let (Some(url), Some(path)) = (&args.control_plane, &args.control_plane_token) {
        let token = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(!token.trim().is_empty(), "{} is empty", path.display());
        let wake_limit = Duration::from_secs(args.wake_seconds);
        return Ok(Arc::new(ControlPlane::new(url, token.trim(), wake_limit)?));
    }
    let path = args
        .directory
        .clone()
        .context("neither --control-plane nor --directory is given")?;
    let directory = Arc::new(FileDirectory::open(&path, args.wake_command.clone())?);
    let reloaded = directory.clone();
    let reload = move || reloaded.reload();
    tokio::spawn(watched::watch("the directory", vec![path], reload));
    Ok(directory)
}

fn mock_secret(path: &Path) -> anyhow::Result<MockSecret> {
    let secret = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        secret.len() >= SECRET_BYTES,
        "{} has to have {SECRET_BYTES} random bytes or more",
        path.display()
    );
    Ok(MockSecret::new(&secret))
}

/// Each session takes two file descriptors, more than the usual soft limit allows in sum.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
