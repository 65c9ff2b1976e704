//! Who may write a timeline's WAL, and which of it can never be lost: proposer and acceptor state machines.
//!
//! A compute's *proposer* asks the safekeepers (*acceptors*) for a vote on a new term. A majority of votes
//! names the *donor*, the voter with the most advanced log, and L, the donor's last fsynced record boundary.
//! The proposer then announces `(term, L)`: each acceptor truncates what it holds beyond the point where its
//! log and the proposer's agree, keeps the announced history, is brought up to L, and receives what the
//! compute writes from L on. The commit LSN is the position a majority has fsynced *under the current term*;
//! acknowledgements gathered under an older term never count.
//!
//! Who the acceptors are is part of the log's own state: a [`configuration`] of voters and learners with a generation,
//! stored by each of them and carried by every vote, announcement and append. The proposer of a term changes it one
//! member at a time. `docs/consensus.md` has the whole protocol, and why it holds.
//!
//! Pure: no clock, no network, no disk. Acceptor methods return what has to be made durable, and in which
//! order, before a reply may leave. Positions are record boundaries unless a name says otherwise.
//!
//! Invariants (checked over random schedules by the `sim` crate):
//! - a committed position is part of every later elected proposer's log;
//! - two acceptors whose histories share a term hold equal bytes up to the smaller end of that term;
//! - an acceptor never truncates below its commit LSN;
//! - majorities of any two configurations that can both still decide something have a voter in common;
//! - only a voter of the newest configuration it knows of votes, and only under its own identity: a log on a new disk, on
//!   a copied one or on one from the past has another;
//! - no term begins on a log that ends before WAL known to be committed, whoever knows it: a voter, an acceptor that
//!   refused its vote, or a reader of the log. Among acceptors that keep what they acknowledged this never happens;
//!   it is what an acceptor shows that has lost its disk, or has one from the past.
//!
//! What a crash leaves: [`durable::Durable`] as last stored, and the longest valid run of records in the
//! log, which is at least everything acknowledged as flushed.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod acceptor;
pub mod configuration;
pub mod durable;
pub mod election;
pub mod history;
pub mod message;
mod peers;
pub mod proposer;

pub use acceptor::{Acceptor, AdoptionRefusal, Filling, FlushTicket};
pub use configuration::{Change, ChangeError, Configuration, Generation, Member, MemberId, Role};
pub use durable::Durable;
pub use election::{CommitProof, Election, Fenced, LostWal, VoteOutcome};
pub use history::{TermHistory, TermStart};
pub use message::{
    AppendHeader, AppendReply, CandidateId, ConfigureRequest, ElectedReply, ElectedRequest,
    LogPosition, Refusal, ResetRequest, VoteReply, VoteRequest,
};
pub use proposer::Proposer;

/// Members that form a majority of `members`.
pub fn majority(members: usize) -> usize {
    members / 2 + 1
}
