//! Where computes are and who may log in there.

mod control_plane;
mod entry;
mod file;

pub use control_plane::ControlPlane;
pub use file::FileDirectory;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use pg_protocol::addresses::Addresses;
use pg_protocol::endpoint::EndpointName;
use pg_protocol::scram::Verifier;
use thiserror::Error;

/// What the proxy knows of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What its compute does, and where.
    pub state: State,
    /// Verifiers of the roles that can log in, by the role's name.
    pub roles: HashMap<String, Verifier>,
    /// The addresses that clients may come from. None: any. The empty set: none.
    pub allowed: Option<Addresses>,
}

impl Endpoint {
    /// Whether clients may come from this address.
    pub fn admits(&self, address: IpAddr) -> bool {
        self.allowed
            .as_ref()
            .is_none_or(|allowed| allowed.contains(address))
    }
}

/// What an endpoint's compute does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The compute accepts connections at this address, `HOST:PORT`.
    Running(String),
    /// The compute starts when somebody asks for it.
    Suspended,
    /// The compute must not be started.
    Disabled,
}

/// Why nothing is known, or nothing starts. The text goes to the log, not to clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct DirectoryError(pub String);

/// Knows endpoints. It is asked for each connection before the client has proven anything, so it answers from memory
/// or bounds what strangers can make it do, and does the same work for endpoints that do not exist.
#[async_trait]
pub trait Directory: Send + Sync + 'static {
    /// None: there is no such endpoint.
    async fn endpoint(&self, name: &EndpointName) -> Result<Option<Arc<Endpoint>>, DirectoryError>;

    /// The same, and never an answer from before the call. Asked after a login only.
    async fn endpoint_now(
        &self,
        name: &EndpointName,
    ) -> Result<Option<Arc<Endpoint>>, DirectoryError> {
        self.endpoint(name).await
    }

    /// Has a suspended compute started, and returns when `endpoint` says where it runs. Called once for all who wait,
    /// after one of them has logged in.
    async fn wake(&self, name: &EndpointName) -> Result<(), DirectoryError>;
}
