//! A client of a part's HTTP API, with TLS or without.
//!
//! Each request has a connection of its own, so that it goes by the certificate that counts then, and to the program that
//! listens then. Redirects are not followed: they would carry tokens elsewhere.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::uri::InvalidUri;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use crate::dialer::Dialer;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The text is no address of an HTTP API.
    #[error("{0:?} is no address such as http://127.0.0.1:7601")]
    Address(String),
    /// The request can't be written: a path or a header that HTTP does not have.
    #[error("the request can't be written: {0}")]
    Request(#[from] http::Error),
    /// There is no connection to the part that is meant.
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    /// The connection broke, or the other side speaks no HTTP. A part that does not admit this program says so here.
    #[error("no answer: {0}")]
    Answer(#[from] hyper::Error),
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// Sends requests to one part.
#[derive(Clone, Debug)]
pub struct HttpClient {
    dialer: Dialer,
    part: &'static str,
    /// `HOST:PORT`.
    address: String,
    /// Before each path; without a slash at its end.
    prefix: String,
}

/// Ends what keeps a connection going.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HttpClient {
    /// Of the `part` (`names`) at `base`, such as `http://127.0.0.1:7601`. Whether there is TLS, the dialer says, and not
    /// the scheme: an address in a file can't take it away.
    ///
    /// # Errors
    ///
    /// [`HttpError::Address`].
    pub fn new(dialer: Dialer, part: &'static str, base: &str) -> Result<HttpClient, HttpError> {
        let wrong = || HttpError::Address(base.to_owned());
        let uri: Uri = base.parse().map_err(|_: InvalidUri| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let port = match (authority.port_u16(), uri.scheme_str()) {
            (Some(port), _) => port,
            (None, Some("https")) => 443,
            (None, _) => 80,
        };
        Ok(HttpClient {
            dialer,
            part,
            address: format!("{}:{port}", authority.host()),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Sends a request and reads the answer, all within `timeout`. `path` begins with a slash, and may have a query.
    ///
    /// # Errors
    ///
    /// There is no answer; one of another status than 200 is an answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(header::HOST, &self.address)
            .body(Full::new(body))?;
        request.headers_mut().extend(headers);
        tokio::time::timeout(timeout, self.exchange(request))
            .await
            .map_err(|_| HttpError::Timeout(timeout))?
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let stream = self.dialer.connect(&self.address, self.part).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let _connection = Connection(tokio::spawn(async move {
            // What goes wrong is the answer's error, too.
            let _ = connection.await;
        }));
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }
}
