//! The HTTP management API (see `docs/interfaces.md`).

mod timeline_body;

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pg_types::{Lsn, TenantId, TimelineId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use token::Gate;
use token::http::{About, Access, protect};

use self::timeline_body::TimelineBody;
use crate::control::Identity;
use crate::offload::filling::{FillError, Filled, Wanted};
use crate::open_error::OpenError;
use crate::registry::{Created, Founder, Founding, Listed, Registry, RegistryError};

/// The name by which tokens call a safekeeper.
pub const AUDIENCE: &str = "safekeeper";

/// All paths of the API, over the timelines of `registry`.
pub fn router(registry: Arc<Registry>) -> Router {
    let router = Router::new()
        .route(
            "/v1/tenant/{tenant}/timeline/{timeline}",
            post(create).get(status).delete(remove),
        )
        .route("/v1/tenant/{tenant}/timeline/{timeline}/fill", post(fill))
        .route(
            "/v1/tenant/{tenant}/timeline/{timeline}/verify",
            post(verify),
        )
        .route("/v1/timelines", get(list))
        .route("/v1/disk", get(disk))
        .route("/healthz", get(healthz))
        .fallback(|| async {
            ApiError::new(
                StatusCode::NOT_FOUND,
                "not_found",
                "no such path; see docs/interfaces.md",
            )
        });
    telemetry::http(router).with_state(registry)
}

/// [`router`] behind a gate.
pub fn protected(registry: Arc<Registry>, gate: Arc<Gate>) -> Router {
    protect(router(registry), gate, About::Path, access)
}

/// All but liveness and metrics is the control plane's.
fn access(_: &Method, route: Option<&str>) -> Access {
    match route {
        Some("/healthz") => Access::Open,
        Some("/metrics") => Access::METRICS,
        _ => Access::MANAGE,
    }
}

async fn healthz() -> String {
    format!("ok, authentication: {}\n", token::gate::authentication())
}

struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            code,
            message: message.into(),
        }
    }

    fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    fn internal(error: impl std::fmt::Display) -> ApiError {
        tracing::error!(%error, "request failed");
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            error.to_string(),
        )
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (
            self.status,
            Json(json!({"code": self.code, "message": self.message})),
        )
            .into_response()
    }
}

fn ids(tenant: &str, timeline: &str) -> Result<(TenantId, TimelineId), ApiError> {
    let tenant = tenant
        .parse()
        .map_err(|error| ApiError::bad_request(format!("tenant: {error}")))?;
    let timeline = timeline
        .parse()
        .map_err(|error| ApiError::bad_request(format!("timeline: {error}")))?;
    Ok((tenant, timeline))
}

#[derive(Deserialize)]
struct CreateBody {
    start_lsn: Lsn,
    system_identifier: String,
    pg_version: u32,
    /// The disks that the log begins on; absent from what an older control plane sends.
    founders: Option<Vec<DiskBody>>,
    /// Instead of founders: the log begins beside members that have it already.
    #[serde(default)]
    learner: bool,
}

/// The identity of a safekeeper's data directory; `disk` is 32 hex digits.
#[derive(Serialize, Deserialize)]
struct DiskBody {
    node: u64,
    disk: String,
}

async fn create(
    State(registry): State<Arc<Registry>>,
    Path((tenant, timeline)): Path<(String, String)>,
    body: Result<Json<CreateBody>, JsonRejection>,
) -> Result<Response, ApiError> {
    let (tenant, timeline) = ids(&tenant, &timeline)?;
    let Json(body) = body.map_err(|error| ApiError::bad_request(error.body_text()))?;
    let system_identifier = body.system_identifier.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "system_identifier {:?} is not a decimal number of 64 bits",
            body.system_identifier
        ))
    })?;
    if !body.start_lsn.is_valid() || body.start_lsn != body.start_lsn.align() {
        return Err(ApiError::bad_request(format!(
            "start_lsn {} is not a record boundary",
            body.start_lsn
        )));
    }
    let identity = Identity {
        tenant,
        timeline,
        system_identifier,
        pg_version: body.pg_version,
        start_lsn: body.start_lsn,
    };
    let founding = match body.founders {
        Some(_) if body.learner => {
            return Err(ApiError::bad_request(
                "a learner has no founders; leave one of them out",
            ));
        }
        Some(disks) => Founding::On(founders(disks)?),
        None if body.learner => Founding::Learner,
        None => Founding::Unlisted,
    };
    let created = registry
        .create(identity, founding)
        .await
        .map_err(|error| match error {
            RegistryError::Open(OpenError::Version(_)) | RegistryError::Founders(_) => {
                ApiError::bad_request(error.to_string())
            }
            other => ApiError::internal(other),
        })?;
    let status = match created {
        Created::New => StatusCode::CREATED,
        Created::Same => StatusCode::OK,
        Created::Different => {
            let message = format!(
                "timeline {timeline} exists here with another start_lsn, system_identifier or pg_version, or cannot be opened (GET says why); it is left as it is"
            );
            return Err(ApiError::new(StatusCode::CONFLICT, "conflict", message));
        }
    };
    let listed = registry
        .get((tenant, timeline))
        .ok_or_else(|| absent(tenant, timeline))?;
    Ok((status, Json(TimelineBody::from(listed))).into_response())
}

fn founders(bodies: Vec<DiskBody>) -> Result<Vec<Founder>, ApiError> {
    let founder = |body: DiskBody| {
        let disk = body.disk.parse().map_err(|error| {
            ApiError::bad_request(format!("founder {} {:?}: {error}", body.node, body.disk))
        })?;
        Ok((body.node, disk))
    };
    bodies.into_iter().map(founder).collect()
}

async fn disk(State(registry): State<Arc<Registry>>) -> Json<DiskBody> {
    Json(DiskBody {
        node: registry.disk().node(),
        disk: registry.disk().id().to_string(),
    })
}

fn absent(tenant: TenantId, timeline: TimelineId) -> ApiError {
    let message =
        format!("timeline {timeline} of tenant {tenant} does not exist on this safekeeper");
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

async fn status(
    State(registry): State<Arc<Registry>>,
    Path((tenant, timeline)): Path<(String, String)>,
) -> Result<Json<TimelineBody>, ApiError> {
    let (tenant, timeline) = ids(&tenant, &timeline)?;
    let listed = registry
        .get((tenant, timeline))
        .ok_or_else(|| absent(tenant, timeline))?;
    Ok(Json(listed.into()))
}

async fn remove(
    State(registry): State<Arc<Registry>>,
    Path((tenant, timeline)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    registry
        .delete(ids(&tenant, &timeline)?)
        .await
        .map_err(ApiError::internal)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct FillBody {
    up_to: Option<Lsn>,
    begin_by: Option<Lsn>,
    #[serde(default)]
    min_term: pg_types::Term,
}

async fn fill(
    State(registry): State<Arc<Registry>>,
    Path((tenant, timeline)): Path<(String, String)>,
    body: Result<Json<FillBody>, JsonRejection>,
) -> Result<Json<Filled>, ApiError> {
    let (tenant, timeline) = ids(&tenant, &timeline)?;
    let Json(body) = body.map_err(|error| ApiError::bad_request(error.body_text()))?;
    let Some(Listed::Open(log)) = registry.get((tenant, timeline)) else {
        return Err(absent(tenant, timeline));
    };
    let Some(offload) = registry.offload().cloned() else {
        let message = "this safekeeper has no object store; start it with --object-store";
        return Err(ApiError::new(StatusCode::CONFLICT, "no_store", message));
    };
    let wanted = Wanted {
        up_to: body.up_to.unwrap_or(Lsn::MAX),
        begin_by: body.begin_by.unwrap_or(Lsn::MAX),
        min_term: body.min_term,
    };
    // It goes on when whoever asked has gone.
    let filling = async move { offload.fill(&log, wanted).await };
    let filled = stalls::spawn("fill", filling)
        .await
        .map_err(ApiError::internal)?;
    Ok(Json(filled.map_err(|error| {
        let (status, code) = match &error {
            FillError::Refused(_) | FillError::Changed(_) => (StatusCode::CONFLICT, "refused"),
            FillError::Choice(_) | FillError::TooLate { .. } => (StatusCode::CONFLICT, "gap"),
            FillError::Unusable { .. } => (StatusCode::CONFLICT, "damaged"),
            FillError::Store(error) if error.is_damage() => (StatusCode::CONFLICT, "damaged"),
            FillError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store"),
            FillError::Failed(_) | FillError::Io { .. } => return ApiError::internal(error),
        };
        ApiError::new(status, code, error.to_string())
    })?))
}

/// Looks at the whole log at once; what is damaged is repaired behind the answer.
async fn verify(
    State(registry): State<Arc<Registry>>,
    Path((tenant, timeline)): Path<(String, String)>,
) -> Result<Json<TimelineBody>, ApiError> {
    let (tenant, timeline) = ids(&tenant, &timeline)?;
    let Some(Listed::Open(log)) = registry.get((tenant, timeline)) else {
        return Err(absent(tenant, timeline));
    };
    if let Some(care) = registry.care().cloned() {
        let looked = log.clone();
        // It goes on when whoever asked has gone.
        let look = async move {
            care.verify_at_once(&looked).await;
            looked.wake_care();
        };
        stalls::spawn("verify", look)
            .await
            .map_err(ApiError::internal)?;
    }
    Ok(Json(log.status().into()))
}

async fn list(State(registry): State<Arc<Registry>>) -> Json<Vec<TimelineBody>> {
    Json(
        registry
            .list()
            .into_iter()
            .map(TimelineBody::from)
            .collect(),
    )
}
