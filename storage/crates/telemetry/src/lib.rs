//! Logs, traces and metrics, the same way in each of Weir's programs.
//!
//! Logs go to stderr, as text or, with `WEIR_LOG_FORMAT=json`, one JSON object a line; `RUST_LOG` filters
//! them. Spans are exported over OTLP/HTTP when `OTEL_EXPORTER_OTLP_ENDPOINT` is set, and cost next to
//! nothing when it is not. Metrics are the default `prometheus` registry, served by [`http`].
//!
//! Nothing here is durable: a crash loses the spans of the last seconds and no state.

#![warn(missing_docs)]

mod allocated;
mod http;
mod panics;
mod propagation;
mod time;

pub use http::{http, metrics_text};
pub use panics::end_at_panics;
pub use propagation::{continue_trace, current_traceparent, inject};
pub use time::rfc3339;

use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

const OTLP_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// Keeps the exporter alive; what is still queued is sent when it goes.
#[must_use = "spans are flushed when the guard is dropped"]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Guard {
    /// Sends what is queued, for at most a few seconds. Blocks the calling thread.
    pub fn shutdown(mut self) {
        self.flush();
    }

    fn flush(&mut self) {
        if let Some(provider) = self.provider.take()
            && let Err(error) = provider.shutdown_with_timeout(std::time::Duration::from_secs(3))
        {
            eprintln!("some trace spans were not exported: {error}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Sets up logging and tracing for the process; call once, first thing in `main`.
pub fn init(service: &'static str) -> anyhow::Result<Guard> {
    opentelemetry::global::set_text_map_propagator(
        opentelemetry_sdk::propagation::TraceContextPropagator::new(),
    );
    let provider = OTLP_VARIABLES
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()))
        .then(|| otlp_provider(service))
        .transpose()?;

    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .with_context(|| format!("RUST_LOG={text:?} is not a filter"))?,
        _ => EnvFilter::new("info"),
    };
    let json = std::env::var("WEIR_LOG_FORMAT").is_ok_and(|format| format == "json");
    let logs = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let logs = if json {
        logs.json().with_filter(filter).boxed()
    } else {
        logs.with_filter(filter).boxed()
    };
    let spans = provider.as_ref().map(|provider| {
        // The exporter's own HTTP client is instrumented too: exporting its spans would never end.
        let filter = tracing_subscriber::filter::Targets::new()
            .with_default(LevelFilter::INFO)
            .with_targets(
                ["hyper", "hyper_util", "reqwest", "h2", "opentelemetry"]
                    .map(|name| (name, LevelFilter::OFF)),
            );
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("weir"))
            .with_filter(filter)
    });
    tracing_subscriber::registry()
        .with(logs)
        .with(spans)
        .try_init()
        .context("telemetry::init was called twice in one process")?;
    Ok(Guard { provider })
}

fn otlp_provider(service: &'static str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .build()
        .context("cannot set up the OTLP exporter; check OTEL_EXPORTER_OTLP_ENDPOINT")?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service).build())
        .build();
    Ok(provider)
}
