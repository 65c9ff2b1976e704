//! Promise: the simulation notices when the protocol is wrong. Each mistake is planted on purpose and must be
//! caught. Alone in its binary because it silences the panics it provokes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sim::Bug;

#[test]
fn every_planted_bug_is_caught() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found: Vec<(Bug, Option<u64>)> = Bug::ALL
        .into_iter()
        .map(|bug| {
            let caught = |seed: &u64| {
                !matches!(
                    catch_unwind(AssertUnwindSafe(|| sim::run_with(*seed, Some(bug)))),
                    Ok(Ok(_))
                )
            };
            (bug, (0..1000).find(caught))
        })
        .collect();
    std::panic::set_hook(hook);
    println!("first seed that catches each: {found:?}");
    assert!(
        found.iter().all(|(_, seed)| seed.is_some()),
        "planted bugs survived: {found:?}"
    );
}
