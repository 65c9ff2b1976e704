//! Promise: a byte that changed is found, or lies where no checksum is and nobody else holds it.

mod common;

use common::{Log, START, flip, verify, write_member};
use log_tool::judge::Kind;
use pg_types::{Lsn, XLOG_BLCKSZ};
use proptest::prelude::*;

const NAMES: [&str; 3] = ["safekeeper-1", "safekeeper-2", "safekeeper-3"];

fn finding_at(report: &log_tool::report::Report, kind: Kind, place: Lsn) -> bool {
    report.judgement.findings.iter().any(|it| it.kind == kind)
        && report
            .members
            .iter()
            .flat_map(|member| &member.scan.as_ref().expect("read").faults)
            .any(|fault| fault.from <= place && place < fault.to)
}

/// Every kind of place, in one pass: headers of pages and records, contents, padding, what follows a switch.
#[test]
fn one_changed_byte_is_found() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut log = Log::mixed(START);
    log.switch().add(5, 1).add(600, 2);
    let end = log.end();
    for name in NAMES {
        write_member(dir.path(), name, &log, end);
    }
    let sound = verify(dir.path(), &NAMES);
    assert!(sound.sound, "{sound}");
    let switch = log.records[40].0;
    // Most of the segment behind the switch is empty, so places are chosen from the rest of it, too.
    let places = prop_oneof![
        3 => START.0..switch.0,
        1 => switch.0..switch.0 + 100,
        1 => end.0 - 700..end.0,
        1 => START.0..end.0,
    ];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(64));
    let checked = runner.run(&(places, 1_u8..), |(place, bits)| {
        let place = Lsn(place);
        flip(dir.path(), NAMES[2], place, bits);
        let together = verify(dir.path(), &NAMES);
        let alone = verify(dir.path(), &NAMES[2..]);
        flip(dir.path(), NAMES[2], place, bits);

        let differs = together
            .comparison
            .as_ref()
            .expect("compared")
            .differences
            .clone();
        prop_assert_eq!(differs.len(), 1, "{}", together);
        prop_assert_eq!(differs[0].from, place);
        prop_assert_eq!(
            &differs[0].groups,
            &[
                vec![NAMES[0].to_owned(), NAMES[1].to_owned()],
                vec![NAMES[2].to_owned()]
            ]
        );
        prop_assert!(!together.sound);
        if log.is_covered(place) {
            prop_assert!(finding_at(&together, Kind::Damaged, place), "{}", together);
            prop_assert!(finding_at(&alone, Kind::Damaged, place), "{}", alone);
            // What follows the damage is proven again: no more than the record is lost, or, where its length is what was
            // damaged, the rest of its page.
            let proven = &alone.members[0].scan.as_ref().expect("read").proven;
            let is_in_last = place >= log.records[log.records.len() - 1].0;
            let is_length = |start: Lsn| (start..start + 4).contains(&place);
            let is_on_last_page = place.0 / XLOG_BLCKSZ == end.0 / XLOG_BLCKSZ;
            let is_length = log.records.iter().any(|record| is_length(record.0));
            let is_at_end = is_in_last || (is_length && is_on_last_page);
            prop_assert!(
                is_at_end || proven.last().is_some_and(|it| it.to == end),
                "{}",
                alone
            );
        } else if alone.sound {
            let proven = &alone.members[0].scan.as_ref().expect("read").proven;
            prop_assert_eq!(proven.len(), 1);
            prop_assert!(proven[0].uncovered > 0);
        }
        Ok(())
    });
    checked.expect("every change is found");
    assert!(verify(dir.path(), &NAMES).sound, "the tool changed a byte");
}

/// Members damaged at different places hold everything together, and the report says so.
#[test]
fn members_damaged_at_different_places_hold_it_together() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let log = Log::mixed(START);
    for name in NAMES {
        write_member(dir.path(), name, &log, log.end());
    }
    flip(dir.path(), NAMES[0], log.records[5].0 + 30, 1);
    flip(dir.path(), NAMES[1], log.records[20].0 + 24, 1);
    flip(dir.path(), NAMES[2], log.records[38].0 + 24, 1);
    let report = verify(dir.path(), &NAMES);
    let kinds: Vec<Kind> = report.judgement.findings.iter().map(|it| it.kind).collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == Kind::Damaged).count(),
        3
    );
    assert!(kinds.contains(&Kind::NotHeld), "{report}");
    assert!(report.judgement.held_together, "{report}");
    assert!(
        report.to_string().contains("put together, their logs do"),
        "{report}"
    );
    // All three at one place: nobody has it.
    flip(dir.path(), NAMES[1], log.records[5].0 + 30, 2);
    flip(dir.path(), NAMES[2], log.records[5].0 + 30, 4);
    let report = verify(dir.path(), &NAMES);
    assert!(!report.judgement.held_together, "{report}");
    let groups = &report.comparison.as_ref().expect("compared").differences[0].groups;
    assert_eq!(groups.len(), 3, "{report}");
}
