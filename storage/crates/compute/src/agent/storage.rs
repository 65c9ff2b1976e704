//! The pageserver's management API as the agent uses it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use part_tls::{Dialer, HttpClient, HttpError, names};
use pg_types::{Lsn, Term};
use serde::Deserialize;
use token::OwnToken;

use super::{Agent, End};
use crate::bundle::{Bundle, BundleError};
use crate::spec::Spec;

/// The bundle waits until the pageserver has ingested the start LSN.
const BUNDLE_TIMEOUT: Duration = Duration::from_secs(30);
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Why the pageserver did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The pageserver knows a higher term (code `fenced`): the compute has to end. The field is the pageserver's
    /// message.
    #[error("a newer compute owns the timeline: {0}")]
    Fenced(String),
    /// The pageserver answered with another status than 2xx, or with something that cannot be read (then `status` is
    /// 200).
    #[error("the pageserver answered {status} to {what}: {message}")]
    Refused {
        /// What was asked for, in words.
        what: &'static str,
        /// The HTTP status.
        status: u16,
        /// For people: what the pageserver said.
        message: String,
    },
    /// No answer came: the pageserver is away, or took too long. May be asked again.
    #[error("the pageserver did not answer {what}: {source}")]
    Http {
        /// What was asked for, in words.
        what: &'static str,
        /// What became of the request.
        source: HttpError,
    },
    /// The bundle came and cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// What the watch over a timeline looks at.
#[derive(Clone, Debug, Deserialize)]
pub struct TimelineStatus {
    /// `active`, `stopped` or `broken`.
    pub state: String,
    /// Why the timeline is not active.
    #[serde(default)]
    pub reason: Option<String>,
    /// End of the last record that was ingested.
    pub last_record_lsn: Lsn,
    /// Bytes of all main forks at `last_record_lsn`.
    #[serde(default)]
    pub current_logical_size: Option<u64>,
    /// The highest term that the pageserver has been told of; 0 where the answer has none.
    #[serde(default)]
    pub max_term: u64,
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// What goes with a request.
enum Body {
    None,
    Json(serde_json::Value),
    Bytes(Vec<u8>),
}

/// One timeline of the pageserver.
#[derive(Clone)]
pub struct TimelineClient {
    client: HttpClient,
    /// Where the timeline is, before each path.
    base: String,
    token: OwnToken,
}

impl Agent {
    /// Shows this token to storage, and connects to it by this dialer.
    pub fn showing(mut self, token: OwnToken, dialer: Dialer) -> Agent {
        (self.token, self.dialer) = (token, dialer);
        self
    }

    /// A client for what watches a run, which ends when there is none.
    pub(super) fn timeline_client(&self) -> Result<TimelineClient, End> {
        self.client_of(&self.spec()).map_err(|error| {
            End::Lost(format!(
                "cannot set up the client of the pageserver: {error}"
            ))
        })
    }

    /// A client for the timeline and the pageserver of this spec.
    pub(super) fn client_of(&self, spec: &Spec) -> Result<TimelineClient, HttpError> {
        TimelineClient::new(spec, self.token.clone(), self.dialer.clone())
    }
}

impl TimelineClient {
    /// Of the timeline and the pageserver that a compute's spec names, which is connected to by `dialer` and shown `token`.
    ///
    /// # Errors
    ///
    /// The spec's address of the pageserver is none.
    pub fn new(spec: &Spec, token: OwnToken, dialer: Dialer) -> Result<TimelineClient, HttpError> {
        Ok(TimelineClient {
            client: HttpClient::new(dialer, names::PAGESERVER, &spec.pageserver.http)?,
            base: format!(
                "/v1/tenant/{}/timeline/{}",
                spec.tenant_id, spec.timeline_id
            ),
            token,
        })
    }

    /// The body of a good answer to a request, which is JSON where `body` is.
    async fn ask(
        &self,
        what: &'static str,
        (method, path): (Method, &str),
        body: Body,
        timeout: Duration,
    ) -> Result<Bytes, StorageError> {
        let mut headers = HeaderMap::new();
        telemetry::inject(&mut headers);
        if let Some(token) = self.token.authorization() {
            headers.insert(header::AUTHORIZATION, token);
        }
        let body = match body {
            Body::None => Bytes::new(),
            Body::Bytes(bytes) => bytes.into(),
            Body::Json(value) => {
                let json = header::HeaderValue::from_static("application/json");
                headers.insert(header::CONTENT_TYPE, json);
                value.to_string().into()
            }
        };
        let path = format!("{}{path}", self.base);
        let answer = self.client.send(method, &path, headers, body, timeout);
        let (status, body) = answer
            .await
            .map_err(|source| StorageError::Http { what, source })?;
        if status.is_success() {
            return Ok(body);
        }
        let error = serde_json::from_slice(&body).unwrap_or(ErrorBody {
            code: String::new(),
            message: String::from_utf8_lossy(&body).into_owned(),
        });
        if status == StatusCode::CONFLICT && error.code == "fenced" {
            return Err(StorageError::Fenced(error.message));
        }
        Err(StorageError::Refused {
            what,
            status: status.as_u16(),
            message: error.message,
        })
    }

    /// The small files at `lsn`, once it is ingested; raises the term on the pageserver.
    pub async fn bundle(&self, lsn: Lsn, term: Term) -> Result<Bundle, StorageError> {
        let path = format!("/bundle?lsn={lsn}&term={term}");
        let get = (Method::GET, path.as_str());
        let tar = self
            .ask("the bundle", get, Body::None, BUNDLE_TIMEOUT)
            .await?;
        // It may have gigabytes, of the states of prepared transactions.
        Ok(stalls::off_worker(move || Bundle::parse(&tar))?)
    }

    /// How the timeline is now.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the pageserver gives no answer within 2 seconds, or one that cannot be read.
    pub async fn status(&self) -> Result<TimelineStatus, StorageError> {
        let what = "the timeline's status";
        let body = self
            .ask(what, (Method::GET, ""), Body::None, STATUS_TIMEOUT)
            .await?;
        serde_json::from_slice(&body).map_err(|error| StorageError::Refused {
            what,
            status: 200,
            message: format!("its answer can't be read: {error}"),
        })
    }

    /// Says that the compute runs which started with `term` at `lsn`, so that this stays readable.
    pub async fn hold_start(&self, lsn: Lsn, term: Term) -> Result<(), StorageError> {
        let body = serde_json::json!({"term": term.0, "lsn": lsn});
        let (what, put) = ("the hold on the compute's start", (Method::PUT, "/start"));
        self.ask(what, put, Body::Json(body), STATUS_TIMEOUT)
            .await
            .map(drop)
    }

    /// Keeps auxiliary files for a start at exactly `lsn`; durable on return.
    pub async fn put_auxiliary(
        &self,
        lsn: Lsn,
        term: Term,
        tar: Vec<u8>,
    ) -> Result<(), StorageError> {
        let path = format!("/aux?lsn={lsn}&term={term}");
        let (what, put) = ("the auxiliary files", (Method::PUT, path.as_str()));
        self.ask(what, put, Body::Bytes(tar), UPLOAD_TIMEOUT)
            .await
            .map(drop)
    }
}
