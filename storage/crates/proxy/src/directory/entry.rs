//! One endpoint as a file or the control plane has it: JSON, in the shape that docs/interfaces.md describes.

use std::collections::HashMap;

use anyhow::{Context as _, bail};
use pg_protocol::addresses::Addresses;
use pg_protocol::scram::Verifier;
use serde::Deserialize;

use super::{Endpoint, State};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    state: EntryState,
    address: Option<String>,
    roles: HashMap<String, String>,
    allowed_ips: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum EntryState {
    Running,
    Suspended,
    Disabled,
}

impl Entry {
    pub(super) fn endpoint(self) -> anyhow::Result<Endpoint> {
        let state = match (self.state, self.address) {
            (EntryState::Running, Some(address)) => State::Running(address),
            (EntryState::Running, None) => bail!("it is running and has no address"),
            (EntryState::Suspended, _) => State::Suspended,
            (EntryState::Disabled, _) => State::Disabled,
        };
        let mut roles = HashMap::new();
        for (role, verifier) in self.roles {
            let verifier = Verifier::parse(&verifier)
                .with_context(|| format!("what role {role} has is no SCRAM-SHA-256 verifier"))?;
            roles.insert(role, verifier);
        }
        let texts = self.allowed_ips.as_deref();
        let allowed = texts.map(|texts| Addresses::parse(texts.iter().map(String::as_str)));
        Ok(Endpoint {
            state,
            roles,
            allowed: allowed.transpose().context("its allowed_ips")?,
        })
    }
}

/// Reads JSON that holds verifiers. An error of the parser may quote what it stumbled over, so only the place is told.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> anyhow::Result<T> {
    serde_json::from_slice(text).map_err(|error| {
        anyhow::anyhow!(
            "line {}, column {} does not fit",
            error.line(),
            error.column()
        )
    })
}
