//! The system as a state machine for the checker: the real machines, moved by [`Step`]s.
//!
//! The checker's trait names the steps and the properties of a model, and both speak of the model and its scenario: these
//! four files are one thing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pg_types::Lsn;
use stateright::{Model, Property};

use crate::Bug;
use crate::compute::Compute;
use crate::log::member;
use crate::safekeeper::Safekeeper;
use crate::scenario::Scenario;
use crate::state::{Faults, Part, State};
use crate::step::Step;

/// A scenario as the checker takes it: the first state, the steps from each state, and the properties.
pub struct ProtocolModel {
    /// What may happen, and how often.
    pub scenario: Scenario,
    /// States that are reached later are left out.
    pub until: Option<Instant>,
    /// Whether any was.
    pub cut_off: Arc<AtomicBool>,
}

/// A step that could not happen or changed nothing.
pub struct Nothing;

type Happened = Result<(), Nothing>;

fn if_so(happened: bool) -> Happened {
    if happened { Ok(()) } else { Err(Nothing) }
}

impl ProtocolModel {
    /// The model of a scenario, without a limit of time.
    pub fn new(scenario: Scenario) -> ProtocolModel {
        ProtocolModel {
            scenario,
            until: None,
            cut_off: Arc::default(),
        }
    }

    /// The planted bug counts what a greeting says, so that greetings matter after the election, too.
    pub fn greets_again(&self) -> bool {
        self.scenario.bug == Some(Bug::CountBeforeAdoption)
    }

    fn first_state(&self) -> State {
        let Scenario { begins, bug, .. } = &self.scenario;
        let safekeeper = |(node, configuration): (usize, &consensus::Configuration)| {
            Part::new(Safekeeper::new(
                member(node, 1),
                configuration.clone(),
                *bug,
            ))
        };
        let compute = |number| Part::new(Compute::new(number, begins.len(), *bug));
        State {
            safekeepers: begins.iter().enumerate().map(safekeeper).collect(),
            computes: (0..self.scenario.computes.len()).map(compute).collect(),
            late: Vec::new(),
            faults: Faults {
                crashes: self.scenario.crashes,
                lost_disks: self.scenario.lost_disks,
                copies: self.scenario.copies,
                late: self.scenario.late,
            },
            failure: None,
        }
    }

    fn happen(&self, state: &mut State, step: Step) -> Happened {
        match step {
            Step::Greet {
                compute,
                safekeeper,
            } => {
                let position = state.safekeepers[safekeeper].machine.position();
                state.computes[compute].change(|it| it.greeted(safekeeper, position));
                Ok(())
            }
            Step::Elect { compute, voters } => self.elect(state, compute, voters),
            Step::Campaign { compute, greeters } => self.campaign(state, compute, greeters),
            Step::VoteUnheard {
                compute,
                safekeeper,
            } => self.asked_vote(state, compute, safekeeper).map(|_| ()),
            Step::Tell {
                what,
                compute,
                safekeeper,
                late,
            } => {
                let message = self.message(state, what, compute, safekeeper)?;
                if late {
                    state.faults.late -= 1;
                    state.put_late(message);
                    return Ok(());
                }
                if_so(self.arrive(state, &message))
            }
            Step::Arrive { message } => {
                let message = state.late[message].clone();
                if_so(self.arrive(state, &message))
            }
            Step::Hear {
                compute,
                safekeeper,
            } => self.hear(state, compute, safekeeper),
            Step::DieAdopting {
                compute,
                safekeeper,
            } => self.die_adopting(state, compute, safekeeper),
            Step::Change { compute, change } => {
                let change = &self.scenario.computes[compute].changes[change];
                if_so(state.computes[compute].change(|it| it.change(change)))
            }
            Step::Write { compute } => if_so(state.computes[compute].change(Compute::write)),
            Step::Flush { .. }
            | Step::Crash { .. }
            | Step::LoseDisk { .. }
            | Step::CopyDisk { .. }
            | Step::RestoreDisk { .. } => self.happen_to_disk(state, step),
        }
    }

    fn happen_to_disk(&self, state: &mut State, step: Step) -> Happened {
        let new = |node: usize| member(node, 2);
        match step {
            Step::Flush { safekeeper } => {
                if_so(state.safekeepers[safekeeper].change(Safekeeper::flushed))
            }
            Step::Crash { safekeeper, kept } => {
                state.faults.crashes -= 1;
                state.safekeepers[safekeeper].change(|it| it.crash(kept));
                Ok(())
            }
            Step::LoseDisk { safekeeper } => {
                state.faults.lost_disks -= 1;
                let founders = &self.scenario.begins[safekeeper];
                state.safekeepers[safekeeper].change(|it| it.lose_disk(founders, new(safekeeper)));
                Ok(())
            }
            Step::CopyDisk { safekeeper } => {
                state.faults.copies -= 1;
                state.safekeepers[safekeeper].change(Safekeeper::back_up);
                Ok(())
            }
            Step::RestoreDisk { safekeeper } => {
                if_so(state.safekeepers[safekeeper].change(|it| it.restore(new(safekeeper))))
            }
            _ => Err(Nothing),
        }
    }
}

/// Notes what went back in `state`, compared with `before`, that never may.
fn note_what_went_back(before: &State, state: &mut State) {
    let computes = before.computes.iter().zip(&state.computes);
    let commits = computes.map(|(old, new)| (old.has_won(), old.commit_lsn(), new.commit_lsn()));
    let computes_go_on = commits
        .into_iter()
        .all(|(won, old, new): (bool, Lsn, Lsn)| !won || new >= old);
    let safekeepers = before.safekeepers.iter().zip(&state.safekeepers);
    let stored_go_on = safekeepers
        .map(|(old, new)| (old.stored(), new.stored()))
        .all(|(old, new)| {
            new.commit_lsn >= old.commit_lsn
                && new.term >= old.term
                && new.configuration.generation >= old.configuration.generation
        });
    if !computes_go_on || !stored_go_on {
        state.failure = Some("a commit, a term or a generation went back".into());
    }
}

impl Model for ProtocolModel {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.first_state()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        // Whatever follows from a failure says nothing.
        if state.failure.is_none() {
            self.steps(state, steps);
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        match catch_unwind(AssertUnwindSafe(|| self.happen(&mut state, step))) {
            Ok(Err(Nothing)) => return None,
            Ok(Ok(())) => {
                if !self.scenario.lost_replies {
                    self.hear_all(&mut state);
                }
                let same_disk = !matches!(step, Step::LoseDisk { .. } | Step::RestoreDisk { .. });
                if same_disk {
                    note_what_went_back(before, &mut state);
                }
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied());
                let text = text.unwrap_or("without a text");
                state.failure = Some(format!("an assertion failed: {text}").into());
            }
        }
        (*before != state).then_some(state)
    }

    fn within_boundary(&self, _: &State) -> bool {
        let within = self.until.is_none_or(|until| Instant::now() < until);
        if !within {
            self.cut_off.store(true, Ordering::Relaxed);
        }
        within
    }

    fn properties(&self) -> Vec<Property<Self>> {
        crate::properties::all(&self.scenario)
    }
}
