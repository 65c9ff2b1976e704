//! `protocol-model [SECONDS [NAME]]`: searches the larger scenarios, or all whose name contains NAME, for so long each.
//! `protocol-model SECONDS bug NAME`: searches for a planted bug.
//!
//! Exit codes: 0 when everything searched holds, 1 when something does not, 2 when the arguments name nothing to search.

use std::process::ExitCode;
use std::time::Duration;

use protocol_model::check::Limits;
use protocol_model::scenario::Scenario;
use protocol_model::{Bug, check, larger, scenarios};

const EXIT_USAGE: u8 = 2;
const USAGE: &str = "protocol-model [SECONDS [SCENARIO]], or protocol-model SECONDS bug BUG";

/// What the arguments ask for.
struct Search {
    limits: Limits,
    /// One at least.
    scenarios: Vec<Scenario>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Search { limits, scenarios } = match search(&arguments) {
        Ok(search) => search,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let mut holds = true;
    for scenario in scenarios {
        let outcome = check(&scenario, limits);
        holds &= outcome.failures.is_empty();
        println!("{outcome}");
    }
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The error is a sentence for whoever gave the arguments. A name that nothing has must not pass for a search that found
/// nothing.
fn search(arguments: &[String]) -> Result<Search, String> {
    let mut words = arguments.iter().map(String::as_str);
    let seconds = match words.next() {
        None => 60,
        Some(word) => word
            .parse()
            .map_err(|_| format!("{word:?} is no number of seconds: {USAGE}"))?,
    };
    let (first_failure, scenarios) = match (words.next(), words.next(), words.next()) {
        (None | Some(""), None, None) => (false, larger::all()),
        (Some("bug"), Some(name), None) => (true, vec![of_bug(name)?]),
        (Some(name), None, None) if name != "bug" => (false, named(name)?),
        _ => return Err(format!("the arguments are {USAGE}")),
    };
    let limits = Limits {
        time: Duration::from_secs(seconds),
        threads: 2,
        first_failure,
    };
    Ok(Search { limits, scenarios })
}

fn of_bug(name: &str) -> Result<Scenario, String> {
    let bug = Bug::named(name).ok_or_else(|| {
        let known = Bug::ALL.map(|bug| format!("{bug:?}")).join(", ");
        format!("no bug is called {name:?}; the bugs that can be planted are {known}")
    })?;
    Ok(scenarios::of_bug(bug).with(bug))
}

fn named(part: &str) -> Result<Vec<Scenario>, String> {
    let all = || scenarios::small().into_iter().chain(larger::all());
    let found: Vec<Scenario> = all().filter(|one| one.name.contains(part)).collect();
    if found.is_empty() {
        let known: Vec<String> = all().map(|one| format!("{:?}", one.name)).collect();
        let known = known.join(", ");
        return Err(format!(
            "no scenario has {part:?} in its name; the scenarios are {known}"
        ));
    }
    Ok(found)
}
