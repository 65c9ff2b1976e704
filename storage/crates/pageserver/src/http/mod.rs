//! The management API over HTTP. Handlers parse, call the manager, and turn errors into the documented
//! body; they hold no state.

pub mod access;
mod timeline;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post, put};
use pg_types::{TenantId, TimelineId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use token::Gate;
use token::http::{self as tokens, protect};

use crate::about::About;
use crate::api::TenantInfo;
use crate::config::TenantConfigPatch;
use crate::error::Error;
use crate::manager::TenantManager;

/// Largest auxiliary archive a compute may ship at suspend.
const MAX_AUX_BYTES: usize = 1 << 30;

type Manager = State<Arc<TenantManager>>;
type ApiResult<T = Response> = Result<T, ApiError>;

/// The application with all its routes, behind a gate.
pub fn protected(manager: Arc<TenantManager>, gate: Arc<Gate>) -> Router {
    protect(router(manager), gate, tokens::About::Path, access::access)
}

/// The application with all its routes.
pub fn router(manager: Arc<TenantManager>) -> Router {
    let timeline = "/v1/tenant/{tenant}/timeline/{timeline}";
    let under = |name: &str| format!("{timeline}/{name}");
    let api = Router::new()
        .route("/v1/sick_safekeepers", get(timeline::sick_safekeepers))
        .route("/v1/tenant", get(list_tenants))
        .route(
            "/v1/tenant/{tenant}",
            put(put_tenant).get(get_tenant).delete(delete_tenant),
        )
        .route("/v1/tenant/{tenant}/config", patch(patch_config))
        .route("/v1/tenant/{tenant}/about", put(put_about).get(get_about))
        .route(
            "/v1/tenant/{tenant}/timeline",
            post(timeline::create).get(timeline::list),
        )
        .route(timeline, get(timeline::status).delete(timeline::delete))
        .route(&under("lsn_by_timestamp"), get(timeline::lsn_by_timestamp))
        .route(&under("timestamp_of_lsn"), get(timeline::timestamp_of_lsn))
        .route(&under("bundle"), get(timeline::bundle))
        .route(
            &under("aux"),
            put(timeline::put_aux).layer(axum::extract::DefaultBodyLimit::max(MAX_AUX_BYTES)),
        )
        .route(&under("checkpoint"), post(timeline::checkpoint))
        .route(&under("layers"), get(timeline::layers))
        .route(&under("lease"), post(timeline::lease))
        .route(&under("start"), put(timeline::hold_start))
        .route(
            &under("detach"),
            post(timeline::detach)
                .get(timeline::detaching)
                .delete(timeline::give_up_detaching),
        )
        .route(&under("safekeepers"), put(timeline::put_safekeepers))
        .route(&under("ingested"), get(timeline::ingested))
        .route(&under("digest"), get(timeline::digest))
        .route(&under("chains"), get(timeline::chains));
    let api = match crash::is_armable() {
        true => api.route("/v1/crash_point/{name}", put(arm_crash_point)),
        false => api,
    };
    let app = Router::new()
        .route("/healthz", get(healthz))
        .merge(api)
        .fallback(async || ApiError(Error::NotFound("no such path; see docs/interfaces.md".to_owned())))
        .method_not_allowed_fallback(async || {
            let body = serde_json::json!({"code": "method_not_allowed", "message": "this path has no such method"});
            (StatusCode::METHOD_NOT_ALLOWED, axum::Json(body))
        })
        .with_state(manager);
    // Adds `/metrics` and a span per request.
    telemetry::http(app)
}

async fn healthz() -> Response {
    let authentication = token::gate::authentication();
    let body = serde_json::json!({"status": "ok", "authentication": authentication});
    axum::Json(body).into_response()
}

/// An error on its way to the client.
struct ApiError(Error);

impl<E: Into<Error>> From<E> for ApiError {
    fn from(error: E) -> ApiError {
        ApiError(error.into())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (code, status) = self.0.code();
        if status >= 500 {
            tracing::error!(code, "request failed: {}", self.0);
        } else {
            tracing::info!(code, "request refused: {}", self.0);
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::json!({"code": code, "message": self.0.to_string()});
        (status, axum::Json(body)).into_response()
    }
}

use axum::Json;

/// Parses a JSON body; an empty one counts as `{}`.
fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Error> {
    let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes)
        .map_err(|error| Error::BadRequest(format!("invalid body: {error}")))
}

fn tenant_id(text: &str) -> Result<TenantId, Error> {
    text.parse()
        .map_err(|error| Error::BadRequest(format!("tenant: {error}")))
}

fn timeline_id(text: &str) -> Result<TimelineId, Error> {
    text.parse()
        .map_err(|error| Error::BadRequest(format!("timeline: {error}")))
}

fn reply<T: Serialize>(status: StatusCode, value: &T) -> Response {
    (status, axum::Json(serde_json::json!(value))).into_response()
}

/// For tests of recovery: the process dies where this point stands.
async fn arm_crash_point(Path(name): Path<String>) -> ApiResult {
    crash::arm(&name).map_err(|error| Error::NotFound(error.to_string()))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn list_tenants(State(manager): Manager) -> Json<Vec<TenantInfo>> {
    Json(
        manager
            .tenants()
            .iter()
            .map(|tenant| tenant.info())
            .collect(),
    )
}

async fn put_tenant(
    State(manager): Manager,
    Path(tenant): Path<String>,
    bytes: Bytes,
) -> ApiResult {
    let _: EmptyBody = body(&bytes)?;
    let tenant = manager.create_tenant(tenant_id(&tenant)?).await?;
    Ok(reply(StatusCode::OK, &tenant.info()))
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

async fn get_tenant(State(manager): Manager, Path(tenant): Path<String>) -> ApiResult {
    Ok(reply(
        StatusCode::OK,
        &manager.tenant(tenant_id(&tenant)?)?.info(),
    ))
}

async fn delete_tenant(State(manager): Manager, Path(tenant): Path<String>) -> ApiResult {
    manager.delete_tenant(tenant_id(&tenant)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn put_about(State(manager): Manager, Path(tenant): Path<String>, bytes: Bytes) -> ApiResult {
    let about: About = body(&bytes)?;
    let tenant = manager.tenant(tenant_id(&tenant)?)?;
    manager.put_about(&tenant, &about).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn get_about(State(manager): Manager, Path(tenant): Path<String>) -> ApiResult {
    let tenant = manager.tenant(tenant_id(&tenant)?)?;
    Ok(reply(StatusCode::OK, &manager.about(&tenant).await?))
}

async fn patch_config(
    State(manager): Manager,
    Path(tenant): Path<String>,
    bytes: Bytes,
) -> ApiResult {
    let change: TenantConfigPatch = body(&bytes)?;
    let tenant = manager.tenant(tenant_id(&tenant)?)?;
    manager.configure(&tenant, &change).await?;
    Ok(reply(StatusCode::OK, &tenant.info()))
}
