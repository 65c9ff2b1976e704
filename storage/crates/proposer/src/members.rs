//! Changes of the log's members while a compute writes.
//!
//! A change is a step of `consensus` that every safekeeper has to store; commits wait until a majority of the new voters
//! has. Each of these calls can be repeated: what is already so is left as it is.
//!
//! What the proposer holds in memory may be a list that an earlier call has made and no majority has stored: such a list
//! can still come to nothing. A call therefore looks only at a list that a majority of its own voters has stored. With
//! that the list before it is out of use, too: a majority of either has a voter in common with each majority of the
//! other, and that voter gives no vote under the older list (I3 in `docs/consensus.md`).

use std::sync::Arc;
use std::time::Duration;

use consensus::{Change, ChangeError, Configuration, MemberId};
use tokio::time::Instant;

use crate::core::{Core, Shared};
use crate::elect::Elected;
use crate::member;
use crate::stream::ProposerHandle;

const RETRY_PERIOD: Duration = Duration::from_millis(20);

/// One step of membership, by what an operator knows of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberChange {
    /// The safekeeper at this WAL address, `host:port`, which has the timeline, becomes a learner.
    Add {
        /// WAL address of the safekeeper.
        address: String,
    },
    /// The learner with this number becomes a voter as soon as it holds everything that is committed.
    Promote {
        /// Number of the safekeeper.
        safekeeper: u64,
    },
    /// The member with this number goes, whether or not it answers.
    Remove {
        /// Number of the safekeeper.
        safekeeper: u64,
    },
}

/// Why a change of the members was not made, or is not known to be stored. Every call can be repeated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemberError {
    /// A safekeeper to be added was not connected in time: nothing answers at its address, or the timeline is not
    /// there.
    #[error("safekeeper {address} has not greeted within {timeout:?}: {detail}")]
    NoGreeting {
        /// WAL address of the safekeeper.
        address: String,
        /// The time that was given.
        timeout: Duration,
        /// For people: the last error of the connection.
        detail: String,
    },
    /// A safekeeper to be promoted is no member; the field is its number.
    #[error("no member of this log is on safekeeper {0}")]
    NoSuchMember(u64),
    /// A rule of consensus forbids the change, or what it waits for did not come in time. This call has changed nothing.
    #[error("the members stay as they are: {0}")]
    Refused(#[from] ChangeError),
    /// Made, by this call or one before it, but not known to be stored by a majority of the voters. Commits wait until it
    /// is; until then it may still come to nothing, when another proposer wins a term.
    #[error(
        "the change is made, and a majority of the voters has not stored it within {timeout:?}; commits wait until one has"
    )]
    NotStored {
        /// The time that was given.
        timeout: Duration,
    },
    /// The proposer has reported [`Fatal`](crate::Fatal) and changes nothing more; the field says why, for people.
    #[error("this compute has stopped writing: {0}")]
    Stopped(String),
}

impl ProposerHandle {
    /// The members that the log names now.
    pub fn members(&self) -> Configuration {
        members(self.shared())
    }

    /// Makes one change and waits until a majority has stored it. Waits up to `timeout` for what has to come before it,
    /// such as the majority's storing of the change before or a learner that catches up, and as long again for the
    /// majority. The answer is the list that the majority has stored.
    pub async fn change_members(
        &self,
        change: &MemberChange,
        timeout: Duration,
    ) -> Result<Configuration, MemberError> {
        change_members(self.shared(), change, timeout).await
    }
}

impl Elected {
    /// The members that the log names now.
    pub fn members(&self) -> Configuration {
        members(self.shared())
    }

    /// As [`ProposerHandle::change_members`], in a term that was won for this and writes nothing: for a timeline without
    /// a compute. A compute that runs is fenced by such a term.
    pub async fn change_members(
        &self,
        change: &MemberChange,
        timeout: Duration,
    ) -> Result<Configuration, MemberError> {
        change_members(self.shared(), change, timeout).await
    }
}

fn members(shared: &Shared) -> Configuration {
    shared.core(|core| core.proposer.configuration().clone())
}

async fn change_members(
    shared: &Arc<Shared>,
    change: &MemberChange,
    timeout: Duration,
) -> Result<Configuration, MemberError> {
    let deadline = Instant::now() + timeout;
    let members = settled(shared, change, timeout, deadline).await?;
    let change = match change {
        MemberChange::Add { address } => {
            Change::AddLearner(greeting(shared, address, timeout, deadline).await?)
        }
        MemberChange::Promote { safekeeper } => match named(&members, *safekeeper) {
            Some(member) => Change::Promote(member),
            None => return Err(MemberError::NoSuchMember(*safekeeper)),
        },
        MemberChange::Remove { safekeeper } => match named(&members, *safekeeper) {
            Some(member) => Change::Remove(member),
            None => return Ok(members),
        },
    };
    begin(shared, &change, deadline).await?;
    let wait = async || {
        loop {
            if let Some(members) = shared.core(stored) {
                return members;
            }
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    };
    tokio::time::timeout(timeout, wait())
        .await
        .map_err(|_| MemberError::NotStored { timeout })
}

/// The members, if the log names them and a majority of the voters has stored this list under this term.
fn stored(core: &mut Core) -> Option<Configuration> {
    let members = core.proposer.configuration();
    // An established term is followed by a majority that has stored the list it is counted by.
    let is_stored = !members.is_unlisted() && core.proposer.is_established();
    is_stored.then(|| members.clone())
}

/// Waits until a majority has stored the list of the members, whoever has made it, and returns the list. By then no
/// older list can win an election any more. Fails also when the term is known to be over, since its successor may have
/// changed the list.
async fn settled(
    shared: &Shared,
    change: &MemberChange,
    timeout: Duration,
    deadline: Instant,
) -> Result<Configuration, MemberError> {
    loop {
        check_term(shared)?;
        if let Some(members) = shared.core(stored) {
            return Ok(members);
        }
        if Instant::now() >= deadline {
            return Err(unsettled(shared, change, timeout));
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

/// Why the list of the members is not stored by a majority.
fn unsettled(shared: &Shared, change: &MemberChange, timeout: Duration) -> MemberError {
    shared.core(|core| {
        let members = core.proposer.configuration();
        if members.is_unlisted() {
            return ChangeError::Unlisted.into();
        }
        if core.configure.is_none() {
            return ChangeError::NotEstablished.into();
        }
        let is_made = match change {
            MemberChange::Add { address } => {
                let id = shared.peers.find(address);
                let id = id.and_then(|peer| core.proposer.id_of(peer));
                id.is_some_and(|id| members.role_of(id).is_some())
            }
            MemberChange::Promote { safekeeper } => {
                members.voters().any(|id| id.node == *safekeeper)
            }
            MemberChange::Remove { safekeeper } => named(members, *safekeeper).is_none(),
        };
        if is_made {
            MemberError::NotStored { timeout }
        } else {
            ChangeError::Unfinished.into()
        }
    })
}

fn check_term(shared: &Shared) -> Result<(), MemberError> {
    match &*shared.fatal.borrow() {
        Some(fatal) => Err(MemberError::Stopped(fatal.to_string())),
        None => Ok(()),
    }
}

fn named(members: &Configuration, safekeeper: u64) -> Option<MemberId> {
    let mut ids = members.members().iter().map(|member| member.id);
    ids.find(|id| id.node == safekeeper)
}

/// The member that answers at the address. A new address becomes one of the proposer's.
async fn greeting(
    shared: &Arc<Shared>,
    address: &str,
    timeout: Duration,
    deadline: Instant,
) -> Result<MemberId, MemberError> {
    let index = shared.peers.find(address).unwrap_or_else(|| {
        let index = shared.add_peer(address);
        shared.reactor.spawn(member::run(shared.clone(), index));
        index
    });
    loop {
        let (member, detail) = shared.core(|core| {
            let known = core.proposer.id_of(index);
            let peer = &core.members[index];
            (known.filter(|_| peer.connected), peer.last_error.clone())
        });
        if let Some(member) = member {
            return Ok(member);
        }
        if Instant::now() >= deadline {
            return Err(MemberError::NoGreeting {
                address: address.to_owned(),
                timeout,
                detail: detail.unwrap_or_else(|| "it is silent".into()),
            });
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}

/// Waits for what the change needs, and makes it.
async fn begin(shared: &Shared, change: &Change, deadline: Instant) -> Result<(), MemberError> {
    loop {
        check_term(shared)?;
        let refused = match shared.change_members(change) {
            Ok(()) => return Ok(()),
            // A repetition.
            Err(ChangeError::Present(_) | ChangeError::Votes(_)) => return Ok(()),
            Err(refused) => refused,
        };
        let passes = matches!(
            refused,
            ChangeError::Lagging(_)
                | ChangeError::Unfinished
                | ChangeError::NotEstablished
                | ChangeError::Unlisted
                | ChangeError::WouldStall
        );
        if !passes || Instant::now() >= deadline {
            return Err(refused.into());
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    }
}
