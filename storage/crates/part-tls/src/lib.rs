//! TLS between the parts of an installation: each side of a connection proves by a certificate of the installation's own CA
//! which part it is ([ADR 81](../../../../docs/adr/0081-parts-prove-who-they-are.md)).
//!
//! [`Identity`] is what a part has of it, one file that is read again when it changes. [`Acceptor`] is a port's end,
//! which admits the parts that are named for that port, and [`Dialer`] a caller's, which wants the part that it means and
//! no other. Both speak plain TCP where the program was given no such file. [`Stream`] is a connection of either kind,
//! [`HttpListener`] one for axum, [`HttpClient`] a client of the management APIs.
//!
//! Invariants:
//!
//! - With an identity no byte of a connection is taken or given before both sides have proven themselves.
//! - TLS 1.3 alone, and each connection by a handshake of its own: no ticket outlives a certificate or a CA.
//! - No file is read on an async worker: a thread looks at it, twice a second ([`token::watched`]).
//! - Tokens decide what a caller may do, as ever: a certificate says who it is and no more.
//!
//! Nothing here is durable.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acceptor;
pub mod certificate;
mod dialer;
mod failure;
mod http_client;
mod http_listener;
mod identity;
pub mod names;
mod options;
mod stream;

pub use acceptor::Acceptor;
pub use dialer::Dialer;
pub use http_client::{HttpClient, HttpError};
pub use http_listener::HttpListener;
pub use identity::Identity;
pub use options::{PartTls, TlsOptions};
pub use stream::{Detached, ReadHalf, Stream, WriteHalf};
