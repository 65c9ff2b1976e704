//! What a part proves itself by, and whom it believes.

use std::fmt;
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, ensure};
use prometheus::{IntGauge, register_int_gauge};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};

use crate::certificate;

static NOT_AFTER: LazyLock<IntGauge> = LazyLock::new(|| {
    let gauge = register_int_gauge!(
        "weir_part_certificate_not_after_timestamp_seconds",
        "When the certificate expires by which this program proves itself to other parts, Unix time"
    );
    gauge.expect("metric registered once")
});

/// A private key, the certificate for it, and the CAs whose certificates count.
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
    /// Checks whose certificate a caller has, and nothing of who it is.
    pub(crate) chains: Arc<dyn ClientCertVerifier>,
    pub(crate) client: Arc<ClientConfig>,
    /// The last second in which the certificate is valid, seconds since the Unix epoch.
    pub not_after: i64,
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Identity {
    /// From PEM: a private key, the certificate for it, and behind that certificates of CAs, one at least.
    ///
    /// # Errors
    ///
    /// One of them is missing, or makes no sense, or the key is not that of the first certificate. The message has nothing
    /// of the key.
    pub fn parse(pem: &[u8]) -> anyhow::Result<Identity> {
        let certificates = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .context("it has something that is no certificate in PEM")?;
        let (own, authorities) = certificates
            .split_first()
            .context("it has no certificate")?;
        ensure!(
            !authorities.is_empty(),
            "it has no certificate of a CA behind the part's own"
        );
        let private = PrivateKeyDer::from_pem_slice(pem).context("it has no private key")?;
        let key = CertifiedKey::from_der(vec![own.clone()], private, &provider())
            .context("its private key is not that of its first certificate")?;
        let mut trusted = RootCertStore::empty();
        for authority in authorities {
            trusted
                .add(authority.clone())
                .context("one of its CAs can't be used")?;
        }
        let (key, trusted) = (Arc::new(key), Arc::new(trusted));
        let chains = WebPkiClientVerifier::builder_with_provider(trusted.clone(), provider());
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(trusted)
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key.clone())));
        client.resumption = Resumption::disabled();
        Ok(Identity {
            key,
            // Strangers are told nothing of the CAs.
            chains: chains.clear_root_hint_subjects().build()?,
            client: Arc::new(client),
            not_after: certificate::not_after(own)
                .context("its certificate does not say when it ends")?,
        })
    }

    /// [`parse`](Identity::parse) of the program's own file, which the metric shows from then on.
    pub(crate) fn of_program(pem: &[u8]) -> anyhow::Result<Identity> {
        let identity = Identity::parse(pem)?;
        NOT_AFTER.set(identity.not_after);
        Ok(identity)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not_after = self.not_after;
        write!(f, "Identity(.., until {not_after})")
    }
}
