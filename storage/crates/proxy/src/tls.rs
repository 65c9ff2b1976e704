//! The certificate, and TLS with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use parking_lot::RwLock;
use part_tls::certificate;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;

use crate::metrics;

/// The name of Postgres's protocol in ALPN.
pub const ALPN: &[u8] = b"postgresql";
/// That of HTTP/1.1.
pub const ALPN_HTTP: &[u8] = b"http/1.1";

/// A certificate in use: a connection keeps what it began with.
pub struct Identity {
    /// TLS as a server, with this certificate.
    pub config: Arc<ServerConfig>,
    /// What logins are bound to; None when the certificate's signature has no such hash.
    pub end_point: Option<Vec<u8>>,
    /// When the first certificate of the chain expires, seconds since the Unix epoch; None when none of them says it.
    pub not_after: Option<i64>,
}

/// The certificate and the key of two PEM files.
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<Identity>>,
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// A file cannot be read, has no certificate or key, or the two do not fit.
    pub fn open(chain: &Path, key: &Path) -> anyhow::Result<Certificate> {
        let identity = read(chain, key)?;
        show(&identity);
        Ok(Certificate {
            chain: chain.to_owned(),
            key: key.to_owned(),
            current: RwLock::new(Arc::new(identity)),
        })
    }

    /// Reads the files again; new connections get what is there. With files that do not fit, such as a new certificate
    /// beside the old key, all stays as it was.
    pub fn reload(&self) -> anyhow::Result<()> {
        let identity = read(&self.chain, &self.key)?;
        show(&identity);
        *self.current.write() = Arc::new(identity);
        Ok(())
    }

    /// What new connections get.
    pub fn current(&self) -> Arc<Identity> {
        self.current.read().clone()
    }

    /// The files to be watched.
    pub fn paths(&self) -> Vec<PathBuf> {
        vec![self.chain.clone(), self.key.clone()]
    }
}

fn show(identity: &Identity) {
    if let Some(seconds) = identity.not_after {
        metrics::CERTIFICATE_NOT_AFTER.set(seconds);
    }
}

fn read(chain: &Path, key: &Path) -> anyhow::Result<Identity> {
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read certificates from {}", chain.display()))?;
    ensure!(
        !certificates.is_empty(),
        "{} has no certificate",
        chain.display()
    );
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read a private key from {}", key.display()))?;
    let end_point = certificate::end_point(&certificates[0]);
    let not_after = certificates
        .iter()
        .filter_map(|one| certificate::not_after(one))
        .min();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .with_context(|| {
            format!(
                "the key in {} is not that of the certificate in {}",
                key.display(),
                chain.display()
            )
        })?;
    config.alpn_protocols = vec![ALPN.to_vec(), ALPN_HTTP.to_vec()];
    // libpq resumes no sessions, and drivers that would keep few connections: tickets would only cost bytes.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Identity {
        config: Arc::new(config),
        end_point,
        not_after,
    })
}
