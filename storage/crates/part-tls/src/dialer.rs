//! A caller's end of connections.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use rustls::pki_types::ServerName;
use token::watched::Watched;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::failure::{Side, note};
use crate::identity::Identity;
use crate::stream::{Socket, Stream};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to parts that prove to be who they are meant to be. Without an identity it takes whoever listens.
#[derive(Clone, Default)]
pub struct Dialer(Option<Arc<Watched<Identity>>>);

impl Dialer {
    pub(crate) fn new(identity: Option<Arc<Watched<Identity>>>) -> Dialer {
        Dialer(identity)
    }

    /// A connection to `address`, `HOST:PORT`, whose other side has proven to be `part` (`names`). Small messages go out
    /// at once. Whether the other side admits this program is not known before it has answered something.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or whoever does is not proven to be `part` within 5 seconds.
    pub async fn connect(&self, address: &str, part: &str) -> io::Result<Stream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(identity) = &self.0 else {
            return Ok(Stream::from(stream));
        };
        let name = ServerName::try_from(part.to_owned()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(identity.current().client.clone());
        let handshake = connector.connect(name, Socket::new(stream));
        let proven = match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(proven) => proven,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        proven
            .map(|stream| Stream::encrypted(stream.into()))
            .map_err(|error| {
                note(Side::Client, address, &error);
                let text = format!("what listens at {address} is not proven to be {part}: {error}");
                io::Error::new(error.kind(), text)
            })
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "Dialer(TLS)",
            None => "Dialer(plain)",
        })
    }
}
