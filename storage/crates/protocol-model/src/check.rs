//! Runs the checker on a scenario.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::model::ProtocolModel;
use crate::scenario::Scenario;
use crate::trace::trace;

/// How far to search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For so long states are searched; those that are reached later are left out.
    pub time: Duration,
    /// Threads that search.
    pub threads: usize,
    /// Whether to stop at the first failure, which is then among the shortest: states are searched in the order of their
    /// distance from the first, which takes more memory.
    pub first_failure: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the scenario.
    pub name: &'static str,
    /// Different states that were reached.
    pub states: usize,
    /// Steps taken to reach them.
    pub steps: usize,
    /// The longest way from the first state to one of them.
    pub depth: usize,
    /// Time that the search took.
    pub took: Duration,
    /// Whether there are no others.
    pub exhausted: bool,
    /// Properties that do not hold, each with how that comes about.
    pub failures: Vec<(&'static str, String)>,
    /// Milestones that no state has reached.
    pub unreached: Vec<&'static str>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome {
            name,
            states,
            steps,
            depth,
            took,
            ..
        } = self;
        let seconds = took.as_secs_f64();
        let end = match (self.failures.is_empty(), self.exhausted) {
            (false, _) => "stopped at a failure",
            (true, true) => "exhausted",
            (true, false) => "cut off",
        };
        write!(
            f,
            "{name}: {states} states, {steps} steps, at most {depth} deep, {seconds:.1} s, {end}"
        )?;
        for name in &self.unreached {
            write!(f, "\n  never reached: {name}")?;
        }
        for (name, trace) in &self.failures {
            write!(f, "\n  does not hold: {name}\n{trace}")?;
        }
        Ok(())
    }
}

/// Searches the states of `scenario`. Assertions of the code that fail are among the failures; the panic hook is the
/// caller's business.
pub fn check(scenario: &Scenario, limits: Limits) -> Outcome {
    let begin = Instant::now();
    let mut model = ProtocolModel::new(scenario.clone());
    model.until = Some(begin + limits.time);
    let cut_off = Arc::clone(&model.cut_off);
    let properties = model.properties();
    let failures = |of: &str| {
        let property = properties.iter().find(|property| property.name == of);
        property.is_some_and(|property| property.expectation != Expectation::Sometimes)
    };
    let checker = model
        .checker()
        .threads(limits.threads)
        .finish_when(HasDiscoveries::AnyFailures);
    let outcome = |checker: &dyn Fn() -> Found| {
        let (states, steps, depth, found) = checker();
        let reached = |name: &str| found.iter().any(|(other, _)| *other == name);
        let milestones = properties.iter().map(|property| property.name);
        let unreached = milestones.filter(|name| !failures(name) && !reached(name));
        let failed: Vec<_> = found
            .iter()
            .filter(|(name, _)| failures(name))
            .cloned()
            .collect();
        Outcome {
            name: scenario.name,
            states,
            steps,
            depth,
            took: begin.elapsed(),
            exhausted: failed.is_empty() && !cut_off.load(Ordering::Relaxed),
            unreached: unreached.collect(),
            failures: failed,
        }
    };
    if limits.first_failure {
        let checker = checker.spawn_bfs().join();
        outcome(&|| found(&checker))
    } else {
        let checker = checker.spawn_dfs().join();
        outcome(&|| found(&checker))
    }
}

/// States, steps, depth, and the properties that the search has something to say about, with the way there.
type Found = (usize, usize, usize, Vec<(&'static str, String)>);

fn found(checker: &impl Checker<ProtocolModel>) -> Found {
    let model = checker.model();
    let discoveries = checker.discoveries().into_iter();
    let discoveries = discoveries.map(|(name, path)| (name, trace(model, path.into_vec())));
    (
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        discoveries.collect(),
    )
}
