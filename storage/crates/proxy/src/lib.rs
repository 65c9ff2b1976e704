//! `weir-proxy`: one address for the Postgres of all endpoints.
//!
//! A connection goes through four phases: the first packets and TLS (`accept`), the login of the client (`login`), the
//! login to the compute (`compute`), which is woken first when it is suspended (`wake`), and then bytes both ways until
//! one side ends (`relay`). `session` puts them together, `server` has the listener and the end of the process.
//!
//! A client that adds `-pooler` to the endpoint's name has a connection to the compute only while it is within a
//! transaction: `pool` has what is to be done then, without I/O, and `pooled` does it.
//!
//! The same port serves SQL over HTTP and WebSockets: `sql_http` (docs/adr/0064).
//!
//! The proxy knows verifiers of passwords, from its `directory`; passwords never come by with SCRAM (docs/adr/0050), and
//! are not kept where HTTP brings them (`password`). It keeps nothing on disk: after a crash clients connect again.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod accept;
pub mod behind;
pub mod cancel;
pub mod compute;
pub mod crowd;
pub mod directory;
pub mod end_reason;
pub mod http;
pub mod login;
pub mod memory;
pub mod metrics;
pub mod packets;
pub mod password;
pub mod pool;
pub mod pooled;
pub mod reach;
pub mod relay;
pub mod server;
pub mod session;
pub mod shared;
pub mod sql_http;
pub mod throttle;
pub mod tls;
pub mod wake;
pub mod watched;
