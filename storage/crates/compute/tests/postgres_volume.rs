//! Promise: stock Postgres does everything on a volume that it does on a disk, while the volume is filled
//! lazily from a source that never changes, whether writes go through or back, and nothing of it is left behind.
//!
//! Needs /dev/fuse and the right to mount, as a compute does.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use compute::volume::mount::Mounted;
use compute::volume::{Volume, WriteMode};
use support::{Dir, PlainSource, Server, give, initdb, os_user};

struct Bench {
    // Fields drop in order: the server first, then the mount, then the files.
    server: Option<Server>,
    mounted: Option<Mounted>,
    data: PathBuf,
    socket: PathBuf,
    dir: Dir,
}

/// A cluster prepared by `prepare`, stopped, and then served lazily through a mount.
fn on_volume(writes: WriteMode, prepare: impl FnOnce(&Server)) -> Bench {
    let dir = Dir::new("weir-volume-");
    let origin = dir.make("origin");
    initdb(&origin);
    let socket = dir.make("sock");
    let server = Server::start(&origin, &socket, &[]).unwrap();
    prepare(&server);
    server.stop();

    let source = PlainSource {
        data: origin.clone(),
    };
    let volume = Volume::new(Arc::new(source), dir.make("cache"), 4096).unwrap();
    volume.writes().choose(writes);
    put_small_files(&volume, &origin);
    let mount = dir.make("volume");
    let (uid, gid) = os_user();
    let mounted = Mounted::new(Arc::new(volume), &mount, uid, gid).unwrap();

    let data = dir.make("data");
    copy_local_part(&origin, &data);
    for name in ["base", "global", "pg_xact", "pg_multixact", "pg_commit_ts"] {
        std::os::unix::fs::symlink(mount.join(name), data.join(name)).unwrap();
    }
    let server = Server::start(&data, &socket, &[]).unwrap();
    assert_eq!(mounted.volume().writes().mode(), writes);
    Bench {
        server: Some(server),
        mounted: Some(mounted),
        data,
        socket,
        dir,
    }
}

fn put_small_files(volume: &Volume, origin: &std::path::Path) {
    let put = |path: String| {
        let content = std::fs::read(origin.join(&path)).unwrap();
        volume.put_file(&path, &content).unwrap();
    };
    put("global/pg_control".to_owned());
    put("global/pg_filenode.map".to_owned());
    for entry in std::fs::read_dir(origin.join("base")).unwrap() {
        let db = entry.unwrap().file_name().into_string().unwrap();
        if db.parse::<u32>().is_err() {
            continue; // pgsql_tmp
        }
        put(format!("base/{db}/PG_VERSION"));
        put(format!("base/{db}/pg_filenode.map"));
    }
}

fn copy_local_part(origin: &std::path::Path, data: &std::path::Path) {
    let served = ["base", "global", "pg_xact", "pg_multixact", "pg_commit_ts"];
    for entry in std::fs::read_dir(origin).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !served.contains(&name.as_str()) {
            let status = std::process::Command::new("cp")
                .arg("-a")
                .arg(origin.join(&name))
                .arg(data)
                .status()
                .unwrap();
            assert!(status.success());
        }
    }
    give(data);
}

impl Bench {
    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn volume(&self) -> &Volume {
        self.mounted.as_ref().unwrap().volume()
    }
}

fn prepare(server: &Server) {
    server.run(
        "pgbench",
        &["--initialize", "--quiet", "--scale=2", "postgres"],
    );
    server.sql("CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY, t text)");
    server.sql("INSERT INTO unlogged SELECT n, 'before' FROM generate_series(1, 1000) n");
    server.sql("CREATE TABLE big AS SELECT n AS id, repeat('x', 400) AS t FROM generate_series(1, 20000) n");
    server.sql("CREATE TABLE old AS SELECT n AS id FROM generate_series(1, 5000) n");
    server.sql("CREATE DATABASE other");
    server.sql("CREATE EXTENSION amcheck");
}

const BALANCES: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

#[test]
fn postgres_works_on_a_volume_that_is_written_through() {
    postgres_works_on_a_lazily_filled_volume(WriteMode::Through);
}

#[test]
fn postgres_works_on_a_volume_that_is_written_back() {
    postgres_works_on_a_lazily_filled_volume(WriteMode::Back);
}

fn postgres_works_on_a_lazily_filled_volume(writes: WriteMode) {
    let mut bench = on_volume(writes, prepare);
    let fetched = bench.volume().stats().pages_fetched.load(Ordering::Relaxed);
    assert!(
        fetched < 600,
        "{fetched} pages were fetched to boot: only what is read should be"
    );
    reads_and_writes(&bench);
    databases(&bench);
    storage_changing_commands(&bench);

    // A clean restart on the same volume sees the same.
    let before = bench
        .server()
        .sql("SELECT md5(string_agg(t.*::text, ',' ORDER BY id)) FROM big t");
    bench.server.take().unwrap().stop();
    bench.server = Some(Server::start(&bench.data, &bench.socket, &[]).unwrap());
    let after = bench
        .server()
        .sql("SELECT md5(string_agg(t.*::text, ',' ORDER BY id)) FROM big t");
    assert_eq!(before, after);
    assert_eq!(bench.server().sql(BALANCES), "t");
    bench.server.take().unwrap().stop();

    let mount = bench.dir.path().join("volume");
    drop(bench.mounted.take());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(
        !mounts.contains(mount.to_str().unwrap()),
        "the volume is still mounted"
    );
    let failed = std::fs::read_dir(&mount).unwrap().count();
    assert_eq!(failed, 0, "the mount point is an empty directory again");
}

fn reads_and_writes(bench: &Bench) {
    let server = bench.server();
    assert_eq!(
        server.sql("SELECT count(*), sum(id) FROM big"),
        "20000|200010000"
    );
    // An unlogged table starts from its init fork, as after a crash.
    assert_eq!(server.sql("SELECT count(*) FROM unlogged"), "0");
    server.sql("INSERT INTO unlogged SELECT n, 'after' FROM generate_series(1, 10) n");
    assert_eq!(
        server.sql("SELECT count(*) FROM unlogged WHERE id > 5"),
        "5"
    );
    server.run(
        "pgbench",
        &[
            "--client=4",
            "--jobs=2",
            "--transactions=300",
            "--no-vacuum",
            "postgres",
        ],
    );
    assert_eq!(server.sql(BALANCES), "t");
    server.sql(
        "CREATE TEMP TABLE t AS SELECT * FROM big; UPDATE t SET t = 'y'; SELECT count(*) FROM t",
    );
    // A sort that spills goes to pgsql_tmp.
    server.sql("SET work_mem = '64kB'; SELECT count(*) FROM (SELECT t FROM big ORDER BY t, id DESC OFFSET 0) s");
}

fn databases(bench: &Bench) {
    let server = bench.server();
    for strategy in ["wal_log", "file_copy"] {
        server.sql(&format!(
            "CREATE DATABASE {strategy} STRATEGY {strategy} TEMPLATE other"
        ));
        server.sql_in(
            strategy,
            "CREATE TABLE t AS SELECT generate_series(1, 100) AS id",
        );
        assert_eq!(server.sql_in(strategy, "SELECT count(*) FROM t"), "100");
    }
    server.sql("DROP DATABASE file_copy");
    server.sql("DROP DATABASE other");
    assert!(server.try_sql("other", "SELECT 1").is_err());
    server.sql("CREATE DATABASE other TEMPLATE template0");
    assert_eq!(
        server.sql_in("other", "SELECT count(*) FROM pg_class WHERE relname = 't'"),
        "0"
    );
}

fn storage_changing_commands(bench: &Bench) {
    let server = bench.server();
    server.sql("VACUUM FULL pg_class");
    server.sql("VACUUM FULL big");
    server.sql("REINDEX SYSTEM postgres");
    assert_eq!(
        server.sql("SELECT count(*), sum(id) FROM big"),
        "20000|200010000"
    );
    // Cut, then grown again: the blocks behind the cut come back empty, not as they were.
    server.sql("DELETE FROM old WHERE id > 100");
    server.sql("VACUUM (TRUNCATE) old");
    server.sql("INSERT INTO old SELECT n FROM generate_series(10001, 12000) n");
    assert_eq!(
        server.sql("SELECT count(*), max(id) FROM old"),
        "2100|12000"
    );
    server.sql("TRUNCATE big");
    assert_eq!(server.sql("SELECT count(*) FROM big"), "0");
    server.sql("INSERT INTO big SELECT n, 'new' FROM generate_series(1, 500) n");
    server.sql("DROP TABLE old");
    server.sql("CHECKPOINT");
    let checked = server.sql(
        "SELECT count(bt_index_parent_check(c.oid, true)::text) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
         WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relpersistence = 'p'",
    );
    assert!(checked.parse::<u32>().unwrap() > 50);
    assert_eq!(
        server.sql("SELECT count(*) FROM pg_class c, LATERAL verify_heapam(c.oid) v WHERE c.relkind IN ('r', 't', 'm')"),
        "0"
    );
    assert_eq!(
        bench
            .volume()
            .stats()
            .failed_operations
            .load(Ordering::Relaxed),
        0
    );
}

#[test]
fn a_closed_volume_serves_nothing_more() {
    let bench = on_volume(WriteMode::Back, |server| {
        server.sql("CREATE TABLE cold AS SELECT generate_series(1, 100) AS id");
    });
    bench.volume().close();
    let error = bench
        .server()
        .try_sql("postgres", "SELECT count(*) FROM cold")
        .unwrap_err();
    assert!(
        error.contains("Input/output error") || error.contains("could not"),
        "{error}"
    );
}
