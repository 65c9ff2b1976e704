//! The hot path allocates nothing: from the bytes of a record to the changed page, whatever the kind of record.
//!
//! What may: records that change what exists (a dropped relation, say), which are rare, and those whose parts do not
//! fit on the stack: references to more than four blocks, more than 64 transactions that end at once.

mod support;

use std::collections::{BTreeMap, HashMap};

use pg_types::wal::rmgr;
use pg_types::{BLCKSZ, Key, PgMajor};
use support::cluster::Cluster;
use support::{files, workload};
use wal_decode::{
    InterpretError, MetaChange, PageStep, Sink, TimelineState, decode, interpret_into,
};
use wal_redo::oracle::op_name;
use wal_redo::{ClusterSettings, Page, RedoError, apply_step};

const SETTINGS: &str = "
fsync = off
wal_level = replica
wal_keep_size = 8GB
max_wal_size = 8GB
full_page_writes = on
wal_compression = zstd
track_commit_timestamp = on
max_prepared_transactions = 5
max_connections = 20
autovacuum_naptime = 1s
";

const INDEXES: &str = "
CREATE TABLE shapes (id int, spot point, words text[], code text);
CREATE INDEX shapes_hash ON shapes USING hash (id);
CREATE INDEX shapes_gin ON shapes USING gin (words);
CREATE INDEX shapes_gist ON shapes USING gist (spot);
CREATE INDEX shapes_spgist ON shapes USING spgist (spot);
CREATE INDEX shapes_brin ON shapes USING brin (id) WITH (pages_per_range = 1);
INSERT INTO shapes SELECT i, point(i % 97, i % 89), ARRAY['w' || i % 300, 'x' || i % 7], 'c' || i
  FROM generate_series(1, 6000) i;
DELETE FROM shapes WHERE id % 3 = 0;
VACUUM shapes;
INSERT INTO shapes SELECT i, point(i % 97, i % 89), ARRAY['y' || i % 300], 'd' || i FROM generate_series(1, 2000) i;
";

/// Applies every change to its page; pages not known yet come into being.
struct Redo {
    settings: ClusterSettings,
    pages: HashMap<Key, Box<Page>>,
    meta: usize,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Interpret(#[from] InterpretError),
    #[error(transparent)]
    Redo(#[from] RedoError),
}

impl Sink for Redo {
    type Error = Failed;

    fn meta(&mut self, _: MetaChange) -> Result<(), Failed> {
        self.meta += 1;
        Ok(())
    }

    fn page(&mut self, key: Key, step: PageStep<'_, '_>) -> Result<(), Failed> {
        let page = self
            .pages
            .entry(key)
            .or_insert_with(|| Box::new([0; BLCKSZ]));
        Ok(apply_step(self.settings, step, key, page)?)
    }
}

/// Promise: decoding, interpreting and redoing a record allocates nothing.
#[test]
fn no_record_allocates_on_its_way_to_the_page() {
    let mut cluster = Cluster::init(SETTINGS);
    let mut pages: HashMap<Key, Box<Page>> = HashMap::new();
    let keep = |key, page: &Page| {
        pages.insert(key, Box::new(*page));
    };
    files::for_each_page(&cluster.data(), keep).expect("read the new cluster");
    let begin = TimelineState::from_control_file(&cluster.control(), PgMajor::V15);
    cluster.start();
    workload::run(&cluster, 20);
    cluster.sql(INDEXES);
    cluster.stop();

    let start = pg_types::wal::next_record_start(begin.last_record_lsn);
    let pg_wal = cluster.data().join("pg_wal");
    let mut redo = Redo {
        settings: ClusterSettings::default(),
        pages: pages.clone(),
        meta: 0,
    };
    let mut counted: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    // The first pass makes the pages there are, the second counts.
    for counts in [false, true] {
        for (key, page) in &mut redo.pages {
            match pages.get(key) {
                Some(before) => page.copy_from_slice(&before[..]),
                None => page.fill(0),
            }
        }
        let mut state = begin;
        files::for_each_record(&pg_wal, PgMajor::V15, Some(start), |raw| {
            let (meta_before, mut fits) = (redo.meta, true);
            let mut result = Ok(());
            let mut kind = (0, 0);
            let allocated = allocation_counter::measure(|| {
                let record = decode(raw.start_lsn, raw.end_lsn, raw.bytes).expect("a record");
                kind = (record.rmid, record.op());
                let xids = match record.rmid {
                    rmgr::XACT => record.main_data.len() / 4,
                    _ => 0,
                };
                fits = record.blocks.len() <= 4 && xids <= 64;
                result = interpret_into(&record, &state, &mut redo);
                state.observe(&record).expect("a record");
            });
            result.unwrap_or_else(|error| panic!("{}: {error}", raw.start_lsn));
            if counts && redo.meta == meta_before && fits {
                let mask = if kind.0 == rmgr::HEAP { 0x70 } else { 0xF0 };
                let name = op_name(PgMajor::V15, kind.0, kind.1 & mask);
                let (records, allocations) = counted.entry(name).or_default();
                *records += 1;
                *allocations += allocated.count_total;
            }
            Ok(())
        })
        .expect("replay the WAL");
    }
    let records: u64 = counted.values().map(|(records, _)| records).sum();
    assert!(records > 10_000, "{records} records are too few");
    assert!(counted.len() > 40, "too few kinds: {counted:?}");
    counted.retain(|_, (_, allocations)| *allocations > 0);
    assert!(counted.is_empty(), "(records, allocations) of {counted:?}");
}
