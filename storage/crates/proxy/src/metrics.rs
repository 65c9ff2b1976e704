//! Counters of the process, in the default Prometheus registry.

use std::sync::LazyLock;

use prometheus::{
    Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, exponential_buckets,
    register_histogram, register_int_counter, register_int_counter_vec, register_int_gauge,
    register_int_gauge_vec,
};

/// Connections that are open, by phase: `login` until the client may send statements, then `session`; or `http`.
pub static CONNECTIONS: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "weir_proxy_connections",
        "Open connections of clients by phase",
        &["phase"]
    )
    .expect("registered once")
});
/// Connections that have ended, by why; the values are those of `end_reason::EndReason`.
pub static ENDED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_proxy_connections_ended_total",
        "Connections of clients that have ended, by why",
        &["why"]
    )
    .expect("registered once")
});
/// When the certificate that new connections get expires, or one above it in its chain, seconds since the Unix epoch.
pub static CERTIFICATE_NOT_AFTER: LazyLock<IntGauge> = LazyLock::new(|| {
    register_int_gauge!(
        "weir_proxy_certificate_not_after_timestamp_seconds",
        "When the certificate that clients are shown expires, or one of its chain, Unix time"
    )
    .expect("registered once")
});
/// Bytes of sessions, without TLS.
pub static BYTES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_proxy_bytes_total",
        "Bytes passed on in sessions, by direction",
        &["to"]
    )
    .expect("registered once")
});
/// Those of [`BYTES`] to computes, without a look-up by labels for each message.
pub static BYTES_TO_COMPUTE: LazyLock<IntCounter> =
    LazyLock::new(|| BYTES.with_label_values(&["compute"]));
/// Those of [`BYTES`] to clients.
pub static BYTES_TO_CLIENT: LazyLock<IntCounter> =
    LazyLock::new(|| BYTES.with_label_values(&["client"]));
/// From the accepted connection to ReadyForQuery, wakes and pauses included.
pub static LOGIN_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    register_histogram!(
        "weir_proxy_login_seconds",
        "Time from accepting a connection until the client may send statements",
        exponential_buckets(0.001, 2.0, 16).expect("valid buckets")
    )
    .expect("registered once")
});
/// Wakes of suspended computes by result: `ok` or `failed`.
pub static WAKES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_proxy_wakes_total",
        "Wakes of suspended computes",
        &["result"]
    )
    .expect("registered once")
});
/// Time of one wake.
pub static WAKE_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    register_histogram!(
        "weir_proxy_wake_seconds",
        "Time of one wake of a suspended compute",
        exponential_buckets(0.05, 2.0, 12).expect("valid buckets")
    )
    .expect("registered once")
});
/// Logins that had to wait because others before them failed.
pub static SLOWED: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_proxy_logins_slowed_total",
        "Logins that waited because earlier ones from their address failed"
    )
    .expect("registered once")
});
/// Logins from addresses that the endpoint does not admit.
pub static NOT_ALLOWED: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_proxy_addresses_not_allowed_total",
        "Logins refused since the endpoint does not admit their address"
    )
    .expect("registered once")
});
/// Requests to cancel by result: `sent`, `unknown` (no connection has that key), `idle` (the pooled client that has it is
/// within no transaction) or `failed`.
pub static CANCELS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_proxy_cancel_requests_total",
        "Requests to cancel a statement",
        &["result"]
    )
    .expect("registered once")
});

/// Server connections of pools by state: `idle`, or `busy` when they are lent or being made.
pub static POOL_CONNECTIONS: LazyLock<IntGaugeVec> = LazyLock::new(|| {
    register_int_gauge_vec!(
        "weir_proxy_pool_server_connections",
        "Server connections of pools by state, looked at each second",
        &["state"]
    )
    .expect("registered once")
});
/// Pooled clients that wait for a server connection.
pub static POOL_WAITING: LazyLock<IntGauge> = LazyLock::new(|| {
    register_int_gauge!(
        "weir_proxy_pool_clients_waiting",
        "Pooled clients that wait for a server connection, looked at each second"
    )
    .expect("registered once")
});
/// How long pooled clients wait for a server connection, or for the right to make one.
pub static POOL_WAIT_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    register_histogram!(
        "weir_proxy_pool_wait_seconds",
        "Time that pooled clients wait for a server connection",
        exponential_buckets(0.0001, 4.0, 11).expect("valid buckets")
    )
    .expect("registered once")
});
/// Turns: how often a pooled client was given a server connection for its statements.
pub static POOL_TURNS: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!(
        "weir_proxy_pool_turns_total",
        "How often a pooled client was given a server connection"
    )
    .expect("registered once")
});
/// Needs of prepared statements by result: `reused` when the server connection had it, `renewed` when it had one from
/// before a change of the schema, or `prepared`.
pub static POOL_PREPARES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_proxy_pool_statements_total",
        "Needs of named prepared statements, by whether the server connection had it",
        &["result"]
    )
    .expect("registered once")
});

/// Requests of SQL over HTTP by result: `ok` or `error`.
pub static HTTP_REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!(
        "weir_proxy_http_requests_total",
        "Requests of SQL over HTTP",
        &["result"]
    )
    .expect("registered once")
});
/// From a request's headers to its answer, without the sending.
pub static HTTP_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    register_histogram!(
        "weir_proxy_http_request_seconds",
        "Time of a request of SQL over HTTP until its answer is known",
        exponential_buckets(0.001, 2.0, 18).expect("valid buckets")
    )
    .expect("registered once")
});

/// A connection's place in [`CONNECTIONS`], given back when it goes.
pub struct Open(&'static str);

impl Open {
    /// Takes a place in this phase.
    pub fn new(phase: &'static str) -> Open {
        CONNECTIONS.with_label_values(&[phase]).inc();
        Open(phase)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        CONNECTIONS.with_label_values(&[self.0]).dec();
    }
}
