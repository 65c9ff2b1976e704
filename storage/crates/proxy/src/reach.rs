//! The way to the compute of an endpoint: found in the directory, woken where it sleeps, and waited for where it starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_protocol::endpoint::EndpointName;
use pg_protocol::messages::Fatal;
use pg_protocol::scram::LoginKeys;
use pg_protocol::startup::Startup;

use crate::compute::{self, ComputeError, Ready};
use crate::directory::{Directory, Endpoint, State};
use crate::end_reason::EndReason;
use crate::wake::Wakes;

/// The pause before a compute that is not there is tried again, which doubles from the first to the last of these: one
/// that starts may be there in a moment.
const AGAIN: Duration = Duration::from_millis(5);
const MOST_AGAIN: Duration = Duration::from_millis(100);

/// What the client is told, and why.
pub struct Unreached {
    /// An ErrorResponse.
    pub message: Vec<u8>,
    /// For metrics and the log.
    pub reason: EndReason,
}

impl Unreached {
    fn new(word: &'static str, fatal: Fatal, reason: String) -> Unreached {
        Unreached {
            message: fatal.to_message(),
            reason: EndReason(word, reason),
        }
    }
}

/// What finding a compute takes.
#[derive(Clone, Copy)]
pub struct Ways<'a> {
    /// Knows where computes are.
    pub directory: &'a Arc<dyn Directory>,
    /// The wakes that are under way.
    pub wakes: &'a Wakes,
    /// How long a client waits for a compute.
    pub limit: Duration,
}

/// A connection to the compute of the endpoint, logged in with a startup packet and the keys of its role, and the
/// compute's address.
///
/// # Errors
/// The endpoint is disabled, its compute cannot be reached in time, or it refuses the login.
pub async fn reach(
    ways: Ways<'_>,
    name: &EndpointName,
    keys: &LoginKeys,
    startup: &Startup,
) -> Result<(Ready, String), Unreached> {
    let deadline = Instant::now() + ways.limit;
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
    let mut pause = AGAIN;
    loop {
        let mut found = ways.directory.endpoint(name).await;
        let runs_never = |endpoint: &Option<Arc<Endpoint>>| {
            endpoint
                .as_ref()
                .is_none_or(|endpoint| endpoint.state == State::Disabled)
        };
        if found.as_ref().is_ok_and(runs_never) {
            // Somebody may have enabled it just before this client came.
            found = ways.directory.endpoint_now(name).await;
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
                    tokio::time::sleep(MOST_AGAIN).await;
                }
                let left = deadline.saturating_duration_since(Instant::now());
                let outcome = ways.wakes.wake(ways.directory, name, left).await;
                outcome.map_err(|error| unavailable(error.to_string()))?;
                woken = true;
                "it is suspended again".to_owned()
            }
            State::Running(address) => match compute::connect(&address, startup, keys).await {
                Ok(ready) => return Ok((ready, address)),
                Err(ComputeError::Refused(message)) => {
                    let text = "the compute refused the login".to_owned();
                    let reason = EndReason("compute_refused", text);
                    return Err(Unreached { message, reason });
                }
                Err(ComputeError::Untrusted(reason)) => {
                    tracing::error!(endpoint = %name, address, reason, "what answers is not the endpoint's compute");
                    return Err(unavailable(reason));
                }
                Err(ComputeError::Away(reason)) => {
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(MOST_AGAIN);
                    format!("{address}: {reason}")
                }
            },
        };
        if Instant::now() >= deadline {
            return Err(unavailable(away));
        }
    }
}
