//! The proxy's own HTTP: whether it serves, and its metrics.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// `/healthz` and `/metrics`; anything else is 404.
pub fn router() -> Router {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(|| async {
            (
                StatusCode::NOT_FOUND,
                "no such path; see docs/interfaces.md\n",
            )
        });
    telemetry::http(router)
}
