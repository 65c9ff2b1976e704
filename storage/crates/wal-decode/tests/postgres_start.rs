//! `pg_control` is read and written as Postgres does, and Postgres starts from what is synthesised.

mod support;

use pg_types::v15::DbState;
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
use support::Cluster;
use support::wal::read_wal;
use wal_decode::TimelineState;
use wal_decode::synth::{shutdown_checkpoint, start_segments};

/// A compute starts with nothing but a data directory, a synthesised `pg_control` and a synthesised
/// checkpoint record at any place, and what it writes then continues the stream.
#[test]
fn postgres_starts_from_a_synthesised_checkpoint_around_page_and_segment_boundaries() {
    let mut cluster = Cluster::init("fsync = off\nwal_level = replica\nwal_keep_size = 2GB\n");
    cluster.start();
    cluster.sql("CREATE TABLE t (i int);;");
    cluster.stop();
    let page = XLOG_BLCKSZ;
    // Distances from the start of a segment still ahead.
    let places = [
        -2 * page as i64 - 8,
        -(page as i64),
        -(page as i64) + 24,
        -120,
        -64,
        -40,
        -8,
        0,
        40,
    ];
    for (i, distance) in places.into_iter().enumerate() {
        let mut control = cluster.control();
        let state = TimelineState::from_control_file(&control, PgMajor::V15);
        let next_segment = (state.last_record_lsn.0 / WAL_SEGMENT_BYTES + 2) * WAL_SEGMENT_BYTES;
        let at = Lsn(next_segment.wrapping_add_signed(distance));
        let redo = pg_types::wal::next_record_start(at);
        let checkpoint = state.checkpoint_at(redo, control.time());
        let record = shutdown_checkpoint(&checkpoint, state.prev_record_lsn);
        let (start, end, segments) =
            start_segments(&record, at, PgMajor::V15, 1, control.system_identifier());
        assert_eq!(start, redo);
        control.stop_at(&checkpoint, &state.parameters);
        cluster.remove_wal();
        cluster.write("global/pg_control", &control.to_bytes());
        for segment in segments {
            let mut file = segment.head;
            file.resize(WAL_SEGMENT_BYTES as usize, 0);
            cluster.write(
                &format!(
                    "pg_wal/{}",
                    segment.start.segment_file_name(WAL_SEGMENT_BYTES)
                ),
                &file,
            );
        }
        cluster.start();
        let rows = cluster.sql(&format!(
            "INSERT INTO t VALUES ({i});; SELECT count(*) FROM t;;"
        ));
        assert_eq!(
            rows,
            (i + 1).to_string(),
            "a start {distance} bytes from a segment boundary"
        );
        cluster.stop();
        let records = read_wal(&cluster, at);
        assert_eq!((records[0].start_lsn, records[0].end_lsn), (start, end));
        assert_eq!(records[0].bytes, record);
        assert_eq!(
            records.last().map(|last| last.start_lsn),
            Some(cluster.control().checkpoint())
        );
    }
}

#[test]
fn pg_control_reads_as_pg_controldata_prints_it_and_writes_back() {
    let mut cluster =
        Cluster::init("track_commit_timestamp = on\nmax_connections = 77\nwal_log_hints = on\n");
    cluster.start();
    cluster.sql("SELECT txid_current();; CHECKPOINT;;");
    cluster.stop();
    let control = cluster.control();
    let printed = cluster.tool("pg_controldata", &[&cluster.data().to_string_lossy()]);
    let field = |name: &str| {
        let line = printed
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name:?}"))
            .split_once(':')
            .expect("a value")
            .1
            .trim()
            .to_owned()
    };
    let c = control.checkpoint_copy();
    let p = control.parameters();
    let on_off = |on: bool| if on { "on" } else { "off" }.to_owned();
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    for (name, value) in [
        (
            "Database system identifier",
            control.system_identifier().to_string(),
        ),
        (
            "Catalog version number",
            control.catalog_version().to_string(),
        ),
        (
            "Latest checkpoint location",
            control.checkpoint().to_string(),
        ),
        ("Latest checkpoint's REDO location", c.redo.to_string()),
        ("Latest checkpoint's TimeLineID", c.this_tli.to_string()),
        ("Latest checkpoint's PrevTimeLineID", c.prev_tli.to_string()),
        (
            "Latest checkpoint's full_page_writes",
            on_off(c.full_page_writes),
        ),
        (
            "Latest checkpoint's NextXID",
            format!("{}:{}", c.next_xid >> 32, c.next_xid as u32),
        ),
        ("Latest checkpoint's NextOID", c.next_oid.to_string()),
        (
            "Latest checkpoint's NextMultiXactId",
            c.next_multi.to_string(),
        ),
        (
            "Latest checkpoint's NextMultiOffset",
            c.next_multi_offset.to_string(),
        ),
        ("Latest checkpoint's oldestXID", c.oldest_xid.to_string()),
        (
            "Latest checkpoint's oldestXID's DB",
            c.oldest_xid_db.to_string(),
        ),
        (
            "Latest checkpoint's oldestActiveXID",
            c.oldest_active_xid.to_string(),
        ),
        (
            "Latest checkpoint's oldestMultiXid",
            c.oldest_multi.to_string(),
        ),
        (
            "Latest checkpoint's oldestMulti's DB",
            c.oldest_multi_db.to_string(),
        ),
        (
            "Latest checkpoint's oldestCommitTsXid",
            c.oldest_commit_ts_xid.to_string(),
        ),
        (
            "Latest checkpoint's newestCommitTsXid",
            c.newest_commit_ts_xid.to_string(),
        ),
        (
            "Fake LSN counter for unlogged rels",
            control.unlogged_lsn().to_string(),
        ),
        (
            "Minimum recovery ending location",
            control.min_recovery_point().0.to_string(),
        ),
        (
            "Min recovery ending loc's timeline",
            control.min_recovery_point().1.to_string(),
        ),
        ("Backup start location", control.backup_start().to_string()),
        ("max_connections setting", p.max_connections.to_string()),
        (
            "max_worker_processes setting",
            p.max_worker_processes.to_string(),
        ),
        ("max_wal_senders setting", p.max_wal_senders.to_string()),
        (
            "max_prepared_xacts setting",
            p.max_prepared_xacts.to_string(),
        ),
        (
            "max_locks_per_xact setting",
            p.max_locks_per_xact.to_string(),
        ),
        (
            "wal_level setting",
            ["minimal", "replica", "logical"][p.wal_level as usize].to_owned(),
        ),
        ("wal_log_hints setting", on_off(p.wal_log_hints)),
        (
            "track_commit_timestamp setting",
            on_off(p.track_commit_timestamp),
        ),
        (
            "Data page checksum version",
            control.data_checksum_version().to_string(),
        ),
        ("End-of-backup record required", yes_no(false)),
    ] {
        assert_eq!(field(name), value, "{name}");
    }
    assert_eq!(
        (control.state(), field("Database cluster state")),
        (Some(DbState::ShutDown), "shut down".into())
    );
    assert_eq!(
        (p.max_connections, p.wal_log_hints, p.track_commit_timestamp),
        (77, true, true)
    );
    assert_eq!(
        control.to_bytes(),
        cluster.read("global/pg_control"),
        "written back byte for byte"
    );

    let mut again = control.clone();
    again.set_parameters(&p);
    again.set_checkpoint_copy(&c);
    again.stop_at(&c, &p);
    again.set_time(control.time());
    assert_eq!(again, control, "every field is written where it is read");
}
