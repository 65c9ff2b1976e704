//! Promise: with an OTLP endpoint set, a request's span reaches it as a child of the caller's trace, and
//! `/metrics` serves the default registry. One test, because telemetry is set up once per process.

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use tokio::sync::mpsc;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[test]
fn spans_reach_the_collector_under_the_callers_trace() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let (sent, mut received) = mpsc::unbounded_channel();
    let collector = runtime.block_on(serve(Router::new().route(
        "/v1/traces",
        post(move |body: Bytes| async move {
            let _ = sent.send(body);
        }),
    )));
    #[allow(unsafe_code)]
    // SAFETY: the only other threads are the runtime's, which read no environment.
    unsafe {
        std::env::set_var("OTEL_EXPORTER_OTLP_ENDPOINT", &collector)
    };
    let guard = telemetry::init("weir-test").expect("init");

    let seen_inside = runtime.block_on(async {
        let app = telemetry::http(Router::new().route(
            "/v1/thing/{id}",
            get(|| async { telemetry::current_traceparent() }),
        ));
        let address = serve(app).await;
        let client = reqwest::Client::new();
        let metrics = client
            .get(format!("{address}/metrics"))
            .send()
            .await
            .expect("metrics");
        assert_eq!(metrics.status(), 200);
        let reply = client
            .get(format!("{address}/v1/thing/7"))
            .header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"))
            .send()
            .await
            .expect("request");
        reply.text().await.expect("body")
    });
    assert!(
        seen_inside.starts_with(&format!("00-{TRACE}-")),
        "handler saw {seen_inside:?}"
    );

    guard.shutdown();
    let body = received
        .try_recv()
        .expect("an export before shutdown returned");
    let trace: Vec<u8> = (0..16)
        .map(|i| u8::from_str_radix(&TRACE[2 * i..2 * i + 2], 16).expect("hex"))
        .collect();
    assert!(
        body.windows(16).any(|window| window == trace),
        "the caller's trace id is exported"
    );
    let text = String::from_utf8_lossy(&body);
    assert!(
        text.contains("GET /v1/thing/{id}") && text.contains("weir-test"),
        "route and service are exported"
    );
    assert!(!text.contains("/metrics"), "scrapes make no spans");
}
