//! Promise: a panic ends the program with a failure and a log line, also in a task or on a thread at which nobody looks,
//! and where the panic would be caught.

use std::process::{Command, Output};
use std::time::Duration;

/// Says which panic the program, which is this one started again, is to have.
const CASE: &str = "WEIR_TEST_PANIC";

/// Ends well after a second, unless a panic ends it.
fn program(case: &str) {
    let _telemetry = telemetry::init("panics").expect("telemetry");
    telemetry::end_at_panics();
    let before = telemetry::metrics_text().expect("metrics");
    assert!(before.contains("weir_panics_total 0"), "{before}");
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let _entered = runtime.enter();
    match case {
        "none" => {}
        "task" => drop(tokio::spawn(async { panic!("in a task") })),
        "blocking" => drop(tokio::task::spawn_blocking(|| panic!("on a pool's thread"))),
        "thread" => drop(std::thread::spawn(|| panic!("on a thread"))),
        _ => drop(std::panic::catch_unwind(|| panic!("caught"))),
    }
    std::thread::sleep(Duration::from_secs(1));
}

fn run(case: &str) -> Output {
    let this = std::env::current_exe().expect("this program");
    let mut command = Command::new(this);
    let command = command.args(["--exact", "panics_end_the_program", "--nocapture"]);
    command.env(CASE, case).output().expect("run")
}

#[test]
fn panics_end_the_program() {
    if let Ok(case) = std::env::var(CASE) {
        return program(&case);
    }
    assert!(run("none").status.success());
    let texts = ["in a task", "on a pool's thread", "on a thread", "caught"];
    for (case, text) in ["task", "blocking", "thread", "caught"]
        .into_iter()
        .zip(texts)
    {
        let ended = run(case);
        let log = String::from_utf8_lossy(&ended.stderr);
        assert!(
            !ended.status.success() && ended.status.code().is_none(),
            "{case}: {:?}",
            ended.status
        );
        let line = log
            .lines()
            .find(|line| line.contains("ERROR") && line.contains(text));
        assert!(
            line.is_some_and(|line| line.contains("the program ends here")),
            "{case}: {log}"
        );
        assert!(log.contains("tests/panics.rs"), "{case}: {log}");
    }
}
