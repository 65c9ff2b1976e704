//! Promises of safekeepers and proposer together, with a real Postgres under load: what it was told is safe is on
//! a majority, byte for byte, through kill -9 of a safekeeper, of Postgres, and through a takeover.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Postgres, Quorum, committed_xids, compute, current_lsn, eventually, finish};
use pg_types::Lsn;
use proposer::{Fatal, elect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_safekeeper_ends_with_the_bytes_of_pg_wal() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let mut config = quorum.config();
    // So small that the one that is down has to be supplied by a peer.
    config.buffer_bytes = 1 << 20;
    let elected = elect(config).await.expect("elected");
    assert_eq!(elected.start_lsn, quorum.start_lsn);
    assert_eq!(
        (elected.term.0, elected.system_identifier),
        (1, quorum.system_identifier)
    );
    postgres.start();
    let handle = elected.stream(postgres.conn(), postgres.quitter());
    let client = postgres.connect().await;
    finish(postgres.pgbench(&["-i", "-q", "-s", "1"])).await;

    // Under load one is killed, stays away for more WAL than memory holds, and comes back.
    let load = postgres.pgbench(&["-n", "-c", "4", "-T", "5"]);
    quorum.safekeepers[1].kill();
    let bulk = "CREATE TABLE bulk AS SELECT g, repeat('x', 50) FROM generate_series(1, 100000) g";
    client
        .batch_execute(bulk)
        .await
        .expect("commits go on with two of three");
    quorum.safekeepers[1].restart().await;
    let report = finish(load).await;
    assert!(
        report.contains("number of failed transactions: 0"),
        "{report}"
    );
    println!("{report}");

    // A whole segment left behind, too.
    client
        .query_one("SELECT pg_switch_wal()", &[])
        .await
        .expect("switch");
    client
        .batch_execute("CREATE TABLE done (); DROP TABLE done")
        .await
        .expect("more WAL");
    let end = current_lsn(&client).await;
    tokio::time::timeout(common::PATIENCE, handle.committed(end))
        .await
        .expect("committed in time")
        .expect("committed");
    quorum.all_committed(end).await;
    let expected = postgres.wal(quorum.start_lsn, end);
    for index in 0..3 {
        assert!(
            quorum.wal(index, quorum.start_lsn, end) == expected,
            "safekeeper {} differs from pg_wal",
            index + 1
        );
    }
    let now = *handle.positions().borrow();
    assert!(
        now.received >= now.record_end && now.record_end >= now.commit && now.written >= now.commit
    );
    handle.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_fences_the_older_compute() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let first = elect(quorum.config()).await.expect("elected");
    postgres.start();
    let first = first.stream(postgres.conn(), postgres.quitter());
    let client = postgres.connect().await;
    client
        .batch_execute("CREATE TABLE t (i int); INSERT INTO t VALUES (1)")
        .await
        .expect("writes");
    let acknowledged = current_lsn(&client).await;

    let second = elect(quorum.config())
        .await
        .expect("elected over the first");
    assert_eq!(second.term.0, 2);
    assert!(
        second.start_lsn >= acknowledged,
        "L {} lies before what was acknowledged at {acknowledged}",
        second.start_lsn
    );
    let mut fatal = first.fatal();
    let reason = tokio::time::timeout(common::PATIENCE, fatal.wait_for(Option::is_some))
        .await
        .expect("fenced in time")
        .expect("proposer lives")
        .clone();
    assert_eq!(reason, Some(Fatal::Fenced { by: second.term }));

    // What the older one still writes waits for ever, and no safekeeper takes it.
    let observer = postgres.connect().await;
    let doomed =
        tokio::spawn(async move { client.batch_execute("INSERT INTO t VALUES (2)").await });
    eventually("the commit to wait", async || {
        let row = observer
            .query_one(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
                &[],
            )
            .await
            .expect("query");
        (row.get::<_, i64>(0) == 1).then_some(())
    })
    .await;
    assert!(
        !doomed.is_finished(),
        "a fenced compute acknowledged a commit"
    );
    // An election ends with a majority. The third safekeeper may hear of the term later, and until then take what the
    // fenced compute sends it; the announcement of the term cuts that off again.
    for index in 0..3 {
        eventually("the safekeeper to follow the newer compute", async || {
            let follows = quorum.status(index).await["term"] == 2
                && quorum.lsn(index, "flush_lsn").await == second.start_lsn;
            follows.then_some(())
        })
        .await;
    }
    assert!(
        !doomed.is_finished(),
        "a fenced compute acknowledged a commit"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_commit_is_lost_with_its_postgres() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t (writer int, i int)")
        .await
        .expect("table");

    // Writers note each transaction once its commit has returned.
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..4 {
        let client = postgres.connect().await;
        let stop = stop.clone();
        writers.push(tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            let insert = format!("INSERT INTO t SELECT {writer}, g FROM generate_series(1, 20) g RETURNING pg_current_xact_id()::text::bigint");
            while !stop.load(Ordering::Relaxed) {
                match client.query(insert.as_str(), &[]).await {
                    Ok(rows) => acknowledged.push(rows[0].get::<_, i64>(0) as u32),
                    Err(_) => break,
                }
            }
            acknowledged
        }));
    }
    let mut positions = handle.positions();
    let begun = positions.borrow().commit;
    positions
        .wait_for(|now| now.commit.0 > begun.0 + (1 << 20))
        .await
        .expect("load");
    // A safekeeper dies with the acknowledgements it gave, then Postgres; its proposer goes with the compute.
    quorum.safekeepers[0].kill();
    positions
        .wait_for(|now| now.commit.0 > begun.0 + (2 << 20))
        .await
        .expect("load");
    postgres.kill();
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.expect("join"));
    }
    let told = positions.borrow().commit;
    drop(handle);
    quorum.safekeepers[0].restart().await;
    quorum.safekeepers[2].kill();

    let again = elect(quorum.config())
        .await
        .expect("elected again with another majority");
    assert!(
        again.start_lsn >= told,
        "L {} lies before {told}, which Postgres was told is safe",
        again.start_lsn
    );
    assert!(
        acknowledged.len() > 100,
        "only {} transactions ran",
        acknowledged.len()
    );
    quorum.safekeepers[2].restart().await;
    quorum.all_committed(again.start_lsn).await;
    for index in 0..3 {
        let wal = quorum.wal(index, quorum.start_lsn, again.start_lsn);
        let (xids, end) = committed_xids(quorum.start_lsn, &wal);
        assert_eq!(end, again.start_lsn, "L is no record boundary");
        let lost: Vec<&u32> = acknowledged
            .iter()
            .filter(|xid| !xids.contains(xid))
            .collect();
        assert!(
            lost.is_empty(),
            "safekeeper {}: acknowledged and lost: {lost:?}",
            index + 1
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_acknowledged_and_the_compute_is_told_to_stop() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let mut config = quorum.config();
    config.quorum_timeout = Duration::from_secs(2);
    let (handle, client) = compute(config.clone(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t (i int)")
        .await
        .expect("a write");
    quorum.safekeepers[0].kill();
    quorum.safekeepers[1].kill();
    let doomed =
        tokio::spawn(async move { client.batch_execute("INSERT INTO t VALUES (2)").await });
    let mut fatal = handle.fatal();
    let reason = tokio::time::timeout(common::PATIENCE, fatal.wait_for(Option::is_some))
        .await
        .expect("in time")
        .expect("proposer lives")
        .clone();
    assert!(matches!(reason, Some(Fatal::NoQuorum { .. })), "{reason:?}");
    assert!(!doomed.is_finished(), "acknowledged by one of three");
    config.election_timeout = Duration::from_secs(1);
    let error = elect(config)
        .await
        .expect_err("no election without a majority")
        .to_string();
    assert!(error.contains("1 of 3 safekeepers answer"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_safekeeper_is_a_quorum_of_its_own() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 1, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t (i int); INSERT INTO t VALUES (1)")
        .await
        .expect("writes");
    let before = current_lsn(&client).await;
    quorum.safekeepers[0].kill();
    let pending = tokio::spawn(async move {
        client
            .batch_execute("INSERT INTO t VALUES (2)")
            .await
            .expect("acknowledged once it is back");
        current_lsn(&client).await
    });
    quorum.safekeepers[0].restart().await;
    let after = tokio::time::timeout(common::PATIENCE, pending)
        .await
        .expect("in time")
        .expect("join");
    assert!(after > before && quorum.lsn(0, "commit_lsn").await >= before);
    handle.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_of_full_page_writes_is_announced_when_seen_and_when_committed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    let mut changes = handle.last_fpw_change();
    let mut last = Lsn::INVALID;
    for enabled in [false, true, false] {
        client
            .execute(
                &format!("ALTER SYSTEM SET full_page_writes = {enabled}"),
                &[],
            )
            .await
            .expect("set");
        client
            .query_one("SELECT pg_reload_conf()", &[])
            .await
            .expect("reload");
        let seen = changes.wait_for(|change| {
            change.is_some_and(|change| change.enabled == enabled && change.committed)
        });
        let change = tokio::time::timeout(common::PATIENCE, seen)
            .await
            .expect("in time")
            .expect("proposer lives")
            .expect("checked");
        assert!(change.record_lsn > last && change.end_lsn > change.record_lsn);
        assert!(handle.positions().borrow().commit >= change.end_lsn);
        last = change.end_lsn;
    }
    handle.shutdown().await;
}
