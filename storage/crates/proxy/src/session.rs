//! One connection of a client from its first byte to its last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_protocol::endpoint::EndpointName;
use pg_protocol::messages::{self, Fatal, message};
use pg_protocol::scram::MockSecret;
use pg_protocol::startup::Startup;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::accept::{self, Accepted, Refused, refuse};
use crate::cancel::{Backend, Cancels, Registered};
use crate::compute::{self, ComputeError, Ready};
use crate::directory::{Directory, Endpoint, State};
use crate::login::{self, Login, LoginError};
use crate::metrics::{self, Open};
use crate::relay::{Drain, End, Passed, Relay};
use crate::throttle::{LONGEST_WAIT, Throttle};
use crate::tls::Certificate;
use crate::wake::Wakes;

/// A client that asked to cancel has so long to take the end of its connection.
const GOODBYE: Duration = Duration::from_secs(2);
/// The pause before a compute that is not there is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// Bytes of a cancel key: what protocol 3.0 has, and what newer ones allow.
const SHORT_KEY_BYTES: usize = 4;
const LONG_KEY_BYTES: usize = 32;
const FIRST_MINOR_WITH_LONG_KEYS: u16 = 2;

/// What connections have in common.
pub struct Shared {
    pub directory: Arc<dyn Directory>,
    pub certificate: Arc<Certificate>,
    /// Host names of endpoints are `NAME.DOMAIN`, in lower case.
    pub domains: Vec<String>,
    pub mock: MockSecret,
    pub throttle: Throttle,
    pub wakes: Wakes,
    pub cancels: Cancels,
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
    passed: Passed,
}

/// Why a connection ended: a word for metrics, and a text for the log.
struct Why(&'static str, String);

impl From<Refused> for Why {
    fn from(refused: Refused) -> Why {
        match refused {
            Refused::Broken(text) => Why("not_a_client", text),
            Refused::Fatal(fatal) => Why("refused", fatal.message),
        }
    }
}

impl From<End> for Why {
    fn from(end: End) -> Why {
        match end {
            End::Client { said: true } => Why("client", "the client said goodbye".to_owned()),
            End::Client { said: false } => {
                Why("client", "the client closed the connection".to_owned())
            }
            End::ClientBroke(error) => Why("client_broke", error.to_string()),
            End::Compute => Why("compute", "the compute closed the connection".to_owned()),
            End::ComputeBroke(error) => Why("compute_broke", error.to_string()),
            End::Shutdown => Why("shutdown", "the proxy shuts down".to_owned()),
        }
    }
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
    let Some((client, ready, _registered)) = begin(stream, peer, shared, account).await? else {
        return Ok(End::Client { said: true });
    };
    metrics::LOGIN_SECONDS.observe(begun.elapsed().as_secs_f64());
    drop(open);
    let _open = Open::new("session");
    let relay = Box::pin(Relay::new(client, ready.stream, ready.rest).run(drain));
    let (end, passed) = relay.await;
    account.passed = passed;
    Ok(end)
}

type Begun = (Box<TlsStream<TcpStream>>, Ready, Option<Registered>);

/// Takes the connection to where the client may send statements. None when it was a request to cancel.
async fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    account: &mut Account,
) -> Result<Option<Begun>, Why> {
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
            return Ok(None);
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
    let (ready, address) = match Box::pin(reach(shared, &login, &startup)).await {
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
    Ok(Some((
        client,
        Ready {
            greeting: Vec::new(),
            ..ready
        },
        registered,
    )))
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
    let endpoint = login::endpoint_of(startup, server_name.as_deref(), &shared.domains);
    account.role = Some(startup.user().to_owned());
    account.database = startup.get("database").map(str::to_owned);
    let endpoint = endpoint?;
    account.endpoint = Some(endpoint.clone());
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
    login::log_in(client, endpoint, startup.user(), &context).await
}

/// What the client is told, and why.
struct Unreached {
    told: Vec<u8>,
    why: Why,
}

impl Unreached {
    fn new(word: &'static str, fatal: Fatal, reason: String) -> Unreached {
        Unreached {
            told: fatal.to_message(),
            why: Why(word, reason),
        }
    }
}

/// The compute of the endpoint, woken where it sleeps, and waited for where it starts.
async fn reach(
    shared: &Shared,
    login: &Login,
    startup: &Startup,
) -> Result<(Ready, String), Unreached> {
    let name = &login.endpoint;
    let deadline = Instant::now() + shared.wake_limit;
    let unavailable = |reason: String| {
        let text = format!("the compute of endpoint {name} cannot be reached");
        let hint = "Try again in a moment; the operator finds the reason in the proxy's log.";
        Unreached::new(
            "compute_unavailable",
            Fatal::new("57P03", text).with_hint(hint),
            reason,
        )
    };
    let mut woken = false;
    loop {
        let mut found = shared.directory.endpoint(name).await;
        let runs_never = |endpoint: &Option<Arc<Endpoint>>| {
            endpoint
                .as_ref()
                .is_none_or(|endpoint| endpoint.state == State::Disabled)
        };
        if found.as_ref().is_ok_and(runs_never) {
            // Somebody may have enabled it just before this client came.
            found = shared.directory.endpoint_now(name).await;
        }
        let found = found.map_err(|error| unavailable(error.to_string()))?;
        let state = found.map_or(State::Disabled, |endpoint| endpoint.state.clone());
        let away = match state {
            State::Disabled => {
                let fatal = Fatal::new("57P03", format!("endpoint {name} is disabled"));
                let reason = "the endpoint is disabled, or has gone".to_owned();
                return Err(Unreached::new("disabled", fatal, reason));
            }
            State::Suspended => {
                if woken {
                    tokio::time::sleep(AGAIN).await;
                }
                let left = deadline.saturating_duration_since(Instant::now());
                let outcome = shared.wakes.wake(&shared.directory, name, left).await;
                outcome.map_err(|error| unavailable(error.to_string()))?;
                woken = true;
                "it is suspended again".to_owned()
            }
            State::Running(address) => {
                match compute::connect(&address, startup, &login.keys).await {
                    Ok(ready) => return Ok((ready, address)),
                    Err(ComputeError::Refused(told)) => {
                        let text = "the compute refused the login".to_owned();
                        return Err(Unreached {
                            told,
                            why: Why("compute_refused", text),
                        });
                    }
                    Err(ComputeError::Untrusted(reason)) => {
                        tracing::error!(endpoint = %name, address, reason, "what answers is not the endpoint's compute");
                        return Err(unavailable(reason));
                    }
                    Err(ComputeError::Away(reason)) => {
                        tokio::time::sleep(AGAIN).await;
                        format!("{address}: {reason}")
                    }
                }
            }
        };
        if Instant::now() >= deadline {
            return Err(unavailable(away));
        }
    }
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
        let long = startup.spoken_minor() >= FIRST_MINOR_WITH_LONG_KEYS;
        let bytes = if long {
            LONG_KEY_BYTES
        } else {
            SHORT_KEY_BYTES
        };
        shared.cancels.register(backend, bytes)
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
