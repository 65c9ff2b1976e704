//! The little of Postgres's protocol that physical replication over a local socket takes.
//!
//! Hand-framed: start-up, simple queries, then CopyBoth. Only what a trusted local connection can meet is
//! understood; a request for a password is an error that says how to fix it.

use std::path::Path;

use anyhow::{Context as _, bail};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use pg_types::Lsn;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// Read at once, bytes: all that commits left there while the WAL before it was on its way.
const READ_BYTES: usize = 256 << 10;
/// Postgres sends at most 128 KiB of WAL in a message; nothing else here comes near this.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
const PROTOCOL_3_0: u32 = 196_608;
const DUPLICATE_OBJECT: &str = "42710";

pub struct Replication {
    reader: Reader,
    writer: Writer,
}

pub struct Reader {
    socket: OwnedReadHalf,
    buffer: BytesMut,
}

pub struct Writer(OwnedWriteHalf);

/// What comes while replication runs.
pub enum Event {
    Wal {
        start: Lsn,
        wal: Bytes,
    },
    Keepalive {
        reply_requested: bool,
    },
    /// Postgres ended the stream.
    End,
}

/// What the standby reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StandbyStatus {
    pub write: Lsn,
    pub flush: Lsn,
    pub apply: Lsn,
}

#[derive(Debug, thiserror::Error)]
#[error("Postgres says {severity} {code}: {message}")]
pub struct ServerError {
    severity: String,
    pub code: String,
    message: String,
}

fn server_error(body: &[u8]) -> ServerError {
    let mut error = ServerError {
        severity: "ERROR".into(),
        code: String::new(),
        message: String::new(),
    };
    for field in body
        .split(|byte| *byte == 0)
        .filter(|field| !field.is_empty())
    {
        let text = String::from_utf8_lossy(&field[1..]).into_owned();
        match field[0] {
            b'S' => error.severity = text,
            b'C' => error.code = text,
            b'M' => error.message = text,
            _ => {}
        }
    }
    error
}

impl Reader {
    /// The next message: its type and its body.
    async fn message(&mut self) -> anyhow::Result<(u8, Bytes)> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            self.buffer.reserve(READ_BYTES);
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                bail!("Postgres closed the replication connection");
            }
        }
    }

    /// The next message if all of it is here.
    fn buffered(&mut self) -> anyhow::Result<Option<(u8, Bytes)>> {
        let Some(length) = self.message_bytes()? else {
            return Ok(None);
        };
        let mut message = self.buffer.split_to(length).freeze();
        let kind = message.get_u8();
        message.advance(4);
        Ok(Some((kind, message)))
    }

    /// Whether another message is here as a whole.
    pub fn has_message(&self) -> bool {
        // What is wrong with its length is said when it is taken.
        !matches!(self.message_bytes(), Ok(None))
    }

    /// Size of the next message with its type, if all of it is here.
    fn message_bytes(&self) -> anyhow::Result<Option<usize>> {
        let Some(length) = self.buffer.get(1..5) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if !(4..=MAX_MESSAGE_BYTES).contains(&length) {
            bail!("Postgres sent a message of {length} bytes");
        }
        Ok((self.buffer.len() > length).then_some(length + 1))
    }

    /// The next message that is not a notice or a parameter report.
    async fn answer(&mut self) -> anyhow::Result<(u8, Bytes)> {
        loop {
            match self.message().await? {
                (b'N' | b'S' | b'K', _) => {}
                (b'E', body) => return Err(server_error(&body).into()),
                answer => return Ok(answer),
            }
        }
    }

    pub async fn event(&mut self) -> anyhow::Result<Event> {
        loop {
            let (kind, mut body) = self.answer().await?;
            match kind {
                b'd' => {}
                b'c' | b'C' | b'Z' => return Ok(Event::End),
                other => bail!(
                    "Postgres sent a message of type {:?} while replicating",
                    other as char
                ),
            }
            match body.first() {
                Some(b'w') if body.len() >= 25 => {
                    let start = Lsn(u64::from_be_bytes(body[1..9].try_into()?));
                    return Ok(Event::Wal {
                        start,
                        wal: body.split_off(25),
                    });
                }
                Some(b'k') if body.len() >= 18 => {
                    return Ok(Event::Keepalive {
                        reply_requested: body[17] != 0,
                    });
                }
                // What a later version may add for our information.
                _ => {}
            }
        }
    }
}

impl Writer {
    pub async fn report(&mut self, status: StandbyStatus, now_us: i64) -> anyhow::Result<()> {
        let mut message = BytesMut::with_capacity(39);
        message.put_u8(b'd');
        message.put_u32(4 + 34);
        message.put_u8(b'r');
        for lsn in [status.write, status.flush, status.apply] {
            message.put_u64(lsn.0);
        }
        message.put_i64(now_us);
        message.put_u8(0);
        Ok(self.0.write_all(&message).await?)
    }
}

impl Replication {
    pub async fn connect(socket_dir: &Path, port: u16, user: &str) -> anyhow::Result<Replication> {
        let path = socket_dir.join(format!(".s.PGSQL.{port}"));
        let stream = UnixStream::connect(&path)
            .await
            .with_context(|| format!("cannot connect to {}", path.display()))?;
        let (reader, writer) = stream.into_split();
        let mut replication = Replication {
            reader: Reader {
                socket: reader,
                buffer: BytesMut::new(),
            },
            writer: Writer(writer),
        };
        replication.start_up(user).await?;
        Ok(replication)
    }

    async fn start_up(&mut self, user: &str) -> anyhow::Result<()> {
        let mut message = BytesMut::new();
        message.put_u32(0);
        message.put_u32(PROTOCOL_3_0);
        let parameters = [
            ("user", user),
            ("replication", "true"),
            ("application_name", "weir_proposer"),
        ];
        for text in parameters.iter().flat_map(|(name, value)| [name, value]) {
            message.put_slice(text.as_bytes());
            message.put_u8(0);
        }
        message.put_u8(0);
        let length = (message.len() as u32).to_be_bytes();
        message[..4].copy_from_slice(&length);
        self.writer.0.write_all(&message).await?;
        let (kind, body) = self.reader.answer().await?;
        if kind != b'R' || body.get(..4) != Some(&[0; 4]) {
            bail!(
                "Postgres wants a password from {user} for replication; trust or map this role on the local socket in pg_hba.conf"
            );
        }
        loop {
            if let (b'Z', _) = self.reader.answer().await? {
                return Ok(());
            }
        }
    }

    async fn send_query(&mut self, query: &str) -> anyhow::Result<()> {
        let mut message = BytesMut::with_capacity(query.len() + 6);
        message.put_u8(b'Q');
        message.put_u32(query.len() as u32 + 5);
        message.put_slice(query.as_bytes());
        message.put_u8(0);
        Ok(self.writer.0.write_all(&message).await?)
    }

    /// The fields of the first row.
    async fn query(&mut self, query: &str) -> anyhow::Result<Vec<String>> {
        self.send_query(query).await?;
        let mut row = Vec::new();
        let mut failed = None;
        loop {
            match self.reader.message().await? {
                (b'D', body) if row.is_empty() => {
                    row = fields(body).context("Postgres sent a malformed row")?
                }
                (b'E', body) => failed = Some(server_error(&body)),
                (b'Z', _) => break,
                _ => {}
            }
        }
        failed.map_or(Ok(row), |error| Err(error.into()))
    }

    /// The system identifier of the cluster.
    pub async fn identify(&mut self) -> anyhow::Result<u64> {
        let row = self.query("IDENTIFY_SYSTEM").await?;
        row.first()
            .and_then(|field| field.parse().ok())
            .context("Postgres did not identify itself")
    }

    /// Creates the slot unless it exists. WAL from the last checkpoint on is kept for it.
    pub async fn create_slot(&mut self, slot: &str) -> anyhow::Result<()> {
        match self
            .query(&format!(
                "CREATE_REPLICATION_SLOT \"{}\" PHYSICAL RESERVE_WAL",
                slot.replace('"', "\"\"")
            ))
            .await
        {
            Err(error)
                if error
                    .downcast_ref::<ServerError>()
                    .is_some_and(|error| error.code == DUPLICATE_OBJECT) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    pub async fn start(mut self, slot: &str, from: Lsn) -> anyhow::Result<(Reader, Writer)> {
        self.send_query(&format!(
            "START_REPLICATION SLOT \"{}\" PHYSICAL {from} TIMELINE 1",
            slot.replace('"', "\"\"")
        ))
        .await?;
        match self.reader.answer().await? {
            (b'W', _) => Ok((self.reader, self.writer)),
            (other, _) => bail!(
                "Postgres answered START_REPLICATION with a message of type {:?}",
                other as char
            ),
        }
    }
}

fn fields(mut body: Bytes) -> Option<Vec<String>> {
    let count = body.try_get_u16().ok()?;
    (0..count)
        .map(|_| {
            let length = body.try_get_i32().ok()?;
            let length = usize::try_from(length).unwrap_or(0);
            (body.len() >= length)
                .then(|| String::from_utf8_lossy(&body.split_to(length)).into_owned())
        })
        .collect()
}
