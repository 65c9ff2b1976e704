//! What a proposer has heard of each safekeeper, and what a majority of the voters makes of it.

use pg_types::{Lsn, Term};

use crate::configuration::{Change, ChangeError, Configuration, Generation, MemberId};
use crate::majority;
use crate::message::{LogPosition, VoteReply};

/// One safekeeper, by the address it is reached at; who answers there can change.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Peer {
    pub id: Option<MemberId>,
    pub greeting: Option<LogPosition>,
    pub vote: Option<VoteReply>,
    /// The acceptor follows this term and its positions count, as far as `generation` does.
    pub follows: bool,
    pub generation: Generation,
    pub write_lsn: Lsn,
    pub flush_lsn: Lsn,
}

impl Peer {
    /// An acceptor's state when a connection to it began. What was known to be committed here still is, and so is the
    /// term that it was seen in, whatever this acceptor has left of either; what another identity had flushed counts no
    /// more.
    pub fn greeted(&mut self, mut position: LogPosition) {
        if let Some(known) = &self.greeting {
            position.commit_lsn = position.commit_lsn.max(known.commit_lsn);
            position.term = position.term.max(known.term);
        }
        if self.id != Some(position.member) {
            *self = Peer {
                id: Some(position.member),
                ..Peer::default()
            };
        }
        self.greeting = Some(position);
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Peers {
    /// The newest configuration that anyone has shown, or that this proposer has made.
    pub configuration: Configuration,
    pub all: Vec<Peer>,
}

impl Peers {
    pub fn new(count: usize) -> Peers {
        Peers {
            configuration: Configuration::default(),
            all: vec![Peer::default(); count],
        }
    }

    /// Number of the first peer that claims to be this member.
    pub fn find(&self, id: MemberId) -> Option<usize> {
        self.all.iter().position(|peer| peer.id == Some(id))
    }

    /// Number of the peer behind each voter, `None` for one that has not been heard of. Where two addresses claim one
    /// identity, it counts once. A log that names no members counts every peer.
    pub fn voters(&self) -> Vec<Option<usize>> {
        if self.configuration.is_unlisted() {
            return (0..self.all.len()).map(Some).collect();
        }
        let voters = self.configuration.voters();
        voters.map(|id| self.find(id)).collect()
    }

    /// Whether a majority of the voters fulfils `condition`, which gets the peer's number.
    pub fn majority_of(&self, condition: impl Fn(usize) -> bool) -> bool {
        let voters = self.voters();
        let fulfilled = voters.iter().flatten().filter(|peer| condition(**peer));
        fulfilled.count() >= majority(voters.len())
    }

    /// The highest position that a majority of the voters has reached; all of them follow this term and have stored
    /// this configuration.
    pub fn majority_position(&self, position: impl Fn(&Peer) -> Lsn) -> Option<Lsn> {
        let voters = self.voters();
        let mut positions: Vec<Lsn> = voters
            .iter()
            .flatten()
            .map(|peer| &self.all[*peer])
            .filter(|peer| self.counts(peer))
            .map(position)
            .collect();
        positions.sort_unstable_by(|a, b| b.cmp(a));
        positions.get(majority(voters.len()) - 1).copied()
    }

    /// A position counts under the configuration that its acceptor had stored when it reported it, and no other.
    pub fn counts(&self, peer: &Peer) -> bool {
        peer.follows && peer.generation == self.configuration.generation
    }

    /// The configuration after `change`, made under `term` when everything up to `commit_lsn` is committed.
    pub fn changed(
        &self,
        term: Term,
        commit_lsn: Lsn,
        change: &Change,
    ) -> Result<Configuration, ChangeError> {
        if self.majority_position(|peer| peer.flush_lsn) < Some(commit_lsn) {
            return Err(ChangeError::Unfinished);
        }
        let next = self.configuration.changed(term, change)?;
        match change {
            Change::Promote(id) if !self.holds(*id, commit_lsn) => {
                return Err(ChangeError::Lagging(*id));
            }
            Change::List(ids) if self.listable().as_ref() != Some(ids) => {
                return Err(ChangeError::Malformed);
            }
            _ => {}
        }
        let able = next.voters().filter(|id| self.holds(*id, commit_lsn));
        if able.count() < next.quorum() {
            return Err(ChangeError::WouldStall);
        }
        Ok(next)
    }

    fn holds(&self, member: MemberId, lsn: Lsn) -> bool {
        let peer = self.find(member).map(|peer| &self.all[peer]);
        peer.is_some_and(|peer| self.counts(peer) && peer.flush_lsn >= lsn)
    }

    /// The peers, if each of them has greeted and names no members.
    pub fn listable(&self) -> Option<Vec<MemberId>> {
        let unlisted = |peer: &Peer| {
            let greeting = peer.greeting.as_ref()?;
            let unlisted = greeting.configuration.is_unlisted();
            unlisted.then_some(greeting.member)
        };
        self.all.iter().map(unlisted).collect()
    }
}
