//! Redo makes what Postgres makes, for GiST, SP-GiST and BRIN indexes and for generic WAL: every record kind
//! that Postgres writes for them, compared after each record and with the files at the end.

mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pg_types::PgMajor;
use pg_types::wal::{info, rmgr};
use pg_types::{Key, page};
use support::recorded::{Recorded, assert_clean, with_damaged_copies};
use support::trees;
use wal_decode::{DecodedRecord, PageDelta, decode};
use wal_redo::oracle::{Report, op_name};
use wal_redo::{ClusterSettings, Page, apply};

/// Record kinds the workload must have redone at least once. Not there: GiST's `PAGE_REUSE` and `ASSIGN_LSN`,
/// which change no page; the second is not written with the WAL level that Weir needs.
const EXPECTED: &[(u8, u8)] = &[
    (rmgr::GIST, info::gist::PAGE_UPDATE),
    (rmgr::GIST, info::gist::DELETE),
    (rmgr::GIST, info::gist::PAGE_SPLIT),
    (rmgr::GIST, info::gist::PAGE_DELETE),
    (rmgr::SPGIST, info::spgist::ADD_LEAF),
    (rmgr::SPGIST, info::spgist::MOVE_LEAFS),
    (rmgr::SPGIST, info::spgist::ADD_NODE),
    (rmgr::SPGIST, info::spgist::SPLIT_TUPLE),
    (rmgr::SPGIST, info::spgist::PICKSPLIT),
    (rmgr::SPGIST, info::spgist::VACUUM_LEAF),
    (rmgr::SPGIST, info::spgist::VACUUM_ROOT),
    (rmgr::SPGIST, info::spgist::VACUUM_REDIRECT),
    (rmgr::BRIN, info::brin::CREATE_INDEX),
    (rmgr::BRIN, info::brin::INSERT),
    (rmgr::BRIN, info::brin::UPDATE),
    (rmgr::BRIN, info::brin::SAMEPAGE_UPDATE),
    (rmgr::BRIN, info::brin::REVMAP_EXTEND),
    (rmgr::BRIN, info::brin::DESUMMARIZE),
    (rmgr::GENERIC, 0),
];

fn assert_complete(report: &Report) {
    let missing: Vec<String> = EXPECTED
        .iter()
        .filter(|(rmid, op)| report.of(*rmid, *op).redone == 0)
        .map(|(rmid, op)| op_name(PgMajor::V15, *rmid, *op))
        .collect();
    assert!(
        missing.is_empty(),
        "the workload made none of {missing:?}\n{report}"
    );
    assert!(
        report.of(rmgr::GIST, info::gist::PAGE_REUSE).records > 0,
        "no deleted GiST page was used again\n{report}"
    );
}

/// Promise: with page images off, redo of every record kind of these resource managers gives what Postgres
/// has, after each record and at the end.
#[test]
fn trees_and_ranges_are_what_postgres_has_without_page_images() {
    let settings = format!(
        "{}full_page_writes = off\nwal_compression = lz4\n",
        trees::SETTINGS
    );
    let recorded = Recorded::run(&settings, false, |cluster| trees::run(cluster, 60));
    let seen = Rc::new(RefCell::new(BTreeMap::new()));
    let counts = Rc::clone(&seen);
    let report = recorded.replay(Some(Box::new(move |delta, key, page| {
        if let Some(rec) = record_of(delta) {
            for (name, _) in VARIANTS.iter().filter(|(_, is_so)| is_so(&rec)) {
                *counts.borrow_mut().entry(*name).or_insert(0u32) += 1;
            }
        }
        apply(delta, key, page)
    })));
    assert_clean(&report);
    assert_complete(&report);
    println!("{:#?}", seen.borrow());
    let seen = seen.borrow();
    let missing = VARIANTS.iter().filter(|(name, _)| !seen.contains_key(name));
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    assert!(missing.is_empty(), "the workload made none of {missing:?}");
}

type Variant = (&'static str, fn(&DecodedRecord<'_>) -> bool);

/// A byte of the main data of an SP-GiST record of this kind.
fn sp(rec: &DecodedRecord<'_>, op: u8, at: usize) -> Option<u8> {
    is(rec, rmgr::SPGIST, op)
        .then(|| rec.main_data.get(at).copied())
        .flatten()
}

/// Ways through redo that a record's fields choose between; the workload must take each of them.
const VARIANTS: &[Variant] = &[
    ("GiST: one tuple for another", |rec| {
        is(rec, rmgr::GIST, info::gist::PAGE_UPDATE) && rec.main_data[..4] == [1, 0, 1, 0]
    }),
    ("GiST: an insertion ends a split", |rec| {
        is(rec, rmgr::GIST, info::gist::PAGE_UPDATE) && rec.block(1).is_some()
    }),
    ("GiST: a split ends a split", |rec| {
        is(rec, rmgr::GIST, info::gist::PAGE_SPLIT) && rec.block(0).is_some()
    }),
    ("GiST: the root splits", |rec| {
        is(rec, rmgr::GIST, info::gist::PAGE_SPLIT)
            && rec.block(1).is_some_and(|first| first.blkno == 0)
    }),
    ("GiST: a page splits in three", |rec| {
        let is_root = rec.block(1).is_some_and(|first| first.blkno == 0);
        let last = if is_root { 4 } else { 3 };
        is(rec, rmgr::GIST, info::gist::PAGE_SPLIT) && rec.block(last).is_some()
    }),
    ("leaf on a new page", |rec| {
        sp(rec, info::spgist::ADD_LEAF, 0) == Some(1)
    }),
    ("leaf in the nulls tree", |rec| {
        sp(rec, info::spgist::ADD_LEAF, 1) == Some(1)
    }),
    ("leaf for a dead one", |rec| {
        is(rec, rmgr::SPGIST, info::spgist::ADD_LEAF) && rec.main_data[2..4] == rec.main_data[4..6]
    }),
    ("leaf at the head of a chain", |rec| {
        is(rec, rmgr::SPGIST, info::spgist::ADD_LEAF) && rec.main_data[4..6] == [0, 0]
    }),
    ("leafs moved to a new page", |rec| {
        sp(rec, info::spgist::MOVE_LEAFS, 2) == Some(1)
    }),
    ("node added in place", |rec| {
        is(rec, rmgr::SPGIST, info::spgist::ADD_NODE) && rec.block(1).is_none()
    }),
    ("node added, the parent elsewhere", |rec| {
        sp(rec, info::spgist::ADD_NODE, 5) == Some(2)
    }),
    ("node added on a new page", |rec| {
        sp(rec, info::spgist::ADD_NODE, 4) == Some(1)
    }),
    ("prefix split on one page", |rec| {
        sp(rec, info::spgist::SPLIT_TUPLE, 5) == Some(1)
    }),
    ("pick split of the root", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 0) == Some(1)
    }),
    ("pick split of a new page", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 6) == Some(1)
    }),
    ("pick split with a new destination", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 7) == Some(1)
    }),
    ("pick split with a new inner page", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 10) == Some(1)
    }),
    ("pick split in the nulls tree", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 11) == Some(1)
    }),
    ("pick split, the inner page is the parent's", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 12) == Some(1)
    }),
    ("pick split, the parent elsewhere", |rec| {
        is(rec, rmgr::SPGIST, info::spgist::PICKSPLIT) && rec.block(3).is_some()
    }),
    ("vacuum leaves a dead tuple", |rec| {
        sp(rec, info::spgist::VACUUM_LEAF, 0).is_some_and(|dead| dead > 0)
    }),
    ("vacuum moves the next of a chain to its head", |rec| {
        sp(rec, info::spgist::VACUUM_LEAF, 4).is_some_and(|moved| moved > 0)
    }),
    ("vacuum mends a chain", |rec| {
        sp(rec, info::spgist::VACUUM_LEAF, 6).is_some_and(|mended| mended > 0)
    }),
    ("vacuum makes redirects placeholders", |rec| {
        sp(rec, info::spgist::VACUUM_REDIRECT, 0).is_some_and(|redirects| redirects > 0)
    }),
    ("vacuum cuts placeholders off", |rec| {
        sp(rec, info::spgist::VACUUM_REDIRECT, 2).is_some_and(|first| first > 0)
    }),
    ("summary on a new page", |rec| {
        is(rec, rmgr::BRIN, info::brin::INSERT) && rec.op() & info::brin::INIT_PAGE != 0
    }),
    ("summary moved to a new page", |rec| {
        is(rec, rmgr::BRIN, info::brin::UPDATE) && rec.op() & info::brin::INIT_PAGE != 0
    }),
];

/// Promise: the same with page images on, which GiST needs completed; damaged records and pages never make
/// redo panic; and planted bugs are found.
#[test]
fn trees_and_ranges_with_page_images_too_and_planted_bugs_are_found() {
    let settings = format!(
        "{}full_page_writes = on\nwal_log_hints = on\nwal_compression = zstd\ncheckpoint_timeout = 30s\n",
        trees::SETTINGS
    );
    let recorded = Recorded::run(&settings, true, |cluster| trees::run(cluster, 30));
    assert_clean(&recorded.replay(Some(with_damaged_copies(recorded.settings))));

    // All at once: after a mismatch the page goes on as Postgres has it, so each is found where it was made.
    let report = recorded.replay(Some(Box::new(|delta, key, page| {
        let before = *page;
        let settings = ClusterSettings {
            hint_bits_logged: true,
            ..ClusterSettings::default()
        };
        wal_redo::apply_with(settings, delta, key, page)?;
        if let Some(rec) = record_of(delta) {
            for (_, (rmid, op), spoil) in BUGS {
                if is(&rec, *rmid, *op) {
                    spoil(&rec, key, page);
                }
            }
            // A split is left open: nothing that Postgres's own rules see.
            let is_left = rec.block(1).is_some_and(|left| left.blkno == key.e);
            if is(&rec, rmgr::GIST, info::gist::PAGE_UPDATE) && is_left {
                *page = before;
                page::set_lsn(page, rec.end_lsn);
            }
        }
        Ok(())
    })));
    for (what, (rmid, op), _) in BUGS {
        let found = report.of(*rmid, *op).mismatched;
        assert!(found > 0, "not found: {what}\n{report}");
    }
    let wrong = report.ops().filter(|(_, op)| op.mismatched > 0).count();
    assert_eq!(wrong, BUGS.len(), "found elsewhere as well\n{report}");
    let updates = report.of(rmgr::GIST, info::gist::PAGE_UPDATE);
    assert!(
        updates.mismatched == 0 && updates.tight_mismatched > 0,
        "only the tight rules see a split left open\n{report}"
    );
}

type Spoil = fn(&DecodedRecord<'_>, Key, &mut Page);

/// What is wrong, the record kind it is done and must be found at, and how to do it to a page that was redone
/// right.
const BUGS: &[(&str, (u8, u8), Spoil)] = &[
    (
        "the right half of a split is lost",
        (rmgr::GIST, info::gist::PAGE_SPLIT),
        |rec, key, page| {
            if rec.block(2).is_some_and(|right| right.blkno == key.e) {
                *page = [0; 8192];
            }
        },
    ),
    (
        "a deleted page does not say so",
        (rmgr::GIST, info::gist::PAGE_DELETE),
        |rec, key, page| {
            if rec.block(0).is_some_and(|leaf| leaf.blkno == key.e) {
                page[8188] &= !2;
            }
        },
    ),
    (
        "a redirect leads to the wrong place",
        (rmgr::SPGIST, info::spgist::MOVE_LEAFS),
        |rec, key, page| {
            if rec.block(0).is_some_and(|source| source.blkno == key.e) {
                let upper = page::upper(page);
                page[upper + 10] ^= 1;
            }
        },
    ),
    (
        "placeholders are not counted",
        (rmgr::SPGIST, info::spgist::VACUUM_LEAF),
        |_, _, page| page[8188] ^= 1,
    ),
    (
        "the range map's entries are one too far",
        (rmgr::BRIN, info::brin::INSERT),
        |rec, key, page| {
            if rec.block(1).is_some_and(|map| map.blkno == key.e) {
                page[24..8184].rotate_right(6);
            }
        },
    ),
    (
        "a byte of a generic record goes astray",
        (rmgr::GENERIC, 0),
        |_, _, page| page[8000] ^= 1,
    ),
];

fn record_of(delta: &PageDelta) -> Option<DecodedRecord<'_>> {
    match delta {
        PageDelta::Record {
            end_lsn, record, ..
        } => Some(decode(*end_lsn, *end_lsn, record).expect("redo has decoded it")),
        _ => None,
    }
}

fn is(rec: &DecodedRecord<'_>, rmid: u8, op: u8) -> bool {
    let bits = if rmid == rmgr::BRIN {
        rec.op() & info::brin::OP_MASK
    } else {
        rec.op()
    };
    rec.rmid == rmid && bits == op
}
