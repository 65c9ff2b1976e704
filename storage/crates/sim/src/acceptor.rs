//! A simulated safekeeper: the acceptor state machine over a disk that forgets.

use consensus::acceptor::FlushTicket;
use consensus::{
    Acceptor, Configuration, Durable, MemberId, Refusal, ResetRequest, Role, VoteReply, VoteRequest,
};
use pg_types::{DiskId, Lsn, Term};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use crate::Bug;
use crate::log::{Log, START};
use crate::network::{ToAcceptor, ToProposer};
use crate::store::Piece;

/// An fsync under way.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    /// [`SimAcceptor::incarnation`] when the fsync began; a later one makes it void.
    pub incarnation: u32,
    /// What the state machine takes as flushed when the fsync is done.
    pub ticket: FlushTicket,
    end: Lsn,
    cuts: u32,
}

/// A safekeeper: the state machine, what its disk holds, and what it has only in memory.
pub struct SimAcceptor {
    /// The member whose log this is now.
    pub id: MemberId,
    /// `None` while it is down.
    pub machine: Option<Acceptor>,
    /// The WAL, fsynced or not.
    pub log: Log,
    /// WAL before this record boundary is gone.
    pub oldest: Lsn,
    /// Counts starts; work begun in an earlier one is void.
    pub incarnation: u32,
    stored: Durable,
    synced: Lsn,
    /// What a backup of the disk holds.
    copy: Option<(Durable, Log, Lsn)>,
    cuts: u32,
    flushing: bool,
    /// The proposer that appended last, and hears of finished fsyncs.
    writer: Option<usize>,
    bug: Option<Bug>,
}

/// What a step leads to.
#[derive(Default)]
pub struct Outcome {
    /// Answer to the proposer whose message was taken; `None` for a message that cannot be answered.
    pub reply: Option<ToProposer>,
    /// An fsync that begins now; `None` when one is under way or nothing is to be fsynced.
    pub flush: Option<Flush>,
    /// Whether the acceptor died in the middle of the step, without a reply.
    pub crashed: bool,
}

impl Outcome {
    fn reply(reply: ToProposer) -> Outcome {
        Outcome {
            reply: Some(reply),
            ..Outcome::default()
        }
    }
}

impl SimAcceptor {
    /// An acceptor that runs, with an empty log.
    pub fn new(id: MemberId, configuration: Configuration, bug: Option<Bug>) -> SimAcceptor {
        let stored = Durable::new(id, START, configuration);
        SimAcceptor {
            id,
            machine: Some(Acceptor::new(id, stored.clone(), START)),
            copy: None,
            log: Log::default(),
            oldest: START,
            incarnation: 0,
            stored,
            synced: START,
            cuts: 0,
            flushing: false,
            writer: None,
            bug,
        }
    }

    /// Whether its log names no members and was made to be this one.
    pub fn is_original(&self) -> bool {
        self.stored.member == self.id && self.configuration().is_unlisted()
    }

    /// The newest configuration that the disk holds.
    pub fn configuration(&self) -> &Configuration {
        &self.stored.configuration
    }

    fn machine(&mut self) -> &mut Acceptor {
        self.machine
            .as_mut()
            .expect("only a running acceptor is given work")
    }

    fn store(&mut self, state: Durable) {
        self.stored = state.clone();
        self.machine().install(state);
    }

    /// Takes a message of proposer `from`. Only for an acceptor that runs.
    pub fn handle(&mut self, rng: &mut ChaCha8Rng, from: usize, message: ToAcceptor) -> Outcome {
        match message {
            ToAcceptor::Greet => Outcome::reply(ToProposer::Greeting(self.machine().position())),
            ToAcceptor::Vote(request) if self.votes_as_a_learner() => self.vote_early(&request),
            ToAcceptor::Vote(request) => {
                if let Some(promise) = self.machine().vote(&request) {
                    if self.bug == Some(Bug::VoteNotStored) {
                        self.machine().install(promise);
                    } else {
                        self.store(promise);
                    }
                }
                Outcome::reply(ToProposer::Vote(self.machine().vote_reply(&request)))
            }
            ToAcceptor::Elected(request) => match self.machine().elected(&request) {
                Ok(adoption) => self.adopt(rng, adoption),
                Err(refusal) => Self::refuse(refusal),
            },
            ToAcceptor::Configure(request) => match self.machine().configure(&request) {
                Ok(state) => {
                    self.store(state);
                    Outcome::reply(ToProposer::Append(self.machine().append_reply()))
                }
                Err(refusal) => Self::refuse(refusal),
            },
            ToAcceptor::Append(mut header, wal) => {
                if self.bug == Some(Bug::AcceptOldTerm) {
                    header.term = header.term.max(self.machine().term());
                }
                if self.bug == Some(Bug::TwoGenerations) {
                    header.generation = self.stored.configuration.generation;
                }
                match self.machine().append(&header, wal.len() as u64) {
                    Ok(plan) => {
                        let known = self.machine().write_lsn();
                        self.log.push(&wal[plan.skip as usize..]);
                        let (end, boundary) = (self.log.end(), self.log.boundary(known));
                        self.machine().written(end, boundary);
                        self.machine()
                            .announce_commit(header.term, header.commit_lsn);
                        self.writer = Some(from);
                        let mut reply = self.machine().append_reply();
                        if self.bug == Some(Bug::AckBeforeFsync) {
                            reply.flush_lsn = reply.write_lsn;
                        }
                        Outcome {
                            flush: self.begin_flush(),
                            ..Outcome::reply(ToProposer::Append(reply))
                        }
                    }
                    Err(refusal) => Self::refuse(refusal),
                }
            }
            ToAcceptor::Reset(request) => self.reset(rng, &request),
            ToAcceptor::Fetch { term, from, to } => {
                if !self.machine().follows(term) || to > self.machine().flush_lsn() || from >= to {
                    return Outcome::default();
                }
                if from < self.oldest {
                    return Outcome::reply(ToProposer::Trimmed {
                        horizon: self.oldest,
                    });
                }
                Outcome::reply(ToProposer::Fetched {
                    from,
                    wal: self.log.slice(from, to).to_vec(),
                })
            }
        }
    }

    fn reset(&mut self, rng: &mut ChaCha8Rng, request: &ResetRequest) -> Outcome {
        match self.machine().reset(request) {
            Ok(state) => {
                // Control file first: a crash in between leaves old WAL, which the next start drops.
                self.stored = state.clone();
                if rng.random_bool(0.2) {
                    return Outcome {
                        crashed: true,
                        ..Outcome::default()
                    };
                }
                self.log.skip_to(request.to);
                (self.synced, self.oldest, self.cuts) = (request.to, request.to, self.cuts + 1);
                self.machine().install_reset(state);
                Outcome::reply(ToProposer::Append(self.machine().append_reply()))
            }
            Err(refusal) => Self::refuse(refusal),
        }
    }

    fn votes_as_a_learner(&self) -> bool {
        let role = self.stored.configuration.role_of(self.id);
        self.bug == Some(Bug::LearnerVotes) && role == Some(Role::Learner)
    }

    fn vote_early(&mut self, request: &VoteRequest) -> Outcome {
        let mut position = self.machine().position();
        position.term = request.term;
        position.configuration = request.configuration.clone();
        Outcome::reply(ToProposer::Vote(VoteReply {
            granted: true,
            position,
        }))
    }

    fn refuse(refusal: Refusal) -> Outcome {
        Outcome::reply(ToProposer::Refused(refusal))
    }

    fn adopt(&mut self, rng: &mut ChaCha8Rng, adoption: consensus::acceptor::Adoption) -> Outcome {
        let mut to = adoption.truncate_to;
        let crash_between = rng.random_bool(0.05);
        if self.bug == Some(Bug::HistoryBeforeCut) && to < self.log.end() && crash_between {
            self.stored = adoption.state;
            return Outcome {
                crashed: true,
                ..Outcome::default()
            };
        }
        if self.bug == Some(Bug::CutBelowCommit) {
            to = to.min(self.stored.commit_lsn);
            let end = to.min(self.machine().flush_lsn());
            let machine = Acceptor::new(self.id, self.stored.clone(), end);
            self.machine = Some(machine);
        }
        if to < self.log.end() {
            self.log.cut(to);
            self.synced = self.synced.min(to);
            self.cuts += 1;
        }
        self.machine().truncated(to);
        if crash_between {
            return Outcome {
                crashed: true,
                ..Outcome::default()
            };
        }
        self.store(adoption.state);
        let reply = self.machine().elected_reply(None);
        Outcome {
            flush: self.begin_flush(),
            ..Outcome::reply(ToProposer::Elected(reply))
        }
    }

    fn begin_flush(&mut self) -> Option<Flush> {
        if self.flushing {
            return None;
        }
        let ticket = self.machine().begin_flush()?;
        self.flushing = true;
        Some(Flush {
            incarnation: self.incarnation,
            ticket,
            end: self.log.end(),
            cuts: self.cuts,
        })
    }

    /// An fsync is done: whom to tell what, and the next fsync if WAL came in meanwhile.
    pub fn flushed(&mut self, flush: Flush) -> (Option<(usize, ToProposer)>, Option<Flush>) {
        if flush.incarnation != self.incarnation || self.machine.is_none() {
            return (None, None);
        }
        self.flushing = false;
        if flush.cuts == self.cuts {
            self.synced = self.synced.max(flush.end);
        }
        self.machine().flushed(flush.ticket);
        let reply = ToProposer::Append(self.machine().append_reply());
        (
            self.writer.map(|writer| (writer, reply)),
            self.begin_flush(),
        )
    }

    /// Housekeeping: the commit LSN reaches the disk, and WAL that object storage made unneeded goes.
    pub fn tidy(&mut self, trim_below: Option<Lsn>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        if let Some(horizon) = trim_below {
            machine.raise_horizon(horizon);
            self.oldest = self.oldest.max(machine.durable().remote_consistent_lsn);
        }
        let snapshot = machine.snapshot();
        // A promise that was never stored stays out of the snapshot, too.
        let term = if self.bug == Some(Bug::VoteNotStored) {
            self.stored.term
        } else {
            snapshot.term
        };
        self.stored = Durable { term, ..snapshot };
    }

    /// Power is cut: memory goes, and of what was not fsynced a random, perhaps damaged piece stays.
    pub fn crash(&mut self, rng: &mut ChaCha8Rng) {
        self.machine = None;
        self.incarnation += 1;
        self.flushing = false;
        self.writer = None;
        let end = self.log.end();
        if self.synced < end {
            let kept = Lsn(rng.random_range(self.synced.0..=end.0));
            self.log.cut(kept);
            if kept > self.synced && rng.random_bool(0.5) {
                self.log
                    .damage(Lsn(rng.random_range(self.synced.0..kept.0)));
            }
        }
    }

    /// Starts from what the disk holds: the log ends with its last whole record.
    pub fn restart(&mut self) {
        // What lies below the horizon may be left over from a reset and is never used again.
        self.oldest = self.oldest.max(self.stored.remote_consistent_lsn);
        if self.log.end() < self.oldest {
            self.log.skip_to(self.oldest);
        }
        let boundary = self.log.boundary(self.stored.commit_lsn);
        self.log.cut(boundary);
        self.synced = boundary;
        self.cuts += 1;
        self.machine = Some(Acceptor::new(self.id, self.stored.clone(), boundary));
    }

    /// What this log puts into the store of finished WAL, if it is a voter's that runs.
    pub fn offload(&self) -> Option<Piece> {
        let machine = self.machine.as_ref()?;
        let end = match self.bug {
            Some(Bug::OffloadUncommitted) => machine.flush_lsn(),
            _ => machine.commit_lsn(),
        };
        if machine.role() != Some(Role::Voter) || end <= self.oldest {
            return None;
        }
        let mut log = self.log.clone();
        log.cut(end);
        Some(Piece {
            begin: self.oldest,
            history: machine.durable().history.written_before(end),
            log,
        })
    }

    /// Takes a piece of the store as the log, all at once; whether anything was taken.
    pub fn fill(&mut self, piece: &Piece) -> bool {
        let Some(machine) = &mut self.machine else {
            return false;
        };
        // What is not fsynced, or whole, comes from a proposer that is at work here.
        if machine.end_lsn() != machine.flush_lsn() {
            return false;
        }
        let end = piece.end();
        let Ok(Some(filling)) = machine.adopt(&piece.history, piece.begin, end) else {
            return false;
        };
        if filling.from > self.log.end() {
            self.log.skip_to(filling.from);
            self.oldest = filling.from;
        }
        self.log.push(piece.log.slice(filling.from, end));
        (self.synced, self.cuts) = (end, self.cuts + 1);
        self.stored = filling.state.clone();
        machine.install_adopted(filling.state);
        true
    }

    /// The disk is copied while nothing runs on it; what was written and not fsynced is not in the copy.
    pub fn back_up(&mut self) {
        let mut log = self.log.clone();
        log.cut(self.synced);
        self.copy = Some((self.stored.clone(), log, self.oldest));
    }

    /// The disk is replaced by an empty one, and the control plane, which has not noticed, founds the log again with
    /// its first members. A safekeeper that finds itself not among them waits to be made a learner.
    pub fn lose_disk(&mut self, founders: &Configuration, disk: DiskId) {
        let empty = if self.bug == Some(Bug::EmptyMemberVotes) {
            founders.clone()
        } else {
            self.id.disk = disk;
            Configuration::waiting(self.id)
        };
        self.replace_disk(Durable::new(self.id, START, empty), Log::default(), START);
    }

    /// On a new disk, the log is founded again where `start` is durable as pages; terms up to `won` were won before.
    pub fn found_again(&mut self, founders: &Configuration, start: Lsn, won: Term) {
        let founded = match founders.is_unlisted() || founders.role_of(self.id).is_some() {
            true => founders.clone(),
            false => Configuration::waiting(self.id),
        };
        let mut log = Log::default();
        log.skip_to(start);
        self.copy = None;
        self.replace_disk(Durable::new(self.id, start, founded), log, start);
        let forbidden = self.machine().forbid(won);
        if let Ok(Some(state)) = forbidden
            && self.machine().role() == Some(Role::Voter)
        {
            self.store(state);
        }
    }

    /// The disk is replaced by its backup, if there is one.
    pub fn restore(&mut self, disk: DiskId) -> bool {
        let Some((stored, log, oldest)) = self.copy.clone() else {
            return false;
        };
        if self.bug != Some(Bug::RestoredDiskVotes) {
            self.id.disk = disk;
        }
        self.replace_disk(stored, log, oldest);
        true
    }

    fn replace_disk(&mut self, stored: Durable, log: Log, oldest: Lsn) {
        self.machine = None;
        self.incarnation += 1;
        (self.flushing, self.writer) = (false, None);
        (self.stored, self.synced, self.log) = (stored, log.end(), log);
        self.oldest = oldest;
        self.restart();
    }
}
