//! A port's end of connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use token::watched::Watched;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::failure::{Side, note};
use crate::identity::{Identity, provider};
use crate::names::Admitted;
use crate::stream::{Socket, Stream};

/// A stranger that opens a connection and says nothing is let go of after so long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets in those who prove to be one of the parts that may come to a port. Without an identity it lets everybody in.
pub struct Acceptor(Option<Proving>);

struct Proving {
    identity: Arc<Watched<Identity>>,
    admitted: Admitted,
    /// The newest identity that somebody came to, and what was made of it.
    made: Mutex<Option<(Arc<Identity>, Arc<ServerConfig>)>>,
}

impl Acceptor {
    pub(crate) fn new(identity: Option<Arc<Watched<Identity>>>, admitted: Admitted) -> Acceptor {
        Acceptor(identity.map(|identity| Proving {
            identity,
            admitted,
            made: Mutex::new(None),
        }))
    }

    /// An acceptor that lets everybody in, for tests that are about something else.
    pub fn lets_all_in() -> Arc<Acceptor> {
        Arc::new(Acceptor(None))
    }

    pub(crate) fn proves(&self) -> bool {
        self.0.is_some()
    }

    /// Both sides have proven themselves when this returns. What fails is counted and logged.
    ///
    /// # Errors
    ///
    /// The caller did not prove to be a part that may come here, or not within 5 seconds.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        let Some(proving) = &self.0 else {
            return Ok(Stream::from(stream));
        };
        let peer = stream.peer_addr().map(|peer| peer.to_string());
        let acceptor = TlsAcceptor::from(proving.config()?);
        let handshake = acceptor.accept(Socket::new(stream));
        let proven = match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(proven) => proven,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the caller did not prove itself in time",
            )),
        };
        match proven {
            Ok(stream) => Ok(Stream::encrypted(stream.into())),
            Err(error) => {
                note(Side::Server, &peer.unwrap_or_default(), &error);
                Err(error)
            }
        }
    }
}

impl Proving {
    fn config(&self) -> io::Result<Arc<ServerConfig>> {
        let identity = self.identity.current();
        let mut made = self.made.lock();
        if let Some((of, config)) = made.as_ref()
            && Arc::ptr_eq(of, &identity)
        {
            return Ok(config.clone());
        }
        let verifier = Verifier {
            chains: identity.chains.clone(),
            admitted: self.admitted,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.key.clone())));
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let config = Arc::new(config);
        *made = Some((identity, config.clone()));
        Ok(config)
    }
}

/// The check of a caller's certificate: of our CA and in time, and then of a part that may come here.
#[derive(Debug)]
struct Verifier {
    chains: Arc<dyn ClientCertVerifier>,
    admitted: Admitted,
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .chains
            .verify_client_cert(end_entity, intermediates, now)?;
        let certificate = webpki::EndEntityCert::try_from(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        // Names are compared as they are written: the CA that signs them writes them.
        match certificate
            .valid_dns_names()
            .any(|name| self.admitted.0.contains(&name))
        {
            true => Ok(verified),
            false => Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
