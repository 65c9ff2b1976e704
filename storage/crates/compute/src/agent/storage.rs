//! The pageserver's management API as the agent uses it.

use std::time::Duration;

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
        source: reqwest::Error,
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

/// One timeline of the pageserver.
#[derive(Clone)]
pub struct TimelineClient {
    client: reqwest::Client,
    base: String,
    token: OwnToken,
}

impl Agent {
    /// A client for what watches a run, which ends when there is none.
    pub(super) fn timeline_client(&self) -> Result<TimelineClient, End> {
        TimelineClient::new(&self.spec(), self.token.clone()).map_err(|error| {
            End::Lost(format!(
                "cannot set up the client of the pageserver: {error}"
            ))
        })
    }
}

impl TimelineClient {
    /// Of the timeline and the pageserver that a compute's spec names, which is shown `token`.
    pub fn new(spec: &Spec, token: OwnToken) -> reqwest::Result<TimelineClient> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(STATUS_TIMEOUT)
            // A redirect would carry the token elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let base = format!(
            "{}/v1/tenant/{}/timeline/{}",
            spec.pageserver.http.trim_end_matches('/'),
            spec.tenant_id,
            spec.timeline_id
        );
        Ok(TimelineClient {
            client,
            base,
            token,
        })
    }

    fn request(
        &self,
        method: reqwest::Method,
        path: &str,
        timeout: Duration,
    ) -> reqwest::RequestBuilder {
        let mut headers = reqwest::header::HeaderMap::new();
        telemetry::inject(&mut headers);
        if let Some(token) = self.token.authorization() {
            headers.insert(reqwest::header::AUTHORIZATION, token);
        }
        self.client
            .request(method, format!("{}{path}", self.base))
            .headers(headers)
            .timeout(timeout)
    }

    async fn answer(
        &self,
        what: &'static str,
        request: reqwest::RequestBuilder,
    ) -> Result<Vec<u8>, StorageError> {
        let http = |source| StorageError::Http { what, source };
        let response = request.send().await.map_err(http)?;
        let status = response.status();
        let body = response.bytes().await.map_err(http)?;
        if status.is_success() {
            return Ok(body.into());
        }
        let error = serde_json::from_slice(&body).unwrap_or(ErrorBody {
            code: String::new(),
            message: String::from_utf8_lossy(&body).into_owned(),
        });
        if status == reqwest::StatusCode::CONFLICT && error.code == "fenced" {
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
        let tar = self
            .answer(
                "the bundle",
                self.request(reqwest::Method::GET, &path, BUNDLE_TIMEOUT),
            )
            .await?;
        Ok(Bundle::parse(&tar)?)
    }

    /// How the timeline is now.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the pageserver gives no answer within 2 seconds, or one that cannot be read.
    pub async fn status(&self) -> Result<TimelineStatus, StorageError> {
        let what = "the timeline's status";
        let body = self
            .answer(what, self.request(reqwest::Method::GET, "", STATUS_TIMEOUT))
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
        let request = self
            .request(reqwest::Method::PUT, "/start", STATUS_TIMEOUT)
            .json(&body);
        self.answer("the hold on the compute's start", request)
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
        let request = self
            .request(reqwest::Method::PUT, &path, UPLOAD_TIMEOUT)
            .body(tar);
        self.answer("the auxiliary files", request).await.map(drop)
    }
}
