//! A compute of the model: the real proposer, and the WAL that it has.

use std::hash::{Hash, Hasher};

use consensus::{
    AppendHeader, AppendReply, CandidateId, Change, ConfigureRequest, ElectedReply, Generation,
    LogPosition, MemberId, Proposer, Role, VoteOutcome, VoteReply, VoteRequest,
};
use pg_types::Lsn;

use crate::Bug;
use crate::log::{Log, Record};

/// How a compute stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// A compute that has not won; it may ask for votes, again if its plan says so.
    Candidate,
    /// A compute that has won its term. A later winner does not change that.
    Winner,
    /// A compute that found that its voters lack WAL that is known to be committed, and will do no more.
    FoundLoss,
}

/// A compute: the proposer's state machine, and how often it has done what its plan bounds.
#[derive(Clone)]
pub struct Compute {
    number: usize,
    /// The real state machine.
    pub machine: Proposer,
    /// How the compute stands.
    pub standing: Standing,
    /// Of a winner: its donor's WAL as the donor voted, and what it has written itself.
    pub log: Log,
    /// Campaigns begun.
    pub campaigns: u8,
    /// Records written.
    pub writes: u8,
    /// Changes of members begun.
    pub changes: u8,
    /// The vote that is asked for; `None` before the first campaign, and once that is decided.
    pub request: Option<VoteRequest>,
    /// What each safekeeper held when it voted.
    heard: Vec<Log>,
    bug: Option<Bug>,
}

/// All that can have an influence on what happens later. Of a winner's machine that is what it counts by; whose
/// greeting and whose vote made it win is past. Its donor's WAL is in `log`.
impl Hash for Compute {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.standing, self.campaigns, self.writes, self.changes).hash(hasher);
        let machine = &self.machine;
        let Some(election) = machine.election() else {
            (machine, &self.request, &self.heard).hash(hasher);
            return;
        };
        if machine.configuration().is_unlisted() {
            // Who has greeted decides whether the members can be written down.
            machine.hash(hasher);
        }
        (election.term, election.start_lsn, &election.history).hash(hasher);
        (machine.commit_lsn(), machine.configuration(), &self.log).hash(hasher);
        for peer in 0..self.heard.len() {
            let counts = machine.has_configured(peer);
            (machine.id_of(peer), machine.flush_of(peer), counts).hash(hasher);
        }
    }
}

impl Compute {
    /// A candidate that is given so many addresses, and has begun nothing.
    pub fn new(number: usize, addresses: usize, bug: Option<Bug>) -> Compute {
        Compute {
            number,
            machine: Proposer::new(CandidateId([number as u8; 16]), addresses),
            standing: Standing::Candidate,
            log: Log::default(),
            campaigns: 0,
            writes: 0,
            changes: 0,
            request: None,
            heard: vec![Log::default(); addresses],
            bug,
        }
    }

    /// Whether the compute has won its term.
    pub fn has_won(&self) -> bool {
        self.standing == Standing::Winner
    }

    /// What it tells its clients to be committed.
    pub fn commit_lsn(&self) -> Lsn {
        let machine = &self.machine;
        if self.bug != Some(Bug::AckBeforeMajority) || !machine.is_established() {
            return machine.commit_lsn();
        }
        let flushed = (0..self.heard.len()).filter_map(|peer| machine.flush_of(peer));
        flushed.fold(machine.commit_lsn(), Lsn::max)
    }

    /// What is acknowledged to clients, as records.
    pub fn committed(&self) -> &[Record] {
        if self.has_won() {
            self.log.up_to(self.commit_lsn())
        } else {
            &[]
        }
    }

    /// A safekeeper shows its position at the beginning of a connection.
    pub fn greeted(&mut self, peer: usize, position: LogPosition) {
        let flush_lsn = position.flush_lsn;
        let member = position.member;
        self.machine.greeted(peer, position.clone());
        if let Some(absent) = self.absent_for(member)
            && !self.has_won()
        {
            let member = absent;
            self.machine
                .greeted(peer, LogPosition { member, ..position });
        }
        if self.bug == Some(Bug::CountBeforeAdoption) && self.has_won() {
            let reply = ElectedReply {
                term: self.machine.term(),
                generation: self.machine.configuration().generation,
                flush_lsn,
                prev_record_lsn: None,
            };
            let _ = self.machine.adopted(peer, &reply);
        }
    }

    /// Asks for votes once a majority has greeted.
    pub fn campaign(&mut self) -> bool {
        let Some(request) = self.machine.campaign() else {
            return false;
        };
        self.campaigns += 1;
        self.request = Some(request);
        true
    }

    /// A vote arrives from a safekeeper that held `log` when it voted.
    pub fn voted(&mut self, peer: usize, reply: VoteReply, log: &Log) {
        if self.request.is_none() {
            return;
        }
        let reply = self.counted_as(reply);
        if reply.position.term == self.machine.term() {
            // The proposer passes over votes for an older term, too.
            self.heard[peer] = log.prefix(reply.position.flush_lsn);
        }
        match self.machine.voted(peer, reply) {
            VoteOutcome::Pending => {}
            VoteOutcome::Won(election) => {
                self.standing = Standing::Winner;
                self.log = std::mem::take(&mut self.heard[election.donor]);
                self.request = None;
            }
            VoteOutcome::LostWal(_) => {
                self.standing = Standing::FoundLoss;
                self.request = None;
            }
            VoteOutcome::Lost { highest } => {
                self.machine.outbid(highest);
                self.request = None;
            }
        }
    }

    /// The planted bug lets a learner's vote stand for that of a voter who has not been heard of.
    fn counted_as(&self, mut reply: VoteReply) -> VoteReply {
        if let Some(absent) = self.absent_for(reply.position.member) {
            reply.position.member = absent;
        }
        reply
    }

    fn absent_for(&self, member: MemberId) -> Option<MemberId> {
        let role = self.machine.configuration().role_of(member);
        let learner = self.bug == Some(Bug::LearnerVotes) && role == Some(Role::Learner);
        let absent = self.machine.unheard_voters().pop();
        absent.filter(|_| learner)
    }

    /// Appends a record of the compute's own; false where that may not write yet.
    pub fn write(&mut self) -> bool {
        if !self.has_won() || !self.machine.is_established() {
            return false;
        }
        self.log.push(self.machine.term(), self.number);
        self.writes += 1;
        true
    }

    /// Makes a change of the members; false where the proposer refuses it.
    pub fn change(&mut self, change: &Change) -> bool {
        if self.machine.change(change).is_err() {
            return false;
        }
        self.changes += 1;
        true
    }

    /// What a safekeeper is sent that has not stored the newest change.
    pub fn configure(&self) -> ConfigureRequest {
        ConfigureRequest {
            term: self.machine.term(),
            configuration: self.machine.configuration().clone(),
        }
    }

    /// The next record for a log that ends at `begin_lsn`; nothing but the commit LSN when it has all.
    pub fn append(&self, begin_lsn: Lsn) -> Option<(AppendHeader, &[Record])> {
        if begin_lsn > self.log.end() {
            return None;
        }
        let end_lsn = (begin_lsn + 1).min(self.log.end());
        let header = AppendHeader {
            term: self.machine.term(),
            generation: self.machine.configuration().generation,
            begin_lsn,
            end_lsn,
            commit_lsn: self.machine.commit_lsn(),
        };
        Some((header, self.log.slice(begin_lsn, end_lsn)))
    }

    /// Whether it knows already what a reply says.
    pub fn knows(&self, peer: usize, flush_lsn: Lsn, generation: Generation) -> bool {
        let machine = &self.machine;
        let any = matches!(self.bug, Some(Bug::CountOtherTerms | Bug::TwoGenerations));
        let counts = any || generation == machine.configuration().generation;
        machine.flush_of(peer) >= Some(flush_lsn) && (!counts || machine.has_configured(peer))
    }

    /// The safekeeper has adopted the history.
    pub fn adopted(&mut self, peer: usize, reply: &ElectedReply) {
        let _ = self.machine.adopted(peer, reply);
    }

    /// A safekeeper reports its positions.
    pub fn appended(&mut self, peer: usize, mut reply: AppendReply) {
        if self.bug == Some(Bug::CountOtherTerms) {
            reply.term = self.machine.term();
        }
        if matches!(self.bug, Some(Bug::CountOtherTerms | Bug::TwoGenerations)) {
            reply.generation = self.machine.configuration().generation;
        }
        let _ = self.machine.appended(peer, &reply);
    }
}
