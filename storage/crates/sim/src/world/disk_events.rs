//! What happens to disks, and what of them is in the store of finished WAL.

use consensus::{Configuration, MemberId};
use rand::RngExt as _;

use super::World;
use crate::store::Piece;
use crate::{Bug, disks};

impl World {
    /// A disk is lost, or put back from an old copy.
    pub(super) fn replace_disk(&mut self, acceptor: usize) {
        self.disks += 1;
        let number = self.disks;
        let disk = disks::disk(number);
        let restored = self.rng.random_bool(0.5) && self.acceptors[acceptor].restore(disk);
        if restored {
            self.report.restored_disks += 1;
        } else {
            self.acceptors[acceptor].lose_disk(&self.founders, disk);
            self.report.lost_disks += 1;
        }
        self.checker.disk_lost();
        let how = if restored {
            "put back from a copy"
        } else {
            "lost"
        };
        self.trace.note(self.now, || {
            format!("the disk of a{acceptor} is {how}, now {acceptor}.{number}")
        });
    }

    /// A voter puts what is committed on its log into the store.
    pub(super) fn offload(&mut self, acceptor: usize) {
        let Some(piece) = self.acceptors[acceptor].offload() else {
            return;
        };
        self.report.offloads += 1;
        let end = piece.end();
        self.trace
            .note(self.now, || format!("a{acceptor} offloads up to {end}"));
        self.store.put(piece);
    }

    /// A log is filled from the store, if it is one that takes anything.
    pub(super) fn fill(&mut self, acceptor: usize) -> Result<(), String> {
        let Some(piece) = self.store.newest() else {
            return Ok(());
        };
        if self.acceptors[acceptor].machine.is_none() {
            return Ok(());
        }
        if self.rng.random_bool(0.1) {
            // While it is gathered nothing of it is the log's.
            self.crash(acceptor);
            return Ok(());
        }
        if !self.acceptors[acceptor].fill(piece) {
            return Ok(());
        }
        self.report.fills += 1;
        let end = piece.end();
        self.trace
            .note(self.now, || format!("a{acceptor} is filled up to {end}"));
        self.checker
            .acceptor(&self.acceptors[acceptor])
            .map_err(|what| format!("acceptor {acceptor}, filled: {what}"))
    }

    /// All disks are lost. New logs are founded where the pageserver is, told of the terms that were won, and a majority of
    /// them, or more, is filled from the store. What was committed beyond that is lost.
    pub(super) fn lose_all(&mut self) -> Result<(), String> {
        // Nobody trims, or begins a log, beyond what is durable as pages.
        let oldest = self.acceptors.iter().map(|acceptor| acceptor.oldest).max();
        let start = oldest.max(self.store.begin()).ok_or("nobody is there")?;
        let nodes: Vec<u64> = self.founders.voters().map(|voter| voter.node).collect();
        for acceptor in &mut self.acceptors {
            self.disks += 1;
            acceptor.id.disk = disks::disk(self.disks);
            self.checker.disk_lost();
        }
        let founders: Vec<MemberId> = self
            .acceptors
            .iter()
            .map(|acceptor| acceptor.id)
            .filter(|id| nodes.contains(&id.node))
            .collect();
        if !self.founders.is_unlisted() {
            self.founders =
                Configuration::founding(&founders).map_err(|error| error.to_string())?;
        }
        let piece = self.store.newest().cloned();
        let piece = piece.filter(|piece| piece.end() > start);
        let end = piece.as_ref().map_or(start, Piece::end);
        self.checker.lost_behind(end);
        let won = self.checker.highest_won();
        let mut to_fill = consensus::majority(match self.founders.is_unlisted() {
            true => self.acceptors.len(),
            false => founders.len(),
        });
        if self.bug == Some(Bug::FillMinority) {
            to_fill = 1;
        }
        for acceptor in &mut self.acceptors {
            acceptor.found_again(&self.founders, start, won);
            let votes = self.founders.is_unlisted() || founders.contains(&acceptor.id);
            let too_few = self.bug == Some(Bug::FillMinority);
            let fill = to_fill > 0 || !too_few && self.rng.random_bool(0.5);
            if let Some(piece) = piece.as_ref().filter(|_| votes && fill) {
                to_fill = to_fill.saturating_sub(1);
                if !acceptor.fill(piece) {
                    return Err(format!("{} was not filled", acceptor.id));
                }
            }
            self.checker.acceptor(acceptor)?;
        }
        self.report.lost_wholly += 1;
        self.trace.note(self.now, || {
            format!("all disks are lost; {start} to {end} is back")
        });
        Ok(())
    }
}
