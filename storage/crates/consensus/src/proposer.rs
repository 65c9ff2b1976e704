//! The proposer: one compute's election and its count of what a majority holds.
//!
//! Knows positions, not bytes; who sends which bytes when is its driver's business. Peers are numbered by the addresses
//! that the proposer was given. What a majority is depends on the newest configuration that any of them has shown, so
//! that an outdated list of addresses can keep a proposer from starting and never makes it count wrongly.

use pg_types::{Lsn, Term};

use crate::configuration::{Change, ChangeError, Configuration, Generation, MemberId, Role};
use crate::election::{CommitProof, Election, Fenced, LostWal, VoteOutcome};
use crate::message::{
    AppendReply, CandidateId, ConfigureRequest, ElectedReply, ElectedRequest, LogPosition,
    VoteReply, VoteRequest,
};
use crate::peers::{Peer, Peers};

/// One compute's proposer, as positions: what it asks for, what each peer has answered, and what a majority holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Proposer {
    candidate: CandidateId,
    term: Term,
    peers: Peers,
    /// Generation of the configuration that votes are being asked for under.
    asked: Generation,
    election: Option<Election>,
    write_quorum: Lsn,
    commit_lsn: Lsn,
    /// What a reader of the log has proven to be committed before the election; `INVALID` when nobody was asked.
    committed_outside: Lsn,
}

impl Proposer {
    /// A proposer that reaches `peers` addresses and knows nothing yet. Panics without an address.
    pub fn new(candidate: CandidateId, peers: usize) -> Proposer {
        assert!(peers > 0, "a timeline needs at least one safekeeper");
        Proposer {
            candidate,
            term: Term(0),
            peers: Peers::new(peers),
            asked: Generation::ZERO,
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
        let acceptors = self.peers.all.iter().enumerate().filter_map(|(i, peer)| {
            Some(CommitProof {
                lsn: peer.greeting.as_ref()?.commit_lsn,
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

    /// The term that votes were asked for last, or that the next campaign has to go above; once elected, the term won.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The election that was won; `None` before. A proposer wins once.
    pub fn election(&self) -> Option<&Election> {
        self.election.as_ref()
    }

    /// Everything before it is committed; never goes back. `INVALID` before the election is won.
    pub fn commit_lsn(&self) -> Lsn {
        self.commit_lsn
    }

    /// Last record boundary that is in memory on a majority of the voters. `INVALID` before the election is won.
    pub fn write_quorum(&self) -> Lsn {
        self.write_quorum
    }

    /// The newest configuration known; once elected, this proposer's own.
    pub fn configuration(&self) -> &Configuration {
        &self.peers.configuration
    }

    /// One more address to reach a safekeeper at; returns its number. Not for a log that names no members, where the
    /// number of addresses decides what a majority is.
    pub fn add_peer(&mut self) -> usize {
        assert!(
            !self.peers.configuration.is_unlisted(),
            "an address was added to a log that names no members"
        );
        self.peers.all.push(Peer::default());
        self.peers.all.len() - 1
    }

    /// Whether a majority of the voters fulfils `condition`, which gets the peer's number.
    pub fn majority_of(&self, condition: impl Fn(usize) -> bool) -> bool {
        self.peers.majority_of(condition)
    }

    /// Number of the peer behind each voter; `None` for a voter that has not been heard of.
    pub fn voters(&self) -> Vec<Option<usize>> {
        self.peers.voters()
    }

    /// Voters of the newest configuration that no peer has claimed to be.
    pub fn unheard_voters(&self) -> Vec<MemberId> {
        let voters = self.peers.configuration.voters();
        voters.filter(|id| self.peers.find(*id).is_none()).collect()
    }

    /// An acceptor's state when the connection to it began.
    pub fn greeted(&mut self, peer: usize, position: LogPosition) {
        let shown = &position.configuration;
        if self.election.is_none() && shown.replaces(&self.peers.configuration) {
            self.peers.configuration = shown.clone();
        }
        self.peers.all[peer].greeted(position);
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
        let all = &self.peers.all;
        let greeted = |peer: usize| all[peer].greeting.is_some();
        if self.election.is_some() || !self.peers.majority_of(greeted) {
            return None;
        }
        let seen = all
            .iter()
            .filter_map(|peer| Some(peer.greeting.as_ref()?.term));
        let highest = seen.max()?.max(self.term);
        self.term = Term(highest.0 + 1);
        self.peers.all.iter_mut().for_each(|peer| peer.vote = None);
        self.asked = self.peers.configuration.generation;
        Some(VoteRequest {
            term: self.term,
            candidate: self.candidate,
            configuration: self.peers.configuration.clone(),
        })
    }

    /// Takes a peer's answer to the vote asked for last. After a win the answer is `Pending`.
    pub fn voted(&mut self, peer: usize, reply: VoteReply) -> VoteOutcome {
        if self.election.is_some() || reply.granted && reply.position.term != self.term {
            return VoteOutcome::Pending;
        }
        self.greeted(peer, reply.position.clone());
        self.peers.all[peer].vote = Some(reply);
        if self.asked != self.peers.configuration.generation {
            // Votes were asked for under a configuration that is not the newest.
            return self.lost();
        }
        let granted = self.voters_that(|vote| vote.granted);
        if granted.len() >= self.quorum() {
            return self.decide();
        }
        let refused = self.voters_that(|vote| !vote.granted);
        if self.peers.voters().len() - refused.len() < self.quorum() {
            return self.lost();
        }
        VoteOutcome::Pending
    }

    fn quorum(&self) -> usize {
        crate::majority(self.peers.voters().len())
    }

    /// Voters whose answer to the vote asked for fulfils `condition`.
    fn voters_that(&self, condition: impl Fn(&VoteReply) -> bool) -> Vec<(usize, &LogPosition)> {
        let voters = self.peers.voters().into_iter().flatten();
        voters
            .filter_map(|voter| {
                let vote = self.peers.all[voter].vote.as_ref()?;
                condition(vote).then_some((voter, &vote.position))
            })
            .collect()
    }

    fn lost(&self) -> VoteOutcome {
        let votes = self.peers.all.iter().filter_map(|peer| peer.vote.as_ref());
        let refused = votes.filter(|vote| !vote.granted);
        let highest = refused.map(|vote| vote.position.term).max();
        VoteOutcome::Lost {
            highest: highest.unwrap_or(self.term).max(self.term),
        }
    }

    /// A majority has granted its vote: the best of their logs wins, unless it lacks what is known to be committed.
    fn decide(&mut self) -> VoteOutcome {
        let granted = self.voters_that(|vote| vote.granted);
        let Some((donor, best)) = granted.iter().max_by_key(|(_, position)| position.rank()) else {
            return VoteOutcome::Pending;
        };
        let start_lsn = best.flush_lsn;
        let proof = self.commit_proof();
        if proof.lsn > start_lsn {
            return self.lost_wal(*donor, start_lsn, proof);
        }
        let commits = granted.iter().map(|(_, position)| position.commit_lsn);
        let known_commit = commits.max().unwrap_or(start_lsn);
        let election = Election {
            term: self.term,
            donor: *donor,
            start_lsn,
            history: best.history.continued_by(self.term, start_lsn),
            known_commit,
        };
        assert!(
            known_commit <= start_lsn,
            "term {} would begin at {start_lsn}, before the committed {known_commit}",
            self.term
        );
        self.peers.configuration = self.peers.configuration.confirmed(self.term);
        self.commit_lsn = known_commit;
        self.election = Some(election.clone());
        VoteOutcome::Won(election)
    }

    /// The best log of the voters ends before what `proof` says is committed. Where a later term has committed that,
    /// nothing is lost: this election comes too late.
    fn lost_wal(&self, donor: usize, end_lsn: Lsn, proof: CommitProof) -> VoteOutcome {
        let term = proof.acceptor.and_then(|acceptor| {
            let greeting = self.peers.all[acceptor].greeting.as_ref()?;
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
            configuration: self.peers.configuration.clone(),
        })
    }

    /// Changes the configuration by one step; the answer is what to send to every peer, the removed one included. From
    /// then on only acceptors that have stored the new configuration count, so commits wait until a majority has.
    ///
    /// A change that would leave no majority of voters able to commit is refused (`WouldStall`): it would be safe, and of
    /// no use to anybody. Waits (`Unfinished`) until a majority of the current configuration has stored it under this term
    /// and holds everything that is committed: otherwise two steps could together reach a configuration whose
    /// majorities do not meet those that committed before.
    pub fn change(&mut self, change: &Change) -> Result<ConfigureRequest, ChangeError> {
        if !self.is_established() {
            return Err(ChangeError::NotEstablished);
        }
        let configuration = self.peers.changed(self.term, self.commit_lsn, change)?;
        self.peers.configuration = configuration.clone();
        Ok(ConfigureRequest {
            term: self.term,
            configuration,
        })
    }

    /// For a log that does not name its members: who they are, once every peer has greeted. A log that waits to be made
    /// a learner is none of them, and keeps the list from being written down.
    pub fn listable(&self) -> Option<Vec<MemberId>> {
        self.peers.listable()
    }

    /// The member that greeted last at the peer's address.
    pub fn id_of(&self, peer: usize) -> Option<MemberId> {
        self.peers.all[peer].id
    }

    /// The role that a peer has in the newest configuration. `None` also for a peer that has not greeted.
    pub fn role_of(&self, peer: usize) -> Option<Role> {
        let id = self.peers.all[peer].id?;
        if self.peers.configuration.is_unlisted() {
            return Some(Role::Voter);
        }
        self.peers.configuration.role_of(id)
    }

    /// Whether the acceptor has stored the newest configuration.
    pub fn has_configured(&self, peer: usize) -> bool {
        self.peers.all[peer].generation == self.peers.configuration.generation
    }

    /// The acceptor has adopted the history. Returns whether the commit LSN moved.
    pub fn adopted(&mut self, peer: usize, reply: &ElectedReply) -> Result<bool, Fenced> {
        self.check(reply.term)?;
        if reply.term != self.term || self.election.is_none() {
            return Ok(false);
        }
        let peer = &mut self.peers.all[peer];
        peer.follows = true;
        // Replies can overtake each other, and what was stored or fsynced once stays so.
        peer.generation = peer.generation.max(reply.generation);
        peer.flush_lsn = peer.flush_lsn.max(reply.flush_lsn);
        peer.write_lsn = peer.flush_lsn;
        Ok(self.count())
    }

    /// Takes an acceptor's positions, as they answer an append and a change of the configuration; they count only once it
    /// has adopted the history. Returns whether the commit LSN moved.
    pub fn appended(&mut self, peer: usize, reply: &AppendReply) -> Result<bool, Fenced> {
        self.check(reply.term)?;
        let peer = &mut self.peers.all[peer];
        if !peer.follows || reply.term != self.term {
            return Ok(false);
        }
        peer.generation = peer.generation.max(reply.generation);
        peer.flush_lsn = peer.flush_lsn.max(reply.flush_lsn);
        peer.write_lsn = peer.write_lsn.max(reply.write_lsn).max(peer.flush_lsn);
        Ok(self.count())
    }

    /// The connection is gone: what the acceptor only had in memory may be, too.
    pub fn disconnected(&mut self, peer: usize) {
        let peer = &mut self.peers.all[peer];
        peer.write_lsn = peer.flush_lsn;
    }

    /// Fails when `seen`, the term of an acceptor, is above this proposer's.
    pub fn check(&self, seen: Term) -> Result<(), Fenced> {
        if seen > self.term {
            Err(Fenced { by: seen })
        } else {
            Ok(())
        }
    }

    /// Fsynced position of an acceptor that follows this term.
    pub fn flush_of(&self, peer: usize) -> Option<Lsn> {
        let peer = &self.peers.all[peer];
        peer.follows.then_some(peer.flush_lsn)
    }

    /// Whether a majority follows this term and holds the log up to its start: safe to serve.
    pub fn is_established(&self) -> bool {
        self.election.as_ref().is_some_and(|election| {
            self.peers.majority_position(|peer| peer.flush_lsn) >= Some(election.start_lsn)
        })
    }

    fn count(&mut self) -> bool {
        let Some(start_lsn) = self.election.as_ref().map(|election| election.start_lsn) else {
            return false;
        };
        if let Some(written) = self
            .peers
            .majority_position(|peer| peer.write_lsn)
            .filter(|lsn| *lsn >= start_lsn)
        {
            self.write_quorum = self.write_quorum.max(written);
        }
        // Below L a majority of positions proves nothing yet: another log could still win an election.
        match self
            .peers
            .majority_position(|peer| peer.flush_lsn)
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
