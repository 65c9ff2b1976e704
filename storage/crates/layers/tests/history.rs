//! Promise: whatever layers are merged, in whatever order and however often, what must stay readable reads as
//! before, and once all are merged nothing is left that no readable LSN needs.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{File, KEYS, Operation, Timeline, expected_chain, key, operation, options};
use layers::{
    LayerError, LayerMap, MergeOptions, Retention, Value, Window, collect, merge_layers,
    plan_settling,
};
use pg_types::{Key, Lsn};
use proptest::prelude::*;

/// LSN at which each page is cut off, if it is.
type Truncations = BTreeMap<Key, Lsn>;

fn floor(truncations: &Truncations, key: &Key, at: Lsn) -> Lsn {
    let truncation = truncations.get(key).copied();
    truncation.filter(|lsn| *lsn <= at).unwrap_or_default()
}

/// Merges the layers chosen by the bits of `choice`, or all.
fn merge(timeline: &mut Timeline, choice: u64, retention: &Retention, truncations: &Truncations) {
    let chosen = |at: &usize| choice >> (at % 64) & 1 == 1;
    let inputs: Vec<_> = timeline
        .map
        .iter()
        .enumerate()
        .filter(|(at, _)| chosen(at))
        .map(|(_, file)| file.clone())
        .collect();
    let merge = MergeOptions {
        target_bytes: 300,
        level: 2,
        retention: retention.clone(),
        writer: options(),
    };
    let mut outputs = Vec::new();
    merge_layers(
        inputs.iter().map(|file| file.reader.iter()).collect(),
        &merge,
        &mut |key: &Key| Ok(floor(truncations, key, retention.horizon())),
        |desc, bytes| {
            outputs.push(File::new((desc, bytes)));
            Ok::<(), LayerError>(())
        },
    )
    .unwrap();
    let names: Vec<_> = inputs.iter().map(|file| file.desc.name()).collect();
    timeline.map = timeline.map.with(outputs, &names);
}

fn check(timeline: &Timeline, readable: &BTreeSet<Lsn>, truncations: &Truncations) {
    for lsn in readable {
        for number in 0..KEYS {
            let key = key(number);
            let window = Window {
                floor: floor(truncations, &key, *lsn),
                upto: *lsn,
            };
            let expected = expected_chain(&timeline.model, key, window);
            let found = collect(&timeline.view(), key, window).unwrap();
            assert_eq!(found, expected, "{key} in {window:?}");
        }
    }
}

/// The versions that reads at these LSNs use, and all after the horizon, when nothing is truncated.
fn needed(timeline: &Timeline, horizon: Lsn, readable: &BTreeSet<Lsn>) -> usize {
    let later = timeline.model.keys().filter(|(_, lsn, _)| *lsn > horizon);
    let mut needed: BTreeSet<_> = later.copied().collect();
    for lsn in readable {
        for number in 0..KEYS {
            let model: Vec<_> = timeline
                .model
                .range((key(number), Lsn(0), 0)..=(key(number), *lsn, u16::MAX))
                .collect();
            let start = model.iter().rposition(|(_, value)| value.starts_chain());
            needed.extend(model[start.unwrap_or(0)..].iter().map(|(order, _)| **order));
        }
    }
    needed.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_must_stay_readable_reads_as_before(
        operations in prop::collection::vec(operation(), 5..60),
        points in prop::collection::vec(0..60_usize, 0..4),
        horizons in prop::collection::vec((0..60_usize, any::<u64>()), 1..5),
        cuts in prop::collection::btree_map(0..KEYS - 2, 0..60_usize, 0..3),
    ) {
        let mut timeline = Timeline::new(Lsn(1000));
        operations.iter().for_each(|operation| timeline.apply(operation));
        timeline.apply(&Operation::Flush);
        let record = |timeline: &Timeline, number: usize| timeline.records[number % timeline.records.len()];
        let truncations: Truncations =
            cuts.iter().map(|(number, at)| (key(*number), record(&timeline, *at))).collect();
        let points: BTreeSet<Lsn> = points.iter().map(|at| record(&timeline, *at)).collect();
        let mut horizons: Vec<(Lsn, u64)> =
            horizons.iter().map(|(at, choice)| (record(&timeline, *at), *choice)).collect();
        horizons.sort_unstable();
        let readable = |horizon: Lsn| -> BTreeSet<Lsn> {
            let later = timeline.records.iter().filter(|lsn| **lsn >= horizon);
            later.chain(&points).copied().chain([Lsn::MAX]).collect()
        };
        let readable: Vec<BTreeSet<Lsn>> = horizons.iter().map(|(horizon, _)| readable(*horizon)).collect();
        for ((horizon, choice), readable) in horizons.iter().zip(&readable) {
            let retention = Retention::new(*horizon, points.iter().copied());
            merge(&mut timeline, *choice, &retention, &truncations);
            check(&timeline, readable, &truncations);
        }
        let (horizon, _) = horizons[horizons.len() - 1];
        let readable = &readable[readable.len() - 1];
        let retention = Retention::new(horizon, points.iter().copied());
        // Twice: what a subset left over goes with the whole.
        for _ in 0..2 {
            merge(&mut timeline, u64::MAX, &retention, &truncations);
            check(&timeline, readable, &truncations);
        }
        if truncations.is_empty() {
            let left: usize = timeline.map.iter().map(|file| file.reader.versions() as usize).sum();
            prop_assert_eq!(left, needed(&timeline, horizon, readable));
        }
    }
}

fn timeline_with_levels(records: u32) -> Timeline {
    let mut timeline = Timeline::new(Lsn(1000));
    for number in 0..records {
        timeline.apply(&Operation::Record(vec![(number % KEYS, 0)]));
        if number % 5 == 4 {
            timeline.apply(&Operation::Flush);
        }
        if number % 20 == 19 {
            timeline.apply(&Operation::Compact {
                target_bytes: 200,
                keep_inputs: false,
            });
        }
    }
    timeline
}

#[test]
fn nothing_settles_before_it_is_history_or_worth_it() {
    let timeline = timeline_with_levels(100);
    let last = timeline.last();
    let plan = |horizon, least| plan_settling(&timeline.map, horizon, least, u64::MAX);
    assert_eq!(plan(Lsn::INVALID, 1), None);
    assert_eq!(plan(Lsn(1000), 1), None);
    assert_eq!(plan(last, u64::MAX), None);
    let whole = plan(last, 1).expect("a plan");
    assert_eq!(whole.inputs.len(), timeline.map.len());
    let bounded = plan_settling(&timeline.map, last, 1, whole.bytes / 3).expect("a plan");
    assert!(!bounded.inputs.is_empty() && bounded.bytes <= whole.bytes / 3);
}

/// Promise: bounded steps come to an end, with all of history in level 2, each key's newest value kept.
#[test]
fn settling_in_bounded_steps_ends() {
    let mut timeline = timeline_with_levels(200);
    let last = timeline.last();
    let retention = Retention::new(last, []);
    let mut steps = 0;
    while let Some(plan) = plan_settling(&timeline.map, last, 1, 2000) {
        steps += 1;
        assert!(steps < 1000, "it does not end");
        let names: Vec<_> = plan.inputs.iter().map(|desc| desc.name()).collect();
        let choice: u64 = timeline
            .map
            .iter()
            .enumerate()
            .filter(|(_, file)| names.contains(&file.desc.name()))
            .fold(0, |choice, (at, _)| choice | 1 << at);
        assert!(timeline.map.len() < 64, "the test's choice has 64 bits");
        merge(&mut timeline, choice, &retention, &Truncations::new());
    }
    let bytes_of = |level: u8| -> u64 {
        let of_level = timeline.map.iter().filter(|file| file.desc.level == level);
        of_level.map(|file| file.desc.size).sum()
    };
    assert!(steps > 1 && bytes_of(1) < bytes_of(2) / 4);
    check(&timeline, &[last].into(), &Truncations::new());
    let images = timeline
        .model
        .values()
        .filter(|it| matches!(it, Value::Image(_)));
    assert!(
        images.count() > KEYS as usize * 3,
        "there was something to drop"
    );
}

#[test]
fn an_empty_map_has_nothing_to_settle() {
    assert_eq!(
        plan_settling(&LayerMap::<File>::default(), Lsn::MAX, 0, 1),
        None
    );
}
