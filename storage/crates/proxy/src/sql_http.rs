//! SQL over HTTP and Postgres's protocol within WebSockets, as the driver `@neondatabase/serverless` speaks them, on the port
//! of Postgres's own protocol (docs/adr/0064).
//!
//! - The crate `sql-over-http`: what a request asks for, and a server's messages as JSON. No I/O.
//! - `headers`: what a request's headers ask for. No I/O.
//! - `client`: runs the statements in a session of the pool.
//! - `serve`: a connection of HTTP, and what its requests are.
//! - `run`: one request of SQL, from its login to its answer.
//! - `websocket`: the bytes within a WebSocket's frames.
//!
//! Invariants:
//! - Nothing of a body is read before its sender has logged in.
//! - A request's statements run in one transaction, in a pooled session that ends with the request. What a request leaves
//!   behind is rolled back, and a statement that nobody waits for is cancelled.

pub mod client;
pub mod headers;
pub mod run;
pub mod serve;
pub mod websocket;
