//! How requests reach a remote store: HTTP/1.1 over pooled connections, with a deadline for every part of an
//! exchange.
//!
//! Invariant: nothing waits for ever. Connecting, the answer's head (with time for what is sent before it) and every
//! further piece of the answer each have a limit, so a peer that dies without a word shows as an error, which the
//! callers repeat. No limit covers a whole exchange: a large layer over a thin line is slow, not broken.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::{Connect, HttpConnector as TcpConnector};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use tokio::time::{Instant, Sleep};

/// Limits of an exchange's parts.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub connect: Duration,
    /// Longest silence: before the head of an answer, and between its pieces.
    pub silence: Duration,
    /// Slowest line that is waited for: so many bytes a second of what is sent add to the time for the head.
    pub slowest_bytes_per_second: u64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            connect: Duration::from_secs(5),
            silence: Duration::from_secs(30),
            slowest_bytes_per_second: 512 << 10,
        }
    }
}

/// Makes clients for `object_store`.
#[derive(Debug, Default)]
pub struct Connector {
    pub patience: Patience,
    /// Over TLS, trusting the certificates the system trusts.
    pub tls: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut tcp = TcpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.patience.connect));
        if !self.tls {
            // It refuses addresses that ask for TLS.
            return Ok(HttpClient::new(Service::new(tcp, self.patience)));
        }
        tcp.enforce_http(false);
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(no_certificates)?;
        // Where credentials come from a service of the machine, that one speaks plain HTTP and `object_store` says
        // so.
        let http_too = options.get_config_value(&ClientConfigKey::AllowHttp);
        let tls = match http_too.as_deref() {
            Some("true") => tls.https_or_http(),
            _ => tls.https_only(),
        };
        let tls = tls.enable_http1().wrap_connector(tcp);
        Ok(HttpClient::new(Service::new(tls, self.patience)))
    }
}

fn no_certificates(source: std::io::Error) -> object_store::Error {
    let what = "there are no certificates to trust on this system";
    let remedy = "install ca-certificates, or name a file of them in SSL_CERT_FILE";
    object_store::Error::Generic {
        store: "S3",
        source: format!("{what} ({source}); {remedy}").into(),
    }
}

struct Service<C> {
    client: Client<C, HttpRequestBody>,
    patience: Patience,
}

impl<C: Connect + Clone> Service<C> {
    fn new(connector: C, patience: Patience) -> Service<C> {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Service { client, patience }
    }
}

impl<C> fmt::Debug for Service<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({:?})", self.patience)
    }
}

#[async_trait]
impl<C: Connect + Clone + Send + Sync + 'static> HttpService for Service<C> {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let sending = request.body().content_length() as u64;
        let seconds = sending / self.patience.slowest_bytes_per_second.max(1);
        let limit = self.patience.connect + self.patience.silence + Duration::from_secs(seconds);
        let answer = tokio::time::timeout(limit, self.client.request(request)).await;
        let answer = answer.map_err(|_| {
            let silence = Silence("the answer did not begin", limit);
            HttpError::new(HttpErrorKind::Timeout, silence)
        })?;
        let (head, body) = answer.map_err(of_request)?.into_parts();
        let body = Patient::new(body.map_err(of_answer).boxed(), self.patience.silence);
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0} within {1:?}")]
struct Silence(&'static str, Duration);

/// What became of a request that failed decides whether it may be repeated even if repeating is not the same as doing
/// it once.
fn of_request(error: ClientError) -> HttpError {
    let kind = match find_hyper(&error) {
        _ if error.is_connect() => HttpErrorKind::Connect,
        // A pooled connection that was closed before the request went out.
        Some(cause) if cause.is_canceled() || cause.is_closed() => HttpErrorKind::Request,
        Some(cause) if cause.is_timeout() => HttpErrorKind::Timeout,
        _ => HttpErrorKind::Interrupted,
    };
    HttpError::new(kind, Chain::of(&error))
}

fn of_answer(error: hyper::Error) -> HttpError {
    HttpError::new(HttpErrorKind::Interrupted, Chain::of(&error))
}

fn find_hyper<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a hyper::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// An error with all its causes in one line, for callers that print an error without its causes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Chain(String);

impl Chain {
    fn of(error: &dyn Error) -> Chain {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        Chain(text)
    }
}

type Inner = http_body_util::combinators::BoxBody<Bytes, HttpError>;

/// A body of which every piece comes in time or is an error.
struct Patient {
    inner: Inner,
    silence: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl Patient {
    fn new(inner: Inner, silence: Duration) -> Patient {
        Patient {
            inner,
            silence,
            deadline: Box::pin(tokio::time::sleep(silence)),
        }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            this.deadline.as_mut().reset(Instant::now() + this.silence);
            return Poll::Ready(frame);
        }
        if this.deadline.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let silence = Silence("the answer did not go on", this.silence);
        Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, silence))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
