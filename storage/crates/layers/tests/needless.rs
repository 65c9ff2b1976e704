//! Promise: tombstones that hide nothing go, in whatever order layers are merged, and no read finds that they are gone:
//! not where a branch point keeps what is older, nor where a crash left the outputs of a merge beside its inputs.

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use common::{File, KEYS, Operation, Timeline, expected_chain, key, operation, options};
use layers::{
    Base, Chain, Facts, LayerError, MergeOptions, Retention, Value, Version, VersionSource, Window,
    collect, merge_layers,
};
use pg_types::{Key, Lsn};
use proptest::prelude::*;

/// Everything but the inputs of a merge.
struct Beside<'a> {
    timeline: &'a Timeline,
    inputs: &'a [Arc<File>],
}

impl Beside<'_> {
    fn lacks(&self, key: &Key, upto: Lsn) -> bool {
        let lacks = |source: &dyn VersionSource| {
            let mut lacks = true;
            source
                .newest_first(key, Window::upto(upto), &mut |_| {
                    lacks = false;
                    ControlFlow::Break(())
                })
                .expect("readable");
            lacks
        };
        let is_input = |file: &&Arc<File>| self.inputs.iter().any(|it| Arc::ptr_eq(it, file));
        let mut files = self.timeline.map.iter().filter(|file| !is_input(file));
        files.all(|file| lacks(&*file.reader))
            && self.timeline.memory.iter().all(|layer| lacks(&**layer))
    }
}

impl Facts<LayerError> for Beside<'_> {
    fn floor(&mut self, _: &Key) -> Result<Lsn, LayerError> {
        Ok(Lsn::INVALID)
    }

    fn is_needless(&mut self, key: &Key, version: &Version) -> Result<bool, LayerError> {
        Ok(version.value == Value::Tombstone && self.lacks(key, version.lsn))
    }
}

/// Merges the layers chosen by the bits of `choice`; with `keep_inputs` they stay, as after a crash.
fn merge(timeline: &mut Timeline, choice: u64, retention: &Retention, keep_inputs: bool) {
    let files = timeline.map.iter().enumerate();
    let inputs: Vec<_> = files
        .filter(|(at, _)| choice >> (at % 64) & 1 == 1)
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
        &mut Beside {
            timeline,
            inputs: &inputs,
        },
        |desc, bytes| {
            outputs.push(File::new((desc, bytes)));
            Ok::<(), LayerError>(())
        },
    )
    .expect("merged");
    let names: Vec<_> = inputs.iter().map(|file| file.desc.name()).collect();
    let gone = if keep_inputs { &[][..] } else { &names };
    timeline.map = timeline.map.with(outputs, gone);
}

/// A key that does not exist reads alike whether a tombstone says so or nothing does.
fn without_tombstone(mut chain: Chain) -> Chain {
    chain.base.take_if(|(_, base)| *base == Base::Tombstone);
    chain
}

fn check(timeline: &Timeline, readable: &BTreeSet<Lsn>) {
    for (lsn, number) in readable
        .iter()
        .flat_map(|lsn| (0..KEYS).map(move |it| (lsn, it)))
    {
        let (key, window) = (key(number), Window::upto(*lsn));
        let expected = without_tombstone(expected_chain(&timeline.model, key, window));
        let found = without_tombstone(collect(&timeline.view(), key, window).expect("read"));
        assert_eq!(found, expected, "{key} in {window:?}");
    }
}

/// The oldest versions of keys that are tombstones, of those keys that are no pages, up to the horizon.
fn needless(timeline: &Timeline, horizon: Lsn) -> usize {
    let oldest = |number: &u32| {
        let all = Window::upto(Lsn::MAX);
        let found = layers::history(&timeline.view(), key(*number), all).expect("read");
        let oldest = found.into_iter().next();
        oldest.is_some_and(|it| it.lsn <= horizon && it.value == Value::Tombstone)
    };
    (0..KEYS)
        .filter(|number| !key(*number).is_page())
        .filter(oldest)
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_read_misses_a_tombstone_that_is_gone(
        operations in prop::collection::vec(operation(), 5..60),
        ends in prop::collection::vec((KEYS - 2..KEYS, 0..60_usize), 0..6),
        points in prop::collection::vec(0..60_usize, 0..3),
        steps in prop::collection::vec((0..60_usize, any::<u64>(), prop::bool::weighted(0.2)), 1..6),
    ) {
        let mut timeline = Timeline::new(Lsn(1000));
        for (at, operation) in operations.iter().enumerate() {
            timeline.apply(operation);
            // Metadata that comes and goes, more often than the operations have it.
            for (number, _) in ends.iter().filter(|(_, when)| *when == at) {
                timeline.apply(&Operation::Record(vec![(*number, 2)]));
                timeline.apply(&Operation::Flush);
                timeline.apply(&Operation::Record(vec![(*number, 3)]));
            }
        }
        timeline.apply(&Operation::Flush);
        let record = |number: usize| timeline.records[number % timeline.records.len()];
        let points: BTreeSet<Lsn> = points.iter().map(|at| record(*at)).collect();
        let mut steps: Vec<(Lsn, u64, bool)> =
            steps.iter().map(|(at, choice, keep)| (record(*at), *choice, *keep)).collect();
        steps.sort_unstable();
        let (last, ..) = steps[steps.len() - 1];
        // The whole merged twice: an input that a crash left is gone then.
        steps.extend([(last, u64::MAX, false); 2]);
        for (horizon, choice, keep_inputs) in steps {
            let retention = Retention::new(horizon, points.iter().copied());
            merge(&mut timeline, choice, &retention, keep_inputs);
            let later = timeline.records.iter().filter(|lsn| **lsn >= horizon);
            let readable = later.chain(&points).copied().chain([Lsn::MAX]).collect();
            check(&timeline, &readable);
        }
        prop_assert_eq!(needless(&timeline, last), 0);
    }
}
