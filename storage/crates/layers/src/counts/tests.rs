use bytes::Bytes;
use pg_types::{ForkNumber, RelTag};

use super::*;
use crate::value::Value;

fn page(number: u32) -> Key {
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16384,
        fork: ForkNumber::Main,
    };
    Key::rel_block(rel, number)
}

fn delta() -> Value {
    Value::Delta {
        bytes: Bytes::new(),
        starts_chain: false,
    }
}

fn counts(lengths: &[u32]) -> ChainCounts {
    let mut counts = ChainCounts::new(3);
    for (number, length) in lengths.iter().enumerate() {
        for lsn in 1..=*length {
            counts.ingested(&page(number as u32), Lsn(lsn.into()), &delta());
        }
    }
    counts
}

#[test]
fn the_longest_chains_at_or_over_the_threshold_are_planned_within_the_budget() {
    let mut counts = counts(&[1, 5, 3, 2, 9, 4]);
    let planned = |counts: &ChainCounts, budget| -> Vec<u32> {
        let tasks = counts.plan(budget, false).into_iter();
        tasks.map(|task| task.key.e).collect()
    };
    let long = |counts: &ChainCounts| -> Vec<u32> {
        let tasks = counts.plan(10, true).into_iter();
        tasks.map(|task| task.key.e).collect()
    };
    assert_eq!(long(&counts), [4]);
    assert_eq!(planned(&counts, 10), [4, 1, 5, 2]);
    assert_eq!(planned(&counts, 2), [4, 1]);
    assert!(planned(&counts, 0).is_empty());
    counts.set_threshold(5);
    assert_eq!((planned(&counts, 10), counts.due()), (vec![4, 1], 2));
    assert!(long(&counts).is_empty());
    counts.set_threshold(1);
    assert_eq!((counts.due(), long(&counts)), (6, vec![4, 1, 5, 2]));
    counts.image_made(&page(1), Lsn(9), 5);
    assert_eq!(long(&counts), [4, 5, 2]);
    assert!(!counts.is_still_due(&page(1), false) && counts.is_still_due(&page(4), true));
}

#[test]
fn pages_that_are_not_there_are_forgotten_with_all_that_was_due() {
    let mut counts = counts(&[1, 5, 3, 9]);
    let clog = Key::slru_block(pg_types::SlruKind::Clog, 0);
    counts.ingested(&clog, Lsn(1), &delta());
    assert_eq!(counts.relations(), [page(0).rel().expect("a relation")]);
    counts.retain(|key| key.rel().is_none_or(|_| key.e < 2));
    assert_eq!((counts.pages(), counts.due(), counts.max()), (3, 1, 5));
    assert_eq!((counts.get(&page(3)), counts.get(&clog)), (0, 1));
}

#[test]
fn an_image_takes_off_what_it_covers_and_keeps_what_came_after() {
    let mut counts = counts(&[10]);
    counts.image_made(&page(0), Lsn(8), 8);
    assert_eq!(counts.get(&page(0)), 2);
    counts.image_made(&page(0), Lsn(5), 5);
    assert_eq!(
        counts.get(&page(0)),
        2,
        "an older image covers nothing that is still counted"
    );
    counts.image_made(&page(0), Lsn(10), 2);
    assert_eq!((counts.get(&page(0)), counts.pages()), (0, 0));
    counts.ingested(&page(0), Lsn(20), &delta());
    counts.image_made(&page(0), Lsn(15), 3);
    assert_eq!(
        counts.get(&page(0)),
        1,
        "an image from before the page's new start"
    );
}

#[test]
fn a_start_from_the_wal_resets_and_an_initialising_delta_counts_as_one() {
    let mut counts = counts(&[7, 7, 7]);
    counts.ingested(&page(0), Lsn(100), &Value::Image(Bytes::new()));
    counts.ingested(&page(1), Lsn(100), &Value::Zero);
    let init = Value::Delta {
        bytes: Bytes::new(),
        starts_chain: true,
    };
    counts.ingested(&page(2), Lsn(100), &init);
    assert_eq!([0, 1, 2].map(|n| counts.get(&page(n))), [0, 0, 1]);
    assert_eq!(counts.due(), 0);
}

#[test]
fn a_page_that_was_gone_keeps_what_was_put_since() {
    let mut counts = counts(&[7, 7]);
    for number in [0, 1] {
        counts.forget(&page(number), Lsn(6 + u64::from(number)));
    }
    assert_eq!([0, 1].map(|n| counts.get(&page(n))), [7, 0]);
    assert_eq!(counts.due(), 1);
}

#[test]
fn the_histogram_follows_every_change() {
    let mut counts = counts(&[1, 1, 2, 10]);
    assert_eq!(
        counts.histogram().collect::<Vec<_>>(),
        [(1, 2), (2, 1), (10, 1)]
    );
    assert_eq!(
        (
            counts.percentile(0.5),
            counts.percentile(0.99),
            counts.max()
        ),
        (1, 10, 10)
    );
    counts.observed(&page(0), Lsn(1), 6);
    counts.observed(&page(3), Lsn(10), 6);
    counts.forget(&page(1), Lsn(1));
    assert_eq!(
        counts.histogram().collect::<Vec<_>>(),
        [(2, 1), (6, 1), (10, 1)]
    );
    assert_eq!(
        (
            ChainCounts::default().percentile(0.99),
            ChainCounts::default().max()
        ),
        (0, 0)
    );
}

/// Reads as the storage serves them: the page's whole chain each time.
fn read_all(counts: &mut ChainCounts, pages: &[u32], times: u32) {
    for _ in 0..times {
        for number in pages {
            let key = page(*number);
            counts.read(Lsn(u64::MAX / 2), [(key, counts.get(&key))]);
        }
    }
}

/// The storage makes every image that is due.
fn make_images(counts: &mut ChainCounts) -> Vec<(u32, u32)> {
    let made = counts.plan(usize::MAX, false);
    for task in &made {
        counts.image_made(&task.key, Lsn(u64::MAX / 2), task.deltas);
    }
    made.iter().map(|task| (task.key.e, task.deltas)).collect()
}

/// Promise: of pages written alike, those that are read get their images early, and the others not before the bound.
#[test]
fn adaptive_images_go_to_the_pages_that_are_read() {
    let bound = 512;
    let mut counts = ChainCounts::default();
    counts.set_rule(ImageRule::Adaptive { bound });
    let value = Value::Delta {
        bytes: Bytes::from(vec![0; 100]),
        starts_chain: false,
    };
    let mut made = Vec::new();
    for lsn in 1..=4000 {
        for number in 0..40 {
            counts.ingested(&page(number), Lsn(lsn), &value);
        }
        if lsn % 50 == 0 {
            let read: Vec<u32> = (0..4).collect();
            read_all(&mut counts, &read, 2);
        }
        made.extend(make_images(&mut counts));
        assert!(counts.max() < bound, "no chain is longer than the bound");
    }
    let of = |is_read: bool| made.iter().filter(move |(page, _)| (*page < 4) == is_read);
    let late = of(false);
    assert!(late.clone().all(|(_, deltas)| *deltas == bound), "{made:?}");
    assert!((36 * 5..=36 * 7).contains(&late.count()), "{made:?}");
    let early = of(true).filter(|(_, deltas)| *deltas <= 128).count();
    assert!(
        early >= 4 * 25,
        "{early} of {:?}",
        of(true).collect::<Vec<_>>()
    );
}

/// Promise: a change of the mode holds at once, in both directions, and what was learned in between is forgotten.
#[test]
fn the_rule_can_be_changed_at_any_time() {
    let mut counts = counts(&[5, 100, 200]);
    counts.set_rule(ImageRule::Adaptive { bound: 150 });
    assert_eq!((counts.threshold(), counts.due()), (150, 1));
    read_all(&mut counts, &[0, 1, 2], 50);
    assert_eq!(make_images(&mut counts), [(2, 200)]);
    counts.set_rule(ImageRule::Fixed(4));
    assert_eq!(counts.policy(), None);
    make_images(&mut counts);
    assert_eq!((counts.pages(), counts.due(), counts.max()), (0, 0, 0));
    assert!(
        counts.counts.is_empty(),
        "nothing is kept of pages without a chain"
    );
}

/// Promise: pages that got an image early are still weighed with the chain they would have had without it: first
/// reads of pages that were appended to and imaged in time do not make images look needless.
#[test]
fn an_early_image_does_not_hide_what_it_saves() {
    let mut counts = ChainCounts::default();
    counts.set_rule(ImageRule::Adaptive { bound: 512 });
    let value = Value::Delta {
        bytes: Bytes::from(vec![0; 1000]),
        starts_chain: false,
    };
    for number in 0..1000 {
        for lsn in 1..=70 {
            counts.ingested(&page(number), Lsn(lsn), &value);
        }
        make_images(&mut counts);
        if number % 50 == 49 {
            for first in (0..=number).step_by(10) {
                let read = (first..first + 10).map(page);
                let read: Vec<_> = read.map(|key| (key, counts.get(&key))).collect();
                counts.read(Lsn(1000), read);
            }
        }
    }
    let policy = counts.policy().expect("the adaptive rule");
    assert_eq!(
        policy.deltas_per_read, None,
        "most reads that replay are first reads: {policy:?}"
    );
    assert!(policy.chain <= 64, "{policy:?}");
}

/// Promise: what is kept of pages that have no chain now is bounded.
#[test]
fn what_is_known_of_pages_without_a_chain_is_let_go_of() {
    let mut counts = ChainCounts::default();
    counts.set_rule(ImageRule::Adaptive { bound: 8 });
    for number in 0..2 * IDLE_PAGES as u32 {
        counts.ingested(&page(number), Lsn(1), &delta());
        counts.read(Lsn(1), [(page(number), 1)]);
        counts.image_made(&page(number), Lsn(1), 1);
        // As ingest does between two pieces of WAL.
        if number.is_multiple_of(100) && counts.is_behind() {
            counts.catch_up();
            assert!(!counts.is_behind());
        }
        assert!(counts.counts.len() <= IDLE_PAGES + 100);
    }
    assert_eq!(counts.pages(), 0);
}

/// Promise: no report looks at very many pages or moves them, if the caller catches up between reports; and behind
/// that the pages are due that would have been at once.
#[test]
fn what_takes_time_for_all_pages_is_left_to_the_caller() {
    const PAGES: u32 = 150_000;
    let mut counts = ChainCounts::default();
    counts.set_rule(ImageRule::Adaptive { bound: 512 });
    let (mut grown, mut caught_up) = (0, 0);
    let report = |counts: &mut ChainCounts, from: u32, caught_up: &mut u32| {
        if counts.is_behind() {
            counts.catch_up();
            *caught_up += 1;
        }
        let before = (counts.counts.capacity(), counts.counts.len());
        for number in from..(from + 1000).min(PAGES) {
            counts.ingested(&page(number), Lsn(1), &delta());
        }
        before.0 != counts.counts.capacity() && before.1 > 1 << 15
    };
    for from in (0..PAGES).step_by(1000) {
        grown += u32::from(report(&mut counts, from, &mut caught_up));
    }
    assert_eq!(grown, 0, "a large table grew within a report");
    assert!((1..20).contains(&caught_up), "{caught_up}");
    assert_eq!(counts.pages(), PAGES as usize);

    // Reads of pages that are read again and again have the policy change.
    let hot = 64;
    let before = counts.policy();
    for lsn in 2..400 {
        for number in 0..hot {
            counts.ingested(&page(number), Lsn(lsn), &delta());
            counts.read(Lsn(lsn), [(page(number), lsn as u32)]);
        }
    }
    assert_ne!(counts.policy(), before, "a look is due");
    assert!(counts.is_behind());
    counts.catch_up();
    let found = (counts.due.clone(), counts.long.clone());
    counts.find_due();
    assert_eq!(found, (counts.due.clone(), counts.long.clone()));
    assert!(counts.due() > 0 && !counts.is_behind());
}

/// Promise: a new start of a page from the WAL takes its chain off, in either mode.
#[test]
fn a_start_from_the_wal_resets_what_the_adaptive_rule_counts() {
    let mut counts = ChainCounts::default();
    counts.set_rule(ImageRule::Adaptive { bound: 64 });
    // Of a page that is read.
    counts.read(Lsn(1), [(page(0), 1)]);
    for lsn in 1..=70 {
        counts.ingested(&page(0), Lsn(lsn), &delta());
    }
    assert_eq!(counts.due(), 1);
    counts.ingested(&page(0), Lsn(71), &Value::Image(Bytes::new()));
    assert_eq!((counts.due(), counts.get(&page(0))), (0, 0));
    for lsn in 72..=134 {
        counts.ingested(&page(0), Lsn(lsn), &delta());
    }
    assert_eq!((counts.due(), counts.get(&page(0))), (0, 63));
}
