//! The option that parts have in common.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use token::watched::Watched;

use crate::acceptor::Acceptor;
use crate::dialer::Dialer;
use crate::failure;
use crate::identity::Identity;
use crate::names::Admitted;

/// By what a part proves itself. An option and no variable of the environment: services inherit those from each other.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct TlsOptions {
    /// PEM of this part's private key and certificate, and of the CAs that it trusts; read again when the file changes.
    /// Without it connections between parts are not encrypted, and no part knows with whom it speaks
    #[arg(long = "tls", value_name = "FILE")]
    pub tls: Option<PathBuf>,
}

impl TlsOptions {
    /// # Errors
    ///
    /// There is such a file, and it can't be used: a part that was told to use TLS does not start without.
    pub fn open(&self) -> anyhow::Result<PartTls> {
        let identity = self
            .tls
            .as_deref()
            .map(|path| Watched::open(path, Identity::of_program))
            .transpose()
            .context("--tls, the part's certificate")?;
        failure::show_all();
        match &identity {
            Some(identity) => {
                tracing::info!(
                    not_after = identity.current().not_after,
                    "speaks TLS with other parts"
                );
            }
            None => tracing::info!("speaks plain TCP with other parts"),
        }
        Ok(PartTls { identity })
    }
}

/// TLS of one program, or the lack of it.
#[derive(Clone, Default)]
pub struct PartTls {
    identity: Option<Arc<Watched<Identity>>>,
}

impl PartTls {
    /// For connections to other parts.
    pub fn dialer(&self) -> Dialer {
        Dialer::new(self.identity.clone())
    }

    /// For a port that these parts may come to.
    pub fn acceptor(&self, admitted: Admitted) -> Arc<Acceptor> {
        Arc::new(Acceptor::new(self.identity.clone(), admitted))
    }
}
