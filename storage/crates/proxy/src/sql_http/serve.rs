//! A connection of HTTP/1.1: its requests one after the other, until it ends or becomes a WebSocket.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::headers::ALLOWED;
use super::run::{self, Account, Answered, Surroundings};
use super::websocket;
use crate::metrics;
use crate::relay::Drain;

/// Where SQL is posted to, and where WebSockets begin.
const SQL: &str = "/sql";
const WEBSOCKET: &str = "/v2";
/// Headers of a request together; a connection string is the longest.
const MOST_HEAD_BYTES: usize = 32 << 10;
/// Browsers ask so many seconds later again whether a page may.
const PREFLIGHT_SECONDS: &str = "86400";

/// What became of a connection.
pub enum HttpOutcome {
    /// The connection ended; the error says why, if it broke.
    Ended(Result<(), hyper::Error>),
    /// A WebSocket at the host of this name.
    WebSocket(Upgraded, String),
}

/// A WebSocket that was agreed on, and its host.
type Agreed = Arc<Mutex<Option<(OnUpgrade, String)>>>;

/// Serves the connection's requests.
pub async fn serve<S>(stream: S, surroundings: Surroundings) -> HttpOutcome
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let agreed = Agreed::default();
    let mut drain = surroundings.drain.clone();
    let limit = surroundings.shared.login_limit;
    let surroundings = Arc::new(surroundings);
    let service = service_fn(|request| {
        let (surroundings, agreed) = (surroundings.clone(), agreed.clone());
        async move { Ok::<_, Infallible>(respond(request, &surroundings, &agreed).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The same for the pause between two requests.
        .header_read_timeout(limit)
        .max_buf_size(MOST_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let mut finishing = false;
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended,
            wanted = wanted(&mut drain, finishing) => match wanted {
                Drain::All => return HttpOutcome::Ended(Ok(())),
                _ => {
                    finishing = true;
                    connection.as_mut().graceful_shutdown();
                }
            },
        }
    };
    let agreed = agreed.lock().take();
    match (ended, agreed) {
        (Ok(()), Some((upgrade, host))) => match upgrade.await {
            Ok(upgraded) => HttpOutcome::WebSocket(upgraded, host),
            Err(error) => HttpOutcome::Ended(Err(error)),
        },
        (ended, _) => HttpOutcome::Ended(ended),
    }
}

/// Waits until the process wants the connection to finish, and then until it wants it to end.
async fn wanted(drain: &mut watch::Receiver<Drain>, finishing: bool) -> Drain {
    let least = if finishing { Drain::All } else { Drain::Idle };
    let wanted = drain.wait_for(|drain| *drain >= least).await;
    let wanted = wanted.map(|wanted| *wanted);
    match wanted {
        Ok(wanted) => wanted,
        // Nobody is left who could want it.
        Err(_) => std::future::pending().await,
    }
}

async fn respond(
    request: Request<Incoming>,
    surroundings: &Surroundings,
    agreed: &Agreed,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    match (path, request.method()) {
        (SQL, &Method::POST) => sql(request, surroundings).await,
        (SQL, &Method::OPTIONS) => preflight(),
        (SQL, _) => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "SQL is posted\n");
            let allowed = HeaderValue::from_static("POST, OPTIONS");
            response.headers_mut().insert(header::ALLOW, allowed);
            response
        }
        (WEBSOCKET, &Method::GET) => websocket_of(request, agreed),
        _ => text(
            StatusCode::NOT_FOUND,
            "here are /sql, for POST, and /v2, for WebSockets\n",
        ),
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// Any page may ask: what lets it in is a password, which no browser adds by itself, and no cookie is known here.
fn for_any_origin(response: &mut Response<Full<Bytes>>) {
    let any = HeaderValue::from_static("*");
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
}

fn preflight() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    for_any_origin(&mut response);
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

async fn sql(request: Request<Incoming>, surroundings: &Surroundings) -> Response<Full<Bytes>> {
    let begun = Instant::now();
    let mut account = Account::default();
    let Answered { is_ok, json, held } = run::answer(request, surroundings, &mut account).await;
    let seconds = begun.elapsed().as_secs_f64();
    let result = if is_ok { "ok" } else { "error" };
    metrics::HTTP_REQUESTS.with_label_values(&[result]).inc();
    metrics::HTTP_SECONDS.observe(seconds);
    // What strangers have chosen is written with its quotes and escapes.
    tracing::info!(
        client = %surroundings.address,
        endpoint = account.endpoint,
        role = account.role.as_ref().map(tracing::field::debug),
        code = account.code.as_ref().map(tracing::field::debug),
        bytes_to_client = json.len(),
        seconds,
        "request answered"
    );
    // The memory is counted until the answer has gone.
    let json = Bytes::from_owner(Held { json, _held: held });
    let mut response = Response::new(Full::from(json));
    if !is_ok {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    for_any_origin(&mut response);
    for (name, value) in [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// An answer, and the memory that it holds.
struct Held {
    json: Bytes,
    _held: crate::memory::Taken,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

fn websocket_of(mut request: Request<Incoming>, agreed: &Agreed) -> Response<Full<Bytes>> {
    let Some(accept) = websocket::accept(request.headers()) else {
        return text(
            StatusCode::BAD_REQUEST,
            "here are WebSockets only, of version 13\n",
        );
    };
    let host = websocket::host(request.headers());
    let upgrade = hyper::upgrade::on(&mut request);
    *agreed.lock() = Some((upgrade, host));
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in [
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ] {
        response.headers_mut().insert(name, value);
    }
    response
}
