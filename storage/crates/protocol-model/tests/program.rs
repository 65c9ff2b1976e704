//! Promise: the program never takes a name that it does not know for something that holds.

use std::process::{Command, Output};

use protocol_model::{Bug, larger, scenarios};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_protocol-model"))
        .args(arguments)
        .output()
        .expect("run the program")
}

/// What the program says of arguments that it refuses.
fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?} searched something");
    said
}

#[test]
fn an_unknown_bug_is_refused_with_the_known_ones() {
    let said = refusal(&["1", "bug", "NoSuchBug"]);
    assert!(said.contains("\"NoSuchBug\""), "{said}");
    for bug in Bug::ALL {
        assert!(said.contains(&format!("{bug:?}")), "{bug:?} in {said}");
    }
}

#[test]
fn an_unknown_scenario_is_refused_with_the_known_ones() {
    let said = refusal(&["1", "no such scenario"]);
    assert!(said.contains("\"no such scenario\""), "{said}");
    for scenario in scenarios::small().into_iter().chain(larger::all()) {
        assert!(said.contains(scenario.name), "{} in {said}", scenario.name);
    }
}

#[test]
fn arguments_of_another_form_are_refused() {
    for arguments in [
        &["soon"][..],
        &["1", "bug"],
        &["1", "scenario", "AckBeforeFsync"],
        &["1", "bug", "AckBeforeFsync", "more"],
    ] {
        let said = refusal(arguments);
        assert!(said.contains("SECONDS"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_known_bug_is_searched_for() {
    let output = run(&["30", "bug", "AckBeforeFsync"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "it is found: {said}");
}
