//! What can happen next.

use crate::model::ProtocolModel;
use crate::scenario::Plan;
use crate::state::{Faults, State};

/// What one of them tells the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The safekeeper is asked for its vote, and replies.
    Vote,
    /// The winner's history.
    History,
    /// The newest change of members.
    Change,
    /// The next record.
    Record,
    /// What a safekeeper has of the compute's log.
    Reply,
}

/// Numbers are those of computes and safekeepers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A safekeeper shows its position to a compute.
    Greet {
        /// Number of the compute.
        compute: usize,
        /// Number of the safekeeper.
        safekeeper: usize,
    },
    /// The safekeepers of the set greet, and the compute asks for votes in a new term.
    Campaign {
        /// Number of the compute.
        compute: usize,
        /// The set of safekeepers: a bit for each number.
        greeters: u32,
    },
    /// The safekeepers of the set greet and vote, and the compute hears of it, before anything else happens.
    Elect {
        /// Number of the compute.
        compute: usize,
        /// The set of safekeepers: a bit for each number.
        voters: u32,
    },
    /// A safekeeper votes, and the reply is lost.
    VoteUnheard {
        /// Number of the compute.
        compute: usize,
        /// Number of the safekeeper.
        safekeeper: usize,
    },
    /// A message is sent; it arrives at once, or late.
    Tell {
        /// The kind of the message.
        what: What,
        /// Number of the compute, which sends the message, or gets it where it is a vote or a reply.
        compute: usize,
        /// Number of the safekeeper.
        safekeeper: usize,
        /// Whether other things happen before the message, or the reply to a request for a vote, arrives.
        late: bool,
    },
    /// A late message arrives.
    Arrive {
        /// Place of the message in [`State::late`].
        message: usize,
    },
    /// The compute hears what a safekeeper has of its log.
    Hear {
        /// Number of the compute.
        compute: usize,
        /// Number of the safekeeper.
        safekeeper: usize,
    },
    /// A safekeeper dies while it adopts the winner's history.
    DieAdopting {
        /// Number of the compute.
        compute: usize,
        /// Number of the safekeeper.
        safekeeper: usize,
    },
    /// A winner makes a change of the members.
    Change {
        /// Number of the compute.
        compute: usize,
        /// Place of the change in [`Plan::changes`].
        change: usize,
    },
    /// A winner writes a record.
    Write {
        /// Number of the compute.
        compute: usize,
    },
    /// An fsync is done.
    Flush {
        /// Number of the safekeeper.
        safekeeper: usize,
    },
    /// Power is cut, and the safekeeper starts again.
    Crash {
        /// Number of the safekeeper.
        safekeeper: usize,
        /// Whether the records that were not synced are all kept; otherwise none is.
        kept: bool,
    },
    /// A safekeeper's disk is replaced by an empty one, and the log is founded there once more.
    LoseDisk {
        /// Number of the safekeeper.
        safekeeper: usize,
    },
    /// A safekeeper's disk is copied.
    CopyDisk {
        /// Number of the safekeeper.
        safekeeper: usize,
    },
    /// A safekeeper's disk is replaced by its copy.
    RestoreDisk {
        /// Number of the safekeeper.
        safekeeper: usize,
    },
}

impl ProtocolModel {
    /// All that might happen in `state`; what turns out to change nothing is dropped later.
    pub fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (compute, plan) in self.scenario.computes.iter().enumerate() {
            if compute > 0 && state.computes[compute - 1].campaigns == 0 {
                break;
            }
            if state.computes[compute].has_won() {
                self.steps_of_winner(state, compute, plan, steps);
            } else {
                self.steps_of_candidate(state, compute, plan, steps);
            }
        }
        steps.extend((0..state.late.len()).map(|message| Step::Arrive { message }));
        self.steps_of_disks(state, steps);
    }

    fn steps_of_candidate(
        &self,
        state: &State,
        compute: usize,
        plan: &Plan,
        steps: &mut Vec<Step>,
    ) {
        let candidate = &state.computes[compute];
        if candidate.campaigns < plan.campaigns {
            let all = plan
                .addresses
                .iter()
                .fold(0_u32, |set, node| set | 1 << node);
            if !plan.slow_votes {
                let first = compute == 0 && candidate.campaigns == 0 && self.scenario.alike;
                let chosen = |set: &u32| !first || (set & (set + 1)) == 0;
                let voters = (1..all + 1).filter(|set| set & !all == 0).filter(chosen);
                steps.extend(voters.map(|voters| Step::Elect { compute, voters }));
                return;
            }
            let greeters = if self.scenario.greets {
                0..1
            } else {
                0..all + 1
            };
            let greeters = greeters.filter(|set| set & !all == 0);
            steps.extend(greeters.map(|greeters| Step::Campaign { compute, greeters }));
        }
        for safekeeper in plan.addresses.iter().copied() {
            if self.scenario.greets {
                steps.push(Step::Greet {
                    compute,
                    safekeeper,
                });
            }
            if candidate.request.is_some() {
                steps.push(Step::VoteUnheard {
                    compute,
                    safekeeper,
                });
                self.deliver(state, What::Vote, compute, safekeeper, steps);
            }
        }
    }

    /// The message, at once and, where the scenario has that, late.
    fn deliver(
        &self,
        state: &State,
        what: What,
        compute: usize,
        safekeeper: usize,
        steps: &mut Vec<Step>,
    ) {
        let late = state.faults.late > 0 && self.scenario.late_kinds.contains(&what);
        let at_once = what != What::Reply;
        let ways = [(false, at_once), (true, late)];
        let ways = ways.into_iter().filter(|(_, may)| *may);
        steps.extend(ways.map(|(late, _)| Step::Tell {
            what,
            compute,
            safekeeper,
            late,
        }));
    }

    fn steps_of_winner(&self, state: &State, compute: usize, plan: &Plan, steps: &mut Vec<Step>) {
        let winner = &state.computes[compute];
        if winner.writes < plan.writes && winner.log.records() < self.scenario.records {
            steps.push(Step::Write { compute });
        }
        if winner.changes < plan.most_changes {
            let changes = 0..plan.changes.len();
            steps.extend(changes.map(|change| Step::Change { compute, change }));
        }
        for safekeeper in plan.addresses.iter().copied() {
            for what in [What::History, What::Change, What::Record, What::Reply] {
                self.deliver(state, what, compute, safekeeper, steps);
            }
            if self.scenario.lost_replies {
                steps.push(Step::Hear {
                    compute,
                    safekeeper,
                });
            }
            if state.faults.crashes > 0 && self.scenario.crashing.contains(&safekeeper) {
                steps.push(Step::DieAdopting {
                    compute,
                    safekeeper,
                });
            }
            if self.greets_again() {
                steps.push(Step::Greet {
                    compute,
                    safekeeper,
                });
            }
        }
    }

    fn steps_of_disks(&self, state: &State, steps: &mut Vec<Step>) {
        let Faults {
            crashes,
            lost_disks,
            copies,
            ..
        } = state.faults;
        for (safekeeper, it) in state.safekeepers.iter().enumerate() {
            if self.scenario.slow_fsync && it.is_flushing() {
                steps.push(Step::Flush { safekeeper });
            }
            if crashes > 0 && self.scenario.crashing.contains(&safekeeper) {
                steps.push(Step::Crash {
                    safekeeper,
                    kept: false,
                });
                if it.has_unsynced() {
                    steps.push(Step::Crash {
                        safekeeper,
                        kept: true,
                    });
                }
            }
            if lost_disks > 0 && self.scenario.losing.contains(&safekeeper) {
                steps.push(Step::LoseDisk { safekeeper });
            }
            if copies > 0 && self.scenario.copying.contains(&safekeeper) {
                steps.push(Step::CopyDisk { safekeeper });
            }
            if it.has_copy() {
                steps.push(Step::RestoreDisk { safekeeper });
            }
        }
    }
}
