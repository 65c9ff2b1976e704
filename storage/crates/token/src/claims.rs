//! What a token grants, and what a request needs.

use pg_types::{TenantId, TimelineId};
use serde::{Deserialize, Deserializer};

use crate::refusal::Refusal;
use crate::rights::Rights;

/// Of whom something is: one timeline, one tenant with all its timelines, or the installation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// `None`: of all tenants.
    pub tenant: Option<TenantId>,
    /// `None`: of all timelines of the tenant.
    pub timeline: Option<TimelineId>,
}

impl Scope {
    /// One timeline.
    pub fn timeline(tenant: TenantId, timeline: TimelineId) -> Scope {
        Scope {
            tenant: Some(tenant),
            timeline: Some(timeline),
        }
    }

    /// Whether all that is of `other` is of this scope too.
    pub fn covers(self, other: Scope) -> bool {
        let Some(tenant) = self.tenant else {
            return true;
        };
        other.tenant == Some(tenant) && (self.timeline.is_none() || self.timeline == other.timeline)
    }
}

/// What a request needs: the rights of one of the sets, at all that is of the scope.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Any one of these sets will do.
    pub any_of: &'static [Rights],
    /// What the request is about.
    pub scope: Scope,
}

/// What a token says that was found to be signed and in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// For whom the token was made, for the log; empty where it does not say.
    pub subject: String,
    /// What it grants.
    pub rights: Rights,
    /// At what.
    pub scope: Scope,
    /// When it ends, seconds since the Unix epoch.
    pub expires: u64,
}

impl Claims {
    /// # Errors
    ///
    /// [`Refusal::Scope`] when the request is about something else, [`Refusal::Right`] when a right is lacking.
    pub fn allow(&self, need: &Need) -> Result<(), Refusal> {
        if !self.scope.covers(need.scope) {
            return Err(Refusal::Scope);
        }
        match need.any_of.iter().any(|set| self.rights.include(*set)) {
            true => Ok(()),
            false => Err(Refusal::Right(need.any_of)),
        }
    }
}

/// The claims as they are written.
#[derive(Deserialize)]
pub(crate) struct Written {
    pub iss: String,
    pub aud: Audience,
    #[serde(default)]
    pub sub: String,
    pub iat: u64,
    pub nbf: Option<u64>,
    pub exp: u64,
    // A scope that is written as `null` is an error and not the scope of all.
    #[serde(default, deserialize_with = "present")]
    pub tenant: Option<TenantId>,
    #[serde(default, deserialize_with = "present")]
    pub timeline: Option<TimelineId>,
    pub rights: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    pub fn names(&self) -> &[String] {
        match self {
            Audience::One(name) => std::slice::from_ref(name),
            Audience::Many(names) => names,
        }
    }
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
