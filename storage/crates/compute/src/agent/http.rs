//! The agent's HTTP interface, as docs/interfaces.md describes it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pg_types::TimelineId;
use proposer::{MemberChange, MemberError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use token::http::{About, Access, protect};
use token::{Gate, Scope};

use super::{
    Agent, ChangeMembersError, ChosenError, ConfigureError, SettingsStatusError, State,
    SwitchError, Terminate, UnloggedError, WalByRelationError,
};
use crate::spec::Spec;

const DEFAULT_TIMEOUT_MS: u64 = 30_000;
const MAX_TIMEOUT_MS: u64 = 600_000;
const MAX_STATUS_WAIT_MS: u64 = 30_000;

/// An answer that is not the one hoped for.
struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({"code": self.code, "message": self.message});
        (self.status, Json(body)).into_response()
    }
}

fn error(status: StatusCode, code: &'static str, message: impl ToString) -> ApiError {
    ApiError {
        status,
        code,
        message: message.to_string(),
    }
}

impl From<SwitchError> for ApiError {
    fn from(problem: SwitchError) -> ApiError {
        match &problem {
            SwitchError::NotRunning(_) | SwitchError::Stopped => {
                error(StatusCode::CONFLICT, "not_running", problem)
            }
            SwitchError::Late(_) => error(StatusCode::GATEWAY_TIMEOUT, "timeout", problem),
            SwitchError::Postgres(_) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "postgres", problem)
            }
        }
    }
}

impl From<ConfigureError> for ApiError {
    fn from(problem: ConfigureError) -> ApiError {
        match problem {
            ConfigureError::Spec(problem) => error(StatusCode::BAD_REQUEST, "bad_spec", problem),
            ConfigureError::NotRunning(_) => error(StatusCode::CONFLICT, "not_running", problem),
            ConfigureError::Postgres(_) | ConfigureError::Settings(_) => {
                error(StatusCode::UNPROCESSABLE_ENTITY, "refused", problem)
            }
            ConfigureError::Switch(problem) => problem.into(),
        }
    }
}

impl From<WalByRelationError> for ApiError {
    fn from(problem: WalByRelationError) -> ApiError {
        match problem {
            WalByRelationError::NotRunning(_) => {
                error(StatusCode::CONFLICT, "not_running", problem)
            }
            WalByRelationError::Postgres(_) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "postgres", problem)
            }
        }
    }
}

impl From<UnloggedError> for ApiError {
    fn from(problem: UnloggedError) -> ApiError {
        match problem {
            UnloggedError::NotRunning(_) => error(StatusCode::CONFLICT, "not_running", problem),
            UnloggedError::Files(_) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "unlogged", problem)
            }
        }
    }
}

impl From<SettingsStatusError> for ApiError {
    fn from(problem: SettingsStatusError) -> ApiError {
        match problem {
            SettingsStatusError::NotRunning(_) => {
                error(StatusCode::CONFLICT, "not_running", problem)
            }
            SettingsStatusError::Postgres(_) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "postgres", problem)
            }
        }
    }
}

impl From<ChosenError> for ApiError {
    fn from(problem: ChosenError) -> ApiError {
        match problem {
            ChosenError::NotRunning(_) => error(StatusCode::CONFLICT, "not_running", problem),
            ChosenError::Postgres(_) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "postgres", problem)
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchRequest {
    enabled: bool,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TerminateRequest {
    mode: Terminate,
}

impl From<ChangeMembersError> for ApiError {
    fn from(problem: ChangeMembersError) -> ApiError {
        match &problem {
            ChangeMembersError::NotRunning(_) => {
                error(StatusCode::CONFLICT, "not_running", problem)
            }
            ChangeMembersError::Busy(_) => error(StatusCode::CONFLICT, "busy", problem),
            ChangeMembersError::Change(change) => match change {
                MemberError::NoSuchMember(_) => error(StatusCode::NOT_FOUND, "not_found", problem),
                MemberError::Refused(_) => error(StatusCode::CONFLICT, "refused", problem),
                MemberError::NoGreeting { .. } | MemberError::NotStored { .. } => {
                    error(StatusCode::GATEWAY_TIMEOUT, "timeout", problem)
                }
                MemberError::Stopped(_) => error(StatusCode::CONFLICT, "not_running", problem),
            },
        }
    }
}

#[derive(Deserialize)]
struct StatusRequest {
    /// How long to wait with the answer for the end of a start; 0 is not at all.
    #[serde(default)]
    wait_ms: u64,
}

/// Exactly one of the changes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MembersRequest {
    /// WAL address of a safekeeper, `host:port`.
    add: Option<String>,
    /// Numbers of safekeepers.
    promote: Option<u64>,
    remove: Option<u64>,
    /// The timeline whose log is meant. A compute that runs on another timeline changes nothing.
    #[serde(default)]
    timeline_id: Option<TimelineId>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

impl MembersRequest {
    fn change(&self) -> Option<MemberChange> {
        match (&self.add, self.promote, self.remove) {
            (Some(address), None, None) => Some(MemberChange::Add {
                address: address.clone(),
            }),
            (None, Some(safekeeper), None) => Some(MemberChange::Promote { safekeeper }),
            (None, None, Some(safekeeper)) => Some(MemberChange::Remove { safekeeper }),
            _ => None,
        }
    }
}

/// The names by which tokens call the agent of this compute: its own, which tokens of the control plane have, and that of
/// all computes, for those that read metrics.
pub fn audiences(compute_id: &str) -> Vec<String> {
    vec![format!("compute/{compute_id}"), "compute".to_owned()]
}

/// [`router`] behind a gate: each route is about the agent's own timeline.
pub fn protected(agent: Arc<Agent>, gate: Arc<Gate>) -> Router {
    let spec = agent.spec();
    let own = About::Own(Scope::timeline(spec.tenant_id, spec.timeline_id));
    protect(router(agent), gate, own, access)
}

/// All but liveness and metrics is the control plane's.
fn access(_: &Method, route: Option<&str>) -> Access {
    match route {
        Some("/healthz") => Access::Open,
        Some("/metrics") => Access::METRICS,
        _ => Access::MANAGE,
    }
}

/// The agent's routes, `/metrics` included.
pub fn router(agent: Arc<Agent>) -> Router {
    let router = Router::new()
        .route("/status", get(status))
        .route("/healthz", get(healthz))
        .route("/wal_by_relation", get(wal_by_relation))
        .route("/unlogged", get(unlogged))
        .route("/synchronous_commit", get(synchronous_commit))
        .route("/settings", get(settings))
        .route("/configure", post(configure))
        .route("/full_page_writes", post(full_page_writes))
        .route("/members", post(members))
        .route("/terminate", post(terminate))
        .fallback(async || {
            error(
                StatusCode::NOT_FOUND,
                "not_found",
                "the agent has no such path",
            )
        })
        .with_state(agent);
    telemetry::http(router)
}

fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|problem| {
        error(
            StatusCode::BAD_REQUEST,
            "bad_request",
            format!("the body can't be used: {problem}"),
        )
    })
}

/// How long a request may take that says so in milliseconds, or does not say.
fn patience(timeout_ms: Option<u64>) -> Duration {
    Duration::from_millis(timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS).min(MAX_TIMEOUT_MS))
}

async fn status(
    Shared(agent): Shared<Arc<Agent>>,
    asked: Result<Query<StatusRequest>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(asked) = asked
        .map_err(|problem| error(StatusCode::BAD_REQUEST, "bad_request", problem.body_text()))?;
    if asked.wait_ms > 0 {
        let limit = asked.wait_ms.min(MAX_STATUS_WAIT_MS);
        agent.started(Duration::from_millis(limit)).await;
    }
    Ok(Json(agent.status()).into_response())
}

async fn healthz(Shared(agent): Shared<Arc<Agent>>) -> Response {
    let status = agent.status();
    let code = match status.state {
        State::Running => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (
        code,
        Json(json!({"state": status.state, "reason": status.reason})),
    )
        .into_response()
}

async fn wal_by_relation(Shared(agent): Shared<Arc<Agent>>) -> Result<Response, ApiError> {
    Ok(Json(agent.wal_by_relation().await?).into_response())
}

async fn unlogged(Shared(agent): Shared<Arc<Agent>>) -> Result<Response, ApiError> {
    Ok(Json(agent.unlogged().await?).into_response())
}

async fn synchronous_commit(Shared(agent): Shared<Arc<Agent>>) -> Result<Response, ApiError> {
    Ok(Json(agent.chosen_synchronous_commit().await?).into_response())
}

async fn settings(Shared(agent): Shared<Arc<Agent>>) -> Result<Response, ApiError> {
    let settings = agent.settings_status().await?;
    Ok(Json(json!({"settings": settings})).into_response())
}

async fn configure(Shared(agent): Shared<Arc<Agent>>, bytes: Bytes) -> Result<Response, ApiError> {
    let spec: Spec = body(&bytes)?;
    Ok(Json(agent.configure(spec).await?).into_response())
}

async fn full_page_writes(
    Shared(agent): Shared<Arc<Agent>>,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let request: SwitchRequest = body(&bytes)?;
    let switched = agent
        .switch_full_page_writes(request.enabled, patience(request.timeout_ms))
        .await?;
    Ok(Json(switched).into_response())
}

async fn members(Shared(agent): Shared<Arc<Agent>>, bytes: Bytes) -> Result<Response, ApiError> {
    let request: MembersRequest = body(&bytes)?;
    let change = request.change().ok_or_else(|| {
        error(
            StatusCode::BAD_REQUEST,
            "bad_request",
            "give one of add, promote and remove: members change one at a time",
        )
    })?;
    let runs_on = agent.spec().timeline_id;
    if let Some(meant) = request.timeline_id.filter(|meant| *meant != runs_on) {
        return Err(error(
            StatusCode::CONFLICT,
            "other_timeline",
            format!(
                "this compute runs on timeline {runs_on}, not on {meant}; its members stay as they are"
            ),
        ));
    }
    let members = agent
        .change_members(&change, patience(request.timeout_ms))
        .await?;
    Ok(Json(members).into_response())
}

async fn terminate(Shared(agent): Shared<Arc<Agent>>, bytes: Bytes) -> Result<Response, ApiError> {
    let request: TerminateRequest = body(&bytes)?;
    agent.terminate(request.mode);
    Ok((StatusCode::ACCEPTED, Json(json!({"mode": request.mode}))).into_response())
}
