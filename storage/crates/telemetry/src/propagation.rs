//! W3C trace context in and out of headers and of Weir's own protocols.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, Injector};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(key.as_bytes()),
            HeaderValue::from_str(&value),
        ) {
            self.0.insert(name, value);
        }
    }
}

pub(crate) fn parent_of(headers: &HeaderMap) -> Context {
    opentelemetry::global::get_text_map_propagator(|propagator| {
        propagator.extract(&Headers(headers))
    })
}

/// Makes `span` a child of a W3C `traceparent` that came with a message. An empty or malformed one leaves
/// the span as it is: a peer's tracing must never break a request.
pub fn continue_trace(span: &Span, traceparent: &str) {
    if let Ok(value) = HeaderValue::from_str(traceparent)
        && !traceparent.is_empty()
    {
        set_parent(
            span,
            parent_of(&HeaderMap::from_iter([(
                HeaderName::from_static("traceparent"),
                value,
            )])),
        );
    }
}

pub(crate) fn set_parent(span: &Span, parent: Context) {
    if let Err(error) = span.set_parent(parent) {
        tracing::debug!(%error, "span keeps its own trace");
    }
}

/// Adds the current span's trace context to outgoing headers.
pub fn inject(headers: &mut HeaderMap) {
    let context = Span::current().context();
    opentelemetry::global::get_text_map_propagator(|propagator| {
        propagator.inject_context(&context, &mut HeadersMut(headers))
    });
}

/// The current span as a W3C `traceparent`; empty when nothing is exported.
pub fn current_traceparent() -> String {
    let mut headers = HeaderMap::new();
    inject(&mut headers);
    headers
        .get("traceparent")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}
