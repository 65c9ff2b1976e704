//! What the program prints and how it ends.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Log, START, TENANT, TIMELINE, flip, timeline_dir, write_member};
use serde_json::Value;

fn run(root: &Path, words: &[&str]) -> Output {
    let directories = ["safekeeper-1", "safekeeper-2", "safekeeper-3"].map(|name| root.join(name));
    Command::new(env!("CARGO_BIN_EXE_weir-log"))
        .args(words)
        .args(directories)
        .output()
        .expect("run weir-log")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_exit_code_and_the_document_say_what_was_found() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let log = Log::mixed(START);
    for number in 1..=3 {
        write_member(dir.path(), &format!("safekeeper-{number}"), &log, log.end());
    }
    let timeline = TIMELINE.to_string();
    let listed = run(dir.path(), &["list", "--json"]);
    let listed = json(&listed);
    assert_eq!(listed[0]["timeline"], timeline);
    assert_eq!(listed[0]["members"].as_array().map(Vec::len), Some(3));

    let sound = run(dir.path(), &["verify", "--timeline", &timeline, "--json"]);
    assert_eq!(sound.status.code(), Some(0));
    let document = json(&sound);
    assert_eq!(
        (&document["sound"], &document["tenant"]),
        (&true.into(), &TENANT.to_string().into())
    );
    assert_eq!(document["committed"], log.end().to_string());
    // All that the control file holds is there, also what this program has no words for.
    let durable = &document["members"][0]["durable"];
    assert_eq!(
        (&durable["term"], &durable["commit_lsn"]),
        (&1.into(), &log.end().to_string().into())
    );
    let shown = run(dir.path(), &["show", "--timeline", &timeline]);
    assert_eq!(shown.status.code(), Some(0));
    let text = String::from_utf8(shown.stdout).expect("text");
    let verdict = "safekeeper-1, safekeeper-2 and safekeeper-3 hold everything committed up to";
    assert!(
        text.contains(verdict) && text.contains("`verify` does"),
        "{text}"
    );

    flip(dir.path(), "safekeeper-2", log.records[12].0 + 24, 1);
    for command in ["show", "verify"] {
        let found = run(dir.path(), &[command, "--timeline", &timeline]);
        assert_eq!(found.status.code(), Some(1), "{command}");
        let text = String::from_utf8(found.stdout).expect("text");
        assert!(
            text.contains("safekeeper-2's log is not whole from"),
            "{text}"
        );
    }
    let unknown = run(dir.path(), &["show", "--timeline", &"c".repeat(32)]);
    assert_eq!(unknown.status.code(), Some(2));
    let said = String::from_utf8(unknown.stderr).expect("text");
    assert!(said.contains("no directory has timeline"), "{said}");
    let nobody = run(&timeline_dir(dir.path(), "nowhere"), &["list"]);
    assert_eq!(nobody.status.code(), Some(2));
}
