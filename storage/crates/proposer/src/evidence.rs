//! Evidence that the log a proposer stands on is not the only one: the compute stops, and changes nothing.
//!
//! Among safekeepers that keep what they acknowledged none of this happens. It does when one has lost its disk, has
//! got an older one back, or was made anew beside a log that had begun without it.

use consensus::{Configuration, LogPosition, LostWal, Refusal};

use crate::Fatal;
use crate::core::Shared;

impl Shared {
    /// A majority voted, and the best of its logs lacks committed WAL. Nothing was announced.
    pub fn wal_is_lost(&self, lost: &LostWal) {
        let proof = match lost.proof.acceptor {
            Some(acceptor) => format!("safekeeper {} has committed", self.address(acceptor)),
            None => "the pageserver has ingested".to_owned(),
        };
        let detail = format!(
            "of the safekeepers of timeline {} that voted, {} has the best log; it ends at {}, but {proof} up to {}",
            self.config.timeline,
            self.address(lost.donor),
            lost.end_lsn,
            lost.proof.lsn
        );
        self.fail(Fatal::LostWal { detail });
    }

    /// A safekeeper that was away greets. Fails, and ends this proposer, when it has committed what this term's log
    /// does not hold.
    pub fn check_history(&self, index: usize, position: &LogPosition) -> Result<(), String> {
        let held = self.core(|core| {
            core.proposer
                .contradicted_by(position)
                .then(|| (core.proposer.term(), core.proposer.commit_lsn()))
        });
        let Some((term, commit_lsn)) = held else {
            return Ok(());
        };
        let detail = format!(
            "safekeeper {} has committed up to {} under term {}, and the log of term {term} is committed up to {commit_lsn}",
            self.address(index),
            position.commit_lsn,
            position.history.term_at(position.commit_lsn)
        );
        self.fail(Fatal::Diverged {
            detail: detail.clone(),
        });
        Err(detail)
    }

    /// A safekeeper has stored a newer configuration than the one it was addressed under. One that a later term has
    /// made ends this proposer; one of its own has only overtaken the message that was refused.
    pub fn generation_replaced(&self, index: usize, newer: &Configuration) {
        let generation = newer.generation;
        tracing::info!(timeline = %self.config.timeline, safekeeper = self.address(index), %generation, "a newer generation of members is known there");
        let elected = self.core(|core| core.proposer.election().is_some());
        let term = self.core(|core| core.proposer.term());
        if elected && generation.term > term {
            self.fenced(generation.term);
        }
    }

    /// A safekeeper refused this term's history, because adopting it would cut off what it has committed.
    pub fn diverged(&self, index: usize, refusal: &Refusal) {
        let detail = format!("safekeeper {} {refusal}", self.address(index));
        self.fail(Fatal::Diverged { detail });
    }
}
