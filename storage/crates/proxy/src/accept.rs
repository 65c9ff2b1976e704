//! The first packets of a connection, up to TLS and the startup packet in it.

use pg_protocol::messages::Fatal;
use pg_protocol::startup::{CancelRequest, FirstPacket, Startup, StartupError};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::packets::{self, PacketError};
use crate::tls::{ALPN, ALPN_HTTP, Identity};

/// The first byte of a TLS connection: a record of its handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// A client asks for TLS and for GSSAPI once each at most.
const MOST_REQUESTS: usize = 2;
/// A client of HTTP that does not say so by ALPN is known by its first byte: methods are in capitals, and a startup packet
/// begins with a zero.
const METHODS: std::ops::RangeInclusive<u8> = b'A'..=b'Z';
/// What is read at once of a client that was looked at.
const LOOKED_AT_BYTES: usize = 4096;

/// What a connection turned out to be.
pub enum Accepted {
    /// A client that wants a session, and its startup packet.
    Session(Box<TlsStream<TcpStream>>, Startup),
    /// The client waits for the connection's end, which says that the request was passed on.
    Cancel(CancelRequest, Box<dyn AsyncWrite + Send + Unpin>),
    /// A client of HTTP.
    Http(Box<dyn Duplex>),
}

/// Both directions of a connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Why a connection ends here. The client has been told what it can be told.
#[derive(Debug)]
pub enum Refused {
    /// The client went away, or spoke neither Postgres's protocol nor TLS.
    Broken(String),
    /// The client was told this.
    Fatal(Fatal),
}

impl From<PacketError> for Refused {
    fn from(error: PacketError) -> Refused {
        match error {
            PacketError::Startup(StartupError::Version { .. }) => {
                Refused::Fatal(Fatal::new("0A000", error.to_string()))
            }
            PacketError::Startup(StartupError::NoUser) => {
                Refused::Fatal(Fatal::new("28000", error.to_string()))
            }
            // Not told: it may be no client of Postgres at all.
            error => Refused::Broken(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Refused {
        Refused::Broken(error.to_string())
    }
}

/// Takes a connection to its startup packet, or to its request to cancel.
pub async fn accept(mut stream: TcpStream, identity: &Identity) -> Result<Accepted, Refused> {
    let mut first = [0; 1];
    if stream.peek(&mut first).await? == 1 && first[0] == TLS_HANDSHAKE {
        return direct(stream, identity).await;
    }
    for _ in 0..=MOST_REQUESTS {
        match packets::first(&mut stream).await {
            Ok(FirstPacket::SslRequest) => {
                stream.write_all(b"S").await?;
                // Nothing that came without encryption is taken for what comes with it: not a byte is read ahead.
                let stream = encrypt(stream, identity).await?;
                if stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP) {
                    let text = "it asked for TLS as Postgres has it, and for HTTP within it";
                    return Err(Refused::Broken(text.to_owned()));
                }
                return within_tls(stream).await;
            }
            Ok(FirstPacket::GssEncRequest) => stream.write_all(b"N").await?,
            Ok(FirstPacket::Cancel(request)) => {
                return Ok(Accepted::Cancel(request, Box::new(stream)));
            }
            Ok(FirstPacket::Startup(_)) => {
                let fatal = Fatal::new("28000", "connection is not encrypted: this server takes only TLS")
                    .with_hint("Set sslmode=require, or sslmode=verify-full with sslrootcert to know the server.");
                return Err(refuse(&mut stream, fatal).await);
            }
            Err(error) => return Err(end(&mut stream, error.into()).await),
        }
    }
    Err(Refused::Broken(
        "it asked for encryption too often".to_owned(),
    ))
}

/// TLS from the first byte on: HTTP, or Postgres's protocol (`sslnegotiation=direct`). As in Postgres the client has to say
/// by ALPN that it means the latter, so that no client of another one can be made to speak to a database.
async fn direct(stream: TcpStream, identity: &Identity) -> Result<Accepted, Refused> {
    let stream = encrypt(stream, identity).await?;
    match stream.get_ref().1.alpn_protocol() {
        Some(ALPN) => return within_tls(stream).await,
        Some(ALPN_HTTP) => return Ok(Accepted::Http(stream)),
        _ => {}
    }
    // Clients of WebSockets name no protocol.
    let mut stream = BufReader::with_capacity(LOOKED_AT_BYTES, stream);
    match stream.fill_buf().await?.first() {
        Some(first) if METHODS.contains(first) => Ok(Accepted::Http(Box::new(stream))),
        Some(_) => {
            let text = "TLS without a request for it needs the protocol postgresql in ALPN";
            Err(refuse(&mut stream, Fatal::new("08P01", text)).await)
        }
        None => Err(Refused::Broken("it said nothing".to_owned())),
    }
}

async fn encrypt(
    stream: TcpStream,
    identity: &Identity,
) -> Result<Box<TlsStream<TcpStream>>, Refused> {
    let acceptor = TlsAcceptor::from(identity.config.clone());
    match acceptor.accept(stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(Refused::Broken(format!("no TLS: {error}"))),
    }
}

async fn within_tls(mut stream: Box<TlsStream<TcpStream>>) -> Result<Accepted, Refused> {
    match packets::first(&mut stream).await {
        Ok(FirstPacket::Startup(startup)) => Ok(Accepted::Session(stream, startup)),
        Ok(FirstPacket::Cancel(request)) => Ok(Accepted::Cancel(request, stream)),
        Ok(FirstPacket::SslRequest | FirstPacket::GssEncRequest) => Err(Refused::Broken(
            "it asked for encryption within TLS".to_owned(),
        )),
        Err(error) => Err(end(&mut stream, error.into()).await),
    }
}

/// The first packets within a WebSocket, which is within TLS: no further encryption is agreed on. What comes back is a
/// startup packet or a request to cancel.
pub async fn within_websocket(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<FirstPacket, Refused> {
    for _ in 0..=MOST_REQUESTS {
        match packets::first(stream).await {
            Ok(FirstPacket::SslRequest | FirstPacket::GssEncRequest) => {
                stream.write_all(b"N").await?;
                stream.flush().await?;
            }
            Ok(packet) => return Ok(packet),
            Err(error) => return Err(end(stream, error.into()).await),
        }
    }
    Err(Refused::Broken(
        "it asked for encryption too often".to_owned(),
    ))
}

async fn end(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), refused: Refused) -> Refused {
    match refused {
        Refused::Fatal(fatal) => refuse(stream, fatal).await,
        broken => broken,
    }
}

/// Tells a client why its connection ends. That it cannot be told changes nothing.
pub async fn refuse(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), fatal: Fatal) -> Refused {
    let _ = stream.write_all(&fatal.to_message()).await;
    let _ = stream.shutdown().await;
    Refused::Fatal(fatal)
}
