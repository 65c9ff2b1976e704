//! A simulated compute: an election, then records written and sent until it dies or is fenced.

use consensus::{
    AppendHeader, AppendReply, CandidateId, Change, ConfigureRequest, ElectedReply, MemberId,
    Proposer, Refusal, ResetRequest, Role, VoteOutcome, VoteReply, VoteRequest,
};
use pg_types::Lsn;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use crate::Bug;
use crate::log::{Log, START, record};
use crate::network::{ToAcceptor, ToProposer};

/// How a proposer stands after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing that others have to know.
    Running,
    /// The election was won just now.
    Won,
    /// The commit LSN moved.
    Committed,
    /// A higher term was seen: the proposer is over.
    Fenced,
    /// The best log of the voters ends before something that was committed.
    LostWal,
}

/// A compute: the state machine, its WAL, and what it knows of each acceptor.
pub struct SimProposer {
    /// Number of the proposer, from 0 on.
    pub id: usize,
    /// The state machine.
    pub machine: Proposer,
    /// Whether the compute runs; a dead one never comes back.
    pub alive: bool,
    /// The proposer's own WAL from L on, and what its donor held before L, so that the checker can compare.
    pub log: Log,
    /// Where the donor's WAL began.
    pub oldest: Lsn,
    /// Whether commits are reported from here on: (term, L) is on a majority.
    pub established: bool,
    request: Option<VoteRequest>,
    /// Ticks since it was first sent.
    waited: u32,
    /// Acceptors whose addresses it was given.
    listed: Vec<bool>,
    /// Where each acceptor's log reaches, once it has adopted the history.
    positions: Vec<Option<Lsn>>,
    /// The member that answered last at each address.
    ids: Vec<Option<MemberId>>,
    configure: Option<ConfigureRequest>,
    /// Changes of the configuration made.
    pub changes: u32,
    sequence: u32,
    bug: Option<Bug>,
}

/// Ticks after which a vote that was neither won nor lost is asked for anew, in a higher term.
const VOTE_PATIENCE: u32 = 30;

type Sends = Vec<(usize, ToAcceptor)>;

impl SimProposer {
    /// A compute that starts now. `listed` says of each acceptor whether its address was given.
    pub fn new(id: usize, listed: Vec<bool>, bug: Option<Bug>) -> SimProposer {
        let acceptors = listed.len();
        let mut candidate = [0; 16];
        candidate[..8].copy_from_slice(&(id as u64).to_le_bytes());
        SimProposer {
            id,
            machine: Proposer::new(CandidateId(candidate), acceptors),
            alive: true,
            log: Log::default(),
            oldest: START,
            established: false,
            request: None,
            waited: 0,
            listed,
            positions: vec![None; acceptors],
            ids: vec![None; acceptors],
            configure: None,
            changes: 0,
            sequence: 0,
            bug,
        }
    }

    fn members(&self) -> impl Iterator<Item = usize> + use<> {
        let listed = self.listed.clone();
        (0..listed.len()).filter(move |member| listed[*member])
    }

    /// The member that answered last at an acceptor's address.
    pub fn id_of(&self, acceptor: usize) -> Option<MemberId> {
        self.ids[acceptor]
    }

    /// What it tells its client to be committed.
    pub fn commit_lsn(&self) -> Lsn {
        let furthest = self
            .members()
            .filter_map(|member| self.machine.flush_of(member))
            .max();
        match self.bug {
            Some(Bug::AckBeforeMajority) if self.established => {
                self.machine.commit_lsn().max(furthest.unwrap_or(START))
            }
            _ => self.machine.commit_lsn(),
        }
    }

    /// Time has passed: repeat what was not answered, write and send more.
    pub fn tick(&mut self, rng: &mut ChaCha8Rng) -> Sends {
        let Some(announcement) = self.machine.announcement() else {
            return self.campaign(rng);
        };
        if self.established && rng.random_bool(0.7) {
            for _ in 0..rng.random_range(1..5) {
                self.sequence += 1;
                let length = rng.random_range(16..120);
                self.log.push(&record(
                    self.machine.term(),
                    self.id as u16,
                    self.sequence,
                    length,
                ));
            }
        }
        if self.established && rng.random_bool(0.1) {
            self.change(rng);
        }
        let mut sends = Sends::new();
        for member in self.members() {
            if let Some(configure) = &self.configure
                && !self.machine.has_configured(member)
                // Most of these messages are lost where that would have to be noticed.
                && (self.bug != Some(Bug::TwoGenerations) || rng.random_bool(0.05))
            {
                sends.push((member, ToAcceptor::Configure(configure.clone())));
            }
            match self.positions[member] {
                _ if self.machine.role_of(member).is_none() => {
                    sends.push((member, ToAcceptor::Greet));
                }
                None => {
                    sends.push((member, ToAcceptor::Greet));
                    sends.push((member, ToAcceptor::Elected(announcement.clone())));
                }
                Some(position) => sends.extend(self.supply(rng, member, position)),
            }
        }
        sends
    }

    /// One step of membership, by chance: a log that names no members writes them down, a stranger becomes a learner, a
    /// learner a voter, and somebody goes.
    fn change(&mut self, rng: &mut ChaCha8Rng) {
        let peer = rng.random_range(0..self.listed.len());
        let configuration = self.machine.configuration();
        let voters = configuration.voters().count();
        let Some(id) = self.ids[peer].filter(|_| self.listed[peer]) else {
            return;
        };
        let stranger = configuration
            .members()
            .iter()
            .find(|member| member.id.node == id.node && member.id != id);
        let change = if configuration.is_unlisted() {
            let Some(ids) = self.machine.listable() else {
                return;
            };
            Change::List(ids)
        } else if let Some(lost) = stranger {
            Change::Remove(lost.id)
        } else {
            match configuration.role_of(id) {
                None => Change::AddLearner(id),
                Some(Role::Learner) if voters < 6 && rng.random_bool(0.8) => Change::Promote(id),
                Some(Role::Voter) if voters <= 3 && rng.random_bool(0.8) => return,
                Some(_) => Change::Remove(id),
            }
        };
        if let Ok(request) = self.machine.change(&change) {
            self.configure = Some(request);
            self.changes += 1;
        }
    }

    fn campaign(&mut self, rng: &mut ChaCha8Rng) -> Sends {
        // A voter that is gone for good never answers, and its vote is the one that is missing where the others voted
        // for different candidates.
        let stuck = self.waited > VOTE_PATIENCE;
        if (self.request.is_none() || stuck) && rng.random_bool(0.5) {
            self.request = self.machine.campaign();
            self.waited = 0;
        }
        self.waited += 1;
        let request = self.request.clone();
        let message = request.map_or(ToAcceptor::Greet, ToAcceptor::Vote);
        self.members()
            .map(|member| (member, message.clone()))
            .collect()
    }

    /// The next piece of WAL for an acceptor: from here, or by way of a peer when it is older than the term.
    fn supply(
        &self,
        rng: &mut ChaCha8Rng,
        member: usize,
        position: Lsn,
    ) -> Option<(usize, ToAcceptor)> {
        let election = self.machine.election()?;
        if position < election.start_lsn {
            let sources: Vec<usize> = self
                .members()
                .filter(|peer| self.positions[*peer].is_some_and(|lsn| lsn > position))
                .collect();
            let source = *sources.get(rng.random_range(0..sources.len().max(1)))?;
            let to = election.start_lsn.min(self.positions[source]?);
            return Some((
                source,
                ToAcceptor::Fetch {
                    term: election.term,
                    from: position,
                    to,
                },
            ));
        }
        let piece = rng.random_range(0..400);
        let end = Lsn(self.log.end().0.min(position.0 + piece));
        Some((
            member,
            self.append(position, self.log.slice(position, end).to_vec()),
        ))
    }

    fn append(&self, begin_lsn: Lsn, wal: Vec<u8>) -> ToAcceptor {
        let header = AppendHeader {
            term: self.machine.term(),
            generation: self.machine.configuration().generation,
            begin_lsn,
            end_lsn: begin_lsn + wal.len() as u64,
            commit_lsn: self.machine.commit_lsn(),
        };
        ToAcceptor::Append(header, wal)
    }

    /// A message from whoever answered as `sender` at the address of `member`.
    pub fn handle(
        &mut self,
        member: usize,
        sender: MemberId,
        message: ToProposer,
    ) -> (Standing, Sends) {
        let shows = matches!(message, ToProposer::Greeting(_) | ToProposer::Vote(_));
        if shows && self.ids[member] != Some(sender) {
            (self.ids[member], self.positions[member]) = (Some(sender), None);
        }
        if let ToProposer::Greeting(position) = message {
            self.count_early(member, position.flush_lsn);
            self.machine.greeted(member, position);
            return (Standing::Running, Sends::new());
        }
        // A connection ends with the safekeeper that it was made to.
        if self.ids[member] != Some(sender) {
            return (Standing::Running, Sends::new());
        }
        match message {
            ToProposer::Greeting(_) => {}
            ToProposer::Vote(reply) => {
                self.count_early(member, reply.position.flush_lsn);
                if self.machine.election().is_none() && self.request.is_some() {
                    let (member, reply) = self.counted_as(member, reply);
                    match self.machine.voted(member, reply) {
                        VoteOutcome::Won(_) => return (Standing::Won, Sends::new()),
                        VoteOutcome::LostWal(_) => return (Standing::LostWal, Sends::new()),
                        VoteOutcome::Lost { .. } => self.request = None,
                        VoteOutcome::Pending => {}
                    }
                }
            }
            ToProposer::Elected(reply) => return (self.adopted(member, reply), Sends::new()),
            ToProposer::Append(reply) => return (self.appended(member, reply), Sends::new()),
            ToProposer::Refused(refusal) => return (self.refused(member, refusal), Sends::new()),
            ToProposer::Fetched { from, wal } => {
                let behind = |peer: &usize| {
                    self.positions[*peer]
                        .is_some_and(|lsn| lsn >= from && lsn < from + wal.len() as u64)
                };
                let sends = self
                    .members()
                    .filter(behind)
                    .map(|peer| (peer, self.append(from, wal.clone())));
                return (Standing::Running, sends.collect());
            }
            ToProposer::Trimmed { horizon } => {
                let commit_lsn = self.machine.commit_lsn();
                let reset = ResetRequest {
                    term: self.machine.term(),
                    to: horizon,
                    commit_lsn,
                };
                let behind = |peer: &usize| self.positions[*peer].is_some_and(|lsn| lsn < horizon);
                if horizon <= commit_lsn {
                    let sends = self
                        .members()
                        .filter(behind)
                        .map(|peer| (peer, ToAcceptor::Reset(reset)));
                    return (Standing::Running, sends.collect());
                }
            }
        }
        (Standing::Running, Sends::new())
    }

    /// The election was won with this log.
    pub fn inherit(&mut self, log: Log, oldest: Lsn) {
        (self.log, self.oldest) = (log, oldest);
    }

    /// The planted bug lets a learner's vote stand for that of a voter who has not been heard of.
    fn counted_as(&self, member: usize, mut reply: VoteReply) -> (usize, VoteReply) {
        let learner = self.machine.role_of(member) == Some(Role::Learner);
        if self.bug != Some(Bug::LearnerVotes) || !learner || !reply.granted {
            return (member, reply);
        }
        let silent = |peer: &usize| {
            self.machine.role_of(*peer) == Some(Role::Voter)
                && self.machine.flush_of(*peer).is_none()
        };
        let Some(voter) = self
            .members()
            .filter(silent)
            .max_by_key(|peer| self.ids[*peer])
        else {
            return (member, reply);
        };
        reply.position.member = self.ids[voter].unwrap_or(reply.position.member);
        (voter, reply)
    }

    fn count_early(&mut self, member: usize, flush_lsn: Lsn) {
        if self.bug == Some(Bug::CountBeforeAdoption) && self.machine.election().is_some() {
            let reply = ElectedReply {
                term: self.machine.term(),
                generation: self.machine.configuration().generation,
                flush_lsn,
                prev_record_lsn: None,
            };
            let _ = self.machine.adopted(member, &reply);
        }
    }

    fn adopted(&mut self, member: usize, reply: ElectedReply) -> Standing {
        match self.machine.adopted(member, &reply) {
            Err(_) => Standing::Fenced,
            Ok(moved) => {
                if reply.term == self.machine.term() {
                    self.positions[member] = Some(reply.flush_lsn);
                }
                self.standing(moved)
            }
        }
    }

    fn appended(&mut self, member: usize, mut reply: AppendReply) -> Standing {
        if self.bug == Some(Bug::CountOtherTerms) {
            reply.term = self.machine.term();
        }
        if matches!(self.bug, Some(Bug::CountOtherTerms | Bug::TwoGenerations)) {
            reply.generation = self.machine.configuration().generation;
        }
        match self.machine.appended(member, &reply) {
            Err(_) => Standing::Fenced,
            Ok(moved) => {
                if let Some(position) = &mut self.positions[member] {
                    *position = reply.flush_lsn.max(*position);
                }
                self.standing(moved)
            }
        }
    }

    fn refused(&mut self, member: usize, refusal: Refusal) -> Standing {
        match refusal {
            Refusal::HigherTerm(term) if self.machine.election().is_some() => {
                match self.machine.check(term) {
                    Err(_) if self.bug == Some(Bug::CountOtherTerms) => Standing::Running,
                    Err(_) => Standing::Fenced,
                    Ok(()) => Standing::Running,
                }
            }
            // It restarted, or messages overtook each other: begin again with it.
            Refusal::NotAnnounced(_)
            | Refusal::Gap { .. }
            | Refusal::OlderGeneration(_)
            | Refusal::UnknownGeneration { .. }
            | Refusal::NotMember(_) => {
                self.positions[member] = None;
                Standing::Running
            }
            _ => Standing::Running,
        }
    }

    fn standing(&mut self, moved: bool) -> Standing {
        self.established |= self.machine.is_established();
        let early = self.bug == Some(Bug::AckBeforeMajority);
        if (moved || early) && self.established {
            Standing::Committed
        } else {
            Standing::Running
        }
    }
}
