//! What all connections of the process have in common.

use std::sync::Arc;
use std::time::Duration;

use pg_protocol::scram::MockSecret;

use crate::cancel::Cancels;
use crate::crowd::Crowd;
use crate::directory::Directory;
use crate::memory::Memory;
use crate::password::Passwords;
use crate::pooled::pools::Pools;
use crate::reach::Ways;
use crate::throttle::Throttle;
use crate::tls::Certificate;
use crate::wake::Wakes;

/// What connections have in common.
pub struct Shared {
    /// Knows endpoints, their computes and roles.
    pub directory: Arc<dyn Directory>,
    /// What clients are shown in TLS.
    pub certificate: Arc<Certificate>,
    /// Host names of endpoints are `NAME.DOMAIN`, in lower case.
    pub domains: Vec<String>,
    /// Makes verifiers of roles that do not exist.
    pub mock: MockSecret,
    /// Slows addresses whose logins fail.
    pub throttle: Throttle,
    /// The wakes that are under way.
    pub wakes: Wakes,
    /// The connections that can be asked to cancel.
    pub cancels: Cancels,
    /// The clients that have logged in.
    pub crowd: Arc<Crowd>,
    /// The server connections that pooled clients share.
    pub pools: Arc<Pools>,
    /// Checks passwords that clients send in clear.
    pub passwords: Passwords,
    /// Bytes that requests by HTTP may hold.
    pub memory: Arc<Memory>,
    /// How long a client may take to say who it is.
    pub login_limit: Duration,
    /// How long a client waits for a compute.
    pub wake_limit: Duration,
    /// How long the statements of one request by HTTP may run.
    pub request_limit: Duration,
}

impl Shared {
    /// What finding a compute takes.
    pub fn ways(&self) -> Ways<'_> {
        Ways {
            directory: &self.directory,
            wakes: &self.wakes,
            limit: self.wake_limit,
        }
    }
}
