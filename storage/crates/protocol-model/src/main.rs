//! `protocol-model [SECONDS [NAME]]`: searches the larger scenarios, or all whose name contains NAME, for so long each. `protocol-model SECONDS bug NAME`: searches for a planted bug.

use std::process::ExitCode;
use std::time::Duration;

use protocol_model::check::Limits;
use protocol_model::{Bug, check, larger, scenarios};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok());
    let name = arguments.next().unwrap_or_default();
    let bug = arguments.next().and_then(|name| Bug::named(&name));
    let limits = Limits {
        time: Duration::from_secs(seconds.unwrap_or(60)),
        threads: 2,
        first_failure: bug.is_some(),
    };
    let scenarios = match bug {
        Some(bug) => vec![scenarios::of_bug(bug).with(bug)],
        None if name.is_empty() => larger::all(),
        None => scenarios::small()
            .into_iter()
            .chain(larger::all())
            .collect(),
    };
    let mut holds = true;
    for scenario in scenarios {
        if bug.is_some() || scenario.name.contains(&name) {
            let outcome = check(&scenario, limits);
            holds &= outcome.failures.is_empty();
            println!("{outcome}");
        }
    }
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
