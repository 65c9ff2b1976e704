//! A connection as a client makes it: nothing is asked for but a user and a database.
//!
//! A driver says at once which encoding it wants, and more, and so hides what a session is like that says nothing:
//! with `client_encoding = MULE_INTERNAL` in the configuration, psql cannot connect while the agent's own driver can.
//! The few messages of the protocol are those of the documentation's "Frontend/Backend Protocol", version 3.0.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

/// No step of a trial takes longer.
const TIMEOUT: Duration = Duration::from_secs(5);
const PROTOCOL: u32 = 3 << 16;
/// A server's message is never longer; none of those that are read here comes near it.
const LONGEST_MESSAGE: usize = 1 << 20;
/// `too_many_connections`: the server is well, and busy.
const BUSY: &str = "53300";

/// Why a client got no session, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The connection could not be made, or broke off.
    #[error("no connection: {0}")]
    Io(#[from] std::io::Error),
    /// A step took longer than 5 seconds.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Late,
    /// Postgres answered with an error.
    #[error("{message}")]
    Said {
        /// SQLSTATE, five characters; empty when the error has none.
        code: String,
        /// The error's text.
        message: String,
    },
    /// The server answered with something that has no place there in version 3.0 of the protocol.
    #[error("an answer that the protocol does not have")]
    Unknown,
}

impl TrialError {
    /// Whether the server has only too many connections already.
    pub fn is_busy(&self) -> bool {
        matches!(self, TrialError::Said { code, .. } if code == BUSY)
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A session that began with nothing said.
pub struct Session {
    stream: Box<dyn Stream>,
}

impl Session {
    /// Over the private socket, where `user` needs no password.
    pub async fn begin(
        socket: &Path,
        port: u16,
        user: &str,
        database: &str,
    ) -> Result<Session, TrialError> {
        let path = socket.join(format!(".s.PGSQL.{port}"));
        bounded(async {
            let stream: Box<dyn Stream> = Box::new(UnixStream::connect(path).await?);
            let mut session = Session { stream };
            session.start_up(user, database).await?;
            match session.authentication().await? {
                0 => session.until_ready().await.map(|_| session),
                _ => Err(TrialError::Unknown),
            }
        })
        .await
    }

    /// All columns of the rows as text.
    pub async fn rows(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, TrialError> {
        bounded(async {
            let mut body = sql.as_bytes().to_vec();
            body.push(0);
            self.send(Some(b'Q'), &body).await?;
            self.until_ready().await
        })
        .await
    }

    async fn start_up(&mut self, user: &str, database: &str) -> Result<(), TrialError> {
        let mut body = PROTOCOL.to_be_bytes().to_vec();
        for word in ["user", user, "database", database, ""] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        self.send(None, &body).await
    }

    async fn send(&mut self, kind: Option<u8>, body: &[u8]) -> Result<(), TrialError> {
        let mut message: Vec<u8> = kind.into_iter().collect();
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        Ok(self.stream.write_all(&message).await?)
    }

    /// The next message: its kind and body. An error of the server is an error.
    async fn receive(&mut self) -> Result<(u8, Vec<u8>), TrialError> {
        let kind = self.stream.read_u8().await?;
        let length = self.stream.read_u32().await? as usize;
        if !(4..=LONGEST_MESSAGE).contains(&length) {
            return Err(TrialError::Unknown);
        }
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body).await?;
        match kind {
            b'E' => Err(said(&body)),
            _ => Ok((kind, body)),
        }
    }

    /// The number of the authentication that the server asks for; 0: it asks for none.
    async fn authentication(&mut self) -> Result<u32, TrialError> {
        match self.receive().await? {
            (b'R', body) => match body.first_chunk::<4>() {
                Some(number) => Ok(u32::from_be_bytes(*number)),
                None => Err(TrialError::Unknown),
            },
            _ => Err(TrialError::Unknown),
        }
    }

    async fn until_ready(&mut self) -> Result<Vec<Vec<Option<String>>>, TrialError> {
        let mut rows = Vec::new();
        loop {
            match self.receive().await? {
                (b'Z', _) => return Ok(rows),
                (b'D', body) => rows.push(row(&body).ok_or(TrialError::Unknown)?),
                _ => {}
            }
        }
    }
}

/// Whether the server asks a client that comes by TCP for its password.
pub async fn knock(host: &str, port: u16, user: &str, database: &str) -> Result<(), TrialError> {
    bounded(async {
        let stream: Box<dyn Stream> = Box::new(TcpStream::connect((host, port)).await?);
        let mut session = Session { stream };
        session.start_up(user, database).await?;
        session.authentication().await.map(|_| ())
    })
    .await
}

async fn bounded<T>(work: impl Future<Output = Result<T, TrialError>>) -> Result<T, TrialError> {
    tokio::time::timeout(TIMEOUT, work)
        .await
        .unwrap_or(Err(TrialError::Late))
}

/// The fields of an error: a letter and a text each, and a zero at the end.
fn said(body: &[u8]) -> TrialError {
    let field = |letter: u8| {
        body.split(|byte| *byte == 0)
            .find(|field| field.first() == Some(&letter))
            .map(|field| String::from_utf8_lossy(&field[1..]).into_owned())
    };
    TrialError::Said {
        code: field(b'C').unwrap_or_default(),
        message: field(b'M').unwrap_or_default(),
    }
}

/// The columns of a row: a length each, which is -1 for null.
fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut columns = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        columns.push(match usize::try_from(i32::from_be_bytes(*length)) {
            Err(_) => None,
            Ok(length) => {
                let (text, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(String::from_utf8_lossy(text).into_owned())
            }
        });
    }
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors_are_read_and_torn_ones_are_no_panic() {
        let body = [&[0, 2][..], &(-1i32).to_be_bytes(), &[0, 0, 0, 1, b'x']].concat();
        assert_eq!(row(&body), Some(vec![None, Some("x".to_owned())]));
        for length in 0..body.len() {
            assert_eq!(row(&body[..length]), None, "{length}");
        }
        let error = said(b"SFATAL\0C53300\0Msorry, too many clients already\0\0");
        assert!(error.is_busy());
        assert_eq!(error.to_string(), "sorry, too many clients already");
        assert!(!said(b"").is_busy());
    }
}
