//! What must hold, whatever happens.

use consensus::MemberId;
use pg_types::{Lsn, Term};

use crate::acceptor::SimAcceptor;
use crate::log::{Log, START};
use crate::proposer::SimProposer;

/// A promise was broken; `seed` reproduces it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("seed {seed}, time {time}: {what}")]
pub struct Violation {
    /// Seed of the run.
    pub seed: u64,
    /// When it was noticed, virtual milliseconds.
    pub time: u64,
    /// For people: which promise, and of whom.
    pub what: String,
}

/// Everything that was ever committed, in the one order it may have.
#[derive(Default)]
pub struct Checker {
    committed: Log,
    /// The highest term that has won an election.
    won: Term,
    /// The highest term that has committed anything.
    term: Term,
    lost_disks: usize,
}

impl Checker {
    /// End of what is committed.
    pub fn committed_end(&self) -> Lsn {
        self.committed.end()
    }

    /// The highest term that has won an election; 0 before the first one.
    pub fn highest_won(&self) -> Term {
        self.won
    }

    /// A disk is gone; what it had acknowledged was held all the same.
    pub fn disk_lost(&mut self) {
        self.lost_disks += 1;
    }

    /// Every disk is gone, and with them what was committed behind `end`.
    pub fn lost_behind(&mut self, end: Lsn) {
        self.committed.cut(end.min(self.committed.end()));
    }

    /// A proposer won: its log must begin behind everything committed, and its donor must hold all of that.
    pub fn won(&mut self, proposer: &SimProposer, acceptors: &[SimAcceptor]) -> Result<(), String> {
        let election = proposer
            .machine
            .election()
            .ok_or("won without an election")?;
        let committed = self.committed.end();
        self.won = self.won.max(election.term);
        // The last vote can arrive when a later term has long been at work; nobody will follow this one.
        if election.term < self.term {
            return Ok(());
        }
        if election.start_lsn < committed {
            return Err(format!(
                "term {} starts at {}, before the committed {committed}",
                election.term, election.start_lsn
            ));
        }
        self.agrees(&acceptors[election.donor], committed)
            .map_err(|error| {
                format!(
                    "donor {} of term {}: {error}",
                    election.donor, election.term
                )
            })
    }

    /// A proposer reports its commit LSN.
    pub fn committed(
        &mut self,
        proposer: &SimProposer,
        acceptors: &[SimAcceptor],
    ) -> Result<(), String> {
        let term = proposer.machine.term();
        self.term = self.term.max(term);
        let (old, new) = (self.committed.end(), proposer.commit_lsn());
        let (from, overlap) = (proposer.oldest, old.min(new));
        if old < from {
            return Err(format!(
                "term {term} knows nothing of {old}..{from}, which was never committed"
            ));
        }
        if from < overlap
            && self.committed.slice(from, overlap) != proposer.log.slice(from, overlap)
        {
            return Err(format!(
                "term {term} committed other bytes within {from}..{overlap}"
            ));
        }
        if old < new {
            self.committed.push(proposer.log.slice(old, new));
        }
        let configuration = proposer.machine.configuration();
        let holds = |id: &MemberId| match acceptors.iter().find(|acceptor| acceptor.id == *id) {
            Some(acceptor) => acceptor.log.end() >= new && self.agrees(acceptor, new).is_ok(),
            // Its disk was lost after it had answered.
            None => true,
        };
        let holders = if configuration.is_unlisted() {
            acceptors
                .iter()
                .filter(|acceptor| holds(&acceptor.id))
                .count()
                + self.lost_disks
        } else {
            configuration.voters().filter(holds).count()
        };
        let needed = match configuration.is_unlisted() {
            true => consensus::majority(acceptors.len()),
            false => configuration.quorum(),
        };
        if holders < needed {
            return Err(format!(
                "{new} committed by term {term} but held by {holders} of {configuration:?}"
            ));
        }
        Ok(())
    }

    /// An acceptor's log must equal the committed WAL up to its own commit LSN.
    pub fn acceptor(&self, acceptor: &SimAcceptor) -> Result<(), String> {
        let Some(machine) = &acceptor.machine else {
            return Ok(());
        };
        let commit = machine.commit_lsn();
        if commit > self.committed.end() {
            return Err(format!(
                "an acceptor believes {commit} committed, only {} is",
                self.committed.end()
            ));
        }
        self.agrees(acceptor, commit)
    }

    fn agrees(&self, acceptor: &SimAcceptor, upto: Lsn) -> Result<(), String> {
        let from = acceptor.oldest.max(START);
        if from >= upto {
            return Ok(());
        }
        if acceptor.log.end() < upto {
            return Err(format!(
                "its log ends at {}, before {upto}",
                acceptor.log.end()
            ));
        }
        if acceptor.log.slice(from, upto) != self.committed.slice(from, upto) {
            return Err(format!(
                "its log differs from the committed WAL before {upto}"
            ));
        }
        Ok(())
    }
}
