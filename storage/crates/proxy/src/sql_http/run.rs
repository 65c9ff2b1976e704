//! One request of SQL, from its login to its answer.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::{HeaderMap, Request};
use pg_protocol::messages::Fatal;
use pg_protocol::startup::Startup;
use sql_over_http::answer::{self, Style};
use sql_over_http::request::{self, Body};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::client::{Client, Failure};
use super::headers::{self, Asked, Transaction};
use crate::crowd::Place;
use crate::login::{self, Context, Login};
use crate::memory::Taken;
use crate::pooled::serve::Context as PoolContext;
use crate::pooled::session::Session;
use crate::relay::Drain;
use crate::shared::Shared;
use crate::throttle::LONGEST_WAIT;

/// No body is longer.
const MOST_BODY_BYTES: usize = 64 << 20;
/// A body, what it becomes, which is longest for many short parameters, and the message that a query is sent in.
const COPIES: usize = 4;
/// Memory is taken for so many bytes of a body at once.
const STEP_BYTES: usize = 64 << 10;
/// Bytes between the request and its session.
const PIPE_BYTES: usize = 64 << 10;
/// Bytes of the key that cancels the session's statement. Nobody but the request learns it.
const KEY_BYTES: usize = 32;

/// What a request was, for the log and the metrics.
#[derive(Default)]
pub struct Account {
    /// The endpoint as it was asked for.
    pub endpoint: Option<String>,
    /// The role that it was asked for.
    pub role: Option<String>,
    /// SQLSTATE of the error that it was answered with.
    pub code: Option<String>,
}

/// JSON, and the memory that it holds until it is sent.
pub struct Answered {
    /// Whether the statements did what they were to do.
    pub is_ok: bool,
    /// The results, or the error.
    pub json: Bytes,
    /// Given back when the JSON has gone.
    pub held: Taken,
}

/// What requests need of their connection.
pub struct Surroundings {
    /// What all connections have in common.
    pub shared: Arc<Shared>,
    /// The client's address.
    pub address: IpAddr,
    /// What the process wants of its sessions.
    pub drain: watch::Receiver<Drain>,
}

/// What is to be run, and for whom.
struct Work {
    startup: Startup,
    login: Login,
    place: Place,
    body: Body,
    style: Style,
    transaction: Transaction,
}

/// Answers a request. When the caller stops waiting, statements are cancelled.
pub async fn answer(
    request: Request<Incoming>,
    surroundings: &Surroundings,
    account: &mut Account,
) -> Answered {
    let failure = match run(request, surroundings, account).await {
        Ok((json, held)) => {
            return Answered {
                is_ok: true,
                json: json.into(),
                held,
            };
        }
        Err(failure) => failure,
    };
    let (json, code) = match &failure {
        Failure::Own(fatal) => (answer::fatal(fatal), fatal.sqlstate.as_bytes()),
        Failure::Said(body) => (
            answer::error(body),
            answer::field(body, b'C').unwrap_or_default(),
        ),
    };
    account.code = Some(String::from_utf8_lossy(code).into_owned());
    Answered {
        is_ok: false,
        json: json.into(),
        held: surroundings.shared.memory.begin(),
    }
}

async fn run(
    request: Request<Incoming>,
    surroundings: &Surroundings,
    account: &mut Account,
) -> Result<(Vec<u8>, Taken), Failure> {
    let shared = &surroundings.shared;
    let (parts, incoming) = request.into_parts();
    let Asked {
        address,
        style,
        transaction,
    } = headers::read(&parts.headers)?;
    let mut startup = address.startup;
    account.role = Some(startup.user().to_owned());
    let wanted = login::endpoint_of(&mut startup, Some(&address.host), &shared.domains)?;
    account.role = Some(startup.user().to_owned());
    account.endpoint = Some(wanted.endpoint.as_str().to_owned());
    let context = Context {
        directory: &shared.directory,
        throttle: &shared.throttle,
        mock: &shared.mock,
        end_point: None,
        address: surroundings.address,
    };
    let role = startup.user().to_owned();
    let login = shared
        .passwords
        .log_in(wanted, &role, &address.password, &context);
    let login = timeout(shared.login_limit + LONGEST_WAIT, login)
        .await
        .map_err(|_| Fatal::new("57014", "the password could not be checked in time"))??;
    drop(address.password);
    let place = shared.crowd.enter(&login.endpoint, &role)?;

    let mut held = shared.memory.begin();
    let body = timeout(
        shared.request_limit,
        read(&parts.headers, incoming, &mut held),
    );
    let read = body.await.map_err(|_| late(shared, "did not come"))??;
    let body = request::parse(&read)?;
    drop(read);
    let work = Work {
        startup,
        login,
        place,
        body,
        style,
        transaction,
    };
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(in_session(
        work,
        shared.clone(),
        surroundings.drain.clone(),
        sender,
        held,
    ));
    receiver
        .await
        .unwrap_or_else(|_| Err(Fatal::new("XX000", "the request broke off").into()))
}

fn late(shared: &Shared, what: &str) -> Fatal {
    let limit = shared.request_limit;
    let text = format!("the request {what} within {limit:?}, the proxy's limit for HTTP");
    Fatal::new("57014", text).with_hint("Connect by Postgres's protocol for what takes longer.")
}

/// Reads a body, of a client that has logged in.
async fn read(
    headers: &HeaderMap,
    mut incoming: Incoming,
    held: &mut Taken,
) -> Result<Bytes, Fatal> {
    let too_long = || {
        let text = format!(
            "the request's body is longer than {} MiB",
            MOST_BODY_BYTES >> 20
        );
        Fatal::new("54000", text)
            .with_hint("Send less at a time, or connect by Postgres's protocol.")
    };
    let said = headers.get("content-length").map(|text| text.to_str());
    let said = said.and_then(|text| text.ok()?.parse::<usize>().ok());
    if said.is_some_and(|bytes| bytes > MOST_BODY_BYTES) {
        return Err(too_long());
    }
    let mut body = BytesMut::new();
    let mut room = 0;
    while !incoming.is_end_stream() {
        let Some(frame) = incoming.frame().await else {
            break;
        };
        let frame = frame.map_err(|error| Fatal::new("08006", error.to_string()))?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        let bytes = body.len() + piece.len();
        if bytes > MOST_BODY_BYTES {
            return Err(too_long());
        }
        if bytes > room {
            room = bytes + STEP_BYTES;
            held.hold(COPIES * room)?;
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

type Outcome = Result<(Vec<u8>, Taken), Failure>;

/// Runs the statements in a pooled session, and the session to its end, whether or not anybody waits for the answer.
async fn in_session(
    work: Work,
    shared: Arc<Shared>,
    drain: watch::Receiver<Drain>,
    mut sender: oneshot::Sender<Outcome>,
    held: Taken,
) {
    let Work {
        startup,
        login,
        place: _place,
        body,
        style,
        transaction,
    } = work;
    let context = PoolContext {
        pools: &shared.pools,
        ways: shared.ways(),
        cancels: &shared.cancels,
    };
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let session = async {
        // What went wrong was written to the other end.
        if let Ok(mut session) = Session::begin(far, &startup, login, KEY_BYTES, context).await {
            let _ = session.run(drain).await;
        }
    };
    let statements = async {
        let mut client = tokio::select! {
            client = Client::begin(near, &shared.memory) => match client {
                Ok(client) => client,
                Err(failure) => {
                    let _ = sender.send(Err(failure));
                    return;
                }
            },
            () = sender.closed() => return,
        };
        let cancel = client.cancel.clone();
        let done = async {
            match &body {
                Body::One(query) => client.one(query, style).await,
                Body::Batch(queries) => client.batch(queries, style, transaction).await,
            }
        };
        let done = tokio::select! {
            done = done => done,
            () = tokio::time::sleep(shared.request_limit) => Err(late(&shared, "was not done").into()),
            () = sender.closed() => Err(Fatal::new("57014", "nobody waits").into()),
        };
        drop((body, held));
        match done {
            Ok(()) => {
                let _ = sender.send(Ok(client.end().await));
            }
            Err(failure) => {
                if let Failure::Own(_) = &failure {
                    // Something may still run. The request to cancel is answered when Postgres has it.
                    shared.cancels.cancel(&cancel).await;
                }
                let _ = sender.send(Err(failure));
            }
        }
    };
    tokio::join!(Box::pin(session), Box::pin(statements));
}
