//! The start-up phase of Postgres's protocol as a server that stands before other servers sees it, without I/O: the
//! first packets, names of endpoints, both sides of SCRAM, and where messages begin and end. With it what is said of clients'
//! addresses: headers of load balancers, and sets of addresses that may come in.
//!
//! Everything that is parsed here comes from strangers. Parsers refuse what they do not know, take no more memory than
//! the bytes they are given, and never panic (`storage/fuzz`). Formats: "Message Formats" and "SASL Authentication" in
//! Postgres's documentation, RFC 5802, RFC 5803 and RFC 7677.
//!
//! Nothing here is durable, and no type shows a secret when it is printed.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod addresses;
pub mod endpoint;
pub mod messages;
pub mod origin;
pub mod scram;
pub mod startup;
pub mod tracker;
