//! Promises about members that lack something, went another way, or are being written to.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Log, START, Writer, flip, timeline_dir, try_verify, verify, write_member};
use log_tool::judge::Kind;
use log_tool::member::{SegmentState, State};
use log_tool::report::Report;
use log_tool::scan::Tail;
use pg_types::{Lsn, WAL_SEGMENT_BYTES};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn three(root: &Path) -> Log {
    let log = Log::mixed(START);
    for name in NAMES {
        write_member(root, name, &log, log.end());
    }
    log
}

fn kinds(report: &Report) -> Vec<Kind> {
    report.judgement.findings.iter().map(|it| it.kind).collect()
}

/// Every file with its bytes.
fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("list") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).expect("read");
                all.insert(path, bytes);
            }
        }
    }
    all
}

#[test]
fn what_is_lost_is_told_and_the_rest_is_looked_at_and_nothing_is_touched() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path();
    let log = three(root);
    let second = START.0 / WAL_SEGMENT_BYTES + 1;
    let segment = |name: &str, number: u64| {
        timeline_dir(root, name)
            .join(Lsn(number * WAL_SEGMENT_BYTES).segment_file_name(WAL_SEGMENT_BYTES))
    };
    // A crash within a creation leaves a segment short; what is missing of it is zero.
    let short = fs::OpenOptions::new()
        .write(true)
        .open(segment("a", second))
        .expect("segment");
    short
        .set_len(log.end().segment_offset(WAL_SEGMENT_BYTES))
        .expect("cut");
    fs::write(
        timeline_dir(root, "b").join("control"),
        b"WEIRSK01 and then nonsense",
    )
    .expect("tear");
    fs::remove_dir_all(timeline_dir(root, "c")).expect("lose");
    let aside = timeline_dir(root, "c").with_extension("saved");
    fs::create_dir(&aside).expect("put aside");

    let before = contents(root);
    let report = verify(root, &["a", "b", "c", "nowhere"]);
    assert_eq!(contents(root), before);

    let states: Vec<State> = report.members.iter().map(|it| it.state).collect();
    assert_eq!(
        states,
        [
            State::Present,
            State::ControlDamaged,
            State::Absent,
            State::Unreadable
        ]
    );
    assert_eq!(
        kinds(&report),
        [Kind::Control, Kind::Absent, Kind::Unreadable, Kind::NotHeld],
        "{report}"
    );
    assert_eq!(report.members[2].beside, [aside]);
    // The log of the one without its promises is read all the same, from its first record on.
    let scan = report.members[1].scan.as_ref().expect("read");
    assert_eq!((scan.proven[0].from, scan.proven[0].to), (START, log.end()));
    let comparison = report.comparison.as_ref().expect("compared");
    assert_eq!(comparison.members, ["a", "b"]);
    assert!(comparison.is_equal());
    let text = report.to_string();
    assert!(text.contains("c's directory lacks this timeline"), "{text}");
    assert!(
        text.contains("a holds everything committed up to"),
        "{text}"
    );
    assert!(text.contains("Keep every directory as it is"), "{text}");
    assert!(!text.contains("elete"), "{text}");
    let states: Vec<SegmentState> = report.members[0]
        .segments
        .iter()
        .map(|it| it.state)
        .collect();
    assert_eq!(states, [SegmentState::Complete, SegmentState::Last]);

    // A segment that can't be read, one that is gone.
    fs::remove_file(segment("a", second)).expect("lose a segment");
    fs::remove_file(segment("b", second - 1)).expect("lose a segment");
    fs::create_dir(segment("b", second - 1)).expect("something else in its place");
    let report = verify(root, &NAMES);
    let faults = &report.members[0].scan.as_ref().expect("read").faults;
    assert!(faults[0].why.contains("there is no file"), "{report}");
    assert_eq!(faults[0].to, log.end());
    assert_eq!(
        report.members[1].segments[0].reason.as_deref(),
        Some("it is no file")
    );
    assert!(
        report.members[1]
            .scan
            .as_ref()
            .is_some_and(|it| !it.proven.is_empty())
    );
    assert!(!report.judgement.held_together);

    NAMES
        .iter()
        .for_each(|name| fs::remove_dir_all(root.join(name)).expect("lose"));
    assert!(try_verify(root, &NAMES).is_none());
}

#[test]
fn a_member_behind_and_a_torn_tail_are_sound_and_said() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path();
    let log = three(root);
    let late = 30_u64;
    let mut behind = Writer::found(root, "late", START);
    let cut = log.records[late as usize].2;
    let part = &log.writer.bytes()[..(cut.0 - START.0) as usize];
    behind.follow(&[(1, START)]).append(START, part, cut);
    // The beginning of the next record arrived, and no more: below what the others have committed.
    let next = &log.writer.bytes()[part.len()..part.len() + 40];
    behind.append(cut, next, cut);
    let report = verify(root, &["a", "b", "late"]);
    assert!(report.sound, "{report}");
    let member = &report.members[2];
    let scan = member.scan.as_ref().expect("read");
    assert_eq!(scan.end, cut);
    assert!(
        matches!(scan.tail, Tail::Torn { from, to, .. } if from == cut && to <= cut + 40),
        "{report}"
    );
    assert!(!report.judgement.standings[2].holds_committed);
    assert!(
        report.to_string().contains("late holds it up to"),
        "{report}"
    );

    // What broke off is not the beginning of what the others have.
    flip(root, "late", cut + 10, 0x40);
    let report = verify(root, &["a", "b", "late"]);
    assert_eq!(kinds(&report), [Kind::Differs], "{report}");
    assert_eq!(report.judgement.findings[0].lsn, Some(cut + 10));
}

#[test]
fn logs_may_differ_behind_the_point_where_their_terms_part_and_not_before() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path();
    let mut shared = Log::mixed(START);
    let parts = shared.end();
    let mut old = shared.clone();
    old.add(500, 1);
    shared.add(900, 2).add(900, 3);
    let all = shared.writer.bytes();
    let common = (parts.0 - START.0) as usize;
    for name in ["a", "b"] {
        let mut member = Writer::found(root, name, START);
        member
            .follow(&[(1, START)])
            .append(START, &all[..common], parts);
        member
            .follow(&[(1, START), (3, parts)])
            .append(parts, &all[common..], shared.end());
    }
    // Away when term 3 was elected, with WAL of term 1 that nobody else has.
    write_member(root, "c", &old, parts);
    let report = verify(root, &NAMES);
    assert!(report.sound, "{report}");
    assert_eq!(report.judgement.standings[2].agrees_to, Some(parts));
    assert!(
        report.to_string().contains("goes on otherwise from"),
        "{report}"
    );

    // It had committed that WAL: somebody lost a disk in between.
    write_member_again(root, "c", &old, old.end());
    let report = verify(root, &NAMES);
    let found = kinds(&report);
    assert!(
        found.contains(&Kind::Diverged) && found.contains(&Kind::Differs),
        "{report}"
    );
    let first = report.comparison.as_ref().expect("compared").differences[0].from;
    assert!(first >= parts, "{report}");
}

fn write_member_again(root: &Path, name: &str, log: &Log, commit: Lsn) {
    fs::remove_dir_all(root.join(name)).expect("make room");
    write_member(root, name, log, commit);
}

#[test]
fn wal_that_was_set_aside_is_shown_with_what_of_it_is_whole() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path();
    let log = Log::mixed(START);
    let committed = log.records[10].2;
    let mut member = write_member(root, "a", &log, committed);
    let cut = log.records[19].2;
    member.follow(&[(1, START), (2, cut)]);
    let report = verify(root, &["a"]);
    assert!(report.sound, "{report}");
    assert_eq!(report.members[0].cut.len(), 1);
    let kept = &report.members[0].cut[0];
    assert_eq!((kept.from, kept.reason.as_deref()), (Some(cut), None));
    assert_eq!(kept.proven_to, Some(log.end()));
    assert!(report.to_string().contains("set aside"), "{report}");
}

/// Promise: whatever a safekeeper is doing on the directory, no look calls it damage.
#[test]
fn a_log_that_is_being_written_and_trimmed_is_sound_at_every_moment() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let root = dir.path();
    let mut log = Log::mixed(START);
    let mut writers = NAMES.map(|name| write_member(root, name, &log, log.end()));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..60 {
                let begin = log.end();
                for number in 0..200 {
                    log.add(3000, number);
                }
                let from = (begin.0 - START.0) as usize;
                for writer in &mut writers {
                    writer.append(begin, &log.writer.bytes()[from..], begin);
                    if round % 20 == 19 {
                        writer.trim(begin);
                    }
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let (mut moved, mut last) = (0, Lsn::INVALID);
        while !is_done.load(Ordering::Relaxed) {
            let report = verify(root, &NAMES);
            assert!(report.sound || report.changed_meanwhile, "{report}");
            moved += u32::from(report.judgement.committed > last);
            last = report.judgement.committed;
        }
        assert!(moved > 2, "looked {moved} times while it moved");
    });
    let report = verify(root, &NAMES);
    assert!(report.sound, "{report}");
    assert!(
        report.judgement.needed_from > Lsn(3 * WAL_SEGMENT_BYTES),
        "nothing was trimmed"
    );
}
