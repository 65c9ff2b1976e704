//! What every HTTP server of the storage engine has in common: `/metrics` and a span per request.

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use prometheus::{Encoder as _, TextEncoder};
use tracing::{Instrument as _, field};

use crate::allocated;
use crate::propagation::{parent_of, set_parent};

/// Adds `GET /metrics` and, around every route, a span that continues the caller's trace. Each request is watched for
/// stalls.
pub fn http<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    let router = router.layer(from_fn(trace));
    let router = router.route("/metrics", get(metrics));
    router.layer(from_fn(watch))
}

async fn watch(request: Request, next: Next) -> Response {
    stalls::watched("http request", next.run(request)).await
}

async fn trace(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path == "/healthz" {
        return next.run(request).await;
    }
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unmatched", MatchedPath::as_str);
    let span = tracing::info_span!(
        "http request",
        otel.name = format!("{} {route}", request.method()),
        otel.kind = "server",
        http.request.method = %request.method(),
        http.route = route,
        url.path = path,
        http.response.status_code = field::Empty,
        otel.status_code = field::Empty,
    );
    set_parent(&span, parent_of(request.headers()));
    async move {
        let response = next.run(request).await;
        let span = tracing::Span::current();
        span.record("http.response.status_code", response.status().as_u16());
        if response.status().is_server_error() {
            span.record("otel.status_code", "ERROR");
        }
        response
    }
    .instrument(span)
    .await
}

/// The default registry in Prometheus's text format.
pub fn metrics_text() -> Result<String, prometheus::Error> {
    allocated::measure();
    let mut buffer = Vec::new();
    TextEncoder::new().encode(&prometheus::gather(), &mut buffer)?;
    String::from_utf8(buffer).map_err(|error| prometheus::Error::Msg(error.to_string()))
}

async fn metrics() -> Response {
    // A series for each timeline: with many timelines that takes long.
    match stalls::off_worker(metrics_text) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot encode the metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
