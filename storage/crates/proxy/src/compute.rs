//! The login to a compute, with the keys that the client's login left behind.
//!
//! A compute has to prove that it knows the role's verifier. Whatever else listens at its address gets nothing but a
//! proof that it cannot use, and none of the client's statements.

use std::io;
use std::time::Duration;

use pg_protocol::messages::message;
use pg_protocol::scram::{Client, LoginKeys, NONCE_BYTES, SCRAM_SHA_256, Waiting};
use pg_protocol::startup::Startup;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::packets::{self, Message, PacketError};

/// Opening a connection takes no longer than this.
const CONNECT: Duration = Duration::from_secs(5);
/// No message of the start-up phase is longer; settings are the longest.
const MOST_MESSAGE_BYTES: u32 = 1 << 20;
/// All messages up to ReadyForQuery together.
const MOST_GREETING_BYTES: usize = 4 << 20;
const PROTOCOL_3_0: u32 = 0x0003_0000;
/// SQLSTATE cannot_connect_now: a server that starts, stops or recovers.
const CANNOT_CONNECT_NOW: &[u8] = b"57P03";

/// A compute that waits for the first statement.
pub struct Ready {
    /// The connection, of which nothing but `rest` was read beyond ReadyForQuery.
    pub stream: TcpStream,
    /// Bytes that came behind ReadyForQuery.
    pub rest: Vec<u8>,
    /// What the client gets before ReadyForQuery: settings and notices, as the compute sent them.
    pub greeting: Vec<u8>,
    /// Process id and key of the backend, if it has one that can be asked to cancel.
    pub cancel_key: Option<(u32, Vec<u8>)>,
}

/// Why a compute cannot be used.
#[derive(Debug)]
pub enum ComputeError {
    /// The compute does not answer, or not yet; it may in a moment.
    Away(String),
    /// The compute refused, with this ErrorResponse for the client.
    Refused(Vec<u8>),
    /// What answers does not behave as a compute of ours.
    Untrusted(String),
}

impl From<io::Error> for ComputeError {
    fn from(error: io::Error) -> ComputeError {
        ComputeError::Away(error.to_string())
    }
}

impl From<PacketError> for ComputeError {
    fn from(error: PacketError) -> ComputeError {
        match error {
            PacketError::Io(error) => error.into(),
            error => ComputeError::Untrusted(error.to_string()),
        }
    }
}

fn untrusted(text: impl Into<String>) -> ComputeError {
    ComputeError::Untrusted(text.into())
}

/// Opens a connection and logs in as the client's role.
pub async fn connect(
    address: &str,
    startup: &Startup,
    keys: &LoginKeys,
) -> Result<Ready, ComputeError> {
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address))
        .await
        .map_err(|_| ComputeError::Away(format!("no connection within {CONNECT:?}")))??;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(4096, stream);
    stream.write_all(&startup_message(startup)).await?;
    authenticate(&mut stream, keys).await?;
    let (mut greeting, mut cancel_key) = (Vec::new(), None);
    loop {
        let Message { tag, body } = packets::message(&mut stream, MOST_MESSAGE_BYTES).await?;
        match tag {
            b'Z' => break,
            b'K' => cancel_key = split_key(&body),
            b'E' => return Err(refused(&body)),
            b'S' | b'N' => greeting.extend(message(tag, &body)),
            _ => return Err(untrusted(format!("message {tag:#x} before ReadyForQuery"))),
        }
        if greeting.len() > MOST_GREETING_BYTES {
            return Err(untrusted("its greeting has no end"));
        }
    }
    Ok(Ready {
        rest: stream.buffer().to_vec(),
        stream: stream.into_inner(),
        greeting,
        cancel_key,
    })
}

/// The client's startup packet in the version that all computes speak. What the client negotiated is between it and
/// the proxy: 3.2 differs in keys of cancel requests only.
fn startup_message(startup: &Startup) -> Vec<u8> {
    let mut body = PROTOCOL_3_0.to_be_bytes().to_vec();
    for (name, value) in startup.parameters() {
        for text in [name, value] {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&length[..], &body].concat()
}

async fn authenticate(
    stream: &mut BufReader<TcpStream>,
    keys: &LoginKeys,
) -> Result<(), ComputeError> {
    let offered = request(stream, 10).await?;
    let mechanism = SCRAM_SHA_256.as_bytes();
    if !offered
        .split(|byte| *byte == 0)
        .any(|name| name == mechanism)
    {
        return Err(untrusted("it does not offer SCRAM-SHA-256"));
    }
    let random: [u8; NONCE_BYTES] = rand::random();
    let (client, first) = Client::start(&random);
    let mut body = [mechanism, b"\0", &(first.len() as u32).to_be_bytes()].concat();
    body.extend_from_slice(first.as_bytes());
    stream.write_all(&message(b'p', &body)).await?;

    let challenge = request(stream, 11).await?;
    let (waiting, last) = client
        .answer(&challenge, keys)
        .map_err(|error| untrusted(error.to_string()))?;
    stream.write_all(&message(b'p', last.as_bytes())).await?;
    believe(stream, waiting).await
}

async fn believe(stream: &mut BufReader<TcpStream>, waiting: Waiting) -> Result<(), ComputeError> {
    let signature = request(stream, 12).await?;
    waiting
        .verify(&signature)
        .map_err(|_| untrusted("it does not know the role's verifier"))?;
    request(stream, 0).await.map(|_| ())
}

/// The data of the authentication request that has to come next. Any other kind is a server that lets in without SCRAM,
/// or wants a password: no compute of ours.
async fn request(stream: &mut BufReader<TcpStream>, kind: u32) -> Result<Vec<u8>, ComputeError> {
    let Message { tag, body } = packets::message(stream, MOST_MESSAGE_BYTES).await?;
    match (tag, body.split_first_chunk::<4>()) {
        (b'E', _) => Err(refused(&body)),
        (b'R', Some((found, data))) if u32::from_be_bytes(*found) == kind => Ok(data.to_vec()),
        (b'R', Some((found, _))) => {
            let found = u32::from_be_bytes(*found);
            Err(untrusted(format!(
                "it asks for authentication {found} in place of {kind}"
            )))
        }
        _ => Err(untrusted(format!("message {tag:#x} during the login"))),
    }
}

fn split_key(body: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (process_id, key) = body.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*process_id), key.to_vec()))
}

fn refused(body: &[u8]) -> ComputeError {
    let mut fields = body.split(|byte| *byte == 0);
    let code = fields.find_map(|field| field.strip_prefix(b"C"));
    match code {
        Some(CANNOT_CONNECT_NOW) => ComputeError::Away("it starts or stops".to_owned()),
        _ => ComputeError::Refused(message(b'E', body)),
    }
}

#[cfg(test)]
mod tests {
    use pg_protocol::messages::Fatal;
    use pg_protocol::scram::Verifier;
    use pg_protocol::startup::{FirstPacket, parse};
    use tokio::net::TcpListener;

    use super::*;

    fn startup() -> Startup {
        match parse(b"\0\x03\0\0user\0app\0\0") {
            Ok(FirstPacket::Startup(startup)) => startup,
            other => panic!("{other:?}"),
        }
    }

    fn keys(password: &str) -> LoginKeys {
        let verifier = Verifier::of_password(password.as_bytes(), 1, b"salt").expect("iterations");
        LoginKeys::of_password(password, &verifier).expect("the password of the verifier")
    }

    async fn outcome_with(answers: &[u8]) -> ComputeError {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let answers = answers.to_vec();
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            stream.write_all(&answers).await.expect("written");
            // The client reads or not; the connection stays open until it has said why.
            stream
        };
        let (_, startup, keys) = ((), startup(), keys("pencil"));
        let (_held, outcome) = tokio::join!(server, connect(&address, &startup, &keys));
        outcome.err().expect("nothing of this is a compute")
    }

    /// A program that took a compute's port gets nothing it could use, and no client's statements.
    #[tokio::test]
    async fn a_server_that_lets_in_or_asks_otherwise_is_not_trusted() {
        let request = |kind: u32, data: &[u8]| message(b'R', &[&kind.to_be_bytes(), data].concat());
        let forged = [
            request(10, b"SCRAM-SHA-256\0\0"),
            request(11, b"r=AAAA,s=AAAA,i=4096"),
        ];
        for answers in [
            request(0, b""),
            request(3, b""),
            request(5, b"salt"),
            request(10, b"SCRAM-SHA-256-PLUS\0\0"),
            forged.concat(),
            message(b'S', b"a\0b\0"),
            b"R\xFF\xFF\xFF\xFF".to_vec(),
        ] {
            let outcome = outcome_with(&answers).await;
            assert!(matches!(outcome, ComputeError::Untrusted(_)), "{outcome:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_starts_is_away_and_other_errors_are_the_clients() {
        let starting = Fatal::new("57P03", "the database system is starting up").to_message();
        assert!(matches!(
            outcome_with(&starting).await,
            ComputeError::Away(_)
        ));
        let unknown = Fatal::new("3D000", "database \"x\" does not exist").to_message();
        match outcome_with(&unknown).await {
            ComputeError::Refused(message) => assert_eq!(message, unknown),
            other => panic!("{other:?}"),
        }
    }
}
