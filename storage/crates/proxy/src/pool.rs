//! Transaction pooling without I/O: which client gets which server connection, and what passes between the two.
//!
//! - `description`: whether a statement is still what a client was told.
//! - `key`: what server connections have to have in common for clients to share them.
//! - `slots`: the connections of all pools, their limits, and the queue of clients that wait for one.
//! - `parameters`: the settings that follow a client from one server connection to the next.
//! - `schema`: when a database's statements have to be prepared anew.
//! - `statements`: prepared statements of clients, and which of them a server connection has.
//! - `turn`: the messages of both sides while a client has a server connection.
//!
//! Invariants:
//! - A server connection is idle in `slots`, or lent to one client, or closed.
//! - A turn ends only when the server has said that it is outside of a transaction, all that the client has asked for is
//!   answered, and no message is half sent.
//! - A client's statement has the same content on each server connection: there it is named by a hash of its content.
//! - A client's statement is never served by one that a server connection has from an earlier generation of the schema
//!   than the one in which the client prepared it, nor by one that has another description than the client was told.
//!
//! Nothing here is durable. Why it is so: docs/adr/0058.

pub mod description;
pub mod key;
pub mod parameters;
pub mod schema;
pub mod slots;
pub mod statements;
pub mod turn;
