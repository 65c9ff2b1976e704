//! Promise: within the bounds of each scenario no order of events breaks the protocol.

use std::time::Duration;

use protocol_model::check::Limits;
use protocol_model::{check, scenarios};

#[test]
fn no_order_of_events_breaks_the_protocol() {
    let limits = Limits {
        time: Duration::from_secs(600),
        threads: 2,
        first_failure: false,
    };
    for scenario in scenarios::small() {
        let outcome = check(&scenario, limits);
        println!("{outcome}");
        assert!(outcome.failures.is_empty(), "{outcome}");
        assert!(outcome.unreached.is_empty(), "{outcome}");
        assert!(outcome.exhausted, "{outcome}");
    }
}
