//! Promise: whatever is put, frozen, flushed, merged or branched, every read answers as one sorted map of
//! all versions would.

mod common;

use std::collections::BTreeMap;

use common::{KEYS, Operation, Timeline, all_keys, expected_chain, expected_scan, key, operation};
use layers::{
    ChainCollector, ChainCounts, ChainsCollector, RangeScan, Window, collect, collect_all, history,
    newest_lsn,
};
use pg_types::{KeyRange, Lsn};
use proptest::prelude::*;

fn check_reads(timeline: &Timeline) {
    let view = timeline.view();
    for lsn in timeline.interesting_lsns() {
        for number in 0..KEYS {
            for floor in [Lsn::INVALID, timeline.records[timeline.records.len() / 2]] {
                let window = Window { floor, upto: lsn };
                let expected = expected_chain(&timeline.model, key(number), window);
                assert_eq!(
                    collect(&view, key(number), window).unwrap(),
                    expected,
                    "{} in {window:?}",
                    key(number)
                );
            }
        }
        for keys in [
            all_keys(),
            KeyRange {
                first: key(1),
                last: key(2),
            },
        ] {
            let mut scan = RangeScan::new(keys, lsn);
            scan.visit(&view).unwrap();
            let expected = expected_scan(&timeline.model, &keys, lsn);
            assert_eq!(scan.finish().collect::<Vec<_>>(), expected, "scan at {lsn}");
        }
        let expected = timeline
            .model
            .keys()
            .map(|(_, lsn, _)| *lsn)
            .filter(|other| *other <= lsn)
            .max();
        assert_eq!(
            newest_lsn(&view, lsn).unwrap(),
            expected,
            "newest LSN up to {lsn}"
        );
    }
}

/// Many keys at once, out of order, some twice and with floors of their own, read as each alone does.
fn check_vectored(timeline: &Timeline) {
    let view = timeline.view();
    let middle = timeline.records[timeline.records.len() / 2];
    for lsn in timeline.interesting_lsns() {
        let floor = |number: u32| {
            if number.is_multiple_of(2) {
                Lsn::INVALID
            } else {
                middle
            }
        };
        let numbers = (0..KEYS).rev().chain([1, 0, 3]);
        let keys: Vec<_> = numbers.map(|number| (key(number), floor(number))).collect();
        let found = collect_all(&view, &keys, lsn).unwrap();
        for ((key, floor), chain) in keys.iter().zip(found) {
            let window = Window {
                floor: *floor,
                upto: lsn,
            };
            assert_eq!(
                chain,
                expected_chain(&timeline.model, *key, window),
                "{key} in {window:?}"
            );
        }
    }
}

fn check_history(timeline: &Timeline) {
    let middle = timeline.records[timeline.records.len() / 2];
    for number in 0..KEYS {
        for window in [
            Window::upto(Lsn::MAX),
            Window {
                floor: middle,
                upto: timeline.last(),
            },
            Window::upto(middle),
        ] {
            let found = history(&timeline.view(), key(number), window).unwrap();
            let found: Vec<_> = found
                .into_iter()
                .map(|version| (version.lsn, version.seq, version.value))
                .collect();
            let all = timeline
                .model
                .iter()
                .filter(|((other, lsn, _), _)| *other == key(number) && window.contains(*lsn));
            let expected: Vec<_> = all
                .map(|((_, lsn, seq), value)| (*lsn, *seq, value.clone()))
                .collect();
            assert_eq!(found, expected, "history of {}", key(number));
        }
    }
}

/// A count is never below the chain a newest read would walk.
fn check_counts(timeline: &Timeline) {
    for number in 0..KEYS - 2 {
        let length = expected_chain(&timeline.model, key(number), Window::upto(Lsn::MAX))
            .deltas
            .len() as u32;
        assert!(
            timeline.counts.get(&key(number)) >= length,
            "{}: chain of {length}",
            key(number)
        );
    }
    let over: Vec<_> = (0..KEYS - 2)
        .filter(|n| timeline.counts.get(&key(*n)) >= timeline.counts.threshold())
        .collect();
    let planned = timeline.counts.plan(100, false);
    assert_eq!(planned.len(), over.len());
    assert!(
        planned
            .windows(2)
            .all(|pair| pair[0].deltas >= pair[1].deltas),
        "longest chains come first"
    );
}

/// The same from the key tables alone, as after a restart with everything flushed.
fn check_reloaded_counts(timeline: &Timeline, upto: Lsn) {
    let mut files: Vec<_> = timeline.map.iter().collect();
    files.sort_by_key(|file| file.desc.lsns.first);
    let mut counts = ChainCounts::new(1);
    for file in files {
        counts.load(file.desc.lsns, &file.reader.key_stats().unwrap(), upto);
    }
    for number in 0..KEYS - 2 {
        let length = expected_chain(&timeline.model, key(number), Window::upto(upto))
            .deltas
            .len() as u32;
        let count = counts.get(&key(number));
        assert!(
            count >= length,
            "{}: chain of {length} at {upto}, {count} counted",
            key(number)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn layers_read_as_the_model_does(operations in prop::collection::vec(operation(), 1..60)) {
        let mut timeline = Timeline::new(Lsn(1000));
        for operation in &operations {
            timeline.apply(operation);
        }
        check_reads(&timeline);
        check_vectored(&timeline);
        check_history(&timeline);
        check_counts(&timeline);
        timeline.apply(&Operation::Flush);
        check_reads(&timeline);
        check_vectored(&timeline);
        for lsn in timeline.interesting_lsns() {
            check_reloaded_counts(&timeline, lsn);
        }
        check_reloaded_counts(&timeline, Lsn::MAX);
        timeline.apply(&Operation::Compact { target_bytes: 500, keep_inputs: false });
        check_reads(&timeline);
        check_vectored(&timeline);
        check_reloaded_counts(&timeline, Lsn::MAX);
    }

    #[test]
    fn a_branch_reads_its_past_from_the_ancestor_and_neither_sees_the_others_future(
        before in prop::collection::vec(operation(), 1..30),
        after in prop::collection::vec(operation(), 0..20),
        child in prop::collection::vec(operation(), 0..30),
    ) {
        let mut ancestor = Timeline::new(Lsn(1000));
        before.iter().for_each(|operation| ancestor.apply(operation));
        let branch_lsn = ancestor.last();
        after.iter().for_each(|operation| ancestor.apply(operation));
        let mut branch = Timeline::new(branch_lsn);
        child.iter().for_each(|operation| branch.apply(operation));

        let mut model: BTreeMap<_, _> = ancestor.model.clone().into_iter().filter(|((_, lsn, _), _)| *lsn <= branch_lsn).collect();
        model.extend(branch.model.clone());
        for lsn in branch.interesting_lsns().into_iter().filter(|lsn| *lsn >= branch_lsn) {
            for number in 0..KEYS {
                for floor in [Lsn::INVALID, Lsn(1050), branch_lsn] {
                    let window = Window { floor, upto: lsn };
                    let mut read = ChainCollector::new(key(number), window);
                    read.visit(&branch.view()).unwrap();
                    if !read.is_complete() && read.descend(branch_lsn) {
                        read.visit(&ancestor.view()).unwrap();
                    }
                    prop_assert_eq!(read.finish(), expected_chain(&model, key(number), window));
                }
            }
            for floor in [Lsn::INVALID, Lsn(1050), branch_lsn] {
                let keys: Vec<_> = (0..KEYS).map(|number| (key(number), floor)).collect();
                let mut read = ChainsCollector::new(&keys, lsn);
                read.visit(&branch.view()).unwrap();
                if read.descend(branch_lsn) {
                    read.visit(&ancestor.view()).unwrap();
                }
                let found = read.finish().expect("every layer is here");
                for (number, chain) in (0..KEYS).zip(found) {
                    prop_assert_eq!(chain, expected_chain(&model, key(number), Window { floor, upto: lsn }));
                }
            }
            let mut scan = RangeScan::new(all_keys(), lsn);
            scan.visit(&branch.view()).unwrap();
            scan.descend(branch_lsn);
            scan.visit(&ancestor.view()).unwrap();
            prop_assert_eq!(scan.finish().collect::<Vec<_>>(), expected_scan(&model, &all_keys(), lsn));
        }
        check_reads(&ancestor);
    }
}
