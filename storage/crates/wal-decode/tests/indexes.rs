//! WAL that computes wrote while storage had no redo for some index kinds still reads: with
//! `wal_consistency_checking` for them every block comes with an image meant for comparison, and what a record
//! changes is the same as without. Nor do these images count as what `full_page_writes` costs.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use pg_types::wal::rmgr;
use pg_types::{Key, PgMajor};
use support::Cluster;
use support::wal::read_wal;
use wal_decode::{
    DecodedRecord, PageChange, PageDelta, TimelineState, WalStats, decode, interpret, strip_images,
};

const SETTINGS: &str = "
fsync = off
statement_timeout = 120s
wal_level = replica
wal_keep_size = 8GB
max_wal_size = 8GB
autovacuum = off
full_page_writes = off
wal_compression = lz4
gin_pending_list_limit = 64kB
wal_consistency_checking = 'hash,gin,gist,spgist,brin,generic'
";

/// An index of each kind, and changes of every sort that refer to several pages.
const WORK: &str = "
CREATE EXTENSION bloom;;
CREATE TABLE hashed (id int, v int);; CREATE INDEX ON hashed USING hash (v);;
CREATE TABLE words (id int, body tsvector);; CREATE INDEX ON words USING gin (body);;
CREATE TABLE places (id int, p point);; CREATE INDEX ON places USING gist (p);; CREATE INDEX ON places USING spgist (p);;
CREATE TABLE ranges (id int, t text) WITH (fillfactor = 10);; CREATE INDEX ON ranges USING brin (id) WITH (pages_per_range = 1);;
CREATE INDEX ON ranges USING bloom (id);;
INSERT INTO hashed SELECT i, i % 5 FROM generate_series(1, 4000) i;;
INSERT INTO words SELECT i, to_tsvector('simple', 'all w' || i % 7 || ' y' || i) FROM generate_series(1, 800) i;;
INSERT INTO places SELECT i, point(i * 7919 % 1000, i * 104729 % 1000) FROM generate_series(1, 2000) i;;
INSERT INTO ranges SELECT i, repeat('a', 90) FROM generate_series(1, 2000) i;; VACUUM ranges;;
DELETE FROM hashed WHERE id % 8 <> 0;; DELETE FROM words WHERE id % 3 = 0;; DELETE FROM places WHERE id < 1500;;
VACUUM hashed;; VACUUM words;; VACUUM places;;
";

const MANAGERS: [u8; 6] = [
    rmgr::HASH,
    rmgr::GIN,
    rmgr::GIST,
    rmgr::SPGIST,
    rmgr::BRIN,
    rmgr::GENERIC,
];

#[test]
fn images_for_comparison_change_nothing() {
    let mut cluster = Cluster::init(SETTINGS);
    let initial = cluster.control();
    cluster.start();
    cluster.sql(WORK);
    cluster.stop();

    let mut state = TimelineState::from_control_file(&initial, PgMajor::V15);
    let mut stats = WalStats::default();
    let mut compared: BTreeMap<&str, BTreeSet<u8>> = BTreeMap::new();
    for raw in &read_wal(&cluster, initial.checkpoint()) {
        let record = decode(raw.start_lsn, raw.end_lsn, &raw.bytes).expect("decode");
        if MANAGERS.contains(&record.rmid) {
            check_changes(&record, &state);
            let kinds = compared.entry(rmgr::name(record.rmid)).or_default();
            kinds.insert(record.op());
        }
        state.observe(&record).expect("observe");
        stats.add(&record.summary());
    }
    let kinds: usize = compared.values().map(BTreeSet::len).sum();
    assert!(
        compared.len() == MANAGERS.len() && kinds > 25,
        "{compared:?}"
    );
    check_stats(&stats);
}

/// Each block's change is the one of the same record without images.
fn check_changes(record: &DecodedRecord<'_>, state: &TimelineState) {
    let what = format!("{} {:#04x}", rmgr::name(record.rmid), record.op());
    let changes = interpret(record, state).unwrap_or_else(|error| panic!("{error}"));
    for block in &record.blocks {
        let image = block.image.expect("every block has an image");
        let key = Key::rel_block(block.rel, block.blkno);
        let change = changes.pages.iter().find(|(of, _)| *of == key);
        match change.map(|(_, change)| change) {
            Some(PageChange::Image(_)) => assert!(image.apply, "{what}: {key}"),
            Some(PageChange::Delta(PageDelta::Record { record: kept, .. })) => {
                assert!(!image.apply, "{what}: {key}");
                assert_eq!(kept, &strip_images(record, block.id), "{what}: {key}");
                let kept = decode(record.start_lsn, record.end_lsn, kept).expect("decode");
                assert!(kept.blocks.iter().all(|block| block.image.is_none()));
            }
            // The first page of a hash bucket, named to be locked.
            None => assert!(record.rmid == rmgr::HASH && block.id == 0, "{what}: {key}"),
            Some(other) => panic!("{what}: {key} becomes {other:?}"),
        }
    }
}

/// A switch that turns page images off must see none left. GIN and hash log some pages as images for recovery
/// whatever the settings.
fn check_stats(stats: &WalStats) {
    for name in ["SPGist", "BRIN", "Heap", "Btree"] {
        let (_, stats) = stats
            .by_rmgr()
            .find(|(rmgr, _)| *rmgr == name)
            .unwrap_or_else(|| panic!("no {name} records"));
        assert_eq!((stats.images, stats.image_bytes), (0, 0), "{name}");
        assert!(stats.rest_bytes > 0, "{name}");
    }
}
