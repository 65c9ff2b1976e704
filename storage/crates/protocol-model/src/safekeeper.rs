//! A safekeeper of the model: the real acceptor over a disk that forgets what was not synced.

use std::hash::{Hash, Hasher};

use consensus::acceptor::Adoption;
use consensus::{
    Acceptor, AppendHeader, AppendReply, Configuration, ConfigureRequest, Durable, ElectedRequest,
    FlushTicket, MemberId, Role, VoteReply, VoteRequest,
};
use pg_types::Lsn;

use crate::Bug;
use crate::log::{Log, Record, START};

/// An fsync under way.
#[derive(Clone)]
struct Flush {
    ticket: FlushTicket,
    end: Lsn,
    /// Whether the log was cut since it began.
    cut: bool,
}

/// A safekeeper: the acceptor's state machine, what its disk holds, and what of its log is synced.
#[derive(Clone)]
pub struct Safekeeper {
    /// The member whose log this is now.
    pub id: MemberId,
    /// The real state machine; a crash is followed by a start at once.
    pub machine: Acceptor,
    /// The records, synced or not.
    pub log: Log,
    stored: Durable,
    synced: Lsn,
    flushing: Option<Flush>,
    /// What a copy of the disk holds.
    copy: Option<(Durable, Log)>,
    bug: Option<Bug>,
}

/// All that can have an influence on what happens later. Left out is how often the log was cut: it only matters to an
/// fsync under way, for which `cut` says it.
impl Hash for Safekeeper {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let machine = &self.machine;
        (self.id, machine.durable(), &self.log).hash(hasher);
        (machine.end_lsn(), machine.write_lsn(), machine.flush_lsn()).hash(hasher);
        (machine.announced_commit(), self.synced).hash(hasher);
        let flushing = self.flushing.as_ref();
        (&self.stored, flushing.map(|it| (it.end, it.cut))).hash(hasher);
        self.copy.hash(hasher);
    }
}

impl Safekeeper {
    /// A safekeeper with an empty log, founded with this configuration.
    pub fn new(id: MemberId, configuration: Configuration, bug: Option<Bug>) -> Safekeeper {
        let stored = Durable::new(id, START, configuration);
        Safekeeper {
            id,
            machine: Acceptor::new(id, stored.clone(), START),
            log: Log::default(),
            stored,
            synced: START,
            flushing: None,
            copy: None,
            bug,
        }
    }

    /// The newest configuration that the acceptor goes by; a planted bug can keep it from the disk.
    pub fn configuration(&self) -> &Configuration {
        &self.machine.durable().configuration
    }

    /// What the disk holds of the acceptor's promises.
    pub fn stored(&self) -> &Durable {
        &self.stored
    }

    /// Whether there is a copy of the disk that can be put back.
    pub fn has_copy(&self) -> bool {
        self.copy.is_some()
    }

    fn store(&mut self, state: Durable) {
        self.stored = state.clone();
        self.machine.install(state);
    }

    /// Takes a vote request, and stores the promise if there is one to make.
    pub fn vote(&mut self, request: &VoteRequest) {
        let request = self.as_asked(request);
        if let Some(promise) = self.machine.vote(&request) {
            if self.bug == Some(Bug::VoteNotStored) {
                self.machine.install(promise);
            } else {
                self.store(promise);
            }
        }
    }

    /// The answer to a vote request that was taken.
    pub fn vote_reply(&self, request: &VoteRequest) -> VoteReply {
        let role = self.configuration().role_of(self.id);
        if self.bug == Some(Bug::LearnerVotes) && role == Some(Role::Learner) {
            let mut position = self.machine.position();
            position.term = request.term;
            position.configuration = request.configuration.clone();
            return VoteReply {
                granted: true,
                position,
            };
        }
        let mut reply = self.machine.vote_reply(&self.as_asked(request));
        if self.bug == Some(Bug::VoteUnderOlder) && reply.granted {
            reply.position.configuration = request.configuration.clone();
        }
        reply
    }

    /// The planted bug has the acceptor overlook that the candidate's configuration is older.
    fn as_asked(&self, request: &VoteRequest) -> VoteRequest {
        let mine = self.configuration();
        let older = mine.replaces(&request.configuration);
        match self.bug {
            Some(Bug::VoteUnderOlder) if older => VoteRequest {
                configuration: mine.clone(),
                ..request.clone()
            },
            _ => request.clone(),
        }
    }

    /// Adopts the winner's history, or dies in the middle of it. Returns false when it was refused.
    pub fn elected(&mut self, request: &ElectedRequest, dies: bool) -> bool {
        let Ok(adoption) = self.machine.elected(request) else {
            return false;
        };
        self.adopt(adoption, dies);
        true
    }

    fn adopt(&mut self, adoption: Adoption, dies: bool) {
        if dies && self.bug == Some(Bug::HistoryBeforeCut) {
            self.stored = adoption.state;
            return self.crash(true);
        }
        let mut to = adoption.truncate_to;
        if self.bug == Some(Bug::CutBelowCommit) {
            to = to.min(self.stored.commit_lsn);
            let end = to.min(self.machine.flush_lsn());
            self.machine = Acceptor::new(self.id, self.stored.clone(), end);
        }
        if to < self.log.end() {
            self.log.cut(to);
            self.synced = self.synced.min(to);
            self.flushing.iter_mut().for_each(|it| it.cut = true);
        }
        self.machine.truncated(to);
        if dies {
            return self.crash(true);
        }
        self.store(adoption.state);
    }

    /// Stores a change of the members; false where the acceptor refuses it.
    pub fn configure(&mut self, request: &ConfigureRequest) -> bool {
        let Ok(state) = self.machine.configure(request) else {
            return false;
        };
        if self.bug == Some(Bug::ConfigurationNotStored) {
            self.machine.install(state);
        } else {
            self.store(state);
        }
        true
    }

    /// Takes WAL into memory, and begins to sync it unless an fsync is under way.
    pub fn append(&mut self, header: &AppendHeader, wal: &[Record]) -> bool {
        let mut header = *header;
        if self.bug == Some(Bug::AcceptOldTerm) && header.term < self.machine.term() {
            header.term = self.machine.term();
            header.generation = self.configuration().generation;
        }
        if self.bug == Some(Bug::TwoGenerations) {
            header.generation = self.configuration().generation;
        }
        let Ok(plan) = self.machine.append(&header, wal.len() as u64) else {
            return false;
        };
        self.log.extend(&wal[plan.skip as usize..]);
        let end = self.log.end();
        self.machine.written(end, end);
        self.machine.announce_commit(header.term, header.commit_lsn);
        self.begin_flush();
        true
    }

    /// The positions as the acceptor reports them.
    pub fn append_reply(&self) -> AppendReply {
        let mut reply = self.machine.append_reply();
        if self.bug == Some(Bug::AckBeforeFsync) {
            reply.flush_lsn = reply.write_lsn;
        }
        reply
    }

    fn begin_flush(&mut self) {
        if self.flushing.is_none()
            && let Some(ticket) = self.machine.begin_flush()
        {
            self.flushing = Some(Flush {
                ticket,
                end: self.log.end(),
                cut: false,
            });
        }
    }

    /// The fsync under way is done, and the next one begins if WAL came in meanwhile.
    pub fn flushed(&mut self) -> bool {
        let Some(flush) = self.flushing.take() else {
            return false;
        };
        if !flush.cut {
            self.synced = self.synced.max(flush.end);
        }
        self.machine.flushed(flush.ticket);
        self.begin_flush();
        true
    }

    /// Power is cut, and it starts again from its disk. Of what was not synced, all is kept or nothing.
    pub fn crash(&mut self, kept: bool) {
        if !kept {
            self.log.cut(self.synced);
        }
        self.start();
    }

    fn start(&mut self) {
        self.flushing = None;
        self.synced = self.log.end();
        self.machine = Acceptor::new(self.id, self.stored.clone(), self.log.end());
    }

    /// Whether an fsync is under way.
    pub fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Whether the log has records that no fsync has covered.
    pub fn has_unsynced(&self) -> bool {
        self.synced < self.log.end()
    }

    /// The disk is replaced by an empty one, and the control plane, which has not noticed, founds the log there once
    /// more. The safekeeper finds itself not among the members that it is founded with, and waits to be made a learner.
    pub fn lose_disk(&mut self, founders: &Configuration, new: MemberId) {
        let configuration = if self.bug == Some(Bug::EmptyMemberVotes) {
            founders.clone()
        } else {
            self.id = new;
            Configuration::waiting(new)
        };
        let copy = self.copy.take();
        *self = Safekeeper::new(self.id, configuration, self.bug);
        self.copy = copy;
    }

    /// The disk is copied while nothing runs on it; what was written and not synced is not in the copy.
    pub fn back_up(&mut self) {
        self.copy = Some((self.stored.clone(), self.log.prefix(self.synced)));
    }

    /// The disk is replaced by its copy, if there is one.
    pub fn restore(&mut self, new: MemberId) -> bool {
        let Some((stored, log)) = self.copy.take() else {
            return false;
        };
        if self.bug != Some(Bug::RestoredDiskVotes) {
            self.id = new;
        }
        (self.stored, self.log) = (stored, log);
        self.start();
        true
    }
}
