//! The proposer: one compute's election and its count of what a majority holds.
//!
//! Knows positions, not bytes; who sends which bytes when is its driver's business. Acceptors are numbered
//! as in the member list, whose length decides what a majority is.

use pg_types::{Lsn, Term};

use crate::history::TermHistory;
use crate::majority;
use crate::message::{
    AppendReply, CandidateId, ElectedReply, ElectedRequest, LogPosition, VoteReply, VoteRequest,
};

/// An acceptor has promised itself to a higher term: this proposer must stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("fenced by term {by}")]
pub struct Fenced {
    pub by: Term,
}

/// Proof from before an election that WAL up to a position is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitProof {
    pub lsn: Lsn,
    /// Number of the acceptor that has committed up to `lsn`; `None` when the proof comes from outside the log, such
    /// as from a reader that has ingested up to there.
    pub acceptor: Option<usize>,
}

/// A majority has voted, but the best log among the voters ends before WAL that is known to be committed. A voter
/// has lost WAL that it acknowledged: announcing this log would throw acknowledged commits away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostWal {
    /// Number of the voter whose log would have won, and where it ends.
    pub donor: usize,
    pub end_lsn: Lsn,
    pub proof: CommitProof,
}

/// What a won election settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Election {
    pub term: Term,
    /// Number of the acceptor whose log is the log.
    pub donor: usize,
    /// L: where the new term begins.
    pub start_lsn: Lsn,
    pub history: TermHistory,
    /// Highest commit LSN a voter knew.
    pub known_commit: Lsn,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VoteOutcome {
    Pending,
    Won(Election),
    /// No term may begin on what the voters hold. Nothing but their promises has changed.
    LostWal(LostWal),
    /// Try again with a term above this one.
    Lost {
        highest: Term,
    },
}

#[derive(Clone, Default, Debug)]
struct Member {
    greeting: Option<LogPosition>,
    vote: Option<VoteReply>,
    /// The acceptor follows this term and its positions count.
    follows: bool,
    write_lsn: Lsn,
    flush_lsn: Lsn,
}

#[derive(Clone, Debug)]
pub struct Proposer {
    candidate: CandidateId,
    term: Term,
    members: Vec<Member>,
    election: Option<Election>,
    write_quorum: Lsn,
    commit_lsn: Lsn,
    /// What a reader of the log has proven to be committed before the election; `INVALID` when nobody was asked.
    committed_outside: Lsn,
}

impl Proposer {
    pub fn new(candidate: CandidateId, members: usize) -> Proposer {
        assert!(members > 0, "a timeline needs at least one safekeeper");
        Proposer {
            candidate,
            term: Term(0),
            members: vec![Member::default(); members],
            election: None,
            write_quorum: Lsn::INVALID,
            commit_lsn: Lsn::INVALID,
            committed_outside: Lsn::INVALID,
        }
    }

    /// No log that ends before `lsn` may win: a reader of committed WAL has read up to there.
    pub fn require(&mut self, lsn: Lsn) {
        self.committed_outside = self.committed_outside.max(lsn);
    }

    /// The highest position known to be committed before the election, and who proves it. Acceptors that refused
    /// their vote count: what they have committed is committed all the same.
    fn commit_proof(&self) -> CommitProof {
        let outside = CommitProof {
            lsn: self.committed_outside,
            acceptor: None,
        };
        let acceptors = self.members.iter().enumerate().filter_map(|(i, member)| {
            Some(CommitProof {
                lsn: member.greeting.as_ref()?.commit_lsn,
                acceptor: Some(i),
            })
        });
        acceptors.fold(
            outside,
            |best, proof| {
                if proof.lsn > best.lsn { proof } else { best }
            },
        )
    }

    pub fn term(&self) -> Term {
        self.term
    }

    pub fn election(&self) -> Option<&Election> {
        self.election.as_ref()
    }

    pub fn commit_lsn(&self) -> Lsn {
        self.commit_lsn
    }

    /// In memory on a majority.
    pub fn write_quorum(&self) -> Lsn {
        self.write_quorum
    }

    /// An acceptor's state when the connection to it began. An acceptor that comes back with less than it had
    /// committed before has lost WAL; what it had committed still counts as committed.
    pub fn greeted(&mut self, member: usize, mut position: LogPosition) {
        let known = self.members[member].greeting.as_ref();
        let known_commit = known.map_or(Lsn::INVALID, |known| known.commit_lsn);
        position.commit_lsn = position.commit_lsn.max(known_commit);
        self.members[member].greeting = Some(position);
    }

    /// Whether an acceptor that greets now shows the log to have two histories: it has committed past everything
    /// that this term's log holds or has committed.
    pub fn contradicted_by(&self, position: &LogPosition) -> bool {
        self.election.as_ref().is_some_and(|election| {
            position.term <= self.term
                && position.commit_lsn > self.commit_lsn.max(election.start_lsn)
        })
    }

    /// The next campaign must go above `term`.
    pub fn outbid(&mut self, term: Term) {
        if self.election.is_none() {
            self.term = self.term.max(term);
        }
    }

    /// Once a majority has greeted: the vote to ask everyone for. The term is above every term seen.
    pub fn campaign(&mut self) -> Option<VoteRequest> {
        let seen: Vec<Term> = self
            .members
            .iter()
            .filter_map(|member| Some(member.greeting.as_ref()?.term))
            .collect();
        if self.election.is_some() || seen.len() < majority(self.members.len()) {
            return None;
        }
        let highest = seen.into_iter().max()?.max(self.term);
        self.term = Term(highest.0 + 1);
        self.members
            .iter_mut()
            .for_each(|member| member.vote = None);
        Some(VoteRequest {
            term: self.term,
            candidate: self.candidate,
        })
    }

    pub fn voted(&mut self, member: usize, reply: VoteReply) -> VoteOutcome {
        if self.election.is_some() || reply.granted && reply.position.term != self.term {
            return VoteOutcome::Pending;
        }
        self.greeted(member, reply.position.clone());
        self.members[member].vote = Some(reply);
        let granted = || {
            self.members.iter().enumerate().filter_map(|(i, member)| {
                Some((i, member.vote.as_ref().filter(|vote| vote.granted)?))
            })
        };
        if granted().count() >= majority(self.members.len()) {
            let Some((donor, vote)) = granted().max_by_key(|(_, vote)| vote.position.rank()) else {
                return VoteOutcome::Pending;
            };
            let start_lsn = vote.position.flush_lsn;
            let proof = self.commit_proof();
            if proof.lsn > start_lsn {
                return self.lost_wal(donor, start_lsn, proof);
            }
            let history = vote.position.history.continued_by(self.term, start_lsn);
            let known_commit = granted()
                .map(|(_, vote)| vote.position.commit_lsn)
                .max()
                .unwrap_or(start_lsn);
            let election = Election {
                term: self.term,
                donor,
                start_lsn,
                history,
                known_commit,
            };
            self.commit_lsn = known_commit;
            self.election = Some(election.clone());
            return VoteOutcome::Won(election);
        }
        let refused = || {
            self.members
                .iter()
                .filter_map(|member| member.vote.as_ref().filter(|vote| !vote.granted))
        };
        if self.members.len() - refused().count() < majority(self.members.len()) {
            let highest = refused()
                .map(|vote| vote.position.term)
                .max()
                .unwrap_or(self.term);
            return VoteOutcome::Lost {
                highest: highest.max(self.term),
            };
        }
        VoteOutcome::Pending
    }

    /// The best log of the voters ends before what `proof` says is committed. Where a later term has committed that,
    /// nothing is lost: this election comes too late.
    fn lost_wal(&self, donor: usize, end_lsn: Lsn, proof: CommitProof) -> VoteOutcome {
        let term = proof.acceptor.and_then(|acceptor| {
            let greeting = self.members[acceptor].greeting.as_ref()?;
            Some(greeting.term)
        });
        match term.filter(|term| *term > self.term) {
            Some(highest) => VoteOutcome::Lost { highest },
            None => VoteOutcome::LostWal(LostWal {
                donor,
                end_lsn,
                proof,
            }),
        }
    }

    /// What to announce to every acceptor, those that did not vote included.
    pub fn announcement(&self) -> Option<ElectedRequest> {
        Some(ElectedRequest {
            history: self.election.as_ref()?.history.clone(),
        })
    }

    /// The acceptor has adopted the history. Returns whether the commit LSN moved.
    pub fn adopted(&mut self, member: usize, reply: &ElectedReply) -> Result<bool, Fenced> {
        self.check(reply.term)?;
        if reply.term != self.term || self.election.is_none() {
            return Ok(false);
        }
        let member = &mut self.members[member];
        member.follows = true;
        // Replies can overtake each other, and what was fsynced once stays so.
        member.flush_lsn = member.flush_lsn.max(reply.flush_lsn);
        member.write_lsn = member.flush_lsn;
        Ok(self.count())
    }

    /// Returns whether the commit LSN moved.
    pub fn appended(&mut self, member: usize, reply: &AppendReply) -> Result<bool, Fenced> {
        self.check(reply.term)?;
        let member = &mut self.members[member];
        if !member.follows || reply.term != self.term {
            return Ok(false);
        }
        member.flush_lsn = member.flush_lsn.max(reply.flush_lsn);
        member.write_lsn = member.write_lsn.max(reply.write_lsn).max(member.flush_lsn);
        Ok(self.count())
    }

    /// The connection is gone: what the acceptor only had in memory may be, too.
    pub fn disconnected(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.write_lsn = member.flush_lsn;
    }

    pub fn check(&self, seen: Term) -> Result<(), Fenced> {
        if seen > self.term {
            Err(Fenced { by: seen })
        } else {
            Ok(())
        }
    }

    /// Fsynced position of an acceptor that follows this term.
    pub fn flush_of(&self, member: usize) -> Option<Lsn> {
        let member = &self.members[member];
        member.follows.then_some(member.flush_lsn)
    }

    /// Whether a majority follows this term and holds the log up to its start: safe to serve.
    pub fn is_established(&self) -> bool {
        self.election.as_ref().is_some_and(|election| {
            self.quorum_position(|member| member.flush_lsn) >= Some(election.start_lsn)
        })
    }

    /// The highest position that a majority of the members, all following this term, has reached.
    fn quorum_position(&self, position: impl Fn(&Member) -> Lsn) -> Option<Lsn> {
        let mut positions: Vec<Lsn> = self
            .members
            .iter()
            .filter(|member| member.follows)
            .map(position)
            .collect();
        positions.sort_unstable_by(|a, b| b.cmp(a));
        positions.get(majority(self.members.len()) - 1).copied()
    }

    fn count(&mut self) -> bool {
        let Some(start_lsn) = self.election.as_ref().map(|election| election.start_lsn) else {
            return false;
        };
        if let Some(written) = self
            .quorum_position(|member| member.write_lsn)
            .filter(|lsn| *lsn >= start_lsn)
        {
            self.write_quorum = self.write_quorum.max(written);
        }
        // Below L a majority of positions proves nothing yet: another log could still win an election.
        match self
            .quorum_position(|member| member.flush_lsn)
            .filter(|lsn| *lsn >= start_lsn && *lsn > self.commit_lsn)
        {
            Some(flushed) => {
                self.commit_lsn = flushed;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
#[path = "proposer_tests.rs"]
mod tests;
