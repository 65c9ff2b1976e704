//! Promise: the model notices when the protocol is wrong. Each mistake is planted on purpose and must be found, with the
//! way there printed. Alone in its binary because it silences the panics it provokes.

use std::time::Duration;

use protocol_model::check::Limits;
use protocol_model::scenarios::of_bug;
use protocol_model::{Bug, check};

#[test]
fn every_planted_bug_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let limits = Limits {
        time: Duration::from_secs(120),
        threads: 2,
        first_failure: true,
    };
    let is_found = |bug: &Bug| {
        let outcome = check(&of_bug(*bug).with(*bug), limits);
        println!("{bug:?} in {outcome}\n");
        !outcome.failures.is_empty()
    };
    let survived = Bug::ALL.into_iter().filter(|bug| !is_found(bug));
    let survived: Vec<Bug> = survived.collect();
    std::panic::set_hook(hook);
    assert!(survived.is_empty(), "planted bugs survived: {survived:?}");
}
