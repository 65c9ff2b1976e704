//! What Postgres wrote is decoded to the last byte, agrees with `pg_waldump`, and its effect on SLRUs, relation
//! maps, two-phase files and counters is what Postgres itself left on disk.

mod support;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use pg_types::slru::segment_of;
use pg_types::v15::{ControlFile, image};
use pg_types::wal::{info, rmgr, stored_crc};
use pg_types::{BLCKSZ, Key, Lsn, PgMajor, SlruKind};
use support::Cluster;
use support::model::{Model, slru_pages};
use support::wal::{OwnedRecord, read_wal};
use wal_decode::{
    DecodedRecord, PageChange, PageDelta, TimelineState, WalStats, decode, interpret, pack, unpack,
};

const SETTINGS: &str = "
fsync = off
statement_timeout = 60s
wal_level = replica
wal_keep_size = 2GB
max_wal_size = 4GB
max_prepared_transactions = 5
autovacuum = off
wal_compression = lz4
";

const WORKLOAD: &str = "
CREATE TABLE t (id int PRIMARY KEY, v int, filler text);;
INSERT INTO t SELECT i, 0, repeat('x', 100) FROM generate_series(1, 3000) i;;
CREATE TABLE wide (id int, big text);;
INSERT INTO wide SELECT i, string_agg(md5(i::text || j::text), '') FROM generate_series(1, 20) i, generate_series(1, 200) j GROUP BY i;;
VACUUM (FREEZE) t;;
UPDATE t SET v = v + 1 WHERE id % 7 = 0;;
DELETE FROM t WHERE id > 2900;;
SELECT id FROM t WHERE id < 100 FOR UPDATE;;
VACUUM t;;
CREATE SEQUENCE s;; SELECT nextval('s') FROM generate_series(1, 100);;
DO $$ BEGIN FOR i IN 1..200 LOOP
  BEGIN INSERT INTO t VALUES (10000 + i, i, ''); IF i % 3 = 0 THEN RAISE EXCEPTION 'undo'; END IF;
  EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$;;
DO $$ BEGIN PERFORM 1 FROM t WHERE id <= 2200 FOR KEY SHARE; FOR i IN 1..2200 LOOP
  BEGIN UPDATE t SET v = i WHERE id = i; EXCEPTION WHEN unique_violation THEN NULL; END; END LOOP; END $$;;
DO $$ BEGIN FOR i IN 1..150 LOOP
  BEGIN PERFORM 1 FROM t WHERE id = 2500 FOR SHARE; EXCEPTION WHEN unique_violation THEN NULL; END; END LOOP; END $$;;
BEGIN; SAVEPOINT a; INSERT INTO t VALUES (20001, 1, ''); RELEASE a; INSERT INTO t VALUES (20002, 1, ''); PREPARE TRANSACTION 'kept';;
BEGIN; INSERT INTO t VALUES (20003, 1, ''); PREPARE TRANSACTION 'to commit';;
BEGIN; CREATE TABLE gone (i int); INSERT INTO gone VALUES (1); PREPARE TRANSACTION 'to abort';;
CHECKPOINT;;
COMMIT PREPARED 'to commit';; ROLLBACK PREPARED 'to abort';;
VACUUM FULL pg_class;; VACUUM FULL pg_database;;
CREATE DATABASE by_log STRATEGY wal_log;; CREATE DATABASE by_copy STRATEGY file_copy;; DROP DATABASE by_log;;
CREATE UNLOGGED TABLE u (i int PRIMARY KEY);; INSERT INTO u SELECT generate_series(1, 100);;
BEGIN; CREATE TABLE cut (i int); INSERT INTO cut SELECT generate_series(1, 1000); TRUNCATE cut; INSERT INTO cut VALUES (1); COMMIT;;
DELETE FROM t WHERE id BETWEEN 1500 AND 2900;; VACUUM t;;
DROP TABLE cut;;
SELECT pg_switch_wal();;
ALTER SYSTEM SET full_page_writes = off;; SELECT pg_reload_conf();;
";

/// What runs once page images are switched off; the checkpoint makes the switch certain to be logged.
const WORKLOAD_WITHOUT_IMAGES: &str = "
CHECKPOINT;; INSERT INTO t SELECT i, 0, '' FROM generate_series(30000, 32000) i;;
SELECT pg_create_restore_point('here');;
SELECT pg_logical_emit_message(true, 'weir', 'hello');;
CREATE TABLE copied AS SELECT i AS id, i % 13 AS v, repeat('x', 100) AS filler FROM generate_series(1, 3000) i;;
SET wal_compression = 'pglz';; CREATE INDEX packed_pglz ON copied (filler, v, id);;
SET wal_compression = 'lz4';; CREATE INDEX packed_lz4 ON copied (filler, v, id);;
SET wal_compression = 'zstd';; CREATE INDEX packed_zstd ON copied (filler, v, id);;
SET wal_compression = 'off';; CREATE INDEX packed_off ON copied (filler, v, id);;
";

/// Per resource manager, the sorted (count, bytes without images, image bytes) of its record kinds.
type Table = BTreeMap<String, Vec<(u64, u64, u64)>>;

fn waldump_table(cluster: &Cluster, start: Lsn, end: Lsn) -> Table {
    let pg_wal = cluster.data().join("pg_wal");
    let text = cluster.tool(
        "pg_waldump",
        &[
            "--stats=record",
            "-p",
            &pg_wal.to_string_lossy(),
            "-s",
            &start.to_string(),
            "-e",
            &end.to_string(),
        ],
    );
    let mut table = Table::new();
    for line in text
        .lines()
        .filter(|line| line.contains('/') && line.contains('(') && !line.starts_with("WAL"))
    {
        let (kind, figures) = line
            .split_once(char::is_whitespace)
            .expect("a kind and figures");
        let figures: Vec<u64> = figures
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let rmgr_name = kind
            .split('/')
            .next()
            .expect("a resource manager")
            .to_owned();
        table
            .entry(rmgr_name)
            .or_default()
            .push((figures[0], figures[1], figures[2]));
    }
    table.values_mut().for_each(|kinds| kinds.sort_unstable());
    table
}

fn our_table(records: &[OwnedRecord]) -> Table {
    let mut kinds: BTreeMap<(u8, u8), (u64, u64, u64)> = BTreeMap::new();
    for raw in records {
        let record = decode(raw.start_lsn, raw.end_lsn, &raw.bytes).expect("decode");
        let op = if record.rmid == rmgr::XACT {
            record.info & info::xact::OP_MASK
        } else {
            record.op()
        };
        let images: u64 = record
            .blocks
            .iter()
            .filter_map(|b| b.image)
            .map(|image| image.bytes.len() as u64)
            .sum();
        let kind = kinds.entry((record.rmid, op)).or_default();
        kind.0 += 1;
        kind.1 += raw.bytes.len() as u64 - images;
        kind.2 += images;
    }
    let mut table = Table::new();
    for ((rmid, _), figures) in kinds {
        table
            .entry(rmgr::name(rmid).to_owned())
            .or_default()
            .push(figures);
    }
    table.values_mut().for_each(|kinds| kinds.sort_unstable());
    table
}

#[test]
fn a_whole_workload_decodes_as_postgres_meant_it() {
    let mut cluster = Cluster::init(SETTINGS);
    let initial = cluster.control();
    let start = initial.checkpoint();
    let mut model = Model::import(&cluster);

    cluster.start();
    cluster.sql("CREATE TABLE early AS SELECT 1 AS i;;");
    cluster.stop();
    // Turning commit timestamps on makes their first page without logging it.
    cluster.configure("track_commit_timestamp = on\n");
    cluster.start();
    cluster.sql(WORKLOAD);
    // A session that sees the setting was forked after the checkpointer was told.
    let switched = (0..200).any(|_| {
        let off = cluster.sql("SHOW full_page_writes") == "off";
        if !off {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        off
    });
    assert!(switched, "the server took in the new configuration");
    cluster.sql(WORKLOAD_WITHOUT_IMAGES);
    let db: u32 = cluster
        .sql("SELECT oid FROM pg_database WHERE datname = 'postgres'")
        .parse()
        .expect("an oid");
    let packed: Vec<(u32, String)> = ["off", "pglz", "lz4", "zstd"]
        .map(|method| {
            let name = format!("packed_{method}");
            let found = cluster.sql(&format!(
                "SELECT relfilenode || ' ' || pg_relation_filepath(oid) FROM pg_class WHERE relname = '{name}'"
            ));
            let (node, path) = found.split_once(' ').expect("two columns");
            (node.parse().expect("a relfilenode"), path.to_owned())
        })
        .to_vec();
    cluster.stop();

    let records = read_wal(&cluster, start);
    let last = records.last().expect("records");
    let control = cluster.control();
    assert_eq!(
        last.start_lsn,
        control.checkpoint(),
        "the shutdown checkpoint is the last record"
    );
    assert_eq!(
        our_table(&records),
        waldump_table(&cluster, start, last.end_lsn)
    );

    let (state, stats) = interpret_all(&records, &initial, &mut model);
    check_counters(&state, &control);
    check_files(&cluster, &model, db);
    for (node, path) in packed {
        check_images(&cluster, &model, node, &path);
    }
    assert!(
        stats.commits > 20 && stats.aborts > 60,
        "{} commits, {} aborts",
        stats.commits,
        stats.aborts
    );
    let kinds: Vec<&str> = model.metas.keys().copied().collect();
    assert_eq!(
        kinds,
        [
            "copy database",
            "create database",
            "create rel",
            "drop database",
            "drop rels",
            "prepare",
            "prepared end",
            "relmap",
            "slru extend",
            "truncate rel"
        ],
        "the workload covers every change to what exists"
    );
}

/// Applies every record but the last (the final checkpoint) to the model; the state before the last.
fn interpret_all(
    records: &[OwnedRecord],
    initial: &ControlFile,
    model: &mut Model,
) -> (TimelineState, WalStats) {
    let mut state = TimelineState::from_control_file(initial, PgMajor::V15);
    let first = &records[0];
    assert_eq!(
        (state.prev_record_lsn, state.last_record_lsn),
        (first.start_lsn, first.end_lsn)
    );
    let mut stats = WalStats::default();
    let (mut switched_off, mut visibility_clears, mut compression) = (None, 0, 0);
    for raw in &records[..records.len() - 1] {
        let record = decode(raw.start_lsn, raw.end_lsn, &raw.bytes).expect("decode");
        let changes = interpret(&record, &state).unwrap_or_else(|error| panic!("{error}"));
        let mut keys: Vec<Key> = changes.pages.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(
            keys.len(),
            changes.pages.len(),
            "{}: one change for each key",
            raw.start_lsn
        );
        for (key, change) in &changes.pages {
            if let PageChange::Image(page) = change {
                let lsn = pg_types::page::lsn(page);
                assert!(
                    lsn == raw.end_lsn || pg_types::page::is_new(page),
                    "{key} at {}",
                    raw.start_lsn
                );
            }
            if let PageChange::Delta(PageDelta::Record { record: kept, .. }) = change {
                check_kept(&record, *key, kept);
            }
            if let PageChange::Delta(PageDelta::VisibilityMapClear { .. }) = change {
                visibility_clears += 1;
            }
            model.apply_page(*key, change);
        }
        let images = record.blocks.iter().filter_map(|block| block.image);
        compression |= images.fold(0, |seen, logged| {
            seen | (logged.info & image::COMPRESS_MASK)
        });
        changes
            .meta
            .iter()
            .for_each(|change| model.apply_meta(change));
        state.observe(&record).expect("observe");
        stats.add(&record.summary());
        if record.rmid == rmgr::XLOG && record.op() == info::xlog::FPW_CHANGE {
            switched_off = Some(record.start_lsn);
        }
    }
    assert!(
        visibility_clears > 10,
        "updates after a freeze clear visibility bits"
    );
    assert_eq!(
        compression,
        image::COMPRESS_MASK,
        "images of every compression were restored"
    );
    assert!(!state.full_page_writes);
    assert_eq!(Some(state.full_page_writes_lsn), switched_off);
    let total = stats.total();
    let bytes: u64 = records[..records.len() - 1]
        .iter()
        .map(|raw| raw.bytes.len() as u64)
        .sum();
    assert_eq!(total.image_bytes + total.rest_bytes, bytes);
    (state, stats)
}

/// The record kept for one page is a record that lost only what other pages, and the stream, need.
fn check_kept(record: &DecodedRecord<'_>, key: Key, kept: &Bytes) {
    assert_eq!(stored_crc(kept), 0);
    let (mut packed, mut unpacked) = (BytesMut::new(), Vec::new());
    assert!(pack(&mut packed, &key, false, kept), "Postgres wrote it");
    assert!(packed.len() + 16 < kept.len());
    assert_eq!(unpack(&key, &packed, &mut unpacked), Ok(true));
    assert_eq!(unpacked, *kept, "as redo gets it");
    let again = decode(record.start_lsn, record.end_lsn, kept).expect("a kept record decodes");
    assert_eq!(again.prev_lsn, Lsn::INVALID);
    assert_eq!(
        (again.rmid, again.info, again.xid),
        (record.rmid, record.info, record.xid)
    );
    assert_eq!(again.main_data, record.main_data);
    assert_eq!(again.blocks.len(), record.blocks.len());
    for (ours, theirs) in again.blocks.iter().zip(&record.blocks) {
        assert_eq!(
            (ours.id, ours.rel, ours.blkno, ours.will_init),
            (theirs.id, theirs.rel, theirs.blkno, theirs.will_init)
        );
        assert!(ours.image.is_none());
        let own = Key::rel_block(ours.rel, ours.blkno) == key;
        assert_eq!(ours.data, if own { theirs.data } else { &[] });
    }
}

/// What was gathered from the records is what Postgres then checkpointed.
fn check_counters(state: &TimelineState, control: &ControlFile) {
    let expected = control.checkpoint_copy();
    let mut found = state.checkpoint_at(expected.redo, expected.time);
    // Oids are logged ahead in batches; a clean stop gives the unused ones back.
    let ahead = found.next_oid - expected.next_oid;
    assert!(ahead <= 8192, "{} oids ahead", ahead);
    found.next_oid = expected.next_oid;
    assert_eq!(found, expected);
    assert_eq!(state.parameters, control.parameters());
}

fn check_files(cluster: &Cluster, model: &Model, db: u32) {
    for kind in SlruKind::ALL {
        let on_disk: BTreeMap<u32, Vec<u8>> = slru_pages(cluster, kind).into_iter().collect();
        let ours: BTreeMap<u32, &Vec<u8>> = model
            .slru
            .iter()
            .filter(|((k, _), _)| *k == kind)
            .map(|((_, page), bytes)| (*page, bytes))
            .collect();
        let pages: Vec<&u32> = on_disk.keys().collect();
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            pages,
            "pages of {}",
            kind.directory()
        );
        for (page, bytes) in &on_disk {
            let differs = bytes.iter().zip(ours[page]).position(|(a, b)| a != b);
            assert_eq!(
                differs,
                None,
                "{} page {page}, segment {}",
                kind.directory(),
                segment_of(*page)
            );
        }
    }
    let pages_of = |kind| model.slru.keys().filter(|(k, _)| *k == kind).count();
    assert!(
        pages_of(SlruKind::MultixactOffsets) > 1,
        "the workload crosses a multixact offsets page"
    );
    assert!(
        pages_of(SlruKind::MultixactMembers) > 1,
        "the workload crosses a multixact members page"
    );

    assert_eq!(
        model.relmaps[&(1663, db)],
        cluster.read(format!("base/{db}/pg_filenode.map"))
    );
    assert_eq!(
        model.relmaps[&(1664, 0)],
        cluster.read("global/pg_filenode.map")
    );

    let files = cluster.list("pg_twophase");
    let ours: Vec<String> = model
        .two_phase
        .keys()
        .map(|xid| format!("{xid:08X}"))
        .collect();
    assert_eq!(files, ours);
    for (xid, content) in &model.two_phase {
        assert_eq!(content, &cluster.read(format!("pg_twophase/{xid:08X}")));
    }
    assert_eq!(files.len(), 1);
}

/// A freshly built index is what its page images say, however they were compressed.
fn check_images(cluster: &Cluster, model: &Model, node: u32, path: &str) {
    let file = cluster.read(path);
    let images: Vec<&Bytes> = model
        .images
        .iter()
        .filter(|(key, _)| key.c == node && key.d == 0)
        .map(|(_, i)| i)
        .collect();
    assert!(images.len() > 10, "{path} has {} pages", images.len());
    assert_eq!(
        images.len(),
        file.len() / BLCKSZ,
        "every page of {path} was logged"
    );
    for (blkno, (page, image)) in file.chunks(BLCKSZ).zip(images).enumerate() {
        // An index build leaves stale bytes in a page's hole; images come without it.
        let hole = pg_types::page::lower(image)..pg_types::page::upper(image);
        assert!(
            page[..hole.start] == image[..hole.start],
            "{path} block {blkno} differs before its hole"
        );
        assert!(
            page[hole.end..] == image[hole.end..],
            "{path} block {blkno} differs behind its hole"
        );
        assert!(
            image[hole].iter().all(|byte| *byte == 0),
            "the hole is zero"
        );
    }
}
