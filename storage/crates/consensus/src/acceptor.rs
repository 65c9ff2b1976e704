//! The acceptor: one safekeeper's promise and log of one timeline.
//!
//! Methods that need something durable return it; the caller makes it so, in the stated order, calls the
//! matching `install`, and only then replies. Until `install` the acceptor behaves as before, which is what
//! a crash in between leaves.

mod adoption;

use std::cmp::Ordering;

use pg_types::{Lsn, Term};

use crate::configuration::{Configuration, Generation, MemberId, Role};
use crate::durable::Durable;
use crate::message::{
    AppendHeader, AppendReply, ConfigureRequest, ElectedReply, ElectedRequest, LogPosition,
    Refusal, ResetRequest, VoteReply, VoteRequest,
};

pub use adoption::{AdoptionRefusal, Filling};

/// Steps that adopt a new history: first cut the log durably to `truncate_to` (unless it is shorter), then
/// store `state`. The other way round, a crash between them would pass off old WAL as the new term's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adoption {
    /// Where the log is to end; never below what is committed here.
    pub truncate_to: Lsn,
    /// State to store after the cut: the announced history and configuration.
    pub state: Durable,
}

/// The part of an append that is new to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendPlan {
    /// Bytes to leave out at the beginning because the log holds them already.
    pub skip: u64,
    /// LSN of the first byte after those; the end of the log where any byte is new.
    pub write_at: Lsn,
}

/// What an fsync that begins now will have made durable when it succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushTicket {
    cuts: u64,
    lsn: Lsn,
}

/// One member's log, as positions: what was promised for it, and how far it reaches.
#[derive(Clone, Debug)]
pub struct Acceptor {
    /// This log's identity; never what the stored configuration says it is.
    member: MemberId,
    durable: Durable,
    /// How often the log was cut: an fsync that began before a cut says nothing about what came after.
    cuts: u64,
    /// End of the bytes in memory; can lie within a record.
    end_lsn: Lsn,
    write_lsn: Lsn,
    flush_lsn: Lsn,
    /// Highest commit LSN heard of under the current history; can lie beyond the log.
    announced_commit: Lsn,
}

impl Acceptor {
    /// After a start: `flush_lsn` is the end of the last valid record found in the log.
    pub fn new(member: MemberId, durable: Durable, flush_lsn: Lsn) -> Acceptor {
        durable.assert_configuration();
        assert!(
            durable.commit_lsn <= flush_lsn,
            "committed WAL is missing: commit {} flush {flush_lsn}",
            durable.commit_lsn
        );
        let announced_commit = durable.commit_lsn;
        Acceptor {
            member,
            durable,
            cuts: 0,
            end_lsn: flush_lsn,
            write_lsn: flush_lsn,
            flush_lsn,
            announced_commit,
        }
    }

    /// The state as it was last installed; its commit LSN can lag behind [`Acceptor::commit_lsn`].
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// The stored term: whatever a proposer of a lower one asks for is refused.
    pub fn term(&self) -> Term {
        self.durable.term
    }

    /// End of the bytes in memory; can lie within a record.
    pub fn end_lsn(&self) -> Lsn {
        self.end_lsn
    }

    /// Last record boundary in memory.
    pub fn write_lsn(&self) -> Lsn {
        self.write_lsn
    }

    /// Last record boundary that is fsynced.
    pub fn flush_lsn(&self) -> Lsn {
        self.flush_lsn
    }

    /// Highest position known to be committed, as far as it is fsynced here.
    pub fn commit_lsn(&self) -> Lsn {
        self.announced_commit.min(self.flush_lsn)
    }

    /// Highest commit LSN heard of under the current history; can lie beyond the log.
    pub fn announced_commit(&self) -> Lsn {
        self.announced_commit
    }

    /// Whether `term` is current and its history is the log's.
    pub fn follows(&self, term: Term) -> bool {
        self.durable.term == term
            && self
                .durable
                .history
                .last()
                .is_some_and(|last| last.term == term)
    }

    /// What a greeting and a vote say of this log.
    pub fn position(&self) -> LogPosition {
        LogPosition {
            member: self.member,
            configuration: self.durable.configuration.clone(),
            term: self.durable.term,
            history: self.durable.history.clone(),
            flush_lsn: self.flush_lsn,
            commit_lsn: self.commit_lsn(),
            remote_consistent_lsn: self.durable.remote_consistent_lsn,
        }
    }

    /// The state to store as of now, with the commit LSN as far as it is known.
    pub fn snapshot(&self) -> Durable {
        Durable {
            commit_lsn: self.commit_lsn(),
            ..self.durable.clone()
        }
    }

    /// The promise to store before [`Acceptor::vote_reply`] may say yes; `None` when there is none to make.
    pub fn vote(&self, request: &VoteRequest) -> Option<Durable> {
        (request.term > self.durable.term && self.may_vote(request)).then(|| Durable {
            term: request.term,
            voted_for: Some(request.candidate),
            configuration: request.configuration.clone(),
            ..self.snapshot()
        })
    }

    /// Whether the candidate goes by a configuration in which this log is a voter, and none that this acceptor knows
    /// to be replaced, or to contradict its own.
    fn may_vote(&self, request: &VoteRequest) -> bool {
        let (theirs, mine) = (&request.configuration, &self.durable.configuration);
        let known = theirs == mine || theirs.replaces(mine) && theirs.is_well_formed();
        let voter = self.role_in(theirs) == Some(Role::Voter);
        known && voter && theirs.generation.term < request.term
    }

    /// The role of this log in `configuration`. A log that names no members can't tell who has taken the place of a
    /// disk since it was copied: there, only what was made to be this one counts.
    fn role_in(&self, configuration: &Configuration) -> Option<Role> {
        if configuration.is_unlisted() {
            return (self.durable.member == self.member).then_some(Role::Voter);
        }
        configuration.role_of(self.member)
    }

    /// The role of this log in the newest configuration it knows; of a log that waits to be made a learner, that.
    pub fn role(&self) -> Option<Role> {
        self.role_in(&self.durable.configuration)
    }

    fn check_member(&self, configuration: &Configuration) -> Result<(), Refusal> {
        match self.role_in(configuration) {
            Some(_) => Ok(()),
            None => Err(Refusal::NotMember(self.member)),
        }
    }

    /// The answer to a vote request, after the promise that [`Acceptor::vote`] asks for was installed. A repeated
    /// request is granted again.
    pub fn vote_reply(&self, request: &VoteRequest) -> VoteReply {
        let granted = self.durable.term == request.term
            && self.durable.voted_for == Some(request.candidate)
            && self.durable.configuration == request.configuration;
        VoteReply {
            granted,
            position: self.position(),
        }
    }

    /// What adopting the winner's history takes.
    pub fn elected(&self, request: &ElectedRequest) -> Result<Adoption, Refusal> {
        let announced = request.history.last().ok_or(Refusal::Malformed)?;
        if !request.history.is_ordered() || !request.configuration.is_valid_in(announced.term) {
            return Err(Refusal::Malformed);
        }
        if announced.term < self.durable.term {
            return Err(Refusal::HigherTerm(self.durable.term));
        }
        self.check_newer(&request.configuration)?;
        self.check_member(&request.configuration)?;
        let commit = self.commit_lsn();
        let truncate_to = self
            .durable
            .history
            .common_point(self.end_lsn, &request.history)
            // The logs share no term. What is committed here is part of every log that may win, so a term that starts
            // before it belongs to another history.
            .unwrap_or(commit.min(announced.start_lsn));
        if truncate_to < commit {
            return Err(Refusal::Diverged {
                to: truncate_to,
                commit,
            });
        }
        let voted_for = self
            .durable
            .voted_for
            .filter(|_| announced.term == self.durable.term);
        let state = Durable {
            term: announced.term,
            voted_for,
            history: request.history.clone(),
            configuration: request.configuration.clone(),
            ..self.snapshot()
        };
        Ok(Adoption { truncate_to, state })
    }

    /// The answer once the announced history was installed. `prev_record_lsn`: start of the record that ends at the
    /// flush LSN; `None` when it is not known.
    pub fn elected_reply(&self, prev_record_lsn: Option<Lsn>) -> ElectedReply {
        ElectedReply {
            term: self.durable.term,
            generation: self.durable.configuration.generation,
            flush_lsn: self.flush_lsn,
            prev_record_lsn,
        }
    }

    /// The log now ends at `to` (no-op when it is shorter).
    pub fn truncated(&mut self, to: Lsn) {
        assert!(
            to >= self.commit_lsn(),
            "log cut to {to}, below the committed {}",
            self.commit_lsn()
        );
        if to >= self.end_lsn {
            return;
        }
        self.cuts += 1;
        self.end_lsn = to;
        self.write_lsn = self.write_lsn.min(to);
        self.flush_lsn = self.flush_lsn.min(to);
    }

    /// `state` is durable.
    pub fn install(&mut self, state: Durable) {
        assert!(
            state.term >= self.durable.term,
            "term went back to {}",
            state.term
        );
        assert!(
            state.configuration.generation >= self.durable.configuration.generation,
            "generation went back to {}",
            state.configuration.generation
        );
        state.assert_configuration();
        self.durable = state;
    }

    /// A configuration that is older than the stored one is refused, and so is another one of the same generation,
    /// which only a control plane that founded a log twice can bring about.
    fn check_newer(&self, theirs: &Configuration) -> Result<(), Refusal> {
        let mine = &self.durable.configuration;
        if theirs == mine || theirs.replaces(mine) {
            return Ok(());
        }
        Err(Refusal::OlderGeneration(Box::new(mine.clone())))
    }

    /// The state to store when the proposer of the current term changes the configuration. A member that the new one
    /// removes stores it, too, and votes no more.
    pub fn configure(&self, request: &ConfigureRequest) -> Result<Durable, Refusal> {
        self.check_term(request.term)?;
        if !request.configuration.is_valid_in(request.term) {
            return Err(Refusal::Malformed);
        }
        self.check_newer(&request.configuration)?;
        Ok(Durable {
            configuration: request.configuration.clone(),
            ..self.snapshot()
        })
    }

    /// Whether the WAL of an append may go into the log, and which part of it.
    pub fn append(&self, header: &AppendHeader, wal_bytes: u64) -> Result<AppendPlan, Refusal> {
        self.check_term(header.term)?;
        self.check_generation(header.generation)?;
        self.check_member(&self.durable.configuration)?;
        if header.end_lsn.checked_sub(header.begin_lsn) != Some(wal_bytes) {
            return Err(Refusal::Malformed);
        }
        let held = self
            .end_lsn
            .checked_sub(header.begin_lsn)
            .ok_or(Refusal::Gap {
                begin: header.begin_lsn,
                end: self.end_lsn,
            })?;
        let skip = held.min(wal_bytes);
        Ok(AppendPlan {
            skip,
            write_at: header.begin_lsn + skip,
        })
    }

    /// Refuses a `term` that is over, and one whose history this log does not follow.
    pub fn check_term(&self, term: Term) -> Result<(), Refusal> {
        if term < self.durable.term {
            return Err(Refusal::HigherTerm(self.durable.term));
        }
        if !self.follows(term) {
            return Err(Refusal::NotAnnounced(term));
        }
        Ok(())
    }

    fn check_generation(&self, sender: Generation) -> Result<(), Refusal> {
        let known = self.durable.configuration.generation;
        match sender.cmp(&known) {
            Ordering::Less => {
                let newer = self.durable.configuration.clone();
                Err(Refusal::OlderGeneration(Box::new(newer)))
            }
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(Refusal::UnknownGeneration { sender, known }),
        }
    }

    /// Bytes up to `end` are in memory, the last complete record of them ending at `boundary`.
    pub fn written(&mut self, end: Lsn, boundary: Lsn) {
        assert!(
            boundary <= end && end >= self.end_lsn,
            "log end moved from {} to {end}",
            self.end_lsn
        );
        self.end_lsn = end;
        self.write_lsn = self.write_lsn.max(boundary);
    }

    /// Taken before an fsync of the log begins; `None` when everything is fsynced.
    pub fn begin_flush(&self) -> Option<FlushTicket> {
        (self.flush_lsn < self.write_lsn).then_some(FlushTicket {
            cuts: self.cuts,
            lsn: self.write_lsn,
        })
    }

    /// The fsync that `ticket` was taken for succeeded.
    pub fn flushed(&mut self, ticket: FlushTicket) {
        if ticket.cuts == self.cuts {
            self.flush_lsn = self.flush_lsn.max(ticket.lsn);
        }
    }

    /// The proposer of the current term knows `commit_lsn` to be committed.
    pub fn announce_commit(&mut self, term: Term, commit_lsn: Lsn) {
        if self.follows(term) {
            self.announced_commit = self.announced_commit.max(commit_lsn);
        }
    }

    /// The positions as they are now: the answer to an append, to a change of the configuration and to a reset.
    pub fn append_reply(&self) -> AppendReply {
        AppendReply {
            term: self.durable.term,
            generation: self.durable.configuration.generation,
            write_lsn: self.write_lsn,
            flush_lsn: self.flush_lsn,
            commit_lsn: self.commit_lsn(),
        }
    }

    /// The state to store before the log is emptied to start again at `request.to`.
    pub fn reset(&self, request: &ResetRequest) -> Result<Durable, Refusal> {
        self.check_term(request.term)?;
        if request.to < self.end_lsn || request.to > request.commit_lsn {
            let (to, end, commit) = (request.to, self.end_lsn, request.commit_lsn);
            return Err(Refusal::BadReset { to, end, commit });
        }
        Ok(Durable {
            commit_lsn: request.to,
            remote_consistent_lsn: request.to,
            ..self.durable.clone()
        })
    }

    /// The log is empty and begins at the stored horizon.
    pub fn install_reset(&mut self, state: Durable) {
        let (lsn, cuts) = (state.commit_lsn, self.cuts + 1);
        *self = Acceptor {
            cuts,
            ..Acceptor::new(self.member, state, lsn)
        };
    }

    /// Raises the horizon; the caller stores [`Acceptor::snapshot`] before it deletes anything below.
    pub fn raise_horizon(&mut self, horizon: Lsn) {
        self.durable.remote_consistent_lsn = self
            .durable
            .remote_consistent_lsn
            .max(horizon.min(self.commit_lsn()));
    }
}

#[cfg(test)]
#[path = "acceptor_tests.rs"]
mod tests;
