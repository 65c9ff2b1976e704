//! One connection of a client from its first byte to its last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_protocol::endpoint::EndpointName;
use pg_protocol::messages::{self, message};
use pg_protocol::startup::{CancelRequest, FirstPacket, Startup};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::accept::{self, Accepted, Duplex, refuse};
use crate::cancel::{Backend, Registered};
use crate::compute::Ready;
use crate::crowd;
use crate::end_reason::EndReason;
use crate::login::{self, Login, LoginError};
use crate::metrics::{self, Open};
use crate::pool::key;
use crate::pool::schema::Schema;
use crate::pooled::serve::Context;
use crate::pooled::session::Session;
use crate::reach::{Unreached, reach};
use crate::relay::{Drain, End, Passed, Relay};
use crate::shared::Shared;
use crate::sql_http::run::Surroundings;
use crate::sql_http::serve::{self as http, HttpOutcome};
use crate::sql_http::websocket;
use crate::throttle::LONGEST_WAIT;

/// A client that asked to cancel has so long to take the end of its connection.
const GOODBYE: Duration = Duration::from_secs(2);
/// Bytes of a cancel key: what protocol 3.0 has, and what newer ones allow.
const SHORT_KEY_BYTES: usize = 4;
const LONG_KEY_BYTES: usize = 32;
const FIRST_MINOR_WITH_LONG_KEYS: u16 = 2;

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
    let EndReason(word, text) = match run(stream, peer, &shared, drain, &mut account, begun).await {
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

/// How a client came to its startup packet.
struct Way<'a> {
    /// The host that it says it connects to.
    host: Option<String>,
    /// What its login can be bound to.
    end_point: Option<&'a [u8]>,
    /// Whether it is asked for its password in clear, in place of SCRAM.
    is_clear: bool,
}

async fn run(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    drain: watch::Receiver<Drain>,
    account: &mut Account,
    begun: Instant,
) -> Result<End, EndReason> {
    let open = Open::new("login");
    let identity = shared.certificate.current();
    let accepted = Box::pin(timeout(
        shared.login_limit,
        accept::accept(stream, &identity),
    ));
    let accepted = accepted.await.map_err(|_| silent())??;
    let place = Place {
        peer,
        shared,
        account,
        begun,
    };
    match accepted {
        Accepted::Session(client, startup) => {
            let way = Way {
                host: client.get_ref().1.server_name().map(str::to_owned),
                end_point: identity.end_point.as_deref(),
                is_clear: false,
            };
            place.session(client, startup, way, drain, open).await
        }
        Accepted::Cancel(request, waiting) => Ok(cancel(shared, &request, waiting).await),
        Accepted::Http(stream) => {
            drop(open);
            Box::pin(place.http(stream, drain)).await
        }
    }
}

fn silent() -> EndReason {
    let text = "it did not say in time what it wants";
    EndReason("login_timeout", text.to_owned())
}

async fn cancel(
    shared: &Shared,
    request: &CancelRequest,
    mut waiting: impl AsyncWrite + Unpin,
) -> End {
    shared.cancels.cancel(request).await;
    let _ = timeout(GOODBYE, waiting.shutdown()).await;
    End::Client { said: true }
}

/// A connection's place among the others.
struct Place<'a> {
    peer: SocketAddr,
    shared: &'a Arc<Shared>,
    account: &'a mut Account,
    begun: Instant,
}

impl Place<'_> {
    /// HTTP, until the connection ends or its WebSocket does.
    async fn http(
        self,
        stream: Box<dyn Duplex>,
        drain: watch::Receiver<Drain>,
    ) -> Result<End, EndReason> {
        let open = Open::new("http");
        let surroundings = Surroundings {
            shared: self.shared.clone(),
            address: self.peer.ip(),
            drain: drain.clone(),
        };
        let (mut client, host) = match http::serve(stream, surroundings).await {
            HttpOutcome::WebSocket(upgraded, host) => (websocket::stream(upgraded), host),
            HttpOutcome::Ended(Ok(())) => return Ok(End::Client { said: true }),
            HttpOutcome::Ended(Err(error)) => {
                return Err(EndReason("client_broke", error.to_string()));
            }
        };
        drop(open);
        let open = Open::new("login");
        let first = timeout(
            self.shared.login_limit,
            accept::within_websocket(&mut client),
        );
        match first.await.map_err(|_| silent())?? {
            FirstPacket::Startup(startup) => {
                let way = Way {
                    host: Some(host),
                    end_point: None,
                    is_clear: true,
                };
                self.session(client, startup, way, drain, open).await
            }
            FirstPacket::Cancel(request) => Ok(cancel(self.shared, &request, client).await),
            FirstPacket::SslRequest | FirstPacket::GssEncRequest => {
                unreachable!("they were answered")
            }
        }
    }

    /// Postgres's protocol, from the startup packet on.
    async fn session<C: AsyncRead + AsyncWrite + Unpin>(
        self,
        client: C,
        startup: Startup,
        way: Way<'_>,
        drain: watch::Receiver<Drain>,
        open: Open,
    ) -> Result<End, EndReason> {
        let Place {
            peer,
            shared,
            account,
            begun,
        } = self;
        match begin(client, startup, way, peer, shared, account).await? {
            Started::Direct(client, ready, schema, _registered, _place) => {
                let _open = serving(open, begun);
                let relay = Relay::new(client, ready.stream, ready.rest, schema);
                let (end, passed) = Box::pin(relay.run(drain)).await;
                account.passed = passed;
                Ok(end)
            }
            Started::Pooled(client, startup, login, _place) => {
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
}

/// From here on the client may send statements.
fn serving(open: Open, begun: Instant) -> Open {
    metrics::LOGIN_SECONDS.observe(begun.elapsed().as_secs_f64());
    drop(open);
    Open::new("session")
}

/// A connection whose client has logged in.
enum Started<C> {
    Direct(C, Ready, Arc<Schema>, Option<Registered>, crowd::Place),
    /// No server connection yet: it gets one for each transaction.
    Pooled(C, Startup, Login, crowd::Place),
}

/// Takes the connection to where the client may send statements, or is known and will be pooled.
async fn begin<C: AsyncRead + AsyncWrite + Unpin>(
    mut client: C,
    mut startup: Startup,
    way: Way<'_>,
    peer: SocketAddr,
    shared: &Shared,
    account: &mut Account,
) -> Result<Started<C>, EndReason> {
    let login = Box::pin(log_in(
        &mut client,
        &mut startup,
        way,
        peer,
        shared,
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
            return Err(EndReason(why, text));
        }
        Ok(Err(LoginError::Broken(error))) => {
            return Err(EndReason("client_broke", error.to_string()));
        }
        Err(_) => {
            return Err(EndReason(
                "login_timeout",
                "it did not log in in time".to_owned(),
            ));
        }
    };
    let place = match shared.crowd.enter(&login.endpoint, startup.user()) {
        Ok(place) => place,
        Err(fatal) => {
            let text = fatal.message.clone();
            refuse(&mut client, fatal).await;
            return Err(EndReason("crowded", text));
        }
    };
    if login.pooled {
        return Ok(Started::Pooled(client, startup, login, place));
    }
    let reached = reach(shared.ways(), &login.endpoint, &login.keys, &startup);
    let (ready, address) = match Box::pin(reached).await {
        Ok(reached) => reached,
        Err(Unreached { message, reason }) => {
            let _ = client.write_all(&message).await;
            let _ = client.shutdown().await;
            return Err(reason);
        }
    };
    let registered = greet(&mut client, &startup, &ready, address, shared)
        .await
        .map_err(|error| EndReason("client_broke", error.to_string()))?;
    let ready = Ready {
        greeting: Vec::new(),
        ..ready
    };
    let database = key::database_of(&startup).into();
    let schema = shared.pools.schemas.of(&login.endpoint, &database);
    Ok(Started::Direct(client, ready, schema, registered, place))
}

async fn log_in(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    startup: &mut Startup,
    way: Way<'_>,
    peer: SocketAddr,
    shared: &Shared,
    account: &mut Account,
) -> Result<Login, LoginError> {
    let wanted = login::endpoint_of(startup, way.host.as_deref(), &shared.domains);
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
        end_point: way.end_point,
        address: peer.ip(),
    };
    match way.is_clear {
        true => {
            let passwords = &shared.passwords;
            passwords
                .ask(client, wanted, startup.user(), &context)
                .await
        }
        false => login::log_in(client, wanted, startup.user(), &context).await,
    }
}

/// What the compute said, with a key of the proxy's own, and ReadyForQuery.
async fn greet(
    client: &mut (impl AsyncWrite + Unpin),
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
