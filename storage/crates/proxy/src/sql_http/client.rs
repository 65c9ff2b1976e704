//! A client of Postgres's protocol within the proxy: it runs the statements of a request in a pooled session.

use std::sync::Arc;

use pg_protocol::messages::{Fatal, message};
use pg_protocol::startup::CancelRequest;
use sql_over_http::answer::{Answer, AnswerError, Style};
use sql_over_http::request::Query;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::headers::Transaction;
use crate::memory::{Memory, Taken};
use crate::packets::{self, Message, PacketError};

/// No answer is longer, as JSON; nor is any message of it.
pub const MOST_ANSWER_BYTES: usize = 64 << 20;
/// A message, and the JSON that it becomes.
const COPIES: usize = 2;
/// The type byte and the length word of a message.
const HEADER_BYTES: usize = 5;
/// Memory is not asked for with messages as short as this: so many fit into the pipe to the session.
const SMALL_BYTES: usize = 1024;
/// What an answer may grow by between two looks at the memory that is left.
const STEP_BYTES: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// The server or the session said so: the body of an ErrorResponse. The session may go on.
    Said(Vec<u8>),
    /// The proxy says so, and the session cannot go on.
    Own(Fatal),
}

impl From<Fatal> for Failure {
    fn from(fatal: Fatal) -> Failure {
        Failure::Own(fatal)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        PacketError::Io(error).into()
    }
}

impl From<PacketError> for Failure {
    fn from(error: PacketError) -> Failure {
        match error {
            PacketError::Length(_) => too_long(),
            error => Failure::Own(Fatal::new("08006", error.to_string())),
        }
    }
}

fn too_long() -> Failure {
    let text = format!(
        "the answer is longer than {} MiB, which is all that goes through HTTP",
        MOST_ANSWER_BYTES >> 20
    );
    let hint = "Ask for fewer rows or columns at a time, or connect by Postgres's protocol.";
    Failure::Own(Fatal::new("54000", text).with_hint(hint))
}

/// A session that waits for statements.
pub struct Client<S> {
    stream: S,
    /// What cancels the session's statement.
    pub cancel: CancelRequest,
    /// JSON of the results so far.
    out: Vec<u8>,
    held: Taken,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Takes what the session says at its begin.
    ///
    /// # Errors
    /// The session did not begin, and said why.
    pub async fn begin(mut stream: S, memory: &Arc<Memory>) -> Result<Client<S>, Failure> {
        let (mut cancel, mut held) = (None, memory.begin());
        loop {
            let Message { tag, body } = receive(&mut stream, |bytes| held.hold(bytes)).await?;
            match (tag, body.split_first_chunk::<4>()) {
                (b'K', Some((process_id, key))) => {
                    let process_id = u32::from_be_bytes(*process_id);
                    let key = key.to_vec();
                    cancel = Some(CancelRequest { process_id, key });
                }
                (b'E', _) => return Err(Failure::Said(body)),
                (b'Z', _) => break,
                _ => {}
            }
        }
        Ok(Client {
            stream,
            cancel: cancel.ok_or_else(|| Fatal::new("XX000", "a pooled session has no key"))?,
            out: Vec::new(),
            held,
        })
    }

    /// Runs one query, in a transaction of its own. The result, as JSON.
    ///
    /// # Errors
    /// The query failed, or its answer is too long.
    pub async fn one(&mut self, query: &Query, style: Style) -> Result<(), Failure> {
        self.query(query, style).await.map(|_| ())
    }

    /// Runs all queries in one transaction. Their results, as JSON.
    ///
    /// # Errors
    /// One failed, ended the transaction, or its answer is too long; then none has had an effect, unless a query of the
    /// batch was a COMMIT.
    pub async fn batch(
        &mut self,
        queries: &[Query],
        style: Style,
        transaction: Transaction,
    ) -> Result<(), Failure> {
        self.command(&transaction.begin(), "BEGIN").await?;
        self.out.extend(b"{\"results\":[");
        for (number, query) in queries.iter().enumerate() {
            if number > 0 {
                self.out.push(b',');
            }
            if self.query(query, style).await? != b'T' {
                let text = format!("query {} of the batch ended its transaction", number + 1);
                let hint =
                    "A batch is one transaction: leave BEGIN, COMMIT and ROLLBACK out of it.";
                return Err(Fatal::new("25P01", text).with_hint(hint).into());
            }
        }
        self.out.extend(b"]}");
        self.command("COMMIT", "COMMIT").await
    }

    /// Says goodbye; answers with the JSON, and with the memory that it holds.
    pub async fn end(mut self) -> (Vec<u8>, Taken) {
        let _ = self.stream.write_all(&message(b'X', b"")).await;
        (self.out, self.held)
    }

    /// Runs a statement of the proxy's own that has to be answered with this tag.
    async fn command(&mut self, text: &str, expected: &str) -> Result<(), Failure> {
        let body = [text.as_bytes(), b"\0"].concat();
        self.stream.write_all(&message(b'Q', &body)).await?;
        let mut refused = None;
        let mut done = false;
        loop {
            let hold = |bytes: usize| self.held.hold(self.out.capacity() + bytes);
            let Message { tag, body } = receive(&mut self.stream, hold).await?;
            match tag {
                b'E' => refused = Some(body),
                b'C' => done = body.strip_suffix(b"\0") == Some(expected.as_bytes()),
                b'Z' => break,
                _ => {}
            }
        }
        match refused {
            Some(body) => Err(Failure::Said(body)),
            None if done => Ok(()),
            None => Err(Fatal::new("40000", "the transaction was rolled back").into()),
        }
    }

    /// Runs a query; answers with the state that the session is in then: `T` within a transaction, `I` outside.
    async fn query(&mut self, query: &Query, style: Style) -> Result<u8, Failure> {
        let style = Style {
            arrays: query.arrays.unwrap_or(style.arrays),
            ..style
        };
        let (before, after) = around_parameters(query)?;
        for piece in [&before, &query.parameters.encoded, &after] {
            self.stream.write_all(piece).await?;
        }
        let begun = Answer::begin(&mut self.out, MOST_ANSWER_BYTES, style);
        let mut answer = Some(begun.map_err(of_answer)?);
        let (mut refused, mut looked_at) = (None, 0);
        loop {
            let held = answer.as_ref().map_or(0, Answer::held);
            if held > looked_at + STEP_BYTES {
                looked_at = held;
                self.held.hold(held)?;
            }
            let hold = |bytes: usize| self.held.hold(held + COPIES * bytes);
            let Message { tag, body } = receive(&mut self.stream, hold).await?;
            let taken = match (tag, &mut answer) {
                (b'T', Some(answer)) => answer.columns(&body),
                (b'D', Some(answer)) => answer.row(&body),
                (b'C' | b'I', Some(_)) => answer.take().map_or(Ok(()), |answer| answer.end(&body)),
                (b'E', _) => {
                    refused = Some(body);
                    Ok(())
                }
                (b'G' | b'H' | b'W', _) => return Err(no_copy()),
                (b'Z', _) => {
                    let status = body.first().copied().unwrap_or_default();
                    return refused.map_or(Ok(status), |body| Err(Failure::Said(body)));
                }
                _ => Ok(()),
            };
            taken.map_err(of_answer)?;
        }
    }
}

/// Reads a message, once there is memory for as many bytes as it has.
async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    hold: impl FnOnce(usize) -> Result<(), Fatal>,
) -> Result<Message, Failure> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let [_, length @ ..] = header;
    let bytes = u32::from_be_bytes(length) as usize;
    if bytes > MOST_ANSWER_BYTES {
        return Err(too_long());
    }
    if bytes > SMALL_BYTES {
        hold(bytes)?;
    }
    let mut whole = (&header[..]).chain(stream);
    Ok(packets::message(&mut whole, MOST_ANSWER_BYTES as u32).await?)
}

fn of_answer(error: AnswerError) -> Failure {
    match error {
        AnswerError::TooLong => too_long(),
        error => Failure::Own(Fatal::new("22021", error.to_string())),
    }
}

fn no_copy() -> Failure {
    let text = "COPY from or to the client is not possible over HTTP";
    let hint = "Connect by Postgres's protocol.";
    Failure::Own(Fatal::new("0A000", text).with_hint(hint))
}

/// Parse, Bind, Describe, Execute and Sync of a query, without the parameters' values, which belong between the two.
fn around_parameters(query: &Query) -> Result<(Vec<u8>, Vec<u8>), Fatal> {
    let parameters = &query.parameters;
    // The unnamed portal and the unnamed statement; all parameters and columns as text.
    let bind = [&[0; 4][..], &parameters.count.to_be_bytes()].concat();
    let formats = [0; 2];
    let length = 4 + bind.len() + parameters.encoded.len() + formats.len();
    let length = i32::try_from(length);
    let parse = [b"\0", query.text.as_bytes(), b"\0\0\0"].concat();
    let (Ok(length), Ok(_)) = (length, i32::try_from(parse.len() + 4)) else {
        return Err(Fatal::new("54000", "the query is too long"));
    };
    let mut before = message(b'P', &parse);
    before.push(b'B');
    before.extend(length.to_be_bytes());
    before.extend(bind);
    let after = [
        &formats[..],
        &message(b'D', b"P\0"),
        &message(b'E', &[0; 5]),
        &message(b'S', b""),
    ];
    Ok((before, after.concat()))
}

#[cfg(test)]
mod tests {
    use sql_over_http::request::{Body, parse};

    use super::*;

    #[test]
    fn a_query_is_sent_as_the_protocol_has_it() {
        let Ok(Body::One(query)) = parse(br#"{"query": "q", "params": ["a", null]}"#) else {
            panic!("it is well formed");
        };
        let expected = [
            &b"P\0\0\0\x09\0q\0\0\0"[..],
            b"B\0\0\0\x15\0\0\0\0\0\x02\0\0\0\x01a\xFF\xFF\xFF\xFF\0\0",
            b"D\0\0\0\x06P\0",
            b"E\0\0\0\x09\0\0\0\0\0",
            b"S\0\0\0\x04",
        ]
        .concat();
        let (before, after) = around_parameters(&query).expect("short");
        let sent = [before, query.parameters.encoded, after].concat();
        assert_eq!(sent, expected);
    }

    /// A session that says what it is told to say, whatever it is asked.
    async fn answered(said: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let greeting = [message(b'K', &[0; 8]), message(b'Z', b"I")].concat();
        far.write_all(&[greeting, said.concat()].concat())
            .await
            .expect("there is room");
        let mut client = Client::begin(near, &Memory::new(1 << 20)).await?;
        let Ok(Body::One(query)) = parse(br#"{"query": "q"}"#) else {
            panic!("it is well formed");
        };
        let style = Style {
            raw: true,
            arrays: true,
        };
        client.one(&query, style).await?;
        Ok(client.end().await.0)
    }

    #[tokio::test]
    async fn what_cannot_be_answered_is_an_error_and_no_hang() {
        let code = |failure: Failure| match failure {
            Failure::Own(fatal) => fatal.sqlstate.to_owned(),
            Failure::Said(body) => String::from_utf8_lossy(&body).into_owned(),
        };
        let described = message(b'T', b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\0\0\0\0\0\0\0\0");
        let row = [b"\0\x01\0\x0F\xFF\0".to_vec(), vec![b'x'; 0x000F_FF00]].concat();
        for (said, expected) in [
            (vec![message(b'G', b"\0\0\0")], "0A000"),
            (vec![message(b'H', b"\0\0\0")], "0A000"),
            (
                vec![message(b'E', b"C42601\0\0"), message(b'Z', b"I")],
                "C42601\0\0",
            ),
            (vec![message(b'D', b"\0\x07")], "22021"),
            (vec![b"D\x7F\xFF\xFF\xFF".to_vec()], "54000"),
            // More than the memory that there is for all requests.
            (vec![described, message(b'D', &row)], "53200"),
        ] {
            let told = answered(&said).await.err().map(code);
            assert_eq!(told.as_deref(), Some(expected));
        }
        let done = [message(b'I', b""), message(b'Z', b"I")];
        let json = answered(&done).await.expect("an empty query has an answer");
        assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
    }
}
