//! One server connection.

use std::io;
use std::sync::Arc;

use pg_protocol::messages::message;
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::cancel::Backend;
use crate::compute::Ready;
use crate::pool::parameters::{Learned, Tracked};
use crate::pool::schema::Schema;
use crate::pool::slots::Made;
use crate::pool::turn::{Server, field, status};

/// Nothing that a command of the proxy's own makes the server say is longer.
const MOST_ANSWER_BYTES: usize = 1 << 20;
const HEADER_BYTES: usize = 5;

/// A connection to a compute that clients of a pool use one after the other.
pub struct Connection {
    /// The way to the compute; nothing of an answer is on it while the connection is idle.
    pub stream: TcpStream,
    /// Statements and settings. None while the connection is lent to a turn.
    pub server: Option<Server>,
    /// What a request to cancel reaches.
    pub backend: Option<Arc<Backend>>,
    /// When the connection was made.
    pub made: Made,
    /// The client that had it last; 0 is none.
    pub last_client: u64,
    /// Whether the server has got whole messages only. Where it has not, nothing must be added to what it has got.
    pub is_between: bool,
    /// Bytes that came behind the last answer.
    rest: Vec<u8>,
}

/// Why a command was not done.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The server refused it, with this body of an ErrorResponse.
    #[error("the compute refused a setting of the client's: {}", said(.0))]
    Refused(Vec<u8>),
    /// The connection broke, or cannot be understood.
    #[error("{0}")]
    Broken(#[from] io::Error),
}

fn said(body: &[u8]) -> String {
    String::from_utf8_lossy(field(body, b'M').unwrap_or_default()).into_owned()
}

fn broken(text: &str) -> CommandError {
    CommandError::Broken(io::Error::other(text.to_owned()))
}

/// Settings in what a compute says before ReadyForQuery.
fn settings(greeting: &[u8]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = greeting;
    while let Some((tag, body, after)) = split(rest) {
        if let (b'S', Some((name, value))) = (tag, status(body)) {
            found.push((name.to_owned(), value.to_owned()));
        }
        rest = after;
    }
    found
}

/// Type and body of the first message, and what follows it. None: it is not there as a whole.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, length @ ..] = bytes.first_chunk::<HEADER_BYTES>()?;
    let end = (u32::from_be_bytes(*length) as usize).checked_add(1)?;
    let body = bytes.get(HEADER_BYTES..end)?;
    Some((*tag, body, &bytes[end..]))
}

impl Connection {
    /// Of a login to a compute, and what it has said then. The connection is to have `statements` prepared statements at
    /// most; `schema` is that of its database.
    pub fn new(
        ready: Ready,
        address: String,
        made: Made,
        statements: usize,
        schema: Arc<Schema>,
    ) -> (Connection, Learned) {
        let greeting = settings(&ready.greeting);
        let mut known = Tracked::default();
        for (name, value) in &greeting {
            known.report(name, value);
        }
        let backend = ready.cancel_key.map(|(process_id, key)| {
            Arc::new(Backend {
                address,
                process_id,
                key,
            })
        });
        let connection = Connection {
            stream: ready.stream,
            server: Some(Server::new(statements, known, schema)),
            backend,
            made,
            last_client: 0,
            is_between: true,
            rest: ready.rest,
        };
        (connection, Learned::new(greeting))
    }

    /// The settings as the server has reported them. None while the connection is lent to a turn.
    pub fn settings(&self) -> Option<&Tracked> {
        self.server.as_ref().map(|server| &server.settings)
    }

    /// Whether it can still be used, after it has been idle. What the server said meanwhile is taken.
    pub fn is_alive(&mut self) -> bool {
        let mut buffer = [0; 512];
        loop {
            match self.stream.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.rest.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
            if self.rest.len() > MOST_ANSWER_BYTES {
                return false;
            }
        }
        while let Some((tag, body, after)) = split(&self.rest) {
            match tag {
                b'S' => note(self.server.as_mut(), body),
                // What a client before asked to be told, or a notice to nobody.
                b'A' | b'N' => {}
                // An error that ends the connection; anything else is no answer to anything.
                _ => return false,
            }
            self.rest = after.to_vec();
        }
        // A message that is cut would come between the next client's.
        self.rest.is_empty()
    }

    /// Runs statements of the proxy's own, for their effect.
    ///
    /// # Errors
    /// The server refused, or the connection broke. After an error the connection is not to be used any more.
    pub async fn command(&mut self, text: &str) -> Result<(), CommandError> {
        let body = [text.as_bytes(), b"\0"].concat();
        self.is_between = false;
        self.stream.write_all(&message(b'Q', &body)).await?;
        self.is_between = true;
        let mut refused = None;
        loop {
            while let Some((tag, body, after)) = split(&self.rest) {
                let outside = body == b"I";
                match tag {
                    b'S' => note(self.server.as_mut(), body),
                    b'E' => refused = refused.or(Some(body.to_vec())),
                    b'Z' if !outside => return Err(broken("a transaction is open")),
                    b'G' | b'W' => return Err(broken("the compute wants data")),
                    _ => {}
                }
                self.rest = after.to_vec();
                if tag == b'Z' {
                    return refused.map_or(Ok(()), |body| Err(CommandError::Refused(body)));
                }
            }
            let rest = &mut self.rest;
            let count = super::read(&mut self.stream, |bytes| rest.extend_from_slice(bytes));
            if count.await? == 0 {
                return Err(broken("the compute closed the connection"));
            }
            if self.rest.len() > MOST_ANSWER_BYTES {
                return Err(broken("an answer has no end"));
            }
        }
    }
}

fn note(server: Option<&mut Server>, body: &[u8]) {
    if let (Some(server), Some((name, value))) = (server, status(body)) {
        server.settings.report(name, value);
    }
}

impl Drop for Connection {
    /// The compute learns that the connection's end is meant, unless it waits for the rest of a message: there these bytes
    /// would be taken for the rest.
    fn drop(&mut self) {
        if self.is_between {
            let _ = self.stream.try_write(&message(b'X', b""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_among_notices_and_cut_messages_are_not_taken() {
        let greeting = [
            message(b'S', b"TimeZone\0UTC\0"),
            message(b'N', b"SNOTICE\0\0"),
            message(b'S', b"DateStyle\0ISO\0"),
        ]
        .concat();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let both = [pair("TimeZone", "UTC"), pair("DateStyle", "ISO")];
        assert_eq!(settings(&greeting), both);
        assert_eq!(settings(&greeting[..greeting.len() - 1]), both[..1]);
        assert!(split(b"S\xFF\xFF\xFF\xFFrest").is_none());
        assert!(split(b"S\0\0\0\0rest").is_none());
    }
}
