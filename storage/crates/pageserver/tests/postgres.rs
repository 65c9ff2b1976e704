//! Real Postgres against the pageserver: it starts from what storage holds, its WAL is ingested, and every
//! page that storage makes must equal the file Postgres wrote.

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::compare::{compare, materialize};
use common::postgres::{Bundle, Postgres};
use common::server::{FileWal, Server, Wals, lsn, tenant_id, timeline_id, timeline_path};
use pageserver::timestamp::PgTimestamp;
use pg_types::{Lsn, TenantId, TimelineId};
use serde_json::json;

const WAIT: Duration = Duration::from_secs(120);
const SETTINGS: [&str; 6] = [
    "wal_keep_size=4GB",
    "wal_recycle=off",
    "max_prepared_transactions=10",
    "autovacuum_naptime=1s",
    "shared_buffers=64MB",
    "log_min_messages=warning",
];

/// A timeline with a Postgres that was started from it.
struct Branch {
    tenant: TenantId,
    timeline: TimelineId,
    wal: FileWal,
    postgres: Postgres,
}

fn pgdata_of(root: &Path, timeline: TimelineId) -> PathBuf {
    // Postgres runs as another user, who must be able to get there.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).expect("mode");
    root.join(format!("pgdata-{timeline}"))
}

/// Creates a timeline (a branch, with more in the request) and starts Postgres from its pages.
async fn start_branch(
    server: &Server,
    root: &Path,
    tenant: TenantId,
    request: serde_json::Value,
    settings: &[&str],
) -> Branch {
    let timeline = timeline_id();
    let pgdata = pgdata_of(root, timeline);
    let wal = server.wals.add(timeline, &pgdata.join("pg_wal"));
    server
        .request("PUT", &format!("/v1/tenant/{tenant}"), None)
        .await;
    let mut body = json!({"new_timeline_id": timeline, "pg_version": 15});
    body.as_object_mut()
        .expect("object")
        .extend(request.as_object().expect("object").clone());
    let (status, created) = server
        .request("POST", &format!("/v1/tenant/{tenant}/timeline"), Some(body))
        .await;
    assert_eq!(status, 201, "{created}");
    let start = lsn(&created["start_lsn"]);
    let bundle = bundle_at(server, tenant, timeline, start).await;
    materialize(
        &server.data_dir.join("templates/15"),
        &server.timeline(tenant, timeline),
        &bundle,
        &pgdata,
    )
    .await;
    // Postgres logs no change of this setting when it starts: the checkpoint it starts from has to say it.
    let full_page_writes = !settings.contains(&"full_page_writes=off");
    Postgres::prepare(&pgdata, &bundle, full_page_writes);
    let settings: Vec<&str> = SETTINGS.iter().chain(settings).copied().collect();
    let postgres = Postgres::start(&pgdata, &settings);
    Branch {
        tenant,
        timeline,
        wal,
        postgres,
    }
}

async fn bundle_at(server: &Server, tenant: TenantId, timeline: TimelineId, at: Lsn) -> Bundle {
    let path = format!("{}/bundle?lsn={at}&term=1", timeline_path(tenant, timeline));
    let (status, tar) = server.get_bytes(&path).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&tar));
    Bundle::parse(&tar)
}

impl Branch {
    /// Commits what Postgres has flushed and waits until it is ingested.
    async fn ingest_flushed(&self, server: &Server) -> Lsn {
        let end = self.postgres.flush_lsn();
        self.ingest_to(server, end).await;
        end
    }

    async fn ingest_to(&self, server: &Server, end: Lsn) {
        let timeline = server.timeline(self.tenant, self.timeline);
        let (started, before) = (std::time::Instant::now(), timeline.last_record_lsn());
        self.wal.limit.send_replace(end);
        timeline.wait_lsn(end, WAIT).await.expect("ingest");
        let mib = (end.0 - before.0) as f64 / f64::from(1 << 20);
        println!(
            "ingested {mib:.1} MiB of WAL at {:.0} MiB/s",
            mib / started.elapsed().as_secs_f64()
        );
    }

    async fn stop_and_compare(&mut self, server: &Server) -> Lsn {
        let end = self.postgres.stop();
        self.ingest_to(server, end).await;
        let compared = compare(
            &self.postgres.pgdata,
            &server.timeline(self.tenant, self.timeline),
            end,
        )
        .await;
        println!("at {end}: {compared:?}");
        assert!(compared.pages > 1000, "{compared:?}");
        end
    }
}

const SCHEMA: &str = "
CREATE TABLE account (id int PRIMARY KEY, name text, balance numeric);
CREATE INDEX account_name ON account (name);
INSERT INTO account SELECT i, 'name ' || i, i FROM generate_series(1, 20000) i;
CREATE TABLE note (id serial PRIMARY KEY, body text);
INSERT INTO note (body) SELECT repeat(md5(i::text), 200) FROM generate_series(1, 200) i;
CREATE UNLOGGED TABLE scratch (id int);
INSERT INTO scratch SELECT generate_series(1, 1000);
CREATE SEQUENCE ticket;
SELECT nextval('ticket') FROM generate_series(1, 100);
CREATE TABLE pending (id int PRIMARY KEY);
";

const CHANGES: &str = "
UPDATE account SET balance = balance + 1 WHERE id % 3 = 0;
DELETE FROM account WHERE id % 7 = 0;
VACUUM account;
INSERT INTO account SELECT i, 'again ' || i, i FROM generate_series(30001, 45000) i;
BEGIN;
INSERT INTO account VALUES (100001, 'sub', 0);
SAVEPOINT a; INSERT INTO account VALUES (100002, 'sub', 0); ROLLBACK TO a;
SAVEPOINT b; INSERT INTO account VALUES (100003, 'sub', 0); RELEASE b;
COMMIT;
BEGIN; UPDATE account SET name = 'never' WHERE id < 2000; ROLLBACK;
BEGIN; INSERT INTO pending VALUES (200001); PREPARE TRANSACTION 'one';
BEGIN; INSERT INTO pending VALUES (200002); PREPARE TRANSACTION 'two';
BEGIN; INSERT INTO pending VALUES (200003); PREPARE TRANSACTION 'three';
COMMIT PREPARED 'one'; ROLLBACK PREPARED 'two';
CREATE TABLE cut AS SELECT i AS id, repeat('x', 500) AS pad FROM generate_series(1, 5000) i;
DELETE FROM cut WHERE id > 100; VACUUM cut;
INSERT INTO cut SELECT i, repeat('y', 500) FROM generate_series(1, 300) i;
TRUNCATE note; INSERT INTO note (body) SELECT 'short ' || i FROM generate_series(1, 3000) i;
CREATE TABLE gone AS SELECT * FROM account; DROP TABLE gone;
VACUUM FULL pg_class; VACUUM FULL account; REINDEX TABLE note;
VACUUM FREEZE account;
SELECT lo_create(424242);
CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(balance) AS s FROM account;
CREATE DATABASE copied STRATEGY file_copy;
CREATE DATABASE logged STRATEGY wal_log;
CREATE DATABASE dropped STRATEGY wal_log;
DROP DATABASE dropped;
CHECKPOINT;
";

/// Row locks shared by several transactions make multixacts.
fn make_multixacts(postgres: &Postgres) {
    postgres.script("postgres", "CREATE TABLE shared (id int PRIMARY KEY); INSERT INTO shared SELECT generate_series(1, 500);");
    for round in 0..3 {
        postgres.script(
            "postgres",
            &format!(
                "BEGIN; SELECT count(*) FROM (SELECT * FROM shared FOR KEY SHARE) s;
                 SAVEPOINT s{round}; SELECT count(*) FROM (SELECT * FROM shared FOR SHARE) s;
                 SAVEPOINT t{round}; SELECT count(*) FROM (SELECT * FROM shared FOR NO KEY UPDATE) s; COMMIT;"
            ),
        );
    }
}

/// Promise: after any of Postgres's own operations, every page that storage makes equals the one Postgres
/// wrote: from memory, from flushed layers, after a restart, after compaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_equals_postgres() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let tenant = tenant_id();
    let mut branch = start_branch(&server, root.path(), tenant, json!({}), &[]).await;
    branch.postgres.script("postgres", SCHEMA);
    branch.ingest_flushed(&server).await;
    branch.postgres.script("postgres", CHANGES);
    make_multixacts(&branch.postgres);
    branch.postgres.script(
        "copied",
        "CREATE TABLE here AS SELECT generate_series(1, 1000) AS i;",
    );
    branch.postgres.script(
        "logged",
        "CREATE TABLE here AS SELECT generate_series(1, 1000) AS i;",
    );
    branch
        .postgres
        .script("postgres", "COMMIT PREPARED 'three';");
    branch
        .postgres
        .pgbench(&["-i", "-q", "-s", "2", "postgres"]);
    branch
        .postgres
        .pgbench(&["-n", "-c", "4", "-j", "2", "-t", "300", "postgres"]);
    let end = branch.stop_and_compare(&server).await;

    let path = timeline_path(tenant, branch.timeline);
    let (status, flushed) = server
        .request("POST", &format!("{path}/checkpoint"), None)
        .await;
    assert_eq!((status, lsn(&flushed["remote_consistent_lsn"])), (200, end));
    assert_eq!(
        flushed["current_logical_size"].as_u64().expect("size") % 8192,
        0
    );
    compare(
        &branch.postgres.pgdata,
        &server.timeline(tenant, branch.timeline),
        end,
    )
    .await;

    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    let timeline = server.timeline(tenant, branch.timeline);
    assert_eq!(
        timeline.last_record_lsn(),
        end,
        "nothing has to be ingested again"
    );
    compare(&branch.postgres.pgdata, &timeline, end).await;
    server.stop().await;
}

/// Promise: a crash of the pageserver at any moment loses nothing, whatever was flushed and whatever was not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_lose_nothing() {
    let root = tempfile::tempdir().expect("tempdir");
    let mut server = Server::start(root.path(), Wals::default()).await;
    let tenant = tenant_id();
    let config = json!({"checkpoint_distance_bytes": 1 << 20, "compaction_threshold": 3,
        "compaction_target_bytes": 2 << 20});
    let mut branch = start_branch(
        &server,
        root.path(),
        tenant,
        json!({}),
        &["full_page_writes=off"],
    )
    .await;
    server.configure(tenant, config).await;
    branch
        .postgres
        .pgbench(&["-i", "-q", "-s", "1", "postgres"]);
    for round in 0..4 {
        // Many times larger than what memory may hold here: it is flushed in parts.
        branch.postgres.script(
            "postgres",
            &format!("CREATE DATABASE copied{round} STRATEGY file_copy"),
        );
        branch
            .postgres
            .pgbench(&["-n", "-c", "4", "-j", "2", "-t", "200", "postgres"]);
        // The crash comes while ingest and flushes are under way.
        branch.wal.limit.send_replace(branch.postgres.flush_lsn());
        let wals = server.stop().await;
        server = Server::start(root.path(), wals).await;
    }
    let end = branch.stop_and_compare(&server).await;
    let timeline = server.timeline(tenant, branch.timeline);
    timeline.checkpoint().await.expect("checkpoint");
    wait_until("compaction", || {
        timeline
            .layer_infos()
            .iter()
            .filter(|layer| layer.kind == "delta" && layer.level == 0)
            .count()
            < 3
    })
    .await;
    assert!(timeline.layer_infos().iter().any(|layer| layer.level == 1));
    compare(&branch.postgres.pgdata, &timeline, end).await;
    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    compare(
        &branch.postgres.pgdata,
        &server.timeline(tenant, branch.timeline),
        end,
    )
    .await;
    server.stop().await;
}

async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + WAIT;
    while !holds() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what} did not happen"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Promise: a time finds an LSN that holds exactly the commits up to it, to the microsecond, and an LSN the time of
/// the newest commit that ends at or before it; the logical size is carried along and equals what counting says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_and_lsns_meet_at_the_commit_record() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let tenant = tenant_id();
    // Autovacuum commits too, between a commit of the test and the test's look at where the WAL ends.
    let settings = ["track_commit_timestamp=on", "autovacuum=off"];
    let main = start_branch(&server, root.path(), tenant, json!({}), &settings).await;
    let postgres = &main.postgres;
    let path = timeline_path(tenant, main.timeline);
    let store = server.timeline(tenant, main.timeline);
    let before = store.current_size().await.expect("size");
    postgres.script("postgres", "CREATE TABLE t (id int, filler text)");
    let mut commits: Vec<(PgTimestamp, pg_types::Lsn)> = Vec::new();
    for id in 0..6 {
        postgres.script(
            "postgres",
            &format!("INSERT INTO t SELECT {id}, repeat('x', 500) FROM generate_series(1, 100)"),
        );
        let line = postgres.sql("postgres", &format!(
            "SELECT to_char(pg_xact_commit_timestamp(xmin) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') || ' ' || pg_current_wal_insert_lsn() FROM t WHERE id = {id} LIMIT 1"
        ));
        let (time, after) = line.split_once(' ').expect("two words");
        commits.push((
            time.parse().expect("a time"),
            after.parse().expect("an LSN"),
        ));
    }
    main.postgres.script("postgres", "DELETE FROM t WHERE id > 2; VACUUM t; CREATE TABLE gone AS SELECT generate_series(1, 20000) AS id; DROP TABLE gone; CREATE DATABASE second");
    main.ingest_flushed(&server).await;

    let ask = async |what: String| {
        server
            .request("GET", &format!("{path}/{what}"), None)
            .await
            .1
    };
    let mut last = pg_types::Lsn::INVALID;
    for (number, (time, after)) in commits.iter().enumerate() {
        let found = ask(format!("lsn_by_timestamp?timestamp={time}")).await;
        let at = lsn(&found["lsn"]);
        assert_eq!(found["kind"], "present");
        // What is found may lie behind the commit record, before whatever ends next: no other commit stands between.
        assert!(last < at, "commit {number}: {last} < {at}");
        for behind in [at, *after] {
            let of = ask(format!("timestamp_of_lsn?lsn={behind}")).await;
            assert_eq!(
                of["timestamp"],
                time.to_string(),
                "commit {number} at {behind}"
            );
        }
        // A microsecond earlier it was the commit before.
        let earlier = ask(format!(
            "lsn_by_timestamp?timestamp={}",
            PgTimestamp(time.0 - 1)
        ))
        .await;
        if number > 0 {
            assert_eq!(lsn(&earlier["lsn"]), last, "just before commit {number}");
        }
        last = at;
    }

    let carried = store.current_size().await.expect("size");
    assert_eq!(
        store.times_counted(),
        1,
        "counted once, when it was first asked for"
    );
    assert!(
        carried > before + (6 << 20),
        "a second database has its pages: {before} to {carried}"
    );
    let (_, status) = server.request("GET", &path, None).await;
    assert_eq!(status["current_logical_size"], carried);
    assert!(
        status["history_bytes"].as_u64().expect("bytes") > 100_000,
        "{status}"
    );
    let (_, all) = server
        .request("GET", &format!("/v1/tenant/{tenant}/timeline"), None)
        .await;
    assert_eq!(all[0]["current_logical_size"], carried);
    // A branch counts for itself, and finds the same.
    let request = json!({"ancestor_timeline_id": main.timeline});
    let branch = start_branch(&server, root.path(), tenant, request, &[]).await;
    let fresh = server.timeline(tenant, branch.timeline);
    let (at, grown) = (
        fresh.manifest().start_lsn,
        fresh.current_size().await.expect("size"),
    );
    assert_eq!(at, store.last_record_lsn());
    assert_eq!(grown, carried);
    server.stop().await;
}

/// Promise: a branch at a past LSN sees exactly the past, takes its own writes, and neither side sees the
/// other's; a time finds the LSN behind the last commit before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_sees_the_past_and_is_on_its_own() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let tenant = tenant_id();
    let mut main = start_branch(&server, root.path(), tenant, json!({}), &[]).await;
    main.postgres.script("postgres", "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'old' FROM generate_series(1, 5000) i;
        BEGIN; INSERT INTO t VALUES (9001, 'old'); PREPARE TRANSACTION 'open';");
    let past = main.ingest_flushed(&server).await;
    let before = main.postgres.sql(
        "postgres",
        "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    );
    main.postgres.script("postgres", "COMMIT PREPARED 'open'; UPDATE t SET v = 'new'; DELETE FROM t WHERE id > 1000; VACUUM t; CREATE TABLE later (id int); DROP TABLE t; CREATE TABLE t (id int); INSERT INTO t VALUES (1);");
    main.ingest_flushed(&server).await;

    let path = timeline_path(tenant, main.timeline);
    let (status, found) = server
        .request(
            "GET",
            &format!("{path}/lsn_by_timestamp?timestamp={before}"),
            None,
        )
        .await;
    assert_eq!(
        (status, found["kind"].as_str()),
        (200, Some("present")),
        "{found}"
    );
    let found = lsn(&found["lsn"]);
    assert!(found < main.wal.limit.borrow().to_owned(), "{found}");
    let (_, future) = server
        .request(
            "GET",
            &format!("{path}/lsn_by_timestamp?timestamp=2999-01-01T00:00:00Z"),
            None,
        )
        .await;
    assert_eq!(future["kind"], "future");
    let (_, oldest) = server
        .request(
            "GET",
            &format!("{path}/lsn_by_timestamp?timestamp=2001-01-01T00:00:00Z"),
            None,
        )
        .await;
    assert_eq!(oldest["kind"], "past");

    for point in [
        json!({"ancestor_start_lsn": past}),
        json!({"ancestor_timestamp": before}),
    ] {
        let mut request = json!({"ancestor_timeline_id": main.timeline});
        request
            .as_object_mut()
            .expect("object")
            .extend(point.as_object().expect("object").clone());
        let mut branch = start_branch(
            &server,
            root.path(),
            tenant,
            request,
            &["full_page_writes=off"],
        )
        .await;
        assert_eq!(
            branch
                .postgres
                .sql("postgres", "SELECT count(*), min(v), max(v) FROM t"),
            "5000|old|old"
        );
        branch.postgres.script("postgres", "COMMIT PREPARED 'open'");
        assert_eq!(
            branch.postgres.sql("postgres", "SELECT count(*) FROM t"),
            "5001"
        );
        branch.postgres.script("postgres", "UPDATE t SET v = 'branch' WHERE id <= 100; CREATE TABLE mine AS SELECT generate_series(1, 100) AS i; VACUUM FREEZE t;");
        branch.stop_and_compare(&server).await;
        let (status, refusal) = server.request("DELETE", &path, None).await;
        assert_eq!(
            (status, refusal["code"].as_str()),
            (412, Some("precondition_failed"))
        );
        let (status, _) = server
            .request("DELETE", &timeline_path(tenant, branch.timeline), None)
            .await;
        assert_eq!(status, 204);
    }
    assert_eq!(main.postgres.sql("postgres", "SELECT count(*) FROM t"), "1");
    main.stop_and_compare(&server).await;
    assert_eq!(server.request("DELETE", &path, None).await.0, 204);
    server.stop().await;
}

/// Promise: chains stay near the threshold, tight under pushdown, also after a restart and on a fresh branch,
/// and follow a change of the setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chains_are_bounded() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let tenant = tenant_id();
    let mut branch = start_branch(
        &server,
        root.path(),
        tenant,
        json!({}),
        &["full_page_writes=off"],
    )
    .await;
    let threshold = |deltas: u32| json!({"image_threshold_pushdown": deltas});
    server.configure(tenant, threshold(16)).await;
    branch
        .postgres
        .pgbench(&["-i", "-q", "-s", "1", "postgres"]);
    branch
        .postgres
        .pgbench(&["-n", "-c", "2", "-t", "1000", "postgres"]);
    let timeline = server.timeline(tenant, branch.timeline);
    // All of it comes in at once, faster than any compute writes it.
    let longest = watch_longest(timeline.clone());
    branch.ingest_flushed(&server).await;
    assert_eq!(timeline.image_threshold(), 16);
    let longest = longest.stop().await;
    println!("longest chain in the burst: {longest}");
    // Below four thresholds ingest does not wait; it looks once for each 16 deltas (`gather`), which may all be one
    // page's.
    assert!(longest < 4 * 16 + 16, "ingest outran the images: {longest}");
    wait_until("images", || timeline.chains().pending_images == 0).await;
    assert!(timeline.chains().longest < 16);

    let request = json!({"ancestor_timeline_id": branch.timeline});
    let fork = start_branch(
        &server,
        root.path(),
        tenant,
        request,
        &["full_page_writes=off"],
    )
    .await;
    let child = server.timeline(tenant, fork.timeline);
    wait_until("chain lengths of the branch", || child.chains().longest > 0).await;
    fork.postgres
        .pgbench(&["-n", "-c", "2", "-t", "500", "postgres"]);
    fork.ingest_flushed(&server).await;
    wait_until("images on the branch", || {
        child.chains().pending_images == 0
    })
    .await;
    assert!(child.chains().longest < 16);
    drop((fork, child));

    server.configure(tenant, threshold(4)).await;
    wait_until("images after the change", || timeline.chains().longest < 4).await;
    drop(timeline);
    let end = branch.stop_and_compare(&server).await;
    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    branch.ingest_to(&server, end).await;
    let timeline = server.timeline(tenant, branch.timeline);
    wait_until("images after the restart", || {
        timeline.chains().pending_images == 0 && timeline.chains().longest > 0
    })
    .await;
    let compared = compare(&branch.postgres.pgdata, &timeline, end).await;
    assert!(compared.longest_chain <= 4, "{compared:?}");
    server.stop().await;
}

/// Promise: in the adaptive mode no chain grows beyond the bound, storage is still right, and the mode is live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_adaptive_mode_bounds_chains_and_is_live() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, fpw) = (tenant_id(), ["full_page_writes=off"]);
    let mut branch = start_branch(&server, root.path(), tenant, json!({}), &fpw).await;
    let timeline = server.timeline(tenant, branch.timeline);
    let chains_path = timeline_path(tenant, branch.timeline) + "/chains";
    let configure = |body| server.configure(tenant, body);
    branch.postgres.pgbench(&["-i", "-q", "postgres"]);
    configure(json!({"image_threshold_pushdown": 16})).await;
    for _ in 0..2 {
        configure(json!({"image_mode": "adaptive", "image_threshold_max": 40})).await;
        let load = ["-n", "-c", "2", "-t", "600", "postgres"];
        branch.postgres.pgbench(&load);
        branch.ingest_flushed(&server).await;
        wait_until("images", || timeline.chains().pending_images == 0).await;
        let (_, chains) = server.request("GET", &chains_path, None).await;
        let shown = (&chains["mode"], &chains["policy"]["chain"]);
        assert_eq!(shown, (&json!("adaptive"), &json!(40)), "{chains}");
        assert!(chains["longest"].as_u64() < Some(40), "{chains}");
        configure(json!({"image_mode": "fixed"})).await;
        wait_until("tight images", || timeline.chains().longest < 16).await;
    }
    drop(timeline);
    branch.stop_and_compare(&server).await;
    server.stop().await;
}

/// Samples the longest chain until it is stopped.
struct Longest {
    stop: tokio_util::sync::CancellationToken,
    task: tokio::task::JoinHandle<u32>,
}

fn watch_longest(timeline: std::sync::Arc<pageserver::timeline::Timeline>) -> Longest {
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        let mut longest = 0;
        while !stopped.is_cancelled() {
            // Until the setting of the compute's full page writes is ingested, the loose threshold holds.
            if timeline.image_threshold() == 16 {
                longest = longest.max(timeline.chains().longest);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        longest
    });
    Longest { stop, task }
}

impl Longest {
    async fn stop(self) -> u32 {
        self.stop.cancel();
        self.task.await.expect("sampling")
    }
}

/// Promise: a safekeeper that answers and has nothing new, while others commit, does not hold ingest up,
/// whether or not anybody reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_safekeeper_that_is_stuck_is_left() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let tenant = tenant_id();
    let branch = start_branch(&server, root.path(), tenant, json!({}), &[]).await;
    branch.ingest_flushed(&server).await;
    branch.wal.stuck.send_replace(true);
    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    let timeline = server.timeline(tenant, branch.timeline);
    wait_until("the stuck stream", || {
        *branch.wal.stuck_streams.borrow() > 0
    })
    .await;
    branch
        .postgres
        .script("postgres", "CREATE TABLE t AS SELECT 1 AS i");
    let end = branch.postgres.flush_lsn();
    branch.wal.stuck.send_replace(false);
    branch.wal.limit.send_replace(end);
    wait_until("another safekeeper's WAL", || {
        timeline.last_record_lsn() >= end
    })
    .await;
    server.stop().await;
}

/// Promise: a record that storage cannot serve stops its timeline with the record named; reads before it still work,
/// nothing waits for what will not come, and a restart finds the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_served_stops_the_timeline() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let tenant = tenant_id();
    let mut branch = start_branch(
        &server,
        root.path(),
        tenant,
        json!({}),
        &["full_page_writes=off", "allow_in_place_tablespaces=on"],
    )
    .await;
    branch.postgres.script(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 1000) AS i;",
    );
    let good = branch.ingest_flushed(&server).await;
    // Understood, but no compute could be started behind it.
    branch
        .postgres
        .script("postgres", "CREATE TABLESPACE beyond LOCATION '';");
    let end = branch.postgres.stop();
    branch.wal.limit.send_replace(end);
    let path = timeline_path(tenant, branch.timeline);
    let check = async |server: &Server| {
        let timeline = server.timeline(tenant, branch.timeline);
        let error = timeline.wait_lsn(end, WAIT).await.expect_err("stopped");
        assert_eq!(error.code().0, "stopped");
        let (_, status) = server.request("GET", &path, None).await;
        assert_eq!(status["state"], "stopped");
        let reason = status["reason"].as_str().expect("a reason");
        assert!(
            reason.contains("Tablespace") && reason.contains("record at 0/"),
            "{reason}"
        );
        let last = lsn(&status["last_record_lsn"]);
        assert!(last >= good && last < end);
        bundle_at(server, tenant, branch.timeline, last).await;
        assert!(
            !timeline
                .reads()
                .list_rels(1663, 5, good)
                .await
                .expect("a listing")
                .is_empty()
        );
    };
    check(&server).await;
    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    check(&server).await;
    server.stop().await;
}

/// Promise: once history is let go of, everything still readable reads as before: the newest version, a branch at
/// an old LSN, both after a restart; the rest is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_that_is_let_go_of_takes_nothing_else_along() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let tenant = tenant_id();
    let config = |window: u64| {
        json!({"checkpoint_distance_bytes": 1 << 20, "compaction_threshold": 2,
            "compaction_target_bytes": 1 << 20, "history_window_seconds": window})
    };
    let fpw = ["full_page_writes=off"];
    let mut main = start_branch(&server, root.path(), tenant, json!({}), &fpw).await;
    server.configure(tenant, config(86_400)).await;
    main.postgres.pgbench(&["-i", "-q", "-s", "1", "postgres"]);
    main.wal.limit.send_replace(main.postgres.flush_lsn());
    let timeline = server.timeline(tenant, main.timeline);
    let limit = *main.wal.limit.borrow();
    timeline.wait_lsn(limit, WAIT).await.expect("ingest");
    let at = timeline.last_record_lsn();
    let parent = json!({"ancestor_timeline_id": main.timeline, "ancestor_start_lsn": at});
    let mut branch = start_branch(&server, root.path(), tenant, parent, &fpw).await;
    for round in 0..2 {
        main.postgres.script("postgres", &format!("DROP TABLE IF EXISTS t; CREATE TABLE t AS SELECT i, {round} AS v FROM generate_series(1, 20000) i; UPDATE t SET v = v + 1; VACUUM"));
        main.postgres
            .pgbench(&["-n", "-c", "4", "-j", "2", "-t", "200", "postgres"]);
        main.wal.limit.send_replace(main.postgres.flush_lsn());
    }
    server.configure(tenant, config(1)).await;
    // Commits after the window has passed, so that the time of the newest one moves on.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    main.postgres
        .script("postgres", "CREATE TABLE later (i int)");
    main.wal.limit.send_replace(main.postgres.flush_lsn());
    wait_until("trimming", || timeline.oldest_lsn() > at).await;
    let end = main.stop_and_compare(&server).await;
    timeline.checkpoint().await.expect("checkpoint");
    wait_until("settling", || {
        let layers = timeline.layer_infos();
        layers.iter().any(|layer| layer.level == 2)
    })
    .await;
    compare(&main.postgres.pgdata, &timeline, end).await;
    let old = timeline.resolve_position(at, Some(at)).await;
    assert!(old.expect_err("let go of").to_string().contains("history"));
    branch.stop_and_compare(&server).await;
    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    let timeline = server.timeline(tenant, main.timeline);
    timeline.wait_lsn(end, WAIT).await.expect("ingest");
    compare(&main.postgres.pgdata, &timeline, end).await;
    assert!(timeline.oldest_lsn() > at);
    server.stop().await;
}
