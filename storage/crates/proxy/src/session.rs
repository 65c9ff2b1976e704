//! One connection of a client from its first byte to its last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_protocol::endpoint::EndpointName;
use pg_protocol::messages::{self, message};
use pg_protocol::scram::MockSecret;
use pg_protocol::startup::Startup;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::accept::{self, Accepted, refuse};
use crate::cancel::{Backend, Cancels, Registered};
use crate::compute::Ready;
use crate::directory::Directory;
use crate::login::{self, Login, LoginError};
use crate::metrics::{self, Open};
use crate::pooled::pools::Pools;
use crate::pooled::serve::Context;
use crate::pooled::session::Session;
use crate::reach::{Unreached, Ways, reach};
use crate::relay::{Drain, End, Passed, Relay};
use crate::throttle::{LONGEST_WAIT, Throttle};
use crate::tls::Certificate;
use crate::wake::Wakes;
use crate::why::Why;

/// A client that asked to cancel has so long to take the end of its connection.
const GOODBYE: Duration = Duration::from_secs(2);
/// Bytes of a cancel key: what protocol 3.0 has, and what newer ones allow.
const SHORT_KEY_BYTES: usize = 4;
const LONG_KEY_BYTES: usize = 32;
const FIRST_MINOR_WITH_LONG_KEYS: u16 = 2;

/// What connections have in common.
pub struct Shared {
    /// Knows endpoints, their computes and roles.
    pub directory: Arc<dyn Directory>,
    /// What clients are shown in TLS.
    pub certificate: Arc<Certificate>,
    /// Host names of endpoints are `NAME.DOMAIN`, in lower case.
    pub domains: Vec<String>,
    /// Makes verifiers of roles that do not exist.
    pub mock: MockSecret,
    /// Slows addresses whose logins fail.
    pub throttle: Throttle,
    /// The wakes that are under way.
    pub wakes: Wakes,
    /// The connections that can be asked to cancel.
    pub cancels: Cancels,
    /// The server connections that pooled clients share.
    pub pools: Arc<Pools>,
    /// How long a client may take to say who it is.
    pub login_limit: Duration,
    /// How long a client waits for a compute.
    pub wake_limit: Duration,
}

/// What the log says of a connection that has ended.
#[derive(Default)]
struct Account {
    endpoint: Option<EndpointName>,
    role: Option<String>,
    database: Option<String>,
    pooled: bool,
    /// Turns of a pooled client.
    turns: u64,
    passed: Passed,
}

/// Serves one connection to its end.
pub async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    drain: watch::Receiver<Drain>,
) {
    let begun = Instant::now();
    let mut account = Account::default();
    let Why(word, text) = match run(stream, peer, &shared, drain, &mut account, begun).await {
        Ok(end) => end.into(),
        Err(why) => why,
    };
    metrics::ENDED.with_label_values(&[word]).inc();
    // What strangers have chosen is written with its quotes and escapes.
    tracing::info!(
        client = %peer,
        endpoint = account.endpoint.as_ref().map(EndpointName::as_str),
        role = account.role.as_ref().map(tracing::field::debug),
        database = account.database.as_ref().map(tracing::field::debug),
        pooled = account.pooled,
        turns = account.pooled.then_some(account.turns),
        bytes_to_compute = account.passed.to_compute,
        bytes_to_client = account.passed.to_client,
        seconds = begun.elapsed().as_secs_f64(),
        why = word,
        reason = ?text,
        "connection ended"
    );
}

async fn run(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    drain: watch::Receiver<Drain>,
    account: &mut Account,
    begun: Instant,
) -> Result<End, Why> {
    let open = Open::new("login");
    let begun_as = begin(stream, peer, shared, account).await?;
    match begun_as {
        Begun::Cancelled => Ok(End::Client { said: true }),
        Begun::Direct(client, ready, _registered) => {
            let _open = serving(open, begun);
            let relay = Box::pin(Relay::new(client, ready.stream, ready.rest).run(drain));
            let (end, passed) = relay.await;
            account.passed = passed;
            Ok(end)
        }
        Begun::Pooled(client, startup, login) => {
            let key_bytes = key_bytes(&startup);
            let context = Context {
                pools: &shared.pools,
                ways: shared.ways(),
                cancels: &shared.cancels,
            };
            let session = Session::begin(client, &startup, login, key_bytes, context);
            let mut session = Box::pin(session).await?;
            let _open = serving(open, begun);
            drop(startup);
            let end = Box::pin(session.run(drain)).await;
            account.passed = session.passed;
            account.turns = session.turns;
            end
        }
    }
}

/// From here on the client may send statements.
fn serving(open: Open, begun: Instant) -> Open {
    metrics::LOGIN_SECONDS.observe(begun.elapsed().as_secs_f64());
    drop(open);
    Open::new("session")
}

/// A connection whose client has logged in.
enum Begun {
    /// The connection was a request to cancel another one, and is over.
    Cancelled,
    Direct(Box<TlsStream<TcpStream>>, Ready, Option<Registered>),
    /// No server connection yet: it gets one for each transaction.
    Pooled(Box<TlsStream<TcpStream>>, Startup, Login),
}

impl Shared {
    fn ways(&self) -> Ways<'_> {
        Ways {
            directory: &self.directory,
            wakes: &self.wakes,
            limit: self.wake_limit,
        }
    }
}

/// Takes the connection to where the client may send statements, or is known and will be pooled.
async fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    account: &mut Account,
) -> Result<Begun, Why> {
    let identity = shared.certificate.current();
    let accepted = Box::pin(timeout(
        shared.login_limit,
        accept::accept(stream, &identity),
    ));
    let accepted = accepted.await.map_err(|_| {
        Why(
            "login_timeout",
            "it did not say in time what it wants".to_owned(),
        )
    })??;
    let (mut client, mut startup) = match accepted {
        Accepted::Session(client, startup) => (client, startup),
        Accepted::Cancel(request, mut waiting) => {
            shared.cancels.cancel(&request).await;
            let _ = timeout(GOODBYE, waiting.shutdown()).await;
            return Ok(Begun::Cancelled);
        }
    };
    let login = Box::pin(log_in(
        &mut client,
        &mut startup,
        peer,
        shared,
        &identity,
        account,
    ));
    let limit = shared.login_limit + LONGEST_WAIT;
    let login = match timeout(limit, login).await {
        Ok(Ok(login)) => login,
        Ok(Err(LoginError::Fatal(fatal))) => {
            let why = if fatal.sqlstate == "28P01" {
                "wrong_password"
            } else {
                "refused"
            };
            let text = fatal.message.clone();
            refuse(&mut client, fatal).await;
            return Err(Why(why, text));
        }
        Ok(Err(LoginError::Broken(error))) => return Err(Why("client_broke", error.to_string())),
        Err(_) => return Err(Why("login_timeout", "it did not log in in time".to_owned())),
    };
    if login.pooled {
        return Ok(Begun::Pooled(client, startup, login));
    }
    let reached = reach(shared.ways(), &login.endpoint, &login.keys, &startup);
    let (ready, address) = match Box::pin(reached).await {
        Ok(reached) => reached,
        Err(Unreached { told, why }) => {
            let _ = client.write_all(&told).await;
            let _ = client.shutdown().await;
            return Err(why);
        }
    };
    let registered = greet(&mut client, &startup, &ready, address, shared)
        .await
        .map_err(|error| Why("client_broke", error.to_string()))?;
    let ready = Ready {
        greeting: Vec::new(),
        ..ready
    };
    Ok(Begun::Direct(client, ready, registered))
}

async fn log_in(
    client: &mut Box<TlsStream<TcpStream>>,
    startup: &mut Startup,
    peer: SocketAddr,
    shared: &Shared,
    identity: &crate::tls::Identity,
    account: &mut Account,
) -> Result<Login, LoginError> {
    let server_name = client.get_ref().1.server_name().map(str::to_owned);
    let wanted = login::endpoint_of(startup, server_name.as_deref(), &shared.domains);
    account.role = Some(startup.user().to_owned());
    account.database = startup.get("database").map(str::to_owned);
    let wanted = wanted?;
    account.endpoint = Some(wanted.endpoint.clone());
    account.pooled = wanted.pooled;
    if let Some((minor, unknown)) = startup.negotiation() {
        client
            .write_all(&messages::negotiate(minor, unknown))
            .await?;
    }
    let context = login::Context {
        directory: &shared.directory,
        throttle: &shared.throttle,
        mock: &shared.mock,
        end_point: identity.end_point.as_deref(),
        address: peer.ip(),
    };
    login::log_in(client, wanted, startup.user(), &context).await
}

/// What the compute said, with a key of the proxy's own, and ReadyForQuery.
async fn greet(
    client: &mut Box<TlsStream<TcpStream>>,
    startup: &Startup,
    ready: &Ready,
    address: String,
    shared: &Shared,
) -> std::io::Result<Option<Registered>> {
    let mut greeting = ready.greeting.clone();
    let registered = ready.cancel_key.clone().map(|(process_id, key)| {
        let backend = Backend {
            address,
            process_id,
            key,
        };
        shared.cancels.register(backend, key_bytes(startup))
    });
    if let Some(registered) = &registered {
        let request = &registered.request;
        greeting.extend(messages::backend_key(request.process_id, &request.key));
    }
    greeting.extend(message(b'Z', b"I"));
    client.write_all(&greeting).await?;
    client.flush().await?;
    Ok(registered)
}

/// Bytes of the key for cancelling that the client's version of the protocol has.
fn key_bytes(startup: &Startup) -> usize {
    match startup.spoken_minor() >= FIRST_MINOR_WITH_LONG_KEYS {
        true => LONG_KEY_BYTES,
        false => SHORT_KEY_BYTES,
    }
}
