//! A simulated compute: an election, then records written and sent until it dies or is fenced.

use consensus::{
    AppendHeader, AppendReply, CandidateId, ElectedReply, Proposer, Refusal, ResetRequest,
    VoteOutcome, VoteRequest,
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
    Running,
    /// The election was won just now.
    Won,
    /// The commit LSN moved.
    Committed,
    Fenced,
    /// The best log of the voters ends before something that was committed.
    LostWal,
}

pub struct SimProposer {
    pub id: usize,
    pub machine: Proposer,
    pub alive: bool,
    /// Its own WAL from L on; before, what its donor held, so that the checker can compare.
    pub log: Log,
    /// Where the donor's WAL began.
    pub oldest: Lsn,
    /// Whether commits are reported from here on: (term, L) is on a majority.
    pub established: bool,
    request: Option<VoteRequest>,
    /// Where each acceptor's log reaches, once it has adopted the history.
    positions: Vec<Option<Lsn>>,
    sequence: u32,
    bug: Option<Bug>,
}

type Sends = Vec<(usize, ToAcceptor)>;

impl SimProposer {
    pub fn new(id: usize, acceptors: usize, bug: Option<Bug>) -> SimProposer {
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
            positions: vec![None; acceptors],
            sequence: 0,
            bug,
        }
    }

    fn members(&self) -> std::ops::Range<usize> {
        0..self.positions.len()
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
        let mut sends = Sends::new();
        for member in self.members() {
            match self.positions[member] {
                None => sends.push((member, ToAcceptor::Elected(announcement.clone()))),
                Some(position) => sends.extend(self.supply(rng, member, position)),
            }
        }
        sends
    }

    fn campaign(&mut self, rng: &mut ChaCha8Rng) -> Sends {
        if self.request.is_none() && rng.random_bool(0.5) {
            self.request = self.machine.campaign();
        }
        let message = self.request.map_or(ToAcceptor::Greet, ToAcceptor::Vote);
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
            begin_lsn,
            end_lsn: begin_lsn + wal.len() as u64,
            commit_lsn: self.machine.commit_lsn(),
        };
        ToAcceptor::Append(header, wal)
    }

    pub fn handle(&mut self, member: usize, message: ToProposer) -> (Standing, Sends) {
        match message {
            ToProposer::Greeting(position) => {
                self.count_early(member, position.flush_lsn);
                if self.machine.election().is_none() {
                    self.machine.greeted(member, position);
                }
            }
            ToProposer::Vote(reply) => {
                self.count_early(member, reply.position.flush_lsn);
                if self.machine.election().is_none() && self.request.is_some() {
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

    fn count_early(&mut self, member: usize, flush_lsn: Lsn) {
        if self.bug == Some(Bug::CountBeforeAdoption) && self.machine.election().is_some() {
            let reply = ElectedReply {
                term: self.machine.term(),
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
            Refusal::NotAnnounced(_) | Refusal::Gap { .. } => {
                self.positions[member] = None;
                Standing::Running
            }
            _ => Standing::Running,
        }
    }

    fn standing(&mut self, moved: bool) -> Standing {
        self.established |= self.machine.is_established();
        if moved && self.established {
            Standing::Committed
        } else {
            Standing::Running
        }
    }
}
