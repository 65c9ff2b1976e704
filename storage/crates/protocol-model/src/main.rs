//! `protocol-model [SECONDS [NAME [BUG]]]`: searches the larger scenarios, or those whose name contains NAME, for so long
//! each; with the name of a planted bug, until it is found.

use std::time::Duration;

use protocol_model::check::Limits;
use protocol_model::{Bug, check, scenarios};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok());
    let name = arguments.next().unwrap_or_default();
    let bug = arguments.next();
    let bug = bug.and_then(|name| Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name));
    let limits = Limits {
        time: Duration::from_secs(seconds.unwrap_or(60)),
        threads: 2,
        first_failure: bug.is_some(),
    };
    for mut scenario in scenarios::small().into_iter().chain(scenarios::large()) {
        if scenario.name.contains(&name) {
            scenario.bug = bug;
            println!("{}", check(&scenario, limits));
        }
    }
}
