//! Which safekeepers a log consists of, and how that may change.
//!
//! A log's *configuration* names its members and has a *generation*; generations are ordered, and of two
//! configurations the one with the higher generation counts. One change adds, promotes or removes one member, so that
//! each majority of voters before a change and each majority after it have a voter in common. `docs/consensus.md`
//! says why that is enough, and what a change waits for. The method is that of MongoDB's logless reconfiguration
//! (Schultz, Dardik, Tripakis: "Design and Analysis of a Logless Dynamic Reconfiguration Protocol", OPODIS 2021),
//! with terms won by proposers that hold no log themselves.

use std::fmt;

use pg_types::{DiskId, Term};
use serde::{Deserialize, Serialize};

use crate::majority;

/// Members that a configuration may have; more voters only make commits slower.
pub const MAX_MEMBERS: usize = 9;

/// A log on a disk. What lost its disk, or its part of this log, and comes back has another identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MemberId {
    /// Number of the safekeeper, unique in the installation.
    pub node: u64,
    /// Identity of the data directory.
    pub disk: DiskId,
    /// How often this disk has been given this log, from 1 on.
    pub incarnation: u32,
}

impl MemberId {
    /// Of a log that was stored before logs had identities; whoever opens it claims it.
    pub const UNKNOWN: MemberId = MemberId {
        node: 0,
        disk: DiskId([0; 16]),
        incarnation: 0,
    };
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemberId {
            node,
            disk,
            incarnation,
        } = self;
        write!(f, "safekeeper {node}, disk {disk}, log {incarnation}")
    }
}

/// What a member does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Votes in elections, and is one of those whose majority commits.
    Voter,
    /// Receives the log and counts for nothing.
    Learner,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Voter => "voter",
            Role::Learner => "learner",
        })
    }
}

/// One member of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Identity of the member.
    pub id: MemberId,
    /// Role of the member.
    pub role: Role,
}

/// Orders configurations: the term whose proposer made or confirmed one comes first, as in a log.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct Generation {
    /// Term of the proposer that made or confirmed the configuration; 0 for one that a log was founded with.
    pub term: Term,
    /// Changes since the log was founded, the founding included.
    pub number: u32,
}

impl Generation {
    /// Of a log that was founded before logs knew their members, and of a learner before it is one.
    pub const ZERO: Generation = Generation {
        term: Term(0),
        number: 0,
    };
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (confirmed in term {})", self.number, self.term)
    }
}

/// The members of a log, under one generation. One without members is that of a log that does not name them
/// ([`Configuration::is_unlisted`]).
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Configuration {
    /// Place among the configurations of the log; the highest counts.
    pub generation: Generation,
    members: Vec<Member>,
}

/// One step from a configuration to the next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Writes down who the members are of a log that does not say so yet: the list it was used with until now.
    List(Vec<MemberId>),
    /// A safekeeper's log that is no member becomes a learner.
    AddLearner(MemberId),
    /// The learner becomes a voter.
    Promote(MemberId),
    /// The member is one no more, whatever its role was.
    Remove(MemberId),
}

/// Why a change was not begun. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum ChangeError {
    /// On adding a log that is a member, in either role.
    #[error("{0} is a member already")]
    Present(MemberId),
    /// On adding a log of a safekeeper whose other log is a member; the field is the safekeeper's number.
    #[error("safekeeper {0} is a member already, with another disk; remove that one first")]
    NodePresent(u64),
    /// On promoting or removing a log that is no member.
    #[error("{0} is no member")]
    Absent(MemberId),
    /// On promoting a voter. What was asked for is so already.
    #[error("{0} is a voter already")]
    Votes(MemberId),
    /// On removing the only voter.
    #[error("{0} is the last voter; add another one first")]
    LastVoter(MemberId),
    /// On adding a member to [`MAX_MEMBERS`] others.
    #[error("a log has {MAX_MEMBERS} members at most")]
    Full,
    /// On listing the members of a log that names them.
    #[error("the log names its members already")]
    Listed,
    /// On any other change of a log that does not name its members. Possible once a proposer has listed them.
    #[error("the log does not name its members yet; a compute writes the list down at its start")]
    Unlisted,
    /// On a list with an identity or a safekeeper twice, with no member or too many, or with others than the logs
    /// that have greeted.
    #[error("a list of members names one twice, or nobody")]
    Malformed,
    /// Before the proposer has won, or before a majority follows its term up to where that begins. May be tried
    /// again.
    #[error("no term has been won, or not yet brought to a majority")]
    NotEstablished,
    /// While a majority has not stored the last configuration, or does not hold everything committed. May be tried
    /// again.
    #[error(
        "the change before this one is not yet on a majority, or not all of the log is; try again"
    )]
    Unfinished,
    /// When the voters after the change that are known to hold everything committed are no majority. May be tried
    /// again.
    #[error(
        "too few voters that answer would be left to commit anything; bring one back, or promote a learner first"
    )]
    WouldStall,
    /// On promoting a learner that is not known to hold everything committed. May be tried again.
    #[error("learner {0} does not hold everything yet that is committed; try again")]
    Lagging(MemberId),
}

impl Configuration {
    /// What a log is founded with: `voters` and nobody else.
    pub fn founding(voters: &[MemberId]) -> Result<Configuration, ChangeError> {
        let generation = Generation {
            number: 1,
            ..Generation::ZERO
        };
        let voter = |id: &MemberId| Member {
            id: *id,
            role: Role::Voter,
        };
        Configuration {
            generation,
            members: voters.iter().map(voter).collect(),
        }
        .checked()
    }

    /// What a log begins with on a safekeeper that is none of its founders: it waits to be made a learner.
    pub fn waiting(id: MemberId) -> Configuration {
        let role = Role::Learner;
        Configuration {
            generation: Generation::ZERO,
            members: vec![Member { id, role }],
        }
    }

    fn checked(self) -> Result<Configuration, ChangeError> {
        if self.is_well_formed() {
            Ok(self)
        } else {
            Err(ChangeError::Malformed)
        }
    }

    /// Whether no member and no safekeeper occurs twice, and there is a voter where there has to be one; false for a
    /// configuration that a broken peer sent.
    pub fn is_well_formed(&self) -> bool {
        let mut nodes: Vec<u64> = self.members.iter().map(|member| member.id.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let distinct = nodes.len() == self.members.len() && nodes.len() <= MAX_MEMBERS;
        distinct && (self.generation == Generation::ZERO || self.voters().next().is_some())
    }

    /// Whether a log in `term` may hold this: a configuration is made by the proposer of a term that its members have
    /// promised themselves to. False also for one that is not well formed.
    pub fn is_valid_in(&self, term: Term) -> bool {
        self.is_well_formed() && self.generation.term <= term
    }

    /// Whether the log does not name its members: whoever starts a compute says who they are.
    pub fn is_unlisted(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether this one replaces `other` where that one is stored.
    pub fn replaces(&self, other: &Configuration) -> bool {
        self.generation > other.generation
    }

    /// All members; one that is added comes last.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Identities of the voters, in the order of the members.
    pub fn voters(&self) -> impl Iterator<Item = MemberId> + '_ {
        let votes = |member: &&Member| member.role == Role::Voter;
        self.members.iter().filter(votes).map(|member| member.id)
    }

    /// Role of a log; `None` for one that is no member.
    pub fn role_of(&self, id: MemberId) -> Option<Role> {
        let member = self.members.iter().find(|member| member.id == id)?;
        Some(member.role)
    }

    /// Voters that form a majority. Not for an unlisted configuration.
    pub fn quorum(&self) -> usize {
        majority(self.voters().count())
    }

    /// The same members, confirmed by the proposer that won `term`. An unlisted configuration has no members that
    /// could be confirmed.
    pub fn confirmed(&self, term: Term) -> Configuration {
        let mut confirmed = self.clone();
        if !self.is_unlisted() {
            confirmed.generation.term = term;
        }
        confirmed
    }

    /// The configuration after `change`, made by the proposer of `term`.
    pub fn changed(&self, term: Term, change: &Change) -> Result<Configuration, ChangeError> {
        let mut next = self.clone();
        next.generation = Generation {
            term,
            number: self.generation.number + 1,
        };
        match change {
            Change::List(ids) => {
                if !self.is_unlisted() {
                    return Err(ChangeError::Listed);
                }
                next.members = Configuration::founding(ids)?.members;
                return next.checked();
            }
            _ if self.is_unlisted() => return Err(ChangeError::Unlisted),
            Change::AddLearner(id) => {
                if self.role_of(*id).is_some() {
                    return Err(ChangeError::Present(*id));
                }
                if self.members.iter().any(|member| member.id.node == id.node) {
                    return Err(ChangeError::NodePresent(id.node));
                }
                if self.members.len() == MAX_MEMBERS {
                    return Err(ChangeError::Full);
                }
                let role = Role::Learner;
                next.members.push(Member { id: *id, role });
            }
            Change::Promote(id) => {
                let mut members = next.members.iter_mut();
                let member = members.find(|member| member.id == *id);
                let member = member.ok_or(ChangeError::Absent(*id))?;
                if member.role == Role::Voter {
                    return Err(ChangeError::Votes(*id));
                }
                member.role = Role::Voter;
            }
            Change::Remove(id) => {
                if self.role_of(*id).is_none() {
                    return Err(ChangeError::Absent(*id));
                }
                if self.voters().eq([*id]) {
                    return Err(ChangeError::LastVoter(*id));
                }
                next.members.retain(|member| member.id != *id);
            }
        }
        next.checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(node: u64, disk: u8) -> MemberId {
        MemberId {
            node,
            disk: DiskId([disk; 16]),
            incarnation: 1,
        }
    }

    fn three() -> Configuration {
        Configuration::founding(&[id(1, 1), id(2, 2), id(3, 3)]).expect("three members")
    }

    #[test]
    fn a_safekeeper_is_no_member_twice() {
        let again = Change::AddLearner(id(1, 9));
        assert_eq!(
            three().changed(Term(1), &again),
            Err(ChangeError::NodePresent(1))
        );
        let twice = Configuration::founding(&[id(1, 1), id(1, 1)]);
        assert_eq!(twice, Err(ChangeError::Malformed));
        assert_eq!(Configuration::founding(&[]), Err(ChangeError::Malformed));
    }

    #[test]
    fn a_disk_is_written_and_read_as_32_hex_digits() {
        let disk = DiskId([0xa7; 16]);
        assert_eq!(disk.to_string().parse(), Ok(disk));
        for wrong in ["", "a7", "+7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7"] {
            assert!(wrong.parse::<DiskId>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_last_voter_stays() {
        let one = Configuration::founding(&[id(1, 1)]).expect("one member");
        let both = one.changed(Term(1), &Change::AddLearner(id(2, 2)));
        let both = both.expect("another safekeeper");
        let without = both.changed(Term(1), &Change::Remove(id(1, 1)));
        assert_eq!(without, Err(ChangeError::LastVoter(id(1, 1))));
        assert!(both.changed(Term(1), &Change::Remove(id(2, 2))).is_ok());
    }

    #[test]
    fn a_later_term_confirms_above_any_number_of_changes_of_an_earlier_one() {
        let changed = three().changed(Term(3), &Change::Remove(id(3, 3)));
        let changed = changed.expect("three can spare one");
        let confirmed = three().confirmed(Term(4));
        assert!(confirmed.replaces(&changed) && !changed.replaces(&confirmed));
    }

    /// Promise: majorities before and after any one change have a voter in common.
    #[test]
    fn majorities_of_neighbours_meet() {
        for voters in 1..=5_u8 {
            let ids: Vec<MemberId> = (0..voters).map(|n| id(u64::from(n), n)).collect();
            let before = Configuration::founding(&ids).expect("distinct");
            let learner = id(99, 99);
            let with = before.changed(Term(1), &Change::AddLearner(learner));
            let with = with.expect("not there yet");
            let promoted = with.changed(Term(1), &Change::Promote(learner));
            let mut after = vec![with.clone(), promoted.expect("a learner")];
            let removed = |id: &MemberId| with.changed(Term(1), &Change::Remove(*id)).ok();
            after.extend(ids.iter().filter_map(removed));
            for next in after {
                assert!(always_meet(&with, &next), "{with:?} and {next:?}");
            }
        }
    }

    fn always_meet(a: &Configuration, b: &Configuration) -> bool {
        let quorums = |of: &Configuration| -> Vec<Vec<MemberId>> {
            let voters: Vec<MemberId> = of.voters().collect();
            let subset = |bits: u32| -> Vec<MemberId> {
                let chosen = voters.iter().enumerate();
                let chosen = chosen.filter(|(i, _)| bits & (1 << i) != 0);
                chosen.map(|(_, id)| *id).collect()
            };
            let subsets = (0..1 << voters.len()).map(subset);
            subsets.filter(|set| set.len() >= of.quorum()).collect()
        };
        let (a, b) = (quorums(a), quorums(b));
        a.iter().all(|one| {
            b.iter()
                .all(|other| one.iter().any(|id| other.contains(id)))
        })
    }
}
