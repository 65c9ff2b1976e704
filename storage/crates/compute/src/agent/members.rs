//! Whom the compute's log names as its members, and how that is changed while it writes.

use std::time::Duration;

use proposer::{Configuration, MemberChange, MemberError};
use serde::Serialize;

use super::{Agent, State};

/// The members of the log, as `GET /status` and `POST /members` show them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Members {
    /// Changes since the log was founded; 0 for a log that does not name its members yet.
    pub generation: u32,
    /// The term that confirmed the generation.
    pub generation_term: u64,
    /// Voters and learners, in the order of the configuration; empty for a log that does not name its members yet.
    pub members: Vec<Member>,
}

/// A safekeeper's part in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Number of the safekeeper, unique in the installation.
    pub safekeeper: u64,
    /// 32 hex digits.
    pub disk: String,
    /// How often this disk has been given this log, from 1 on.
    pub incarnation: u32,
    /// `voter` or `learner`.
    pub role: String,
}

impl From<Configuration> for Members {
    fn from(configuration: Configuration) -> Members {
        let member = |member: &proposer::Member| Member {
            safekeeper: member.id.node,
            disk: member.id.disk.to_string(),
            incarnation: member.id.incarnation,
            role: member.role.to_string(),
        };
        Members {
            generation: configuration.generation.number,
            generation_term: configuration.generation.term.0,
            members: configuration.members().iter().map(member).collect(),
        }
    }
}

/// Why the members of the log were not changed, or are not known to be.
#[derive(Debug, thiserror::Error)]
pub enum ChangeMembersError {
    /// No Postgres runs in the state of the field; nothing was changed.
    #[error("the compute is {0:?}; members are changed by one that runs")]
    NotRunning(State),
    /// Another change took longer than the time that was given, the field. This one was not begun.
    #[error("another change of the members has not ended within {0:?}")]
    Busy(Duration),
    /// The proposer refused the change or could not finish it; the error says whether it is made.
    #[error(transparent)]
    Change(#[from] MemberError),
}

impl Agent {
    /// One change at a time; a repetition of one that was made changes nothing.
    pub async fn change_members(
        &self,
        change: &MemberChange,
        timeout: Duration,
    ) -> Result<Members, ChangeMembersError> {
        let one = tokio::time::timeout(timeout, self.changing_members.lock());
        let _one = one.await.map_err(|_| ChangeMembersError::Busy(timeout))?;
        let live = self
            .running()
            .ok_or_else(|| ChangeMembersError::NotRunning(self.status.lock().state))?;
        Ok(live.proposer.change_members(change, timeout).await?.into())
    }
}
