//! What requests of SQL over HTTP and their answers are, as the driver `@neondatabase/serverless` has them, without I/O:
//! the connection string, the JSON that is asked with, and the JSON that Postgres's messages become.
//!
//! Everything that is parsed here comes from strangers, or from a compute that a customer has SQL on. Parsers refuse what they
//! do not know, take no more memory than a few times the bytes they are given, and never panic (`storage/fuzz`).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod address;
pub mod answer;
pub mod request;
