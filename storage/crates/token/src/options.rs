//! The options that parts have in common.

use std::path::PathBuf;
use std::sync::Arc;

use crate::gate::Gate;
use crate::own::OwnToken;

/// Which tokens a part takes, and which it shows. Files, since what stands in arguments and environment can be read by
/// others.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct TokenOptions {
    /// The control plane's public keys (a JSON web key set), read again when the file changes. Without them the program
    /// lets everybody in who reaches its ports
    #[arg(long, env = "WEIR_TOKEN_KEYS", value_name = "FILE")]
    pub token_keys: Option<PathBuf>,
    /// The token to show to other parts, read again when the file changes
    #[arg(long, env = "WEIR_TOKEN_FILE", value_name = "FILE")]
    pub token: Option<PathBuf>,
}

impl TokenOptions {
    /// The gate of a part that tokens call by one of these names.
    ///
    /// # Errors
    ///
    /// There are keys to be used, and they can't be.
    pub fn gate(&self, audiences: Vec<String>) -> anyhow::Result<Arc<Gate>> {
        Gate::open(self.token_keys.as_deref(), audiences)
    }

    /// The part's own token.
    ///
    /// # Errors
    ///
    /// There is one to be shown, and it can't be read.
    pub fn own(&self) -> anyhow::Result<OwnToken> {
        OwnToken::open(self.token.as_deref())
    }
}
