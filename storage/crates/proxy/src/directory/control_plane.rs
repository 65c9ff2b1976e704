//! A directory that is the control plane, asked by HTTP.
//!
//! An answer serves the connections of the next [`FRESH`]; connections that come together share one question. While the
//! control plane does not answer, what it said of an endpoint lately goes on to hold: the compute has the last word on
//! every login, so an old answer lets nobody in whom the compute refuses.
//!
//! Strangers can make the proxy ask, since it asks before a client has proven anything. Questions about names that the
//! control plane has not confirmed wait for their turn among themselves, [`STRANGE_AT_A_TIME`] at a time, and take no
//! turn from known endpoints. How long an answer takes tells a stranger whether somebody asked for the same name just
//! before, and nothing of roles or passwords.

use std::collections::HashMap;
use std::error::Error as _;
use std::iter::successors;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use pg_protocol::endpoint::EndpointName;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::entry::{self, Entry};
use super::{Directory, DirectoryError, Endpoint, State};

/// An answer is as good as a new one for so long.
const FRESH: Duration = Duration::from_millis(50);
/// While the control plane does not answer, what it said of an endpoint holds for so long.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// A question is given up after so long; a wake after the time that clients wait for it.
const QUESTION: Duration = Duration::from_secs(5);
/// Of a wake's time, what is left for the control plane to say why it gives up.
const REASON: Duration = Duration::from_secs(2);
/// The pause before a control plane that is not there is asked for a wake again.
const AGAIN: Duration = Duration::from_millis(200);
const KNOWN_AT_A_TIME: usize = 16;
const STRANGE_AT_A_TIME: usize = 4;
/// Answers in memory, a few hundred bytes each, and more with many roles.
const MOST_ANSWERS: usize = 20_000;
/// No answer is longer: 100 bytes a role, and some for its name.
const MOST_ANSWER_BYTES: usize = 8 << 20;

type Found = Option<Arc<Endpoint>>;
type Flight = Shared<BoxFuture<'static, Result<Found, DirectoryError>>>;

struct Answer {
    at: Instant,
    found: Found,
}

/// The control plane's own error.
#[derive(Deserialize)]
struct ErrorBody {
    message: String,
}

/// Asks the control plane, and remembers its answers.
#[derive(Clone)]
pub struct ControlPlane {
    asked: Arc<Asked>,
}

struct Asked {
    client: reqwest::Client,
    /// Up to the name of the endpoint.
    base: String,
    authorization: HeaderValue,
    wake_limit: Duration,
    answers: Mutex<HashMap<EndpointName, Answer>>,
    flights: Mutex<HashMap<EndpointName, Flight>>,
    known: Semaphore,
    strange: Semaphore,
}

impl ControlPlane {
    /// `url`: of the control plane, such as `http://127.0.0.1:7400`. `token`: what it knows the proxy by. `wake_limit`: how
    /// long a client waits for a compute.
    pub fn new(url: &str, token: &str, wake_limit: Duration) -> anyhow::Result<ControlPlane> {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| anyhow::anyhow!("the control plane's token has to be printable ASCII"))?;
        authorization.set_sensitive(true);
        let client = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(QUESTION)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(ControlPlane {
            asked: Arc::new(Asked {
                client,
                base: format!("{}/internal/proxy/endpoints/", url.trim_end_matches('/')),
                authorization,
                wake_limit,
                answers: Mutex::default(),
                flights: Mutex::default(),
                known: Semaphore::new(KNOWN_AT_A_TIME),
                strange: Semaphore::new(STRANGE_AT_A_TIME),
            }),
        })
    }

    /// The question that is under way about the endpoint, or a new one. It goes on when those who asked have gone.
    fn flight(&self, name: &EndpointName) -> Flight {
        let mut flights = self.asked.flights.lock();
        if let Some(flight) = flights.get(name) {
            return flight.clone();
        }
        let (asked, key) = (self.asked.clone(), name.clone());
        let task = tokio::spawn(async move {
            let outcome = asked.ask(&key).await;
            asked.flights.lock().remove(&key);
            outcome
        });
        let (asked, key) = (self.asked.clone(), name.clone());
        let flight: Flight = async move {
            task.await.unwrap_or_else(|error| {
                asked.flights.lock().remove(&key);
                Err(DirectoryError(format!("the question broke off: {error}")))
            })
        }
        .boxed()
        .shared();
        flights.insert(name.clone(), flight.clone());
        flight
    }
}

impl Asked {
    fn request(&self, method: Method, path: String, limit: Duration) -> RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.base))
            .header(AUTHORIZATION, self.authorization.clone())
            .timeout(limit)
    }

    /// What is in memory of the endpoint and no older than `age`.
    fn remembered(&self, name: &EndpointName, age: Duration) -> Option<Found> {
        let answers = self.answers.lock();
        let answer = answers.get(name)?;
        (answer.at.elapsed() < age).then(|| answer.found.clone())
    }

    fn remember(&self, name: &EndpointName, found: Found) {
        let mut answers = self.answers.lock();
        if answers.len() >= MOST_ANSWERS && !answers.contains_key(name) {
            // Names that do not exist serve those who come at the same moment, and nobody later.
            answers.retain(|_, answer| {
                let age = answer.at.elapsed();
                age < FRESH || answer.found.is_some() && age < KEPT
            });
            if answers.len() >= MOST_ANSWERS {
                answers.clear();
            }
        }
        let at = Instant::now();
        answers.insert(name.clone(), Answer { at, found });
    }

    async fn ask(&self, name: &EndpointName) -> Result<Found, DirectoryError> {
        let known = self.remembered(name, KEPT).flatten();
        let turns = match known {
            Some(_) => &self.known,
            None => &self.strange,
        };
        let turn = turns.acquire().await;
        let _turn = turn.map_err(|error| DirectoryError(error.to_string()))?;
        let request = self.request(Method::GET, name.to_string(), QUESTION);
        match self.found(request).await {
            Ok(found) => {
                self.remember(name, found.clone());
                Ok(found)
            }
            Err(error) if known.is_some() => {
                let error = DirectoryError::from(error);
                tracing::warn!(endpoint = %name, %error, "the control plane does not answer; what it said before holds");
                Ok(known)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn found(&self, request: RequestBuilder) -> Result<Found, Unanswered> {
        let mut response = request.send().await?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await? {
            body.extend_from_slice(&piece);
            if body.len() > MOST_ANSWER_BYTES {
                return Err(Unanswered::Otherwise("its answer is too long".to_owned()));
            }
        }
        if !status.is_success() {
            let said = serde_json::from_slice::<ErrorBody>(&body).map(|body| body.message);
            let said = said.unwrap_or_else(|_| "no reason".to_owned());
            return Err(Unanswered::Otherwise(format!("{status}: {said}")));
        }
        entry::parse::<Option<Entry>>(&body)
            .and_then(|entry| entry.map(Entry::endpoint).transpose())
            .map(|endpoint| endpoint.map(Arc::new))
            .map_err(|error| Unanswered::Otherwise(format!("its answer makes no sense: {error:#}")))
    }
}

/// Why the control plane has not said what it was asked.
enum Unanswered {
    /// There is no connection: the question has not reached it.
    Away(String),
    Otherwise(String),
}

impl From<reqwest::Error> for Unanswered {
    fn from(error: reqwest::Error) -> Unanswered {
        // The text of an HTTP client's error alone does not say why there is no connection.
        let error = error.without_url();
        let causes = successors(error.source(), |cause: &&dyn std::error::Error| {
            (*cause).source()
        });
        let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
        match error.is_connect() {
            true => Unanswered::Away(text),
            false => Unanswered::Otherwise(text),
        }
    }
}

impl From<Unanswered> for DirectoryError {
    fn from(unanswered: Unanswered) -> DirectoryError {
        match unanswered {
            Unanswered::Away(text) => {
                DirectoryError(format!("no connection to the control plane: {text}"))
            }
            Unanswered::Otherwise(text) => DirectoryError(format!("the control plane: {text}")),
        }
    }
}

#[async_trait]
impl Directory for ControlPlane {
    async fn endpoint(&self, name: &EndpointName) -> Result<Option<Arc<Endpoint>>, DirectoryError> {
        match self.asked.remembered(name, FRESH) {
            Some(found) => Ok(found),
            None => self.flight(name).await,
        }
    }

    async fn endpoint_now(
        &self,
        name: &EndpointName,
    ) -> Result<Option<Arc<Endpoint>>, DirectoryError> {
        self.asked.ask(name).await
    }

    async fn wake(&self, name: &EndpointName) -> Result<(), DirectoryError> {
        let limit = self.asked.wake_limit;
        let begun = Instant::now();
        loop {
            // The control plane gives up before the proxy does, and says why.
            let left = limit.saturating_sub(begun.elapsed());
            let seconds = left.saturating_sub(REASON).as_secs().max(1);
            let path = format!("{name}/wake?seconds={seconds}");
            let request = self.asked.request(Method::POST, path, left);
            match self.asked.found(request).await {
                Ok(found) => {
                    let runs = matches!(&found, Some(endpoint) if matches!(endpoint.state, State::Running(_)));
                    self.asked.remember(name, found);
                    return match runs {
                        true => Ok(()),
                        false => Err(DirectoryError(format!(
                            "the control plane has not started endpoint {name}: it is disabled, or has gone"
                        ))),
                    };
                }
                // It may just be starting again, as after a crash.
                Err(Unanswered::Away(reason)) if left > AGAIN => {
                    tracing::warn!(endpoint = %name, reason, "no connection to the control plane for a wake; tries again");
                    tokio::time::sleep(AGAIN).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
