//! A majority is one of the log's voters, whatever directories are looked at.

mod common;

use std::fs;
use std::path::Path;

use common::{Log, START, Writer, disk, next_member, timeline_dir, verify};
use consensus::{Change, Configuration, MemberId};
use log_tool::judge::Kind;
use log_tool::part::Part;
use log_tool::report::Report;
use pg_types::Lsn;

const VOTERS: [&str; 3] = ["a", "b", "c"];
const ALL: [&str; 4] = ["a", "b", "c", "spare"];

/// Three voters that hold all of the log, and a safekeeper that has never been given it.
fn three_and_a_spare(root: &Path) -> (Log, [MemberId; 3], Vec<Writer>) {
    let log = Log::mixed(START);
    let members = VOTERS.map(|name| next_member(root, name));
    let configuration = Configuration::founding(&members).expect("three voters");
    let writers = VOTERS.iter().zip(members).map(|(name, member)| {
        let mut writer = Writer::found_among(root, name, START, member, configuration.clone());
        let bytes = log.writer.bytes();
        writer.follow(&[(1, START)]).append(START, bytes, log.end());
        writer
    });
    let writers = writers.collect();
    disk(root, "spare");
    (log, members, writers)
}

fn kinds(report: &Report) -> Vec<Kind> {
    report.judgement.findings.iter().map(|it| it.kind).collect()
}

fn parts(report: &Report) -> Vec<Option<Part>> {
    report.members.iter().map(|member| member.part).collect()
}

#[test]
fn a_spare_without_the_log_is_nothing_wrong() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (_, _, writers) = three_and_a_spare(dir.path());
    drop(writers);
    let report = verify(dir.path(), &ALL);
    assert_eq!(kinds(&report), []);
    assert!(report.sound);
    let voter = Some(Part::Voter);
    assert_eq!(parts(&report), [voter, voter, voter, Some(Part::None)]);
    assert!(report.to_string().contains("is no member of this log"));
}

#[test]
fn a_voter_that_lost_the_log_or_whose_disk_is_another_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path();
    let (_, _, writers) = three_and_a_spare(root);
    drop(writers);
    fs::remove_dir_all(timeline_dir(root, "b")).expect("lose the log");
    fs::remove_dir_all(root.join("c")).expect("lose the disk");
    disk(root, "c");
    let report = verify(root, &ALL);
    assert_eq!(kinds(&report), [Kind::Absent, Kind::Absent, Kind::NotHeld]);
    let texts: Vec<&str> = report
        .judgement
        .findings
        .iter()
        .map(|it| &*it.text)
        .collect();
    assert!(
        texts[0].starts_with("b's directory lacks this timeline"),
        "{texts:?}"
    );
    assert!(
        texts[1].starts_with("none of the directories is that of the voter"),
        "{texts:?}"
    );
    assert!(
        texts[2].starts_with("only 1 of 3 voters hold what is committed"),
        "{texts:?}"
    );
    let (voter, none) = (Some(Part::Voter), Some(Part::None));
    assert_eq!(parts(&report), [voter, voter, none, none]);
}

/// The log of a member that was removed ends where it was removed, and is no voter's.
#[test]
fn a_member_that_was_removed_is_not_counted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path();
    let (log, [_, _, third], mut writers) = three_and_a_spare(root);
    let end = log.end();
    let removed = writers.pop().expect("c");
    drop(removed);
    let mut more = log.clone();
    more.add(500, 9);
    for writer in &mut writers {
        writer.change(&Change::Remove(third));
        writer.append(end, bytes_from(&more, end), more.end());
    }
    drop(writers);
    let report = verify(root, &ALL);
    assert_eq!(kinds(&report), []);
    assert_eq!(parts(&report)[2], Some(Part::None));

    fs::remove_dir_all(timeline_dir(root, "b")).expect("lose the log");
    let report = verify(root, &ALL);
    assert_eq!(kinds(&report), [Kind::Absent, Kind::NotHeld]);
}

fn bytes_from(log: &Log, from: Lsn) -> &[u8] {
    &log.writer.bytes()[(from.0 - START.0) as usize..]
}
